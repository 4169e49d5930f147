"""The process inside a stub's sandbox that starts what it is told; run by ``python -c``, standard library only.

Requests and answers are JSON datagrams on the socket whose descriptor is the argument. ``start`` comes
with the descriptors of its standard streams, and perhaps one more that the command is to inherit; it is
answered with the pid, and once more with the exit code.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading


def serve(channel: socket.socket) -> None:
    running: dict[str, subprocess.Popen[bytes]] = {}

    def answer(identity: str, **fields: object) -> None:
        channel.send(json.dumps({"id": identity, **fields}).encode())

    def wait(identity: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        answer(identity, exit=code if code >= 0 else 128 - code)

    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, 2**20, 4)
        if not message:
            return
        request = json.loads(message)
        identity = request["id"]
        if request["op"] == "signal":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running[identity].pid, request["number"])
            continue
        stdin, stdout, stderr, *inherited = descriptors
        # A descriptor's number is the sender's business, so the command learns ours.
        argv = [str(inherited[0]) if word is None else word for word in request["argv"]]
        try:
            process = subprocess.Popen(
                argv,
                cwd=request["cwd"],
                env=request["env"],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=inherited,
                start_new_session=True,
            )
        except OSError as problem:
            os.write(stderr, f"{problem}\n".encode())
            answer(identity, pid=0)
            answer(identity, exit=126)
        else:
            running[identity] = process
            answer(identity, pid=process.pid)
            threading.Thread(target=wait, args=(identity, process), daemon=True).start()
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
