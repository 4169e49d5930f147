"""The taskset of small tasks: an endless, lazy, reproducible stream, and what each task asks for."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import verifiers.v1 as vf
from conftest import REPOSITORY
from pydantic import ValidationError
from verifiers.v1.utils.loaders import load_taskset, task_type

from transitbench import mini
from transitbench.cage import MINI_LIMITS
from transitbench.errors import TransitBenchError
from transitbench.home import private_dir
from transitbench.mini import POOL_DEV_DIVISOR, PUBLIC_KEY
from transitbench.sets import StarSet, write_set
from transitbench.simset import StarRecipe, make_star
from transitbench.truth import truth_text
from transitbench_env.boxkit import WORKDIR
from transitbench_env.mini import POOL, SUFFIX, MiniConfig, MiniData, MiniTask, MiniTaskset

ONE_OF_EACH = {
    part: dict.fromkeys(("planet", "eb", "false_alarm", "quiet"), 1)
    for part in ("labelled", "hidden")
}


def taskset(**knobs) -> MiniTaskset:
    return load_taskset(MiniConfig(id="transitbench-mini", **knobs))


def first(n: int = 1, **knobs) -> list[MiniTask]:
    return list(itertools.islice(taskset(**knobs), n))


@pytest.fixture
def no_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a star was made")

    monkeypatch.setattr(mini, "make_star", refuse)
    monkeypatch.setattr(StarSet, "light_curve", refuse)


@pytest.fixture
def one_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mini, "N_STARS", ONE_OF_EACH)


def test_it_is_found_by_its_id() -> None:
    assert vf.taskset_config_type("transitbench-mini") is MiniConfig
    assert task_type("transitbench-mini") is MiniTask
    assert MiniTask.data_type() is MiniData
    assert type(taskset()) is MiniTaskset


def test_a_thousand_train_tasks_are_listed_without_a_star(no_stars) -> None:
    tasks = first(1000)
    assert [task.data.number for task in tasks] == list(range(1000))
    assert [task.data.idx for task in tasks] == list(range(1000))
    assert len({task.key for task in tasks}) == len({task.hash for task in tasks}) == 1000
    with pytest.raises(AssertionError, match="a star was made"):
        tasks[0].labelled()


def test_the_refusal_to_make_stars_is_one(no_stars) -> None:
    with pytest.raises(AssertionError, match="a star was made"):
        first(split="dev")[0].hidden()


def test_only_train_never_ends() -> None:
    train, dev = taskset(split="train"), taskset(split="dev")
    assert (train.INFINITE, train.bounded) == (True, False)
    assert (dev.INFINITE, dev.bounded) == (False, True)
    assert train.take(3).bounded
    assert taskset().config.split == "train"
    assert [task.data.number for task in dev] == list(range(32))
    with pytest.raises(ValueError, match="infinite"):
        train.shuffle()


def test_splits_and_kinds_of_stars_have_keys_of_their_own() -> None:
    kinds = [
        {"split": split, "stars": stars}
        for split in ("train", "dev")
        for stars in ("sim", "kepler")
    ]
    keys = {task.key for knobs in kinds for task in first(8, **knobs)}
    assert len(keys) == 4 * 8


@pytest.mark.parametrize("knobs", [{"split": "test"}, {"stars": "tess"}, {"number": 3}])
def test_unknown_knobs_are_refused(knobs) -> None:
    with pytest.raises(ValidationError):
        MiniConfig(id="transitbench-mini", **knobs)


IDENTITIES = """
import itertools, json
from transitbench_env.boxkit import WORKDIR
from transitbench_env.mini import MiniConfig, MiniTaskset
for split in ("train", "dev"):
    tasks = itertools.islice(MiniTaskset(MiniConfig(id="transitbench-mini", split=split)), 32)
    print(json.dumps([[task.key, task.hash, task.data.id, task.data.name] for task in tasks]))
"""


def test_another_process_lists_the_same_tasks() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IDENTITIES],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    here = [
        [[task.key, task.hash, task.data.id, task.data.name] for task in first(32, split=split)]
        for split in ("train", "dev")
    ]
    assert [json.loads(line) for line in done.stdout.splitlines()] == here


@pytest.mark.parametrize("split", ["train", "dev"])
def test_data_survive_the_wire(split) -> None:
    task = first(5, split=split)[-1]
    wire = json.loads(json.dumps(task.data.model_dump(mode="json")))
    rebuilt = MiniTask(MiniData.model_validate(wire), task.config)
    assert rebuilt.data == task.data
    assert (rebuilt.key, rebuilt.hash) == (task.key, task.hash)


def test_what_a_task_asks_for() -> None:
    (task,) = first()
    data = task.data
    assert (data.id, data.split, data.number, data.stars) == ("train-0", "train", 0, "sim")
    assert (data.resources.cpu, data.resources.memory, data.resources.gpu) == (2, 4, None)
    assert data.timeout.agent == 3600
    for stage in (data.timeout.setup, data.timeout.finalize, data.timeout.scoring):
        assert stage is not None
        assert stage >= 600
    # All hidden stars at their limit, on one core.
    assert data.timeout.scoring >= 16 * MINI_LIMITS.wall_s
    assert data.network.allow == []
    assert data.network.network_restricted
    assert data.scoring.mode == "isolated"
    assert data.scoring.network.allow == []
    assert data.scoring.retries.max_retries == 2
    assert [(each.source, each.required) for each in data.artifacts] == [
        (f"{WORKDIR}/solution", False)
    ]
    assert data.workdir == WORKDIR == "/workspace"
    assert task.NEEDS_CONTAINER
    assert task.limits.wall_s == 20
    assert task.budget.shell_limit_s == 75
    assert task.runtime_env() == {}


def test_no_task_carries_a_star_or_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSITBENCH_SECRET", "canary-of-the-evaluator")
    (task,) = first(split="dev")
    wire = task.data.model_dump_json()
    assert "canary" not in wire
    for drawn in mini.simulated_stars("dev", 0, "hidden", b"canary-of-the-evaluator"):
        assert drawn.star not in wire


def test_stars_of_a_task_are_those_of_its_number_and_split() -> None:
    task = first(3, split="dev")[-1]
    hidden_stars = mini.simulated_stars("dev", 2, "hidden", None)
    (hidden,) = task.hidden()
    assert hidden.suffix == SUFFIX
    assert {star: read() for star, read in hidden.files.items()} == mini.star_files(hidden_stars)
    assert truth_text(hidden.stars.truth) == truth_text(mini.truth_of(hidden_stars))
    assert hidden.stars.name == "mini-dev-2"
    labelled = task.labelled()
    labelled_stars = mini.simulated_stars("dev", 2, "labelled", None)
    assert {star: read() for star, read in labelled.files.items()} == mini.star_files(
        labelled_stars
    )
    assert truth_text(labelled.truth) == truth_text(mini.truth_of(labelled_stars))
    assert (len(labelled.files), len(hidden.files)) == (12, 16)


def test_a_wrong_secret_gives_other_stars(one_of_each, monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = first(split="dev")
    seen: list[set[object]] = []
    for secret in ("the right one", "the wrong one", ""):
        monkeypatch.setenv("TRANSITBENCH_SECRET", secret)
        (hidden,) = task.hidden()
        labelled = task.labelled()
        files = {**labelled.files, **hidden.files}
        seen.append({*files, *(read() for read in files.values()), hidden.stars.digest})
    assert all(len(each) == 2 * 8 + 1 for each in seen)
    assert len(set.union(*seen)) == 3 * 17


def test_a_missing_pool_is_named_before_a_box_is_started() -> None:
    (task,) = first(stars="kepler")
    with pytest.raises(TransitBenchError, match="TB-E001") as refusal:
        task.runtime_env()
    assert str(private_dir() / POOL) in str(refusal.value)
    assert "TRANSITBENCH_DATA" in refusal.value.hint


def write_pool(path: Path, n_of_each: int) -> StarSet:
    recipes = [
        StarRecipe("pool", number * n_of_each + i, host, mes)
        for number, (host, mes) in enumerate(
            [("quiet", (0.5,)), ("eb", ()), ("false_alarm", ()), ("quiet", ())]
        )
        for i in range(n_of_each)
    ]
    stars = (make_star(recipe, PUBLIC_KEY) for recipe in recipes)
    return write_set(path, "a pool", "kepler", {}, stars)


def test_tasks_of_a_pool(one_of_each) -> None:
    pool = write_pool(private_dir() / POOL, 2 * POOL_DEV_DIVISOR)
    truths = set(map(repr, pool.truth.values()))
    (task,) = first(split="dev", stars="kepler")
    assert task.runtime_env() == {}
    (hidden,) = task.hidden()
    labelled = task.labelled()
    assert len(hidden.files) == len(labelled.files) == 4
    assert {truth.kind for truth in hidden.stars.truth.values()} == set(ONE_OF_EACH["hidden"])
    assert {*map(repr, (hidden.stars.truth | labelled.truth).values())} <= truths
    for files in (hidden.files, labelled.files):
        assert not files.keys() & set(pool.stars)
    assert not {read() for read in hidden.files.values()} & {
        read() for read in labelled.files.values()
    }
    assert "The stars are Kepler's" in task.data.prompt_text
    assert "simulated" not in task.data.prompt_text
