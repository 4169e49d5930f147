"""What the spacecraft adds: quarter levels, recoveries, dropouts, spikes, rolling bands, slow residuals.

Signals are relative flux around 0, one element per mission cadence (17,359). Amplitudes are what is left
in PDCSAP flux after the pipeline's corrections (Kepler Data Characteristics Handbook, release notes 25).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.sim.cadences import (
    DESATURATION_BIT,
    ROLLING_BAND_BITS,
    ZERO_CROSSING_BIT,
    mission,
)
from transitbench.sim.spectrum import exposure_power, frequency_per_day

FloatArray = NDArray[np.float64]

RECOVERING_SHARE = 1 / 3
"""Stars on which thermal recoveries after Earth-points are visible."""
FIRST_BKJD = 906.845
CME_WINDOWS_BKJD = ((1116.2, 1118.7), (1121.1, 1122.3), (1160.2, 1164.0))
"""Coronal mass ejections of Q12 (release notes 25, §12.2); their cores are lost on every star."""


@functools.cache
def elapsed_days() -> FloatArray:
    """Spacecraft time since the first cadence of Q10, days; good to a minute, for slow signals."""
    days = mission().slot.astype(np.float64) * LONG_CADENCE_DAYS
    days.flags.writeable = False
    return days


@functools.cache
def restart_days() -> FloatArray:
    """When data taking resumed after each Earth-point, roll or safe mode, elapsed days."""
    segment = mission().segment
    first = np.flatnonzero(np.diff(segment, prepend=-1) > 0)
    return elapsed_days()[first]


def white_equivalent_of_cdpp(cdpp6_ppm: float) -> float:
    """White noise per cadence, ppm, whose 6-hour CDPP would be ``cdpp6_ppm`` in the pipeline's measure.

    The pipeline's CDPP (Jenkins 2002) of nearly white ordinary stars is 1 / 0.81 of lightkurve's proxy,
    and the proxy of white noise is 0.834 σ/√13; so σ = 0.81/0.834 · √13 · CDPP.
    """
    return float(0.81 / 0.834 * np.sqrt(13.0) * cdpp6_ppm)


def residual_red_psd(rng: np.random.Generator) -> FloatArray:
    """Spectrum shape (arbitrary scale) of correlated residuals: pointing, focus, and unresolved activity.

    1 / (1 + (2π f τ)²) with τ lognormal around 0.35 d, chosen so that CDPP hardly falls from 6 to 12 h
    once the white part is taken off, as in ``stellar_cdpp_quarters``.
    """
    tau_days = 0.35 * np.exp(0.4 * rng.standard_normal())
    shape = 1 + (2 * np.pi * tau_days * frequency_per_day()) ** 2
    return np.asarray(exposure_power() / shape)


def drift_psd(rng: np.random.Generator) -> FloatArray:
    """Spectrum in ppm² d of slow residual trends, 40–500 ppm, on more than ~8 days (velocity aberration)."""
    sigma_ppm = 140.0 * np.exp(0.6 * rng.standard_normal())
    knee_per_day = 0.08
    height = 2 * np.sqrt(2) / np.pi * sigma_ppm**2 / knee_per_day
    return np.asarray(height / (1 + ((frequency_per_day() / knee_per_day) ** 2) ** 2))


@dataclass(frozen=True)
class QuarterSetup:
    """Per quarter (10…13): flux level relative to the year's, and share of foreign light left in it."""

    level: FloatArray
    dilution: FloatArray

    def per_cadence(self) -> tuple[FloatArray, FloatArray]:
        """Level and dilution of each mission cadence."""
        row = mission().quarter - 10
        return self.level[row], self.dilution[row]


def draw_quarters(rng: np.random.Generator) -> QuarterSetup:
    """Another detector each quarter: levels scatter by 4 % (as on four real stars), dilution by 0–5 %."""
    level = np.exp(0.04 * rng.standard_normal(4))
    return QuarterSetup(level, 0.05 * rng.random(4) ** 2)


def recoveries(
    rng: np.random.Generator, amplitude_ppm: float, common_sign: bool = False
) -> FloatArray:
    """Exponential returns to normal after every interruption, τ = 0.3–1 d.

    Amplitudes scatter by a factor of two around ``amplitude_ppm``; signs are random unless
    ``common_sign``, where the star always dims (a row of such dips, a month apart, is a false alarm).
    """
    starts = restart_days()
    tau_days = rng.uniform(0.3, 1.0)
    size = amplitude_ppm * 1e-6 * np.exp(0.4 * rng.standard_normal(starts.size))
    sign = -1.0 if common_sign else np.where(rng.random(starts.size) < 0.5, -1.0, 1.0)
    segment = mission().segment
    age_days = elapsed_days() - starts[segment]
    return np.asarray((sign * size)[segment] * np.exp(-age_days / tau_days))


def desaturation_residuals(
    rng: np.random.Generator, amplitude_ppm: float, n_cadences: int = 1
) -> FloatArray:
    """Residuals in the ``n_cadences`` after each wheel desaturation (every 2.98 d), of one sign per star."""
    common = mission()
    event = np.flatnonzero(common.quality & DESATURATION_BIT)
    sign = 1.0 if rng.random() < 0.5 else -1.0
    size = sign * amplitude_ppm * 1e-6 * np.exp(0.3 * rng.standard_normal(event.size))
    flux = np.zeros(common.slot.size)
    for lag in range(1, n_cadences + 1):
        row = event + lag
        inside = row < flux.size
        flux[row[inside]] += size[inside] * (1 - (lag - 1) / (n_cadences + 1))
    return flux


def dropout(start_days: float, drop: float, recovered: float, tau_days: float) -> FloatArray:
    """One sudden pixel sensitivity dropout: a step down by ``drop``, of which a share recovers.

    −drop · [1 − recovered · (1 − e^(−Δt/τ))] until the end of the quarter, where the star moves to
    another detector (shape: Stumpe et al. 2012; Jenkins et al. 2010).
    """
    days = elapsed_days()
    quarter = mission().quarter
    first = int(np.searchsorted(days, start_days))
    flux = np.zeros(days.size)
    if first == days.size:
        return flux
    affected = slice(first, int(np.searchsorted(quarter, quarter[first], side="right")))
    age_days = days[affected] - start_days
    flux[affected] = -drop * (1 - recovered * (1 - np.exp(-age_days / tau_days)))
    return flux


def draw_dropouts(rng: np.random.Generator, mean_number: float) -> FloatArray:
    """Dropouts the pipeline did not correct: Poisson number, 0.02–0.5 % deep, 30–100 % recovered in 0.05–1 d."""
    days = elapsed_days()
    flux = np.zeros(days.size)
    for _ in range(rng.poisson(mean_number)):
        u = rng.random(4)
        flux += dropout(
            start_days=days[0] + u[0] * (days[-1] - days[0]),
            drop=2e-4 * 25 ** u[1],
            recovered=0.3 + 0.7 * u[2],
            tau_days=0.05 * 20 ** u[3],
        )
    return flux


def spikes(rng: np.random.Generator, white_ppm: float) -> FloatArray:
    """Cosmic-ray hits that survived cleaning: 0.12 % of cadences, +3…+10 σ, one cadence each."""
    flux = np.zeros(mission().slot.size)
    row = rng.integers(flux.size, size=rng.poisson(0.0012 * flux.size))
    flux[row] = white_ppm * 1e-6 * rng.uniform(3.0, 10.0, row.size)
    return flux


def rolling_band(
    rng: np.random.Generator, amplitude_ppm: float, n_bursts: int, quality: NDArray[np.int32]
) -> FloatArray:
    """Bursts of a drifting quasi-sinusoid, 0.3–10 d period, each 2–20 d long under a smooth envelope.

    The first burst sits where the star's cadences are flagged for a rolling band, if any are.
    """
    days = elapsed_days()
    flux = np.zeros(days.size)
    flagged = np.flatnonzero(quality & ROLLING_BAND_BITS)
    period_days = 0.3 * 33 ** rng.random()
    for number in range(n_bursts):
        u = rng.random(5)
        centre_days = u[0] * days[-1]
        if number == 0 and flagged.size:
            centre_days = days[flagged[int(u[0] * flagged.size)]]
        half_days = 1.0 + 9.0 * u[1]
        window = slice(*np.searchsorted(days, [centre_days - half_days, centre_days + half_days]))
        x = days[window] - centre_days
        envelope = np.cos(0.5 * np.pi * x / half_days) ** 2
        cycles = x / (period_days * (0.8 + 0.4 * u[2])) * (1 + 0.2 * (u[3] - 0.5) * x / half_days)
        flux[window] += envelope * np.sin(2 * np.pi * (cycles + u[4]))
    return flux * amplitude_ppm * 1e-6


@functools.cache
def noise_inflation() -> FloatArray:
    """Factor on the white noise: up to 2 in what is left around Q12's storms, decaying over 0.4 d."""
    middle_days = FIRST_BKJD + mission().slot * LONG_CADENCE_DAYS
    factor = np.ones(middle_days.size)
    for start, end in CME_WINDOWS_BKJD:
        outside_days = np.maximum(np.maximum(start - middle_days, middle_days - end), 0.0)
        factor += np.exp(-outside_days / 0.4)
    factor.flags.writeable = False
    return factor


def wheel_jitter(rng: np.random.Generator, amplitude_ppm: float) -> FloatArray:
    """Extra scatter in cadences flagged for a reaction wheel's zero crossing, with dips prevailing."""
    row = np.flatnonzero(mission().quality & ZERO_CROSSING_BIT)
    flux = np.zeros(mission().slot.size)
    flux[row] = amplitude_ppm * 1e-6 * (rng.standard_normal(row.size) - 0.3)
    return flux
