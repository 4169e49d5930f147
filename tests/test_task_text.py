"""TASK.md states what is enforced: every number in it is read back and compared with what enforces it."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY
from pydantic_config import cli
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.configs.cli.validate import ValidateConfig
from verifiers.v1.utils.loaders import load_taskset

from transitbench import match
from transitbench.cage import Limits
from transitbench.catalogue import SETS
from transitbench.inject import MIN_TRANSITS, PERIOD_RANGE_DAYS, mes_target
from transitbench.lightcurve import LightCurve
from transitbench.mini import N_STARS
from transitbench.pipelines import shipped_path
from transitbench.score import score_rows
from transitbench.simset import SIM_SETS
from transitbench.submission import MAX_BYTES, MAX_ENTRIES
from transitbench.truth import Planet, StarTruth
from transitbench_env.boxkit import WORKDIR
from transitbench_env.images import BOX_PACKAGES, BOX_REQUIREMENTS, load_images
from transitbench_env.mini import MiniConfig
from transitbench_env.survey import SurveyConfig
from transitbench_env.task import LabelledStars, PipelineTask

HIDDEN = {
    "mini": sum(N_STARS["hidden"].values()),
    "survey-r1": SETS["A"].n_stars + SETS["B"].n_stars,
    "survey-dev": None,
    "survey-sim": 200,
}
LABELLED = {
    "mini": sum(N_STARS["labelled"].values()),
    "survey-r1": SETS["dev"].n_stars,
    "survey-dev": SETS["dev"].n_stars,
    "survey-sim": SIM_SETS["sim-dev"].n_stars,
}
# The instrument's numbers, the names of products, and the worked example, which has a test of its own.
FIXED = (
    r"29\.4-minute",
    r"quarters 10–13",
    r"```.*?```",
    r"`[^`\n]*`",
    r"Example: .*?= 0\.417\.",
    r"at 1/3, 1/2, 2 or 3 times the period",
    r"earns ½",
    r"prints nothing has S = 0; one row on every star is far below 0\.",
    r"finite numbers with period > 0",
    r"costs 1 point",
    r": 1 point\.",
    r"most\nare 7–15",
)


def all_tasks() -> dict[str, PipelineTask]:
    survey = load_taskset(SurveyConfig(id="transitbench-survey"))
    mini = next(iter(load_taskset(MiniConfig(id="transitbench-mini"))))
    return {"mini": mini, **{task.data.id: task for task in survey}}


TASKS = all_tasks()


@pytest.fixture(params=list(TASKS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def task(name: str) -> PipelineTask:
    return TASKS[name]


class Text:
    """A task's text, of which every number that was read is ticked off."""

    def __init__(self, text: str) -> None:
        self.left = text

    def numbers(self, pattern: str) -> tuple[float, ...]:
        found = re.findall(pattern.replace(" ", r"\s+"), self.left)
        assert len(found) == 1, f"{pattern!r} occurs {len(found)} times"
        self.left = re.sub(pattern.replace(" ", r"\s+"), "", self.left)
        groups = found[0] if isinstance(found[0], tuple) else found
        return tuple(float(group.replace(",", "")) for group in groups)


def test_every_number_is_the_one_that_is_enforced(name: str, task: PipelineTask) -> None:
    text = Text(task.data.prompt_text)
    limits, budget, data = task.limits, task.budget, task.data
    number = r"([\d.,]*\d)"
    if HIDDEN[name] is not None:
        assert text.numbers(f"{number} other stars") == (HIDDEN[name],)
    assert text.numbers(f"{number} labelled stars") == (LABELLED[name],)
    assert text.numbers(f"Periods are {number} to {number} days") == PERIOD_RANGE_DAYS
    assert text.numbers(f"at least {number} observed transits") == (MIN_TRANSITS,)
    assert text.numbers(f"The {number} lines with the highest score") == (match.MAX_ROWS,)
    assert text.numbers(
        f"star: {number} s, one core, {number} GiB of memory, {number} processes, {number} MiB of output, "
        f"no network, {number} MiB of scratch"
    ) == (
        limits.wall_s,
        limits.memory_bytes / 2**30,
        limits.processes,
        limits.stdout_bytes / 2**20,
        limits.scratch_bytes / 2**20,
    )
    assert text.numbers(f"have {number} MiB and {number} entries") == (
        MAX_BYTES / 2**20,
        MAX_ENTRIES,
    )
    assert text.numbers(f"within {number} % and at least {number} %") == (
        100 * match.PERIOD_TOLERANCE,
        100 * match.FULL_ALIGNMENT,
    )
    (minutes,) = text.numbers(f"at least {number} minutes")
    assert minutes == round(match.MIN_TIMING_TOLERANCE_DAYS * 24 * 60)
    if name == "mini":
        assert text.numbers(f"of which {number} have one planet each") == (
            N_STARS["hidden"]["planet"],
        )
        assert text.numbers(r"clipped to \[(-1), (1)\]") == (-1, 1)
    else:
        graded = {"survey-r1": 1000, "survey-dev": 196, "survey-sim": 200}[name]
        assert text.numbers(f"S on (?:the )?{number} (?:of the )?stars") == (graded,)
    hours, turns, tokens = text.numbers(f"{number} hours?, {number} turns, {number} tokens in all")
    assert hours * 3600 == budget.session_s == data.timeout.agent
    assert (turns, tokens) == (budget.turns, budget.tokens)
    assert text.numbers(f"killed after {number} s") == (budget.shell_limit_s,)
    assert text.numbers(f"has {number} CPUs and {number} GiB of memory") == (
        data.resources.cpu,
        data.resources.memory,
    )
    packages = stated_packages(text.left)
    text.left = text.left.replace(packages_line(text.left), "")
    assert packages.keys() <= set(BOX_PACKAGES)
    for fixed in FIXED:
        text.left = re.sub(fixed, "", text.left, flags=re.DOTALL)
    assert re.findall(r"\d\S*", text.left) == []


def packages_line(text: str) -> str:
    (line,) = re.findall(r"^Python [\d.]+ with .*?\. Nothing else", text, re.MULTILINE | re.DOTALL)
    return line


def stated_packages(text: str) -> dict[str, str]:
    listed = re.sub(r"^Python [\d.]+ with |\. Nothing else$", "", packages_line(text))
    return dict(entry.split() for entry in listed.split(","))


def test_packages_are_those_that_boxes_are_pinned_to(task: PipelineTask) -> None:
    requirements = BOX_REQUIREMENTS.read_text()
    for package, version in stated_packages(task.data.prompt_text).items():
        assert re.search(
            rf"^{package}=={re.escape(version)} \\\n +--hash=sha256:", requirements, re.MULTILINE
        ), package
    named = {"numpy", "scipy", "astropy", "lightkurve", "scikit-learn", "numba", "batman-package"}
    assert stated_packages(task.data.prompt_text).keys() == named


def test_python_is_that_of_the_images(task: PipelineTask) -> None:
    (version,) = re.findall(r"^Python ([\d.]+) with", task.data.prompt_text, re.MULTILINE)
    assert task.data.image in load_images().values()
    assert re.search(rf"python:{re.escape(version)}\b", task.data.image)


def test_the_box_is_told_the_same_limits(task: PipelineTask) -> None:
    files = dict(task._workspace(LabelledStars({}, {})))
    box = json.loads(files[f"{WORKDIR}/box.json"].content)
    assert Limits.from_json(box["limits"]) == task.limits
    assert box["shell_limit_s"] == task.budget.shell_limit_s
    assert files[f"{WORKDIR}/TASK.md"].content.decode() == task.data.prompt_text


def test_files_named_in_the_text_are_put_into_the_box(task: PipelineTask) -> None:
    text = task.data.prompt_text
    files = dict(task._workspace(LabelledStars({"s1": lambda: b""}, {})))
    table = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert len(table) == 4
    for path in table:
        assert f"{WORKDIR}/{path.replace('*', 's1')}" in files


def test_options_of_run_dev_are_those_that_it_has(task: PipelineTask) -> None:
    (usage,) = re.findall(r"`python run_dev\.py ([^`]+)`", task.data.prompt_text)
    source = (shipped_path("workspace") / "run_dev.py").read_text()
    for option in re.findall(r"--\w+", usage):
        assert f'"{option}"' in source


def test_columns_are_those_of_a_star_file(task: PipelineTask) -> None:
    text = task.data.prompt_text
    for column in LightCurve.__dataclass_fields__:
        assert f"`{column}`" in text, column
    for field in ("period_days", "t0_days", "duration_hours", "depth_ppm", "n_transits", "mes"):
        assert field in Planet.__dataclass_fields__
        assert f"`{field}`" in text


def test_most_planets_have_the_stated_signal_to_noise(task: PipelineTask) -> None:
    (low, high) = map(float, re.findall(r"most\s+are (\d+)–(\d+)\)", task.data.prompt_text)[0])
    mes = np.array([mes_target(quantile) for quantile in np.linspace(0.005, 0.995, 100)])
    assert np.mean((mes >= low) & (mes <= high)) > 0.6


def test_the_worked_example_is_scored_as_stated(task: PipelineTask) -> None:
    (stated,) = re.findall(r"S = \(3 \+ ½ − 1\) / 6 = ([\d.]+)\.", task.data.prompt_text)
    time_days = np.arange(900.0, 1260.0, 0.02)
    planet = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 46, 12.0)
    truth = {f"s{i}": StarTruth("planet", (planet,)) for i in range(6)}
    truth |= {"s6": StarTruth("eb"), "s7": StarTruth("quiet")}
    truth |= {"s8": StarTruth("quiet"), "s9": StarTruth("false_alarm")}
    rows = {f"s{i}": np.array([[7.5, 910.0, 1.0]]) for i in (0, 1, 2, 6)}
    rows["s3"] = np.array([[15.0, 910.0, 1.0]])
    score = score_rows(truth, dict.fromkeys(truth, time_days), rows)
    assert (score.n_planets, score.credit, score.n_false) == (6, 3.5, 1)
    assert f"{score.S:.3f}" == stated


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "configs").glob("*.toml")), ids=lambda path: path.stem
)
def test_a_config_is_a_whole_command(path: Path) -> None:
    document = tomllib.loads(path.read_text())
    evaluates = "env" in document
    config = cli(EvalConfig if evaluates else ValidateConfig, args=["@", str(path)])
    taskset = load_taskset(config.env.taskset if evaluates else config.taskset)
    selected = taskset.select(config.select)
    assert selected.bounded
    tasks = list(selected)
    assert tasks
    command = "vf-eval" if evaluates else "vf-validate"
    assert f"#   {command} @ configs/{path.name}" in path.read_text()
    if not evaluates:
        return
    for task in tasks:
        agent = config.env.agent
        assert agent.max_turns == task.budget.turns
        assert agent.max_total_tokens == task.budget.tokens
        assert agent.timeout.rollout == task.budget.session_s
        assert config.sampling.max_tokens <= task.budget.tokens


def test_there_are_configs_of_both_kinds_for_every_runtime() -> None:
    for runtime in ("local", "docker", "prime"):
        for command in ("validate", "eval"):
            assert (REPOSITORY / "configs" / f"{runtime}-{command}.toml").is_file()
