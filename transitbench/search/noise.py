"""The noise model of one star: what is left after trend and whitening, and how uncertain it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve
from transitbench.search.detrend import MAX_GAP_CADENCES, robust_sigma, smooth_trend
from transitbench.search.grid import BoolArray, CadenceGrid, FloatArray, Segment, cadence_grid
from transitbench.search.whiten import MAX_ORDER, Whitener, autocovariance, fit_whitener

MAX_FILLED_CADENCES = 4
"""Gaps up to this length are interpolated; after longer ones whitening starts anew."""

OUTLIER_SIGMA = 5.0
"""Cadences further than this from the trend do not enter the autocovariance; the local σ is robust by itself."""

_BLOCK_CADENCES = 96
_BLOCK_SMOOTHING = np.array([1.0, 2.0, 3.0, 2.0, 1.0])
_SIGMA_FLOOR = 1e-9


@dataclass(frozen=True)
class NoiseModel:
    """Detrended, whitened light curve of one star on its cadence grid.

    Attributes
    ----------
    grid
        The cadence grid.
    residual
        Detrended relative flux − 1, shape ``(n_slots,)``; zero where missing.
    segments
        Stretches that are whitened independently of each other.
    whiteners
        Filter of each quarter.
    whitened
        Whitened residual in units of relative flux, shape ``(n_slots,)``; zero where missing.
    inverse_variance
        1/σ² of ``whitened`` in relative flux, shape ``(n_slots,)``; zero where missing.
    """

    grid: CadenceGrid
    residual: FloatArray
    segments: list[Segment]
    whiteners: dict[int, Whitener]
    whitened: FloatArray
    inverse_variance: FloatArray


def fill_short_gaps(values: FloatArray, finite: BoolArray) -> FloatArray:
    """Interpolate linearly over missing slots: a linear map of the finite values, fit for templates too."""
    if finite.all():
        return values
    slots = np.arange(values.size)
    return np.interp(slots, slots[finite], values[finite])


def whiten(
    values: FloatArray, finite: BoolArray, segments: list[Segment], whiteners: dict[int, Whitener]
) -> FloatArray:
    """Gap-fill and whiten a series or a template on the grid, shape ``(n_slots,)``; zero where missing."""
    result = np.zeros(values.shape)
    for segment in segments:
        part = slice(segment.start, segment.stop)
        if values[part].any():
            filled = fill_short_gaps(values[part], finite[part])
            result[part] = whiteners[segment.quarter](filled)
    return np.where(finite, result, 0.0)


def _local_sigma(whitened: FloatArray, usable: BoolArray, segment: slice) -> FloatArray:
    """Running robust σ of one quarter: MAD in blocks of two days, averaged over neighbours."""
    n = segment.stop - segment.start
    n_blocks = -(-n // _BLOCK_CADENCES)
    # Unusable cadences sort to the end of their block, so the median is found by counting.
    deviation = np.full(n_blocks * _BLOCK_CADENCES, np.inf)
    deviation[:n] = np.where(usable[segment], np.abs(whitened[segment]), np.inf)
    ranked = np.sort(deviation.reshape(n_blocks, _BLOCK_CADENCES), axis=1)
    weight = np.isfinite(ranked).sum(axis=1)
    block = np.arange(n_blocks)
    middle = ranked[block, weight // 2] + ranked[block, (weight - 1) // 2]
    variance = np.where(weight > 0, (0.5 * 1.4826 * middle) ** 2, 0.0)
    mass = np.convolve(weight, _BLOCK_SMOOTHING)[2:-2]
    smooth = np.convolve(variance * weight, _BLOCK_SMOOTHING)[2:-2] / np.maximum(mass, 1.0)
    empty = mass == 0
    if empty.any():
        overall = robust_sigma(whitened[segment][usable[segment]]) ** 2
        smooth = np.where(empty, overall, smooth)
    centres = (block + 0.5) * _BLOCK_CADENCES - 0.5
    sigma: FloatArray = np.sqrt(np.interp(np.arange(n), centres, smooth))
    return sigma


def noise_model(light_curve: LightCurve, exclude: BoolArray | None = None) -> NoiseModel:
    """Detrend and whiten a light curve, and measure its local noise.

    Parameters
    ----------
    light_curve
        Any star.
    exclude
        Rows to keep out of trend and noise estimates, shape ``(n_rows,)``, for instance the transits
        of a known ephemeris. They stay in the residual.

    Raises
    ------
    TransitBenchError
        TB-E016 if ``exclude`` leaves no cadence.
    """
    grid = cadence_grid(light_curve)
    usable = grid.finite.copy()
    excluded: BoolArray | None = None
    if exclude is not None:
        excluded = np.zeros_like(usable)
        excluded[grid.rows[exclude]] = True
        usable &= ~excluded
    if not usable.any():
        raise TransitBenchError(
            "TB-E016", "exclude covers every finite cadence", "exclude fewer cadences"
        )
    trend = smooth_trend(grid.flux, usable, grid.segments(MAX_GAP_CADENCES))
    residual = np.where(grid.finite, grid.flux - trend, 0.0)
    segments = grid.segments(MAX_FILLED_CADENCES)
    quarters = sorted({segment.quarter for segment in segments})
    spans = {
        quarter: slice(
            min(s.start for s in segments if s.quarter == quarter),
            max(s.stop for s in segments if s.quarter == quarter),
        )
        for quarter in quarters
    }
    whiteners: dict[int, Whitener] = {}
    for quarter, span in spans.items():
        sigma = robust_sigma(residual[span][usable[span]])
        typical = usable[span] & (np.abs(residual[span]) <= OUTLIER_SIGMA * sigma)
        covariance = autocovariance(
            residual[span],
            typical,
            MAX_ORDER,
            None if excluded is None else excluded[span],
        )
        whiteners[quarter] = fit_whitener(covariance, int(typical.sum()))
    whitened = whiten(residual, grid.finite, segments, whiteners)
    inverse_variance = np.zeros(residual.size)
    for span in spans.values():
        sigma_local = np.maximum(_local_sigma(whitened, usable, span), _SIGMA_FLOOR)
        inverse_variance[span] = np.where(grid.finite[span], sigma_local**-2, 0.0)
    return NoiseModel(grid, residual, segments, whiteners, whitened, inverse_variance)
