"""Whole sessions in this process: the framework's own eval, a scripted model, local boxes that are remembered."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import verifiers.v1 as vf
from scripted_model import Messages, Script, Turn, bash, serving
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

from transitbench.runner import _descendants
from transitbench_env.localbox import LocalBox

Process = tuple[int, str]
"""A process: its pid and when it started, because pids come back."""


def process(pid: int) -> Process | None:
    """Return the process that has this pid."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else (pid, fields[18])


def alive(processes: Iterable[Process]) -> list[Process]:
    """Return which of these processes have not ended."""
    return [each for each in processes if process(each[0]) == each]


class RememberedBox(LocalBox):
    """A local box of which a test can tell afterwards whether anything is left.

    ``first_processes`` are the first ones of all boxes since a test cleared the list: the kernel lets the
    first process of a pid namespace go only after all the others in it.
    """

    first_processes: ClassVar[list[Process]] = []

    async def start(self) -> None:
        await super().start()
        assert self._process is not None
        # Root's bubblewrap starts a second one; the last of the line is the box's first process.
        *_, self.first_pid = _descendants(self._process.pid)
        started = process(self.first_pid)
        assert started is not None
        self.first_processes.append(started)

    def destroy(self) -> None:
        """Lose the box, as when its machine goes down."""
        os.kill(self.first_pid, signal.SIGKILL)


def author(files: Mapping[str, str]) -> Script:
    """A script that leaves these files in ``solution/`` and ends."""
    commands = [
        bash(f"cat > solution/{name} <<'END_OF_FILE'\n{text}\nEND_OF_FILE")
        for name, text in files.items()
    ]

    def script(step: int, messages: Messages) -> Turn:
        return Turn(f"Step {step + 1}.", (commands[step],)) if step < len(files) else Turn("Done.")

    return script


def configured(
    base_url: str,
    script: str,
    out: Path,
    taskset: Mapping[str, Any],
    agent: Mapping[str, Any] | None = None,
    select: Mapping[str, Any] | None = None,
    **options: Any,
) -> EvalConfig:
    """The configuration of an eval of one task in boxes that are remembered."""
    runtime = {"type": "custom", "import_path": f"{__name__}.RememberedBox"}
    return EvalConfig.model_validate(
        {
            "model": f"scripted/{script}",
            "client": {"base_url": base_url, "api_key_var": "NO_KEY"},
            "env": {"taskset": dict(taskset), "agent": {"runtime": runtime, **(agent or {})}},
            "select": {"limit": 1, **(select or {})},
            "output_dir": str(out),
            "push": False,
            "rich": None,
            **options,
        }
    )


def play_all(script: str, out: Path, taskset: Mapping[str, Any], **config: Any) -> list[vf.Trace]:
    """Run sessions of a script through the framework's eval; their traces."""
    RememberedBox.first_processes.clear()
    with serving() as model:
        episodes = asyncio.run(run_eval(configured(model.base_url, script, out, taskset, **config)))
    return [trace for episode in episodes for trace in episode.traces]


def play(
    script: str,
    out: Path,
    taskset: Mapping[str, Any],
    agent: Mapping[str, Any] | None = None,
    select: Mapping[str, Any] | None = None,
) -> vf.Trace:
    """Run one session of a script; its trace."""
    (trace,) = play_all(script, out, taskset, agent=agent, select=select)
    return trace
