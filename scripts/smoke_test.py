"""Check an installation in a minute, without data, network or model.

    python scripts/smoke_test.py

1. The scorer on the public truth of sim-dev: gold is exactly 1, nothing is exactly 0.
2. The starter through the grading runner and its cage, on three synthetic stars.
3. The published results: rows scored again, every digest compared.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from transitbench.catalogue import open_set
from transitbench.errors import TransitBenchError

RESULTS = Path(__file__).resolve().parent.parent / "results"


def check_scorer() -> str:
    """Score the truth against itself, and silence."""
    from transitbench.score import score_rows

    star_set = open_set("sim-dev")
    times = star_set.finite_times()
    gold = {
        star: np.array([[p.period_days, p.t0_days, p.mes] for p in truth.planets])
        for star, truth in star_set.truth.items()
        if truth.planets
    }
    s_gold = score_rows(star_set.truth, times, gold).to_json()["S"]
    s_empty = score_rows(star_set.truth, times, {}).to_json()["S"]
    if (s_gold, s_empty) != (1.0, 0.0):
        raise AssertionError(
            f"expected S of 1 and 0 for gold and silence, got {s_gold} and {s_empty}"
        )
    return f"gold S = {s_gold:g}, silence S = {s_empty:g} on {len(star_set.stars)} stars of sim-dev"


def check_runner() -> str:
    """Run the starter in the cage on a planet, an eclipse and noise."""
    from transitbench.cage import SURVEY_LIMITS
    from transitbench.demo_stars import write_demo_stars
    from transitbench.match import match_star
    from transitbench.pipelines import shipped_path
    from transitbench.runner import run_stars, usable_cores

    with tempfile.TemporaryDirectory() as scratch:
        demo = write_demo_stars(Path(scratch))
        results = run_stars(
            shipped_path("workspace/solution"),
            {star.name: star.path for star in demo},
            Path(scratch) / "grade.jsonl",
            limits=SURVEY_LIMITS,
            cores=usable_cores(),
        )
        by_name = {result.star: result for result in results}
        failed = [f"{r.star}: {r.status}\n{r.stderr_tail}" for r in results if r.status != "ok"]
        if failed:
            raise AssertionError("the starter failed on " + "; ".join(failed))
        planet = demo[0]
        rows = np.array(by_name[planet.name].rows, dtype=float).reshape(-1, 3)
        match = match_star(planet.light_curve.finite_time_days, planet.planets, rows)
        if match.credit != 1.0:
            raise AssertionError(f"the starter missed the clear planet: it printed {rows.tolist()}")
        if by_name[demo[2].name].rows:
            raise AssertionError(f"the starter found {by_name[demo[2].name].rows} in pure noise")
    return "the starter ran in its cage on 3 stars, found the planet and kept silent on noise"


def check_published_results() -> str:
    """Score the published rows again."""
    from transitbench.published import check_published, read_published

    problems = check_published(RESULTS, ("sim-dev",))
    if problems:
        raise AssertionError("; ".join(problems))
    n_published = sum(entry["set"] == "sim-dev" for entry in read_published(RESULTS))
    return f"{n_published} published results on sim-dev hold"


CHECKS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("scorer", check_scorer),
    ("runner", check_runner),
    ("results", check_published_results),
)


def main() -> int:
    """Run every check; the exit code is 0 only if all of them pass."""
    passed = 0
    for number, (name, check) in enumerate(CHECKS, 1):
        try:
            print(f"{number}. {name}: ok, {check()}", flush=True)
            passed += 1
        except (AssertionError, TransitBenchError) as problem:
            print(f"{number}. {name}: FAILED, {problem}", flush=True)
    print(f"smoke test: {passed} of {len(CHECKS)} checks passed")
    return 0 if passed == len(CHECKS) else 1


if __name__ == "__main__":
    sys.exit(main())
