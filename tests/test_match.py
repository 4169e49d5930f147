"""Matching: hand-made cases on a ruler of cadences, absurd rows, and properties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_reference import alignment, slow_match
from star_cases import StarCase, planet_of, star_cases

from transitbench.ephemeris import Ephemeris
from transitbench.errors import TransitBenchError
from transitbench.match import MIN_TIMING_TOLERANCE_DAYS, StarMatch, match_star, match_stars
from transitbench.truth import StarTruth

CADENCE = 1 / 64
"""Spacing of the ruler in days: a power of two, so that sums of its multiples are exact."""

RULER = np.arange(0.0, 64.0 + CADENCE, CADENCE)


def rows(*of_star: tuple[float, ...]) -> np.ndarray:
    return np.array([row if len(row) == 3 else (*row, 1.0) for row in of_star]).reshape(-1, 3)


def without(time: np.ndarray, *spans: tuple[float, float]) -> np.ndarray:
    keep = np.ones(time.size, dtype=bool)
    for start, end in spans:
        keep &= (time < start) | (time > end)
    return time[keep]


def credit(
    period: float, t0: float, planet: Ephemeris, time: np.ndarray = RULER
) -> tuple[float, float, float]:
    """Credit, f_planet and f_row of one row on one planet."""
    match = match_star(time, [planet], rows((period, t0)))
    return match.credit, match.f_planet[0][0], match.f_row[0][0]


FOUR_DAYS = Ephemeris(4.0, 2.0, 6.0)
"""16 transits on the ruler, at 2, 6, …, 62; tolerance D/2 = 1/8 d."""


def test_the_true_ephemeris_earns_full_credit():
    assert credit(4.0, 2.0, FOUR_DAYS) == (1.0, 1.0, 1.0)


def test_a_timing_error_of_exactly_half_the_duration_still_lines_up():
    assert credit(4.0, 2.125, FOUR_DAYS) == (1.0, 1.0, 1.0)
    assert credit(4.0, 1.875, FOUR_DAYS) == (1.0, 1.0, 1.0)


def test_a_timing_error_just_beyond_half_the_duration_does_not():
    assert credit(4.0, 2.125 + 1e-9, FOUR_DAYS)[0] == 0.0


def test_a_short_transit_is_judged_with_the_floor_on_the_tolerance():
    short = Ephemeris(4.0, 2.0, 0.8)
    assert short.duration_hours / 48 < MIN_TIMING_TOLERANCE_DAYS
    assert credit(4.0, 2.0 + 0.0203, short)[0] == 1.0
    assert credit(4.0, 2.0 + 0.0205, short)[0] == 0.0


@pytest.mark.parametrize(
    ("t0", "n_lined_up"),
    [(2.0 - 0.02 * 6, 13), (2.0 - 0.02 * 5, 12), (2.0 - 0.02 * 4, 11)],
)
def test_full_credit_needs_three_quarters_of_the_planets_transits(t0: float, n_lined_up: int):
    """A period 0.5 % long drifts through the planet's transits by 0.02 d each."""
    f_planet = n_lined_up / 16
    assert credit(4.02, t0, FOUR_DAYS)[:2] == (1.0 if f_planet >= 0.75 else 0.0, f_planet)


def test_eleven_of_fifteen_is_less_than_three_quarters():
    time = without(RULER, (61.8, 62.2))
    assert credit(4.02, 2.0 - 0.02 * 4, FOUR_DAYS, time)[:2] == (0.0, 11 / 15)


@pytest.mark.parametrize(("error", "n_lined_up", "earned"), [(-0.08, 6, 0.5), (-0.04, 5, 0.0)])
def test_half_credit_needs_three_quarters_on_the_better_side(
    error: float, n_lined_up: int, earned: float
):
    """Twice the period and 0.5 % long: eight transits drifting by 0.04 d each."""
    expected = (earned, n_lined_up / 16, n_lined_up / 8)
    assert credit(8.04, 2.0 + error, FOUR_DAYS) == expected


def test_period_tolerance_is_one_percent_of_the_planets_period():
    one = Ephemeris(30.0, 2.0, 24.0)
    assert credit(30.299, 1.75, one)[0] == 1.0
    assert credit(30.301, 1.75, one)[0] == 0.0
    assert credit(29.701, 2.2, one)[0] == 1.0
    assert credit(29.699, 2.2, one)[0] == 0.0


@pytest.mark.parametrize(
    ("period", "t0", "f_planet", "f_row"),
    [
        (8.0, 2.0, 0.5, 1.0),
        (12.0, 2.0, 6 / 16, 1.0),
        (2.0, 2.0, 1.0, 16 / 33),
        (4 / 3, 2.0, 1.0, 16 / 48),
    ],
    ids=["double", "triple", "half", "third"],
)
def test_an_alias_earns_half_credit(period: float, t0: float, f_planet: float, f_row: float):
    assert credit(period, t0, FOUR_DAYS) == (0.5, f_planet, f_row)


def test_twice_the_period_between_the_transits_earns_nothing():
    assert credit(8.0, 4.0, FOUR_DAYS) == (0.0, 0.0, 0.0)


def test_other_ratios_earn_nothing_and_are_not_looked_at():
    for factor in (0.25, 2 / 3, 1.5, 4.0):
        assert credit(4.0 * factor, 2.0, FOUR_DAYS) == (0.0, 0.0, 0.0)


def test_half_credit_needs_a_fifth_on_the_poorer_side():
    """Triple period: one of three transits lines up, until gaps leave fewer of the row's."""
    planet = Ephemeris(4.0, 2.0, 6.0)
    row_transits = (2.0, 14.0, 26.0, 38.0, 50.0, 62.0)
    hidden = [(t - 0.2, t + 0.2) for t in row_transits[:3]]
    assert credit(12.0, 2.0, planet, without(RULER, *hidden)) == (0.5, 3 / 13, 1.0)
    hidden = [(t - 0.2, t + 0.2) for t in row_transits[:4]]
    assert credit(12.0, 2.0, planet, without(RULER, *hidden)) == (0.0, 2 / 12, 1.0)


def test_half_credit_at_exactly_a_fifth():
    time = without(RULER, *[(t - 0.2, t + 0.2) for t in (14.0, 26.0, 38.0, 50.0, 62.0, 58.0)])
    assert credit(12.0, 2.0, FOUR_DAYS, without(time, (53.0, 55.0), (5.0, 7.0), (9.0, 11.0)))[
        :2
    ] == (0.0, 1 / 7)
    few = without(RULER, *[(t - 0.2, t + 0.2) for t in (14, 26, 38, 50, 62, 6, 10, 18, 22, 30, 34)])
    assert credit(12.0, 2.0, FOUR_DAYS, few) == (0.5, 1 / 5, 1.0)


def test_a_planet_with_every_transit_in_a_gap_cannot_be_found():
    time = without(RULER, *[(t - 0.2, t + 0.2) for t in np.arange(2.0, 64.0, 4.0)])
    assert credit(4.0, 2.0, FOUR_DAYS, time) == (0.0, 0.0, 0.0)


def test_transits_in_gaps_count_on_neither_side():
    time = without(RULER, (20.0, 45.0))
    assert credit(4.0, 2.0, FOUR_DAYS, time) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("edge", [31.875, 32.125])
def test_one_cadence_at_the_edge_of_the_window_makes_a_transit_observed(edge: float):
    """D/2 from the mid-time is inside the window, one float farther is not."""
    planet = Ephemeris(40.0, 32.0, 6.0)
    farther = np.nextafter(edge, 2 * edge - 32.0)
    assert credit(40.0, 32.0, planet, np.array([0.0, edge, 64.0]))[0] == 1.0
    assert credit(40.0, 32.0, planet, np.array([0.0, farther, 64.0]))[0] == 0.0


def test_mid_times_on_the_ends_of_the_span_are_observed_and_beyond_it_are_not():
    planet = Ephemeris(64.0, 0.0, 6.0)
    assert credit(64.0, 0.0, planet)[:2] == (1.0, 1.0)
    grazing = Ephemeris(64.5, -0.0625, 6.0)
    assert credit(64.5, -0.0625, grazing)[0] == 0.0


def test_a_single_cadence_is_a_light_curve_too():
    assert credit(4.0, 2.0, FOUR_DAYS, np.array([6.0])) == (1.0, 1.0, 1.0)
    assert credit(4.0, 2.0, FOUR_DAYS, np.array([5.0])) == (0.0, 0.0, 0.0)


def test_a_duplicate_row_is_false_and_the_first_printed_is_used():
    match = match_star(RULER, [FOUR_DAYS], rows((4.0, 2.0, 5.0), (4.0, 2.0, 5.0), (4.0, 2.0, 5.0)))
    assert match.planet_of_row == (0, -1, -1)
    assert (match.credit, match.n_false) == (1.0, 2)


def test_of_two_rows_of_equal_credit_the_higher_score_is_used():
    match = match_star(RULER, [FOUR_DAYS], rows((4.0, 2.0, 1.0), (4.0, 2.05, 2.0)))
    assert match.planet_of_row == (-1, 0)


def test_total_credit_goes_before_score():
    match = match_star(RULER, [FOUR_DAYS], rows((8.0, 2.0, 9.0), (4.0, 2.0, 1.0)))
    assert match.planet_of_row == (-1, 0)
    assert match.credit_of_row == (0.0, 1.0)


def test_resonant_planets_share_out_their_rows_for_the_highest_total():
    """The row at 4 d could be planet 0 in full or planet 1 by half; only one way earns 2."""
    planets = [FOUR_DAYS, Ephemeris(8.0, 2.0, 6.0)]
    match = match_star(RULER, planets, rows((4.0, 2.0, 1.0), (8.0, 2.0, 2.0)))
    assert match.planet_of_row == (0, 1)
    assert match.credit == 2.0


def test_a_tie_in_credit_prefers_the_assignment_that_uses_more_of_the_best_rows():
    """One full credit, or two halves: both total 1, the halves leave no row false."""
    planets = [FOUR_DAYS, Ephemeris(12.0, 2.0, 6.0)]
    both = rows((4.0, 2.0, 2.0), (8.0, 2.0, 1.0))
    match = match_star(RULER, planets, both)
    assert match.credit_of_row == (0.5, 0.5)
    assert match.planet_of_row == (1, 0)
    assert match.n_false == 0


def test_one_row_for_two_planets_of_equal_credit_goes_to_the_first_listed():
    planets = [Ephemeris(4.0, 2.0, 6.0), Ephemeris(4.0, 2.01, 6.0)]
    assert match_star(RULER, planets, rows((4.0, 2.0))).planet_of_row == (0,)


def test_a_row_on_an_ignored_ephemeris_is_dropped():
    match = match_star(RULER, [FOUR_DAYS], rows((7.0, 1.0), (4.0, 2.0)), [Ephemeris(7.0, 1.0, 5.0)])
    assert match.is_dropped == (True, False)
    assert (match.credit, match.n_false) == (1.0, 0)


def test_an_ignored_ephemeris_never_takes_a_row_from_a_planet():
    match = match_star(RULER, [FOUR_DAYS], rows((4.0, 2.0)), [Ephemeris(4.0, 2.0, 6.0)])
    assert (match.planet_of_row, match.is_dropped) == ((0,), (False,))


def test_no_rows_or_no_planets_is_a_match_too():
    assert match_star(RULER, [FOUR_DAYS], rows()) == StarMatch((), (), (), ((),), ((),))
    assert match_star(RULER, [], rows((4.0, 2.0))).n_false == 1


ABSURD = (5e-324, 1e-300, 1e-9, 1.0, 4.0, 1e9, 1e300, 1.7e308)


@pytest.mark.parametrize("period", ABSURD)
@pytest.mark.parametrize("t0", [0.0, 1e300, -1e300, 1.7e308, -1.7e308, 5e-324])
def test_absurd_rows_earn_nothing_quickly_and_without_warnings(period: float, t0: float):
    with np.errstate(all="raise", under="ignore", over="raise"):
        match = match_star(RULER, [FOUR_DAYS], rows((period, t0, -1.7e308)))
    on_planet = period == 4.0 and t0 % 4.0 == 2.0
    assert match.credit == (1.0 if on_planet else 0.0)
    assert np.isfinite([match.f_planet, match.f_row]).all()


@pytest.mark.parametrize(
    "bad",
    [
        rows((0.0, 1.0)),
        rows((-4.0, 1.0)),
        rows((np.nan, 1.0)),
        rows((4.0, np.inf)),
        rows((4.0, 2.0, np.nan)),
        rows(*[(4.0, 2.0)] * 4),
        np.zeros(3),
        np.ones((1, 4)),
    ],
)
def test_bad_rows_are_an_error_and_never_a_number(bad: np.ndarray):
    with pytest.raises(TransitBenchError, match="TB-E014"):
        match_star(RULER, [FOUR_DAYS], bad)


def test_a_star_without_finite_cadences_is_an_error():
    with pytest.raises(TransitBenchError, match="TB-E010"):
        match_star(np.array([]), [FOUR_DAYS], rows((4.0, 2.0)))


def test_times_are_looked_up_only_where_a_period_calls_for_it():
    truth = {"near": StarTruth("planet", (planet_of(FOUR_DAYS),)), "far": StarTruth("quiet")}
    asked = []

    class Recorder(dict):
        def __getitem__(self, star: str) -> np.ndarray:
            asked.append(star)
            return RULER

    match_stars(Recorder(), truth, {"near": rows((4.0, 2.0)), "far": rows((4.0, 2.0))})
    assert asked == ["near"]
    with pytest.raises(TransitBenchError, match=r"TB-E016.*near"):
        match_stars({}, truth, {"near": rows((4.0, 2.0))})


def outcome(match: StarMatch) -> tuple:
    return match.planet_of_row, match.credit_of_row, match.is_dropped


@pytest.mark.slow
@given(star_cases())
@settings(max_examples=10_000, deadline=None, derandomize=True)
def test_match_star_equals_the_slow_reference(case: StarCase):
    kept = case.rows[:3]
    match = match_star(case.time, case.planets, kept, case.ignored)
    slow_rows = [tuple(row) for row in kept.tolist()]
    slow = slow_match(case.time.tolist(), case.planets, slow_rows, case.ignored)
    assert list(match.planet_of_row) == slow.planet_of_row
    assert list(match.credit_of_row) == slow.credit_of_row
    assert list(match.is_dropped) == slow.is_dropped
    for p, row in itertools.product(range(len(case.planets)), range(len(kept))):
        shares = match.f_planet[p][row], match.f_row[p][row]
        if shares != (0.0, 0.0):
            assert shares == alignment(case.time.tolist(), case.planets[p], slow_rows[row])


@given(st.lists(star_cases(), min_size=1, max_size=4))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_batch_of_stars_equals_each_star_alone(cases: list[StarCase]):
    truth = {str(i): case.truth for i, case in enumerate(cases)}
    times = {str(i): case.time for i, case in enumerate(cases)}
    kept = {str(i): case.rows[:3] for i, case in enumerate(cases)}
    matches = match_stars(times, truth, kept)
    for i, case in enumerate(cases):
        alone = match_star(case.time, case.truth_planets, case.rows[:3], case.ignored)
        assert matches[str(i)] == alone


@given(star_cases(), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_order_of_rows_is_irrelevant_when_scores_differ(case: StarCase, random):
    kept = case.rows[:3].copy()
    kept[:, 2] = np.arange(len(kept))
    order = list(range(len(kept)))
    random.shuffle(order)
    one = match_star(case.time, case.planets, kept, case.ignored)
    other = match_star(case.time, case.planets, kept[order], case.ignored)
    assert [one.planet_of_row[i] for i in order] == list(other.planet_of_row)
    assert [one.is_dropped[i] for i in order] == list(other.is_dropped)


@given(star_cases(), st.sampled_from([lambda s: 2 * s - 7, lambda s: s**3, lambda s: s / 1024]))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_only_the_ranking_of_scores_counts(case: StarCase, rescale):
    kept = case.rows[:3].copy()
    one = match_star(case.time, case.planets, kept, case.ignored)
    kept[:, 2] = rescale(kept[:, 2])
    assert match_star(case.time, case.planets, kept, case.ignored) == one


dyadic = st.integers(-(2**12), 2**12)


@given(
    period=st.integers(2**9, 2**13),
    epoch=dyadic,
    error=st.integers(-200, 200),
    stretch=st.integers(-4, 4),
    factor=st.sampled_from([1.0, 0.5, 2.0, 3.0]),
    shifts=st.tuples(st.integers(-500, 500), st.integers(-500, 500)),
)
@settings(max_examples=1000, deadline=None, derandomize=True)
def test_shifting_an_epoch_by_whole_periods_changes_nothing(
    period: int, epoch: int, error: int, stretch: int, factor: float, shifts: tuple[int, int]
):
    """In units of 1/1024 d, so that t0 + k·P is exact and any difference would be the matcher's."""
    unit = 1 / 1024
    time = without(RULER, (17.0, 19.5), (40.0, 40.5))
    planet = Ephemeris(period * unit, epoch * unit, 6.0)
    row = ((period * factor + stretch) * unit, (epoch + error) * unit)
    shifted_planet = Ephemeris(
        planet.period_days, planet.t0_days + shifts[0] * planet.period_days, 6.0
    )
    shifted_row = (row[0], row[1] + shifts[1] * row[0])
    one = match_star(time, [planet], rows(row))
    assert match_star(time, [shifted_planet], rows(row)) == one
    assert match_star(time, [planet], rows(shifted_row)) == one
    assert match_star(time, [shifted_planet], rows(shifted_row)) == one
