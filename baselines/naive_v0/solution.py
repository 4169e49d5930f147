"""Box least squares over the full period range, without any vetting.

Usage: ``python solution.py STAR.npz`` prints ``period_days,t0_days,score`` (score: detection efficiency).

It believes whatever stands out of the noise, so eclipsing binaries, pulsators and chance alignments of
steps and dropouts all pass as planets: a search is half of a planet finder, vetting the other half.
"""

from __future__ import annotations

import sys

import numpy as np
from astropy.timeseries import BoxLeastSquares
from numpy.typing import NDArray
from scipy.ndimage import median_filter

FloatArray = NDArray[np.float64]

CADENCE_DAYS = 0.0204336
IMPULSIVE_OUTLIER = 2048
"""The one quality bit worth dropping: PDCSAP flux is NaN already where Kepler distrusts a cadence."""
MIN_CADENCES = 1000
DETREND_DAYS = 2.0
"""More than four times the longest trial duration: a shorter median follows the transits and eats them."""
GAP_DAYS = 0.5
SPIKE_SIGMA = 4.0
MIN_TRANSITS = 3
MIN_SDE = 7.0
MAX_DEPTH = 0.03
"""Three times a Jupiter before a Sun: the end of the search range, and the only question it asks."""

BLOCKS = (
    (0.5, 2.0, (2.0, 3.0)),
    (2.0, 8.0, (2.5, 4.5)),
    (8.0, 30.0, (4.0, 6.5)),
    (30.0, 122.0, (6.0, 10.5)),
)
"""Period from, to (days) and trial durations (hours), which grow as P^(1/3) around a Sun-like star."""
DRIFT = 1.5
"""Step of the trial period, as drift of the last transit against the first in shortest durations."""
OVERSAMPLE = 4


def load(path: str) -> tuple[FloatArray, FloatArray]:
    """Times (BKJD) and flux relative to a running median, of the usable cadences."""
    with np.load(path, allow_pickle=False) as star:
        time, flux = star["time"], star["flux"].astype(np.float64)
        quality, quarter = star["quality"], star["quarter"]
    usable = np.isfinite(time) & np.isfinite(flux) & (quality & IMPULSIVE_OUTLIER == 0)
    time, flux, quarter = time[usable], flux[usable], quarter[usable]
    # Quarters sit on different pixels at different levels, and a gap may hide a jump: none is bridged.
    new_piece = (np.diff(quarter) != 0) | (np.diff(time) > GAP_DAYS)
    pieces = np.split(np.arange(time.size), np.flatnonzero(new_piece) + 1)
    width = round(DETREND_DAYS / CADENCE_DAYS) | 1
    relative = np.full(time.size, np.nan)
    for piece in pieces:
        if piece.size > width // 2:
            trend = median_filter(flux[piece], width, mode="nearest")
            relative[piece] = flux[piece] / np.where(trend > 0, trend, np.nan) - 1.0
    kept = np.isfinite(relative)
    time, relative = time[kept], relative[kept]
    # Only upward spikes are clipped: downward ones may be what we look for.
    quiet = relative < SPIKE_SIGMA * noise_of(relative)
    return time[quiet], relative[quiet]


def noise_of(flux: FloatArray) -> float:
    """Standard deviation from the median absolute deviation, which transits and flares leave alone."""
    return float(1.4826 * np.median(np.abs(flux - np.median(flux)))) if flux.size else 0.0


def search(time: FloatArray, flux: FloatArray) -> tuple[float, float, float, float]:
    """Period (days), mid-transit time (BKJD), detection efficiency and depth of the best box.

    The signal detection efficiency (Kovács, Zucker & Mazeh 2002, eq. 6) is the height of a peak over
    its block's mean in standard deviations, which makes blocks with different noise comparable.
    """
    span = time[-1] - time[0]
    periodogram = BoxLeastSquares(time, flux, noise_of(flux))
    best = (0.0, 0.0, 0.0, 0.0)
    for shortest, longest, durations_hours in BLOCKS:
        longest = min(longest, span / MIN_TRANSITS)
        if longest <= shortest:
            break
        durations = np.array(durations_hours) / 24.0
        step = DRIFT * durations[0] / span
        periods = np.exp(np.arange(np.log(shortest), np.log(longest), step))
        spectrum = periodogram.power(periods, durations, oversample=OVERSAMPLE, objective="snr")
        height = np.where(np.isfinite(spectrum.power), spectrum.power, 0.0)
        peak = int(np.argmax(height))
        efficiency = float((height[peak] - height.mean()) / (height.std() or np.inf))
        if efficiency > best[2]:
            # The grid is too coarse for the last transits of a year to fall where the first predict.
            fine = periods[peak] * np.exp(step * np.linspace(-1.0, 1.0, 49))
            found = periodogram.power(fine, durations, oversample=OVERSAMPLE, objective="snr")
            top = int(np.argmax(found.power))
            best = (
                float(found.period[top]),
                float(found.transit_time[top]),
                efficiency,
                float(found.depth[top]),
            )
    return best


def main(path: str) -> None:
    time, flux = load(path)
    if time.size < MIN_CADENCES or noise_of(flux) == 0.0:
        return
    period, mid_transit, efficiency, depth = search(time, flux)
    if efficiency > MIN_SDE and depth < MAX_DEPTH:
        print(f"{period:.6f},{mid_transit:.5f},{efficiency:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
