"""Stationary noise from a power spectrum: one inverse FFT per star, whatever the spectrum is made of.

Convention: one-sided power spectral density S(f) in ppm² d over frequency f in cycles per day, on a grid
that stays fixed, so that ∫ S df is the variance of a point-like measurement.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft
from scipy.signal import savgol_coeffs

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.sim.cadences import N_SLOTS

FloatArray = NDArray[np.float64]

N_FFT = 18432
"""2¹¹·3²: a length with a fast transform, long enough that the two ends of the year do not meet."""
UHZ_PER_CYCLE_PER_DAY = 1e6 / 86400.0


@functools.cache
def frequency_per_day() -> FloatArray:
    """Frequencies of the grid, cycles per day, shape ``(N_FFT // 2 + 1,)``; the first is 0."""
    frequency = np.arange(N_FFT // 2 + 1) / (N_FFT * LONG_CADENCE_DAYS)
    frequency.flags.writeable = False
    return frequency


@functools.cache
def exposure_power() -> FloatArray:
    """Power transmission sinc²(f·t_exp) of averaging over one long cadence."""
    power = np.sinc(frequency_per_day() * LONG_CADENCE_DAYS) ** 2
    power.flags.writeable = False
    return power


@functools.cache
def _proxy_power(n_cadences: int) -> FloatArray:
    """Power transmission of the CDPP proxy: remove a Savitzky–Golay trend, average ``n_cadences``."""
    omega = 2 * np.pi * frequency_per_day() * LONG_CADENCE_DAYS
    coefficients = savgol_coeffs(101, 2)
    trend = coefficients[50] + 2 * sum(
        coefficients[50 + lag] * np.cos(lag * omega) for lag in range(1, 51)
    )
    average = np.sinc(omega * n_cadences / (2 * np.pi)) / np.sinc(omega / (2 * np.pi))
    power = (1.0 - trend) ** 2 * average**2
    power.flags.writeable = False
    return np.asarray(power)


def proxy_cdpp_ppm(psd_ppm2_day: FloatArray, n_cadences: int) -> float:
    """Expected value of lightkurve's CDPP proxy for noise of this spectrum.

    That is the standard deviation of an ``n_cadences`` running mean after a 101-cadence quadratic
    Savitzky–Golay filter (``lightkurve.LightCurve.estimate_cdpp``, after Gilliland et al. 2011).
    """
    step = frequency_per_day()[1]
    return float(np.sqrt((psd_ppm2_day * _proxy_power(n_cadences)).sum() * step))


def white_psd(sigma_ppm: float) -> FloatArray:
    """Spectrum of uncorrelated noise with standard deviation ``sigma_ppm`` per cadence."""
    return np.full(frequency_per_day().size, sigma_ppm**2 * 2 * LONG_CADENCE_DAYS)


def noise_from_psd(rng: np.random.Generator, psd_ppm2_day: FloatArray) -> FloatArray:
    """Gaussian noise with the given one-sided spectrum, ppm, shape ``(N_SLOTS,)``, zero mean."""
    n_frequencies = psd_ppm2_day.size
    draws = rng.standard_normal(2 * n_frequencies)
    spectrum = np.sqrt(psd_ppm2_day * (N_FFT / (4 * LONG_CADENCE_DAYS))) * (
        draws[:n_frequencies] + 1j * draws[n_frequencies:]
    )
    spectrum[0] = 0.0
    return np.asarray(irfft(spectrum, n=N_FFT, workers=1)[:N_SLOTS])
