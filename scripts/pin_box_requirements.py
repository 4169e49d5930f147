"""Write the hash-pinned requirements of the boxes from constraints.txt, or check that they agree.

    python scripts/pin_box_requirements.py           # on CPython 3.11 for Linux, with network
    python scripts/pin_box_requirements.py --check   # anywhere, offline

pip itself resolves: once for the versions, then for the files that it would install in an image, whose
hashes the package index states. Boxes are x86_64: batman 2.5.3 is published for no other Linux.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from transitbench_env.images import BOX_PACKAGES, BOX_REQUIREMENTS, load_images

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
# Some packages name a patch level that they need, so the one of the images counts.
PYTHON = load_images()["survey"].removeprefix("python:").removesuffix("-bookworm")
MACHINE = "x86_64"
# Debian 12, on which the images build, has glibc 2.36; 2.5 is where the numbered tags begin.
GLIBC_MINORS = range(36, 4, -1)
LEGACY_TAGS = ("manylinux2014", "manylinux2010", "manylinux1")
HEADER = (
    "# The packages of a task's boxes, for CPython 3.11 on Linux x86_64.\n"
    "# Written by scripts/pin_box_requirements.py from constraints.txt; not to be edited.\n"
)

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)


def read_pins(text: str) -> dict[str, str]:
    """Return the version of each ``name==version`` line, by canonical name."""
    return {canonicalize_name(name): version for name, version in _PIN.findall(text)}


def find_disagreements(requirements: str, constraints: str) -> list[str]:
    """Return, a line each, what keeps the requirements from being those of the constraints."""
    pinned, constrained = read_pins(requirements), read_pins(constraints)
    problems = [f"{name} is missing" for name in sorted(closure(BOX_PACKAGES) - pinned.keys())]
    for name, version in pinned.items():
        if constrained.get(name) != version:
            problems.append(f"{name} is {version}, constraints.txt has {constrained.get(name)}")
    for entry in re.split(r"\n(?=[A-Za-z0-9])", requirements)[1:]:
        if not re.search(r"--hash=sha256:[0-9a-f]{64}", entry):
            problems.append(f"{entry.split()[0]} has no hash")
    return problems


def closure(packages: Iterable[str]) -> set[str]:
    """Return the packages and all that they need in a box, as the installed ones state it."""
    environment = {
        "python_version": PYTHON.rpartition(".")[0],
        "python_full_version": PYTHON,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "extra": "",
    }
    found: set[str] = set()
    waiting = [Requirement(package) for package in packages]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        found.add(canonicalize_name(wanted.name))
        for line in requires(wanted.name) or ():
            need = Requirement(line)
            extras = ["", *wanted.extras]
            if need.marker is None or any(
                need.marker.evaluate({**environment, "extra": extra}) for extra in extras
            ):
                waiting.append(need)
    return found


def resolve() -> str:
    """Ask pip, and return the text of the requirements file. Needs the network."""
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        raise SystemExit(f"run this with CPython {PYTHON} on Linux, as the boxes have it")
    here = _report(BOX_PACKAGES, ["--constraint", str(CONSTRAINTS)])
    versions = {
        canonicalize_name(item["metadata"]["name"]): item["metadata"]["version"] for item in here
    }
    pins = [f"{name}=={version}" for name, version in sorted(versions.items())]
    tags = [f"manylinux_2_{minor}_{MACHINE}" for minor in GLIBC_MINORS]
    tags += [f"{legacy}_{MACHINE}" for legacy in LEGACY_TAGS] + [f"linux_{MACHINE}"]
    options = ["--no-deps", "--target", "unused", "--implementation", "cp"]
    options += ["--python-version", PYTHON, "--abi", "cp311", "--abi", "abi3", "--abi", "none"]
    for tag in tags:
        options += ["--platform", tag]
    hashes: dict[str, str] = {}
    for item in _report(pins, options):
        url, archive = item["download_info"]["url"], item["download_info"]["archive_info"]
        if url.startswith("file:"):
            raise SystemExit(
                f"{url} lies on this machine: hashes have to be the index's "
                "(try PIP_CONFIG_FILE=/dev/null and no PIP_FIND_LINKS)"
            )
        hashes[canonicalize_name(item["metadata"]["name"])] = archive["hashes"]["sha256"]
    return HEADER + "".join(
        f"{pin} \\\n    --hash=sha256:{hashes[name]}\n"
        for pin, name in zip(pins, sorted(versions), strict=True)
    )


def _report(requirements: Sequence[str], options: Sequence[str]) -> list[dict[str, Any]]:
    """Return what pip would install."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--report", str(report), *options, *requirements]
        subprocess.run(command, check=True, cwd=scratch)
        install: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return install


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the requirements file; the command line of this script."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, offline")
    if not parser.parse_args(arguments).check:
        BOX_REQUIREMENTS.write_text(resolve())
    problems = find_disagreements(BOX_REQUIREMENTS.read_text(), CONSTRAINTS.read_text())
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{BOX_REQUIREMENTS.name} agrees with {CONSTRAINTS.name}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
