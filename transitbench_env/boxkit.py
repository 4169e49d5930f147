"""What is put into a box besides stars: part of the library, Python packages, the shell with its limit.

The library in a box is what judges and runs, never what makes stars: the recipe of a simulated set would
be its answer key.
"""

from __future__ import annotations

import asyncio
import io
import json
import shlex
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath

import verifiers.v1 as vf

import transitbench
from transitbench.bubblewrap import no_sandbox
from transitbench.errors import TransitBenchError
from transitbench.grading import RECORDED_PACKAGES, Machine
from transitbench.submission import FIXED_MTIME_S
from transitbench_env.images import BOX_REQUIREMENTS, MARKER, requirements_digest
from transitbench_env.localbox import LocalBox
from transitbench_env.log import logger

WORKDIR = "/workspace"
SOLUTION = f"{WORKDIR}/solution"
ROOT = "/opt/transitbench"
LIBRARY = f"{ROOT}/lib"
PYTHON = "python3"
UPLOAD_BYTES = 32 * 2**20
"""Size from which on an archive of files travels, and the next one is begun."""

RUNNER_MODULES = (
    "__init__",
    "errors",
    "submission",
    "bubblewrap",
    "hostview",
    "cage",
    "uidcage",
    "runner",
)
"""What grading boxes get: standard library only."""

DEV_MODULES = (
    *RUNNER_MODULES,
    "bootstrap",
    "ephemeris",
    "lightcurve",
    "match",
    "rows",
    "score",
    "truth",
)
"""What ``run_dev.py`` needs in an agent's box."""

_PROBE = """\
import importlib.metadata, json, os, platform, sys
versions = {"python": platform.python_version()}
for name in sys.argv[1:]:
    try:
        versions[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
cores = len(os.sched_getaffinity(0))
print(json.dumps({"versions": versions, "platform": platform.platform(), "cores": cores}))
"""


@dataclass(frozen=True)
class BoxFile:
    """A file to be put into a box."""

    content: bytes
    mode: int = 0o644


def library_files(modules: Iterable[str]) -> Iterator[tuple[str, BoxFile]]:
    """Yield modules of ``transitbench`` with their path in a box."""
    package = resources.files(transitbench)
    for module in modules:
        source = package.joinpath(f"{module}.py").read_bytes()
        yield f"{LIBRARY}/transitbench/{module}.py", BoxFile(source, 0o444)


def tar_of(files: Mapping[str, BoxFile]) -> bytes:
    """Return files as an archive to be unpacked at the root: same files, same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, file in sorted(files.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode, member.mtime = len(file.content), file.mode, FIXED_MTIME_S
            archive.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()


async def run_checked(runtime: vf.Runtime, script: str) -> str:
    """Run a shell script of the trusted setup; its output. Raises RuntimeError with what it said."""
    done = await runtime.run(["sh", "-c", script], {})
    if done.exit_code:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise RuntimeError(f"`{script}` failed in the box with exit code {done.exit_code}: {said}")
    return done.stdout


async def put_files(runtime: vf.Runtime, files: Iterable[tuple[str, BoxFile]]) -> None:
    """Put files into the box, replacing what is there; they are asked for as they travel."""
    coming = iter(files)
    while batch := await asyncio.to_thread(_next_batch, coming):
        await _unpack(runtime, batch)


def _next_batch(coming: Iterator[tuple[str, BoxFile]]) -> dict[str, BoxFile]:
    batch: dict[str, BoxFile] = {}
    size = 0
    for path, file in coming:
        batch[path] = file
        size += len(file.content)
        if size > UPLOAD_BYTES:
            break
    return batch


async def _unpack(runtime: vf.Runtime, files: Mapping[str, BoxFile]) -> None:
    path = f"{ROOT}/.incoming.tar"
    await runtime.write(path, tar_of(files))
    folders = sorted({str(PurePosixPath(name).parent) for name in files})
    # Made beforehand: tar would give directories that are there the archive's owner and mode.
    await run_checked(
        runtime,
        f"mkdir -p -- {shlex.join(folders)} && tar -xf {path} -C / --no-same-owner"
        f" --no-overwrite-dir && rm -f {path}",
    )


async def examine(runtime: vf.Runtime) -> Machine:
    """Ask the box for its Python, packages, platform and cores; packages that it lacks are left out."""
    done = await runtime.run([PYTHON, "-c", _PROBE, *RECORDED_PACKAGES], {})
    if done.exit_code:
        raise no_sandbox(
            f"the box has no working {PYTHON}: {done.stderr.strip()[-500:]}",
            "use an image with Python 3.11 or newer",
        )
    facts = json.loads(done.stdout)
    return Machine(facts["versions"], facts["platform"], facts["cores"])


async def provide_packages(runtime: vf.Runtime) -> Machine:
    """Install the pinned requirements unless the box has them; what the box has then.

    A prebuilt image has a marker; a local box has the host's packages.
    """
    marker = (await runtime.run(["cat", MARKER], {})).stdout.split()
    machine = await examine(runtime)
    if marker[:1] == [requirements_digest()] or not lacking(machine):
        return machine
    if isinstance(runtime.backend, LocalBox):
        raise _incomplete(machine, "install transitbench with its dependencies into this Python")
    logger.info("installing the pinned packages in %s", runtime.name)
    path = f"{ROOT}/{BOX_REQUIREMENTS.name}"
    await runtime.write(path, BOX_REQUIREMENTS.read_bytes())
    await run_checked(
        runtime, f"{PYTHON} -m pip install --quiet --no-input --require-hashes -r {path}"
    )
    machine = await examine(runtime)
    if lacking(machine):
        raise _incomplete(machine, "build the image anew")
    return machine


def _incomplete(machine: Machine, hint: str) -> TransitBenchError:
    return no_sandbox(f"the box lacks {', '.join(lacking(machine))}", hint)


def lacking(machine: Machine) -> list[str]:
    """Return which of the packages that a submission may use are not there."""
    return [name for name in RECORDED_PACKAGES if name not in machine.versions]


async def limit_shell(runtime: vf.Runtime, limit_s: float) -> None:
    """Put a ``bash`` that ends after ``limit_s`` before the real one in the box's search path."""
    program = resources.files("transitbench_env.inside").joinpath("bash.py").read_bytes()
    script = f"{ROOT}/bash.py"
    # A shell within a shell is not limited once more: it may be a job that was sent to the background.
    shim = (
        '#!/bin/sh\n[ -n "$LIMITED_SHELL" ] && exec /bin/bash "$@"\n'
        f'LIMITED_SHELL=1 exec {PYTHON} -I -S {script} {limit_s:g} "$@"\n'
    )
    await put_files(
        runtime,
        [(script, BoxFile(program, 0o444)), (f"{ROOT}/bash", BoxFile(shim.encode(), 0o555))],
    )
    await run_checked(
        runtime,
        'IFS=:; for folder in $PATH; do mkdir -p "$folder" 2>/dev/null; '
        f'if [ -w "$folder" ]; then cp -p {ROOT}/bash "$folder/bash"; exit; fi; done; '
        "echo no folder of PATH can be written >&2; exit 1",
    )
