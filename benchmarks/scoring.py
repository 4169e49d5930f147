"""Time of scoring 1,000 stars x 3 rows, with and without the bootstrap, against the slow reference.

    python benchmarks/scoring.py

One core. Baseline: `tests/slow_reference.py` on the same rows (pure Python loops; its bootstrap is not
run, at 10,000 resamples it takes minutes). Rows are the costly case: every row of a planet star sits
on the planet's period or on an alias of it, so no pair is decided by the period test alone.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from transitbench.ephemeris import LONG_CADENCE_DAYS, FloatArray
from transitbench.score import score_rows, star_outcomes
from transitbench.truth import Planet, StarTruth

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

N_STARS = 1_000
N_REPEATS = 7
N_SLOW_STARS = 40
SPAN_DAYS = (906.85, 1273.06)


def make_stars(
    rng: np.random.Generator,
) -> tuple[dict[str, StarTruth], dict[str, FloatArray], dict[str, FloatArray]]:
    """A set of the benchmark's composition: truth, finite times, three rows a star."""
    grid = np.arange(*SPAN_DAYS, LONG_CADENCE_DAYS)
    truth: dict[str, StarTruth] = {}
    times: dict[str, FloatArray] = {}
    rows: dict[str, FloatArray] = {}
    for i in range(N_STARS):
        star = f"s{i:04d}"
        share = i / N_STARS
        times[star] = grid[rng.random(grid.size) > 0.06]
        periods = np.exp(rng.uniform(np.log(0.5), np.log(120), 3))
        t0 = SPAN_DAYS[0] + rng.uniform(0, periods)
        if share < 0.45:
            n_planets = 1 if share < 0.37 else 2 if share < 0.4365 else 3
            planets = tuple(
                Planet(p, t, 4.0, 500.0, 0.02, 10.0, 0.3, 5, 10.0)
                for p, t in zip(periods[:n_planets].tolist(), t0[:n_planets].tolist(), strict=True)
            )
            truth[star] = StarTruth("planet", planets)
            of_planet = rng.integers(0, n_planets, 3)
            factor = rng.choice([1.0, 0.5, 2.0, 1 / 3], 3)
            period_days, t0_days = periods[of_planet] * factor, t0[of_planet]
        else:
            kind = "eb" if share < 0.65 else "false_alarm" if share < 0.9 else "quiet"
            truth[star] = StarTruth(
                "eb" if kind == "eb" else "false_alarm" if kind == "false_alarm" else "quiet"
            )
            period_days, t0_days = periods, t0
        rows[star] = np.stack([period_days, t0_days, rng.random(3)], axis=1)
    return truth, times, rows


def median_s(run: Callable[[], object], repeats: int = N_REPEATS) -> float:
    """Median wall time of a call in seconds."""
    walls = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        walls.append(time.perf_counter() - start)
    return statistics.median(walls)


def main() -> None:
    """Print the table."""
    from slow_reference import slow_totals

    truth, times, rows = make_stars(np.random.default_rng(7))
    matching_s = median_s(lambda: star_outcomes(truth, times, rows))
    full_s = median_s(lambda: score_rows(truth, times, rows))
    some = {star: truth[star] for star in list(truth)[:: N_STARS // N_SLOW_STARS]}
    some_rows = {star: rows[star] for star in some}
    slow_s = median_s(lambda: slow_totals(some, times, some_rows), 1) * N_STARS / len(some)
    print(f"{N_STARS} stars x 3 rows, median of {N_REPEATS}")
    print(f"slow reference (from {len(some)} stars)  {slow_s:9.3f} s     1x")
    print(
        f"matching and outcomes            {matching_s:9.3f} s  {slow_s / matching_s:6.0f}x faster"
    )
    print(f"with 10,000 bootstrap resamples  {full_s:9.3f} s  {slow_s / full_s:6.0f}x faster")


if __name__ == "__main__":
    main()
