"""A plain, careful BLS search over all periods, reporting whatever it detects: no vetting at all."""

import sys

import numpy as np
from astropy.timeseries import BoxLeastSquares
from scipy.ndimage import median_filter

MEDIAN_WINDOW_CADENCES = 97  # two days
MIN_SNR = 7.1
GAP_DAYS = 0.75

# Period range and trial durations (days): short orbits make short transits.
BLOCKS = (
    (0.6, 3.0, (0.06, 0.12)),
    (3.0, 12.0, (0.1, 0.2)),
    (12.0, 40.0, (0.14, 0.3)),
    (40.0, 122.0, (0.2, 0.45)),
)
DRIFT = 1.0


def load(path: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Time (BKJD), flux and the number of the stretch without longer gaps, of cadences with a flux."""
    with np.load(path) as star:
        time, flux, quarter = star["time"], star["flux"].astype(float), star["quarter"]
    good = np.isfinite(time) & np.isfinite(flux)
    time, flux, quarter = time[good], flux[good], quarter[good]
    breaks = (np.diff(time) > GAP_DAYS) | (np.diff(quarter) != 0)
    return time, flux, np.concatenate([[0], np.cumsum(breaks)])


def detrend(flux: np.ndarray, stretch: np.ndarray) -> np.ndarray:
    """Divide each stretch by its running median, and cut upward outliers."""
    flat = np.empty_like(flux)
    for s in np.unique(stretch):
        rows = stretch == s
        flat[rows] = flux[rows] / median_filter(flux[rows], MEDIAN_WINDOW_CADENCES, mode="nearest")
    sigma = 1.4826 * np.median(np.abs(flat - 1))
    return np.minimum(flat, 1 + 4 * sigma)


def search(time: np.ndarray, flat: np.ndarray) -> tuple[float, float, float]:
    """Period, epoch and signal-to-noise ratio of the highest peak with at least three transits."""
    span_days = time[-1] - time[0]
    bls = BoxLeastSquares(time, flat, dy=1.4826 * np.median(np.abs(flat - 1)))
    best = (np.nan, np.nan, -np.inf)
    for shortest, longest, durations in BLOCKS:
        longest = min(longest, span_days / 3)
        if longest <= shortest:
            break
        n = int(np.log(longest / shortest) * span_days / (DRIFT * durations[0])) + 2
        periods = np.geomspace(shortest, longest, n)
        result = bls.power(periods, durations, objective="snr", oversample=4)
        i = int(np.argmax(result.depth_snr))
        if result.depth_snr[i] > best[2]:
            best = float(periods[i]), float(result.transit_time[i]), float(result.depth_snr[i])
    return best


def refine(time: np.ndarray, flat: np.ndarray, period_days: float) -> tuple[float, float, float]:
    """Search again around the peak on a ten times finer grid, so that distant transits line up."""
    span_days = time[-1] - time[0]
    width = 2 * 0.3 / span_days
    periods = np.linspace(period_days * (1 - width), period_days * (1 + width), 400)
    durations = [d for lo, hi, d in BLOCKS if lo <= period_days < hi or hi == BLOCKS[-1][1]][0]
    bls = BoxLeastSquares(time, flat, dy=1.4826 * np.median(np.abs(flat - 1)))
    result = bls.power(periods, durations, objective="snr", oversample=8)
    i = int(np.argmax(result.depth_snr))
    return float(periods[i]), float(result.transit_time[i]), float(result.depth_snr[i])


def main() -> None:
    time, flux, stretch = load(sys.argv[1])
    if time.size < 1000:
        return
    flat = detrend(flux, stretch)
    if not np.ptp(flat) > 0:
        return
    period_days, _, snr = search(time, flat)
    if snr > MIN_SNR:
        period_days, t0_days, snr = refine(time, flat, period_days)
        print(f"{period_days:.8f},{t0_days:.6f},{snr:.4f}")


main()
