"""One grading run: a submission on stars, from star files to score, in a directory of its own.

A run directory holds ``run.json`` (what was run: digests, limits, versions, machine), ``grade.jsonl``
(one record a star, as the runner wrote it), ``rows.csv`` (kept rows) and ``score.json``. The last two
depend on nothing but the submission's output, so an interrupted and resumed run ends with the same
bytes as an undisturbed one.

:func:`grade` does all of it on this machine. Where the stars run elsewhere, :func:`open_run` comes before
and :func:`finish_run` after, and ``grade.jsonl`` in between is the caller's.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from transitbench import __version__
from transitbench.cage import Limits
from transitbench.errors import TransitBenchError
from transitbench.home import writable_dir
from transitbench.rows import write_rows_csv
from transitbench.runner import StarResult, run_stars
from transitbench.score import Score, score_rows
from transitbench.sets import GradedStars, StarSet
from transitbench.submission import submission_digest

RUN_SCHEMA = 1
RECORDED_PACKAGES = (
    "numpy",
    "scipy",
    "astropy",
    "lightkurve",
    "scikit-learn",
    "numba",
    "batman-package",
)
_SAME_ON_RESUME = (
    "schema",
    "set",
    "set_digest",
    "n_stars",
    "submission_digest",
    "limits",
    "sandbox",
    "versions",
)


@dataclass(frozen=True)
class GradedRun:
    """A finished run: where it lies, what was run, each star's record, the score."""

    directory: Path
    facts: dict[str, Any]
    results: Sequence[StarResult]
    score: Score


@dataclass(frozen=True)
class Machine:
    """Where submissions run: versions of ``python`` and of :data:`RECORDED_PACKAGES`, platform, cores."""

    versions: Mapping[str, str]
    platform: str
    cores: int | None

    @classmethod
    def here(cls) -> Machine:
        """Describe this machine and the environment of this process."""
        versions = {package: metadata.version(package) for package in RECORDED_PACKAGES}
        return cls(
            {"python": platform.python_version(), **versions}, platform.platform(), os.cpu_count()
        )


def run_facts(
    name: str,
    submission_digest: str,
    stars: GradedStars,
    limits: Limits,
    sandbox: str,
    machine: Machine,
) -> dict[str, Any]:
    """Return what identifies a run, and the software and machine that it ran on.

    Parameters
    ----------
    name
        What to call the submission in reports.
    submission_digest
        Its digest (:func:`transitbench.submission.submission_digest`).
    sandbox
        What caged it: ``bubblewrap``, or ``none``.
    machine
        Where it ran.
    """
    return {
        "schema": RUN_SCHEMA,
        "set": stars.name,
        "set_path": None if stars.path is None else str(stars.path.resolve()),
        "set_digest": stars.digest,
        "n_stars": len(stars.truth),
        "submission": name,
        "submission_digest": submission_digest,
        "limits": limits.to_json(),
        "sandbox": sandbox,
        "versions": {"transitbench": __version__, **machine.versions},
        "machine": {"platform": machine.platform, "cores": machine.cores},
    }


def grade(
    name: str,
    submission: Path,
    star_set: StarSet,
    run_directory: Path,
    *,
    limits: Limits,
    cores: Sequence[int],
    sandbox: bool = True,
    resume: bool = False,
    on_result: Callable[[StarResult], None] | None = None,
) -> GradedRun:
    """Run ``submission`` on every star of ``star_set`` and score what it prints.

    Parameters
    ----------
    name
        What to call the submission in reports.
    run_directory
        Where the run is kept. It must be new or empty unless ``resume``.
    limits, cores, sandbox
        As in :func:`transitbench.runner.run_stars`.
    resume
        Keep the finished stars of an interrupted run of the same submission on the same set.
    on_result
        Called for each star as it finishes.

    Raises
    ------
    TransitBenchError
        TB-E012 if the directory holds a run of something else; TB-E016 if it holds a run and
        ``resume`` was not asked for; TB-E003/TB-E013 for the submission; TB-E004 without a sandbox;
        TB-E007/TB-E010 if grading itself breaks (finished stars stay, for ``resume``).
    """
    stars = star_set.graded()
    facts = run_facts(
        name,
        submission_digest(submission),
        stars,
        limits,
        "bubblewrap" if sandbox else "none",
        Machine.here(),
    )
    open_run(run_directory, facts, resume)
    results = run_stars(
        submission,
        {star: star_set.star_path(star) for star in star_set.stars},
        run_directory / "grade.jsonl",
        limits=limits,
        cores=cores,
        sandbox=sandbox,
        on_result=on_result,
    )
    return finish_run(run_directory, facts, stars, results)


def finish_run(
    run_directory: Path, facts: dict[str, Any], stars: GradedStars, results: Sequence[StarResult]
) -> GradedRun:
    """Score the records of a run that was opened with ``facts``; write ``rows.csv`` and ``score.json``.

    Raises
    ------
    TransitBenchError
        TB-E014 or TB-E016 if ``results`` are not those of exactly the stars given.
    """
    rows = {r.star: np.array(r.rows, dtype=np.float64).reshape(-1, 3) for r in results if r.rows}
    score = score_rows(
        stars.truth,
        stars.finite_times,
        rows,
        statuses={r.star: r.status for r in results},
        set_name=stars.name,
    )
    write_rows_csv(run_directory / "rows.csv", rows)
    document = {
        **score.to_json(),
        "submission": facts["submission"],
        "submission_digest": facts["submission_digest"],
        "set_digest": facts["set_digest"],
        "sandbox": facts["sandbox"],
    }
    _write_json(run_directory / "score.json", document)
    return GradedRun(run_directory, facts, results, score)


def open_run(run_directory: Path, facts: dict[str, Any], resume: bool) -> None:
    """Make ``run_directory`` that of the run with these facts, or find that it is.

    It must be new or empty, so open a run before other files are put there; with ``resume`` it may also
    hold a run with the same facts.

    Raises
    ------
    TransitBenchError
        TB-E011 if it cannot be written; TB-E012 if it holds a run of something else; TB-E016 if it holds
        a run and ``resume`` was not asked for, or other files.
    """
    writable_dir(run_directory)
    record = run_directory / "run.json"
    if record.exists():
        if not resume:
            raise TransitBenchError(
                "TB-E016",
                f"{run_directory} holds a run already",
                "add --resume to finish it, or choose another --out",
            )
        earlier = read_run_facts(run_directory)
        for key in _SAME_ON_RESUME:
            if earlier.get(key) != facts[key]:
                raise TransitBenchError(
                    "TB-E012",
                    f"{run_directory} was started with {key} {earlier.get(key)!r}, not {facts[key]!r}",
                    "resume with the same submission, set, limit and sandbox, or choose another --out",
                )
        return
    if any(path.suffix != ".partial" for path in run_directory.iterdir()):
        raise TransitBenchError(
            "TB-E016", f"{run_directory} is not empty and holds no run", "choose another --out"
        )
    _write_json(record, facts)


def read_run_facts(run_directory: Path) -> dict[str, Any]:
    """Read ``run.json``. Raises TB-E012 if the directory holds no readable run."""
    try:
        facts = json.loads((run_directory / "run.json").read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise ValueError(f"a JSON {type(facts).__name__}")
    except (OSError, ValueError) as problem:
        raise TransitBenchError(
            "TB-E012",
            f"expected a grading run at {run_directory}, got {problem}",
            "give the --out directory of a `transitbench grade` run",
        ) from problem
    return facts


def _write_json(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)
