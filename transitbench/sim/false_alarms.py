"""Causes that make a Kepler-like search fire although nothing transits.

Each function returns relative flux around 0 per mission cadence and what is known of the signal. Sizes are
set against the star's own noise: ``cdpp6_ppm`` is its 6-hour CDPP, and a dip of n σ has n times that (scaled
to its duration), so that three of them add up to a multiple-event statistic above 7.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.sim import instrument, stellar
from transitbench.sim.cadences import DESATURATION_BIT, mission
from transitbench.sim.instrument import FIRST_BKJD, elapsed_days
from transitbench.sim.population import Star
from transitbench.sim.spectrum import noise_from_psd, proxy_cdpp_ppm
from transitbench.truth import Signal

FloatArray = NDArray[np.float64]

DESATURATION_DAYS = 146 * LONG_CADENCE_DAYS
"""Wheels are desaturated every 146 long cadences."""
EARTH_POINT_DAYS = 31.0


@dataclass(frozen=True)
class Circumstances:
    """What a cause may depend on: the star, its 6-hour CDPP in ppm, and its flags."""

    star: Star
    cdpp6_ppm: float
    quality: NDArray[np.int32]


Effect = tuple[FloatArray, Signal]
Cause = Callable[[np.random.Generator, Circumstances], Effect]


def depth_of_ses(ses: float, cdpp6_ppm: float, duration_days: float) -> float:
    """Relative depth of a dip with single-event statistic ``ses``: SES · CDPP₆ · √(6 h / duration)."""
    return float(ses * cdpp6_ppm * 1e-6 * np.sqrt(0.25 / duration_days))


def dip(days: FloatArray, centre_days: float, duration_days: float, asymmetry: float) -> FloatArray:
    """Dip of unit depth and no transit's shape: a sharp edge and an exponential return, or the reverse.

    ``asymmetry`` runs from −1 (slow fall, sharp return) through 0 (smooth bump) to 1 (sharp fall, slow
    return). A drop in sensitivity that recovers looks like 1, a ramp before a step like −1.
    """
    x = (days - centre_days) / duration_days
    side = 0.5 * (1 - abs(asymmetry)) + 0.04
    sharp, slow = np.exp(-0.5 * (x / (0.5 * side)) ** 2), np.exp(-np.abs(x) / 0.45)
    forward = x * np.sign(asymmetry or 1.0) >= 0
    return np.where(
        forward,
        (1 - abs(asymmetry)) * np.exp(-0.5 * (x / 0.25) ** 2) + abs(asymmetry) * slow,
        sharp,
    )


def _unknown(cause: str) -> Signal:
    return Signal(float("nan"), float("nan"), float("nan"), cause)


def few_events(rng: np.random.Generator, at: Circumstances) -> Effect:
    """Three to five unrelated dips that line up well enough, 35–120 d apart: DR25's typical alarm.

    Times deviate from a line by up to 0.8 durations and depths by a factor of two; of each dip the shape is
    another one. SES 7–16 before a search's detrending, which takes a third to a half of such long dips.
    """
    n_events = int(rng.integers(3, 6))
    days = elapsed_days()
    longest = days[-1] / (n_events - 0.5)
    period_days = rng.uniform(max(35.0, 0.75 * longest), min(120.0, longest))
    first_days = rng.uniform(0.0, days[-1] - (n_events - 1) * period_days)
    duration_days = rng.uniform(0.12, 0.5)
    ses = rng.uniform(7.0, 16.0)
    flux = np.zeros(days.size)
    usable = days[~mission().missing]
    for number in range(n_events):
        wanted = first_days + number * period_days + rng.uniform(-0.8, 0.8) * duration_days
        centre_days = usable[min(int(np.searchsorted(usable, wanted)), usable.size - 1)]
        length_days = duration_days * np.exp(0.25 * rng.standard_normal())
        depth = depth_of_ses(ses * np.exp(0.3 * rng.standard_normal()), at.cdpp6_ppm, length_days)
        flux -= depth * dip(days, centre_days, length_days, rng.uniform(-1, 1))
    depth_ppm = 1e6 * depth_of_ses(ses, at.cdpp6_ppm, duration_days)
    return flux, Signal(period_days, FIRST_BKJD + first_days, depth_ppm, "few_events")


def aligned_recoveries(rng: np.random.Generator, at: Circumstances) -> Effect:
    """Thermal recoveries that always dim the star, after every Earth-point: a signal of about a month."""
    amplitude_ppm = at.cdpp6_ppm * rng.uniform(6.0, 25.0)
    flux = instrument.recoveries(rng, amplitude_ppm, common_sign=True)
    first = instrument.restart_days()[1]
    return flux, Signal(EARTH_POINT_DAYS, FIRST_BKJD + first, amplitude_ppm, "recoveries")


def quarter_edges(rng: np.random.Generator, at: Circumstances) -> Effect:
    """Ramps at the ends and starts of quarters, left by detrending across the roll: some 92 d apart."""
    quarter = mission().quarter
    days = elapsed_days()
    duration_days = rng.uniform(0.3, 1.2)
    amplitude = depth_of_ses(rng.uniform(12.0, 30.0), at.cdpp6_ppm, duration_days)
    at_end = rng.random() < 0.5
    flux = np.zeros(days.size)
    for number in range(10, 14):
        rows = np.flatnonzero((quarter == number) & ~mission().missing)
        edge_days = days[rows[-1] if at_end else rows[0]]
        inside = quarter == number
        size = amplitude * np.exp(0.4 * rng.standard_normal())
        flux[inside] -= size * np.exp(-np.abs(days[inside] - edge_days) / duration_days)
    return flux, Signal(92.0, float("nan"), amplitude * 1e6, "quarter_edges")


def step_train(rng: np.random.Generator, at: Circumstances) -> Effect:
    """Five to fourteen uncorrected sensitivity dropouts, most of which recover within hours."""
    days = elapsed_days()
    flux = np.zeros(days.size)
    typical = depth_of_ses(rng.uniform(8.0, 20.0), at.cdpp6_ppm, 0.25)
    for _ in range(int(rng.integers(5, 15))):
        drop = min(typical * np.exp(0.4 * rng.standard_normal()), 0.02)
        flux += instrument.dropout(
            start_days=rng.uniform(0.0, days[-1]),
            drop=drop,
            recovered=rng.uniform(0.6, 1.0),
            tau_days=0.08 * 8 ** rng.random(),
        )
    return flux, Signal(float("nan"), float("nan"), typical * 1e6, "steps")


def desaturations(rng: np.random.Generator, at: Circumstances) -> Effect:
    """Pointing settles slowly after each desaturation: residuals of 3–9 cadences every 2.98 d."""
    n_cadences = int(rng.integers(3, 10))
    # Some 110 events: each may be well below the noise.
    amplitude_ppm = at.cdpp6_ppm * rng.uniform(2.0, 6.0) * np.sqrt(12 / n_cadences)
    flux = -np.abs(instrument.desaturation_residuals(rng, amplitude_ppm, n_cadences))
    first = np.flatnonzero(mission().quality & DESATURATION_BIT)[0]
    t0_days = FIRST_BKJD + elapsed_days()[first]
    return flux, Signal(DESATURATION_DAYS, t0_days, amplitude_ppm, "desaturations")


def strong_rolling_band(rng: np.random.Generator, at: Circumstances) -> Effect:
    """A rolling-band channel: six to fifteen bursts at 4–15 times the 6-hour CDPP."""
    amplitude_ppm = at.cdpp6_ppm * rng.uniform(4.0, 15.0)
    n_bursts = int(rng.integers(6, 16))
    return instrument.rolling_band(rng, amplitude_ppm, n_bursts, at.quality), _unknown(
        "rolling_band"
    )


def strong_spots(rng: np.random.Generator, at: Circumstances) -> Effect:
    """A fast, heavily spotted rotator: 0.4–6 d, 3–40 mmag, whose minima pass for transits."""
    period_days = float(0.4 * 15 ** rng.random())
    amplitude_ppm = max(3e3 * 13 ** rng.random(), 12 * at.cdpp6_ppm)
    time_days = FIRST_BKJD + elapsed_days()
    flux = stellar.spots(rng, time_days, period_days, amplitude_ppm)
    return flux, Signal(period_days, float("nan"), amplitude_ppm, "spots")


def red_noise(rng: np.random.Generator, at: Circumstances) -> Effect:
    """Noise on 2–12 h scales at 3–7 times the star's 6-hour CDPP: a dense or badly placed aperture."""
    psd = instrument.residual_red_psd(rng)
    wanted_ppm = at.cdpp6_ppm * rng.uniform(3.0, 7.0)
    psd = psd * (wanted_ppm / proxy_cdpp_ppm(psd, 13)) ** 2
    noise = noise_from_psd(rng, psd)[mission().slot] * 1e-6
    # Skewed towards dips, as background and pointing losses are.
    scale = 2.0 * noise.std()
    return -scale * np.expm1(-noise / scale) if rng.random() < 0.7 else noise, _unknown("red_noise")


def flare_cluster(rng: np.random.Generator, at: Circumstances) -> Effect:
    """An active star: 60–300 flares a year; a detrending that follows them leaves dips beside them."""
    n_flares = int(rng.integers(60, 301))
    time_days = FIRST_BKJD + elapsed_days()
    flux = stellar.flares(rng, time_days, n_flares, largest=rng.uniform(0.02, 0.2))
    rotation_days = float(0.5 * 12 ** rng.random())
    amplitude_ppm = max(2e3 * 8 ** rng.random(), 8 * at.cdpp6_ppm)
    flux += stellar.spots(rng, time_days, rotation_days, amplitude_ppm)
    return flux, Signal(rotation_days, float("nan"), amplitude_ppm, "flares")


def pulsation(rng: np.random.Generator, at: Circumstances) -> Effect:
    """δ Scuti or γ Doradus pulsation of a hot star at 8 or more times its 6-hour CDPP, or an RR Lyrae star."""
    time_days = FIRST_BKJD + elapsed_days()
    u = rng.random()
    if u < 0.06:
        return stellar.rr_lyrae(rng, time_days), _unknown("rr_lyrae")
    name, make = (
        ("delta_scuti", stellar.delta_scuti)
        if u < 0.5
        else ("gamma_doradus", stellar.gamma_doradus)
    )
    flux = make(rng, time_days)
    flux *= max(1.0, 8e-6 * at.cdpp6_ppm / flux.std())
    return flux, _unknown(name)


HOT_STAR_PULSATES = 0.7
CAUSES: tuple[tuple[float, Cause], ...] = (
    (0.26, few_events),
    (0.11, aligned_recoveries),
    (0.07, quarter_edges),
    (0.11, step_train),
    (0.08, desaturations),
    (0.11, strong_rolling_band),
    (0.15, strong_spots),
    (0.06, red_noise),
    (0.05, flare_cluster),
)
"""Shares of the causes on stars that do not pulsate. Most of DR25's alarms have few, long-period events."""


def draw_false_alarm(rng: np.random.Generator, at: Circumstances) -> Effect:
    """One cause that fits the star: pulsation only where hot stars pulsate, flares not on them.

    The choice follows from the star, never the star from the choice, so that parameters alone do not tell
    a false alarm from a quiet star.
    """
    if at.star.is_hot and rng.random() < HOT_STAR_PULSATES:
        return pulsation(rng, at)
    allowed = [
        (share, cause)
        for share, cause in CAUSES
        if not (at.star.teff > 6600.0 and cause in (flare_cluster, strong_spots))
    ]
    edges = np.cumsum([share for share, _ in allowed])
    row = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
    return allowed[row][1](rng, at)
