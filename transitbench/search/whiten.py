"""Whitening by autoregressive prediction, exact at the beginning of each stretch of data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MAX_ORDER = 48
_DIAGONAL_LOADING = 1e-6


@dataclass(frozen=True)
class Whitener:
    """Prediction-error filters of an AR(p) process.

    Attributes
    ----------
    kernel
        Prediction-error filter ``(1, −a₁, …, −a_p)``, shape ``(p + 1,)``.
    start
        Lower-triangular, shape ``(p, p)``: row k predicts sample k from the k before it, scaled so that
        its error has the variance of the full filter's. It is the inverse Cholesky factor of the
        process' covariance, hence the first p samples of a stretch are whitened exactly.
    """

    kernel: FloatArray
    start: FloatArray

    def __call__(self, values: FloatArray) -> FloatArray:
        """Whiten one gap-free stretch, shape ``(n,)``; white input variance is kept by ``kernel[0] = 1``."""
        whitened = np.convolve(values, self.kernel)[: values.size]
        n = min(self.start.shape[0], values.size)
        whitened[:n] = self.start[:n, :n] @ values[:n]
        return whitened


def autocovariance(values: FloatArray, usable: BoolArray, max_lag: int) -> FloatArray:
    """Biased autocovariance at lags 0…``max_lag``, unusable values counted as zero.

    The biased estimate with zeros is positive definite whatever is missing, so the filters are stable.
    """
    series = np.where(usable, values, 0.0)
    n_fft = 1 << int(series.size + max_lag).bit_length()
    power = np.abs(np.fft.rfft(series, n_fft)) ** 2
    return np.fft.irfft(power, n_fft)[: max_lag + 1] / max(int(usable.sum()), 1)


def fit_whitener(covariance: FloatArray, n_samples: int) -> Whitener:
    """Yule–Walker AR filter by Levinson–Durbin recursion, order chosen by Akaike's criterion.

    Parameters
    ----------
    covariance
        Autocovariance at lags 0…p_max, shape ``(p_max + 1,)``.
    n_samples
        Number of values it was estimated from; fewer allow fewer coefficients.
    """
    r = covariance.copy()
    if r[0] <= 0:
        return Whitener(np.ones(1), np.zeros((0, 0)))
    r[0] *= 1.0 + _DIAGONAL_LOADING
    p_max = min(r.size - 1, n_samples // 20)
    errors = [np.ones(1)]
    variance = [float(r[0])]
    for order in range(1, p_max + 1):
        previous = errors[-1]
        reflection = -float(np.dot(previous, r[order:0:-1])) / variance[-1]
        extended = np.append(previous, 0.0)
        errors.append(extended + reflection * extended[::-1])
        variance.append(variance[-1] * (1.0 - reflection**2))
    criterion = n_samples * np.log(variance) + 2.0 * np.arange(p_max + 1)
    p = int(np.argmin(criterion))
    start = np.zeros((p, p))
    for k in range(p):
        start[k, : k + 1] = errors[k][::-1] * np.sqrt(variance[p] / variance[k])
    return Whitener(errors[p], start)
