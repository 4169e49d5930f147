"""What the cage and the runner cost, against the bare ``python solution.py STAR``.

Runs a submission that imports numpy and prints a row on N stars, alternating bare and caged so that a
busy machine slows both, and prints the median of each, their difference, the ratio of whole runs against
as many bare processes side by side, and the time to take up a finished run again. The cage's steps all
wait for one core: on a busy machine their cost grows with the load (``chrt -f 50`` shows the bare cost).

    python benchmarks/runner_overhead.py [N]
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from transitbench.cage import FIXED_ENVIRONMENT, Limits
from transitbench.runner import run_stars, usable_cores

TARGET_MS = 50.0
SOLUTION = "import sys, numpy\nprint(f'{numpy.float64(7.0)},7,7')\n"


def bare_s(solution: Path, star: Path, home: Path, core: int) -> float:
    own_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    started = time.perf_counter()
    try:
        subprocess.run(
            [sys.executable, "solution.py", star],
            cwd=solution,
            env={**FIXED_ENVIRONMENT, "HOME": str(home)},
            stdout=subprocess.PIPE,
            check=True,
        )
        return time.perf_counter() - started
    finally:
        os.sched_setaffinity(0, own_cores)


def main(n_stars: int) -> None:
    cores = usable_cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        solution = folder / "solution"
        solution.mkdir()
        (solution / "solution.py").write_text(SOLUTION)
        stars = {f"s{i:04d}": folder / f"s{i:04d}.npz" for i in range(n_stars)}
        for path in stars.values():
            # As large as a star of 17,500 cadences.
            path.write_bytes(os.urandom(600_000))

        bare: list[float] = []
        marks: list[float] = []
        excluded = 0.0

        def compare(_: object) -> None:
            nonlocal excluded
            marks.append(time.perf_counter() - excluded)
            if len(bare) < n_stars:
                took = bare_s(solution, next(iter(stars.values())), folder, cores[0])
                bare.append(took)
                excluded += took

        def run_all(jobs: int, results: str, on_result: object = None) -> float:
            started = time.perf_counter()
            run_stars(
                solution,
                stars,
                folder / results,
                limits=Limits(),
                cores=cores[:jobs],
                on_result=on_result,  # type: ignore[arg-type]
            )
            return time.perf_counter() - started

        def run_share(core: int, n: int) -> None:
            for path in list(stars.values())[:n]:
                bare_s(solution, path, folder, core)

        bare_s(solution, next(iter(stars.values())), folder, cores[0])
        run_all(1, "alternating.jsonl", compare)
        caged = [later - earlier for earlier, later in itertools.pairwise(marks)]
        bare_ms, caged_ms = 1000 * statistics.median(bare), 1000 * statistics.median(caged)
        print(f"bare process      {bare_ms:8.1f} ms a star (median of {len(bare)}; the baseline)")
        print(f"caged, from one result to the next {caged_ms:.1f} ms (median of {len(caged)})")
        print(
            f"overhead          {caged_ms - bare_ms:8.1f} ms a star (target <= {TARGET_MS:.0f} ms)"
        )
        for jobs in sorted({1, min(2, len(cores))}):
            wall = run_all(jobs, f"jobs{jobs}.jsonl")
            started = time.perf_counter()
            with ThreadPoolExecutor(jobs) as pool:
                # Each thread takes its share, so that bare processes disturb each other as caged ones do.
                list(pool.map(run_share, cores[:jobs], [n_stars // jobs] * jobs))
            ideal = time.perf_counter() - started
            print(
                f"jobs={jobs}: {wall:.2f} s, {wall / ideal:.2f} x bare processes, {jobs} at a time "
                f"({ideal:.2f} s): {1000 * (wall - ideal) * jobs / n_stars:.1f} ms a star more"
            )
        again = run_all(1, "jobs1.jsonl")
        print(f"resuming a finished run of {n_stars} stars: {1000 * again:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
