"""astropy's BoxLeastSquares as a submission: its period grid, its search, its vetting statistics.

Usage: ``python solution.py STAR.npz`` prints ``period_days,t0_days,score`` (score: depth over its error).

Follows https://docs.astropy.org/en/stable/timeseries/bls.html: ``autopower`` for the search and
``compute_stats`` for the tests that tell a planet from an eclipsing binary or a sine.
"""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
from astropy.timeseries import BoxLeastSquares
from numpy.typing import NDArray
from scipy.ndimage import median_filter

FloatArray = NDArray[np.float64]

CADENCE_DAYS = 0.0204336
IMPULSIVE_OUTLIER = 2048
"""The one quality bit worth dropping: PDCSAP flux is NaN already where Kepler distrusts a cadence."""
MIN_CADENCES = 1000
GAP_DAYS = 0.5
DETREND_DAYS = 2.0
SPIKE_SIGMA = 4.0

OCTAVES_DAYS = 0.5 * 2.0 ** np.arange(9)
"""Edges of the period ranges; the last is cut to three transits in the data."""
MIN_TRANSITS = 3
DRIFT = 2.0
"""That drift, in shortest durations; the best period of each octave is refined afterwards."""
MIN_SNR = 9.0
MAX_ROWS = 3
MAX_ODD_EVEN_SIGMA = 3.0
MIN_ODD_EVEN_SHARE = 0.05
"""Half-hour cadences cut the edges of a box at random, so deep transits differ by a per cent or so."""
MAX_SECONDARY_SIGMA = 5.0
MAX_DEPTH = 0.03


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
    kept = np.isfinite(relative) & (relative < 1.0 + SPIKE_SIGMA * noise_of(relative))
    return time[kept], relative[kept]


def noise_of(flux: FloatArray) -> float:
    """Standard deviation from the median absolute deviation of the finite values."""
    flux = flux[np.isfinite(flux)]
    return float(1.4826 * np.median(np.abs(flux - np.median(flux)))) if flux.size else 0.0


def durations_days(shortest_period_days: float) -> FloatArray:
    """0.7 and 1.2 times the longest transit of a Sun-like star, 13 h · (P / 1 yr)^(1/3)."""
    central = 13.0 / 24.0 * (shortest_period_days / 365.25) ** (1 / 3)
    return central * np.array([0.7, 1.2])


def strongest(model: BoxLeastSquares, span_days: float) -> tuple[float, float, float, float]:
    """Period, duration, mid-transit time (days) and SNR of the best box over all octaves."""
    best = (0.0, 0.0, 0.0, 0.0)
    for shortest, longest in pairwise(OCTAVES_DAYS):
        longest = min(longest, span_days / MIN_TRANSITS)
        if longest <= shortest:
            break
        durations = durations_days(shortest)
        # autopower's default steps are fine enough for a period as long as the data; at period P they
        # may be longer by span / P for the same drift of the last transit against the first.
        found = model.autopower(
            durations,
            objective="snr",
            oversample=4,
            minimum_period=shortest,
            maximum_period=longest,
            frequency_factor=DRIFT * span_days / longest,
        )
        peak = int(np.argmax(np.where(np.isfinite(found.power), found.power, -np.inf)))
        step = DRIFT * found.period[peak] * durations[0] / span_days
        fine = found.period[peak] + np.linspace(-step, step, 41)
        found = model.power(fine, durations, objective="snr", oversample=10)
        peak = int(np.argmax(found.power))
        if found.depth_snr[peak] > best[3]:
            best = (
                float(found.period[peak]),
                float(found.duration[peak]),
                float(found.transit_time[peak]),
                float(found.depth_snr[peak]),
            )
    return best


def like_a_planet(
    model: BoxLeastSquares, period: float, duration: float, mid_transit: float
) -> bool:
    """Whether odd and even depths agree, nothing eclipses half a period later, and no sine fits better."""
    stats = model.compute_stats(period, duration, mid_transit)
    depth, _ = stats["depth"]
    (odd, odd_error), (even, even_error) = stats["depth_odd"], stats["depth_even"]
    secondary, secondary_error = stats["depth_phased"]
    tolerance = max(
        MAX_ODD_EVEN_SIGMA * np.hypot(odd_error, even_error), MIN_ODD_EVEN_SHARE * depth
    )
    return bool(
        0.0 < depth < MAX_DEPTH
        and np.count_nonzero(stats["per_transit_count"]) >= MIN_TRANSITS
        and abs(odd - even) < tolerance
        and secondary < MAX_SECONDARY_SIGMA * secondary_error
        and stats["harmonic_delta_log_likelihood"] < 0.0
    )


def main(path: str) -> None:
    time, flux = load(path)
    for _ in range(MAX_ROWS):
        if time.size < MIN_CADENCES or noise_of(flux) == 0.0:
            return
        model = BoxLeastSquares(time, flux, noise_of(flux))
        period, duration, mid_transit, snr = strongest(model, time[-1] - time[0])
        if snr < MIN_SNR or not like_a_planet(model, period, duration, mid_transit):
            return
        print(f"{period:.6f},{mid_transit:.5f},{snr:.2f}")
        outside = ~model.transit_mask(time, period, 1.5 * duration, mid_transit)
        time, flux = time[outside], flux[outside]


if __name__ == "__main__":
    main(sys.argv[1])
