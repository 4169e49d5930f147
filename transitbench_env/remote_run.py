"""Run the frozen solution on stars in a grading box, and bring each star's record home as it comes.

The box has the runner, the solution and the stars; this side keeps the records, so that a box which is
lost costs only the stars that were at work in it.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from transitbench.cage import Limits
from transitbench.errors import ERROR_TITLES, TransitBenchError
from transitbench.runner import MAX_ROWS, StarResult
from transitbench_env.boxkit import (
    LIBRARY,
    PYTHON,
    ROOT,
    SOLUTION,
    BoxFile,
    put_files,
    run_checked,
)
from transitbench_env.localbox import LocalBox
from transitbench_env.log import logger

StarFile = Callable[[], bytes]

_PLACE = f"{ROOT}/grading"
_STARS, _RESULTS, _LIVE = f"{_PLACE}/stars", f"{_PLACE}/results.jsonl", f"{_PLACE}/live.jsonl"
_CODE, _LOG = f"{_PLACE}/exit_code", f"{_PLACE}/runner.log"

POLL_S = 0.5
READ_BYTES = 2**20
LOG_EVERY_S = 30.0


_WHICH_SANDBOX = (
    "from transitbench.runner import prepare_sandbox; print(prepare_sandbox(True).kind)"
)
_ENVIRONMENT = ("env", f"PYTHONPATH={LIBRARY}", "PYTHONDONTWRITEBYTECODE=1")


async def sandbox_of(runtime: vf.Runtime) -> str:
    """Ask what stars are caged with in this box.

    Raises TB-E004 if there is nothing, TB-E007 if the box is lost.
    """
    try:
        done = await runtime.run([*_ENVIRONMENT, PYTHON, "-c", _WHICH_SANDBOX], {})
    except SandboxError as problem:
        raise _lost(str(problem)) from problem
    if done.exit_code:
        raise _runner_failed(str(done.exit_code), done.stderr.strip())
    return done.stdout.strip()


async def run_remotely(
    runtime: vf.Runtime,
    stars: Mapping[str, StarFile],
    records: Path,
    limits: Limits,
    jobs: int,
) -> list[StarResult]:
    """Run the solution in ``/workspace/solution`` on every star that ``records`` does not hold yet.

    Parameters
    ----------
    stars
        By star id, what returns the star's file.
    records
        JSON lines, one star each, on this side; complete when this returns.

    Returns
    -------
    list of StarResult
        One per star, sorted by star id.

    Raises
    ------
    TransitBenchError
        TB-E007 if the box is lost or says something else than records; the code that the runner gave if
        it could not do its work (TB-E004 if the box has no sandbox). ``records`` keeps what was done.
    """
    done = _read_records(records, stars)
    missing = sorted(stars.keys() - done.keys())
    if missing:
        if done:
            logger.info("%d of %d stars were graded before", len(done), len(stars))
        try:
            await _upload(runtime, {star: stars[star] for star in missing})
            async with _turn(runtime):
                await _start(runtime, limits, jobs)
                await _follow(runtime, stars, done, records)
        except SandboxError as problem:
            raise _lost(
                f"{len(stars) - len(done)} of {len(stars)} stars missing: {problem}"
            ) from problem
    return [done[star] for star in sorted(done)]


def _turn(runtime: vf.Runtime) -> AbstractAsyncContextManager[None]:
    """Boxes on one machine take turns; others have their processors for themselves."""
    if isinstance(runtime.backend, LocalBox):
        return runtime.backend.undisturbed()
    return nullcontext()


def _lost(what: str) -> TransitBenchError:
    return TransitBenchError(
        "TB-E007", what, "graded stars are kept: the next attempt takes up the others"
    )


def _read_records(records: Path, stars: Mapping[str, StarFile]) -> dict[str, StarResult]:
    if not records.exists():
        return {}
    whole, newline, torn = records.read_bytes().rpartition(b"\n")
    if torn:
        records.write_bytes(whole + newline)
    return {r.star: r for r in (_parse(line, stars) for line in whole.splitlines())}


def _parse(line: bytes, stars: Mapping[str, StarFile]) -> StarResult:
    try:
        result = StarResult.from_json(json.loads(line))
        if result.star not in stars or len(result.rows) > MAX_ROWS:
            raise ValueError("not a record of this run")
    except ValueError as problem:
        raise _lost(f"a record could not be read ({problem}): {line[:200]!r}") from problem
    return result


async def _upload(runtime: vf.Runtime, stars: Mapping[str, StarFile]) -> None:
    await run_checked(runtime, f"rm -rf {_PLACE} && mkdir -p {_STARS} && chmod 700 {_PLACE}")
    files = ((f"{_STARS}/{star}.npz", BoxFile(read())) for star, read in stars.items())
    await put_files(runtime, files)
    logger.info("%d stars are in box %s", len(stars), runtime.name)


async def _start(runtime: vf.Runtime, limits: Limits, jobs: int) -> None:
    runner = [
        *_ENVIRONMENT,
        *(PYTHON, "-m", "transitbench.runner", "--solution", SOLUTION, "--stars", _STARS),
        *("--box", "--out", _RESULTS, "--jobs", str(jobs)),
        *("--limits", json.dumps(limits.to_json())),
    ]
    # In the end the runner puts a sorted file in place of the one it appended to; the second name keeps
    # the latter, which can be followed by its length.
    script = (
        f": > {_RESULTS} && ln {_RESULTS} {_LIVE} && {{ {shlex.join(runner)} 2> {_LOG}; "
        f"echo $? > {_CODE}.partial; mv {_CODE}.partial {_CODE}; }}"
    )
    await runtime.run_background(["sh", "-c", script], {}, "/dev/null")


async def _follow(
    runtime: vf.Runtime,
    stars: Mapping[str, StarFile],
    done: dict[str, StarResult],
    records: Path,
) -> None:
    """Append records to ``records`` and ``done`` until the runner has ended."""
    loop = asyncio.get_running_loop()
    offset, logged_s = 0, loop.time()
    rest = b""
    with records.open("ab", buffering=0) as log:
        while True:
            script = (
                f"printf '%s\\n' \"$(cat {_CODE} 2>/dev/null)\"; "
                f"tail -c +{offset + 1} {_LIVE} | head -c {READ_BYTES}"
            )
            code, _, text = (await _ask(runtime, script)).partition("\n")
            arrived = text.encode()
            offset += len(arrived)
            *lines, rest = (rest + arrived).split(b"\n")
            for line in lines:
                result = _parse(line, stars)
                if result.star not in done:
                    done[result.star] = result
                    log.write(line + b"\n")
            complete = len(done) == len(stars)
            if loop.time() - logged_s > LOG_EVERY_S or (complete and arrived):
                logged_s = loop.time()
                logger.info("graded %d of %d stars", len(done), len(stars))
            if code and not arrived:
                break
            if not code:
                await asyncio.sleep(POLL_S)
    if code != "0" or len(done) < len(stars):
        said = (await _ask(runtime, f"tail -c 2000 {_LOG}")).strip()
        raise _runner_failed(code, said)


async def _ask(runtime: vf.Runtime, script: str) -> str:
    done = await runtime.run(["sh", "-c", script], {})
    if done.exit_code:
        raise SandboxError(
            f"box {runtime.name} answers with exit code {done.exit_code}: {done.stderr}"
        )
    return done.stdout


def _runner_failed(code: str, said: str) -> TransitBenchError:
    """The runner's own error with its code, or that it vanished."""
    named = re.search(r"(TB-E\d{3}) [^:]*: (.*) → (.*)", said, re.DOTALL)
    if named and named[1] in ERROR_TITLES:
        return TransitBenchError(named[1], f"in the grading box: {named[2]}", named[3])
    return _lost(f"the runner ended with exit code {code}: {said or 'no message'}")
