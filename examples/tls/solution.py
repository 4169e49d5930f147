"""Transit least squares (Hippke & Heller 2019, A&A 623, A39) wrapped as a submission.

Needs the package ``transitleastsquares`` (``pip install 'transitbench[tls]'``). Its kernels are compiled
anew in every process, about 12 s of the 60 s a star has, so there is time for one search at
oversampling 1 and, if that finds something, a second one on what is left.
"""

import contextlib
import io
import sys
import time as clock
import warnings

import numpy as np
from scipy.ndimage import median_filter

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transitleastsquares import transit_mask, transitleastsquares

MIN_SDE = 9.0
MAX_CANDIDATES = 2
WINDOW_CADENCES = 121  # two and a half days
STOP_AFTER_S = 30.0


def flatten(flux, quarter):
    """Divide each quarter by its running median and cut upward outliers."""
    flat = np.empty_like(flux)
    for q in np.unique(quarter):
        rows = quarter == q
        flat[rows] = flux[rows] / median_filter(flux[rows], WINDOW_CADENCES, mode="nearest")
    return np.minimum(flat, 1 + 3 * 1.4826 * np.median(np.abs(flat - 1)))


def search(time, flat):
    model = transitleastsquares(time, flat, verbose=False)
    # It prints a progress bar to standard output, which is where rows go.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.power(
            period_min=0.6,
            period_max=min(121.0, (time[-1] - time[0]) / 3),
            n_transits_min=3,
            oversampling_factor=1,
            duration_grid_step=1.2,
            use_threads=1,
            show_progress_bar=False,
        )


def main():
    started = clock.monotonic()
    with np.load(sys.argv[1]) as star:
        time, flux, quarter = star["time"], star["flux"].astype(float), star["quarter"]
    good = np.isfinite(time) & np.isfinite(flux)
    if good.sum() < 1000 or np.ptp(flux[good]) == 0:
        return
    time, flat = time[good], flatten(flux[good], quarter[good])
    for _ in range(MAX_CANDIDATES):
        result = search(time, flat)
        if not np.isfinite(result.SDE) or result.SDE < MIN_SDE:
            return
        print(f"{result.period:.8f},{result.T0:.6f},{result.SDE:.4f}", flush=True)
        if clock.monotonic() - started > STOP_AFTER_S:
            return
        outside = ~transit_mask(time, result.period, 2 * result.duration, result.T0)
        time, flat = time[outside], flat[outside]


main()
