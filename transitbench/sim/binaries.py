"""Eclipsing binaries: two limb-darkened spheres on a Keplerian orbit, tides, reflected light, foreign light.

Eclipses are computed by ``batman`` once per binary on a fine grid in time from conjunction, integrated,
and read off per cadence as the exact mean over the exposure; so a star costs the same whatever its period.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import batman
import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.sim.population import SOLAR_TEFF_K, Star

FloatArray = NDArray[np.float64]

SOLAR_A_COEFFICIENT = 4.2083
"""a / R☉ = 4.2083 (M / M☉)^(1/3) (P / 1 d)^(2/3)."""
PLANCK_EXPONENT_K = 22481.0
"""hc / kλ at 640 nm, the flux-weighted centre of Kepler's band."""
N_ECLIPSE_GRID = 801
N_PHASE_GRID = 2048
MINIMUM_DEPTH_PPM = 500.0


@dataclass(frozen=True)
class Binary:
    """Two stars; body 2 is in front at phase 0.

    Attributes
    ----------
    period_days, t0_days
        Period, and a mid-time (BKJD) of the eclipse of body 1.
    r1, r2
        Radii divided by the semi-major axis.
    inclination_rad, eccentricity, omega_rad
        Orbit; ω is the argument of periastron of body 2 as in batman (conjunction at true anomaly π/2 − ω).
    mass_ratio
        M₂ / M₁.
    surface_brightness
        J = I₂ / I₁ in the Kepler band.
    limb1, limb2
        Quadratic limb-darkening coefficients (u₁, u₂).
    albedo
        Bolometric albedo of both.
    """

    period_days: float
    t0_days: float
    r1: float
    r2: float
    inclination_rad: float
    eccentricity: float = 0.0
    omega_rad: float = np.pi / 2
    mass_ratio: float = 1.0
    surface_brightness: float = 1.0
    limb1: tuple[float, float] = (0.45, 0.2)
    limb2: tuple[float, float] = (0.45, 0.2)
    albedo: float = 0.5

    @property
    def light1(self) -> float:
        """Share of body 1 in the light of both: π r² I · (1 − u₁/3 − u₂/6), normalised."""
        one = self.r1**2 * (1 - self.limb1[0] / 3 - self.limb1[1] / 6)
        two = self.surface_brightness * self.r2**2 * (1 - self.limb2[0] / 3 - self.limb2[1] / 6)
        return one / (one + two)


def eccentric_anomaly(mean_anomaly: FloatArray, eccentricity: float) -> FloatArray:
    """Solve Kepler's equation E − e sin E = M by a fixed number of Newton steps (e ≤ 0.9)."""
    anomaly = mean_anomaly + eccentricity * np.sin(mean_anomaly) / (
        1 - eccentricity * np.cos(mean_anomaly)
    )
    for _ in range(8):
        error = anomaly - eccentricity * np.sin(anomaly) - mean_anomaly
        anomaly = anomaly - error / (1 - eccentricity * np.cos(anomaly))
    return anomaly


def mean_anomaly_at(true_anomaly_rad: float, eccentricity: float) -> float:
    """Mean anomaly at a true anomaly: M = E − e sin E, tan(E/2) = √((1−e)/(1+e)) tan(f/2)."""
    half = np.sqrt((1 - eccentricity) / (1 + eccentricity)) * np.tan(true_anomaly_rad / 2)
    anomaly = 2 * np.arctan(half)
    return float(anomaly - eccentricity * np.sin(anomaly))


def secondary_phase(eccentricity: float, omega_rad: float) -> float:
    """Phase (0–1) of the eclipse of body 2, counted from the eclipse of body 1; 0.5 on a circle."""
    first = mean_anomaly_at(np.pi / 2 - omega_rad, eccentricity)
    second = mean_anomaly_at(3 * np.pi / 2 - omega_rad, eccentricity)
    return float(((second - first) / (2 * np.pi)) % 1.0)


@dataclass(frozen=True)
class EclipseLoss:
    """Light that one body loses while the other is in front.

    ``integral`` is ∫ (1 − F) dt from the first grid point to each ``offset_days`` from conjunction.
    """

    offset_days: FloatArray
    integral: FloatArray

    def mean_over_exposure(self, since_conjunction_days: FloatArray) -> FloatArray:
        """Return the mean loss over a long cadence centred at each time, relative to that body's light."""
        half = LONG_CADENCE_DAYS / 2
        loss = np.zeros(since_conjunction_days.size)
        inside = np.flatnonzero(np.abs(since_conjunction_days) < self.offset_days[-1] + half)
        middle = since_conjunction_days[inside]
        end = np.interp(middle + half, self.offset_days, self.integral)
        start = np.interp(middle - half, self.offset_days, self.integral)
        loss[inside] = (end - start) / LONG_CADENCE_DAYS
        return loss


def eclipse_duration_days(
    period_days: float,
    r_star: float,
    ratio: float,
    inclination_rad: float,
    ecc: float,
    omega_rad: float,
) -> float:
    """First to fourth contact of the passage in front of a body of fractional radius ``r_star``.

    Winn 2010, Eqs. 7, 14 and 16; zero when the bodies miss each other.
    """
    speed = (1 + ecc * np.sin(omega_rad)) / np.sqrt(1 - ecc**2)
    impact = np.cos(inclination_rad) / r_star * (1 - ecc**2) / (1 + ecc * np.sin(omega_rad))
    chord = (1 + ratio) ** 2 - impact**2
    if chord <= 0:
        return 0.0
    angle = np.arcsin(min(1.0, r_star * np.sqrt(chord) / np.sin(inclination_rad)))
    return float(period_days / np.pi * angle / speed)


def eclipse_loss(
    period_days: float,
    r_behind: float,
    r_front: float,
    inclination_rad: float,
    eccentricity: float,
    omega_rad: float,
    limb: tuple[float, float],
) -> EclipseLoss | None:
    """Loss of the body behind, with ``omega_rad`` that of the body in front; None if there is no eclipse."""
    ratio = r_front / r_behind
    duration_days = eclipse_duration_days(
        period_days, r_behind, ratio, inclination_rad, eccentricity, omega_rad
    )
    if duration_days == 0.0:
        return None
    half_window = min(0.5 * duration_days * (1.3 if eccentricity else 1.05), 0.24 * period_days)
    offset_days = np.linspace(-half_window, half_window, N_ECLIPSE_GRID)
    parameters = batman.TransitParams()
    parameters.t0, parameters.per = 0.0, period_days
    parameters.rp, parameters.a = ratio, 1.0 / r_behind
    parameters.inc = float(np.degrees(inclination_rad))
    parameters.ecc, parameters.w = eccentricity, float(np.degrees(omega_rad))
    parameters.limb_dark, parameters.u = "quadratic", list(limb)
    loss = 1.0 - batman.TransitModel(parameters, offset_days).light_curve(parameters)
    step = offset_days[1] - offset_days[0]
    integral = np.concatenate([[0.0], np.cumsum(0.5 * (loss[1:] + loss[:-1])) * step])
    return EclipseLoss(offset_days, integral)


@functools.lru_cache(maxsize=8)
def eclipses_of(binary: Binary) -> tuple[EclipseLoss | None, EclipseLoss | None]:
    """Loss of body 1 (phase 0) and of body 2 (secondary phase)."""
    b = binary
    return (
        eclipse_loss(
            b.period_days, b.r1, b.r2, b.inclination_rad, b.eccentricity, b.omega_rad, b.limb1
        ),
        eclipse_loss(
            b.period_days,
            b.r2,
            b.r1,
            b.inclination_rad,
            b.eccentricity,
            b.omega_rad + np.pi,
            b.limb2,
        ),
    )


def eclipse_depths(binary: Binary) -> tuple[float, float]:
    """Deepest loss of total light at the two eclipses, exposure included (relative, 0 if none)."""
    shares = (binary.light1, 1 - binary.light1)
    return tuple(  # type: ignore[return-value]
        0.0 if loss is None else share * float(loss.mean_over_exposure(np.zeros(1))[0])
        for share, loss in zip(shares, eclipses_of(binary), strict=True)
    )


def tides_and_reflection(binary: Binary, phase: FloatArray) -> FloatArray:
    """Ellipsoidal variation and mutual reflection, relative flux around 0; ``phase`` in cycles.

    Ellipsoidal: −α q r³ sin²i cos 4πφ per body with α = 0.15 (15 + u)(1 + g)/(3 − u), u = 0.6, g = 0.4
    (Morris 1985, Eq. 1). Reflection: each body returns ⅔·albedo·r²/2 of the other's light, brightest when
    its lit side faces us (phase 0.5 for body 2).
    """
    alpha = 0.15 * 15.6 * 1.4 / 2.4
    sin_i = np.sin(binary.inclination_rad)
    light1, light2 = binary.light1, 1 - binary.light1
    tides = (
        alpha
        * sin_i**2
        * (light1 * binary.mass_ratio * binary.r1**3 + light2 / binary.mass_ratio * binary.r2**3)
    )
    reflection = binary.albedo / 3 * sin_i * (light1 * binary.r2**2 - light2 * binary.r1**2)
    cosine = np.cos(2 * np.pi * phase)
    return np.asarray(-tides * (2 * cosine**2 - 1) - reflection * cosine)


def binary_flux(
    binary: Binary, time_days: FloatArray, delay_days: FloatArray | float = 0.0
) -> FloatArray:
    """Light of the pair, 1 ± tides outside eclipses, averaged over each long cadence.

    Parameters
    ----------
    binary
        The system.
    time_days
        BKJD at mid-cadence, shape ``(n,)``.
    delay_days
        Eclipse timing variation: how late eclipses come at each time (see :func:`timing_variation`).
    """
    since = time_days - delay_days - binary.t0_days
    cycles = since / binary.period_days
    primary_days = (cycles - np.round(cycles)) * binary.period_days
    flux = 1.0 + tides_and_reflection(binary, cycles)
    first, second = eclipses_of(binary)
    if first is not None:
        flux -= binary.light1 * first.mean_over_exposure(primary_days)
    if second is not None:
        cycles = cycles - secondary_phase(binary.eccentricity, binary.omega_rad)
        offset_days = (cycles - np.round(cycles)) * binary.period_days
        flux -= (1 - binary.light1) * second.mean_over_exposure(offset_days)
    return np.asarray(flux)


def timing_variation(rng: np.random.Generator, time_days: FloatArray) -> FloatArray:
    """Eclipse timing variation by a third body in days: 1–20 min on 80–1,000 d (Borkovits et al. 2016)."""
    amplitude_days = (1.0 / 1440) * 20 ** rng.random()
    period_days = 80.0 * 12.5 ** rng.random()
    phase = rng.uniform(0, 2 * np.pi)
    angle = 2 * np.pi * (time_days - time_days[0]) / period_days + phase
    return np.asarray(amplitude_days * np.sin(angle))


def heartbeat(
    time_days: FloatArray,
    period_days: float,
    periastron_days: float,
    eccentricity: float,
    inclination_rad: float,
    omega_rad: float,
    amplitude: float,
) -> FloatArray:
    """Tidal pulse at periastron, relative flux around its value far from it, of given full ``amplitude``.

    δF ∝ [1 − 3 sin²i cos²(φ − ω)] / (r/a)³ with φ the true anomaly (Kumar et al. 1995, Eq. 44; Thompson et
    al. 2012, Eq. 1).
    """
    grid = np.linspace(-np.pi, np.pi, N_PHASE_GRID + 1)
    anomaly = eccentric_anomaly(grid, eccentricity)
    separation = 1 - eccentricity * np.cos(anomaly)
    true = 2 * np.arctan2(
        np.sqrt(1 + eccentricity) * np.sin(anomaly / 2),
        np.sqrt(1 - eccentricity) * np.cos(anomaly / 2),
    )
    shape = (1 - 3 * np.sin(inclination_rad) ** 2 * np.cos(true - omega_rad) ** 2) / separation**3
    shape = (shape - shape[0]) / np.ptp(shape)
    cycles = (time_days - periastron_days) / period_days
    return np.asarray(amplitude * np.interp(2 * np.pi * (cycles - np.round(cycles)), grid, shape))


def surface_brightness_ratio(teff2: float, teff1: float) -> float:
    """I₂ / I₁ of black bodies at 640 nm."""
    return float(np.expm1(PLANCK_EXPONENT_K / teff1) / np.expm1(PLANCK_EXPONENT_K / teff2))


def main_sequence_radius(mass: float) -> float:
    """R / R☉ = (M / M☉)^0.85."""
    return float(mass**0.85)


def main_sequence_teff(mass: float) -> float:
    """Teff = 5772 K · (M / M☉)^0.55, as the population of stars has it."""
    return float(SOLAR_TEFF_K * mass**0.55)


def _limb(rng: np.random.Generator) -> tuple[float, float]:
    jitter = rng.uniform(-0.1, 0.1, 2)
    return 0.45 + float(jitter[0]), 0.2 + float(jitter[1])


def _separation(period_days: float, total_mass: float) -> float:
    return float(SOLAR_A_COEFFICIENT * (total_mass * period_days**2) ** (1 / 3))


def _widen(
    period_days: float, radius_sum: float, total_mass: float, closest: float, largest_sum: float
) -> float:
    """Lengthen a period until the stars fit: (R₁ + R₂) / (a · closest) ≤ ``largest_sum``."""
    fits = radius_sum / (largest_sum * closest * SOLAR_A_COEFFICIENT * total_mass ** (1 / 3))
    return float(max(period_days, fits**1.5))


def draw_detached(
    rng: np.random.Generator, star: Star, start_days: float, eccentric: bool, twins: bool
) -> Binary:
    """Detached pair whose primary is ``star``; period log-flat 1–100 d (8–100 d if eccentric).

    ``twins`` have equal masses to 3 %, hence equal depths, and look like one planet at half the period.
    Orientation is isotropic given an eclipse; systems with both eclipses below 500 ppm are drawn anew.
    """
    while True:
        mass_ratio = rng.uniform(0.97, 1.0) if twins else rng.uniform(0.15, 1.0)
        mass2 = mass_ratio * star.mass
        radius2 = star.radius * mass_ratio**0.85 if twins else main_sequence_radius(mass2)
        teff2 = star.teff * mass_ratio**0.55 if twins else main_sequence_teff(mass2)
        eccentricity = rng.uniform(0.1, 0.65) if eccentric else 0.0
        period_days = float(
            (8.0 if eccentric else 1.0) * (12.5 if eccentric else 100.0) ** rng.random()
        )
        total = star.mass + mass2
        period_days = _widen(period_days, star.radius + radius2, total, 1 - eccentricity, 0.5)
        separation = _separation(period_days, total)
        r1, r2 = star.radius / separation, radius2 / separation
        omega_rad = rng.uniform(0, 2 * np.pi) if eccentric else np.pi / 2
        # Closest conjunction: the side at which periastron lies eclipses at larger tilts.
        reach = (1 + eccentricity * abs(np.sin(omega_rad))) / (1 - eccentricity**2)
        cos_i = rng.random() * 0.98 * min((r1 + r2) * reach, 0.9)
        binary = Binary(
            period_days=period_days,
            t0_days=start_days + period_days * rng.random(),
            r1=r1,
            r2=r2,
            inclination_rad=float(np.arccos(cos_i)),
            eccentricity=eccentricity,
            omega_rad=omega_rad,
            mass_ratio=mass_ratio,
            surface_brightness=surface_brightness_ratio(teff2, star.teff),
            limb1=_limb(rng),
            limb2=_limb(rng),
        )
        if max(eclipse_depths(binary)) * 1e6 >= MINIMUM_DEPTH_PPM:
            return binary


def roche_lobe(mass_ratio: float) -> float:
    """Roche-lobe radius over separation of the star with ``mass_ratio`` = its mass over the other's.

    Eggleton 1983, Eq. 2: 0.49 q^⅔ / (0.6 q^⅔ + ln(1 + q^⅓)).
    """
    q = mass_ratio ** (2 / 3)
    return float(0.49 * q / (0.6 * q + np.log1p(mass_ratio ** (1 / 3))))


def draw_contact(rng: np.random.Generator, start_days: float) -> Binary:
    """Contact or near-contact pair, 0.25–0.6 d: Roche lobes filled to 85–100 %, nearly equal temperatures.

    Inclined by 40–90°: the less inclined do not eclipse and show ellipsoidal variation only.
    """
    mass_ratio = rng.uniform(0.15, 1.0)
    filling = rng.uniform(0.85, 1.0)
    return Binary(
        period_days=float(0.25 * 2.4 ** rng.random()),
        t0_days=start_days + 0.6 * rng.random(),
        r1=filling * roche_lobe(1 / mass_ratio),
        r2=filling * roche_lobe(mass_ratio),
        inclination_rad=float(np.arccos(rng.uniform(0.0, np.cos(np.radians(40))))),
        mass_ratio=mass_ratio,
        surface_brightness=rng.uniform(0.75, 1.05),
        limb1=_limb(rng),
        limb2=_limb(rng),
    )


def draw_background(rng: np.random.Generator, start_days: float) -> tuple[Binary, float]:
    """Faint background pair in the aperture, and the share of its light in the total.

    Similar stars, nearly grazing (V-shaped), whose two depths differ by 5–30 %: at half the period an odd–even
    difference is all that betrays them. Diluted to a depth of 300–3,000 ppm.
    """
    while True:
        mass = rng.uniform(0.6, 1.2)
        period_days = float(0.5 * 120 ** rng.random())
        mass_ratio = rng.uniform(0.9, 1.0)
        radius, radius2 = main_sequence_radius(mass), main_sequence_radius(mass * mass_ratio)
        total = mass * (1 + mass_ratio)
        period_days = _widen(period_days, radius + radius2, total, 1.0, 0.45)
        separation = _separation(period_days, total)
        r1, r2 = radius / separation, radius2 / separation
        limb = _limb(rng)
        binary = Binary(
            period_days=period_days,
            t0_days=start_days + period_days * rng.random(),
            r1=r1,
            r2=r2,
            inclination_rad=float(np.arccos(rng.uniform(0.45, 0.95) * (r1 + r2))),
            mass_ratio=mass_ratio,
            surface_brightness=1.0 - rng.uniform(0.05, 0.30),
            limb1=limb,
            limb2=limb,
        )
        depth = max(eclipse_depths(binary))
        target = 3e-4 * 10 ** rng.random()
        if depth > 1.05 * target:
            return binary, float(target / depth)
