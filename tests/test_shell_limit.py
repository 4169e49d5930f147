"""The ``bash`` of an agent's box: bash, but for a limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from conftest import REPOSITORY

PROGRAM = REPOSITORY / "transitbench_env" / "inside" / "bash.py"


def run(limit_s: float, *arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-I", "-S", str(PROGRAM), f"{limit_s:g}", *arguments]
    return subprocess.run(command, capture_output=True, check=False, timeout=60, **options)


def test_output_and_exit_code_pass_unchanged() -> None:
    done = run(30, "-c", r"printf '\x00\xff\n'; printf err >&2; cat; exit 7", input=b"in\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"\x00\xff\nin\n", b"err")


def test_a_signal_is_told_as_a_shell_tells_it() -> None:
    assert run(30, "-c", "kill -SEGV $$").returncode == 139


def test_large_output_is_whole() -> None:
    done = run(30, "-c", "head -c 20000000 /dev/zero; exit 0")
    assert (done.returncode, len(done.stdout)) == (0, 20_000_000)


def test_a_reader_that_leaves_ends_nothing_else() -> None:
    command = (
        f"{sys.executable} -I -S {PROGRAM} 30 -c 'yes; exit 0' | head -n 1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=20)
    assert done.stdout.split()[0] == b"y"


def test_killed_at_the_limit_with_a_message() -> None:
    done = run(1, "-c", "echo before; sleep 1000; echo after")
    assert (done.returncode, done.stdout) == (124, b"before\n")
    assert b"[killed: a command may take 1 s" in done.stderr


def test_what_keeps_the_output_open_is_killed_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"(setsid sh -c 'trap \"\" TERM HUP; echo $$ > {pid_file}; sleep 1000' &) ; echo left"
    done = run(1.5, "-c", script)
    assert (done.returncode, done.stdout) == (124, b"left\n")
    pid = int(pid_file.read_text())
    assert (
        not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def test_a_background_job_with_its_output_in_a_file_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = run(1, "-c", f"(sleep 2; echo finished) > {log} 2>&1 & echo started")
    assert (done.returncode, done.stdout) == (0, b"started\n")
    deadline_s = time.monotonic() + 20
    while not log.read_text() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert log.read_text() == "finished\n"


def test_environment_and_arguments_reach_bash() -> None:
    done = run(30, "-c", "echo $0 $1 $X", "zero", "one two", env={**os.environ, "X": "y"})
    assert done.stdout == b"zero one two y\n"
