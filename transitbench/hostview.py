"""What of the host a sandbox shows: the system's programs and libraries, a Python, and no more.

Two kinds of sandbox use it: the cage of a star, and the box that an agent works in. In neither may this
package be read, nor the checkout it may lie in: it holds the recipe of the answers.

Imports only the standard library: it travels into boxes that hold nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PRIVATE_PACKAGES = (
    "transitbench",
    "transitbench_env",
    "transitbench_survey",
    "transitbench_mini",
    "astrobench",
    "astro_bench",
)
"""Packages that hold the recipe of the answers, or name it."""

REFUSAL = b"raise ImportError('not in a sandbox')\n"
"""``__init__.py`` of a covered package: an empty directory would be imported as a namespace package."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One step of building the view: ``source`` is a host path to ``bind``, or a ``symlink``'s target."""

    kind: Literal["bind", "symlink", "dir", "cover", "blank"]
    path: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class HostView:
    """``mounts`` in the order in which they are made, and what they come to.

    ``visible`` are the host's directories that are shown, ``covered`` those below them that are replaced
    by empty ones.
    """

    mounts: tuple[Mount, ...]
    visible: tuple[Path, ...]
    covered: tuple[Path, ...]

    def shows(self, path: Path) -> bool:
        """Tell whether the host's ``path`` can be read in the sandbox."""
        resolved = path.resolve()
        above = [f for f in (*self.visible, *self.covered) if resolved.is_relative_to(f)]
        return bool(above) and max(above, key=lambda folder: len(folder.parts)) in self.visible

    @property
    def refusals(self) -> tuple[str, ...]:
        """Files that have to hold :data:`REFUSAL`."""
        return tuple(
            f"{folder}/__init__.py" for folder in self.covered if folder.name in PRIVATE_PACKAGES
        )

    def options(self, source: Callable[[str], str] = str) -> list[str]:
        """Return bubblewrap's options; ``source`` says where bubblewrap finds what lies at a host path."""
        options: list[str] = []
        for mount in self.mounts:
            if mount.kind == "bind":
                options += ["--ro-bind", source(mount.source), mount.path]
            elif mount.kind == "symlink":
                options += ["--symlink", mount.source, mount.path]
            elif mount.kind == "dir":
                # Parents that bubblewrap makes by itself are closed to an unprivileged user.
                options += ["--perms", "0755", "--dir", mount.path]
            elif mount.kind == "cover":
                options += ["--size", "4096", "--tmpfs", mount.path]
            else:
                options += ["--ro-bind", "/dev/null", mount.path]
        return options


def plan_host_view() -> HostView:
    """Find what this host has to show."""
    mounts: list[Mount] = []
    shown: set[Path] = set()
    # Not /usr/src, where container images like to keep what they work on.
    names = (
        "bin",
        "sbin",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "libexec",
        "share",
        "include",
        "local",
    )
    for path in (*(Path("/usr", n) for n in names), *(Path("/", n) for n in names[:6])):
        if path.is_symlink():
            mounts.append(Mount("symlink", str(path), str(path.readlink())))
        elif path.is_dir():
            shown.add(path)
    for prefix in {sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix}:
        shown |= {Path(prefix), Path(prefix).resolve()} - {Path("/"), Path("/usr")}
    hidden = _private_paths(shown)
    # A virtual environment's python is a chain of links, which has to lead on inside.
    links: dict[Path, Path] = {}
    python = Path(sys.executable)
    while python.is_symlink():
        target = python.parent / python.readlink()
        if not _lies_in(python, shown):
            links[python] = target
        python = target
    if not _lies_in(python, shown):
        links[python] = python.resolve()
    parents = {
        parent
        for path in (*shown, *links, Path("/etc/any"), Path("/data/any"))
        for parent in path.parents
    }
    for path in sorted(parents - {Path("/")}):
        if not _lies_in(path, shown):
            mounts.append(Mount("dir", str(path)))
    # In the order of the paths, so that what lies deeper is mounted later.
    above: list[Path] = []
    covered: list[Path] = []
    for path in sorted(shown | hidden):
        above = [folder for folder in above if path.is_relative_to(folder)]
        if path in shown:
            mounts.append(Mount("bind", str(path), str(path)))
        elif above[-1] in covered:
            continue
        elif path.is_dir():
            mounts.append(Mount("cover", str(path)))
            covered.append(path)
        else:
            mounts.append(Mount("blank", str(path)))
        above.append(path)
    for python, target in links.items():
        mounts.append(Mount("symlink", str(python), str(target)))
    for name in ("ld.so.cache", "alternatives"):
        if Path("/etc", name).exists():
            mounts.append(Mount("bind", f"/etc/{name}", f"/etc/{name}"))
    return HostView(tuple(mounts), tuple(sorted(shown)), tuple(covered))


def _private_paths(shown: Iterable[Path]) -> set[Path]:
    """Return what in the shown directories holds, or may hold, this package."""
    here = Path(__file__).resolve().parent
    checkout = here.parent
    found = {here, checkout} if (checkout / "pyproject.toml").exists() else {here}
    libraries = {Path(entry) for entry in sys.path if entry}
    for folder in shown:
        for pattern in ("lib*/python3*/*-packages", "python3*/*-packages", "python3/*-packages"):
            libraries.update(folder.glob(pattern))
    for library in libraries:
        for name in PRIVATE_PACKAGES:
            candidates = (library / name, library / f"{name}.py")
            found.update(path for path in candidates if path.exists())
            found.update(library.glob(f"__pycache__/{name}.*"))
    return {path for path in (p.resolve() for p in found) if _lies_in(path, shown)}


def _lies_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
