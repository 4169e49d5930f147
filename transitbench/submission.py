"""A submission on disk: what may be in it, its digest, and the clean copy that grading runs.

The digest covers relative paths and contents, nothing else: no times, owners or permissions, so a
directory keeps its digest through tar, git and copies. Every file counts, ``__pycache__`` and ``.git``
included: what travels is what was digested.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from transitbench.errors import TransitBenchError

MAX_BYTES = 32 * 2**20
MAX_ENTRIES = 10_000
ENTRY_POINT = "solution.py"
# Any constant does; a zip file, where this may end up, cannot hold dates before 1980.
FIXED_MTIME_S = 946_684_800

_KINDS = (
    (stat.S_ISLNK, "symbolic link"),
    (stat.S_ISFIFO, "named pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISBLK, "block device"),
    (stat.S_ISCHR, "character device"),
)


def submission_digest(directory: Path) -> str:
    """Return the sha256 of a submission's tree, after checking that it is acceptable.

    Hashed, for each file in the byte order of its relative path: length of the path, path, length of
    the content, content; lengths are 8 bytes, big-endian.

    Raises
    ------
    TransitBenchError
        TB-E003 if there is no directory or no regular ``solution.py`` in it; TB-E013 if it holds a link
        or special file, an unreadable file, more than 32 MiB, or more than 10,000 entries.
    """
    digest = hashlib.sha256()
    for path, content in _read_tree(directory):
        _digest_file(digest, path, content)
    return digest.hexdigest()


def stage_submission(directory: Path, destination: Path) -> str:
    """Copy a submission to ``destination``, which must not exist, and return its digest.

    Directories get mode 0755, files 0644, everything one fixed modification time. Raises as
    :func:`submission_digest`.
    """
    digest = hashlib.sha256()
    destination.mkdir(parents=True)
    folders = {destination}
    for path, content in _read_tree(directory):
        _digest_file(digest, path, content)
        target = destination / os.fsdecode(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o644)
        os.utime(target, (FIXED_MTIME_S, FIXED_MTIME_S))
        folders.update(p for p in target.parents if p.is_relative_to(destination))
    for folder in folders:
        folder.chmod(0o755)
        os.utime(folder, (FIXED_MTIME_S, FIXED_MTIME_S))
    return digest.hexdigest()


def _digest_file(digest: hashlib._Hash, path: bytes, content: bytes) -> None:
    for part in (path, content):
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)


def _read_tree(directory: Path) -> Iterator[tuple[bytes, bytes]]:
    left = MAX_BYTES
    for path in sorted(_list_files(directory)):
        content = _read_regular(directory / os.fsdecode(path), left)
        left -= len(content)
        yield path, content


def _list_files(directory: Path) -> list[bytes]:
    try:
        root = directory.lstat()
    except OSError as problem:
        raise _missing(f"expected a submission at {directory}, got {problem.strerror}") from problem
    _refuse_special(directory, root.st_mode)
    if not stat.S_ISDIR(root.st_mode):
        raise _missing(f"expected a directory, got the file {directory}")
    files: list[bytes] = []
    n_entries = 0
    folders = [b""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(os.fsencode(directory / os.fsdecode(folder))) as entries:
                for entry in entries:
                    n_entries += 1
                    if n_entries > MAX_ENTRIES:
                        raise _unacceptable(
                            f"{directory} holds more than {MAX_ENTRIES:,} files and directories"
                        )
                    mode = entry.stat(follow_symlinks=False).st_mode
                    _refuse_special(Path(os.fsdecode(entry.path)), mode)
                    path = folder + b"/" + entry.name if folder else entry.name
                    (folders if stat.S_ISDIR(mode) else files).append(path)
        except OSError as problem:
            raise _unacceptable(
                f"cannot read {problem.filename!r}: {problem.strerror}"
            ) from problem
    if ENTRY_POINT.encode() not in files:
        raise _missing(f"{directory} holds no {ENTRY_POINT}")
    return files


def _read_regular(path: Path, left: int) -> bytes:
    # What the listing saw may have been swapped since: never follow a link, never wait for a pipe.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            _refuse_special(path, os.fstat(file.fileno()).st_mode)
            content = file.read(left + 1)
    except OSError as problem:
        raise _unacceptable(f"cannot read {path}: {problem.strerror}") from problem
    if len(content) > left:
        raise _unacceptable(f"more than {MAX_BYTES // 2**20} MiB in all (reached at {path})")
    return content


def _refuse_special(path: Path, mode: int) -> None:
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise _unacceptable(f"{path} is a {name}")


def _missing(what: str) -> TransitBenchError:
    return TransitBenchError("TB-E003", what, f"give the directory that holds {ENTRY_POINT}")


def _unacceptable(what: str) -> TransitBenchError:
    return TransitBenchError(
        "TB-E013", what, "a submission is regular files and directories, at most 32 MiB: remove it"
    )
