"""One task, however it is run: through the framework's env server, in process, side by side, and by ourselves."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import scripted_model
import verifiers.v1 as vf
from sandbox import needs_sandbox
from scripted_model import serving
from sessions import RememberedBox, alive, author, configured, play, play_all
from verifiers.v1.serve import EnvClient, env_config_data, serve_env
from verifiers.v1.utils.loaders import load_taskset

from transitbench.cage import MINI_LIMITS
from transitbench.fingerprint import sha256_hex
from transitbench.grading import grade
from transitbench.mini import DrawnStar, simulated_stars, star_files, truth_of
from transitbench.pipelines import gold_files
from transitbench.runner import usable_cores
from transitbench.score import mini_reward
from transitbench.sets import write_set
from transitbench.submission import submission_digest

pytestmark = [needs_sandbox, pytest.mark.slow]

TASKSET = {"id": "transitbench-mini", "split": "dev"}
PLANETS_FOUND, FALSE_CANDIDATES = 5, 2
REWARD = (PLANETS_FOUND - FALSE_CANDIDATES) / 8


@pytest.fixture(scope="module")
def hidden() -> list[DrawnStar]:
    return simulated_stars("dev", 0, "hidden", None)


def solution_files(hidden: list[DrawnStar]) -> dict[str, str]:
    """A pipeline that knows five planets, and claims two that are not there."""
    truth, files = truth_of(hidden), star_files(hidden)
    gold = gold_files((files[star], truth[star]) for star in files)
    answers = json.loads(gold["answers.json"])
    with_planet = [star for star in files if truth[star].planets]
    without = [star for star in files if truth[star].kind == "eb"]
    for star in with_planet[PLANETS_FOUND:]:
        answers[sha256_hex(files[star])] = []
    for star in without[:FALSE_CANDIDATES]:
        answers[sha256_hex(files[star])] = [[3.21, 905.4, 9.0]]
    return {"solution.py": gold["solution.py"].decode(), "answers.json": json.dumps(answers)}


@pytest.fixture(autouse=True)
def agent_that_knows(
    hidden: list[DrawnStar], monkeypatch: pytest.MonkeyPatch, harness_cache_dir: Path
) -> None:
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(harness_cache_dir))
    script = author(solution_files(hidden))
    monkeypatch.setitem(scripted_model.SCRIPTS, "scripted/fixed", script)


def run_directory(trace_id: str) -> Path:
    return Path(os.environ["TRANSITBENCH_DATA"], "runs", trace_id)


@contextmanager
def env_server(config: dict[str, Any]) -> Iterator[str]:
    """The framework's server in a process of its own; its address."""
    context = multiprocessing.get_context("spawn")
    addresses = context.Queue()
    server = context.Process(
        target=serve_env,
        kwargs={
            "max_workers": 1,
            "address": "tcp://127.0.0.1:0",
            "address_queue": addresses,
            "config_data": config,
        },
    )
    server.start()
    try:
        yield addresses.get(timeout=60)
    finally:
        server.terminate()
        server.join(30)
        server.kill()
    assert server.exitcode == 0


def play_served(out: Path) -> vf.WireEpisode:
    async def run(address: str, config: Any) -> vf.WireEpisode:
        client = EnvClient(address)
        try:
            await client.wait_for_server_startup()
            (task,) = load_taskset(config.env.taskset).take(1)
            wire = task.data.model_dump(mode="json")
            async with asyncio.timeout(120):
                return await client.run(config.client, config.model, config.sampling, wire)
        finally:
            await client.close()

    with serving() as model:
        box = {"type": "custom", "import_path": "transitbench_env.localbox.LocalBox"}
        config = configured(model.base_url, "fixed", out, TASKSET, {"runtime": box})
        with env_server(env_config_data(config.env)) as address:
            return asyncio.run(run(address, config))


def test_the_env_server_gives_what_a_run_in_process_gives(tmp_path: Path) -> None:
    here = play("fixed", tmp_path / "here", TASKSET)
    episode = play_served(tmp_path / "served")
    (served,) = episode.traces
    assert not here.errors
    assert not episode.errors
    assert not served.errors
    assert served.id != here.id
    assert served.reward == here.reward == REWARD
    ours = {name for name in here.metrics if name.endswith("_mini") or name == "mini_reward"}
    assert {"S_mini", "C_mini", "mini_reward"} <= ours
    for name in (*ours, "solution_ok", "left_out"):
        assert served.metrics[name] == here.metrics[name], name
    assert served.task.key == here.task.key == "mini/sim/dev/0"
    assert served.info["solution"] == here.info["solution"]
    for name in ("score.json", "solution.tar.gz", "mini/run.json", "mini/rows.csv"):
        runs = [run_directory(trace.id) / name for trace in (here, served)]
        assert runs[0].read_bytes() == runs[1].read_bytes(), name


def test_rollouts_side_by_side_do_not_disturb_each_other(
    tmp_path: Path, hidden: list[DrawnStar]
) -> None:
    traces = play_all("fixed", tmp_path, TASKSET, num_rollouts=4, max_concurrent=4)
    assert [trace.errors for trace in traces] == [[]] * 4
    assert [trace.reward for trace in traces] == [REWARD] * 4
    assert len({trace.id for trace in traces}) == 4
    # Each has an agent's box and a grading box of its own.
    assert len(RememberedBox.first_processes) == 8
    assert alive(RememberedBox.first_processes) == []
    runs = [run_directory(trace.id) for trace in traces]
    facts = [json.loads((run / "mini" / "run.json").read_text()) for run in runs]
    assert len({each["set_digest"] for each in facts}) == 1
    for name in ("score.json", "solution.tar.gz", "mini/rows.csv", "mini/score.json"):
        assert len({(run / name).read_bytes() for run in runs}) == 1, name
    for run in runs:
        lines = (run / "grade.jsonl").read_text().splitlines()
        assert sorted(json.loads(line)["star"] for line in lines) == [d.star for d in hidden]


def test_the_reward_is_what_grading_the_archive_here_gives(
    tmp_path: Path, hidden: list[DrawnStar]
) -> None:
    trace = play("fixed", tmp_path / "out", TASKSET)
    run = run_directory(trace.id)
    with tarfile.open(run / "solution.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    solution = tmp_path / "solution"
    assert submission_digest(solution) == trace.info["solution"]["digest"]
    stars = write_set(
        tmp_path / "set",
        "mini-dev-0",
        "sim",
        {},
        ((drawn.star, drawn.light_curve, drawn.truth) for drawn in hidden),
    )
    graded = grade(
        "solution",
        solution,
        stars,
        tmp_path / "graded",
        limits=MINI_LIMITS,
        cores=usable_cores(),
    )
    assert mini_reward(graded.score.credit, graded.score.n_false) == trace.reward == REWARD
    assert (graded.score.credit, graded.score.n_false) == (PLANETS_FOUND, FALSE_CANDIDATES)
    for name in ("score.json", "rows.csv"):
        assert (graded.directory / name).read_bytes() == (run / "mini" / name).read_bytes(), name
    kept = json.loads((run / "mini" / "run.json").read_text())
    for name in ("set", "set_digest", "n_stars", "submission_digest", "limits", "sandbox"):
        assert graded.facts[name] == kept[name], name
