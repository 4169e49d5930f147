"""A grading run that is killed and resumed ends like one that was left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import white_noise_star

from transitbench.cage import SURVEY_LIMITS
from transitbench.errors import TransitBenchError
from transitbench.grading import grade
from transitbench.runner import usable_cores
from transitbench.sets import StarSet, star_id, write_set
from transitbench.truth import Planet, StarTruth

PLANET = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0)
N_STARS = 14
TIMING = {"wall_s", "cpu_s", "max_rss_mb"}

SOLUTION = """
import sys, time, hashlib
digest = hashlib.sha256(open(sys.argv[1], "rb").read()).digest()
time.sleep(0.05 + 0.1 * digest[0] / 255)
if digest[1] < 160:
    print(f"7.5,910.0,{digest[2]}")
    print(f"{1 + digest[3] / 10},{900 + digest[4] / 10},{digest[5]}")
if digest[6] < 30:
    sys.exit(3)
"""


@pytest.fixture(scope="module")
def star_set(tmp_path_factory: pytest.TempPathFactory) -> StarSet:
    def stars():
        for index in range(N_STARS):
            truth = StarTruth("planet", (PLANET,)) if index % 2 else StarTruth("quiet")
            yield star_id(b"key", f"resume/{index}"), white_noise_star(index, n=2000), truth

    return write_set(tmp_path_factory.mktemp("sets") / "resume", "resume", "sim", {}, stars())


@pytest.fixture(scope="module")
def solution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("submission") / "sleepy"
    directory.mkdir()
    (directory / "solution.py").write_text(SOLUTION)
    return directory


def results_of(run: Path) -> tuple[bytes, bytes, list[dict]]:
    records = [json.loads(line) for line in (run / "grade.jsonl").read_text().splitlines()]
    untimed = [{k: v for k, v in r.items() if k not in TIMING} for r in records]
    return (run / "rows.csv").read_bytes(), (run / "score.json").read_bytes(), untimed


@pytest.fixture(scope="module")
def undisturbed(star_set: StarSet, solution: Path, tmp_path_factory: pytest.TempPathFactory):
    run = tmp_path_factory.mktemp("runs") / "undisturbed"
    grade("sleepy", solution, star_set, run, limits=SURVEY_LIMITS, cores=usable_cores())
    return results_of(run)


def grade_command(solution: Path, star_set: StarSet, out: Path) -> list[str]:
    arguments = ["grade", solution, "--set", star_set.path, "--out", out, "--resume"]
    return [sys.executable, "-m", "transitbench", *map(str, arguments)]


@pytest.mark.parametrize("n_done", [0, 1, 4, 9, N_STARS - 1])
def test_killed_and_resumed_run_ends_the_same(
    n_done, star_set, solution, undisturbed, tmp_path
) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        grade_command(solution, star_set, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    records = out / "grade.jsonl"
    give_up_s = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < give_up_s:
        done = records.read_bytes().count(b"\n") if records.exists() else -1
        if done >= n_done:
            break
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    finished = subprocess.run(
        grade_command(solution, star_set, out), capture_output=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert results_of(out) == undisturbed


def test_torn_last_line_is_run_again(star_set, solution, undisturbed, tmp_path) -> None:
    out = tmp_path / "run"
    arguments = {"limits": SURVEY_LIMITS, "cores": usable_cores()}
    grade("sleepy", solution, star_set, out, **arguments)
    lines = (out / "grade.jsonl").read_bytes().splitlines(keepends=True)
    (out / "grade.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:20])
    seen = []
    grade("sleepy", solution, star_set, out, resume=True, on_result=seen.append, **arguments)
    assert len(seen) == N_STARS - 5
    assert results_of(out) == undisturbed


def test_changed_submission_is_not_resumed(star_set, solution, tmp_path) -> None:
    arguments = {"limits": SURVEY_LIMITS, "cores": usable_cores()}
    grade("sleepy", solution, star_set, tmp_path / "run", **arguments)
    other = tmp_path / "other"
    other.mkdir()
    (other / "solution.py").write_text(SOLUTION + "\n")
    with pytest.raises(TransitBenchError, match="TB-E012"):
        grade("sleepy", other, star_set, tmp_path / "run", resume=True, **arguments)


def test_missing_star_file_is_no_status(star_set, solution, tmp_path) -> None:
    broken = tmp_path / "set"
    shutil.copytree(star_set.path, broken)
    (broken / "stars" / f"{star_set.stars[3]}.npz").unlink()
    arguments = {"limits": SURVEY_LIMITS, "cores": usable_cores()}
    with pytest.raises(TransitBenchError, match="TB-E010"):
        grade("sleepy", solution, StarSet(broken), tmp_path / "run", **arguments)
    assert not (tmp_path / "run" / "score.json").exists()


def test_score_counts_what_the_records_say(undisturbed) -> None:
    rows, score, records = undisturbed
    document = json.loads(score)
    n_rows = sum(len(r["rows"]) for r in records)
    assert rows.count(b"\n") == n_rows + 1
    assert document["credit"] + document["n_false"] <= n_rows
    assert document["statuses"]["ok"] == sum(r["status"] == "ok" for r in records)
    assert all(r["rows"] == [] for r in records if r["status"] != "ok")
    assert np.isfinite(document["S"])
