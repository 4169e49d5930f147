"""What the survey and the mini tasks have in common: from an empty box to a score.

The life of a session: :meth:`PipelineTask.setup` fills the agent's box; the agent works;
:meth:`~PipelineTask.finalize` freezes ``solution/``; the framework opens a second, fresh box, into which
``setup`` (of the copy that grades) puts the runner and the framework the frozen solution;
:meth:`~PipelineTask.graded` sends the hidden stars there, brings the records home, and scores them here.

Truth is made or read on this side when it is needed. It is on no task, trace, log or box. What is kept of
a session lies in ``$TRANSITBENCH_DATA/runs/<trace id>``: ``solution.tar.gz``, ``grade.jsonl`` (records of
all hidden stars), ``score.json``, and a grading run's directory for each graded set.
"""

from __future__ import annotations

import asyncio
import copy
import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic

import verifiers.v1 as vf
from typing_extensions import TypeVar

from transitbench.cage import Limits
from transitbench.grading import Machine, finish_run, open_run, run_facts
from transitbench.home import runs_dir, writable_dir
from transitbench.pipelines import gold_files, shipped_path
from transitbench.runner import StarResult
from transitbench.score import Score
from transitbench.sets import GradedStars
from transitbench.truth import Truth, truth_text
from transitbench_env.boxkit import (
    DEV_MODULES,
    LIBRARY,
    RUNNER_MODULES,
    SOLUTION,
    WORKDIR,
    BoxFile,
    examine,
    library_files,
    limit_shell,
    provide_packages,
    put_files,
)
from transitbench_env.brief import BOX_PYTHON, Budget, pinned_packages
from transitbench_env.discreet import discreet
from transitbench_env.freeze import FreezeStatus, FrozenSolution, freeze_solution
from transitbench_env.log import logger
from transitbench_env.remote_run import StarFile, run_remotely, sandbox_of

SUBMISSION = "solution"
SETUP_S = 1800.0
"""Installing the packages in a bare image takes some minutes."""
FINALIZE_S = 600.0


@dataclass(frozen=True)
class LabelledStars:
    """Stars for an agent: files by star id, and what is in them."""

    files: Mapping[str, StarFile]
    truth: Truth


@dataclass(frozen=True)
class HiddenStars:
    """One graded set: the suffix of its metrics, its files, its truth."""

    suffix: str
    files: Mapping[str, StarFile]
    stars: GradedStars


class PipelineState(vf.State):
    """What is known of a session's solution once it is over."""

    solution: FreezeStatus = "ok"
    solution_digest: str = ""
    left_out: int = 0


class PipelineData(vf.TaskData):
    """A task's public part."""


DataT = TypeVar("DataT", bound=PipelineData, default=PipelineData)


class PipelineTask(vf.Task[DataT, PipelineState], Generic[DataT]):
    """Build a pipeline on labelled stars; be graded on hidden ones."""

    NEEDS_CONTAINER: ClassVar[bool] = True
    limits: ClassVar[Limits]
    budget: ClassVar[Budget]
    grades: bool = False
    """Whether this copy serves the grading box."""

    @abstractmethod
    def labelled(self) -> LabelledStars:
        """Return the stars of the agent's box. Runs off the event loop."""

    @abstractmethod
    def hidden(self) -> Sequence[HiddenStars]:
        """Return the stars to grade on. Runs off the event loop."""

    def check_stars(self) -> None:
        """Raise if this machine has not got the stars of this task: before any box is started."""

    def runtime_env(self) -> dict[str, str]:
        """Return no variables. The framework asks before it starts a box, so stars are checked for here."""
        self.check_stars()
        return {}

    def grading_task(
        self, runtime: vf.Runtime, *, scoring: vf.ScoringConfig
    ) -> PipelineTask[DataT]:
        """Return the copy that serves the grading box."""
        grader = copy.copy(self)
        grader.grades = True
        return grader

    @discreet
    async def setup(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Fill the agent's box, or the grading box, while its network is open."""
        machine = await provide_packages(runtime)
        if self.grades:
            await put_files(runtime, library_files(RUNNER_MODULES))
            return
        _warn_of_versions(machine)
        labelled = await asyncio.to_thread(self.labelled)
        await put_files(runtime, library_files(DEV_MODULES))
        await put_files(runtime, self._workspace(labelled))
        await limit_shell(runtime, self.budget.shell_limit_s)

    def _workspace(self, labelled: LabelledStars) -> Iterator[tuple[str, BoxFile]]:
        box = {
            "library": LIBRARY,
            "limits": self.limits.to_json(),
            "shell_limit_s": self.budget.shell_limit_s,
        }
        workspace = shipped_path("workspace")
        files = {
            "TASK.md": self.data.prompt_text.encode(),
            "run_dev.py": (workspace / "run_dev.py").read_bytes(),
            "solution/solution.py": (workspace / "solution" / "solution.py").read_bytes(),
            "box.json": json.dumps(box).encode(),
            "truth.json": truth_text(labelled.truth).encode(),
        }
        for name, content in files.items():
            yield f"{WORKDIR}/{name}", BoxFile(content)
        for star, read in labelled.files.items():
            yield f"{WORKDIR}/stars/{star}.npz", BoxFile(read())

    async def finalize(self, trace: vf.Trace, runtime: vf.Runtime) -> None:
        """Freeze the solution and archive it."""
        frozen = await freeze_solution(runtime)
        self._record(trace, frozen)
        await asyncio.to_thread(_archive, run_directory(trace), frozen)

    def _record(self, trace: vf.Trace, frozen: FrozenSolution) -> None:
        # Set here, so that the framework does not collect by itself: it takes an odd solution for an error.
        trace.state.artifacts = {SOLUTION: frozen.artifact()}
        trace.state.solution = frozen.status
        trace.state.solution_digest = frozen.digest
        trace.state.left_out = frozen.n_left_out
        trace.info["solution"] = {
            "status": frozen.status,
            "digest": frozen.digest,
            "files": len(frozen.files),
            "left_out": frozen.n_left_out,
        }

    @vf.metric
    @discreet
    async def graded(self, trace: vf.Trace, runtime: vf.Runtime) -> dict[str, float]:
        """Grade the frozen solution on the hidden stars; numbers of each graded set, by its suffix."""
        hidden = await asyncio.to_thread(self.hidden)
        directory = run_directory(trace)
        machine = await examine(runtime)
        sandbox = await sandbox_of(runtime)
        digest = trace.state.solution_digest or "none"
        facts = {
            each.suffix: run_facts(SUBMISSION, digest, each.stars, self.limits, sandbox, machine)
            for each in hidden
        }
        for each in hidden:
            # An earlier attempt at scoring may have begun it.
            open_run(directory / each.suffix, facts[each.suffix], resume=True)
        records = await self._run(trace, runtime, hidden, directory, machine)
        by_star = {record.star: record for record in records}

        def finish() -> dict[str, Score]:
            return {
                each.suffix: _finish(directory / each.suffix, facts[each.suffix], each, by_star)
                for each in hidden
            }

        scores = await asyncio.to_thread(finish)
        reward = self.rewarded(scores)
        _write_scores(directory, trace.state, scores, reward)
        numbers: dict[str, float] = {
            "solution_ok": float(trace.state.solution == "ok"),
            "left_out": float(trace.state.left_out),
            **reward,
        }
        for suffix, score in scores.items():
            numbers |= score.metrics(suffix)
        return numbers

    async def _run(
        self,
        trace: vf.Trace,
        runtime: vf.Runtime,
        hidden: Sequence[HiddenStars],
        directory: Path,
        machine: Machine,
    ) -> list[StarResult]:
        files = {star: read for each in hidden for star, read in each.files.items()}
        if trace.state.solution != "ok":
            return [_nothing_to_run(star, trace.state.solution) for star in files]
        jobs = min(machine.cores or 1, round(self.data.resources.cpu or 1))
        return await run_remotely(runtime, files, directory / "grade.jsonl", self.limits, jobs)

    @abstractmethod
    def rewarded(self, scores: Mapping[str, Score]) -> dict[str, float]:
        """Return the metric that the reward is."""

    @discreet
    async def validate(self, trace: vf.Trace, runtime: vf.Runtime) -> bool:
        """Grade the gold solution by the very way of a session's: the reward must be exactly 1."""
        hidden = await asyncio.to_thread(self.hidden)
        await put_files(runtime, _gold_files(hidden))
        await self.finalize(trace, runtime)
        await vf.grade_submission(self, trace, runtime)
        if trace.reward != 1.0:
            logger.error("the gold solution gets %r, not 1", trace.reward)
        return bool(trace.reward == 1.0)


def session(budget: Budget, scoring_s: float) -> dict[str, Any]:
    """Return the fields of :class:`verifiers.v1.TaskData` that are the same for every such task.

    No network, for the agent and in grading; a box of its own for grading; stage timeouts in seconds.
    """
    closed = vf.NetworkPolicyConfig(allow=[])
    return {
        "artifacts": [vf.Artifact(source=SOLUTION, required=False)],
        "network": closed,
        "scoring": vf.ScoringConfig(mode="isolated", network=closed),
        "timeout": vf.TaskTimeout(
            setup=SETUP_S, agent=budget.session_s, finalize=FINALIZE_S, scoring=scoring_s
        ),
        "resources": vf.TaskResources(
            cpu=budget.cpus, memory=budget.memory_gb, disk=budget.disk_gb
        ),
    }


def run_directory(trace: vf.Trace) -> Path:
    """Return where a session is kept."""
    return writable_dir(runs_dir() / trace.id)


def _gold_files(hidden: Sequence[HiddenStars]) -> Iterator[tuple[str, BoxFile]]:
    stars = (
        (read(), each.stars.truth[star]) for each in hidden for star, read in each.files.items()
    )
    for path, content in gold_files(stars).items():
        yield f"{SOLUTION}/{path}", BoxFile(content)


def _nothing_to_run(star: str, status: FreezeStatus) -> StarResult:
    """The record of a star on which a solution that cannot be run was to be run."""
    return StarResult(star, "crash", (), 0, 0, 0.0, 0.0, 0.0, None, f"solution: {status}")


def _archive(directory: Path, frozen: FrozenSolution) -> None:
    (directory / "solution.tar.gz").write_bytes(frozen.archive())


def _finish(
    directory: Path,
    facts: dict[str, Any],
    hidden: HiddenStars,
    by_star: Mapping[str, StarResult],
) -> Score:
    """Complete the run directory of one graded set."""
    records = [by_star[star] for star in sorted(hidden.files)]
    lines = "".join(json.dumps(record.to_json(), allow_nan=False) + "\n" for record in records)
    (directory / "grade.jsonl").write_text(lines, encoding="utf-8")
    return finish_run(directory, facts, hidden.stars, records).score


def _write_scores(
    directory: Path, state: PipelineState, scores: Mapping[str, Score], reward: dict[str, float]
) -> None:
    document = {
        "solution": state.solution,
        "submission_digest": state.solution_digest or None,
        **reward,
        "sets": {suffix: score.to_json() for suffix, score in scores.items()},
    }
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    (directory / "score.json").write_text(text, encoding="utf-8")


def _warn_of_versions(machine: Machine) -> None:
    python = ".".join(machine.versions["python"].split(".")[:2])
    there = {"python": python, **{name: machine.versions.get(name) for name in pinned_packages()}}
    stated = {"python": BOX_PYTHON, **pinned_packages()}
    other = {name: version for name, version in there.items() if version != stated[name]}
    if other:
        logger.warning("TASK.md states other versions than the box has: %s", other)
