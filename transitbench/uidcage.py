"""The cage for a grading box in which bubblewrap cannot run: a user of its own for every star at work.

A container that Docker starts by default may make no namespaces. What is left is what separates users:
each star runs under an unprivileged user id, without capabilities, behind the filter of system calls that
the other cages have, which here also refuses every socket but local ones. A supervisor of root's, one a
star, starts the submission, collects every process that it left, kills them, and removes every file of that
user. It is for boxes that are thrown away: the submission can read what everybody can read there.

Imports only the standard library: it travels into boxes that hold nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transitbench.bubblewrap import draw_first_uid, no_sandbox
from transitbench.cage import (
    FIXED_ENVIRONMENT,
    PROBE,
    CagedProcess,
    Limits,
    Star,
    seccomp_program,
    try_out,
)

# Descriptor 0 of both processes is the gate. The supervisor is the reaper of every orphan below it, so
# that what a submission leaves behind is found by the list of its children.
_SUPERVISOR = """\
import ctypes, json, os, pathlib, resource, shutil, signal, struct, sys, time

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2
libc = ctypes.CDLL(None)
prctl = libc.prctl
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
order = json.loads(sys.argv[1])
uid = order["uid"]


def demand(*arguments):
    if prctl(*arguments, *[0] * (5 - len(arguments))) != 0:
        os._exit(125)


def submission():
    os.setsid()
    for kind, limit in order["limits"].items():
        resource.setrlimit(getattr(resource, kind), (limit, limit))
    for capability in range(64):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # What is left is inheritable only; version 3 of the call has two words of each set.
    libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))
    # A change of user clears it.
    demand(PR_SET_PDEATHSIG, signal.SIGKILL)
    demand(PR_SET_NO_NEW_PRIVS, 1)
    steps = bytes.fromhex(order["seccomp"])
    program = ctypes.create_string_buffer(steps, len(steps))
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps) // 8, ctypes.addressof(program)))
    os.write(0, b"ready\\n")
    if os.read(0, 3) != b"go\\n":
        os._exit(125)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    os.chdir(order["cwd"])
    # Descriptors of the grader's end here: what it passed on was for the supervisor.
    os.closerange(3, 4096)
    demand(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(fprog))
    os.execve(order["command"][0], order["command"], order["environment"])


def of_the_user():
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if folder.stat().st_uid == uid or f"\\t{uid}\\t" in (folder / "status").read_text():
                    yield int(folder.name)
            except OSError:
                continue


def collect():
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def sweep():
    while left := [pid for pid in of_the_user() if pathlib.Path(f"/proc/{pid}/stat").exists()]:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        collect()
        time.sleep(0.002)
    for folder in order["writable"]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.stat(follow_symlinks=False).st_uid != uid:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
            except FileNotFoundError:
                # Another star's, whose supervisor was here in between.
                continue
    for folder in order["folders"]:
        shutil.rmtree(folder, ignore_errors=True)


demand(PR_SET_PDEATHSIG, signal.SIGKILL)
demand(PR_SET_CHILD_SUBREAPER, 1)
if os.getppid() != order["parent"]:
    os._exit(125)
child = os.fork()
if child == 0:
    try:
        submission()
    finally:
        os._exit(125)
os.close(0)
os.close(1)
while True:
    pid, status = os.wait()
    if pid == child:
        break
sweep()
code = os.waitstatus_to_exitcode(status)
os._exit(128 - code if code < 0 else code)
"""


DEEPEST = 3
"""Levels of directories that are searched for such as everybody may write in: images have none below."""


@dataclass(frozen=True, slots=True)
class UidCage:
    """How a grading box without namespaces cages stars; made by :func:`prepare_uid_cage`.

    ``writable`` are the directories of the box in which every user can make files.
    """

    first_uid: int
    seccomp: bytes
    writable: tuple[str, ...]
    area: Path

    kind = "unprivileged uids"

    @property
    def description(self) -> str:
        """One line for people."""
        return f"unprivileged user ids from {self.first_uid} on, no namespaces"

    def shows(self, path: Path) -> bool:
        """Tell whether an unprivileged user could read the box's ``path``."""
        resolved = path.resolve()
        return all(
            folder.stat().st_mode & stat.S_IXOTH for folder in resolved.parents if folder.exists()
        )

    def admit(self, folder: Path) -> None:
        """Let submissions pass through a folder of the grader's to what is readable in it."""
        folder.chmod(0o711)

    def star_path(self, star: str, slot: int) -> str:
        """Return where the submission finds its star."""
        return str(self.area / f"{slot}-data" / f"{star}.npz")

    def start(
        self,
        command: Sequence[str],
        solution: Path,
        star: Star | None,
        limits: Limits,
        slot: int,
    ) -> CagedProcess:
        """Start the supervisor of a star, as :meth:`transitbench.cage.Cage.start` starts a cage."""
        uid = self.first_uid + slot
        home, data = self.area / str(slot), self.area / f"{slot}-data"
        for folder, mode in ((home, 0o700), (data, 0o711)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            folder.chmod(mode)
        os.chown(home, uid, uid)
        if star is not None:
            file = Path(star.path)
            with os.fdopen(os.dup(star.descriptor), "rb") as source:
                source.seek(0)
                file.write_bytes(source.read())
            # It can read its star and no other one, and change neither.
            os.chown(file, 0, uid)
            file.chmod(0o440)
        order = {
            "uid": uid,
            "folders": [str(home), str(data)],
            "parent": os.getpid(),
            "cwd": str(solution),
            "command": command,
            "environment": {**FIXED_ENVIRONMENT, "HOME": str(home), "TMPDIR": str(home)},
            "limits": {
                "RLIMIT_NPROC": limits.processes,
                "RLIMIT_CORE": 0,
                "RLIMIT_FSIZE": limits.scratch_bytes,
            },
            "seccomp": self.seccomp.hex(),
            "writable": self.writable,
        }
        ours, theirs = socket.socketpair()
        with contextlib.closing(theirs):
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _SUPERVISOR, json.dumps(order)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    bufsize=0,
                    env={},
                    cwd="/",
                )
            except BaseException:
                ours.close()
                raise
        return CagedProcess(process, ours, watched_pid=process.pid)


def prepare_uid_cage() -> UidCage:
    """Find out how stars are caged without namespaces here, and prove it by starting one.

    Raises TB-E004 for who is not root, or if it does not work.
    """
    first_uid = draw_first_uid()
    if first_uid is None:
        raise no_sandbox("only root can run stars as other users", "run the box as root")
    seccomp = seccomp_program(platform.machine(), local_sockets_only=True)
    area = Path(tempfile.mkdtemp(prefix="transitbench-uids-"))
    area.chmod(0o711)
    cage = UidCage(first_uid, seccomp, _writable_folders(), area)
    empty = area / "empty"
    empty.mkdir()
    empty.chmod(0o755)
    failure = try_out(cage.start(PROBE, empty, None, Limits(), slot=0))
    if failure is not None:
        raise no_sandbox(
            f"{cage.description} failed: {failure}",
            "the box needs the capabilities that Docker gives by default",
        )
    return cage


def _writable_folders() -> tuple[str, ...]:
    """Return the directories in which an unprivileged user can make files."""
    found: list[str] = []
    for folder, below, _ in os.walk("/"):
        if folder == "/":
            below[:] = [name for name in below if name not in ("proc", "sys")]
        if folder.count("/") >= DEEPEST:
            below.clear()
        with contextlib.suppress(OSError):
            if Path(folder).stat().st_mode & stat.S_IWOTH:
                found.append(folder)
    return tuple(found)
