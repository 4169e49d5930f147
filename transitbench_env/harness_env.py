"""Python environments of harness programs, made once on the host and shown to boxes read-only.

A verifiers harness is a script with its dependencies in a PEP 723 header. The framework has every box
resolve and download them. Here the host does it, once for each script and Python, with the host's own pip
settings; no box downloads, and none can leave anything behind for the next one.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import verifiers.v1 as vf

from transitbench.home import cache_dir

HARNESS_DIR = "/harness"
"""Where a box has the environments."""

_HEADER = re.compile(r"^# /// script\n((?:#(?: .*)?\n)*?)# ///$", re.MULTILINE)


class LocalRuntime(vf.Runtime):
    """A view of a local box, for which uv scripts are prepared on the host."""

    async def prepare_uv_script(
        self, script: str | bytes, env: dict[str, str] | None = None, *, activate: bool = True
    ) -> list[str]:
        """Return the command that runs ``script`` with its dependencies.

        ``activate`` puts the environment's programs on the script's PATH. Raises RuntimeError with pip's
        message if the dependencies cannot be installed.
        """
        text = script.decode() if isinstance(script, bytes) else script
        folder = f"{HARNESS_DIR}/{await asyncio.to_thread(prepare_harness, text)}"
        command = [f"{folder}/venv/bin/python", f"{folder}/script.py"]
        if not activate:
            return command
        enter = 'export VIRTUAL_ENV="$1" PATH="$1/bin:$PATH"; shift; exec "$@"'
        return ["sh", "-c", enter, "harness", f"{folder}/venv", *command]


def harness_cache() -> Path:
    """Return the host's folder of harness environments, created if absent. Raises TB-E011."""
    return cache_dir("harness")


def prepare_harness(script: str) -> str:
    """Make the environment of a script if it is not there; the name of its folder in the cache."""
    key = hashlib.sha256(f"{sys.version}\0{sys.prefix}\0{script}".encode()).hexdigest()[:20]
    cache = harness_cache()
    folder = cache / key
    # Boxes that start at the same time wait for one of them to do it.
    with (cache / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            partial = cache / f"{key}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(mode=0o755)
            (partial / "script.py").write_text(script, encoding="utf-8")
            _install(partial / "venv", script_dependencies(script))
            for path in (partial, *partial.rglob("*")):
                if not path.is_symlink():
                    # A box reads them as another user, whatever the umask here is.
                    path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
            partial.rename(folder)
    return key


def script_dependencies(script: str) -> list[str]:
    """Return the requirements in a script's PEP 723 header; none without a header."""
    header = _HEADER.search(script)
    if header is None:
        return []
    lines = [line[2:] for line in header.group(1).splitlines()]
    return [str(each) for each in tomllib.loads("\n".join(lines)).get("dependencies", [])]


def _install(venv: Path, requirements: list[str]) -> None:
    commands = [[sys.executable, "-m", "venv", str(venv)]]
    if requirements:
        pip = [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        commands.append([*pip, "--disable-pip-version-check", *requirements])
    for command in commands:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": ""},
        )
        if done.returncode:
            raise RuntimeError(
                "cannot install the harness' dependencies on this host "
                f"({' '.join(command[1:])}): {done.stderr.strip()[-2000:]}"
            )
