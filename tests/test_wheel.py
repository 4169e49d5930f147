"""The package as a wheel: all of its data is in it, and it works where there is no checkout."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import REPOSITORY
from sandbox import needs_sandbox

pytestmark = pytest.mark.slow

BUILD = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
PACKAGES = BUILD["targets"]["wheel"]["packages"]
SHIPPED = BUILD["targets"]["wheel"]["force-include"]
COMMAND = "from verifiers.v1.cli.validate import main; main()"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    if importlib.util.find_spec("hatchling"):
        pip.append("--no-build-isolation")
    subprocess.run([*pip, str(REPOSITORY)], check=True)
    (built,) = folder.glob("transitbench-*.whl")
    return built


def sources(folder: str) -> set[str]:
    return {
        str(path.relative_to(REPOSITORY / folder))
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_every_file_of_the_packages_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        missing = {f"{package}/{path}" for path in sources(package)} - names
        assert missing == set()
    for folder, place in SHIPPED.items():
        missing = {f"{place}/{path}" for path in sources(folder)} - names
        assert missing == set()
    for name in (
        "transitbench/sim/facts.json",
        "transitbench/_shipped/workspace/run_dev.py",
        "transitbench/_shipped/workspace/solution/solution.py",
        "transitbench/_shipped/baselines/reference_detector/solution.py",
        "transitbench_env/data/box-requirements.txt",
        "transitbench_env/data/images.json",
        "transitbench_env/inside/bash.py",
        "transitbench_env/inside/boxd.py",
        "transitbench_env/templates/TASK.md",
    ):
        assert name in names


def test_nothing_else_is_in_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    (information,) = [top for top in tops if top.endswith(".dist-info")]
    assert tops == {*PACKAGES, information}
    assert not [name for name in names if name.endswith((".pyc", ".npz", ".pem", ".env"))]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Python of an environment with this one's dependencies, and this package from its wheel."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder)
    (libraries,) = folder.glob("lib/python3*/site-packages")
    own = ("transitbench*", "__editable__*", "_editable_impl_*")
    # Not a path to them: a box shows an environment, and nothing that lies elsewhere.
    shutil.copytree(
        sysconfig.get_paths()["purelib"],
        libraries,
        symlinks=True,
        ignore=shutil.ignore_patterns(*own),
        copy_function=link_or_copy,
        dirs_exist_ok=True,
    )
    python = folder / "bin" / "python"
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([python, *install], check=True, cwd=folder, env=clean_environment())
    yield python
    shutil.rmtree(folder)


def link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)
    return target


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@needs_sandbox
def test_it_validates_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [installed, "-c", "import transitbench, transitbench_env as e; print(e.__file__)"],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(installed.parents[1])
    done = subprocess.run(
        [
            *(installed, "-c", COMMAND, "transitbench-mini", "--taskset.split", "dev", "-n", "1"),
            *("--runtime.type", "custom"),
            *("--runtime.import-path", "transitbench_env.localbox.LocalBox"),
            *("--no-rich", "--run.name", "run", "-o", str(tmp_path / "out")),
        ],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    results = tmp_path / "out" / "run" / "results.jsonl"
    assert results.exists(), done.stderr
    row = json.loads(results.read_text())
    assert row["error"] is None
    assert (row["gold"]["valid"], row["noop"]["valid"]) == (True, True)
    assert row["noop"]["reward"] < 1
