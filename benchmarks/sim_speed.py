"""How fast stars are made, against the search that will be run on them.

Baseline: one ``astropy`` BLS search of the same star, 0.5–120 d, durations 2, 5 and 10 h. Periods are spaced
evenly in log P by dP/P = 1 × shortest duration / span (one duration of drift from the first to the last
transit): 24,000 periods.

Usage: ``python benchmarks/sim_speed.py [n_stars]``
"""

from __future__ import annotations

import sys
import time

import numpy as np

from transitbench.lightcurve import LightCurve
from transitbench.sim import simulate_star

BLS_DRIFT_DURATIONS = 1.0
BLS_DURATIONS_DAYS = (2 / 24, 5 / 24, 10 / 24)
BLS_PERIODS_DAYS = (0.5, 120.0)


def bls_seconds(curve: LightCurve) -> float:
    """CPU seconds of one box search, quarters normalised."""
    from astropy.timeseries import BoxLeastSquares

    flux = curve.flux.astype(np.float64)
    for quarter in np.unique(curve.quarter):
        flux[curve.quarter == quarter] /= np.nanmedian(flux[curve.quarter == quarter])
    good = curve.finite
    search = BoxLeastSquares(curve.time[good], flux[good])
    start = time.process_time()
    step = BLS_DRIFT_DURATIONS * BLS_DURATIONS_DAYS[0] / np.ptp(curve.time[good])
    n_periods = int(np.log(BLS_PERIODS_DAYS[1] / BLS_PERIODS_DAYS[0]) / step)
    search.power(np.geomspace(*BLS_PERIODS_DAYS, n_periods), BLS_DURATIONS_DAYS)
    return time.process_time() - start


def main() -> None:
    """Print stars per second per kind, and their ratio to the search."""
    n_stars = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    search_s = bls_seconds(simulate_star("quiet", np.random.default_rng(0)).light_curve)
    print(f"baseline: one BLS search {search_s:.2f} s of CPU")
    print(f"{'kind':<12} {'median ms':>9} {'p90 ms':>7} {'stars/s':>8} {'BLS / star':>10}")
    for kind in ("quiet", "eb", "false_alarm"):
        simulate_star(kind, np.random.default_rng(0))
        seconds = []
        for seed in range(n_stars):
            start = time.process_time()
            simulate_star(kind, np.random.default_rng(seed))
            seconds.append(time.process_time() - start)
        median, high = np.percentile(seconds, [50, 90])
        ratio = search_s / np.mean(seconds)
        print(
            f"{kind:<12} {1e3 * median:>9.1f} {1e3 * high:>7.1f} {1 / np.mean(seconds):>8.0f} {ratio:>10.0f}"
        )


if __name__ == "__main__":
    main()
