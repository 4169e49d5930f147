"""The hidden truth, the evaluator's secret and the host's keys occur in nothing that a run leaves or shows.

The runs are whole ``vf-eval`` commands, logging verbosely. What is searched: their output directory, what
they print, and every file of both boxes just before the boxes end. ``TRANSITBENCH_DATA`` is the grader's
and lies elsewhere.
"""

from __future__ import annotations

import importlib
import logging
import re
import struct
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import loguru
import pytest
from boxes import NOTES
from commands import evaluate, run_command
from sandbox import needs_sandbox
from scripted_model import SCRIPTS, serving
from sessions import author, play
from verifiers.v1.utils.logging import LIBRARY_LOGGER, setup_logging

from transitbench import mini
from transitbench.mini import DrawnStar, simulated_stars, truth_of
from transitbench.truth import KINDS, Truth, truth_text

SECRETS = {
    "TRANSITBENCH_SECRET": "canary-of-the-evaluator",
    "OPENAI_API_KEY": "canary-of-the-host",
    "PRIME_API_KEY": "canary-of-the-platform",
}
TASK = ("transitbench-mini", "--env.taskset.split", "dev", "-n", "1", "--verbose")
NEAR_BYTES = 200
SIGNIFICANT_DIGITS = 6
EXACT_DIGITS = 8


def hidden_stars() -> list[DrawnStar]:
    return simulated_stars("dev", 0, "hidden", SECRETS["TRANSITBENCH_SECRET"].encode())


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, harness_cache_dir: Path) -> None:
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(harness_cache_dir))
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


def written(value: float, digits: int) -> set[bytes]:
    """The number as text, cut or rounded to significant digits, and as the bytes of a double."""
    whole, _, decimals = repr(value).partition(".")
    n_decimals = digits - (len(whole) if value >= 1 else 0)
    texts = {f"{value:.{n_decimals}f}", f"{whole}.{decimals[:n_decimals]}"}
    return {text.encode() for text in texts} | {struct.pack(f"{o}d", value) for o in "<>"}


def places(text: bytes, needle: bytes) -> Iterator[int]:
    """Where a needle begins, not within a longer number."""
    start = text.find(needle)
    while start >= 0:
        if not text[max(start - 1, 0) : start].isdigit() or not needle[:1].isdigit():
            yield start
        start = text.find(needle, start + 1)


def leaks(texts: Mapping[str, bytes], truth: Truth, digits: int = SIGNIFICANT_DIGITS) -> list[str]:
    """Where texts hold what only the grader may know.

    That is: ephemerides of hidden planets, kinds of stars near their ids, secrets.
    """
    numbers = {
        number
        for each in truth.values()
        for planet in each.planets
        for number in (planet.period_days, planet.t0_days)
    }
    needles = {secret.encode() for secret in SECRETS.values()}.union(
        *(written(number, digits) for number in numbers)
    )
    kinds = re.compile(rb"\b(" + "|".join(KINDS).encode() + rb")\b")
    found = []
    for name, text in texts.items():
        found += [f"{name}: {needle!r}" for needle in needles for _ in places(text, needle)]
        for star in truth:
            for start in places(text, star.encode()):
                near = text[max(start - NEAR_BYTES, 0) : start + NEAR_BYTES]
                found += [f"{name}: {near!r}" for _ in kinds.finditer(near)]
    return found


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def files_of_box(archive: Path) -> dict[str, bytes]:
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            files[f"{archive.stem}:{member.name}"] = content.read() if content else b""
    return files


def test_the_search_finds_what_it_looks_for() -> None:
    truth = truth_of(hidden_stars())
    text = truth_text(truth)
    planets = [planet for each in truth.values() for planet in each.planets]
    found = leaks({"truth": text.encode()}, truth)
    assert len(found) >= 2 * len(planets)
    for planet in planets:
        for number in (planet.period_days, planet.t0_days):
            told = (f"P = {number:#.6g} d", f"[{number!r}]", f"{number:.9f}")
            for way in (*(text.encode() for text in told), b"\0" + struct.pack("<d", number)):
                assert leaks({"": way}, truth), way
    (star, *_) = truth
    assert leaks({"": f"{star},eb".encode()}, truth)
    assert leaks({"": f'{{"kind": "quiet", "star": "{star}"}}'.encode()}, truth)
    assert leaks({"": b"KEY=canary-of-the-host"}, truth)
    assert not leaks({"": f"{star} {star}.npz no answer 4.56789".encode()}, truth)


@needs_sandbox
@pytest.mark.slow
def test_a_session_leaves_no_answer_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = truth_of(hidden_stars())
    boxes = tmp_path / "boxes"
    boxes.mkdir()
    monkeypatch.setenv(NOTES, str(boxes))
    with serving() as model:
        done, (trace,) = evaluate(
            *(*TASK, "-m", "scripted/snoop"),
            out=tmp_path / "out",
            model_url=model.base_url,
            box="boxes.PackedBox",
        )
    assert done.returncode == 0, done.stderr
    assert not trace["errors"]
    shown = {**files_below(tmp_path / "out"), "stdout": done.stdout.encode()}
    shown["stderr"] = done.stderr.encode()
    assert any(name.endswith("eval.log") for name in shown)
    assert "run/traces.jsonl" in shown
    in_boxes = [files_of_box(archive) for archive in boxes.glob("*.tar")]
    (agents,) = [box for box in in_boxes if any(name.endswith("TASK.md") for name in box)]
    (grading,) = [box for box in in_boxes if box is not agents]
    assert sum("/stars/s" in name for name in agents) == 12
    assert sum("/grading/stars/s" in name for name in grading) == len(truth) == 16
    for box in in_boxes:
        (processes,) = [name for name in box if name.endswith("/.processes")]
        assert b"PATH=" in box[processes]
    # What the submission itself has found comes near the truth.
    records = {name: grading.pop(name) for name in list(grading) if name.endswith(".jsonl")}
    assert len(records) == 2
    assert leaks(records, truth, digits=EXACT_DIGITS) == []
    assert leaks({**shown, **agents, **grading}, truth) == []
    # Names of the hidden stars are the grading box's business alone.
    for star in truth:
        assert [name for name, text in {**shown, **agents}.items() if star.encode() in text] == []
        assert [name for name in agents if star in name] == []


@needs_sandbox
@pytest.mark.slow
def test_the_error_of_a_lost_grading_box_tells_no_answer(tmp_path: Path) -> None:
    truth = truth_of(hidden_stars())
    with serving() as model:
        done, (trace,) = evaluate(
            *(*TASK, "-m", "scripted/nothing", "--env.agent.scoring.retries.max-retries", "1"),
            out=tmp_path / "out",
            model_url=model.base_url,
            box="boxes.LostBox",
        )
    assert "TB-E007" in trace["errors"][0]["message"]
    assert done.stderr.count("TB-E007") > 1
    shown = {**files_below(tmp_path / "out"), "stdout": done.stdout.encode()}
    shown["stderr"] = done.stderr.encode()
    assert leaks(shown, truth) == []


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Log as the framework's commands do, to a file: with the values of variables in tracebacks."""
    library = logging.getLogger(LIBRARY_LOGGER)
    before = library.handlers[:], library.level, library.propagate
    setup_logging("DEBUG", log_file=str(path), console=False)
    try:
        yield
    finally:
        loguru.logger.remove()
        library.handlers[:], level, library.propagate = before
        library.setLevel(level)


@needs_sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    "broken", ["transitbench.mini.make_star", "transitbench.score.star_outcomes"]
)
def test_an_error_in_grading_tells_no_answer(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mini, "N_STARS", {**mini.N_STARS, "hidden": dict.fromkeys(KINDS, 1)})
    truth = truth_of(hidden_stars())
    monkeypatch.setitem(
        SCRIPTS, "scripted/empty", author({"solution.py": "import sys; sys.exit(0)"})
    )
    module, _, name = broken.rpartition(".")
    works = getattr(importlib.import_module(module), name)
    finalized = tmp_path / "data" / "runs"
    monkeypatch.setenv("TRANSITBENCH_DATA", str(finalized.parent))

    def breaks(*arguments: object, **options: object) -> object:
        # Only in grading: the session before it makes labelled stars in the same way.
        if list(finalized.glob("*/solution.tar.gz")):
            raise ValueError("provoked")
        return works(*arguments, **options)

    monkeypatch.setattr(broken, breaks)
    with logged(tmp_path / "log"):
        trace = play("empty", tmp_path / "out", {"id": "transitbench-mini", "split": "dev"})
    (error,) = trace.errors
    assert "provoked" in error.message
    assert trace.rewards == {}
    shown = {**files_below(tmp_path / "out"), "log": (tmp_path / "log").read_bytes()}
    assert shown["log"].count(b"ValueError: provoked") >= 2
    assert name.encode() in shown["log"]
    assert leaks(shown, truth) == []


@needs_sandbox
@pytest.mark.slow
def test_validating_with_the_gold_solution_shows_no_answer(tmp_path: Path) -> None:
    done = run_command(
        *("vf-validate", "transitbench-mini", "--taskset.split", "dev", "-n", "1", "--only-gold"),
        "--verbose",
        out=tmp_path / "out",
        runtime="runtime",
        box="transitbench_env.localbox.LocalBox",
    )
    shown = {**files_below(tmp_path / "out"), "stdout": done.stdout.encode()}
    shown["stderr"] = done.stderr.encode()
    assert b'"valid":true' in shown["run/results.jsonl"]
    assert leaks(shown, truth_of(hidden_stars())) == []
