"""One grading run: a submission on a set, from star files to score, in a directory of its own.

A run directory holds ``run.json`` (what was run: digests, limits, versions, machine), ``grade.jsonl``
(one record a star, as the runner wrote it), ``rows.csv`` (kept rows) and ``score.json``. The last two
depend on nothing but the submission's output, so an interrupted and resumed run ends with the same
bytes as an undisturbed one.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
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
from transitbench.sets import StarSet
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


def run_facts(
    name: str, submission: Path, star_set: StarSet, limits: Limits, sandbox: bool
) -> dict[str, Any]:
    """Return what identifies a run, and the software and machine that it ran on."""
    return {
        "schema": RUN_SCHEMA,
        "set": star_set.name,
        "set_path": str(star_set.path.resolve()),
        "set_digest": star_set.manifest.digest,
        "n_stars": len(star_set.stars),
        "submission": name,
        "submission_digest": submission_digest(submission),
        "limits": limits.to_json(),
        "sandbox": "bubblewrap" if sandbox else "none",
        "versions": {
            "transitbench": __version__,
            "python": platform.python_version(),
            **{package: metadata.version(package) for package in RECORDED_PACKAGES},
        },
        "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
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
    facts = run_facts(name, submission, star_set, limits, sandbox)
    writable_dir(run_directory)
    _claim(run_directory, facts, resume)
    results = run_stars(
        submission,
        {star: star_set.star_path(star) for star in star_set.stars},
        run_directory / "grade.jsonl",
        limits=limits,
        cores=cores,
        sandbox=sandbox,
        on_result=on_result,
    )
    rows = {r.star: np.array(r.rows, dtype=np.float64).reshape(-1, 3) for r in results if r.rows}
    score = score_rows(
        star_set.truth,
        star_set.finite_times(),
        rows,
        statuses={r.star: r.status for r in results},
        set_name=star_set.name,
    )
    write_rows_csv(run_directory / "rows.csv", rows)
    document = {
        **score.to_json(),
        "submission": name,
        "submission_digest": facts["submission_digest"],
        "set_digest": facts["set_digest"],
        "sandbox": facts["sandbox"],
    }
    _write_json(run_directory / "score.json", document)
    return GradedRun(run_directory, facts, results, score)


def _claim(run_directory: Path, facts: dict[str, Any], resume: bool) -> None:
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
