"""A local server that speaks as much of the Prime sandboxes API as the real client uses to run a task.

It writes down what it is asked for (``PrimeStub.events``) and plays commands and file transfer back
for real, in a sandbox of ``prime_box``. Platform and gateway are one server. An egress policy is all or
nothing here: with an allowlist the sandbox has no network either, as the stub can reach nobody.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prime_box import Box, Command
from prime_sandboxes._proto.command_session import command_session_pb2 as proto

API_KEY = "stub-key"
_API = "/api/v1"
_RPC = "command_session.CommandSession"
_LAST_FRAME = 0x02
_FAR_FUTURE = "2100-01-01T00:00:00Z"
# A background process may keep a command's streams open after its end.
_DRAIN_S = 0.2


@dataclass(frozen=True)
class Event:
    """Something that was asked for: ``create``, ``network``, ``command``, ``upload``, ``download``, ``delete``."""

    kind: str
    sandbox: str
    detail: Any


@dataclass
class _Sandbox:
    box: Box
    request: dict[str, Any]
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    policy: dict[str, Any] = field(default_factory=lambda: {"allowlist": None, "denylist": []})
    generation: int = 0
    sessions: dict[str, Command] = field(default_factory=dict)

    @property
    def closed(self) -> bool:
        return self.policy != {"allowlist": None, "denylist": []}


class PrimeStub:
    """The server; ``files`` are what its image holds, by path."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = files or {}
        self.events: list[Event] = []
        self.sandboxes: dict[str, _Sandbox] = {}
        stub = self

        class Handler(_Handler):
            owner = stub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def record(self, kind: str, sandbox: str, detail: Any) -> None:
        self.events.append(Event(kind, sandbox, detail))

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        for sandbox in self.sandboxes.values():
            sandbox.box.close()


@contextlib.contextmanager
def running_stub(files: dict[str, bytes] | None = None) -> Iterator[PrimeStub]:
    """Serve until the end of the block."""
    stub = PrimeStub(files)
    try:
        yield stub
    finally:
        stub.close()


class _Refusal(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: PrimeStub

    def do_GET(self) -> None:
        self._dispatch("GET")

    def do_POST(self) -> None:
        self._dispatch("POST")

    def do_PUT(self) -> None:
        self._dispatch("PUT")

    def do_DELETE(self) -> None:
        self._dispatch("DELETE")

    def log_message(self, *arguments: Any) -> None:
        pass

    def _dispatch(self, method: str) -> None:
        body = self._read_body()
        path = urlsplit(self.path).path
        try:
            if path.startswith(f"{_API}/"):
                self._check_token(API_KEY)
                self._json(self._platform(method, path.removeprefix(f"{_API}/"), body))
            else:
                self._gateway(method, path, body)
        except _Refusal as refusal:
            self._json({"detail": str(refusal)}, refusal.status)

    def _check_token(self, token: str) -> None:
        if self.headers["Authorization"] != f"Bearer {token}":
            raise _Refusal(401, "unauthorized")

    def _sandbox(self, identity: str) -> _Sandbox:
        if identity not in self.owner.sandboxes:
            raise _Refusal(404, f"no sandbox {identity}")
        return self.owner.sandboxes[identity]

    def _platform(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        asked = json.loads(body) if body else {}
        match (method, path.split("/")):
            case ("POST", ["sandbox"]):
                identity = f"sb-{secrets.token_hex(6)}"
                self.owner.record("create", identity, asked)
                self.owner.sandboxes[identity] = _Sandbox(Box(self.owner.files), asked)
                return _describe(identity, asked)
            case ("POST", ["sandbox", "status:batchGet"]):
                wanted = asked["sandbox_ids"]
                known = [i for i in wanted if i in self.owner.sandboxes]
                return {
                    "statuses": [{"sandbox_id": i, "status": "RUNNING"} for i in known],
                    "errors": [
                        {"sandbox_id": i, "code": "NOT_FOUND", "message": "no such sandbox"}
                        for i in wanted
                        if i not in known
                    ],
                }
            case ("POST", ["sandbox", identity, "auth"]):
                return {
                    "token": self._sandbox(identity).token,
                    "gateway_url": self.owner.url,
                    "user_ns": "stub",
                    "job_id": identity,
                    "expires_at": _FAR_FUTURE,
                }
            case ("GET", ["sandbox", identity, "error-context"]):
                alive = identity in self.owner.sandboxes
                return {"status": "RUNNING" if alive else "TERMINATED"}
            case ("PUT", ["sandbox", identity, "egress-policy"]):
                sandbox = self._sandbox(identity)
                self.owner.record("network", identity, asked)
                sandbox.policy, sandbox.generation = asked, sandbox.generation + 1
                # Applied a moment later, as far as the client can tell.
                return _policy_status(sandbox, sandbox.generation - 1)
            case ("GET", ["sandbox", identity, "egress-policy"]):
                sandbox = self._sandbox(identity)
                return _policy_status(sandbox, sandbox.generation)
            case ("DELETE", ["sandbox", identity]):
                self._sandbox(identity)
                self.owner.record("delete", identity, None)
                self.owner.sandboxes.pop(identity).box.close()
                return {}
        raise _Refusal(404, f"this stub has no {method} {path}")

    def _gateway(self, method: str, path: str, body: bytes) -> None:
        parts = path.strip("/").split("/")
        if len(parts) not in (3, 4) or parts[0] != "stub":
            raise _Refusal(404, f"this stub has no {method} {path}")
        identity = parts[1]
        sandbox = self._sandbox(identity)
        self._check_token(sandbox.token)
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        match (method, parts[2:]):
            case ("POST", ["upload"]):
                content = _multipart_file(body, self.headers["Content-Type"])
                self.owner.record("upload", identity, (query["path"], len(content)))
                if problem := sandbox.box.write(query["path"], content):
                    raise _Refusal(400, problem)
                answer = {"success": True, "path": query["path"], "size": len(content)}
                self._json({**answer, "timestamp": _now()})
            case ("GET", ["download"]):
                self.owner.record("download", identity, query["path"])
                self._send(200, "application/octet-stream", self._file(sandbox, query["path"]))
            case ("GET", ["read-file"]):
                # The sandboxes of the real platform ignore a window as well.
                content = self._file(sandbox, query["path"])
                text = content.decode(errors="replace")
                self._json({"content": text, "size": len(content)})
            case ("POST", [rpc, "Start"]) if rpc == _RPC:
                self._start(identity, sandbox, proto.StartRequest.FromString(body[5:]))
            case ("POST", [rpc, "SendInput"]) if rpc == _RPC:
                given = proto.SendInputRequest.FromString(body)
                sandbox.sessions[given.session.session_uuid].write(given.input.stdin)
                self._send(200, "application/proto", b"")
            case ("POST", [rpc, "SendSignal"]) if rpc == _RPC:
                sent = proto.SendSignalRequest.FromString(body)
                sandbox.sessions[sent.session.session_uuid].signal(sent.signal)
                self._send(200, "application/proto", b"")
            case _:
                raise _Refusal(404, f"this stub has no {method} {path}")

    def _file(self, sandbox: _Sandbox, path: str) -> bytes:
        content = sandbox.box.read(path)
        if content is None:
            raise _Refusal(404, f"no file {path}")
        return content

    def _start(self, identity: str, sandbox: _Sandbox, request: proto.StartRequest) -> None:
        wanted = request.command
        argv = [wanted.cmd, *wanted.args]
        self.owner.record("command", identity, {"argv": argv, "closed": sandbox.closed})
        command = sandbox.box.start(
            argv,
            cwd=wanted.cwd or "/root",
            env={**(sandbox.request.get("environment_vars") or {}), **wanted.envs},
            closed=sandbox.closed,
            interactive=request.stdin,
        )
        sandbox.sessions[request.session_uuid] = command
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+proto")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        # A client that went away does not end its command; deletion of the sandbox does.
        with contextlib.suppress(ConnectionError):
            for event in _events(command):
                self._frame(0, proto.StartResponse(event=event).SerializeToString())
            self._frame(_LAST_FRAME, b"{}")
            self.wfile.write(b"0\r\n\r\n")
        command.close_stdin()

    def _frame(self, flags: int, content: bytes) -> None:
        frame = bytes([flags]) + len(content).to_bytes(4, "big") + content
        self.wfile.write(b"%x\r\n%b\r\n" % (len(frame), frame))

    def _read_body(self) -> bytes:
        if self.headers["Transfer-Encoding"] != "chunked":
            return self.rfile.read(int(self.headers["Content-Length"] or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, document: dict[str, Any], status: int = 200) -> None:
        self._send(status, "application/json", json.dumps(document).encode())

    def _send(self, status: int, content_type: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _events(command: Command) -> Iterator[proto.CommandSessionEvent]:
    """Yield what happens to a command: its start, its output as it comes, its end."""
    event = proto.CommandSessionEvent
    yield event(start=event.StartEvent(pid=command.pid()))
    chunks: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()

    def pump(name: str, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(2**16):
                chunks.put((name, chunk))
        chunks.put((name, b""))

    def report_end() -> None:
        with contextlib.suppress(ConnectionError):
            chunks.put(("end", str(command.exit_code()).encode()))
            return
        chunks.put(("lost", b""))

    for name, descriptor in (("stdout", command.stdout), ("stderr", command.stderr)):
        threading.Thread(target=pump, args=(name, descriptor), daemon=True).start()
    threading.Thread(target=report_end, daemon=True).start()
    streams, exit_code = {"stdout", "stderr"}, None
    deadline = None
    while exit_code is None or streams:
        try:
            remaining = None if deadline is None else max(0.0, deadline - time.monotonic())
            name, chunk = chunks.get(timeout=remaining)
        except queue.Empty:
            break
        if name == "lost":
            raise ConnectionError("the sandbox is gone")
        if name == "end":
            exit_code, deadline = int(chunk), time.monotonic() + _DRAIN_S
        elif chunk:
            yield event(data=event.DataEvent(**{name: chunk}))
        else:
            streams.discard(name)
    yield event(end=event.EndEvent(exit_code=exit_code, exited=True, status="exited"))


def _multipart_file(body: bytes, content_type: str) -> bytes:
    """Return the bytes of the only part of a form."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    head, _, rest = body.partition(b"\r\n\r\n")
    content, end, tail = rest.rpartition(b"\r\n--" + boundary + b"--")
    if not head.startswith(b"--" + boundary) or not end or tail.strip():
        raise _Refusal(400, "no form with one file")
    return content


def _policy_status(sandbox: _Sandbox, applied: int) -> dict[str, Any]:
    return {
        "policy": sandbox.policy,
        "generation": sandbox.generation,
        "applied_generation": applied,
        "applied": applied == sandbox.generation,
    }


def _describe(identity: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": identity,
        "name": asked["name"],
        "dockerImage": asked["docker_image"],
        "cpuCores": asked["cpu_cores"],
        "memoryGB": asked["memory_gb"],
        "diskSizeGB": asked["disk_size_gb"],
        "diskMountPath": "/",
        "gpuCount": asked["gpu_count"],
        "vm": asked["vm"],
        "status": "PROVISIONING",
        "timeoutMinutes": asked["timeout_minutes"],
        "idleTimeoutMinutes": asked.get("idle_timeout_minutes"),
        "labels": asked["labels"],
        "createdAt": _now(),
        "updatedAt": _now(),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
