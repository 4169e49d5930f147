"""From matched stars to the numbers of the benchmark: S, its companions and their intervals.

S = (credit − false) / N over the stars of a truth: credit is the sum of the planets' credits
(:mod:`transitbench.match`), false the number of kept rows used for no planet, N the number of planets.
A share of nothing is None (``null`` in JSON), never a number: S without planets, precision without
rows, eb_as_planet without eclipsing binaries.

Rows dropped for matching an ignored ephemeris count nowhere: not as credit, not as false, not in
precision. A star that is a planet's host never counts in the ``*_as_planet`` shares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transitbench.bootstrap import N_RESAMPLES, interval_95, resampled_sums
from transitbench.ephemeris import FloatArray, IntArray
from transitbench.errors import TransitBenchError
from transitbench.match import MAX_ROWS, StarMatch, match_stars
from transitbench.rows import keep_best
from transitbench.truth import KINDS, Kind, Planet, Truth, check_truth

MES_BIN_EDGES = (4.0, 7.1, 9.0, 12.0, 20.0, math.inf)
PERIOD_BIN_EDGES_DAYS = (0.0, 1.0, 3.0, 10.0, 30.0, 60.0, math.inf)
"""A bin holds its lower edge and not its upper one; a planet outside all bins or of unknown MES is in none."""

STATUSES = ("ok", "timeout", "crash", "oom", "output_limit", "killed")

MINI_PLANETS = 8
"""Planets among the 16 hidden stars of a mini task; its reward is the S of those stars, clipped."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class StarOutcome:
    """One star's part in the score.

    ``n_rows`` counts kept rows without the dropped ones; ``status`` is None where rows came without a run.
    """

    star: str
    kind: Kind
    planets: tuple[Planet, ...]
    rows: tuple[tuple[float, ...], ...]
    match: StarMatch
    status: str | None

    @property
    def n_planets(self) -> int:
        """Planets to find."""
        return len(self.planets)

    @property
    def credit(self) -> float:
        """Sum of the planets' credits."""
        return self.match.credit

    @property
    def n_false(self) -> int:
        """Rows that cost a point."""
        return self.match.n_false

    @property
    def n_dropped(self) -> int:
        """Rows that match an ignored ephemeris."""
        return sum(self.match.is_dropped)

    @property
    def n_rows(self) -> int:
        """Kept rows that count."""
        return len(self.rows) - self.n_dropped

    @property
    def credit_of_planets(self) -> tuple[float, ...]:
        """Credit of each planet: 0, ½ or 1."""
        return tuple(self.match.credit_of_planet(i) for i in range(self.n_planets))

    @property
    def lost(self) -> float:
        """Points short of a perfect answer: planets − credit + false."""
        return self.n_planets - self.credit + self.n_false

    def to_json(self) -> dict[str, Any]:
        """One flat JSON object (also a CSV row)."""
        return {
            "star": self.star,
            "kind": self.kind,
            "n_planets": self.n_planets,
            "credit": self.credit,
            "n_false": self.n_false,
            "n_rows": self.n_rows,
            "n_dropped": self.n_dropped,
            "status": self.status,
        }


@dataclass(frozen=True, slots=True)
class Bin:
    """Completeness of the planets in ``[low, high)``: found with full or half credit, and with full."""

    low: float
    high: float
    n_planets: int
    n_found: int
    n_full: int

    def to_json(self) -> dict[str, Any]:
        """JSON object; an open upper edge is ``null``."""
        return {
            "low": self.low,
            "high": self.high if math.isfinite(self.high) else None,
            "n_planets": self.n_planets,
            "n_found": self.n_found,
            "n_full": self.n_full,
            "completeness": _ratio(self.n_found, self.n_planets),
        }


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one set of rows on one set of stars; names as in the JSON form.

    ``intervals`` holds the 95 % bootstrap interval of every estimate named in :data:`INTERVALS`.
    ``statuses`` is None where the rows came without a run.
    """

    set_name: str | None
    outcomes: tuple[StarOutcome, ...]
    intervals: Mapping[str, Interval | None]
    n_stars: int
    n_planets: int
    credit: float
    n_false: int
    n_found: int
    n_full: int
    n_extra_rows: int
    n_dropped: int
    S: float | None
    C: float | None
    C_full: float | None
    F_per_100: float
    eb_as_planet: float | None
    false_alarm_as_planet: float | None
    quiet_as_planet: float | None
    precision: float | None
    kinds: Mapping[str, int]
    statuses: Mapping[str, int] | None
    completeness_by_mes: tuple[Bin, ...]
    completeness_by_period: tuple[Bin, ...]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: no NaN, the same score gives the same object. Per-star outcomes stay apart."""
        document: dict[str, Any] = {
            "set": self.set_name,
            "n_stars": self.n_stars,
            "n_planets": self.n_planets,
            "credit": self.credit,
            "n_false": self.n_false,
        }
        for name in INTERVALS:
            document[name] = getattr(self, name)
            interval = self.intervals[name]
            document[f"{name}_ci95"] = None if interval is None else list(interval)
        return document | {
            "precision": self.precision,
            "n_found": self.n_found,
            "n_full": self.n_full,
            "n_extra_rows": self.n_extra_rows,
            "n_dropped": self.n_dropped,
            "kinds": dict(self.kinds),
            "statuses": None if self.statuses is None else dict(self.statuses),
            "completeness_by_mes": [b.to_json() for b in self.completeness_by_mes],
            "completeness_by_period": [b.to_json() for b in self.completeness_by_period],
        }

    def metrics(self, suffix: str) -> dict[str, float]:
        """Flat numbers named for a graded set, ``S_A``, ``C_A``, …; undefined ones are left out."""
        values: dict[str, float | None] = {name: getattr(self, name) for name in INTERVALS}
        values |= {
            "precision": self.precision,
            "credit": self.credit,
            "n_false": self.n_false,
            "n_planets": self.n_planets,
            "n_stars": self.n_stars,
            "n_extra_rows": self.n_extra_rows,
        }
        if self.statuses is not None:
            values |= {f"n_{status}": n for status, n in self.statuses.items() if status != "ok"}
        return {f"{k}_{suffix}": float(v) for k, v in values.items() if v is not None}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired comparison of two scores on the same stars: ``delta_S`` = S of a − S of b.

    ``share_not_above_0`` is the share of resamples in which a is not better than b.
    """

    n_stars: int
    n_planets: int
    delta_S: float
    delta_S_ci95: Interval
    share_not_above_0: float

    def to_json(self) -> dict[str, Any]:
        """Strict JSON object."""
        return {
            "n_stars": self.n_stars,
            "n_planets": self.n_planets,
            "delta_S": self.delta_S,
            "delta_S_ci95": list(self.delta_S_ci95),
            "share_not_above_0": self.share_not_above_0,
        }


def score_rows(
    truth: Truth,
    finite_time_days: Mapping[str, FloatArray],
    rows: Mapping[str, FloatArray],
    statuses: Mapping[str, str] | None = None,
    set_name: str | None = None,
) -> Score:
    """Score kept rows over all stars of a truth, with intervals.

    Parameters
    ----------
    truth
        The stars to score. For a part of a set give that part of its truth.
    finite_time_days
        Per star the ascending BKJD of cadences with finite time and flux; looked up only where a row's
        period calls for it.
    rows
        Per star the candidates ``[period_days, t0_days, score]``, shape ``(n, 3)``, in print order; of
        more than three the best are kept. A star without an entry has none.
    statuses
        Per star how the submission's process ended, for every star; None if rows came without a run.
    set_name
        Goes into the JSON form.

    Raises
    ------
    TransitBenchError
        TB-E014 for rows of a star that is not in the truth or that are not finite; TB-E015 for a truth
        without stars or off its contract; TB-E016 for a status that is missing, unknown, or of an unknown star.
    """
    return summarize(star_outcomes(truth, finite_time_days, rows, statuses), set_name)


def star_outcomes(
    truth: Truth,
    finite_time_days: Mapping[str, FloatArray],
    rows: Mapping[str, FloatArray],
    statuses: Mapping[str, str] | None = None,
) -> tuple[StarOutcome, ...]:
    """Match every star; outcomes sorted by star. Arguments and errors as in :func:`score_rows`."""
    check_truth(truth, "truth")
    unknown = sorted(rows.keys() - truth.keys())
    if unknown:
        raise TransitBenchError(
            "TB-E014",
            f"rows for {unknown[0]}, which is not in the set ({len(unknown)} such stars)",
            "check that the rows belong to this set",
        )
    _check_statuses(truth, statuses)
    kept = {
        star: keep_best(of_star) if len(of_star) > MAX_ROWS else np.asarray(of_star)
        for star, of_star in rows.items()
        if len(of_star)
    }
    matches = match_stars(finite_time_days, truth, kept)
    return tuple(
        StarOutcome(
            star,
            truth[star].kind,
            truth[star].planets,
            tuple(map(tuple, kept[star].tolist())) if star in kept else (),
            matches[star],
            None if statuses is None else statuses[star],
        )
        for star in sorted(truth)
    )


def _check_statuses(truth: Truth, statuses: Mapping[str, str] | None) -> None:
    if statuses is None:
        return
    if statuses.keys() != truth.keys():
        star = min(statuses.keys() ^ truth.keys())
        what = f"expected a status for every star of the set and no other, got it wrong for {star}"
        raise TransitBenchError(
            "TB-E016", what, "finish the run with --resume, or score the stars that ran"
        )
    for star, status in statuses.items():
        if status not in STATUSES:
            raise TransitBenchError(
                "TB-E016",
                f"{star} has status {status!r}",
                f"expected one of {', '.join(STATUSES)}",
            )


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _statistics(outcomes: Sequence[StarOutcome]) -> IntArray:
    """Per star, shape ``(n_stars, 8)``; credit is doubled to be whole."""
    return np.array(
        [
            (
                round(2 * o.credit),
                o.n_false,
                o.n_planets,
                sum(c > 0 for c in o.credit_of_planets),
                sum(c == 1 for c in o.credit_of_planets),
                *(o.kind == kind and o.n_rows > 0 for kind in ("eb", "false_alarm", "quiet")),
            )
            for o in outcomes
        ],
        dtype=np.int64,
    )


_Sums = NDArray[np.int64]
_Counts = Mapping[str, int]

# Each estimate as a fraction of the summed statistics and the (fixed) numbers of stars, so that the
# point value and every resample come from one formula.
INTERVALS: dict[str, Callable[[_Sums, _Counts], tuple[_Sums, _Sums | int]]] = {
    "S": lambda s, n: (s[0] - 2 * s[1], 2 * s[2]),
    "C": lambda s, n: (s[3], s[2]),
    "C_full": lambda s, n: (s[4], s[2]),
    "F_per_100": lambda s, n: (100 * s[1], sum(n.values())),
    "eb_as_planet": lambda s, n: (s[5], n["eb"]),
    "false_alarm_as_planet": lambda s, n: (s[6], n["false_alarm"]),
    "quiet_as_planet": lambda s, n: (s[7], n["quiet"]),
}
"""Estimates that carry an interval."""


def _strata(outcomes: Sequence[StarOutcome]) -> IntArray:
    return np.array([KINDS.index(o.kind) for o in outcomes], dtype=np.int64)


def summarize(outcomes: Sequence[StarOutcome], set_name: str | None = None) -> Score:
    """Sum outcomes (in any order) up to a score with intervals. Raises TB-E015 if there are none."""
    if not outcomes:
        raise TransitBenchError(
            "TB-E015", "no stars to score", "give a set, or a part of one, with at least one star"
        )
    outcomes = sorted(outcomes, key=lambda o: o.star)
    statistics = _statistics(outcomes)
    kinds: dict[str, int] = {kind: sum(o.kind == kind for o in outcomes) for kind in KINDS}
    total = statistics.sum(axis=0)
    resampled = resampled_sums(statistics, _strata(outcomes)).T
    values: dict[str, Any] = {}
    intervals: dict[str, Interval | None] = {}
    for name, fraction in INTERVALS.items():
        numerator, denominator = fraction(total, kinds)
        values[name] = _ratio(int(numerator), int(denominator))
        intervals[name] = None
        if denominator:
            numerators, denominators = fraction(resampled, kinds)
            intervals[name] = interval_95(numerators / denominators)
    n_found = int(total[3])
    n_false = int(total[1])
    planets = [
        (planet, credit)
        for o in outcomes
        for planet, credit in zip(o.planets, o.credit_of_planets, strict=True)
    ]
    return Score(
        set_name=set_name,
        outcomes=tuple(outcomes),
        intervals=intervals,
        n_stars=len(outcomes),
        n_planets=int(total[2]),
        credit=int(total[0]) / 2,
        n_false=n_false,
        n_found=n_found,
        n_full=int(total[4]),
        n_extra_rows=sum(o.n_false for o in outcomes if o.kind == "planet"),
        n_dropped=sum(o.n_dropped for o in outcomes),
        precision=_ratio(n_found, n_found + n_false),
        kinds=kinds,
        statuses=_status_counts(outcomes),
        completeness_by_mes=_bins([(p.mes, c) for p, c in planets], MES_BIN_EDGES),
        completeness_by_period=_bins(
            [(p.period_days, c) for p, c in planets], PERIOD_BIN_EDGES_DAYS
        ),
        **values,
    )


def _status_counts(outcomes: Sequence[StarOutcome]) -> dict[str, int] | None:
    if any(o.status is None for o in outcomes):
        return None
    return {status: sum(o.status == status for o in outcomes) for status in STATUSES}


def _bins(planets: Sequence[tuple[float, float]], edges: Sequence[float]) -> tuple[Bin, ...]:
    bins = []
    for low, high in itertools.pairwise(edges):
        of_bin = [credit for value, credit in planets if low <= value < high]
        bins.append(
            Bin(low, high, len(of_bin), sum(c > 0 for c in of_bin), sum(c == 1 for c in of_bin))
        )
    return tuple(bins)


def compare_scores(a: Score, b: Score) -> Comparison:
    """Paired bootstrap of S(a) − S(b): both are resampled with the same stars.

    Raises
    ------
    TransitBenchError
        TB-E016 if the two are not of the same stars with the same planets, or there is no planet.
    """
    key_a, key_b = ({o.star: (o.kind, o.planets) for o in score.outcomes} for score in (a, b))
    if key_a != key_b:
        differing = sorted(key_a.keys() ^ key_b.keys()) or [
            star for star in sorted(key_a) if key_a[star] != key_b[star]
        ]
        raise TransitBenchError(
            "TB-E016",
            f"the two scores are not of the same stars ({differing[0]}, {len(differing)} differ)",
            "compare two runs on the same set with the same --limit",
        )
    if a.n_planets == 0:
        raise TransitBenchError(
            "TB-E016", "S is undefined on stars without planets", "compare on a set with planets"
        )
    difference = _statistics(a.outcomes)
    difference[:, :2] -= _statistics(b.outcomes)[:, :2]
    kinds = a.kinds
    numerator, denominator = INTERVALS["S"](difference.sum(axis=0), kinds)
    numerators, denominators = INTERVALS["S"](
        resampled_sums(difference, _strata(a.outcomes)).T, kinds
    )
    return Comparison(
        n_stars=a.n_stars,
        n_planets=a.n_planets,
        delta_S=int(numerator) / int(denominator),
        delta_S_ci95=interval_95(numerators / denominators),
        share_not_above_0=int(np.count_nonzero(numerators <= 0)) / N_RESAMPLES,
    )


def mini_reward(credit: float, n_false: int) -> float:
    """Reward of a mini task: (credit − false) / :data:`MINI_PLANETS`, clipped to [−1, 1]."""
    return min(1.0, max(-1.0, (credit - n_false) / MINI_PLANETS))
