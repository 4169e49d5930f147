"""Hypothesis strategies for stars on which rows match often, and often only just."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from transitbench.ephemeris import Ephemeris
from transitbench.truth import Kind, Planet, StarTruth

FACTORS = (1.0, 1.0, 1.0, 1.0, 1 / 3, 1 / 2, 2.0, 3.0, 1.5)
PERIOD_ERRORS = (0.0, 0.0, 0.0, 0.0, 1e-5, -3e-4, 1e-3, 2e-3, 0.0099, 0.01, -0.01, 0.0101, -0.0101)
EPOCH_ERRORS = (0.0, 0.0, 0.3, 0.999999, 1.0, -1.0, 1.000001, 2.0)
"""In units of the timing tolerance."""


@dataclass(frozen=True)
class StarCase:
    time: np.ndarray
    planets: tuple[Ephemeris, ...]
    ignored: tuple[Ephemeris, ...]
    rows: np.ndarray
    kind: Kind

    @property
    def truth_planets(self) -> tuple[Ephemeris, ...]:
        """Planets as the truth has them: none on an impostor's star."""
        return self.planets if self.kind == "planet" else ()

    @property
    def truth(self) -> StarTruth:
        planets = tuple(planet_of(e) for e in self.truth_planets)
        return StarTruth(self.kind, planets, None, self.ignored)


def planet_of(ephemeris: Ephemeris, mes: float = 10.0) -> Planet:
    return Planet(
        ephemeris.period_days,
        ephemeris.t0_days,
        ephemeris.duration_hours,
        depth_ppm=500.0,
        rp_rs=0.02,
        a_rs=10.0,
        impact=0.3,
        n_transits=5,
        mes=mes,
    )


N_CHOICES = 72


class _Choices:
    """Choices read off a string of bytes, which Hypothesis draws and shrinks far faster than as many strategies."""

    def __init__(self, drawn: bytes) -> None:
        self._left = iter(drawn)

    def pick(self, *options: Any) -> Any:
        return options[next(self._left) % len(options)]

    def number(self, low: int, high: int) -> int:
        return low + next(self._left) % (high - low + 1)


def _star_case(drawn: bytes) -> StarCase:
    choices = _Choices(drawn)
    pick, number = choices.pick, choices.number
    start = pick(0.0, 906.85, -3.5)
    spacing = pick(0.05, 0.125, 0.0625, 0.3)
    time = start + spacing * np.arange(number(60, 140))
    for _ in range(number(0, 2)):
        begin, length = number(0, time.size - 2), number(1, 25)
        time = np.delete(time, slice(begin, begin + length))
        if time.size < 30:
            break
    period = pick(1.0, 0.5, 0.7, 1.9, 3.3, 5.0)
    known: list[Ephemeris] = []
    for i in range(number(1, 3) + pick(0, 0, 0, 1)):
        if i:
            period = known[0].period_days * pick(2.0, 0.5, 1 / 3, 3.0, 1.0, 1.005, 1.31)
        hours = min(pick(2.0, 0.5, 0.9792, 4.0, 7.2), 20 * period)
        epoch = known[0].t0_days if i else start
        known.append(Ephemeris(period, epoch + pick(0, 0, 1, 3, 8, 11) / 16 * period, hours))
    n_ignored = pick(0, 0, 1) if len(known) > 1 else 0
    rows: list[tuple[float, ...]] = []
    for _ in range(pick(3, 0, 1, 2, 3, 3, 4, 5)):
        of = known[number(0, len(known) - 1)]
        tolerance = max(of.duration_hours / 48, 0.0204)
        row_period = of.period_days * pick(*FACTORS) * (1 + pick(*PERIOD_ERRORS))
        t0 = of.t0_days + tolerance * pick(*EPOCH_ERRORS) + number(0, 3) * of.period_days
        row = (row_period, t0 + number(-3, 40) * row_period)
        if rows and pick(0, 0, 0, 1):
            row = rows[-1][:2]
        rows.append((*row, float(number(0, 3))))
    return StarCase(
        time,
        tuple(known[n_ignored:]),
        tuple(known[:n_ignored]),
        np.array(rows).reshape(-1, 3),
        pick("planet", "planet", "planet", "eb", "false_alarm", "quiet"),
    )


def star_cases() -> st.SearchStrategy[StarCase]:
    """One star: ≤ 42 d of coarse cadences with gaps, 1–4 ephemerides, ≤ 5 rows derived from them."""
    return st.binary(min_size=N_CHOICES, max_size=N_CHOICES).map(_star_case)
