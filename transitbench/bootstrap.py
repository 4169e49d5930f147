"""Stratified bootstrap over stars, exact and equal on every platform.

Stars are resampled with replacement within each stratum (kind), because a set's composition is fixed
by design and not part of the uncertainty. What is summed are integer statistics per star, so no sum
depends on its order. The draws are raw PCG64 words mapped to star numbers by integer arithmetic:
NumPy promises the raw stream of a bit generator for good, but not the streams of ``Generator``'s
methods (NEP 19), and committed intervals must outlive a NumPy release.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import FloatArray, IntArray

N_RESAMPLES = 10_000
BOOTSTRAP_SEED = 20_090_307
"""Kepler's launch date; the stratum's number is appended to it."""

TAIL = N_RESAMPLES * 25 // 1000
"""Resamples beyond either end of the 95 % interval, the interval's end included."""

_DRAWS_AT_ONCE = 100_000
"""Bounds memory; the draws do not depend on it."""


def resampled_sums(statistics: NDArray[np.integer], stratum: IntArray) -> IntArray:
    """Sum the stars' statistics over each of :data:`N_RESAMPLES` resamples.

    Parameters
    ----------
    statistics
        Integers per star, shape ``(n_stars, k)``; the order of stars within a stratum matters.
    stratum
        Non-negative number of each star's stratum, shape ``(n_stars,)``.

    Returns
    -------
    Sums of shape ``(N_RESAMPLES, k)``. Each stratum keeps its number of stars in every resample. The
    draw for the j-th star of resample i in a stratum of n stars is ``(w · n) >> 32`` with w the upper
    32 bits of word ``i·n + j`` of ``PCG64([BOOTSTRAP_SEED, stratum])``, which is uniform to n/2³².
    """
    sums = np.zeros((N_RESAMPLES, statistics.shape[1]), dtype=np.int64)
    for number in np.unique(stratum).tolist():
        # Products of float64 integers this small are exact whatever the order BLAS adds them in.
        of_stratum = statistics[stratum == number].astype(np.float64)
        n = len(of_stratum)
        words = np.random.PCG64([BOOTSTRAP_SEED, number])
        size = max(1, _DRAWS_AT_ONCE // n)
        for start in range(0, N_RESAMPLES, size):
            rows = min(size, N_RESAMPLES - start)
            raw = words.random_raw(rows * n).reshape(rows, n)
            drawn = (((raw >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
            cell = drawn + np.arange(rows)[:, None] * n
            times_drawn = np.bincount(cell.ravel(), minlength=rows * n).reshape(rows, n)
            sums[start : start + rows] += (times_drawn @ of_stratum).astype(np.int64)
    return sums


def interval_95(values: FloatArray) -> tuple[float, float]:
    """95 % percentile interval: the :data:`TAIL`-th smallest and largest of the resampled values.

    Order statistics, not interpolated ones: the ends are values that occurred.
    """
    ordered = np.sort(values)
    return float(ordered[TAIL - 1]), float(ordered[-TAIL])
