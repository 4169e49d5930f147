"""Sessions of scripted agents, honest and not, from the model's first word to the reward.

The hidden stars are fewer than in a real mini task; the starter finds one of their two planets.
"""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from conftest import REPOSITORY
from sandbox import needs_sandbox
from scripted_model import DAEMON_MARK, REFUSED, all_output
from sessions import RememberedBox, play, processes_left

from transitbench import mini
from transitbench.cage import MINI_LIMITS
from transitbench.rows import read_rows_csv
from transitbench.runner import run_stars, usable_cores
from transitbench.submission import submission_digest

pytestmark = [needs_sandbox, pytest.mark.slow]

TASKSET = {"id": "transitbench-mini", "split": "dev"}
HIDDEN = {"planet": 2, "eb": 1, "false_alarm": 1, "quiet": 0}
STARTER_REWARD = 1 / 8
STARTER = submission_digest(REPOSITORY / "workspace" / "solution")
SECRETS = ("canary-of-the-host", "the-evaluators-secret")


@pytest.fixture(autouse=True)
def small_task(monkeypatch: pytest.MonkeyPatch, harness_cache_dir: Path) -> None:
    monkeypatch.setattr(mini, "N_STARS", {**mini.N_STARS, "hidden": HIDDEN})
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(harness_cache_dir))
    monkeypatch.setenv("OPENAI_API_KEY", SECRETS[0])


def run_directory(trace) -> Path:
    return Path(os.environ["TRANSITBENCH_DATA"], "runs", trace.id)


def assert_nothing_left() -> None:
    assert RememberedBox.namespaces
    assert processes_left(RememberedBox.namespaces) == []


def test_an_agent_that_does_nothing_gets_what_the_starter_gets(tmp_path: Path) -> None:
    trace = play("nothing", tmp_path, TASKSET)
    assert trace.reward == STARTER_REWARD
    assert trace.info["solution"]["digest"] == STARTER
    assert len(RememberedBox.namespaces) == 2
    assert_nothing_left()


@pytest.mark.parametrize("script", ["threshold", "naive"])
def test_honest_work_is_graded_as_transitbench_grades_it(script: str, tmp_path: Path) -> None:
    trace = play(script, tmp_path / "out", TASKSET)
    assert "S = " in all_output(trace.messages)
    assert trace.info["solution"]["status"] == "ok"
    assert trace.info["solution"]["digest"] != STARTER
    with tarfile.open(run_directory(trace) / "solution.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    solution = tmp_path / "solution"
    assert submission_digest(solution) == trace.info["solution"]["digest"]
    if script == "naive":
        assert submission_digest(REPOSITORY / "baselines" / "naive_v0") == submission_digest(
            solution
        )
    hidden = mini.simulated_stars("dev", 0, "hidden", None)
    stars = tmp_path / "stars"
    stars.mkdir()
    for star, content in mini.star_files(hidden).items():
        (stars / f"{star}.npz").write_bytes(content)
    run_stars(
        solution,
        {path.stem: path for path in stars.iterdir()},
        tmp_path / "grade.jsonl",
        limits=MINI_LIMITS,
        cores=usable_cores(),
    )
    kept = read_rows_csv(run_directory(trace) / "mini" / "rows.csv")
    here = {
        record["star"]: record["rows"]
        for record in map(json.loads, (tmp_path / "grade.jsonl").read_text().splitlines())
        if record["rows"]
    }
    assert {star: rows.tolist() for star, rows in kept.items()} == here


def test_turn_cap_ends_a_loop_and_what_is_there_is_graded(tmp_path: Path) -> None:
    trace = play("loop", tmp_path, TASKSET, {"max_turns": 3})
    assert trace.num_turns == 3
    assert trace.stop_condition == "max_turns"
    assert trace.reward == STARTER_REWARD


STATUS = {
    "symlink": "missing",
    "symlink_inside": "missing",
    "fifo": "missing",
    "fifo_inside": "missing",
    "delete": "missing",
    "delete_all": "missing",
    "fill_disk": "too_large",
}


@pytest.mark.parametrize(
    "script",
    [
        "network",
        "snoop",
        "fill_disk",
        "daemons",
        "plant",
        "symlink",
        "symlink_inside",
        "fifo",
        "fifo_inside",
        "delete",
        "delete_all",
        "huge_output",
        "bomb",
    ],
)
def test_misbehaviour_gains_nothing(script: str, tmp_path: Path) -> None:
    trace = play(script, tmp_path, TASKSET)
    seen = all_output(trace.messages)
    assert not trace.errors
    assert trace.reward <= STARTER_REWARD
    assert trace.info["solution"]["status"] == STATUS.get(script, "ok")
    # The scripts' own text is part of what they find of each other's command lines.
    assert REFUSED not in [line.strip() for line in seen.splitlines()]
    for mark in ("FOUND", "REACHED", *SECRETS, os.environ["TRANSITBENCH_DATA"]):
        assert mark not in seen
    assert_nothing_left()
    assert not [
        line
        for line in processes_left([str(Path("/proc/self/ns/pid").readlink())])
        if DAEMON_MARK in line
    ]


def test_an_agent_that_kills_its_own_harness_gets_no_reward(tmp_path: Path) -> None:
    trace = play("kill", tmp_path, TASKSET)
    assert [error.type for error in trace.errors] == ["HarnessError"]
    assert trace.rewards == {}
    assert_nothing_left()
