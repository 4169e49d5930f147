"""Starter: one box-fitting least-squares search per star, no vetting.

    python solution.py STAR.npz

Prints ``period_days,t0_days,score`` for what it takes for a planet, or nothing.
"""

import sys

import numpy as np
from astropy.timeseries import BoxLeastSquares
from scipy.ndimage import median_filter

MIN_PERIOD_DAYS, MAX_PERIOD_DAYS = 1.0, 40.0
DURATION_DAYS = 0.2
MEDIAN_WINDOW_CADENCES = 49  # one day
MIN_SNR = 12.0


def load(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time (BKJD), flux and quarter of the cadences that have a flux."""
    with np.load(path) as star:
        time, flux, quarter = star["time"], star["flux"].astype(float), star["quarter"]
    good = np.isfinite(time) & np.isfinite(flux)
    return time[good], flux[good], quarter[good]


def detrend(flux: np.ndarray, quarter: np.ndarray) -> np.ndarray:
    """Divide each quarter by its running median: quarters differ in level, stars vary."""
    flat = np.empty_like(flux)
    for q in np.unique(quarter):
        rows = quarter == q
        flat[rows] = flux[rows] / median_filter(flux[rows], MEDIAN_WINDOW_CADENCES, mode="nearest")
    # Cosmic rays only ever add light.
    sigma = 1.4826 * np.median(np.abs(flat - 1))
    return np.minimum(flat, 1 + 3 * sigma)


def period_grid(span_days: float) -> np.ndarray:
    """Periods so dense that a box drifts by at most its own duration over the whole span."""
    step = DURATION_DAYS / span_days
    n = int(np.log(MAX_PERIOD_DAYS / MIN_PERIOD_DAYS) / step)
    return np.geomspace(MIN_PERIOD_DAYS, MAX_PERIOD_DAYS, n)


def search(time: np.ndarray, flat: np.ndarray) -> tuple[float, float, float]:
    """Period, epoch and signal-to-noise ratio of the highest peak."""
    sigma = 1.4826 * np.median(np.abs(flat - 1))
    bls = BoxLeastSquares(time, flat, dy=sigma)
    periods = period_grid(time[-1] - time[0])
    result = bls.power(periods, DURATION_DAYS, objective="snr", oversample=4)
    best = int(np.argmax(result.depth_snr))
    return float(periods[best]), float(result.transit_time[best]), float(result.depth_snr[best])


def main() -> None:
    time, flux, quarter = load(sys.argv[1])
    if time.size < 1000:
        return
    flat = detrend(flux, quarter)
    if not np.ptp(flat) > 0:
        return
    period_days, t0_days, snr = search(time, flat)
    if snr > MIN_SNR:
        print(f"{period_days:.8f},{t0_days:.6f},{snr:.4f}")


main()
