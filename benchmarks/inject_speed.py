"""Injections per second, and their cost against one plain batman evaluation of the same star.

Baseline: batman's own supersampled model (factor 7) over all cadences of Q10–13, model set-up included.
Run: ``python benchmarks/inject_speed.py [--stars N]``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import batman
import numpy as np

from transitbench.inject import inject_planets
from transitbench.lightcurve import LightCurve
from transitbench.mes import noise_model
from transitbench.transit import EXPOSURE_DAYS

QUARTERS = {10: (39049, 43621), 11: (43667, 48420), 12: (48473, 52516), 13: (52551, 56971)}


def host(rng: np.random.Generator) -> LightCurve:
    """A solar-like star with white noise of 200 ppm, spots, and Kepler's kinds of gaps."""
    cadence = np.concatenate([np.arange(a, b + 1) for a, b in QUARTERS.values()])
    days = EXPOSURE_DAYS * (cadence - cadence[0])
    spots = 5e-4 * np.sin(2 * math.pi * days / rng.uniform(10, 25))
    flux = 2e4 * (1 + 2e-4 * rng.standard_normal(days.size) + spots)
    flux[::146] = np.nan
    for first, last in QUARTERS.values():
        for start in (first + (last - first) // 3, first + 2 * (last - first) // 3):
            flux[(cadence >= start) & (cadence < start + 45)] = np.nan
    return LightCurve(
        time=906.85 + days,
        flux=flux.astype(np.float32),
        flux_err=np.full(days.size, 4.0, dtype=np.float32),
        quality=np.zeros(days.size, dtype=np.int32),
        cadenceno=cadence.astype(np.int32),
        quarter=np.repeat([*QUARTERS], [b - a + 1 for a, b in QUARTERS.values()]).astype(np.int8),
    )


def plain_batman(curve: LightCurve) -> None:
    """Evaluate batman the plain way on every cadence."""
    params = batman.TransitParams()
    params.t0, params.per, params.rp, params.a, params.inc = 910.0, 10.0, 0.03, 19.5, 89.0
    params.ecc, params.w, params.limb_dark, params.u = 0.0, 90.0, "quadratic", [0.45, 0.2]
    model = batman.TransitModel(params, curve.time, supersample_factor=7, exp_time=EXPOSURE_DAYS)
    model.light_curve(params)


def median_ms(action: Callable[[int], object], n: int) -> float:
    """Median CPU time of ``action(i)`` in milliseconds, which other load on the machine disturbs least."""
    spent = []
    for i in range(n):
        start = time.process_time()
        action(i)
        spent.append(1e3 * (time.process_time() - start))
    return float(np.median(spent))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stars", type=int, default=40)
    n = parser.parse_args().stars
    rng = np.random.default_rng(0)
    hosts = [host(rng) for _ in range(n)]
    inject_planets(hosts[0], 1, np.random.default_rng(0))
    baseline = median_ms(lambda i: plain_batman(hosts[i]), n)
    rows = {
        "plain batman, all cadences": baseline,
        "noise_model": median_ms(lambda i: noise_model(hosts[i]), n),
        "inject_planets, 1 planet": median_ms(
            lambda i: inject_planets(hosts[i], 1, np.random.default_rng(i)), n
        ),
        "inject_planets, 3 planets": median_ms(
            lambda i: inject_planets(hosts[i], 3, np.random.default_rng(i)), n
        ),
    }
    print(f"{'median of ' + str(n) + ' stars':<30}{'ms':>8}{'per s':>8}{'× baseline':>12}")
    for name, ms in rows.items():
        print(f"{name:<30}{ms:>8.1f}{1e3 / ms:>8.1f}{ms / baseline:>12.2f}")


if __name__ == "__main__":
    main()
