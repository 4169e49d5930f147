"""Where sets, runs and caches live on the grader's machine."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from transitbench.errors import TransitBenchError


def data_dir() -> Path:
    """Return ``$TRANSITBENCH_DATA``, or the user's data folder for TransitBench, created if absent.

    Raises
    ------
    TransitBenchError
        TB-E011 if it cannot be created or written.
    """
    configured = os.environ.get("TRANSITBENCH_DATA")
    path = Path(configured) if configured else Path(platformdirs.user_data_dir("transitbench"))
    return writable_dir(path.absolute())


def writable_dir(path: Path) -> Path:
    """Create ``path`` if absent and return it. Raises TB-E011 if it is no writable directory."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
        reason = "permission denied"
    except OSError as problem:
        writable, reason = False, str(problem)
    if not writable:
        raise TransitBenchError(
            "TB-E011",
            f"expected a writable directory at {path}, got: {reason}",
            "point TRANSITBENCH_DATA (or --out) at a directory that you may write",
        )
    return path


def cache_dir(name: str) -> Path:
    """Return folder ``name`` of ``$TRANSITBENCH_CACHE`` (default: the user's cache folder), created if absent.

    What lies there can be made or fetched again. Raises TB-E011 if it cannot be written.
    """
    configured = os.environ.get("TRANSITBENCH_CACHE")
    path = Path(configured) if configured else Path(platformdirs.user_cache_dir("transitbench"))
    return writable_dir(path.absolute() / name)


def evaluator_secret() -> bytes | None:
    """Return the key that hidden stars are drawn with, ``$TRANSITBENCH_SECRET``; None if unset or empty.

    It belongs in no file, message or process argument.
    """
    return os.environ.get("TRANSITBENCH_SECRET", "").encode("utf-8", "surrogateescape") or None


def sets_dir() -> Path:
    """Return the folder of public sets: one directory a set."""
    return data_dir() / "sets"


def private_dir() -> Path:
    """Return the folder of the evaluator's private sets, created if absent, closed to other users.

    Raises
    ------
    TransitBenchError
        TB-E011 if it cannot be written or closed.
    """
    path = writable_dir(data_dir() / "private")
    if path.stat().st_mode & 0o077:
        try:
            path.chmod(0o700)
        except OSError as problem:
            raise TransitBenchError(
                "TB-E011",
                f"expected {path} to be readable by its owner alone, got: {problem}",
                "let its owner run `chmod 700` on it, or point TRANSITBENCH_DATA at a directory of yours",
            ) from problem
    return path


def runs_dir() -> Path:
    """Return the folder of grading runs."""
    return data_dir() / "runs"
