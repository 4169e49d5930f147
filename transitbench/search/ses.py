"""Single-event statistics: correlation of a whitened template with the whitened light curve.

For a template s (a positive depth per cadence) of a dip of depth δ, ``N = s·C⁻¹·(−y)`` and
``D = s·C⁻¹·s``: N/D estimates δ, N/√D its significance, and 1/√D its uncertainty (Jenkins 2002,
ApJ 575, 493, eqs. 3–8, with an AR filter in place of the wavelet bank).
"""

from __future__ import annotations

import numpy as np

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.search.grid import FloatArray
from transitbench.search.noise import NoiseModel, whiten


def template_statistics(noise: NoiseModel, template: FloatArray) -> tuple[float, float]:
    """N and D of one template on the cadence grid, shape ``(n_slots,)``; D ≥ 0.

    The template passes through the same gap filling and whitening as the data, so N is unbiased
    whatever is missing.
    """
    shape = whiten(template, noise.grid.finite, noise.segments, noise.whiteners)
    weighted = shape * noise.inverse_variance
    return float(-np.sum(weighted * noise.whitened)), float(np.sum(weighted * shape))


def box_cadences(duration_hours: float) -> int:
    """Whole cadences of a box, at least one."""
    return max(1, round(duration_hours / 24.0 / LONG_CADENCE_DAYS))


def single_event_statistics(
    noise: NoiseModel, duration_hours: float
) -> tuple[FloatArray, FloatArray]:
    """N_d and D_d of a box of unit depth that is centred on each slot, both of shape ``(n_slots,)``.

    The box of :func:`box_cadences` cadences covers the slots from ``t − n//2`` on. It sees the
    stationary filter only: near the beginning of a segment, where the exact whitening differs, the
    result is approximate. D is zero where a box meets no data.
    """
    n_box = box_cadences(duration_hours)
    n_slots = noise.grid.flux.size
    numerator, denominator = np.zeros(n_slots), np.zeros(n_slots)
    weighted = noise.whitened * noise.inverse_variance
    for segment in noise.segments:
        part = slice(segment.start, segment.stop)
        shape = np.convolve(np.ones(n_box), noise.whiteners[segment.quarter].kernel)
        # Element i of a full correlation is the box that begins at slot start + i − (len(shape) − 1).
        begin = segment.start - (shape.size - 1) + n_box // 2
        lead = max(0, -begin)
        n_left = np.correlate(weighted[part], shape, "full")[lead:]
        d_left = np.correlate(noise.inverse_variance[part], shape**2, "full")[lead:]
        begin += lead
        count = min(n_left.size, n_slots - begin)
        numerator[begin : begin + count] -= n_left[:count]
        denominator[begin : begin + count] += d_left[:count]
    return numerator, np.maximum(denominator, 0.0)
