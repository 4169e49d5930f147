"""The Prime path, as far as it goes without an account: the real client against a local stub of its API."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import REPOSITORY
from prime_stub import API_KEY, PrimeStub, running_stub
from verifiers.v1.configs.runtime import PrimeConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.runtimes.backends.prime import PrimeBackend
from verifiers.v1.utils.compile import resolve_runtime_config

from transitbench.demo_stars import write_demo_stars
from transitbench.pipelines import shipped_path
from transitbench_env.boxkit import RUNNER_MODULES
from transitbench_env.images import MARKER, load_images, requirements_digest
from transitbench_env.mini import MINI_BUDGET
from transitbench_env.survey import SurveyConfig, SurveyTaskset

# The task that goes the whole way, and what its boxes must have.
TASKSET_ID = "prime-probe"
TASK_IMAGE = load_images()["survey"]
TASK_RESOURCES = {"cpu_cores": 16, "memory_gb": 32}
IDLE_TIMEOUT_S = 14_400

DENY_ALL = {"allowlist": [], "denylist": None}
ALLOW_ALL = {"allowlist": None, "denylist": []}
LIST_INTERFACES = ["sh", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"]


@pytest.fixture
def stub() -> Iterator[PrimeStub]:
    with running_stub({MARKER: requirements_digest().encode() + b"\n"}) as server:
        yield server


@pytest.fixture
def environment(stub: PrimeStub, tmp_path: Path) -> dict[str, str]:
    """What points the client, here or in a subprocess, at the stub and at nothing else."""
    return {
        "PATH": os.environ["PATH"],
        # The client reads and writes below ~/.prime.
        "HOME": str(tmp_path),
        "PRIME_API_BASE_URL": stub.url,
        "PRIME_API_KEY": API_KEY,
        "PRIME_INFERENCE_URL": stub.url,
        "PRIME_TEAM_ID": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'tests'}",
        "TRANSITBENCH_DATA": str(tmp_path / "data"),
    }


@pytest.fixture
def in_box(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Runtime], Coroutine[None, None, None]]], None]:
    """Run a coroutine function on a started Prime runtime, and stop the runtime."""
    for name in ("HOME", "PRIME_API_BASE_URL", "PRIME_API_KEY", "PRIME_TEAM_ID"):
        monkeypatch.setenv(name, environment[name])

    def run(steps: Callable[[Runtime], Coroutine[None, None, None]]) -> None:
        async def session() -> None:
            backend = PrimeBackend(
                PrimeConfig(
                    image=TASK_IMAGE,
                    cpu=16,
                    memory=32,
                    allow=[],
                    workdir="/workspace",
                    idle_timeout=IDLE_TIMEOUT_S,
                )
            )
            try:
                await backend.start()
                await steps(backend.bind())
            finally:
                await backend.stop()

        asyncio.run(session())

    return run


def test_create_asks_for_image_resources_and_idle_timeout(in_box, stub: PrimeStub) -> None:
    async def nothing(runtime: Runtime) -> None:
        assert list(stub.sandboxes) == [runtime.info.id]

    in_box(nothing)
    (created,) = stub.of("create")
    wanted = {
        "docker_image": TASK_IMAGE,
        "cpu_cores": 16,
        "memory_gb": 32,
        "idle_timeout_minutes": 240,
        "timeout_minutes": -1,
        "vm": True,
        "environment_vars": {},
    }
    assert created.detail.items() >= wanted.items()
    assert created.detail["labels"]
    assert created.detail["disk_size_gb"] > 0
    (deleted,) = stub.of("delete")
    assert deleted.sandbox == created.sandbox
    assert not stub.sandboxes


def test_run_returns_streams_exit_code_and_keeps_to_the_workdir(in_box) -> None:
    async def steps(runtime: Runtime) -> None:
        script = 'echo "$GREETING in $PWD"; echo trouble >&2; exit 3'
        result = await runtime.run(["sh", "-c", script], {"GREETING": "hello"})
        assert (result.exit_code, result.stdout, result.stderr) == (
            3,
            "hello in /workspace\n",
            "trouble\n",
        )

    in_box(steps)


def test_files_come_back_byte_for_byte(in_box, stub: PrimeStub) -> None:
    content = np.random.default_rng(7).bytes(5_000_000) + b"\r\n--\r\n"

    async def steps(runtime: Runtime) -> None:
        await runtime.write("deep/er/file.bin", content)
        assert await runtime.read("/workspace/deep/er/file.bin") == content
        assert await runtime.read("deep/er/file.bin", max_bytes=len(content)) == content
        with pytest.raises(Exception, match="limit"):
            await runtime.read("deep/er/file.bin", max_bytes=len(content) - 1)
        with pytest.raises(Exception, match="no file"):
            await runtime.read("missing.bin")

    in_box(steps)
    assert [e.detail for e in stub.of("upload")] == [("/workspace/deep/er/file.bin", len(content))]


def test_exec_streams_both_ways_and_can_be_ended(in_box) -> None:
    async def steps(runtime: Runtime) -> None:
        process = await runtime.exec(["cat"], {})
        for line in (b"first\n", b"\x00second\n"):
            await process.write(line)
            assert await anext(process.stdout) == line
        await process.terminate()
        assert await process.wait() == 128 + 15

    in_box(steps)


def test_background_process_outlives_the_call_that_started_it(in_box) -> None:
    async def steps(runtime: Runtime) -> None:
        script = "echo up; while [ ! -e stop ]; do sleep 0.05; done; echo down"
        await runtime.run_background(["sh", "-c", script], {}, "log.txt")
        while await runtime.read("log.txt") != b"up\n":
            await asyncio.sleep(0.05)
        await runtime.write("stop", b"")
        while await runtime.read("log.txt") != b"up\ndown\n":
            await asyncio.sleep(0.05)

    in_box(steps)


def test_network_is_open_in_setup_and_shut_afterwards(in_box, stub: PrimeStub) -> None:
    async def can_connect(runtime: Runtime) -> bool:
        port = stub.url.rpartition(":")[2]
        script = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)"
        return (await runtime.run(["python3", "-c", script, port], {})).exit_code == 0

    async def steps(runtime: Runtime) -> None:
        await runtime.backend.prepare_setup()
        assert await can_connect(runtime)
        await runtime.backend.prepare_execution([])
        assert not await can_connect(runtime)
        assert (await runtime.run(LIST_INTERFACES, {})).stdout == "lo\n"
        await runtime.backend.prepare_setup()
        assert await can_connect(runtime)

    in_box(steps)
    assert [event.detail for event in stub.of("network")] == [DENY_ALL, ALLOW_ALL]


def test_sandboxes_share_nothing_and_hide_the_host(in_box, stub: PrimeStub) -> None:
    async def write(runtime: Runtime) -> None:
        await runtime.write("/tmp/secret", b"x")
        listing = await runtime.run(["ls", str(REPOSITORY / "pyproject.toml")], {})
        assert listing.exit_code != 0
        environment = (await runtime.run(["env"], {})).stdout
        assert API_KEY not in environment

    async def look(runtime: Runtime) -> None:
        assert (await runtime.run(["test", "-e", "/tmp/secret"], {})).exit_code == 1

    in_box(write)
    in_box(look)
    assert len(stub.of("create")) == 2


def test_grading_runs_its_cages_in_the_sandbox(in_box, tmp_path: Path) -> None:
    star = write_demo_stars(tmp_path)[-1]
    library = REPOSITORY / "transitbench"

    async def steps(runtime: Runtime) -> None:
        for module in RUNNER_MODULES:
            source = (library / f"{module}.py").read_bytes()
            await runtime.write(f"/opt/grader/transitbench/{module}.py", source)
        await runtime.write(f"/stars/{star.path.name}", star.path.read_bytes())
        for path in shipped_path("workspace/solution").iterdir():
            if path.is_file():
                await runtime.write(f"/workspace/solution/{path.name}", path.read_bytes())
        await runtime.backend.prepare_execution([])
        command = "python3 -m transitbench.runner --solution /workspace/solution --stars /stars"
        result = await runtime.run(
            [*command.split(), "--out", "/grade.jsonl", "--jobs", "1"],
            {"PYTHONPATH": "/opt/grader"},
        )
        assert result.exit_code == 0, result.stderr
        record = json.loads(await runtime.read("/grade.jsonl"))
        assert (record["star"], record["status"]) == (star.path.stem, "ok"), record

    in_box(steps)


def run_cli(environment: dict[str, str], command: str, *options: str) -> str:
    executable = shutil.which(command, path=str(Path(sys.executable).parent))
    assert executable is not None
    result = subprocess.run(
        [executable, *options],
        env=environment,
        cwd=environment["HOME"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def assert_boxes_as_asked(stub: PrimeStub, resources: dict[str, int] = TASK_RESOURCES) -> None:
    """Every box has the task's image and resources, is shut before its last commands, and is deleted."""
    for created in stub.of("create"):
        wanted = {"docker_image": TASK_IMAGE, "idle_timeout_minutes": IDLE_TIMEOUT_S // 60}
        assert created.detail.items() >= {**wanted, **resources}.items()
    assert [event.sandbox for event in stub.of("create")] == list(
        dict.fromkeys(event.sandbox for event in stub.events)
    )
    assert {e.sandbox for e in stub.of("delete")} == {e.sandbox for e in stub.of("create")}
    assert not stub.sandboxes


@pytest.mark.slow
def test_task_is_validated_in_two_boxes_each(stub: PrimeStub, environment: dict[str, str]) -> None:
    run_cli(
        environment,
        "vf-validate",
        *(TASKSET_ID, "--runtime.type", "prime", "--runtime.idle-timeout", str(IDLE_TIMEOUT_S)),
        *("-n", "1", "--no-rich", "--output-dir", "out", "--run.dir", "run"),
    )
    summary = json.loads(Path(environment["HOME"], "out/run/summary.json").read_text())
    assert summary["outcomes"]["valid"] == summary["total"] == 1
    assert_boxes_as_asked(stub)
    # Gold and starter, an agent's and a grading box each.
    work, grading, work_again, grading_again = (event.sandbox for event in stub.of("create"))
    policies = {e.sandbox: e.detail for e in stub.of("network")}
    assert policies == {grading: DENY_ALL, grading_again: DENY_ALL}
    for box in (grading, grading_again):
        events = [event for event in stub.events if event.sandbox == box]
        shut = [event.kind for event in events].index("network")
        assert any(event.kind == "upload" for event in events[:shut])
        commands = [event for event in events[shut:] if event.kind == "command"]
        assert commands
        assert all(event.detail["closed"] for event in commands)
    assert {work, work_again}.isdisjoint(policies)


@pytest.mark.slow
def test_agent_reaches_the_framework_only(stub: PrimeStub, environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run_cli(
        environment,
        "vf-eval",
        *(TASKSET_ID, "-m", "none", "-n", "1", "--env.agent.harness.id", "prime-probe"),
        *("--env.agent.runtime.type", "prime"),
        *("--env.agent.runtime.idle-timeout", str(IDLE_TIMEOUT_S)),
        *("--env.interception.type", "server", "--env.interception.tunnel.type", "custom"),
        *("--env.interception.tunnel.url", f"http://127.0.0.1:{port}"),
        *("--env.interception.tunnel.port", str(port)),
        *("--no-push", "--no-rich", "--output-dir", "out", "--run.dir", "run"),
    )
    (line,) = Path(environment["HOME"], "out/run/traces.jsonl").read_text().splitlines()
    (trace,) = json.loads(line)["traces"]
    assert trace["ok"], trace["errors"]
    assert_boxes_as_asked(stub)
    agent, grading = (event.sandbox for event in stub.of("create"))
    assert [(e.sandbox, e.detail) for e in stub.of("network")] == [
        (agent, {"allowlist": ["127.0.0.1"], "denylist": None}),
        (grading, DENY_ALL),
    ]
    # The probe's reward is 1 only if neither box had a network while it counted.
    assert [reward["score"] for reward in trace["rewards"].values()] == [1.0]


@pytest.mark.slow
def test_a_mini_task_goes_the_whole_way(stub: PrimeStub, environment: dict[str, str]) -> None:
    """Gold is graded in the second box, star by star, in cages, and gets exactly 1."""
    run_cli(
        environment,
        *("vf-validate", "transitbench-mini", "--taskset.split", "dev", "--only-gold"),
        *("--runtime.type", "prime", "--runtime.idle-timeout", str(IDLE_TIMEOUT_S)),
        *("-n", "1", "--no-rich", "--output-dir", "out", "--run.dir", "run"),
    )
    summary = json.loads(Path(environment["HOME"], "out/run/summary.json").read_text())
    assert summary["outcomes"]["valid"] == summary["total"] == 1
    assert_boxes_as_asked(stub, {"cpu_cores": MINI_BUDGET.cpus, "memory_gb": MINI_BUDGET.memory_gb})
    _, grading = (event.sandbox for event in stub.of("create"))
    assert [(e.sandbox, e.detail) for e in stub.of("network")] == [(grading, DENY_ALL)]
    (run,) = Path(environment["TRANSITBENCH_DATA"], "runs").iterdir()
    records = [json.loads(line) for line in (run / "grade.jsonl").read_text().splitlines()]
    assert [record["status"] for record in records] == ["ok"] * 16
    assert json.loads((run / "score.json").read_text())["mini_reward"] == 1.0


def test_what_every_survey_task_asks_of_prime() -> None:
    for task in SurveyTaskset(SurveyConfig()).load():
        config = resolve_runtime_config(PrimeConfig(idle_timeout=IDLE_TIMEOUT_S), task)
        assert (config.image, config.cpu, config.memory) == (TASK_IMAGE, 16, 32)
        assert (config.allow, config.block) == ([], ["*"])
        assert config.workdir == "/workspace"
