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

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transitbench.ephemeris import (
    BoolArray,
    Ephemeris,
    FloatArray,
    IntArray,
    TransitTrains,
    is_observed,
    transit_trains,
)
from transitbench.errors import TransitBenchError
from transitbench.truth import Truth

PERIOD_TOLERANCE = 0.01
MIN_TIMING_TOLERANCE_DAYS = 0.0204
FULL_ALIGNMENT = 0.75
HALF_ALIGNMENT_MAX = 0.75
HALF_ALIGNMENT_MIN = 0.20
ALIASES = (1 / 3, 1 / 2, 2.0, 3.0)
MAX_ROWS = 3


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
    star = _Star("the star", tuple(planets), tuple(ignored), _checked_rows("the star", rows))
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
            _checked_rows(name, rows.get(name, none)),
        )
        for name, entry in truth.items()
    ]
    return dict(zip(truth, _match(finite_time_days, stars), strict=True))


def _checked_rows(name: str, rows: FloatArray) -> FloatArray:
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != 3 or len(rows) > MAX_ROWS:
        problem = f"an array of shape {rows.shape}"
    elif not np.isfinite(rows).all() or (rows[:, 0] <= 0).any():
        problem = str(rows.tolist())
    else:
        return rows
    raise TransitBenchError(
        "TB-E014",
        f"{name}: expected at most {MAX_ROWS} rows of finite [period_days > 0, t0_days, score], got {problem}",
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
    rows = np.concatenate([s.rows for s in stars]) if stars else np.empty((0, 3))
    of_target = targets[(np.cumsum(n_targets) - n_targets)[star] + target].T
    of_row = rows[(np.cumsum(n_rows) - n_rows)[star] + row].T
    return _Pairs(star, of_target[0], of_target[1], of_target[2], of_row[0], of_row[1])


def _match(finite_time_days: Mapping[str, FloatArray], stars: Sequence[_Star]) -> list[StarMatch]:
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
    f_planet[near], f_row[near] = _alignment(finite_time_days, stars, pairs, near)
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
    if near.size == 0:
        return np.empty(0), np.empty(0)
    involved, first_pair, of_pair = np.unique(
        pairs.star[near], return_index=True, return_inverse=True
    )
    times = [_times_of(finite_time_days, stars[i].name) for i in involved.tolist()]
    start_days = np.array([t[0] for t in times])[of_pair]
    end_days = np.array([t[-1] for t in times])[of_pair]
    half_days = pairs.duration_hours[near] / 48.0
    tolerance_days = np.maximum(half_days, MIN_TIMING_TOLERANCE_DAYS)
    last_pair = np.append(first_pair[1:], near.size)

    def observed(trains: TransitTrains) -> BoolArray:
        half_of_transit = half_days[trains.train]
        is_seen = np.empty(trains.mid_days.size, dtype=np.bool_)
        begin = trains.offset[first_pair].tolist()
        end = (trains.offset + trains.count)[last_pair - 1].tolist()
        for time, b, e in zip(times, begin, end, strict=True):
            is_seen[b:e] = is_observed(time, trains.mid_days[b:e], half_of_transit[b:e])
        return is_seen

    planet = transit_trains(pairs.period_days[near], pairs.t0_days[near], start_days, end_days)
    row = transit_trains(pairs.row_period_days[near], pairs.row_t0_days[near], start_days, end_days)
    planet_seen, row_seen = observed(planet), observed(row)
    return (
        _share(planet, planet_seen, _lines_up(planet, row, row_seen, tolerance_days)),
        _share(row, row_seen, _lines_up(row, planet, planet_seen, tolerance_days)),
    )


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


def _lines_up(
    one: TransitTrains, other: TransitTrains, other_seen: BoolArray, tolerance_days: FloatArray
) -> BoolArray:
    """Whether each transit of ``one`` has an observed transit of ``other``'s same train in tolerance."""
    train = one.train
    before = np.floor((one.mid_days - other.phase_days[train]) / other.period_days[train])
    position = (before - other.first[train]).astype(np.int64)
    limit_days = tolerance_days[train]
    # Within a tolerance of up to one period only the transits just before and after can lie; the
    # addend keeps a tolerance of exactly one period safe from rounding.
    reach = int(np.max(tolerance_days / other.period_days + 1e-6))
    result = np.zeros(train.size, dtype=np.bool_)
    for step in range(-reach, reach + 2):
        candidate = position + step
        exists = (candidate >= 0) & (candidate < other.count[train])
        index = np.where(exists, candidate, 0) + other.offset[train]
        is_near = np.abs(one.mid_days - other.mid_days[index]) <= limit_days
        result |= exists & other_seen[index] & is_near
    return result


def _share(trains: TransitTrains, seen: BoolArray, lined_up: BoolArray) -> FloatArray:
    n_seen = np.add.reduceat(seen, trains.offset, dtype=np.int64)
    n_lined_up = np.add.reduceat(seen & lined_up, trains.offset, dtype=np.int64)
    return np.asarray(n_lined_up / np.maximum(n_seen, 1))


def _star_match(
    star: _Star, credit: list[float], f_planet: list[float], f_row: list[float]
) -> StarMatch:
    n_planets, n_rows = len(star.planets), len(star.rows)

    def by_target(values: list[float]) -> list[tuple[float, ...]]:
        return [
            tuple(values[i * n_rows : (i + 1) * n_rows])
            for i in range(n_planets + len(star.ignored))
        ]

    if not any(credit):
        planet_of_row = [-1] * n_rows
        is_dropped = (False,) * n_rows
        credit_of_row = (0.0,) * n_rows
    else:
        table = by_target(credit)
        planet_of_row = _assign(table[:n_planets], star.rows[:, 2].tolist())
        credit_of_row = tuple(
            table[p][row] if p >= 0 else 0.0 for row, p in enumerate(planet_of_row)
        )
        is_dropped = tuple(
            p < 0 and any(target[row] > 0 for target in table[n_planets:])
            for row, p in enumerate(planet_of_row)
        )
    return StarMatch(
        tuple(planet_of_row),
        credit_of_row,
        is_dropped,
        tuple(by_target(f_planet)[:n_planets]),
        tuple(by_target(f_row)[:n_planets]),
    )


def _assign(credit: Sequence[Sequence[float]], scores: Sequence[float]) -> list[int]:
    """Exact assignment of ≤ 3 rows; ``credit[planet][row]``. Returns the planet of each row or −1."""
    ranked = sorted(range(len(scores)), key=lambda row: -scores[row])
    options = [[p for p, of_rows in enumerate(credit) if of_rows[row] > 0] + [-1] for row in ranked]

    def preference(choice: tuple[int, ...]) -> tuple[float, list[bool], list[float], list[int]]:
        earned = [credit[p][row] if p >= 0 else 0.0 for p, row in zip(choice, ranked, strict=True)]
        return sum(earned), [p >= 0 for p in choice], earned, [-p for p in choice]

    one_to_one = (
        choice
        for choice in itertools.product(*options)
        if len(used := [p for p in choice if p >= 0]) == len(set(used))
    )
    best = max(one_to_one, key=preference)
    return [best[ranked.index(row)] for row in range(len(scores))]
