"""The runner as a command of any user's, and what its tests look at."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hostile import Hostile

from transitbench import bubblewrap
from transitbench import cage as cage_module
from transitbench.cage import Limits
from transitbench.runner import StarResult
from transitbench_env.boxkit import RUNNER_MODULES

PACKAGE = Path(cage_module.__file__).parent
NOBODY = 65534
DEFAULTS = Limits()


def first_python_of_all() -> str | None:
    """A Python outside anybody's home, recent enough to run the runner as another user."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(path).exists():
            check = "import sys; sys.exit(sys.version_info < (3, 11))"
            if subprocess.run([path, "-c", check], check=False).returncode == 0:
                return path
    return None


class Grader:
    """The runner as a command, in a directory that its user can reach."""

    def __init__(self, folder: Path, command: list[str], options: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.command = command
        self.options = options
        self.library = folder / "lib"
        self.environment = {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.library),
            "TMPDIR": str(folder / "tmp"),
            "HOST_SECRET": "1",
        }
        for name in ("lib/transitbench", "bin", "tmp", "out"):
            (folder / name).mkdir(parents=True)
        for module in RUNNER_MODULES:
            shutil.copy(PACKAGE / f"{module}.py", self.library / "transitbench")
        (folder / "bin" / "bwrap").symlink_to(bubblewrap.find_bwrap())
        for path in (folder, *folder.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o777)

    def start(
        self, code: str, stars: list[str], limits: Limits = DEFAULTS, seed: int = 0, jobs: int = 1
    ) -> subprocess.Popen[bytes]:
        for name in ("solution", "stars"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        (self.folder / "solution" / "solution.py").write_text(code)
        for star in stars:
            (self.folder / "stars" / f"{star}.npz").write_text(star)
        return self.again(limits, seed, jobs)

    def again(
        self, limits: Limits = DEFAULTS, seed: int = 0, jobs: int = 1
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                *self.command,
                *("-m", "transitbench.runner", "--jobs", str(jobs), "--seed", str(seed)),
                *(
                    "--solution",
                    str(self.folder / "solution"),
                    "--stars",
                    str(self.folder / "stars"),
                ),
                *("--out", str(self.results), "--limits", json.dumps(limits.to_json())),
                *self.options,
            ],
            env=self.environment,
            stderr=subprocess.PIPE,
            cwd=self.folder,
        )

    @property
    def results(self) -> Path:
        return self.folder / "out" / "grade.jsonl"

    def read(self) -> dict[str, StarResult]:
        lines = self.results.read_text().splitlines()
        return {r.star: r for r in map(StarResult.from_json, map(json.loads, lines))}


def seed_that_starts_with(star: str, stars: list[str]) -> int:
    for seed in range(1000):
        order = sorted(stars)
        random.Random(seed).shuffle(order)
        if order[0] == star:
            return seed
    raise AssertionError("no such seed")


def processes_with(token: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def n_words(pid: int) -> int:
    return Path(f"/proc/{pid}/cmdline").read_bytes().count(b"\0")


def wait_until(condition: Callable[[], bool], patience_s: float = 20.0) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def attack(hostile: Hostile, token: str, host_port: int, secrets: Sequence[Path]) -> str:
    """The code of a hostile submission that leaves the star after its own alone."""
    code = hostile.code.replace("@PORT@", str(host_port)).replace("@TOKEN@", token)
    code = code.replace("@SECRETS@", repr([str(path) for path in secrets]))
    return "import sys\nif 'next' in sys.argv[1]:\n    print('7,7,7')\n    sys.exit()\n" + code
