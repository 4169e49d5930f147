"""A grading box that is lost half-way: the next attempt takes up where it ended, and nobody gets a zero."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import scripted_model
from boxes import DyingBox
from sandbox import needs_sandbox
from sessions import RememberedBox, alive, author, play

pytestmark = [needs_sandbox, pytest.mark.slow]

TASKSET = {"id": "transitbench-mini", "split": "dev"}
N_STARS = 16
# Slow enough for a grader that looks twice a second to see it at work.
SOLUTION = """\
import hashlib, sys, time
with open(sys.argv[1], "rb") as file:
    digest = hashlib.sha256(file.read()).digest()
time.sleep(0.5)
if digest[0] % 2:
    print(f"{1 + digest[1] / 10},{900 + digest[2] / 100},{digest[3]}")
"""


@pytest.fixture(autouse=True)
def agent_of_one_solution(monkeypatch: pytest.MonkeyPatch, harness_cache_dir: Path) -> None:
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(harness_cache_dir))
    monkeypatch.setitem(scripted_model.SCRIPTS, "scripted/fixed", author({"solution.py": SOLUTION}))


def graded(monkeypatch, tmp_path: Path, lives: int, **agent):
    """A session whose first grading boxes are lost; its trace and its run directory."""
    data = tmp_path / f"data-{lives}"
    monkeypatch.setenv("TRANSITBENCH_DATA", str(data))
    monkeypatch.setattr(DyingBox, "lives", lives)
    monkeypatch.setattr(DyingBox, "kept", [])
    runtime = {"type": "custom", "import_path": "boxes.DyingBox"}
    trace = play("fixed", tmp_path / f"out-{lives}", TASKSET, {"runtime": runtime, **agent})
    assert len(DyingBox.kept) == lives
    assert alive(RememberedBox.first_processes) == []
    return trace, data / "runs" / trace.id


def test_a_lost_box_changes_no_byte_of_the_score(monkeypatch, tmp_path: Path) -> None:
    undisturbed, first = graded(monkeypatch, tmp_path, lives=0)
    disturbed, second = graded(monkeypatch, tmp_path, lives=1)
    assert 0 < DyingBox.kept[0] < N_STARS
    # The agent's, the one that was lost, and its successor.
    assert len(RememberedBox.first_processes) == 3
    assert not undisturbed.errors
    assert not disturbed.errors
    assert disturbed.reward == undisturbed.reward != 0
    assert disturbed.metrics == undisturbed.metrics
    for name in ("score.json", "mini/score.json", "mini/rows.csv", "mini/run.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    assert (first / "mini" / "rows.csv").read_text().count("\n") > 1
    stars = [
        sorted(json.loads(line)["star"] for line in (run / "grade.jsonl").read_text().splitlines())
        for run in (first, second)
    ]
    assert stars[0] == stars[1]
    assert len(set(stars[0])) == len(stars[0]) == N_STARS


def test_a_box_that_is_lost_every_time_gives_an_error_and_no_reward(
    monkeypatch, tmp_path: Path
) -> None:
    once_more = {"scoring": {"retries": {"max_retries": 1}}}
    trace, run = graded(monkeypatch, tmp_path, lives=2, **once_more)
    assert DyingBox.kept[0] < DyingBox.kept[1] < N_STARS
    assert len(RememberedBox.first_processes) == 3
    (error,) = trace.errors
    assert "TB-E007" in error.message
    assert f"{N_STARS - DyingBox.kept[1]} of {N_STARS} stars missing" in error.message
    assert trace.rewards == {}
    assert not any(name.startswith(("S_", "mini_")) for name in trace.metrics)
    records = [json.loads(line) for line in (run / "grade.jsonl").read_text().splitlines()]
    assert len(records) == DyingBox.kept[1]
    assert {record["status"] for record in records} == {"ok"}
    assert (run / "solution.tar.gz").is_file()
    assert not (run / "score.json").exists()
