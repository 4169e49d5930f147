"""A tiny taskset and an agent without a model, to take a task's whole way through a Prime sandbox.

Both are found by their id ``prime-probe``. What the hooks see in the box decides the reward: it is 1
only if the answer came over and neither the agent nor grading had a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import verifiers.v1 as vf

from transitbench_env.images import MARKER, load_images, requirements_digest

__all__ = ["ProbeHarness", "ProbeTaskset"]

SOLUTION = "/workspace/solution"
LIST_INTERFACES = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' \\n'"


async def shell(runtime: vf.Runtime, script: str) -> str:
    result = await runtime.run(["sh", "-c", script], {})
    if result.exit_code:
        raise RuntimeError(f"{script}: {result.stderr}")
    return result.stdout


class ProbeTask(vf.Task):
    async def setup(self, runtime: vf.Runtime) -> None:
        if (await runtime.read(MARKER)).decode().strip() != requirements_digest():
            raise RuntimeError("the packages of this image are not the expected ones")
        await shell(runtime, "python3 -c 'import batman'")
        await runtime.write(f"{SOLUTION}/answer.txt", b"none")
        await runtime.write("/workspace/left_behind.txt", b"must not reach the grading box")

    async def stage_verifier(self, runtime: vf.Runtime) -> None:
        await shell(runtime, "rm /workspace/left_behind.txt")

    async def validate(self, trace: vf.Trace, runtime: vf.Runtime) -> bool:
        await runtime.write(f"{SOLUTION}/answer.txt", b"lo")
        trace.state.artifacts = await vf.collect(runtime, self.data.artifacts)
        await vf.grade_submission(self, trace, runtime)
        return trace.reward == 1.0

    @vf.reward
    async def answered(self, runtime: vf.Runtime) -> float:
        answer = (await runtime.read(f"{SOLUTION}/answer.txt")).decode()
        return float(answer == await shell(runtime, LIST_INTERFACES) == "lo")


class ProbeTaskset(vf.Taskset[ProbeTask, vf.TasksetConfig]):
    def load(self) -> Iterator[ProbeTask]:
        yield ProbeTask(
            vf.TaskData(
                id="probe",
                prompt="Write the names of the network interfaces.",
                image=load_images()["survey"],
                workdir="/workspace",
                resources=vf.TaskResources(cpu=16, memory=32),
                network=vf.NetworkPolicyConfig(allow=[]),
                scoring=vf.ScoringConfig(mode="isolated"),
                artifacts=[vf.Artifact(source=SOLUTION)],
            )
        )


class ProbeHarnessConfig(vf.HarnessConfig):
    dialect: Literal["chat_completions"] = "chat_completions"


class ProbeHarness(vf.Harness[ProbeHarnessConfig]):
    async def launch(
        self, ctx: object, trace: vf.Trace, runtime: vf.Runtime, *endpoints: object
    ) -> vf.ProgramResult:
        script = f"{LIST_INTERFACES} > {SOLUTION}/answer.txt"
        return await runtime.run(["sh", "-c", script], {})
