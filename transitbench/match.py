"""Which candidate rows of a star are which of its planets: the policy of the benchmark's credit.

For a planet (P, T0, D) and a row (p, t0) on a light curve whose finite cadences span [a, b]:

- *Observed* transits of an ephemeris are the mid-times in [a, b] with at least one finite cadence
  within ± D/2, D being the planet's duration for both sides.
- A transit of one side *lines up* if the other side has an observed transit within
  max(D/2, :data:`MIN_TIMING_TOLERANCE_DAYS`) of it. ``f_planet`` is the share of the planet's observed
  transits that line up, ``f_row`` the share of the row's; a side with none observed has share 0.
- Full credit 1: p within 1 % of P and ``f_planet`` ≥ 0.75.
- Half credit ½: p within 1 % of k·P for a k in :data:`ALIASES`, the larger of the two shares ≥ 0.75
  and the smaller ≥ 0.20.
- Otherwise 0. The period test comes first and transit times are made only for pairs that pass it, so
  no row, however absurd its numbers, costs more than a few times the planet's own transits.

Each row is used for at most one planet and each planet by at most one row. Of all such assignments
the one with the highest total credit is taken. Ties go to the assignment that uses the best-ranked
row, then the second-best, then the third; rows rank by score, equal scores by print order. What is
still tied (the same rows, other planets) gives the better row the higher credit, then the planet
listed first.

A row that is used for no planet but earns credit on an *ignored* ephemeris is dropped: it is neither
credit nor false. Planets come first, so an ignored ephemeris never takes a row from a planet.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import (
    Ephemeris,
    FloatArray,
    IntArray,
    TransitTrains,
    next_cadence,
    transit_trains,
)
from transitbench.errors import TransitBenchError
from transitbench.truth import Truth

BoolArray = NDArray[np.bool_]

PERIOD_TOLERANCE = 0.01
MIN_TIMING_TOLERANCE_DAYS = 0.0204
FULL_ALIGNMENT = 0.75
HALF_ALIGNMENT_MAX = 0.75
HALF_ALIGNMENT_MIN = 0.20
ALIASES = (1 / 3, 1 / 2, 2.0, 3.0)
MAX_ROWS = 3

_BLOCK_PAIRS = 128
"""Pairs whose transits are handled at once: few enough that the arrays stay in a core's cache."""


@dataclass(frozen=True, slots=True)
class StarMatch:
    """Outcome of one star, rows in the order given, planets in the order of the truth.

    Attributes
    ----------
    planet_of_row
        Index of the planet a row is used for, −1 for none.
    credit_of_row
        0, ½ or 1: what the row earns in the assignment.
    is_dropped
        Whether the row matches an ignored ephemeris and no planet.
    f_planet, f_row
        Alignment shares ``[planet][row]``; 0 where the period test fails.
    """

    planet_of_row: tuple[int, ...]
    credit_of_row: tuple[float, ...]
    is_dropped: tuple[bool, ...]
    f_planet: tuple[tuple[float, ...], ...]
    f_row: tuple[tuple[float, ...], ...]

    @property
    def credit(self) -> float:
        """Total credit of the star."""
        return sum(self.credit_of_row)

    @property
    def n_false(self) -> int:
        """Rows used for no planet and not dropped."""
        return sum(
            planet < 0 and not dropped
            for planet, dropped in zip(self.planet_of_row, self.is_dropped, strict=True)
        )

    def credit_of_planet(self, planet: int) -> float:
        """Return the credit a planet brought: 0, ½ or 1."""
        if planet not in self.planet_of_row:
            return 0.0
        return self.credit_of_row[self.planet_of_row.index(planet)]


@dataclass(frozen=True, slots=True)
class _Star:
    name: str
    planets: Sequence[Ephemeris]
    ignored: Sequence[Ephemeris]
    rows: FloatArray


def match_star(
    finite_time_days: FloatArray,
    planets: Sequence[Ephemeris],
    rows: FloatArray,
    ignored: Sequence[Ephemeris] = (),
) -> StarMatch:
    """Match one star's rows to its planets.

    Parameters
    ----------
    finite_time_days
        Ascending BKJD of the cadences with finite time and flux, shape ``(n,)``.
    planets
        Ephemerides to find.
    rows
        Candidates ``[period_days, t0_days, score]`` in print order, shape ``(≤ 3, 3)``.
    ignored
        Ephemerides that neither earn credit nor make a row false.

    Raises
    ------
    TransitBenchError
        TB-E014 for more than three rows, a number that is not finite or a period that is not
        positive; TB-E010 for a star without finite cadences.
    """
    star = _Star("the star", tuple(planets), tuple(ignored), np.asarray(rows, dtype=np.float64))
    return _match({star.name: finite_time_days}, [star])[0]


def match_stars(
    finite_time_days: Mapping[str, FloatArray], truth: Truth, rows: Mapping[str, FloatArray]
) -> dict[str, StarMatch]:
    """Match all stars of a truth at once: :func:`match_star`, vectorised over stars.

    ``finite_time_days`` is looked up only for stars where a row passes a period test, so a mapping
    that loads light curves on demand reads few of them. Stars without an entry in ``rows`` have none.
    Raises as :func:`match_star` does, and TB-E016 for a star whose times are needed and missing.
    """
    none = np.empty((0, 3))
    stars = [
        _Star(
            name,
            tuple(planet.ephemeris for planet in entry.planets),
            entry.ignored,
            np.asarray(rows.get(name, none), dtype=np.float64),
        )
        for name, entry in truth.items()
    ]
    return dict(zip(truth, _match(finite_time_days, stars), strict=True))


def _check_rows(stars: Sequence[_Star]) -> None:
    for star in stars:
        if star.rows.ndim != 2 or star.rows.shape[1] != 3 or len(star.rows) > MAX_ROWS:
            raise _bad_rows(star, f"an array of shape {star.rows.shape}")
    rows = np.concatenate([star.rows for star in stars])
    is_bad = ~np.isfinite(rows).all(axis=1) | (rows[:, 0] <= 0)
    if is_bad.any():
        of_row = np.repeat(np.arange(len(stars)), [len(star.rows) for star in stars])
        raise _bad_rows(stars[of_row[is_bad][0]], str(rows[is_bad][0].tolist()))


def _bad_rows(star: _Star, got: str) -> TransitBenchError:
    return TransitBenchError(
        "TB-E014",
        f"{star.name}: expected at most {MAX_ROWS} rows of finite [period_days > 0, t0_days, score], got {got}",
        "drop rows that do not parse, then keep the best with `transitbench.rows.keep_best`",
    )


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Every (target, row) pair of every star, flat; a target is a planet or an ignored ephemeris."""

    star: IntArray
    period_days: FloatArray
    t0_days: FloatArray
    duration_hours: FloatArray
    row_period_days: FloatArray
    row_t0_days: FloatArray


def _pairs(stars: Sequence[_Star]) -> _Pairs:
    n_targets = np.array([len(s.planets) + len(s.ignored) for s in stars], dtype=np.int64)
    n_rows = np.array([len(s.rows) for s in stars], dtype=np.int64)
    n_pairs = n_targets * n_rows
    star = np.repeat(np.arange(len(stars)), n_pairs)
    within = np.arange(star.size) - (np.cumsum(n_pairs) - n_pairs)[star]
    target, row = within // n_rows[star], within % n_rows[star]
    targets = np.array(
        [
            (e.period_days, e.t0_days, e.duration_hours)
            for s in stars
            for e in itertools.chain(s.planets, s.ignored)
        ],
        dtype=np.float64,
    ).reshape(-1, 3)
    rows = np.concatenate([s.rows for s in stars])
    of_target = targets[(np.cumsum(n_targets) - n_targets)[star] + target].T
    of_row = rows[(np.cumsum(n_rows) - n_rows)[star] + row].T
    return _Pairs(star, of_target[0], of_target[1], of_target[2], of_row[0], of_row[1])


def _match(finite_time_days: Mapping[str, FloatArray], stars: Sequence[_Star]) -> list[StarMatch]:
    if not stars:
        return []
    _check_rows(stars)
    pairs = _pairs(stars)
    # A quotient beyond the range of a float is far outside every tolerance as infinity or as 0.
    with np.errstate(over="ignore", under="ignore"):
        same = np.abs(pairs.row_period_days / pairs.period_days - 1.0) <= PERIOD_TOLERANCE
        alias = np.zeros_like(same)
        for k in ALIASES:
            ratio = pairs.row_period_days / (k * pairs.period_days)
            alias |= np.abs(ratio - 1.0) <= PERIOD_TOLERANCE
    near = np.flatnonzero(same | alias)
    f_planet, f_row = np.zeros(same.size), np.zeros(same.size)
    for begin in range(0, near.size, _BLOCK_PAIRS):
        block = near[begin : begin + _BLOCK_PAIRS]
        f_planet[block], f_row[block] = _alignment(finite_time_days, stars, pairs, block)
    full = same & (f_planet >= FULL_ALIGNMENT)
    half = (
        alias
        & (np.maximum(f_planet, f_row) >= HALF_ALIGNMENT_MAX)
        & (np.minimum(f_planet, f_row) >= HALF_ALIGNMENT_MIN)
    )
    credit = np.where(full, 1.0, np.where(half, 0.5, 0.0))
    start = np.searchsorted(pairs.star, np.arange(len(stars) + 1))
    return [
        _star_match(
            star,
            *(values[start[i] : start[i + 1]].tolist() for values in (credit, f_planet, f_row)),
        )
        for i, star in enumerate(stars)
    ]


def _alignment(
    finite_time_days: Mapping[str, FloatArray],
    stars: Sequence[_Star],
    pairs: _Pairs,
    near: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """``f_planet`` and ``f_row`` of the pairs at the indices ``near`` (ascending, so grouped by star)."""
    involved, first_pair, of_pair = np.unique(
        pairs.star[near], return_index=True, return_inverse=True
    )
    times = [_times_of(finite_time_days, stars[i].name) for i in involved.tolist()]
    start_days = np.repeat(np.array([t[0] for t in times])[of_pair], 2)
    end_days = np.repeat(np.array([t[-1] for t in times])[of_pair], 2)
    half_days = np.repeat(pairs.duration_hours[near] / 48.0, 2)
    # Trains 2i and 2i + 1 are planet and row of pair i, so train ^ 1 is a train's other side.
    trains = transit_trains(
        np.stack([pairs.period_days[near], pairs.row_period_days[near]], axis=1).ravel(),
        np.stack([pairs.t0_days[near], pairs.row_t0_days[near]], axis=1).ravel(),
        start_days,
        end_days,
    )
    mid, train = trains.mid_days, trains.train
    from_days, to_days = mid - half_days[train], mid + half_days[train]
    cadence = np.empty_like(mid)
    bounds = np.append(trains.offset[2 * first_pair], mid.size).tolist()
    for time, (begin, end) in zip(times, itertools.pairwise(bounds), strict=True):
        cadence[begin:end] = next_cadence(time, from_days[begin:end])
    is_observed = (
        (mid >= start_days[train])
        & (mid <= end_days[train])
        & (cadence >= from_days)
        & (cadence <= to_days)
    )
    tolerance_days = np.maximum(half_days, MIN_TIMING_TOLERANCE_DAYS)
    lines_up = is_observed & _near_other_side(trains, is_observed, tolerance_days)
    n_observed = np.add.reduceat(is_observed, trains.offset, dtype=np.int64)
    share = np.add.reduceat(lines_up, trains.offset, dtype=np.int64) / np.maximum(n_observed, 1)
    return share[0::2], share[1::2]


def _times_of(finite_time_days: Mapping[str, FloatArray], name: str) -> FloatArray:
    try:
        time = finite_time_days[name]
    except KeyError:
        raise TransitBenchError(
            "TB-E016", f"no cadence times given for {name}", "give every star of the truth"
        ) from None
    if time.size == 0:
        raise TransitBenchError(
            "TB-E010",
            f"{name} has no cadence with finite time and flux",
            "check its file with `transitbench data verify`",
        )
    return time


def _near_other_side(
    trains: TransitTrains, is_observed: BoolArray, tolerance_days: FloatArray
) -> BoolArray:
    """Whether each transit has an observed one of its pair's other side within the train's tolerance."""
    mid, other = trains.mid_days, trains.train ^ 1
    limit_days = tolerance_days[trains.train]
    observed_days = np.where(is_observed, mid, np.inf)
    since_first = mid - mid[trains.offset][other]
    nearest = np.rint(since_first / trains.period_days[other]).astype(np.int64)
    # With a tolerance below half a period only the nearest transit can lie within it; the addend
    # keeps a tolerance of almost half a period safe from rounding.
    reach = int(np.max(tolerance_days / trains.period_days + 0.5 + 1e-6))
    last = trains.count[other] - 1
    offset = trains.offset[other]
    result = np.zeros(mid.size, dtype=np.bool_)
    for step in range(-reach, reach + 1):
        # Beyond the ends this looks at an end once more, which changes nothing.
        index = np.minimum(np.maximum(nearest + step, 0), last) + offset
        result |= np.abs(mid - observed_days[index]) <= limit_days
    return result


def _star_match(
    star: _Star, credit: list[float], f_planet: list[float], f_row: list[float]
) -> StarMatch:
    """Outcome of one star from its pairs' values, which come target by target."""
    n_planets, n_rows = len(star.planets), len(star.rows)
    n_targets = n_planets + len(star.ignored)
    rows = range(n_rows)

    def of_targets(values: list[float], first: int, last: int) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(values[i * n_rows : (i + 1) * n_rows]) for i in range(first, last))

    of_planets = of_targets(credit, 0, n_planets)
    of_ignored = of_targets(credit, n_planets, n_targets)
    planet_of_row = (
        tuple(_assign(of_planets, star.rows[:, 2].tolist())) if any(credit) else (-1,) * n_rows
    )
    return StarMatch(
        planet_of_row,
        tuple(of_planets[planet_of_row[i]][i] if planet_of_row[i] >= 0 else 0.0 for i in rows),
        tuple(planet_of_row[i] < 0 and any(c[i] > 0 for c in of_ignored) for i in rows),
        of_targets(f_planet, 0, n_planets),
        of_targets(f_row, 0, n_planets),
    )


def _assign(credit: Sequence[Sequence[float]], scores: Sequence[float]) -> list[int]:
    """Exact assignment of ≤ 3 rows; ``credit[planet][row]``. Returns the planet of each row or −1."""
    ranked = sorted(range(len(scores)), key=lambda row: -scores[row])
    best = _best_choice(tuple(tuple(of_rows[row] for of_rows in credit) for row in ranked))
    return [best[ranked.index(row)] for row in range(len(scores))]


@functools.lru_cache(maxsize=4096)
def _best_choice(credit: tuple[tuple[float, ...], ...]) -> tuple[int, ...]:
    """Planet or −1 of each row, ``credit[row][planet]``, best row first.

    Tries every assignment. Credits take three values, so the same few tables come up on star after
    star and the cache does away with most of the work.
    """
    options = [[p for p, c in enumerate(of_row) if c > 0] + [-1] for of_row in credit]

    def preference(choice: tuple[int, ...]) -> tuple[float, list[bool], list[float], list[int]]:
        earned = [of_row[p] if p >= 0 else 0.0 for p, of_row in zip(choice, credit, strict=True)]
        return sum(earned), [p >= 0 for p in choice], earned, [-p for p in choice]

    one_to_one = (
        choice
        for choice in itertools.product(*options)
        if len(used := [p for p in choice if p >= 0]) == len(set(used))
    )
    return max(one_to_one, key=preference)
