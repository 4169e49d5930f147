"""A first planet search to start from: flatten, fold, report the strongest dip.

Usage: ``python solution.py STAR.npz`` prints one candidate a line as ``period_days,t0_days,score``,
or nothing where nothing is convincing (a wrong candidate costs as much as a planet earns).
"""

from __future__ import annotations

import sys

import numpy as np
from astropy.timeseries import BoxLeastSquares

MIN_CADENCES = 1000
WINDOW_CADENCES = 49
"""Running median of one day: short enough to follow the rotation of spotted stars."""
PERIODS_DAYS = np.geomspace(3.0, 45.0, 5000)
"""From eight transits in a year to a hundred; the step keeps the search below a second."""
DURATIONS_DAYS = (0.1, 0.2)
MIN_SDE = 14.0
"""Far above the noise: what stands out by less is more often a fault of the star or the spacecraft."""
MAX_DEPTH = 0.005
"""Half of a Jupiter before a Sun: most that is deeper is a pair of stars."""


def running_median(flux: np.ndarray, width: int) -> np.ndarray:
    padded = np.pad(flux, width // 2, mode="edge")
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=-1)


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    """Times (BKJD) and relative flux, flattened, of the cadences without any quality flag."""
    with np.load(path, allow_pickle=False) as star:
        time, flux = star["time"], star["flux"].astype(float)
        quality, quarter = star["quality"], star["quarter"]
    good = np.isfinite(time) & np.isfinite(flux) & (quality == 0)
    time, flux, quarter = time[good], flux[good], quarter[good]
    # The spacecraft turns between quarters: each has its own pixels and its own flux level.
    for q in np.unique(quarter):
        flux[quarter == q] /= np.median(flux[quarter == q])
    return time, flux - running_median(flux, WINDOW_CADENCES)


def scatter(flux: np.ndarray) -> float:
    """Standard deviation by way of the median absolute deviation, which transits hardly change."""
    return float(1.4826 * np.median(np.abs(flux - np.median(flux))))


def search(time: np.ndarray, flux: np.ndarray) -> tuple[float, float, float, float]:
    """Period (days), mid-transit time (BKJD), detection efficiency and depth of the best box.

    The signal detection efficiency is the height of the peak over the mean of the spectrum, in
    standard deviations of the spectrum (Kovács, Zucker & Mazeh 2002, eq. 6).
    """
    spectrum = BoxLeastSquares(time, flux, scatter(flux)).power(
        PERIODS_DAYS, DURATIONS_DAYS, oversample=3
    )
    height = np.where(np.isfinite(spectrum.power), spectrum.power, 0.0)
    best = int(np.argmax(height))
    efficiency = (height[best] - height.mean()) / height.std() if height.std() > 0 else 0.0
    return spectrum.period[best], spectrum.transit_time[best], efficiency, spectrum.depth[best]


def main(path: str) -> None:
    time, flux = load(path)
    if time.size < MIN_CADENCES or scatter(flux) == 0:
        return
    period, mid_transit, efficiency, depth = search(time, flux)
    if efficiency > MIN_SDE and depth < MAX_DEPTH:
        print(f"{period:.6f},{mid_transit:.5f},{efficiency:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
