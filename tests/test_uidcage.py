"""The cage of boxes without namespaces: the same attacks, the same statuses, nothing left behind."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from graders import (
    DEFAULTS,
    Grader,
    attack,
    first_python_of_all,
    processes_with,
    seed_that_starts_with,
)
from hostile import HOSTILE, ROW, Hostile

from transitbench.cage import Limits
from transitbench.runner import StarResult

PYTHON = first_python_of_all()
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run stars as other users"),
    pytest.mark.skipif(PYTHON is None, reason="no Python >= 3.11 outside home directories"),
]

# A default container's capabilities, and no namespaces.
CAPABILITIES = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,setfcap,mknod,sys_chroot"
)


@pytest.fixture
def grader() -> Iterator[Grader]:
    assert PYTHON is not None
    with tempfile.TemporaryDirectory(prefix="transitbench-test-") as name:
        keep = ",".join(f"+{capability}" for capability in CAPABILITIES.split(","))
        bounded = ["setpriv", f"--bounding-set=-all,{keep}", f"--inh-caps=-all,{keep}", PYTHON]
        box = Grader(Path(name).resolve(), bounded, ("--box",))
        bwrap = box.folder / "bin" / "bwrap"
        bwrap.unlink()
        bwrap.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
        bwrap.chmod(0o755)
        box.folder.chmod(0o755)
        yield box


def run(
    grader: Grader, code: str, stars: list[str], limits: Limits = DEFAULTS
) -> dict[str, StarResult]:
    """Grade the stars, the first one first, in folders that nobody else may enter."""
    (grader.folder / "out").chmod(0o700)
    others_may = os.umask(0o077)
    try:
        runner = grader.start(code, stars, limits, seed_that_starts_with(stars[0], stars))
    finally:
        os.umask(others_may)
    _, message = runner.communicate(timeout=60)
    assert (runner.returncode, message) == (0, b"")
    return grader.read()


# What it takes a namespace to prevent or to look the same; the tests below look at what is kept all the same.
NAMESPACES_ONLY = {
    "reads_proc",
    "reads_the_host",
    "reads_another_star",
    "writes_everywhere",
    "writes_2_gib_and_catches",
    "finds_what_an_earlier_star_left",
    "looks_at_its_rights",
    "shares_memory_with_children",
}


@pytest.mark.parametrize(
    "hostile",
    [hostile for hostile in HOSTILE if hostile.name not in NAMESPACES_ONLY],
    ids=lambda hostile: hostile.name,
)
def test_hostile_submission_gets_its_status_and_touches_nothing(
    hostile: Hostile,
    grader: Grader,
    host_port: int,
) -> None:
    token = f"h{uuid.uuid4().hex}"
    code = attack(hostile, token, host_port, [grader.results, grader.folder / "stars"])
    limits = replace(DEFAULTS, **hostile.limits)
    stars = [token, f"{token}-next"]
    records = run(grader, code, stars, limits)
    bad, following = records[token], records[f"{token}-next"]
    assert (bad.status, bad.exit_code) == (hostile.status, hostile.exit_code), bad
    assert bad.rows == hostile.rows, bad.stderr_tail
    assert (following.status, following.rows) == ("ok", ROW), following
    assert processes_with(token) == []
    assert [path.name for path in (grader.folder / "out").iterdir()] == ["grade.jsonl"]
    assert not list(Path("/").glob("transitbench-hostile*"))


LOOKS = """
import os, pathlib, subprocess, sys
mark = "@TOKEN@"
def found(what): print("1,1,1"); print("FOUND", what, file=sys.stderr)
folders = ["/tmp", "/var/tmp", "/dev/shm", "/run/lock", os.environ["HOME"]]
if "next" not in sys.argv[1]:
    for folder in folders:
        try:
            pathlib.Path(folder, mark + "-d", "deep").mkdir(parents=True)
            pathlib.Path(folder, mark).write_text(mark)
            os.symlink("/etc/passwd", pathlib.Path(folder, mark + "-l"))
        except OSError as problem:
            print(folder, problem, file=sys.stderr)
    code = "import signal, time; [signal.signal(s, signal.SIG_IGN) for s in (1, 2, 15)]; time.sleep(1000)"
    for _ in range(3):
        subprocess.Popen([sys.executable, "-c", code, mark], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: pathlib.Path("/tmp", mark + "-again").write_text(mark)
    sys.exit()
for folder in folders:
    found_there = [name for name in os.listdir(folder) if mark in name and not name.endswith(".npz")]
    if found_there: found(found_there)
for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        if process.parent.stat().st_uid == os.getuid() and int(process.parent.name) != os.getpid(): found(process)
    except OSError: pass
"""

TRIES = """
import ctypes, os, pathlib, sys
def found(what): print("1,1,1"); print("FOUND", what, file=sys.stderr)
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16): found(name)
if 0 in os.getresuid() + os.getresgid() or os.getgroups() not in ([], [os.getgid()]): found("root")
if status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2": found("seccomp")
area = pathlib.Path(sys.argv[1]).parent.parent
for path in [area, *@SECRETS@, f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/fd", "/proc/1/environ"]:
    try: found((path, os.listdir(path) if os.path.isdir(path) else open(path, "rb").read()))
    except OSError: pass
for path in (sys.argv[1], "solution.py", "solution-2.py", "/etc/passwd"):
    try:
        with open(path, "ab"): found(path)
    except OSError: pass
libc = ctypes.CDLL(None)
for call in (lambda: libc.msgget(0, 0o1600), lambda: libc.semget(0, 1, 0o1600), lambda: libc.shmget(0, 1 << 20, 0o1600)):
    if call() >= 0: found("ipc")
for pid in (os.getppid(), 1):
    try: os.kill(pid, 9); found(pid)
    except OSError: pass
"""


def test_nothing_is_left_for_the_next_star(grader: Grader) -> None:
    token = f"h{uuid.uuid4().hex}"
    first, following = f"{token}", f"{token}-next"
    records = run(grader, LOOKS.replace("@TOKEN@", token), [first, following])
    assert records[first].status == "ok"
    assert (records[following].status, records[following].rows) == ("ok", ()), records[following]
    assert processes_with(token) == []
    assert not list(Path("/tmp").glob(f"{token}*"))


def test_rights_of_the_user(grader: Grader) -> None:
    code = TRIES.replace("@SECRETS@", repr([str(grader.results), str(grader.folder / "stars")]))
    (record,) = run(grader, code, ["s1"]).values()
    assert (record.status, record.rows, record.stderr_tail) == ("ok", (), "")


def test_who_did_not_say_that_it_is_a_box_gets_no_weaker_cage(grader: Grader) -> None:
    grader.options = ()
    runner = grader.start("print('1,2,3')", ["s1"])
    _, message = runner.communicate(timeout=60)
    assert runner.returncode == 2
    assert b"TB-E004" in message
