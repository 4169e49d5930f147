"""First process of a local box: starts commands for the host, and ends the box when the host is gone.

It runs inside, as process 1 of the box's pid namespace: the kernel lets no process of the namespace kill
it, and kills all of them with it. It holds the box's end of a socket pair; when the other end closes,
because the box is torn down or the host process died in whatever way, it exits.

Messages are JSON datagrams. From the host: ``run`` (with four descriptors: a file with the command, its
standard input, output and error), ``kill`` and ``sweep`` (end every process of the box). To the host: ``hello`` (with a listening socket on the
box's loopback, served by the host), ``exit``.

Standard library only; it is handed to Python as text.
"""

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PR_SET_DUMPABLE = 4
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MEMORY_POLL_S = 0.5
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def send(
    control: socket.socket, message: dict[str, Any], descriptors: tuple[int, ...] = ()
) -> None:
    """Tell the host; a host that is gone is noticed where messages are received."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    with contextlib.suppress(OSError):
        control.sendmsg([json.dumps(message).encode()], rights if descriptors else [])


def receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None when the host is gone."""
    descriptors = array.array("i")
    data, ancillary, _, _ = control.recvmsg(4096, socket.CMSG_SPACE(4 * descriptors.itemsize))
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(
                content[: len(content) // descriptors.itemsize * descriptors.itemsize]
            )
    return (json.loads(data) if data else None), list(descriptors)


def start(descriptors: list[int]) -> tuple[int, int]:
    """Start a command in a session of its own; its pid, or 0 and the exit code that says why not."""
    order, stdin, stdout, stderr = descriptors
    with os.fdopen(order, "rb") as file:
        command = json.load(file)
    try:
        process = subprocess.Popen(
            command["argv"],
            env=command["env"],
            cwd=command["cwd"],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    except OSError as problem:
        os.write(stderr, f"{command['argv'][0]}: {problem}\n".encode())
        return 0, NOT_FOUND if isinstance(problem, FileNotFoundError) else NOT_EXECUTABLE
    finally:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
    # Every child of the box ends up here, so all are collected by number, none by object.
    process.returncode = 0
    return process.pid, 0


def collect() -> list[tuple[int, int]]:
    """Return (pid, exit code as a shell gives it) of all children that have ended."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended.append((pid, 128 - code if code < 0 else code))


def kill(how: Callable[[int, int], None], pid: int, number: int) -> None:
    """Send a signal to what may have ended since."""
    with contextlib.suppress(ProcessLookupError):
        how(pid, number)


def largest_of_too_many(limit_bytes: int) -> int | None:
    """Return the process with most resident memory if all of them together are over the limit."""
    sizes = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != "1":
            try:
                _, resident, shared, *_ = map(int, (folder / "statm").read_text().split())
            except (OSError, ValueError):
                continue
            sizes[int(folder.name)] = (resident - shared) * PAGE_BYTES
    if sum(sizes.values()) <= limit_bytes:
        return None
    return max(sizes, key=lambda pid: sizes[pid])


def main() -> None:
    """Serve until the host is gone."""
    options = json.loads(sys.argv[1])
    control = socket.socket(fileno=options["control"])
    control.set_inheritable(False)
    # Nobody in the box may look into this process, or take its descriptors.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.sched_setaffinity(0, options["cores"])
    resource.setrlimit(resource.RLIMIT_NPROC, (options["processes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        send(control, {"hello": listener.getsockname()[1]}, (listener.fileno(),))
    running: dict[int, int] = {}
    memory_checked_s = time.monotonic()
    watched = [control.fileno(), wake_read]
    while True:
        poll_s = MEMORY_POLL_S if running else None
        ready = select.select(watched, [], [], poll_s)[0]
        if watched[0] in ready:
            message, descriptors = receive(control)
            if message is None:
                os._exit(0)
            if "run" in message:
                pid, code = start(descriptors)
                if pid:
                    running[pid] = message["run"]
                else:
                    send(control, {"exit": message["run"], "code": code})
            elif "kill" in message:
                for pid in [pid for pid, number in running.items() if number == message["kill"]]:
                    kill(os.killpg, pid, message["signal"])
            else:
                # All but this process; commands that are told to end so are reported like any other.
                kill(os.kill, -1, signal.SIGKILL)
        if watched[1] in ready:
            os.read(wake_read, 4096)
        for pid, code in collect():
            if pid in running:
                send(control, {"exit": running.pop(pid), "code": code})
        if options["memory_bytes"] and time.monotonic() - memory_checked_s >= MEMORY_POLL_S:
            memory_checked_s = time.monotonic()
            victim = largest_of_too_many(options["memory_bytes"])
            if victim is not None:
                kill(os.kill, victim, signal.SIGKILL)


main()
