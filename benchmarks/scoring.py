"""Time of scoring 1,000 stars x 3 rows, with and without the bootstrap, against the slow reference.

    python benchmarks/scoring.py

One core. Baseline: `tests/slow_reference.py` on the same rows (pure Python loops; its bootstrap is not
run, at 10,000 resamples it takes minutes). Two sets of rows: *typical*, one row per planet near its
ephemeris and the rest anywhere; *costly*, every row of a planet star on a planet's period or an alias of
it, so that no row is decided by the period test alone.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import importlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from transitbench.ephemeris import LONG_CADENCE_DAYS, FloatArray
from transitbench.score import score_rows, star_outcomes
from transitbench.truth import KINDS, Planet, StarTruth

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

N_STARS = 1_000
N_REPEATS = 7
N_SLOW_STARS = 40
KIND_SHARES = (0.45, 0.20, 0.25, 0.10)
SPAN_DAYS = (906.85, 1273.06)


def make_stars(
    rng: np.random.Generator, is_costly: bool
) -> tuple[dict[str, StarTruth], dict[str, FloatArray], dict[str, FloatArray]]:
    """A set of the benchmark's composition: truth, finite times, three rows a star."""
    grid = np.arange(*SPAN_DAYS, LONG_CADENCE_DAYS)
    kinds = rng.permutation(np.repeat(KINDS, (np.array(KIND_SHARES) * N_STARS).astype(int)))
    truth: dict[str, StarTruth] = {}
    times: dict[str, FloatArray] = {}
    rows: dict[str, FloatArray] = {}
    for i, kind in enumerate(kinds.tolist()):
        star = f"s{i:04d}"
        times[star] = grid[rng.random(grid.size) > 0.06]
        periods = np.exp(rng.uniform(np.log(0.6), np.log(120), 3))
        t0 = SPAN_DAYS[0] + rng.uniform(0, periods)
        of_planets = zip(periods.tolist(), t0.tolist(), strict=True)
        planets = [Planet(p, t, 4.0, 500.0, 0.02, 10.0, 0.3, 5, 10.0) for p, t in of_planets]
        n_planets = int(rng.choice([1, 2, 3], p=[0.82, 0.15, 0.03])) if kind == "planet" else 0
        truth[star] = StarTruth(kind, tuple(planets[:n_planets]))
        row_periods, row_t0 = periods * (1 + 1e-5), t0
        if kind == "planet" and is_costly:
            of_row = rng.integers(0, n_planets, 3)
            row_periods = row_periods[of_row] * rng.choice([1.0, 0.5, 2.0, 1 / 3], 3)
            row_t0 = t0[of_row]
        rows[star] = np.stack([row_periods, row_t0, rng.random(3)], axis=1)
    return truth, times, rows


def median_s(run: Callable[[], object]) -> float:
    """Median wall time of a call in seconds."""
    walls = []
    for _ in range(N_REPEATS):
        start = time.perf_counter()
        run()
        walls.append(time.perf_counter() - start)
    return statistics.median(walls)


def report(name: str, is_costly: bool) -> None:
    """Print the times of one set of rows, after checking that both ways agree on it."""
    truth, times, rows = make_stars(np.random.default_rng(7), is_costly)
    matching_s = median_s(lambda: star_outcomes(truth, times, rows))
    full_s = median_s(lambda: score_rows(truth, times, rows))
    some = {star: truth[star] for star in list(truth)[:: N_STARS // N_SLOW_STARS]}
    some_rows = {star: rows[star] for star in some}
    slow_totals = importlib.import_module("slow_reference").slow_totals
    start = time.perf_counter()
    slow = slow_totals(some, times, some_rows)
    slow_s = (time.perf_counter() - start) * N_STARS / len(some)
    fast = score_rows(some, times, some_rows)
    if any(getattr(fast, name) != value for name, value in slow.items()):
        raise SystemExit(f"{name}: the slow reference gives {slow}, not what score_rows gives")
    print(f"{name} rows, S of {len(some)} stars {fast.S}")
    print(f"  slow reference (from {len(some)} stars)  {slow_s:8.3f} s     1x")
    print(f"  matching and outcomes            {matching_s:8.3f} s  {slow_s / matching_s:6.0f}x")
    print(f"  with 10,000 bootstrap resamples  {full_s:8.3f} s  {slow_s / full_s:6.0f}x")


if __name__ == "__main__":
    print(f"{N_STARS} stars x 3 rows, median of {N_REPEATS}")
    report("typical", is_costly=False)
    report("costly", is_costly=True)
