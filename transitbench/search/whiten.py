"""Whitening by autoregressive prediction, exact at the beginning of each stretch of data."""

from __future__ import annotations

import math
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


def autocovariance(
    values: FloatArray, usable: BoolArray, max_lag: int, excluded: BoolArray | None = None
) -> FloatArray:
    """Autocovariance at lags 0…``max_lag``, shape ``(max_lag + 1,)``.

    The biased estimate with zeros for unusable values, which is positive definite whatever is missing:
    dividing by the number of usable pairs instead makes filters of strongly variable stars unstable.
    Excluded values, regular holes that would take a share of pairs that depends on the lag, are the
    exception; their share of pairs is divided out.
    """
    n_fft = 1 << int(values.size + max_lag).bit_length()

    def correlate(series: FloatArray) -> FloatArray:
        power = np.abs(np.fft.rfft(series, n_fft)) ** 2
        lags: FloatArray = np.fft.irfft(power, n_fft)[: max_lag + 1]
        return lags

    covariance: FloatArray = correlate(np.where(usable, values, 0.0)) / max(int(usable.sum()), 1)
    if excluded is None:
        return covariance
    pairs = np.rint(correlate((~excluded).astype(np.float64)))
    share = pairs / np.maximum(values.size - np.arange(max_lag + 1), 1)
    corrected: FloatArray = covariance * share[0] / np.maximum(share, 1.0 / values.size)
    return corrected


def fit_whitener(covariance: FloatArray, n_samples: int) -> Whitener:
    """Yule–Walker AR filter by Levinson–Durbin recursion, order chosen by Schwarz's criterion (BIC).

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
    errors = np.zeros((p_max + 1, p_max + 1))
    errors[:, 0] = 1.0
    variance = [float(r[0])]
    for order in range(1, p_max + 1):
        previous = errors[order - 1, :order]
        reflection = -float(np.dot(previous, r[order:0:-1])) / variance[-1]
        # With excluded values the sequence need not be positive definite; up to here it is, hence the
        # filters found so far are stable.
        if abs(reflection) >= 1.0:
            break
        errors[order, 1:order] = previous[1:] + reflection * previous[:0:-1]
        errors[order, order] = reflection
        variance.append(variance[-1] * (1.0 - reflection**2))
    criterion = n_samples * np.log(variance) + math.log(n_samples) * np.arange(len(variance))
    p = int(np.argmin(criterion))
    start = np.zeros((p, p))
    for k in range(p):
        start[k, : k + 1] = errors[k, k::-1] * np.sqrt(variance[p] / variance[k])
    return Whitener(errors[p, : p + 1].copy(), start)
