"""Robust smooth trend: penalised cubic B-splines with dips and spikes weighted down.

The penalty, not the knot spacing, sets the cut-off, so that a segment of any length loses variations
slower than :data:`CUTOFF_DAYS` and nothing else; a spline with free knots would follow a transit in a
short segment.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.search.grid import Segment

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

CUTOFF_DAYS = 12.0
"""Period at which the trend follows a sine with half its amplitude."""

MAX_GAP_CADENCES = 24
"""A trend runs across shorter gaps only: Earth-points and safe modes leave thermal steps behind."""

_KNOT_CADENCES = 40
_N_ITERATIONS = 4
_TUKEY_SIGMA = 4.685
_DIP_CADENCES = 13
_RIDGE = 1e-9


def robust_sigma(values: FloatArray) -> float:
    """1.4826 × the median absolute value: σ of a Gaussian about zero. Zero if ``values`` is empty."""
    return 1.4826 * float(np.median(np.abs(values))) if values.size else 0.0


def penalty_strength(cutoff_days: float) -> float:
    """λ of the second-difference penalty whose half-amplitude period is ``cutoff_days``.

    With m cadences per knot a P-spline (Eilers & Marx 1996) passes the share
    ``1 / (1 + (λ/m) (2 sin(π Δ/P))⁴)`` of a sine of period P, where Δ is the knot spacing.
    """
    knot_days = _KNOT_CADENCES * LONG_CADENCE_DAYS
    return _KNOT_CADENCES / float(2 * np.sin(np.pi * knot_days / cutoff_days)) ** 4


def _interval_basis() -> FloatArray:
    """The four cubic B-splines that are non-zero within a knot interval, shape ``(_KNOT_CADENCES, 4)``."""
    u = np.arange(_KNOT_CADENCES) / _KNOT_CADENCES
    v = 1.0 - u
    values = [v**3, 3 * u**3 - 6 * u**2 + 4, 3 * v**3 - 6 * v**2 + 4, u**3]
    return np.stack(values, axis=1) / 6.0


_BASIS = _interval_basis()
_PAIRS = [(a, b) for a in range(4) for b in range(a, 4)]
_BASIS_PRODUCTS = np.stack([_BASIS[:, a] * _BASIS[:, b] for a, b in _PAIRS], axis=1)


def _penalty_bands(n_coefficients: list[int], strength: float) -> FloatArray:
    """Upper bands (LAPACK layout, ``(4, n)``) of λ·D₂ᵀD₂ + ridge, block by block."""
    n = sum(n_coefficients)
    bands = np.zeros((4, n))
    bands[3] = _RIDGE
    start = 0
    for size in n_coefficients:
        rows = start + np.arange(size - 2)
        for i, left in enumerate((1.0, -2.0, 1.0)):
            for j, right in enumerate((1.0, -2.0, 1.0)):
                if j >= i:
                    bands[3 - (j - i), rows + j] += strength * left * right
        start += size
    return bands


def smooth_trend(
    flux: FloatArray, usable: BoolArray, segments: list[Segment], cutoff_days: float = CUTOFF_DAYS
) -> FloatArray:
    """Trend of the relative flux on the cadence grid.

    Iteratively reweighted least squares with Tukey's biweight on two scales, single cadences and
    running means of 6.4 h, so that neither outliers nor shallow long dips pull the trend.

    Parameters
    ----------
    flux
        Relative flux, shape ``(n_slots,)``.
    usable
        Slots that may constrain the trend, shape ``(n_slots,)``.
    segments
        Where the trend is defined and continuous; elsewhere it is 1.

    Returns
    -------
    FloatArray
        Shape ``(n_slots,)``.
    """
    n_intervals = [-(-(s.stop - s.start) // _KNOT_CADENCES) for s in segments]
    # Every segment is padded to whole knot intervals, so that sums over cadences are matrix products.
    slots = np.concatenate(
        [
            s.start + np.arange(n * _KNOT_CADENCES)
            for s, n in zip(segments, n_intervals, strict=True)
        ]
    )
    stop = np.repeat([s.stop for s in segments], np.multiply(n_intervals, _KNOT_CADENCES))
    inside = slots < stop
    slots = np.where(inside, slots, stop - 1)
    # Each segment has three coefficients more than intervals.
    interval = np.arange(sum(n_intervals))
    first = interval + 3 * np.repeat(np.arange(len(segments)), n_intervals)
    n = int(first[-1]) + 4
    penalty = _penalty_bands([count + 3 for count in n_intervals], penalty_strength(cutoff_days))

    base = (usable[slots] & inside).astype(np.float64)
    used = base > 0
    y = np.where(used, flux[slots] - 1.0, 0.0)
    kernel = np.ones(_DIP_CADENCES)
    n_averaged = np.maximum(np.convolve(base, kernel, "same"), 1.0)
    weight = base
    fit = np.zeros(slots.size)
    for _ in range(_N_ITERATIONS):
        by_interval = weight.reshape(-1, _KNOT_CADENCES)
        products = by_interval @ _BASIS_PRODUCTS
        projections = (weight * y).reshape(-1, _KNOT_CADENCES) @ _BASIS
        bands, right = penalty.copy(), np.zeros(n)
        for i, (a, b) in enumerate(_PAIRS):
            bands[3 - (b - a), first + b] += products[:, i]
        for a in range(4):
            right[first + a] += projections[:, a]
        coefficients = solveh_banded(bands, right, check_finite=False)
        fit = (coefficients[first[:, None] + np.arange(4)] @ _BASIS.T).ravel()
        residual = (y - fit) * base
        mean = np.convolve(residual, kernel, "same") / n_averaged
        z = np.zeros(slots.size)
        for series in (residual, mean):
            sigma = robust_sigma(series[used])
            if sigma > 0:
                z = np.maximum(z, np.abs(series) / (_TUKEY_SIGMA * sigma))
        weight = base * np.clip(1.0 - z**2, 0.0, None) ** 2
    trend = np.ones(flux.shape)
    trend[slots[inside]] += fit[inside]
    return trend
