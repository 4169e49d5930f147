"""The local box: commands in it, what it hides, what it bounds, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import gc
import http.server
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import verifiers.v1 as vf
from graders import NOBODY, first_python_of_all
from sandbox import needs_sandbox
from sessions import Process, RememberedBox, alive
from verifiers.v1.errors import SandboxError

from transitbench.demo_stars import write_demo_stars
from transitbench.errors import TransitBenchError
from transitbench_env import localbox
from transitbench_env.boxkit import RUNNER_MODULES, library_files, put_files
from transitbench_env.localbox import PROCESSES, LocalBoxConfig

pytestmark = needs_sandbox
T = TypeVar("T")


@pytest.fixture(autouse=True)
def private_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("TRANSITBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


def in_box(use: Callable[[vf.Runtime, RememberedBox], Awaitable[T]], **config: object) -> T:
    """Do something in a box, and see that nothing of it is left."""
    RememberedBox.first_processes.clear()

    async def life() -> T:
        box = RememberedBox(LocalBoxConfig(allow=[], disk=0.25, **config))
        await box.start()
        try:
            async with asyncio.timeout(60):
                return await use(box.bind(env={"OF_THE_TASK": "1"}), box)
        finally:
            await box.stop()

    result = asyncio.run(life())
    assert alive(RememberedBox.first_processes) == []
    return result


def shell(script: str, **config: object) -> vf.ProgramResult:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> vf.ProgramResult:
        return await runtime.run(["bash", "-c", script], {"OF_THE_COMMAND": "2"})

    return in_box(use, **config)


def test_files_travel_unchanged() -> None:
    content = bytes(range(256)) * 20_000

    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        await runtime.write("/workspace/a folder/b.bin", content)
        assert await runtime.read("/workspace/a folder/b.bin") == content
        assert await runtime.read("a folder/b.bin", max_bytes=len(content)) == content
        with pytest.raises(SandboxError, match="over the"):
            await runtime.read("/workspace/a folder/b.bin", max_bytes=len(content) - 1)
        with pytest.raises(SandboxError, match="No such file"):
            await runtime.read("/workspace/nothing")
        with pytest.raises(SandboxError, match="Read-only file system"):
            await runtime.write("/usr/bin/ls", b"")

    in_box(use)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137), ("true", 0)],
)
def test_exit_codes(script: str, code: int) -> None:
    assert shell(script).exit_code == code


def test_a_command_that_is_not_there() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        missing = await runtime.exec(["no-such-program"], {})
        assert await missing.wait() == 127
        forbidden = await runtime.exec(["/etc/passwd"], {})
        assert await forbidden.wait() == 126

    in_box(use)


def test_streams_flow_both_ways() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        process = await runtime.exec(["sh", "-c", "while read x; do echo got $x; done"], {})
        stdout = aiter(process.stdout)
        for word in (b"one", b"two"):
            await process.write(word + b"\n")
            assert await anext(stdout) == b"got " + word + b"\n"
        assert await process.poll() is None
        await process.terminate()
        assert await process.wait() == 128 + signal.SIGTERM

    in_box(use)


def test_the_environment_is_made_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    done = shell("env -0")
    variables = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert variables.pop("OF_THE_TASK") == "1"
    assert variables.pop("OF_THE_COMMAND") == "2"
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "NO_PROXY", "no_proxy"}
    usual = {"PATH", "HOME", "TMPDIR", "LANG", "TZ", "PYTHONNOUSERSITE", *proxies}
    assert set(variables) - {"PWD", "SHLVL", "_"} == usual
    assert "canary" not in done.stdout


def test_an_ordinary_user_without_rights() -> None:
    done = shell("id -u; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; unshare -n true; echo $?")
    uid, *status, refused = done.stdout.split("\n")[:-1]
    assert uid == "1000"
    assert [line.split()[1] for line in status] == ["0" * 16] * 5 + ["1"]
    assert refused == "1"


def test_the_host_cannot_be_seen(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    looked_for = [tmp_path / "secret", Path(os.environ["TRANSITBENCH_DATA"]), Path(__file__)]
    names = " ".join(f"'{path}'" for path in looked_for)
    done = shell(
        f"ls -d {names}; ls /root/.ssh /home/*/.ssh /run /var/run /mnt; "
        "find / -xdev -name '*.npz' -path '*stars*' 2>/dev/null; hostname"
    )
    assert done.stdout == "box\n"
    assert len(done.stderr.splitlines()) == len(looked_for) + 5


def test_this_package_can_be_neither_imported_nor_read() -> None:
    done = shell(
        "for module in transitbench transitbench.sim transitbench_env transitbench_mini; do "
        'python3 -c "import $module" 2>&1 | tail -n 1; done; '
        "find / -name simset.py -o -name localbox.py 2>/dev/null"
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all("Error" in line for line in lines)


def test_data_where_an_agent_could_read_them_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localbox, "data_dir", lambda: Path(sys.prefix, "lib"))
    with pytest.raises(SandboxError, match="TB-E016"):
        shell("true")


class Greeter(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"hello " + self.path.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def greeter() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Greeter) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


FETCH = """\
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=10).read().decode())
    except urllib.error.URLError as problem:
        print(getattr(problem, "code", problem.reason))
"""


def test_only_the_frameworks_route_leads_out(greeter: str) -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        async def fetch(*urls: str) -> list[str]:
            done = await runtime.run(["python3", "-c", FETCH, *urls], {})
            return done.stdout.splitlines()

        route = runtime.host_url(f"{greeter}/v1")
        # In trusted setup the proxy passes what it can; a name that does not exist is its own error.
        assert await fetch(f"{route}/a", "http://no-such-host.invalid/") == ["hello /v1/a", "502"]
        await box.prepare_execution([route])
        port = greeter.rpartition(":")[2]
        closed = [
            "http://no-such-host.invalid/",
            f"http://vf.host.internal:{port}/",
            f"http://2130706433:{port}/",
            "http://169.254.169.254/",
        ]
        assert await fetch(f"{route}/b", *closed) == ["hello /v1/b", *["403"] * len(closed)]
        (direct,) = await fetch(greeter)
        assert "refused" in direct
        await box.prepare_execution(None)
        assert await fetch("http://no-such-host.invalid/") == ["502"]

    in_box(use)


def test_no_interface_but_loopback() -> None:
    done = shell("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; cat /proc/net/route | wc -l")
    assert done.stdout.split() == ["lo", "1"]


def test_cores_and_sizes() -> None:
    done = shell(
        "nproc; ulimit -u; ulimit -c; dd if=/dev/zero of=/workspace/x bs=1M 2>/dev/null; stat -c %s /workspace/x",
        cpu=1.0,
    )
    cores, processes, core_files, written = map(int, done.stdout.split())
    assert (cores, processes, core_files) == (1, PROCESSES, 0)
    assert 0.2 * 2**30 < written <= 0.25 * 2**30


def test_the_largest_process_pays_for_memory() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        eat = "b = bytearray(10**9); import time; time.sleep(30)"
        small, large = await asyncio.gather(
            runtime.run(["sh", "-c", "sleep 3; echo survived"], {}),
            runtime.run(["python3", "-c", f"{eat}"], {}),
        )
        assert (small.stdout, large.exit_code) == ("survived\n", 137)

    in_box(use, memory=0.5)


def test_a_fork_storm_ends_with_the_session() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        storm = "import os, time\nwhile True:\n    try:\n        os.fork() or time.sleep(1000)\n    except OSError:\n        time.sleep(1000)\n"
        process = await runtime.exec(["python3", "-c", storm], {})
        await asyncio.sleep(3)
        assert await process.poll() is None
        box.end_processes()
        assert await process.wait() == 137
        done = await runtime.run(["sh", "-c", "ls -d /proc/[0-9]* | wc -l"], {})
        assert int(done.stdout) < 10

    in_box(use)


def test_the_first_process_is_out_of_reach() -> None:
    done = shell(
        "kill -9 1; cat /proc/1/environ /proc/1/mem 2>&1 | head -c 200; ls /proc/1/fd; "
        "python3 -c 'import ctypes; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0))'; echo alive"
    )
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-2:] == ["-1", "alive"]
    assert "Permission denied" in done.stderr


def test_boxes_do_not_see_each_other() -> None:
    async def both() -> tuple[str, str]:
        boxes = [RememberedBox(LocalBoxConfig(disk=0.1)) for _ in range(2)]
        for box in boxes:
            await box.start()
        first, second = (box.bind() for box in boxes)
        await first.run_background(["sleep", "1000"], {}, "log")
        await first.write("/tmp/mine", b"x")
        seen = await second.run(["sh", "-c", "ls /tmp; ls -d /proc/[0-9]* | wc -l"], {})
        there = await first.run(["sh", "-c", "ls /tmp; ls -d /proc/[0-9]* | wc -l"], {})
        for box in boxes:
            await box.stop()
        return seen.stdout, there.stdout

    seen, there = asyncio.run(both())
    assert "mine" not in seen
    assert int(there.split()[-1]) == int(seen.split()[-1]) + 1


def test_boxes_take_turns_on_their_cores() -> None:
    log: list[str] = []

    async def work(name: str) -> None:
        box = RememberedBox(LocalBoxConfig(disk=0.1))
        await box.start()
        try:
            async with box.undisturbed():
                log.append(f"{name} begins")
                await box.bind().run(["sleep", "0.3"], {})
                log.append(f"{name} ends")
        finally:
            await box.stop()

    async def all_of_them() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(work(name) for name in "abc"))

    asyncio.run(all_of_them())
    assert len(log) == 6
    for begins, ends in zip(log[::2], log[1::2], strict=True):
        assert (begins.split()[1], ends.split()[1]) == ("begins", "ends")
        assert begins.split()[0] == ends.split()[0]


def test_a_cancelled_command_is_killed_with_its_group() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await runtime.run(["sh", "-c", "sleep 987 & sleep 987"], {})
        await asyncio.sleep(0.2)
        done = await runtime.run(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"], {})
        assert "sleep 987" not in done.stdout.replace("sh -c", "")

    in_box(use)


def test_a_process_that_keeps_the_output_does_not_keep_the_command() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> float:
        started_s = time.monotonic()
        done = await runtime.run(["sh", "-c", "sleep 50 & echo started"], {})
        assert (done.exit_code, done.stdout) == (0, "started\n")
        return time.monotonic() - started_s

    assert in_box(use) < 20


def test_a_box_that_is_gone_is_an_error_and_no_wait() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        waiting = asyncio.ensure_future(runtime.run(["sleep", "1000"], {}))
        await asyncio.sleep(0.3)
        box.destroy()
        with pytest.raises(SandboxError, match="gone"):
            await waiting
        with pytest.raises(SandboxError):
            await runtime.run(["true"], {})
        assert not await runtime.alive()

    in_box(use)


ORPHAN = """\
import asyncio, os, signal, sys
from sessions import RememberedBox
from transitbench_env.localbox import LocalBoxConfig

async def main():
    box = RememberedBox(LocalBoxConfig(disk=0.1))
    await box.start()
    daemon = "trap '' TERM HUP INT; setsid sh -c 'trap \\"\\" TERM HUP; sleep 1000 & sleep 1000' & sleep 1000"
    await box.bind().run_background(["sh", "-c", daemon], {}, "log")
    await asyncio.sleep(0.5)
    print(*RememberedBox.first_processes[0], flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


def test_a_box_does_not_outlive_a_killed_host_process() -> None:
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHAN],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdout is not None
    pid, started = process.stdout.readline().split()
    box: list[Process] = [(int(pid), started)]
    assert alive(box)
    process.kill()
    process.wait()
    deadline_s = time.monotonic() + 10
    while alive(box) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not alive(box)


def test_no_descriptor_of_a_box_stays_open() -> None:
    async def use(runtime: vf.Runtime, box: RememberedBox) -> None:
        for _ in range(5):
            await runtime.run(["true"], {})
            await runtime.run_background(["sleep", "1000"], {}, "log")
            process = await runtime.exec(["cat"], {})
            await process.kill()
        await runtime.write("x", bytes(10**6))

    in_box(use)
    gc.collect()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        in_box(use)
    gc.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_stars_are_graded_in_cages_within_the_box(tmp_path: Path) -> None:
    write_demo_stars(tmp_path)
    star = sorted(tmp_path.rglob("*.npz"))[0]

    async def use(runtime: vf.Runtime, box: RememberedBox) -> list[dict[str, object]]:
        await put_files(runtime, library_files(RUNNER_MODULES))
        await runtime.write(f"/tmp/stars/{star.name}", star.read_bytes())
        look = "import os; print('7.5,910.0,3'); print(sorted(os.listdir('/')), file=__import__('sys').stderr)"
        await runtime.write("/tmp/solution/solution.py", look.encode())
        done = await runtime.run(
            [
                *(
                    "env",
                    "PYTHONPATH=/opt/transitbench/lib",
                    "python3",
                    "-m",
                    "transitbench.runner",
                ),
                *(
                    "--solution",
                    "/tmp/solution",
                    "--stars",
                    "/tmp/stars",
                    "--out",
                    "/tmp/out.jsonl",
                ),
            ],
            {},
        )
        assert done.exit_code == 0, done.stderr
        lines = (await runtime.read("/tmp/out.jsonl")).decode().splitlines()
        return [json.loads(line) for line in lines]

    (record,) = in_box(use)
    assert (record["status"], record["rows"]) == ("ok", [[7.5, 910.0, 3.0]])
    assert "workspace" not in str(record["stderr_tail"])


def test_a_machine_without_namespaces_is_told_what_to_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"

    def find_broken() -> Path:
        path = Path(os.environ["TRANSITBENCH_CACHE"], "bwrap")
        path.write_text(broken)
        path.chmod(0o755)
        return path

    monkeypatch.setattr(localbox, "find_bwrap", find_broken)
    with pytest.raises(SandboxError, match=r"TB-E004.*No permissions to create"):
        shell("true")
    monkeypatch.setattr(
        localbox,
        "find_bwrap",
        lambda: (_ for _ in ()).throw(
            TransitBenchError("TB-E004", "no bubblewrap found", "install it")
        ),
    )
    with pytest.raises(SandboxError, match="install it"):
        shell("true")


OF_ANYBODY = """\
import asyncio, os
from sessions import RememberedBox, alive
from transitbench_env.localbox import LocalBoxConfig

async def main():
    box = RememberedBox(LocalBoxConfig(allow=[], disk=0.1))
    await box.start()
    runtime = box.bind()
    await runtime.write("a/b", b"content")
    assert await runtime.read("/workspace/a/b") == b"content"
    script = "id -u; grep CapEff /proc/self/status; touch /usr/x; kill -9 1; ls -d $0; env | grep -c CANARY"
    done = await runtime.run(["sh", "-c", script, os.environ["HOME"]], {})
    print(os.getuid(), *done.stdout.split())
    await box.stop()
    assert not alive(RememberedBox.first_processes)

asyncio.run(main())
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="every other test here runs as an ordinary user already"
)
def test_an_ordinary_user_needs_no_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    python = first_python_of_all()
    if python is None:
        pytest.skip("no Python >= 3.11 outside home directories, which another user needs")
    here = Path(__file__).parent
    libraries = [here.parent, here, *(path for path in sys.path if path.endswith("site-packages"))]
    command = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", python]
    with tempfile.TemporaryDirectory(prefix="transitbench-test-") as home:
        Path(home).chmod(0o777)
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": home,
            "CANARY": "1",
            "TRANSITBENCH_DATA": f"{home}/data",
            "TRANSITBENCH_CACHE": f"{home}/cache",
            "PYTHONPATH": os.pathsep.join(map(str, libraries)),
        }

        def as_nobody(code: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*command, "-c", code], capture_output=True, text=True, check=False, env=environment
            )

        readable = as_nobody("import sessions, transitbench_env.localbox")
        if readable.returncode:
            pytest.skip(
                f"no other user can read this checkout and its packages: {readable.stderr[-300:]}"
            )
        done = as_nobody(OF_ANYBODY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(NOBODY), "1000", "CapEff:", "0" * 16, "0"]
