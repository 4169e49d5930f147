"""The runner in a grading box: the same records as here, and nothing lost with a box."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import verifiers.v1 as vf
from conftest import white_noise_star
from sandbox import needs_sandbox
from sessions import RememberedBox

from transitbench.cage import Limits
from transitbench.errors import TransitBenchError
from transitbench.runner import StarResult, run_stars, usable_cores
from transitbench_env import remote_run
from transitbench_env.boxkit import RUNNER_MODULES, BoxFile, library_files, put_files
from transitbench_env.localbox import LocalBoxConfig
from transitbench_env.remote_run import run_remotely

pytestmark = needs_sandbox

LIMITS = Limits(wall_s=10.0)
N_STARS = 6
# What it prints depends on the star alone; one star crashes.
SOLUTION = b"""\
import hashlib, pathlib, sys, time
digest = hashlib.sha256(pathlib.Path(sys.argv[1]).read_bytes()).digest()
time.sleep(0.3)
if pathlib.Path(sys.argv[1]).stem.endswith("3"):
    sys.exit("no")
print(f"{1 + digest[0]},900.5,{digest[1]}")
print("nonsense")
"""


@pytest.fixture
def stars(tmp_path: Path) -> dict[str, bytes]:
    return {f"star{i}": white_noise_star(i).npz_bytes() for i in range(N_STARS)}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote_run, "POLL_S", 0.05)


def graded_remotely(
    stars: dict[str, bytes],
    records: Path,
    before: Callable[[vf.Runtime, RememberedBox], None] = lambda runtime, box: None,
    modules: tuple[str, ...] = RUNNER_MODULES,
) -> list[StarResult]:
    async def life() -> list[StarResult]:
        box = RememberedBox(LocalBoxConfig(allow=[], disk=0.2))
        await box.start()
        try:
            runtime = box.bind()
            await put_files(runtime, library_files(modules))
            await put_files(runtime, [("/workspace/solution/solution.py", BoxFile(SOLUTION))])
            before(runtime, box)
            files = {star: (lambda content=content: content) for star, content in stars.items()}
            async with asyncio.timeout(60):
                return await run_remotely(runtime, files, records, LIMITS, jobs=2)
        finally:
            await box.stop()

    return asyncio.run(life())


def essence(result: StarResult) -> tuple[object, ...]:
    """What does not depend on when and where it ran."""
    return (
        result.star,
        result.status,
        result.rows,
        result.n_rows,
        result.n_bad_rows,
        result.exit_code,
        result.stderr_tail,
    )


def test_the_same_records_as_on_this_machine(stars: dict[str, bytes], tmp_path: Path) -> None:
    remote = graded_remotely(stars, tmp_path / "remote.jsonl")
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solution.py").write_bytes(SOLUTION)
    for star, content in stars.items():
        (tmp_path / f"{star}.npz").write_bytes(content)
    local = run_stars(
        tmp_path / "solution",
        {star: tmp_path / f"{star}.npz" for star in stars},
        tmp_path / "local.jsonl",
        limits=LIMITS,
        cores=usable_cores(),
    )
    assert [essence(r) for r in remote] == [essence(r) for r in local]
    assert {r.status for r in remote} == {"ok", "crash"}
    kept = [json.loads(line) for line in (tmp_path / "remote.jsonl").read_text().splitlines()]
    assert sorted(record["star"] for record in kept) == sorted(stars)


def lose_box_after(n_records: int, monkeypatch: pytest.MonkeyPatch) -> list[RememberedBox]:
    """Let the next box go down once so many records have come home; it is in the list then."""
    ask = remote_run._ask
    lost: list[RememberedBox] = []
    seen = 0

    async def ask_and_lose(runtime: vf.Runtime, script: str) -> str:
        nonlocal seen
        answer = await ask(runtime, script)
        seen += answer.count('"star"')
        if seen >= n_records and not lost:
            lost.append(runtime.backend)
            runtime.backend.destroy()
        return answer

    monkeypatch.setattr(remote_run, "_ask", ask_and_lose)
    return lost


def test_a_lost_box_costs_the_stars_at_work(
    stars: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = graded_remotely(stars, tmp_path / "undisturbed.jsonl")
    records = tmp_path / "records.jsonl"
    lost = lose_box_after(2, monkeypatch)
    with pytest.raises(TransitBenchError, match=r"TB-E007.*[1-4] of 6 stars missing") as raised:
        graded_remotely(stars, records)
    assert raised.value.code == "TB-E007"
    assert lost
    n_kept = len(records.read_text().splitlines())
    assert 2 <= n_kept < N_STARS
    # A host that was killed while it wrote leaves a torn line.
    with records.open("a") as file:
        file.write('{"star": "sta')
    resumed = graded_remotely(stars, records)
    assert [essence(r) for r in resumed] == [essence(r) for r in undisturbed]
    assert len(records.read_text().splitlines()) == N_STARS


def test_nothing_is_run_twice(stars: dict[str, bytes], tmp_path: Path) -> None:
    first = graded_remotely(stars, tmp_path / "records.jsonl")

    def refuse(runtime: vf.Runtime, box: RememberedBox) -> None:
        box.destroy()

    assert graded_remotely(stars, tmp_path / "records.jsonl", refuse) == first


def test_the_runners_own_error_travels_home(stars: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(TransitBenchError) as raised:
        graded_remotely(stars, tmp_path / "a.jsonl", modules=("__init__", "errors"))
    assert raised.value.code == "TB-E007"
    assert "No module named" in raised.value.what
    broken = {"star0": stars["star0"], "bad star": stars["star1"]}
    with pytest.raises(TransitBenchError) as raised:
        graded_remotely(broken, tmp_path / "b.jsonl")
    assert raised.value.code == "TB-E016"
    assert "in the grading box: 'bad star' is no star id" in raised.value.what


def test_garbage_in_the_results_is_no_record(
    stars: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forge(runtime: vf.Runtime, script: str) -> str:
        return '\n{"star": "of another run", "rows": []}\n'

    monkeypatch.setattr(remote_run, "_ask", forge)
    with pytest.raises(TransitBenchError, match="TB-E007"):
        graded_remotely(stars, tmp_path / "records.jsonl")
