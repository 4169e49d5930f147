"""Matching and scoring as the specification words them: plain loops, every assignment tried.

Slow and obvious on purpose; it shares with the package only the numbers and types of the truth. The
one thing it takes over from the package is how a time is computed (epoch reduced modulo the period,
then epoch + k·period), so that both judge the very same floating-point times at every threshold.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from transitbench.ephemeris import Ephemeris
from transitbench.truth import KINDS, Truth

Row = tuple[float, float, float]


def observed_transits(
    times: Sequence[float], period: float, t0: float, hours: float
) -> list[float]:
    start, end = times[0], times[-1]
    phase = t0 % period
    half = hours / 48.0
    found = []
    for k in range(math.floor((start - phase) / period) - 1, math.ceil((end - phase) / period) + 2):
        mid = phase + period * k
        if start <= mid <= end and any(mid - half <= t <= mid + half for t in times):
            found.append(mid)
    return found


def share_lined_up(one: Sequence[float], other: Sequence[float], tolerance: float) -> float:
    if not one:
        return 0.0
    return sum(any(abs(x - y) <= tolerance for y in other) for x in one) / len(one)


def alignment(times: Sequence[float], planet: Ephemeris, row: Row) -> tuple[float, float]:
    hours = planet.duration_hours
    of_planet = observed_transits(times, planet.period_days, planet.t0_days, hours)
    of_row = observed_transits(times, row[0], row[1], hours)
    tolerance = max(hours / 48.0, 0.0204)
    return (
        share_lined_up(of_planet, of_row, tolerance),
        share_lined_up(of_row, of_planet, tolerance),
    )


def pair_credit(times: Sequence[float], planet: Ephemeris, row: Row) -> float:
    if abs(row[0] / planet.period_days - 1.0) <= 0.01:
        f_planet, _ = alignment(times, planet, row)
        return 1.0 if f_planet >= 0.75 else 0.0
    for k in (1 / 3, 1 / 2, 2.0, 3.0):
        if abs(row[0] / (k * planet.period_days) - 1.0) <= 0.01:
            shares = alignment(times, planet, row)
            return 0.5 if max(shares) >= 0.75 and min(shares) >= 0.20 else 0.0
    return 0.0


@dataclass
class SlowMatch:
    planet_of_row: list[int]
    credit_of_row: list[float]
    is_dropped: list[bool]


def slow_match(
    times: Sequence[float],
    planets: Sequence[Ephemeris],
    rows: Sequence[Row],
    ignored: Sequence[Ephemeris] = (),
) -> SlowMatch:
    credit = [[pair_credit(times, planet, row) for row in rows] for planet in planets]

    def earned(choice: Sequence[int], row: int) -> float:
        return credit[choice[row]][row] if choice[row] >= 0 else 0.0

    def is_better(one: Sequence[int], other: Sequence[int]) -> bool:
        """The stated order of preference, one criterion after the other."""
        totals = [sum(earned(c, row) for row in range(len(rows))) for c in (one, other)]
        if totals[0] != totals[1]:
            return totals[0] > totals[1]
        for row in by_rank:
            if (one[row] >= 0) != (other[row] >= 0):
                return one[row] >= 0
        for row in by_rank:
            if earned(one, row) != earned(other, row):
                return earned(one, row) > earned(other, row)
        for row in by_rank:
            if one[row] != other[row]:
                return one[row] < other[row]
        return False

    by_rank = sorted(range(len(rows)), key=lambda row: (-rows[row][2], row))
    best: tuple[int, ...] = (-1,) * len(rows)
    for choice in itertools.product(range(-1, len(planets)), repeat=len(rows)):
        used = [p for p in choice if p >= 0]
        if len(used) != len(set(used)):
            continue
        if any(p >= 0 and credit[p][row] == 0 for row, p in enumerate(choice)):
            continue
        if is_better(choice, best):
            best = choice
    dropped = [
        best[i] < 0 and any(pair_credit(times, e, row) > 0 for e in ignored)
        for i, row in enumerate(rows)
    ]
    return SlowMatch(list(best), [earned(best, row) for row in range(len(rows))], dropped)


def keep_three(rows: Sequence[Row]) -> list[Row]:
    kept: list[Row] = []
    left = list(rows)
    while left and len(kept) < 3:
        best = max(row[2] for row in left)
        kept.append(left.pop(next(i for i, row in enumerate(left) if row[2] == best)))
    return kept


@dataclass
class SlowStar:
    kind: str
    n_planets: int
    credit: float
    n_false: int
    n_rows: int
    n_found: int
    n_full: int


def slow_stars(
    truth: Truth, times: Mapping[str, np.ndarray], rows: Mapping[str, np.ndarray]
) -> dict[str, SlowStar]:
    stars = {}
    for star in sorted(truth):
        entry = truth[star]
        of_star = keep_three([tuple(row) for row in np.asarray(rows.get(star, [])).tolist()])
        planets = [planet.ephemeris for planet in entry.planets]
        match = slow_match(times[star].tolist(), planets, of_star, entry.ignored)
        n_rows = len(of_star) - sum(match.is_dropped)
        stars[star] = SlowStar(
            entry.kind,
            len(planets),
            sum(match.credit_of_row),
            n_rows - sum(p >= 0 for p in match.planet_of_row),
            n_rows,
            sum(c > 0 for c in match.credit_of_row),
            sum(c == 1 for c in match.credit_of_row),
        )
    return stars


def slow_estimates(stars: Sequence[SlowStar]) -> dict[str, float | None]:
    """Every estimate of a collection of stars (a resample repeats some of them)."""

    def share(numerator: float, denominator: float) -> float | None:
        return numerator / denominator if denominator else None

    def as_planet(kind: str) -> float | None:
        of_kind = [s for s in stars if s.kind == kind]
        return share(sum(s.n_rows > 0 for s in of_kind), len(of_kind))

    n_planets = sum(s.n_planets for s in stars)
    n_false = sum(s.n_false for s in stars)
    return {
        "S": share(sum(s.credit for s in stars) - n_false, n_planets),
        "C": share(sum(s.n_found for s in stars), n_planets),
        "C_full": share(sum(s.n_full for s in stars), n_planets),
        "F_per_100": share(100 * n_false, len(stars)),
        "eb_as_planet": as_planet("eb"),
        "false_alarm_as_planet": as_planet("false_alarm"),
        "quiet_as_planet": as_planet("quiet"),
    }


def slow_totals(
    truth: Truth, times: Mapping[str, np.ndarray], rows: Mapping[str, np.ndarray]
) -> dict[str, float | None]:
    return slow_estimates(list(slow_stars(truth, times, rows).values()))


def slow_resamples(
    kinds: Sequence[str], estimate: Callable[[list[int]], float | None], seed: int, n_resamples: int
) -> list[float | None]:
    """``estimate`` of the star numbers drawn in each resample, kind by kind, word by word."""
    of_kind = {
        i: [j for j, kind in enumerate(kinds) if kind == name] for i, name in enumerate(KINDS)
    }
    words = {i: np.random.PCG64([seed, i]) for i in of_kind}
    values = []
    for _ in range(n_resamples):
        drawn = []
        for i, members in of_kind.items():
            for _ in members:
                word = int(words[i].random_raw())
                drawn.append(members[(word >> 32) * len(members) >> 32])
        values.append(estimate(drawn))
    return values
