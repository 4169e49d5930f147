"""The three survey tasks: what each is graded on, and what a machine says that lacks their stars."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import verifiers.v1 as vf
from boxes import NOTES
from commands import validate
from conftest import white_noise_star
from pydantic import ValidationError
from sandbox import needs_sandbox
from sessions import RememberedBox, play
from verifiers.v1.utils.loaders import load_taskset, task_type

from transitbench.cage import SURVEY_LIMITS
from transitbench.catalogue import SETS
from transitbench.errors import TransitBenchError
from transitbench.score import score_rows
from transitbench.sets import StarSet, star_id, write_set
from transitbench.simset import SIM_SETS, Composition
from transitbench.truth import Planet, StarTruth, truth_text
from transitbench_env.boxkit import WORKDIR
from transitbench_env.survey import (
    SurveyConfig,
    SurveyData,
    SurveyTask,
    SurveyTaskset,
    metric_suffix,
)

TASKS = ("survey-r1", "survey-dev", "survey-sim")
PLANET = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0)


def tasks(**knobs) -> dict[str, SurveyTask]:
    taskset = load_taskset(SurveyConfig(id="transitbench-survey", **knobs))
    return {task.data.id: task for task in taskset}


def write_kepler_set(name: str, n_stars: int) -> StarSet:
    stars = (
        (
            star_id(name.encode(), str(i)),
            white_noise_star(i, n=300),
            StarTruth("planet", (PLANET,)) if i % 2 else StarTruth("quiet"),
        )
        for i in range(n_stars)
    )
    return write_set(SETS[name].path, name, "kepler", {}, stars)


def test_it_is_found_by_its_id() -> None:
    assert vf.taskset_config_type("transitbench-survey") is SurveyConfig
    assert task_type("transitbench-survey") is SurveyTask
    assert SurveyTask.data_type() is SurveyData
    taskset = load_taskset(SurveyConfig(id="transitbench-survey"))
    assert type(taskset) is SurveyTaskset
    assert (taskset.INFINITE, taskset.bounded) == (False, True)


def test_three_tasks_and_what_they_are_graded_on() -> None:
    listed = tasks()
    assert tuple(listed) == TASKS
    graded = {name: task.data.graded_sets for name, task in listed.items()}
    assert graded == {
        "survey-r1": ("A", "B", "dev"),
        "survey-dev": ("dev",),
        "survey-sim": ("sim-A",),
    }
    labelled = {name: task.data.labelled_set for name, task in listed.items()}
    assert labelled == {"survey-r1": "dev", "survey-dev": "dev", "survey-sim": "sim-dev"}
    # All stars of a real set; as many of a simulated one as a laptop can do.
    assert [listed[name].data.n_graded for name in TASKS] == [None, None, 200]
    assert len({task.key for task in listed.values()}) == 3


def test_knobs_are_those_of_the_simulated_task() -> None:
    chosen = tasks(graded_sets=("sim-B", "sim-A"), n_graded=None)
    assert chosen["survey-sim"].data.graded_sets == ("sim-B", "sim-A")
    assert chosen["survey-sim"].data.n_graded is None
    for name in ("survey-r1", "survey-dev"):
        assert chosen[name].data == tasks()[name].data
        assert chosen[name].key == tasks()[name].key
    assert chosen["survey-sim"].key != tasks()["survey-sim"].key


def test_an_unknown_graded_set_is_named() -> None:
    with pytest.raises(TransitBenchError, match="TB-E008") as refusal:
        tasks(graded_sets=("sim-A", "sim-Z"))
    assert "'sim-Z'" in str(refusal.value)
    for name in (*SIM_SETS, "A", "B", "dev"):
        assert name in refusal.value.hint


def test_an_unknown_knob_is_refused() -> None:
    with pytest.raises(ValidationError):
        SurveyConfig(id="transitbench-survey", graded_set="sim-A")


def test_what_a_task_asks_for() -> None:
    for task in tasks().values():
        data = task.data
        assert (data.resources.cpu, data.resources.memory) == (16, 32)
        assert data.timeout.agent == 4 * 3600
        assert data.network.allow == []
        assert data.network.network_restricted
        assert data.scoring.mode == "isolated"
        assert data.scoring.network.allow == []
        assert data.scoring.retries.max_retries == 2
        assert [(each.source, each.required) for each in data.artifacts] == [
            (f"{WORKDIR}/solution", False)
        ]
        assert task.NEEDS_CONTAINER
        assert task.limits.wall_s == 60
        assert task.budget.shell_limit_s == 940
        wire = json.loads(json.dumps(data.model_dump(mode="json")))
        rebuilt = SurveyTask(SurveyData.model_validate(wire), task.config)
        assert (rebuilt.data, rebuilt.key, rebuilt.hash) == (data, task.key, task.hash)


@pytest.mark.parametrize(
    ("name", "n_stars"), [("survey-r1", 2196), ("survey-dev", 196), ("survey-sim", 200)]
)
def test_scoring_has_time_for_all_stars_at_their_limit_on_two_cores(name, n_stars) -> None:
    assert tasks()[name].data.timeout.scoring >= n_stars * SURVEY_LIMITS.wall_s / 2


def test_without_their_stars_tasks_refuse_before_a_box_is_started() -> None:
    listed = tasks()
    with pytest.raises(TransitBenchError, match="TB-E001") as private:
        listed["survey-r1"].runtime_env()
    assert str(SETS["A"].path) in str(private.value)
    with pytest.raises(TransitBenchError, match="TB-E002") as public:
        listed["survey-dev"].runtime_env()
    assert str(SETS["dev"].path) in str(public.value)
    assert SETS["dev"].how_to_get in public.value.hint
    assert listed["survey-sim"].runtime_env() == {}


def test_one_private_set_is_not_enough() -> None:
    write_kepler_set("A", 3)
    with pytest.raises(TransitBenchError, match=r"TB-E001.*set B is private"):
        tasks()["survey-r1"].runtime_env()
    write_kepler_set("B", 3)
    with pytest.raises(TransitBenchError, match=r"TB-E002.*set dev"):
        tasks()["survey-r1"].runtime_env()


def test_with_all_sets_the_benchmark_is_graded_on_each() -> None:
    sets = {name: write_kepler_set(name, 3 + i) for i, name in enumerate(("A", "B", "dev"))}
    listed = tasks()
    task = listed["survey-r1"]
    assert task.runtime_env() == {}
    hidden = task.hidden()
    assert [each.suffix for each in hidden] == ["A", "B", "dev"]
    for each, star_set in zip(hidden, sets.values(), strict=True):
        assert {star: read() for star, read in each.files.items()} == {
            star: star_set.star_path(star).read_bytes() for star in star_set.stars
        }
        assert each.stars.digest == star_set.manifest.digest
        assert truth_text(each.stars.truth) == truth_text(star_set.truth)
    labelled = task.labelled()
    assert sorted(labelled.files) == list(sets["dev"].stars)
    assert truth_text(labelled.truth) == truth_text(sets["dev"].truth)
    (dev,) = listed["survey-dev"].hidden()
    assert dev.suffix == "dev"
    assert sorted(dev.files) == sorted(labelled.files)


def test_the_reward_is_the_score_on_the_first_set() -> None:
    numbers = {"S_A": 0.25, "S_B": 0.5, "S_dev": 0.75, "S_sim_B": -1.5, "S_sim_A": 1.0}
    rewards = {
        name: asyncio.run(task.score_on_hidden_stars(SimpleNamespace(metrics=numbers), None))
        for name, task in tasks(graded_sets=("sim-B", "sim-A")).items()
    }
    assert rewards == {"survey-r1": 0.25, "survey-dev": 0.75, "survey-sim": -1.5}


@pytest.mark.parametrize(
    ("set_name", "suffix"), [("A", "A"), ("sim-A", "sim_A"), ("sim-dev", "sim_dev")]
)
def test_metrics_are_named_after_their_set(set_name, suffix) -> None:
    assert metric_suffix(set_name) == suffix
    truth = {"s1": StarTruth("planet", (PLANET,)), "s2": StarTruth("eb")}
    numbers = score_rows(truth, {star: np.array([900.0, 1000.0]) for star in truth}, {}).metrics(
        suffix
    )
    named = {f"{name}_{suffix}" for name in ("S", "C", "F_per_100", "eb_as_planet")}
    assert named <= numbers.keys()
    assert all(name.endswith(f"_{suffix}") for name in numbers)


def test_a_simulated_set_is_the_evaluators_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sim-dev", "sim-A"):
        monkeypatch.setitem(SIM_SETS, name, Composition(planet=2, eb=1, false_alarm=1, quiet=1))
    seen = []
    for secret in ("", "the right one", "the wrong one"):
        monkeypatch.setenv("TRANSITBENCH_SECRET", secret)
        task = tasks(n_graded=3)["survey-sim"]
        (hidden,) = task.hidden()
        assert hidden.suffix == "sim_A"
        assert len(hidden.files) == 3
        seen.append({read() for read in hidden.files.values()})
        assert sorted(task.labelled().files) == list(StarSet(SETS["sim-dev"].path).stars)
    assert len(set.union(*seen)) == 9


@pytest.mark.slow
def test_validating_without_stars_starts_no_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(NOTES, str(notes))
    rows = validate(
        "transitbench-survey",
        *("--select.include.ids", json.dumps(["survey-r1", "survey-dev"])),
        out=tmp_path / "out",
        box="boxes.NotedBox",
    )
    errors = {row["name"]: row["error"] for row in rows}
    assert {row["reason"] for row in rows} == {"error"}
    assert {row["error_type"] for row in rows} == {"TransitBenchError"}
    assert errors["survey-r1"].count("TB-E001") == 2
    assert "point TRANSITBENCH_DATA at the evaluator's data" in errors["survey-r1"]
    assert errors["survey-dev"].count("TB-E002") == 2
    assert SETS["dev"].how_to_get in errors["survey-dev"]
    assert not notes.exists()


@needs_sandbox
@pytest.mark.slow
def test_a_task_with_its_stars_starts_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(NOTES, str(notes))
    (row,) = validate(
        *("transitbench-mini", "--taskset.split", "dev", "-n", "1", "--only-setup"),
        out=tmp_path / "out",
        box="boxes.NotedBox",
    )
    assert row["valid"] is True
    assert len(notes.read_text().splitlines()) == 1


def test_a_session_without_stars_starts_no_box_and_has_no_reward(tmp_path: Path) -> None:
    trace = play(
        "nothing",
        tmp_path,
        {"id": "transitbench-survey"},
        select={"include": {"ids": ["survey-r1"]}},
    )
    assert ["TB-E001" in error.message for error in trace.errors] == [True]
    assert trace.rewards == {}
    assert RememberedBox.first_processes == []
