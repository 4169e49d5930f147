"""The framework's own commands in processes of their own, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from conftest import REPOSITORY


def run_command(
    program: str, *arguments: str, out: Path, runtime: str, box: str
) -> subprocess.CompletedProcess[str]:
    """Run ``vf-validate`` or ``vf-eval`` in local boxes; what it leaves is in ``out / "run"``.

    ``runtime`` is the prefix of its runtime options; ``box`` is what makes the boxes, as module.Class.
    """
    out.mkdir(exist_ok=True)
    return subprocess.run(
        [
            str(Path(sys.executable).with_name(program)),
            *arguments,
            *(f"--{runtime}.type", "custom", f"--{runtime}.import-path", box),
            *("--no-rich", "--run.name", "run", "-o", str(out)),
        ],
        cwd=out,
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def validate(
    *arguments: str, out: Path, box: str = "transitbench_env.localbox.LocalBox"
) -> list[dict[str, Any]]:
    """Run ``vf-validate``; its rows, one a task."""
    done = run_command("vf-validate", *arguments, out=out, runtime="runtime", box=box)
    results = out / "run" / "results.jsonl"
    assert results.exists(), done.stderr + done.stdout
    return [json.loads(line) for line in results.read_text().splitlines()]


def evaluate(
    *arguments: str,
    out: Path,
    model_url: str,
    box: str = "transitbench_env.localbox.LocalBox",
) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
    """Run ``vf-eval`` against a scripted model; what it printed, and its traces."""
    client = ("--client.base-url", model_url, "--client.api-key-var", "NO_KEY", "--no-push")
    done = run_command(
        "vf-eval", *arguments, *client, out=out, runtime="env.agent.runtime", box=box
    )
    traces = out / "run" / "traces.jsonl"
    assert traces.exists(), done.stderr + done.stdout
    episodes = [json.loads(line) for line in traces.read_text().splitlines()]
    return done, [trace for episode in episodes for trace in episode["traces"]]
