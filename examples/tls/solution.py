"""Transit Least Squares (Hippke & Heller 2019) as a submission.

Usage: ``python solution.py STAR.npz`` prints ``period_days,t0_days,score`` (score: TLS's SDE).

Every star is a fresh process without a compiler cache, so each pays for numba's compilation of TLS
anew; that, not the search, is most of the time here.
"""

from __future__ import annotations

import sys
import time as clock
import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter
from transitleastsquares import transit_mask, transitleastsquares

FloatArray = NDArray[np.float64]

CADENCE_DAYS = 0.0204336
IMPULSIVE_OUTLIER = 2048
"""The one quality bit worth dropping: PDCSAP flux is NaN already where Kepler distrusts a cadence."""
MIN_CADENCES = 1000
GAP_DAYS = 0.5
DETREND_DAYS = 2.0
SPIKE_SIGMA = 4.0

PERIOD_RANGE_DAYS = (0.6, 122.0)
MIN_TRANSITS = 3
MIN_SDE = 9.0
"""TLS's table puts the false-alarm probability of white noise at 10⁻⁴ here."""
MAX_ODD_EVEN_SIGMA = 3.0
MAX_DEPTH = 0.03
MAX_ROWS = 3
BUDGET_SECONDS = 40.0
"""No further search that would end beyond: a process stopped at its limit loses all its rows."""
COARSE = {
    "R_star_min": 0.5,
    "R_star_max": 2.0,
    "M_star_min": 0.5,
    "M_star_max": 1.5,
    "oversampling_factor": 1,
    "duration_grid_step": 1.2,
    "T0_fit_margin": 0.05,
}
"""Dwarfs and subgiants, and steps wider than TLS's own: half the time for a few per cent of the SDE."""


def load(path: str) -> tuple[FloatArray, FloatArray]:
    """Times (BKJD) and flux over a running median, of the usable cadences."""
    with np.load(path, allow_pickle=False) as star:
        time, flux = star["time"], star["flux"].astype(np.float64)
        quality, quarter = star["quality"], star["quarter"]
    usable = np.isfinite(time) & np.isfinite(flux) & (quality & IMPULSIVE_OUTLIER == 0)
    time, flux, quarter = time[usable], flux[usable], quarter[usable]
    # Quarters have levels of their own, and a gap may hide a jump: the median bridges neither.
    new_piece = (np.diff(quarter) != 0) | (np.diff(time) > GAP_DAYS)
    width = round(DETREND_DAYS / CADENCE_DAYS) | 1
    relative = np.full(time.size, np.nan)
    for piece in np.split(np.arange(time.size), np.flatnonzero(new_piece) + 1):
        if piece.size > width // 2:
            trend = median_filter(flux[piece], width, mode="nearest")
            relative[piece] = flux[piece] / np.where(trend > 0, trend, np.nan)
    kept = np.isfinite(relative) & (relative > 0.0)
    kept &= relative < 1.0 + SPIKE_SIGMA * noise_of(relative)
    return time[kept], relative[kept]


def noise_of(flux: FloatArray) -> float:
    """Standard deviation from the median absolute deviation of the finite values."""
    flux = flux[np.isfinite(flux)]
    return float(1.4826 * np.median(np.abs(flux - np.median(flux)))) if flux.size else 0.0


def main(path: str) -> None:
    started = clock.monotonic()
    # It warns of the toy light curve that it compiles on, and of deep binaries' mean flux.
    warnings.filterwarnings("ignore", module="transitleastsquares")
    time, flux = load(path)
    took_seconds = 0.0
    for _ in range(MAX_ROWS):
        noise = noise_of(flux)
        if time.size < MIN_CADENCES or noise == 0.0:
            return
        began = clock.monotonic()
        if began - started + took_seconds > BUDGET_SECONDS:
            return
        found = transitleastsquares(time, flux, np.full(time.size, noise), verbose=False).power(
            period_min=PERIOD_RANGE_DAYS[0],
            period_max=PERIOD_RANGE_DAYS[1],
            n_transits_min=MIN_TRANSITS,
            use_threads=1,
            show_progress_bar=False,
            **COARSE,
        )
        took_seconds = clock.monotonic() - began
        if (
            not found.SDE >= MIN_SDE
            or found.distinct_transit_count < MIN_TRANSITS
            or found.odd_even_mismatch > MAX_ODD_EVEN_SIGMA
            or 1.0 - found.depth > MAX_DEPTH
        ):
            return
        print(f"{found.period:.6f},{found.T0:.5f},{found.SDE:.2f}")
        outside = ~transit_mask(time, found.period, 2.0 * found.duration, found.T0)
        time, flux = time[outside], flux[outside]


if __name__ == "__main__":
    main(sys.argv[1])
