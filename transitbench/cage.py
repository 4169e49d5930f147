"""The cage of one star: a process that sees its submission, its star and a Python, and no more.

bubblewrap builds it from namespaces (mount, pid, network, ipc, uts, cgroup) and the kernel keeps it:
``docs/cage.md`` lists what is enforced by what. There are two ways to be nobody in it. Real root has
bubblewrap set up the namespaces and gives its rights away inside with util-linux' ``setpriv``, to a user
id that nobody else has, because the kernel exempts uid 0 from the process limit. Everyone else gets a
user namespace.

The first process of a cage is a shell. It sets the limits that the kernel counts per user, waits at a
gate until the grader has a handle on it, and starts the submission as its child, so that signals treat
the submission like any other process. When it ends, the kernel kills all that is left in the cage. It
keeps root's id where there is one (with hardly a capability): bubblewrap's death must be allowed to kill
it, and the submission must not.

Imports only the standard library: it travels into boxes that hold nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transitbench.bubblewrap import (
    MemoryFiles,
    change_user,
    diagnose,
    draw_first_uid,
    find_bwrap,
    no_sandbox,
    readable_files,
)
from transitbench.errors import TransitBenchError
from transitbench.hostview import REFUSAL, HostView, plan_host_view


@dataclass(frozen=True, slots=True)
class Limits:
    """What one star may use: wall time in seconds, the rest in bytes and processes."""

    wall_s: float = 60.0
    memory_bytes: int = 2 * 2**30
    processes: int = 64
    stdout_bytes: int = 2**20
    stderr_bytes: int = 16 * 2**20
    scratch_bytes: int = 512 * 2**20

    def to_json(self) -> dict[str, Any]:
        """Return the limits as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> Limits:
        """Read what :meth:`to_json` wrote. Raises TB-E016 if it is something else."""
        try:
            limits = cls(**document)
            if any(not isinstance(v, int | float) or not v > 0 for v in asdict(limits).values()):
                raise ValueError("a limit is no positive number")
        except (TypeError, ValueError) as problem:
            raise TransitBenchError(
                "TB-E016",
                f"{document!r} is no set of limits ({problem})",
                "see transitbench.cage.Limits",
            ) from problem
        return limits


SURVEY_LIMITS = Limits()
MINI_LIMITS = Limits(wall_s=20.0)

FIXED_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONNOUSERSITE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TZ": "UTC",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
}

# The gate is standard input, a socket. One line out says that every limit stands and that the kernel
# will kill the cage with its parent; the answer says that the grader is alive and watching. A grader that
# died in between never answers, the read fails, and nothing starts. dash spells -u as -p.
_SHELL = """\
ulimit -c 0 && { ulimit -u "$1" 2>/dev/null || ulimit -p "$1"; } || exit 125
{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null
shift
echo ready >&0 && read -r go || exit 125
exec </dev/null
"$@"
exit $?
"""
_READY, _GO = b"ready\n", b"go\n"

SETUP_LIMIT_S = 30.0

_USER_NAMESPACE_ID = 1000


@dataclass(frozen=True, slots=True)
class Star:
    """A star's file as a cage gets it: its path in the cage, and an open descriptor of its bytes."""

    path: str
    descriptor: int


@dataclass(slots=True)
class CagedProcess:
    """A started cage whose submission waits behind the gate.

    ``process`` is bubblewrap, outside; its only child is the first process inside. Once the gate was
    opened, ``inner_pidfd`` is that child, and ``gate`` is None. All that runs in the cage is below the
    process ``watched_pid``.
    """

    process: subprocess.Popen[bytes]
    gate: socket.socket | None
    watched_pid: int = -1
    inner_pidfd: int = -1

    def open_gate(self) -> bool:
        """Start the submission once the cage says that it is ready; False if it never will be.

        Waits for the cage's word, so call it when the gate is readable.
        """
        assert self.gate is not None
        with self.gate as gate:
            self.gate = None
            try:
                if gate.recv(len(_READY), socket.MSG_WAITALL) != _READY:
                    return False
                # It waits at the gate, so this pid cannot belong to anything else yet.
                inner_pid = int(_children_file(self.process.pid).read_text(encoding="ascii"))
                self.inner_pidfd = os.pidfd_open(inner_pid)
                if self.watched_pid < 0:
                    self.watched_pid = inner_pid
                gate.sendall(_GO)
            except (OSError, ValueError):
                # Somebody killed it since; its exit is about to be seen.
                return False
        return True

    def kill(self) -> None:
        """Kill the first process of the cage; the kernel kills every other process in it.

        bubblewrap stays to collect them, so that ``wait4`` knows what all of them used.
        """
        if self.inner_pidfd < 0:
            self.process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.inner_pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Close the descriptors that belong to the cage itself."""
        if self.gate is not None:
            self.gate.close()
        if self.inner_pidfd >= 0:
            os.close(self.inner_pidfd)


@dataclass(frozen=True, slots=True)
class Cage:
    """How cages are built on this machine; made once by :func:`prepare_cage`, used for many stars.

    ``first_uid`` is the unprivileged user id of slot 0 (slot 1 has the next one, and so on), or None
    where a cage has a user namespace of its own. ``view`` is what it shows of the host.
    """

    bwrap: Path
    first_uid: int | None
    view: HostView
    seccomp: bytes

    kind = "bubblewrap"

    def shows(self, path: Path) -> bool:
        """Tell whether a submission could read the host's ``path``."""
        return self.view.shows(path)

    def admit(self, folder: Path) -> None:
        """Nothing: a cage mounts what it shows."""

    def star_path(self, star: str, slot: int) -> str:
        """Return where the submission finds its star."""
        return f"/data/{star}.npz"

    @property
    def description(self) -> str:
        """One line for people."""
        way = "in user namespaces" if self.first_uid is None else "as root, with unprivileged uids"
        return f"bubblewrap {way} ({self.bwrap})"

    def start(
        self,
        command: Sequence[str],
        solution: Path,
        star: Star | None,
        limits: Limits,
        slot: int,
    ) -> CagedProcess:
        """Start a cage that will run ``command`` in a read-only view of ``solution``.

        Standard output and error are pipes. ``slot`` tells cages that run side by side apart.
        """
        if self.first_uid is None:
            uid = _USER_NAMESPACE_ID
            namespaces = [
                "--unshare-user",
                "--uid",
                str(uid),
                "--gid",
                str(uid),
                "--cap-drop",
                "ALL",
            ]
            drop: list[str] = []
        else:
            uid = self.first_uid + slot
            # A change of user clears the parent-death signal, so it is asked for once more.
            namespaces, drop = change_user(uid, "--no-new-privs", "--pdeathsig", "KILL")
        people = f"solver:x:{uid}:{uid}::/tmp:/bin/sh\n", f"solver:x:{uid}:\n"
        with MemoryFiles() as memory:
            files = {
                "/etc/passwd": memory.add(people[0].encode()),
                "/etc/group": memory.add(people[1].encode()),
            }
            if star is not None:
                files[star.path] = star.descriptor
            files |= {path: memory.add(REFUSAL) for path in self.view.refusals}
            # The scratch comes first: Python may live below the host's /tmp.
            options = [*namespaces, *_NAMESPACES, "--perms", "1777"]
            options += ["--size", str(limits.scratch_bytes), "--tmpfs", "/tmp"]
            options += self.view.options()
            options += ["--ro-bind", str(solution), "/solution", "--chdir", "/solution"]
            options += readable_files(files)
            for folder in (*self.view.covered, Path("/")):
                options += ["--remount-ro", str(folder)]
            options += ["--seccomp", str(memory.add(self.seccomp))]
            arguments = memory.arguments(options)
            # Unless it is root's, the kernel counts the shell as one of the processes.
            countable = limits.processes + (self.first_uid is None)
            shell = ["/bin/sh", "-c", _SHELL, "sh", str(countable)]
            ours, theirs = socket.socketpair()
            memory.callback(theirs.close)
            try:
                process = subprocess.Popen(
                    [str(self.bwrap), *arguments, *shell, *drop, *command],
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=[*files.values(), *memory.descriptors],
                    bufsize=0,
                    env={},
                    cwd="/",
                )
            except BaseException:
                ours.close()
                raise
        return CagedProcess(process, ours)


_NAMESPACES = (
    *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "cage", "--new-session", "--die-with-parent", "--as-pid-1", "--clearenv"),
    *(word for name, value in FIXED_ENVIRONMENT.items() for word in ("--setenv", name, value)),
    *("--setenv", "HOME", "/tmp", "--setenv", "TMPDIR", "/tmp"),
    *("--proc", "/proc", "--tmpfs", "/dev"),
    *(
        word
        for name in ("null", "zero", "full", "random", "urandom")
        for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    ),
    *("--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/proc/self/fd/0", "/dev/stdin"),
    *("--symlink", "/proc/self/fd/1", "/dev/stdout", "--symlink", "/proc/self/fd/2", "/dev/stderr"),
    # POSIX shared memory and semaphores work, out of the same allowance as the rest of the scratch.
    *("--symlink", "/tmp", "/dev/shm", "--remount-ro", "/dev"),
)


def prepare_cage() -> Cage:
    """Find out how cages are built here, and prove it by starting one.

    Raises
    ------
    TransitBenchError
        TB-E004 if no cage can be started; the hint names what to install or change.
    """
    if sys.platform != "linux":
        raise no_sandbox(
            f"this is {sys.platform}", "use a Linux machine, virtual machine or container"
        )
    if not _children_file(os.getpid()).exists():
        raise no_sandbox(
            f"{_children_file(os.getpid())} is missing, so memory cannot be watched",
            "mount /proc, or use a kernel with CONFIG_PROC_CHILDREN (those of distributions have it)",
        )
    cage = Cage(
        find_bwrap(), draw_first_uid(), plan_host_view(), seccomp_program(platform.machine())
    )
    with tempfile.TemporaryDirectory(prefix="transitbench-probe-") as empty:
        failure = try_out(cage.start(PROBE, Path(empty), None, Limits(), slot=0))
    if failure is not None:
        raise no_sandbox(
            f"{cage.description} failed: {failure}",
            diagnose(failure, user_namespace=cage.first_uid is None),
        )
    return cage


def probe_cage() -> str:
    """Start a cage and say in a line how it is built. Raises as :func:`prepare_cage`."""
    return prepare_cage().description


PROBE = (sys.executable, "-c", "print(6 * 7)")
"""What a cage has to run to prove itself."""


def try_out(caged: CagedProcess) -> str | None:
    """See a started cage run :data:`PROBE`; what went wrong, or None."""
    try:
        assert caged.gate is not None
        caged.gate.settimeout(SETUP_LIMIT_S)
        caged.open_gate()
        stdout, stderr = caged.process.communicate(timeout=SETUP_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"it did not answer ({problem})"
    finally:
        caged.kill()
        caged.process.wait()
        caged.close()
    if stdout == b"42\n":
        return None
    return stderr.decode(errors="replace").strip() or f"exit code {caged.process.returncode}"


def _children_file(pid: int) -> Path:
    return Path(f"/proc/{pid}/task/{pid}/children")


# System calls by (number on x86_64, number on aarch64).
_WITHOUT_NEED = {
    # Other ways to a namespace, or to memory that no watcher of resident pages sees.
    "setns": (308, 268),
    "shmget": (29, 194),
    # One core is one core.
    "sched_setaffinity": (203, 122),
    # Large parts of the kernel that a planet search does not need.
    "ptrace": (101, 117),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
# These answer "not implemented", upon which libraries fall back to an older call.
_AS_IF_OLD_KERNEL = {"clone3": (435, 435), "memfd_create": (319, 279), "memfd_secret": (447, 447)}
_SHARED_WITH_OTHERS = {"msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180)}
_SOCKET = (41, 198)
_MAKES_NAMESPACES = {"clone": (56, 220), "unshare": (272, 97)}
_AUDIT_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}


def seccomp_program(machine: str, *, local_sockets_only: bool = False) -> bytes:
    """Return the filter of system calls, in the kernel's classic BPF (linux/seccomp.h).

    ``local_sockets_only`` is for where no namespace keeps a process from the network and from the keys of
    other processes. Raises TB-E004 for an unknown processor.
    """
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, fail = 0x7FFF0000, 0x80000000, 0x00050000
    number_at, architecture_at, first_argument_at = 0, 4, 16
    clone_newuser, x32_calls = 0x10000000, 0x40000000
    if machine not in _AUDIT_ARCHITECTURES:
        known = " or ".join(_AUDIT_ARCHITECTURES)
        raise no_sandbox(f"this is a {machine} processor", f"cages know {known}: use one of these")
    architecture, column = _AUDIT_ARCHITECTURES[machine]

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("=HBBI", code, if_true, if_false, value)

    program = [
        step(load, architecture_at),
        step(equal, architecture, 1, 0),
        step(give, kill),
        step(load, number_at),
        step(at_least, x32_calls, 0, 1),
        step(give, kill),
    ]
    refused = [(_WITHOUT_NEED, errno.EPERM), (_AS_IF_OLD_KERNEL, errno.ENOSYS)]
    if local_sockets_only:
        refused.append((_SHARED_WITH_OTHERS, errno.EPERM))
        program += [
            step(equal, _SOCKET[column], 0, 4),
            step(load, first_argument_at),
            step(equal, socket.AF_UNIX, 1, 0),
            step(give, fail | errno.EACCES),
            step(give, allow),
        ]
    for calls, error in refused:
        for numbers in calls.values():
            program += [step(equal, numbers[column], 0, 1), step(give, fail | error)]
    for numbers in _MAKES_NAMESPACES.values():
        program += [
            step(equal, numbers[column], 0, 4),
            step(load, first_argument_at),
            step(any_bit, clone_newuser, 0, 1),
            step(give, fail | errno.EPERM),
            step(give, allow),
        ]
    program.append(step(give, allow))
    return b"".join(program)
