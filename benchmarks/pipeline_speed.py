"""Seconds per star of each shipped submission, beyond its imports and in all, as ratios.

Baselines: starting Python with numpy for the whole process, the starter for the search itself. Pin it to
one core (``taskset -c 0 python benchmarks/pipeline_speed.py``) and give it STAR.npz files, or it makes
one of white noise with a planet.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
SOLUTIONS = {
    "starter": ROOT / "workspace" / "solution",
    "empty": ROOT / "baselines" / "empty",
    "naive_v0": ROOT / "baselines" / "naive_v0",
    "astropy_bls": ROOT / "examples" / "astropy_bls",
    "tls": ROOT / "examples" / "tls",
}
REPEATS = 3
ONE_CORE = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)

PROBE = """
import contextlib, importlib, io, json, sys, time
sys.path.insert(0, ".")
with contextlib.redirect_stdout(io.StringIO()):
    start = time.perf_counter()
    solution = importlib.import_module("solution")
    imported = time.perf_counter()
    if hasattr(solution, "main"):
        solution.main(sys.argv[1])
    done = time.perf_counter()
print(json.dumps([imported - start, done - imported]))
"""


def process(arguments: list[str], directory: Path) -> tuple[float, str]:
    """Wall seconds and output of one fresh process with a home, and so compiler caches, of its own."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.defpath, "HOME": home, "NUMBA_CACHE_DIR": home, **ONE_CORE}
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return time.perf_counter() - start, done.stdout


def example_star(path: Path) -> None:
    rng = np.random.default_rng(1)
    n = 17_000
    when = 906.85 + 0.0214 * np.arange(n)
    flux = 30_000.0 * (1 + 2e-4 * rng.standard_normal(n) - 1.5e-3 * (when % 7.3 < 0.16))
    quarter = np.repeat(np.arange(10, 14, dtype=np.int8), n // 4)
    np.savez(path, time=when, flux=flux, quality=np.zeros(n, dtype=np.int32), quarter=quarter)


def main(star_files: list[Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        if not star_files:
            star_files = [Path(scratch) / "star.npz"]
            example_star(star_files[0])
        start_up = statistics.median(
            process(["-c", "import numpy"], ROOT)[0] for _ in range(REPEATS)
        )
        print(f"start of Python with numpy: {start_up:.2f} s (1x)")
        print("pipeline        imports s   beyond s  x starter   whole s  x start-up")
        starter_s = 0.0
        for name, directory in SOLUTIONS.items():
            imports_s, beyond_s, whole_s = [], [], []
            for star in star_files:
                for _ in range(REPEATS):
                    _, printed = process(["-c", PROBE, str(star.resolve())], directory)
                    imported, beyond = json.loads(printed)
                    imports_s.append(imported)
                    beyond_s.append(beyond)
                    whole_s.append(process(["solution.py", str(star.resolve())], directory)[0])
            middle = [statistics.median(values) for values in (imports_s, beyond_s, whole_s)]
            starter_s = starter_s or middle[1]
            print(
                f"{name:14s} {middle[0]:10.2f} {middle[1]:10.2f} {middle[1] / starter_s:10.2f}"
                f" {middle[2]:9.2f} {middle[2] / start_up:11.1f}"
            )


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
