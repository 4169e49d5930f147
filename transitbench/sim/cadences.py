"""Which cadences Kepler's quarters 10–13 have, when they happened, and what is flagged or lost.

Everything here is drawn before, and independently of, what kind of star is made: flags, gaps and times
must not tell an eclipsing binary from a quiet star.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transitbench.sim.facts import facts, table

FIRST_CADENCE = 39049
N_SLOTS = 17923
"""Long-cadence slots from the first cadence of Q10 to the last of Q13, gaps included."""

COSMIC_RAY_BIT, DROPOUT_BIT, OUTLIER_BIT, COLLATERAL_BIT = 128, 1024, 2048, 8192
ROLLING_BAND_BITS = 131072 | 262144
DESATURATION_BIT, ZERO_CROSSING_BIT = 32, 16

FIELD_RA_DEG, FIELD_DEC_DEG, FIELD_RADIUS_DEG = 290.667, 44.5, 7.0
"""Centre and radius of Kepler's field of view (Kepler Instrument Handbook)."""

_MS_PER_DAY = 86_400_000
_DIRECTION_UNIT = 1 << 20
_TIME_SLICE_MS = 620
_N_TIME_SLICES = 5


@dataclass(frozen=True)
class Mission:
    """What all stars share, one element per cadence that has a time (17,359), ascending.

    Attributes
    ----------
    slot
        Cadence number minus :data:`FIRST_CADENCE`, int64; position on a uniform cadence grid.
    quarter
        Kepler quarter, int8.
    quality
        Mission-wide ``SAP_QUALITY`` bits, int32.
    missing
        Cadences whose flux is NaN on every star.
    segment
        Index of the stretch between interruptions of half a day or more, int64.
    """

    slot: NDArray[np.int64]
    quarter: NDArray[np.int8]
    quality: NDArray[np.int32]
    missing: NDArray[np.bool_]
    segment: NDArray[np.int64]


@dataclass(frozen=True)
class Frame:
    """The non-flux arrays of one star: a :class:`Mission` with the star's own times, flags and losses.

    ``observed`` marks the rows that exist for this star (not those of a quarter spent on a dead module);
    the arrays keep all mission rows, so that noise is drawn alike whatever is lost.
    """

    time_days: NDArray[np.float64]
    quality: NDArray[np.int32]
    missing: NDArray[np.bool_]
    observed: NDArray[np.bool_]


def _expand(inclusive_ranges: list[list[int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(first, last + 1) for first, last in inclusive_ranges])


@functools.cache
def mission() -> Mission:
    """Cadences of quarters 10–13 from the facts table."""
    timed = {int(q): _expand(r) for q, r in facts()["timed_cadences"].items()}
    cadence = np.concatenate(list(timed.values()))
    quarter = np.repeat(np.array(list(timed), dtype=np.int8), [c.size for c in timed.values()])
    quality = np.zeros(cadence.size, dtype=np.int32)
    for bit, flagged in facts()["mission_flags"].items():
        if flagged:
            quality[np.isin(cadence, _expand(flagged))] |= int(bit)
    missing = np.isin(cadence, _expand(facts()["no_flux_cadences"]))
    good = cadence[~missing]
    restart = good[1:][np.diff(good) >= 24]
    segment = np.searchsorted(restart, cadence, side="right")
    return Mission(cadence - FIRST_CADENCE, quarter, quality, missing, segment)


@functools.cache
def _clock_ms() -> NDArray[np.int64]:
    """Spacecraft time of each mission cadence before the light-time term, in whole milliseconds."""
    knots = table("clock_knots_s")
    seconds = np.interp(mission().slot + FIRST_CADENCE, knots[:, 0], knots[:, 1])
    return np.round(seconds * 1e3).astype(np.int64)


@functools.cache
def _position_light_ms() -> NDArray[np.int64]:
    """Barycentric place of the spacecraft in light-milliseconds, shape ``(3, n)``."""
    scaled = 2.0 * mission().slot / (N_SLOTS - 1) - 1.0
    place_s = np.polynomial.chebyshev.chebval(scaled, table("position_chebyshev_light_s").T)
    return np.round(place_s * 1e3).astype(np.int64)


def barycentric_time_days(
    ra_deg: float, dec_deg: float, time_slice: NDArray[np.int64]
) -> NDArray[np.float64]:
    """BKJD at mid-cadence for a star at a place on the sky, shape ``(17359,)``.

    t = spacecraft clock + r(t)·n̂/c − read-out delay of the star's module (Kepler Archive Manual §2.3.2);
    the light time moves by some ± 200 s over the year and differs by up to 100 s across the field.
    Sums run over integers (milliseconds × 2⁻²⁰ direction units), because a time that depends on the last
    bit of a processor's cosine would change the digest of a whole set.

    Parameters
    ----------
    ra_deg, dec_deg
        Place of the star.
    time_slice
        Read-out slice 1…5 of the star's module in each of the four quarters, shape ``(4,)``.
    """
    ra, dec = np.radians(ra_deg), np.radians(dec_deg)
    direction = np.array([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])
    units = np.round(direction * _DIRECTION_UNIT).astype(np.int64)
    place = _position_light_ms()
    light_ms = (units[0] * place[0] + units[1] * place[1] + units[2] * place[2]) // _DIRECTION_UNIT
    delay_ms = (250 + _TIME_SLICE_MS * (_N_TIME_SLICES - time_slice))[mission().quarter - 10]
    return np.asarray((_clock_ms() + light_ms - delay_ms) / _MS_PER_DAY)


def draw_sky_position_deg(rng: np.random.Generator) -> tuple[float, float]:
    """Right ascension and declination, uniform over a disc as large as the Kepler field."""
    radius_deg = FIELD_RADIUS_DEG * np.sqrt(rng.random())
    angle = 2 * np.pi * rng.random()
    dec_deg = FIELD_DEC_DEG + radius_deg * np.sin(angle)
    ra_deg = FIELD_RA_DEG + radius_deg * np.cos(angle) / np.cos(np.radians(dec_deg))
    return float(ra_deg), float(dec_deg)


def draw_observed_quarters(rng: np.random.Generator) -> NDArray[np.bool_]:
    """Rows that exist: at most one quarter is missing (the star fell on the dead module 3).

    Shares per quarter are those of the observed-quarter strings of ``stellar_cdpp_quarters``.
    """
    share: dict[str, float] = facts()["missing_quarter_share"]
    lost = int(np.searchsorted(np.cumsum(list(share.values())), rng.random(), side="right"))
    return np.asarray(mission().quarter != lost + 10)


def draw_star_flags(rng: np.random.Generator, kepmag: float) -> NDArray[np.int32]:
    """Flags that differ from star to star, int32, shape ``(17359,)``.

    Rates per quarter as counted in real Q9–Q13 files: cosmic rays in the aperture 30 · 10^(0.13 (15.5 − Kp))
    with a lognormal scatter of 0.5 (a larger aperture catches more), in collateral pixels ~100,
    impulsive outliers ~1, sudden dropouts ~0.02; a rolling band crosses one star-quarter in eight, for
    5–300 cadences at a time.
    """
    common = mission()
    flags = np.zeros(common.slot.size, dtype=np.int32)
    per_row = 4.0 / common.slot.size
    aperture = 30.0 * 10 ** (0.13 * (15.5 - kepmag)) * np.exp(0.5 * rng.standard_normal())
    collateral = 100.0 * np.exp(0.35 * rng.standard_normal())
    # The protons of the Q12 coronal mass ejections hit the star's pixels like cosmic rays.
    storm = np.where(common.quarter == 12, 2.0, 1.0)
    u_aperture, u_collateral = rng.random((2, flags.size))
    flags[u_aperture < aperture * per_row * storm] |= COSMIC_RAY_BIT
    flags[u_collateral < collateral * per_row * storm] |= COLLATERAL_BIT
    flags[rng.integers(flags.size, size=rng.poisson(4.0))] |= OUTLIER_BIT
    flags[rng.integers(flags.size, size=rng.poisson(0.08))] |= DROPOUT_BIT
    for _ in range(rng.poisson(0.5)):
        start = int(rng.integers(flags.size))
        length = int(5 * 60 ** rng.random())
        flags[start : start + length] |= ROLLING_BAND_BITS
    return flags


def draw_frame(rng: np.random.Generator, kepmag: float) -> Frame:
    """Times, flags and losses of one star."""
    common = mission()
    ra_deg, dec_deg = draw_sky_position_deg(rng)
    time_slice = rng.integers(1, _N_TIME_SLICES + 1, size=4)
    missing = common.missing.copy()
    missing[rng.integers(missing.size, size=rng.poisson(1.5))] = True
    return Frame(
        time_days=barycentric_time_days(ra_deg, dec_deg, time_slice),
        quality=common.quality | draw_star_flags(rng, kepmag),
        missing=missing,
        observed=draw_observed_quarters(rng),
    )
