"""Whatever an agent leaves in ``solution/``: what becomes of it, and that collecting it never fails or hangs."""

from __future__ import annotations

import asyncio
import io
import tarfile
from pathlib import Path

import pytest
from sandbox import needs_sandbox
from sessions import RememberedBox
from verifiers.v1.errors import SandboxError

from transitbench.submission import submission_digest
from transitbench_env import localbox
from transitbench_env.freeze import FrozenSolution, freeze_solution, read_solution
from transitbench_env.localbox import LocalBoxConfig


def frozen_after(script: str) -> FrozenSolution:
    """Freeze what a script leaves in the workspace of a box."""

    async def life() -> FrozenSolution:
        box = RememberedBox(LocalBoxConfig(allow=[], disk=0.2))
        await box.start()
        try:
            runtime = box.bind()
            await runtime.write("/workspace/solution/solution.py", b"print('1,2,3')\n")
            await runtime.write("/workspace/solution/tables/a.csv", b"1,2\n")
            done = await runtime.run(["bash", "-c", script], {})
            assert done.exit_code == 0, done.stderr
            async with asyncio.timeout(60):
                return await freeze_solution(runtime)
        finally:
            await box.stop()

    return asyncio.run(life())


@pytest.fixture(autouse=True)
def private_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(localbox, "PROCESSES", 200)


STORM = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except OSError:
        time.sleep(1000)
"""
BOTH = {"solution.py", "tables/a.csv"}
CASES = {
    "untouched": ("true", "ok", BOTH, 0),
    "missing": ("rm -r solution", "missing", set(), 0),
    "a file": ("rm -r solution; echo > solution", "missing", set(), 1),
    "a link to the root": ("mv solution x; ln -s / solution", "missing", set(), 1),
    "a link to a copy": ("mv solution x; ln -s x solution", "missing", set(), 1),
    "a fifo": ("rm -r solution; mkfifo solution", "missing", set(), 1),
    "solution.py is a link": (
        "mv solution/solution.py /tmp; ln -s /tmp/solution.py solution",
        "missing",
        set(),
        1,
    ),
    "solution.py is a directory": (
        "rm solution/solution.py; mkdir solution/solution.py",
        "missing",
        set(),
        0,
    ),
    "fifos and links inside": (
        "mkfifo solution/f; ln -s /etc/passwd solution/l; ln solution/tables/a.csv solution/hard",
        "ok",
        None,
        None,
    ),
    "without permissions": (
        "chmod 000 solution/tables/a.csv solution/tables solution",
        "ok",
        BOTH,
        0,
    ),
    "odd names": (
        "echo 1 > 'solution/-rf'; echo 2 > $'solution/new\\nline'; echo 3 > $'solution/\\xff\\xfe'",
        "ok",
        {*BOTH, "-rf", "new\nline", "\udcff\udcfe"},
        0,
    ),
    "too large": ("head -c 34000000 /dev/zero > solution/big", "too_large", set(), 0),
    "sparse": ("truncate -s 1T solution/big", "too_large", set(), 0),
    "many files": ("cd solution; seq 20000 | xargs touch", "too_large", set(), 0),
    "full disk": (
        "cat /dev/zero > fill 2>/dev/null; cat /dev/zero > /tmp/fill 2>/dev/null; true",
        "ok",
        BOTH,
        0,
    ),
    "rewritten all the time": (
        "setsid bash -c 'while true; do date >> solution/tables/log; done' > /dev/null 2>&1 &",
        "ok",
        None,
        0,
    ),
    "no process left to start": (
        # bash itself would wait and try again.
        f"python3 -c '{STORM}' > /dev/null 2>&1 & sleep 1",
        "ok",
        BOTH,
        0,
    ),
}


@needs_sandbox
@pytest.mark.parametrize("case", CASES)
def test_what_an_agent_leaves(case: str, tmp_path: Path) -> None:
    script, status, files, n_left_out = CASES[case]
    frozen = frozen_after(script)
    assert frozen.status == status
    if files is not None:
        assert set(frozen.files) == files
    if n_left_out is not None:
        assert frozen.n_left_out == n_left_out
    with tarfile.open(fileobj=io.BytesIO(frozen.archive())) as archive:
        assert all(member.isreg() for member in archive)
        archive.extractall(tmp_path, filter="data")
    if status == "ok":
        assert submission_digest(tmp_path / "solution") == frozen.digest
        assert frozen.artifact() is not None
    else:
        assert (frozen.digest, frozen.artifact()) == ("", None)


@needs_sandbox
def test_links_and_fifos_are_left_out_and_the_rest_is_kept() -> None:
    frozen = frozen_after(CASES["fifos and links inside"][0])
    # Of the two names of one file, tar calls the second a link.
    assert set(frozen.files) >= BOTH or {"solution.py", "hard"} <= set(frozen.files)
    assert frozen.n_left_out == 3
    assert "l" not in frozen.files


def test_same_files_same_archive() -> None:
    first, second = (
        FrozenSolution("ok", files, "d")
        for files in ({"a": b"1", "b/c": b"2"}, {"b/c": b"2", "a": b"1"})
    )
    assert first.archive() == second.archive()
    assert first.artifact() == second.artifact()


@pytest.mark.parametrize(
    "name", ["../solution/solution.py", "/etc/passwd", "other/solution.py", "solution/../x"]
)
def test_members_outside_are_left_out(name: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in (name, "solution/solution.py"):
            archive.addfile(tarfile.TarInfo(path), io.BytesIO())
    frozen = read_solution(buffer.getvalue())
    assert (frozen.status, set(frozen.files), frozen.n_left_out) == ("ok", {"solution.py"}, 1)


def test_a_torn_archive_counts_as_far_as_it_goes() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, size in (("solution/solution.py", 10), ("solution/z", 100_000)):
            member = tarfile.TarInfo(path)
            member.size = size
            archive.addfile(member, io.BytesIO(b"x" * size))
    assert set(read_solution(buffer.getvalue()[:5000]).files) == {"solution.py"}
    assert read_solution(b"").status == "missing"
    assert read_solution(b"garbage" * 1000).status == "missing"


@needs_sandbox
def test_a_box_that_is_gone_is_nobodys_score() -> None:
    async def life() -> None:
        box = RememberedBox(LocalBoxConfig(allow=[], disk=0.1))
        await box.start()
        try:
            box.destroy()
            with pytest.raises(SandboxError):
                await freeze_solution(box.bind())
        finally:
            await box.stop()

    asyncio.run(life())
