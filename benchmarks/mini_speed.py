"""How fast the stars of a mini task are made: 12 labelled and 16 hidden ones, to finished files.

Usage: ``python benchmarks/mini_speed.py [n_tasks]``
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from sim_speed import bls_seconds

import transitbench.inject
import transitbench.sim
from transitbench.mini import simulated_stars, star_files


class Timed:
    """A function, and the processor time spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.cpu_s = 0.0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        start = time.process_time()
        try:
            return self.function(*arguments, **named)
        finally:
            self.cpu_s += time.process_time() - start


def main() -> None:
    """Print seconds a task, where they go, and the ratio to one search of one star."""
    n_tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    star = simulated_stars("dev", 0, "hidden", None)[0]
    search_s = bls_seconds(star.light_curve)
    print(f"baseline: one BLS search of one star {search_s:.2f} s of CPU")
    parts = {
        "simulation": Timed(transitbench.sim.simulate_star),
        "injection": Timed(transitbench.inject.inject_planets),
        "serialisation": Timed(star_files),
    }
    seconds: list[float] = []
    with (
        mock.patch("transitbench.sim.simulate_star", parts["simulation"]),
        mock.patch("transitbench.inject.inject_planets", parts["injection"]),
    ):
        for idx in range(n_tasks):
            start = time.process_time()
            parts["serialisation"](simulated_stars("train", idx, "labelled", None))
            parts["serialisation"](simulated_stars("train", idx, "hidden", None))
            seconds.append(time.process_time() - start)
    median, high = np.percentile(seconds, [50, 90])
    print(
        f"one task: median {median:.2f} s of CPU, p90 {high:.2f} s; "
        f"BLS search of one star / task {search_s / median:.1f}"
    )
    total = sum(seconds)
    shares = {name: part.cpu_s / total for name, part in parts.items()}
    shares["rest"] = 1 - sum(shares.values())
    print(", ".join(f"{name} {share:.0%}" for name, share in shares.items()))


if __name__ == "__main__":
    main()
