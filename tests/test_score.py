"""Scoring: the estimates against the slow reference, the bootstrap word by word, and properties."""

from __future__ import annotations

import ast
import dataclasses
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_reference import slow_estimates, slow_resamples, slow_stars, slow_totals
from star_cases import StarCase, planet_of, star_cases

from transitbench import bootstrap
from transitbench.ephemeris import Ephemeris
from transitbench.errors import TransitBenchError
from transitbench.score import (
    STATUSES,
    Score,
    compare_scores,
    mini_reward,
    score_rows,
    star_outcomes,
    summarize,
)
from transitbench.truth import StarTruth

TIME = np.arange(0.0, 80.0, 1 / 64)
ESTIMATES = (
    "S",
    "C",
    "C_full",
    "F_per_100",
    "eb_as_planet",
    "false_alarm_as_planet",
    "quiet_as_planet",
)


def small_set(seed: int = 3, n_stars: int = 40):
    """Stars of every kind with rows of every fate: truth, times, rows."""
    rng = np.random.default_rng(seed)
    truth, rows = {}, {}
    for i in range(n_stars):
        star = f"s{i:02d}"
        kind = ("planet", "planet", "eb", "false_alarm", "quiet")[i % 5]
        planets = []
        for _ in range(int(rng.integers(1, 4)) if kind == "planet" else 0):
            period = float(rng.uniform(1, 20))
            planets.append(
                planet_of(
                    Ephemeris(period, float(rng.uniform(0, period)), 4.0), float(rng.uniform(3, 30))
                )
            )
        truth[star] = StarTruth(kind, tuple(planets))
        of_star = [(p.period_days * rng.choice([1, 1, 1, 2]), p.t0_days, 9.0) for p in planets]
        of_star += [(float(rng.uniform(30, 70)), 0.0, float(s)) for s in rng.random(3)]
        rows[star] = np.array(of_star)[: rng.integers(0, 4)].reshape(-1, 3)
    return truth, dict.fromkeys(truth, TIME), rows


def gold_rows(truth) -> dict[str, np.ndarray]:
    return {
        star: np.array([(p.period_days, p.t0_days, 1.0) for p in entry.planets]).reshape(-1, 3)
        for star, entry in truth.items()
    }


def as_set(cases: list[StarCase]):
    truth = {f"s{i}": case.truth for i, case in enumerate(cases)}
    times = {f"s{i}": case.time for i, case in enumerate(cases)}
    return truth, times, {f"s{i}": case.rows for i, case in enumerate(cases)}


sets = st.lists(star_cases(), min_size=1, max_size=4).map(as_set)


@pytest.mark.slow
@given(sets)
@settings(max_examples=10_000, deadline=None, derandomize=True)
def test_scoring_equals_the_slow_reference(of_set):
    truth, times, rows = of_set
    slow = slow_stars(truth, times, rows)
    score = score_rows(truth, times, rows)
    for outcome in score.outcomes:
        expected = slow[outcome.star]
        assert outcome.credit == expected.credit
        assert outcome.n_false == expected.n_false
        assert outcome.n_rows == expected.n_rows
        assert sum(c > 0 for c in outcome.credit_of_planets) == expected.n_found
        assert sum(c == 1 for c in outcome.credit_of_planets) == expected.n_full
    assert {name: getattr(score, name) for name in ESTIMATES} == slow_totals(truth, times, rows)
    assert score.credit == sum(s.credit for s in slow.values())
    assert score.n_false == sum(s.n_false for s in slow.values())
    assert score.n_extra_rows == sum(s.n_false for s in slow.values() if s.kind == "planet")


@given(sets)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_no_rows_can_beat_one_and_gold_is_exactly_one_and_empty_exactly_zero(of_set):
    truth, times, rows = of_set
    if not any(entry.planets for entry in truth.values()):
        assert score_rows(truth, times, rows).S is None
        return
    assert score_rows(truth, times, rows).S <= 1.0
    assert score_rows(truth, times, {}).S == 0.0
    visible = all(
        sum(o.credit_of_planets) == o.n_planets
        for o in star_outcomes(truth, times, gold_rows(truth))
    )
    if visible:
        assert score_rows(truth, times, gold_rows(truth)).S == 1.0


def test_gold_is_exactly_one_with_an_interval_of_no_width():
    truth, times, _ = small_set()
    gold = score_rows(truth, times, gold_rows(truth))
    assert (gold.S, gold.C, gold.C_full, gold.precision, gold.n_false) == (1.0, 1.0, 1.0, 1.0, 0)
    assert gold.intervals["S"] == (1.0, 1.0)


def test_empty_is_exactly_zero_and_its_precision_is_undefined():
    truth, times, _ = small_set()
    empty = score_rows(truth, times, {})
    assert (empty.S, empty.C, empty.F_per_100, empty.eb_as_planet) == (0.0, 0.0, 0.0, 0.0)
    assert empty.precision is None


@given(star_cases(), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3), st.integers(-1, 4))
@settings(max_examples=500, deadline=None, derandomize=True)
def test_adding_a_wrong_row_never_raises_S(
    case: StarCase, period: float, t0: float, row_score: int
):
    """Wrong: worth nothing on any planet and on nothing ignored. Wherever it ranks, S does not rise."""
    truth, times, rows = as_set([dataclasses.replace(case, kind="planet")])
    wrong = np.array([[period, t0, row_score]])
    alone = star_outcomes(truth, times, {"s0": wrong})[0]
    if alone.n_false == 0:
        return
    before = score_rows(truth, times, rows)
    after = score_rows(truth, times, {"s0": np.concatenate([rows["s0"], wrong])})
    assert after.S <= before.S
    if len(case.rows) < 3:
        assert after.n_false == before.n_false + 1
        assert after.credit == before.credit


def test_every_interval_equals_the_slow_bootstrap_draw_by_draw():
    truth, times, rows = small_set(n_stars=15)
    score = score_rows(truth, times, rows)
    stars = list(slow_stars(truth, times, rows).values())
    kinds = [s.kind for s in stars]
    for name in ("S", "C_full", "F_per_100", "eb_as_planet"):
        values = slow_resamples(
            kinds,
            lambda drawn, name=name: slow_estimates([stars[i] for i in drawn])[name],
            bootstrap.BOOTSTRAP_SEED,
            bootstrap.N_RESAMPLES,
        )
        ordered = sorted(values)
        assert score.intervals[name] == (ordered[249], ordered[-250])


def test_resamples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch):
    statistics = np.arange(60).reshape(30, 2)
    strata = np.repeat([0, 2], 15)
    at_once = bootstrap.resampled_sums(statistics, strata)
    monkeypatch.setattr(bootstrap, "_DRAWS_AT_ONCE", 1_000)
    np.testing.assert_array_equal(bootstrap.resampled_sums(statistics, strata), at_once)


def test_resamples_keep_the_number_of_stars_of_every_stratum_and_are_uniform():
    strata = np.repeat([0, 1, 3], [7, 20, 5])
    indicator = np.eye(32, dtype=np.int64)
    sums = bootstrap.resampled_sums(indicator, strata)
    for number, n in ((0, 7), (1, 20), (3, 5)):
        of_stratum = sums[:, strata == number]
        assert (of_stratum.sum(axis=1) == n).all()
        # Each star is drawn once a resample on average; 5 standard errors of 10,000 resamples.
        assert np.abs(of_stratum.mean(axis=0) - 1).max() < 5 * math.sqrt((1 - 1 / n) / 10_000)


def test_the_draws_are_pinned():
    """A change of these numbers would change every committed interval."""
    statistics = np.arange(10)[:, None]
    sums = bootstrap.resampled_sums(statistics, np.zeros(10, dtype=np.int64))[:, 0]
    assert sums[:6].tolist() == [37, 39, 47, 53, 55, 42]


def test_the_interval_runs_from_the_250th_smallest_to_the_250th_largest():
    values = np.random.default_rng(1).permutation(10_000).astype(float)
    assert bootstrap.interval_95(values) == (249.0, 9750.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """200 samples of 120 Bernoulli stars with p = 0.6; binomial 99.9 % band around 95 %."""
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        stars = (rng.random(120) < 0.6).astype(np.int64)[:, None]
        sums = bootstrap.resampled_sums(stars, np.zeros(120, dtype=np.int64))
        low, high = bootstrap.interval_95(sums[:, 0] / 120)
        covered += low <= 0.6 <= high
    assert 178 <= covered <= 199


def test_scores_of_a_run_against_itself_differ_by_nothing():
    truth, times, rows = small_set()
    score = score_rows(truth, times, rows)
    same = compare_scores(score, score)
    assert (same.delta_S, same.delta_S_ci95, same.share_not_above_0) == (0.0, (0.0, 0.0), 1.0)


def test_comparison_is_paired_and_antisymmetric():
    truth, times, rows = small_set()
    a = score_rows(truth, times, gold_rows(truth))
    b = score_rows(truth, times, rows)
    ab, ba = compare_scores(a, b), compare_scores(b, a)
    assert ab.delta_S == pytest.approx(a.S - b.S, abs=1e-12)
    assert (ab.delta_S, ab.delta_S_ci95) == (-ba.delta_S, tuple(-x for x in ba.delta_S_ci95[::-1]))
    assert (ab.share_not_above_0, ba.share_not_above_0) == (0.0, 1.0)


def test_comparison_equals_the_slow_bootstrap():
    truth, times, rows = small_set(n_stars=15)
    other = {star: of_star[:1] for star, of_star in rows.items()}
    comparison = compare_scores(score_rows(truth, times, rows), score_rows(truth, times, other))
    one = list(slow_stars(truth, times, rows).values())
    two = list(slow_stars(truth, times, other).values())

    def difference(drawn: list[int]) -> float:
        points = [
            (one[i].credit - one[i].n_false) - (two[i].credit - two[i].n_false) for i in drawn
        ]
        return sum(points) / sum(one[i].n_planets for i in drawn)

    kinds = [s.kind for s in one]
    values = sorted(
        slow_resamples(kinds, difference, bootstrap.BOOTSTRAP_SEED, bootstrap.N_RESAMPLES)
    )
    assert comparison.delta_S_ci95 == (values[249], values[-250])
    assert comparison.share_not_above_0 == sum(v <= 0 for v in values) / 10_000


def test_comparing_different_stars_or_planets_is_an_error():
    truth, times, rows = small_set()
    score = score_rows(truth, times, rows)
    fewer = {star: entry for star, entry in truth.items() if star != "s07"}
    fewer_rows = {star: r for star, r in rows.items() if star in fewer}
    with pytest.raises(TransitBenchError, match=r"TB-E016.*s07"):
        compare_scores(score, score_rows(fewer, times, fewer_rows))
    changed = truth | {"s00": StarTruth("planet", (planet_of(Ephemeris(3.3, 1.0, 2.0)),))}
    with pytest.raises(TransitBenchError, match=r"TB-E016.*s00"):
        compare_scores(score, score_rows(changed, times, rows))


def test_comparing_without_planets_is_an_error():
    score = score_rows({"a": StarTruth("quiet")}, {}, {})
    with pytest.raises(TransitBenchError, match="TB-E016"):
        compare_scores(score, score)


def test_a_set_without_planets_has_no_S_and_the_json_says_null():
    truth = {"a": StarTruth("eb"), "b": StarTruth("quiet")}
    score = score_rows(truth, {}, {"a": np.array([[3.0, 1.0, 1.0]])})
    document = score.to_json()
    assert (document["S"], document["S_ci95"], document["C"], document["n_planets"]) == (
        None,
        None,
        None,
        0,
    )
    assert (document["eb_as_planet"], document["false_alarm_as_planet"]) == (1.0, None)
    assert "S_A" not in score.metrics("A")


def test_json_is_strict_complete_and_the_same_for_any_order_of_stars():
    truth, times, rows = small_set()
    statuses = dict.fromkeys(truth, "ok") | {"s03": "timeout", "s04": "crash", "s05": "crash"}
    score = score_rows(truth, times, rows, statuses, set_name="toy")
    document = score.to_json()
    for name in ("set", "n_stars", "n_planets", "credit", "n_false", "S", "S_ci95", *ESTIMATES):
        assert name in document
    assert all(len(document[f"{name}_ci95"]) == 2 for name in ESTIMATES)
    assert document["statuses"] == dict.fromkeys(STATUSES, 0) | {
        "ok": 37,
        "timeout": 1,
        "crash": 2,
    }
    text = json.dumps(document, allow_nan=False)
    backwards = dict(reversed(truth.items())), times, dict(reversed(rows.items())), statuses
    assert json.dumps(score_rows(*backwards, set_name="toy").to_json()) == text


def test_metrics_are_named_for_their_set():
    truth, times, rows = small_set()
    score = score_rows(truth, times, rows, dict.fromkeys(truth, "ok") | {"s03": "timeout"})
    metrics = score.metrics("sim_dev")
    assert metrics["S_sim_dev"] == score.S
    assert metrics["F_per_100_sim_dev"] == score.F_per_100
    assert metrics["eb_as_planet_sim_dev"] == score.eb_as_planet
    assert metrics["n_timeout_sim_dev"] == 1.0
    assert all(isinstance(v, float) and math.isfinite(v) for v in metrics.values())


def test_completeness_bins_hold_their_lower_edge_and_leave_unknown_mes_out():
    planets = [
        planet_of(Ephemeris(5.0, 1.0, 4.0), mes) for mes in (3.9, 4.0, 7.1, 8.999, 60.0, math.nan)
    ]
    truth = {f"s{i}": StarTruth("planet", (p,)) for i, p in enumerate(planets)}
    score = score_rows(truth, dict.fromkeys(truth, TIME), {"s2": np.array([[10.0, 1.0, 1.0]])})
    assert [(b.n_planets, b.n_found, b.n_full) for b in score.completeness_by_mes] == [
        (1, 0, 0),
        (2, 1, 0),
        (0, 0, 0),
        (0, 0, 0),
        (1, 0, 0),
    ]
    assert sum(b.n_planets for b in score.completeness_by_period) == 6
    document = score.to_json()["completeness_by_mes"]
    assert (document[1]["completeness"], document[2]["completeness"]) == (0.5, None)
    assert document[-1]["high"] is None


def test_an_empty_list_of_rows_is_no_rows():
    truth, times, _ = small_set()
    assert score_rows(truth, times, {star: [] for star in truth}) == score_rows(truth, times, {})


def test_what_travels_into_boxes_imports_only_numpy_and_the_standard_library():
    modules = ("match", "score", "bootstrap", "rows", "ephemeris", "truth", "lightcurve", "errors")
    code = (
        f"import sys\nimport {', '.join('transitbench.' + m for m in modules)}\n"
        "print({m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ast.literal_eval(done.stdout) <= {"numpy", "transitbench", "__main__", "__mp_main__"}


def test_dropped_rows_count_nowhere():
    entry = StarTruth(
        "planet", (planet_of(Ephemeris(5.0, 1.0, 4.0)),), None, (Ephemeris(7.0, 2.0, 4.0),)
    )
    rows = {"s": np.array([[5.0, 1.0, 2.0], [7.0, 2.0, 1.0]])}
    score = score_rows({"s": entry}, {"s": TIME}, rows)
    assert (score.S, score.precision, score.n_false, score.n_dropped) == (1.0, 1.0, 0, 1)
    assert (score.outcomes[0].n_rows, score.outcomes[0].lost) == (1, 0.0)


def test_of_more_than_three_rows_the_best_are_scored():
    truth = {"s": StarTruth("planet", (planet_of(Ephemeris(5.0, 1.0, 4.0)),))}
    wrong = [[2.3, 0.0, float(s)] for s in (4, 3, 2)]
    last = score_rows(truth, {"s": TIME}, {"s": np.array([*wrong, [5.0, 1.0, 1.0]])})
    first = score_rows(truth, {"s": TIME}, {"s": np.array([*wrong, [5.0, 1.0, 9.0]])})
    assert (last.S, first.S) == (-3.0, -1.0)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"rows": {"nowhere": np.array([[1.0, 1.0, 1.0]])}}, "TB-E014.*nowhere"),
        ({"rows": {"s00": np.array([[np.nan, 1.0, 1.0]])}}, "TB-E014.*s00"),
        ({"rows": {"s00": np.ones((6, 2))}}, "TB-E014"),
        ({"rows": {"s00": np.ones(3)}}, "TB-E014.*s00"),
        ({"statuses": {"s00": "ok"}}, "TB-E016"),
        ({"statuses": "unknown word"}, "TB-E016.*unknown word"),
        ({"truth": {}}, "TB-E015"),
        ({"truth": {"s00": StarTruth("planet")}}, "TB-E015.*s00"),
        ({"truth": {"s00": StarTruth("eb", (planet_of(Ephemeris(5, 1, 4)),))}}, "TB-E015.*s00"),
        (
            {"truth": {"s00": StarTruth("planet", (planet_of(Ephemeris(5, math.nan, 4)),))}},
            "TB-E015.*s00",
        ),
    ],
)
def test_bad_input_never_yields_a_number(change: dict, code: str):
    truth, times, rows = small_set()
    arguments = {"truth": truth, "rows": rows, "statuses": None} | change
    if "truth" in change:
        arguments["rows"] = {}
    if isinstance(arguments["statuses"], str):
        arguments["statuses"] = dict.fromkeys(truth, arguments["statuses"])
    with pytest.raises(TransitBenchError, match=code):
        score_rows(finite_time_days=times, **arguments)


def test_the_mini_reward_is_the_clipped_score_of_eight_planets():
    assert [mini_reward(c, f) for c, f in ((8, 0), (0, 0), (4.5, 1), (0, 30), (9, 0))] == [
        1.0,
        0.0,
        0.4375,
        -1.0,
        1.0,
    ]


def test_outcomes_tell_where_points_were_lost():
    truth, times, rows = small_set()
    score: Score = summarize(star_outcomes(truth, times, rows))
    lost = sum(o.lost for o in score.outcomes)
    assert lost == score.n_planets - score.credit + score.n_false
    assert {"star", "kind", "credit", "n_false"} <= score.outcomes[0].to_json().keys()
