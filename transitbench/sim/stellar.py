"""What stars do by themselves: granulation, oscillations, spots, flares, pulsation.

Spectra are one-sided densities in ppm² d (see :mod:`transitbench.sim.spectrum`); signals are relative
flux around 0, one element per time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.sim.facts import table
from transitbench.sim.population import Star
from transitbench.sim.spectrum import UHZ_PER_CYCLE_PER_DAY, exposure_power, frequency_per_day

FloatArray = NDArray[np.float64]


def granulation_psd(nu_max_uhz: float, mass: float) -> FloatArray:
    """Granulation as two super-Lorentzian components (Kallinger et al. 2014, Table 2).

    P(ν) = Σ (2√2/π) (a²/b_i) / (1 + (ν/b_i)⁴), a = 3710 ν_max^−0.613 M^−0.26 ppm,
    b₁ = 0.317 ν_max^0.970 µHz, b₂ = 0.948 ν_max^0.992 µHz; attenuated by the exposure. The amplitude per
    component runs from ~27 ppm for the Sun to ~450 ppm for a giant with ν_max = 30 µHz.
    """
    nu_uhz = frequency_per_day() * UHZ_PER_CYCLE_PER_DAY
    amplitude_ppm = 3710.0 * nu_max_uhz**-0.613 * mass**-0.26
    psd_per_uhz = np.zeros(nu_uhz.size)
    for knee_uhz in (0.317 * nu_max_uhz**0.970, 0.948 * nu_max_uhz**0.992):
        power = 2 * np.sqrt(2) / np.pi * amplitude_ppm**2 / knee_uhz
        psd_per_uhz += power / (1 + ((nu_uhz / knee_uhz) ** 2) ** 2)
    return np.asarray(psd_per_uhz * UHZ_PER_CYCLE_PER_DAY * exposure_power())


def oscillation_psd(star: Star) -> FloatArray:
    """Solar-like oscillations of a giant: a comb of ℓ = 0, 1, 2 modes under a Gaussian envelope.

    Δν = 0.267 ν_max^0.764 µHz (Yu et al. 2018), envelope height 2.03 · 10⁷ ν_max^−2.38 ppm²/µHz and
    width 0.59 ν_max^0.90 µHz (Mosser et al. 2012); each mode is a Lorentzian 0.015 Δν wide, relative
    powers 1 : 1.35 : 0.6. Zero for stars that oscillate above the Nyquist frequency.
    """
    nu_uhz = frequency_per_day() * UHZ_PER_CYCLE_PER_DAY
    if not star.is_giant:
        return np.zeros(nu_uhz.size)
    nu_max = star.nu_max_uhz
    spacing = 0.267 * nu_max**0.764
    width = 0.59 * nu_max**0.90 / (2 * np.sqrt(2 * np.log(2)))
    half_linewidth = 0.0075 * spacing
    density = np.zeros(nu_uhz.size)
    for offset, power in ((0.0, 1.0), (0.5, 1.35), (-0.12, 0.6)):
        # Distance to the nearest mode of this degree: one expression instead of a loop over orders.
        distance = (nu_uhz / spacing - 1.0 - offset + 0.5) % 1.0 - 0.5
        density += power / (1 + (distance * spacing / half_linewidth) ** 2)
    # A comb of unit Lorentzians fills the share π·half_linewidth/spacing of the axis.
    density /= 2.95 * np.pi * half_linewidth / spacing
    envelope = np.exp(-0.5 * ((nu_uhz - nu_max) / width) ** 2)
    height = 2.03e7 * nu_max**-2.38
    return np.asarray(height * envelope * density * UHZ_PER_CYCLE_PER_DAY * exposure_power())


def draw_rotation(rng: np.random.Generator) -> tuple[float, float]:
    """Rotation period in days and amplitude R_per in ppm (5th–95th percentile) of a detected rotator.

    From the quantiles of McQuillan et al. 2014: median 16.7 d and 5,600 ppm, faster rotators larger.
    """
    periods = table("rotation_period_quantiles_days")
    probability = np.linspace(0, 1, periods.size + 2)[1:-1]
    u_period, u_amplitude = rng.random(2)
    period_days = float(np.exp(np.interp(u_period, probability, np.log(periods))))
    edges = table("rotation_bin_edges_days")
    amplitudes = table("rotation_amplitude_quantiles_ppm")
    row = int(np.searchsorted(edges, period_days, side="right")) - 1
    amplitude_ppm = np.exp(np.interp(u_amplitude, probability, np.log(amplitudes[row])))
    return period_days, float(amplitude_ppm)


SHEAR_RAD_PER_DAY = 0.05
"""Equator minus pole, like the Sun's and nearly the same for all periods (Reinhold & Gizon 2015)."""
_ROTATION_COSINES = np.cos(2 * np.pi * np.arange(48) / 48)

SPOT_STEPS_PER_ROTATION = 150
"""Slow rotators are computed at this many steps and interpolated, exact to 10⁻³ of the amplitude
(a kink where a spot crosses the limb may be off by 2 % of it for an hour)."""


def spots(
    rng: np.random.Generator, time_days: FloatArray, period_days: float, amplitude_ppm: float
) -> FloatArray:
    """Relative flux of a rotating star whose spots come and go.

    Each spot dims by its projected area max(0, cos β), cos β = cos i sin φ + sin i cos φ cos(Ω_φ t) at
    latitude φ, rotating differentially (Ω_φ = 2π/P − 0.05 sin²φ rad/d), and grows and decays as (1 − (Δt/L)²)²
    with L = 25–120 d (Giles et al. 2017), about five at a time around two active longitudes. Scaled to
    the 5th–95th percentile ``amplitude_ppm``.
    """
    span_days = time_days[-1] - time_days[0]
    n_steps = int(span_days / period_days * SPOT_STEPS_PER_ROTATION)
    coarse = n_steps < time_days.size
    steps_days = np.linspace(time_days[0], time_days[-1], n_steps) if coarse else time_days
    life_days = 25.0 * 4.8 ** rng.random()
    n_spots = int(np.ceil(2.5 * (span_days + life_days) / life_days))
    sin_i = np.sqrt(1 - rng.uniform(0.0, 0.85) ** 2)
    cos_i = np.sqrt(1 - sin_i**2)
    # Without active longitudes many random spots average to a flat curve.
    active_deg = rng.uniform(0, 360) + np.array([0.0, rng.uniform(90, 270)])
    births = (np.arange(n_spots) + rng.random(n_spots)) / n_spots
    centres = time_days[0] - 0.5 * life_days + (span_days + life_days) * births
    flux = np.zeros(steps_days.size)
    for centre_days in centres:
        latitude = np.radians(rng.uniform(-45, 45))
        longitude = np.radians(active_deg[rng.integers(2)] + 35 * rng.standard_normal())
        area = np.exp(0.4 * rng.standard_normal())
        window = slice(
            *np.searchsorted(steps_days, [centre_days - life_days, centre_days + life_days])
        )
        angular_speed = 2 * np.pi / period_days - SHEAR_RAD_PER_DAY * np.sin(latitude) ** 2
        phase = angular_speed * (steps_days[window] - time_days[0]) + longitude
        constant, swing = cos_i * np.sin(latitude), sin_i * np.cos(latitude)
        projected = np.maximum(constant + swing * np.cos(phase), 0.0)
        # Faculae and the pipeline take out the slow dimming of a growing spot; its rotation stays.
        projected -= np.maximum(constant + swing * _ROTATION_COSINES, 0.0).mean()
        envelope = (1 - ((steps_days[window] - centre_days) / life_days) ** 2) ** 2
        flux[window] -= area * envelope * projected
    if coarse:
        flux = np.interp(time_days, steps_days, flux)
    sample = np.sort(flux[::16])
    low, high = sample[int(0.05 * sample.size)], sample[int(0.95 * sample.size)]
    return np.asarray((flux - flux.mean()) * (amplitude_ppm * 1e-6 / (high - low)))


def flare_shape(dt_days: FloatArray, fwhm_days: FloatArray | float) -> FloatArray:
    """Flare template of unit peak: quartic rise, two-phase exponential decay (Davenport et al. 2014).

    F = 1 + 1.941 x − 0.175 x² − 2.246 x³ − 1.125 x⁴ for −1 ≤ x < 0 and
    F = 0.6890 e^(−1.600 x) + 0.3030 e^(−0.2783 x) for x ≥ 0 (their Eqs. 1 and 4), x in units of the FWHM.
    """
    x = dt_days / fwhm_days
    before = np.clip(x, -1.0, 0.0)
    rise = 1 + before * (1.941 + before * (-0.175 + before * (-2.246 - 1.125 * before)))
    after = np.maximum(x, 0.0)
    decay = 0.6890 * np.exp(-1.600 * after) + 0.3030 * np.exp(-0.2783 * after)
    return np.where(x < -1.0, 0.0, np.where(x < 0.0, rise, decay))


def flares(
    rng: np.random.Generator, time_days: FloatArray, n_flares: int, largest: float = 0.02
) -> FloatArray:
    """Relative flux of ``n_flares`` flares at random times.

    Peaks follow a power law N(> A) ∝ A⁻¹ from 0.05 % to ``largest`` (energies ∝ E⁻²), FWHM 5–40 min
    growing with the peak; averaged over the exposure on 8 sub-steps.
    """
    flux = np.zeros(time_days.size)
    sub_steps = (np.arange(8) + 0.5) / 8 - 0.5
    for _ in range(n_flares):
        centre_days = rng.uniform(time_days[0], time_days[-1])
        peak = 1.0 / (1 / largest + rng.random() * (1 / 5e-4 - 1 / largest))
        fwhm_days = (5.0 / 1440) * 8.0 ** (rng.random() * (0.4 + 0.6 * min(peak / largest, 1.0)))
        window = slice(
            *np.searchsorted(time_days, [centre_days - 0.06, centre_days + 25 * fwhm_days])
        )
        fine = time_days[window, None] + sub_steps * LONG_CADENCE_DAYS - centre_days
        flux[window] += peak * flare_shape(fine, fwhm_days).mean(axis=1)
    return flux


def _modes(
    time_days: FloatArray, frequency_per_day: FloatArray, amplitude: FloatArray, phase: FloatArray
) -> FloatArray:
    """Sum of sines, each attenuated by sinc(f·t_exp) of the exposure."""
    flux = np.zeros(time_days.size)
    seen = amplitude * np.sinc(frequency_per_day * LONG_CADENCE_DAYS)
    since = time_days - time_days[0]
    for f, a, p in zip(frequency_per_day, seen, phase, strict=True):
        flux += a * np.sin(2 * np.pi * f * since + p)
    return flux


def delta_scuti(rng: np.random.Generator, time_days: FloatArray) -> FloatArray:
    """δ Scuti pulsation: 5–12 p modes at 5–40 per day, 30 ppm–10 mmag (beyond 24.5 per day: aliases).

    Mode amplitudes fall as a geometric series (Balona & Dziembowski 2011 for Kepler's sample).
    """
    n_modes = int(rng.integers(5, 13))
    strongest = 3e-5 * 300 ** rng.random()
    frequency = rng.uniform(5, 40, n_modes)
    amplitude = strongest * 0.7 ** np.arange(n_modes) * np.exp(0.3 * rng.standard_normal(n_modes))
    return _modes(time_days, frequency, amplitude, rng.uniform(0, 2 * np.pi, n_modes))


def gamma_doradus(rng: np.random.Generator, time_days: FloatArray) -> FloatArray:
    """γ Doradus pulsation: 4–10 g modes bunched within 0.3–3 per day, 100 ppm–10 mmag.

    Periods are nearly equidistant (spacing ~0.02–0.04 d; Li et al. 2020), hence the long beats.
    """
    n_modes = int(rng.integers(4, 11))
    strongest = 1e-4 * 100 ** rng.random()
    centre_days, spacing_days = rng.uniform(0.45, 1.4), rng.uniform(0.008, 0.03)
    order = np.arange(n_modes) - n_modes / 2
    period = centre_days + spacing_days * (order + 0.1 * rng.standard_normal(n_modes))
    amplitude = (
        strongest * np.exp(-0.5 * (order / (0.3 * n_modes)) ** 2) * rng.uniform(0.4, 1, n_modes)
    )
    return _modes(time_days, 1 / period, amplitude, rng.uniform(0, 2 * np.pi, n_modes))


RR_LYRAE_FOURIER = (
    (1.0, 0.0),
    (0.46, 2.4),
    (0.33, 5.1),
    (0.21, 1.7),
    (0.13, 4.6),
    (0.08, 1.2),
    (0.05, 4.1),
)
"""Amplitude ratios R_k1 and phase differences φ_k1 (sine series) of typical RRab stars (Nemec et al. 2013)."""


def rr_lyrae(rng: np.random.Generator, time_days: FloatArray) -> FloatArray:
    """RR Lyrae (RRab) pulsation: 0.45–0.70 d, total amplitude 0.25–0.9, half with Blazhko modulation."""
    period_days = rng.uniform(0.45, 0.70)
    amplitude = rng.uniform(0.25, 0.9)
    blazhko_days, depth, has_blazhko = (
        rng.uniform(25, 110),
        rng.uniform(0.05, 0.35),
        rng.random() < 0.5,
    )
    shift, blazhko_shift = rng.uniform(0, 2 * np.pi, 2)
    grid = np.linspace(0, 2 * np.pi, 513)
    shape = np.zeros(grid.size)
    for k, (ratio, phase) in enumerate(RR_LYRAE_FOURIER, start=1):
        seen = ratio * np.sinc(k * LONG_CADENCE_DAYS / period_days)
        shape += seen * np.sin(k * grid + phase)
    shape /= np.ptp(shape)
    phase = (2 * np.pi * (time_days - time_days[0]) / period_days + shift) % (2 * np.pi)
    flux = amplitude * np.interp(phase, grid, shape)
    if has_blazhko:
        slow = 2 * np.pi * (time_days - time_days[0]) / blazhko_days + blazhko_shift
        flux *= 1 + depth * np.cos(slow)
    return np.asarray(flux)
