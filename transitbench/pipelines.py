"""The pipelines that ship with the package, by name, and submissions that answer from the truth.

``reference_detector`` is no search: its ``solution.py`` looks a star up in an ``answers.json`` that
the grader writes beside a copy of it, for the very set that is graded. The gold solution is the same
with no threshold; it must score exactly 1.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from transitbench.errors import TransitBenchError
from transitbench.fingerprint import sha256_hex
from transitbench.sets import StarSet
from transitbench.submission import ENTRY_POINT
from transitbench.truth import StarTruth

REFERENCE_DETECTOR_MES = 7.1
"""Kepler's detection threshold (Jenkins 2002, ApJ 575, 493)."""

_LOCATIONS = {
    "empty": "baselines/empty",
    "starter": "workspace/solution",
    "naive_v0": "baselines/naive_v0",
    "reference_detector": "baselines/reference_detector",
}
PIPELINES: tuple[str, ...] = tuple(_LOCATIONS)


def shipped_path(relative: str) -> Path:
    """Return a file or folder that ships beside the package: in the checkout, or inside the wheel."""
    package = Path(__file__).parent
    for root in (package / "_shipped", package.parent):
        if (root / relative).exists():
            return root / relative
    raise FileNotFoundError(f"{relative} is neither in the checkout nor in the installed package")


def answers_text(stars: Iterable[tuple[bytes, StarTruth]], min_mes: float) -> str:
    """Return ``answers.json`` for star files and what is in them: per sha256, planets with ``mes >= min_mes``."""
    answers = {
        sha256_hex(content): [
            [planet.period_days, planet.t0_days, planet.mes]
            for planet in truth.planets
            if planet.mes >= min_mes
        ]
        for content, truth in stars
    }
    return json.dumps(answers)


def gold_files(stars: Iterable[tuple[bytes, StarTruth]]) -> dict[str, bytes]:
    """Return the submission that knows every planet of these stars: its files by relative path."""
    oracle = shipped_path(_LOCATIONS["reference_detector"]) / ENTRY_POINT
    return {
        ENTRY_POINT: oracle.read_bytes(),
        "answers.json": answers_text(stars, min_mes=0.0).encode(),
    }


@contextmanager
def _clean_copy(pipeline: str) -> Iterator[Path]:
    """A copy of a shipped pipeline without the bytecode that installing or importing it left behind.

    Bytecode would be part of the submission's digest, which has to be the same for everyone.
    """
    with tempfile.TemporaryDirectory(prefix="transitbench-pipeline-") as scratch:
        directory = Path(scratch) / pipeline
        shutil.copytree(
            shipped_path(_LOCATIONS[pipeline]),
            directory,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        yield directory


@contextmanager
def answering_solution(star_set: StarSet, min_mes: float) -> Iterator[Path]:
    """A temporary submission that prints the truth of ``star_set`` for planets above ``min_mes``."""
    with _clean_copy("reference_detector") as directory:
        stars = (
            (star_set.star_path(star).read_bytes(), truth) for star, truth in star_set.truth.items()
        )
        (directory / "answers.json").write_text(answers_text(stars, min_mes), encoding="utf-8")
        yield directory


@contextmanager
def open_submission(name_or_path: str, star_set: StarSet) -> Iterator[tuple[str, Path]]:
    """Resolve what the user asked to grade into (display name, directory).

    A directory of that path wins over a pipeline of that name.

    Raises
    ------
    TransitBenchError
        TB-E003 if it is neither.
    """
    path = Path(name_or_path)
    is_path = path.is_dir()
    if not is_path and name_or_path not in _LOCATIONS:
        raise TransitBenchError(
            "TB-E003",
            f"{name_or_path!r} is neither a directory nor one of {', '.join(PIPELINES)}",
            "give a directory that holds solution.py",
        )
    oracle = shipped_path(_LOCATIONS["reference_detector"])
    if name_or_path == "reference_detector" or (is_path and path.resolve() == oracle.resolve()):
        with answering_solution(star_set, REFERENCE_DETECTOR_MES) as directory:
            yield "reference_detector", directory
    elif is_path:
        yield path.resolve().name, path.resolve()
    else:
        with _clean_copy(name_or_path) as directory:
            yield name_or_path, directory
