"""``workspace/run_dev.py``: what an agent sees of the grading, with no more of the package than a box has."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, white_noise_star

from transitbench.sets import star_id
from transitbench.truth import Planet, StarTruth, write_truth
from transitbench_env.boxkit import DEV_MODULES

PLANET = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0)
KINDS = ("planet", "planet", "eb", "quiet")


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A workspace as an agent's box has it: stars, truth, solution, run_dev.py, part of the library."""
    (tmp_path / "stars").mkdir()
    truth = {}
    for index, kind in enumerate(KINDS):
        star = star_id(b"key", str(index))
        white_noise_star(index).to_npz(tmp_path / "stars" / f"{star}.npz")
        truth[star] = StarTruth(kind, (PLANET,) if kind == "planet" else ())
    write_truth(tmp_path / "truth.json", truth)
    shutil.copy(REPOSITORY / "workspace" / "run_dev.py", tmp_path)
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solution.py").write_text("print('7.5,910.0,3')\n")
    (tmp_path / "transitbench").mkdir()
    for module in DEV_MODULES:
        shutil.copy(REPOSITORY / "transitbench" / f"{module}.py", tmp_path / "transitbench")
    return tmp_path


def run_dev(box: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "run_dev.py", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=box, capture_output=True, text=True, check=False, env=environment
    )


def test_report_and_csv(box: Path) -> None:
    done = run_dev(box)
    assert done.returncode == 0, done.stderr
    assert "S = 0.000" in done.stdout
    assert "credit 2 − 2 false" in done.stdout
    assert "4/4 stars" in done.stderr
    assert "stars that lost points (2, worst first)" in done.stdout
    with (box / "dev_results.csv").open() as file:
        records = list(csv.DictReader(file))
    assert len(records) == 4
    assert {r["kind"] for r in records} == {"planet", "eb", "quiet"}
    assert all(r["status"] == "ok" and float(r["period_days"]) == 7.5 for r in records)


def test_one_kind_and_a_limit(box: Path) -> None:
    done = run_dev(box, "--kind", "planet", "--limit", 1)
    assert "S = 1.000" in done.stdout
    assert "1/1 stars" in done.stderr


def test_stops_before_the_shell_does(box: Path) -> None:
    limits = {"wall_s": 5.0, "processes": 32}
    (box / "box.json").write_text(json.dumps({"limits": limits, "shell_limit_s": 18.0}))
    (box / "solution" / "solution.py").write_text("import time; time.sleep(4)\n")
    done = run_dev(box, "--jobs", 1)
    assert done.returncode == 0, done.stderr
    assert "of 4 stars" in done.stdout
    assert "stopped after" in done.stdout


def test_broken_solution_is_shown_as_crashes(box: Path) -> None:
    (box / "solution" / "solution.py").write_text("raise SystemExit(5)\n")
    done = run_dev(box)
    assert done.returncode == 0
    assert "crash" in done.stdout


def test_missing_solution_names_its_code(box: Path) -> None:
    shutil.rmtree(box / "solution")
    done = run_dev(box)
    assert (done.returncode, "TB-E003" in done.stderr) == (2, True)
