"""The end of a session: what lies in ``solution/`` becomes an archive, whatever an agent left there.

Only regular files and directories count, up to the limits of :mod:`transitbench.submission`; links and
special files are left out, owners, times and modes dropped. A session that leaves nothing to run is not an
error: it is graded as a submission that says nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from transitbench.submission import ENTRY_POINT, MAX_BYTES, MAX_ENTRIES, submission_digest
from transitbench_env.boxkit import SOLUTION, WORKDIR, BoxFile, tar_of
from transitbench_env.localbox import LocalBox
from transitbench_env.log import logger

FreezeStatus = Literal["ok", "missing", "too_large"]
"""``missing``: no directory with a regular ``solution.py``."""

# Every entry costs a header and padding, whatever it holds.
ARCHIVE_LIMIT_BYTES = MAX_BYTES + 1024 * MAX_ENTRIES + 2**20
PACKING_LIMIT_S = 120.0

# tar's exit code 1 says that a file changed while it was read: the agent's business.
_PACK = f"""\
cd {WORKDIR} || exit 0
[ -L solution ] || chmod -R u+rwX solution 2>/dev/null
exec timeout {PACKING_LIMIT_S:.0f} tar -c --format=pax --ignore-failed-read -f - -- solution 2>/dev/null
"""


@dataclass(frozen=True)
class FrozenSolution:
    """``files`` by relative path; ``digest`` as :func:`submission_digest` gives it, empty unless ``ok``."""

    status: FreezeStatus
    files: Mapping[str, bytes] = field(default_factory=dict)
    digest: str = ""
    n_left_out: int = 0

    def artifact(self) -> bytes | None:
        """Return what is unpacked at the root of a grading box."""
        if self.status != "ok":
            return None
        return tar_of({f"{SOLUTION}/{path}": BoxFile(data) for path, data in self.files.items()})

    def archive(self) -> bytes:
        """Return ``solution.tar.gz``: same files, same bytes."""
        files = {f"solution/{path}": BoxFile(data) for path, data in self.files.items()}
        return gzip.compress(tar_of(files), mtime=0)


async def freeze_solution(runtime: vf.Runtime) -> FrozenSolution:
    """Collect the solution of a session that is over.

    Raises
    ------
    SandboxError
        If the box is gone: that is nobody's score.
    """
    if isinstance(runtime.backend, LocalBox):
        runtime.backend.end_processes()
    process = await runtime.exec(["sh", "-c", _PACK], {})
    archive = bytearray()
    try:
        async with asyncio.timeout(2 * PACKING_LIMIT_S):
            async for chunk in process.stdout:
                archive += chunk
                if len(archive) > ARCHIVE_LIMIT_BYTES:
                    await process.kill()
                    return FrozenSolution("too_large")
            await process.wait()
    except TimeoutError:
        await process.kill()
    if not archive and not await runtime.alive():
        raise SandboxError(f"box {runtime.name} was gone when its solution was to be collected")
    return await asyncio.to_thread(read_solution, bytes(archive))


def read_solution(archive: bytes) -> FrozenSolution:
    """Take the acceptable part of a tar of ``solution``; a torn one counts as far as it goes."""
    files: dict[str, bytes] = {}
    n_left_out = n_entries = n_bytes = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                n_entries += 1
                inside = path.parts[:1] == ("solution",) and ".." not in path.parts
                if member.isdir() and inside:
                    continue
                if not (member.isreg() and inside and len(path.parts) > 1):
                    n_left_out += 1
                    continue
                n_bytes += member.size
                if n_bytes > MAX_BYTES or n_entries > MAX_ENTRIES:
                    return FrozenSolution("too_large")
                content = tar.extractfile(member)
                assert content is not None
                files[str(path.relative_to("solution"))] = content.read()
    except (tarfile.TarError, OSError, ValueError, EOFError) as problem:
        logger.warning("the archive of a solution ends early: %s", problem)
    if ENTRY_POINT not in files:
        return FrozenSolution("missing", n_left_out=n_left_out)
    with tempfile.TemporaryDirectory(prefix="transitbench-frozen-") as scratch:
        _write_solution(Path(scratch), files)
        return FrozenSolution("ok", files, submission_digest(Path(scratch)), n_left_out)


def _write_solution(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write a solution's files below ``directory``."""
    for path, content in files.items():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
