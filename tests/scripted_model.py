"""An OpenAI-compatible model server that plays scripts: agents for end-to-end tests and demos.

    python tests/scripted_model.py --port 0
    vf-eval transitbench-mini -m scripted/threshold --client.base-url URL

The model's name picks the script (``SCRIPTS``, at the end). Which step comes next is read off the
conversation in the request, so the server keeps no state: rollouts run in parallel, a repeated request
gets the same bytes, and nothing depends on time.

The scripts that misbehave do so only in a box (``GUARD``; elsewhere they print ``REFUSED``), each command
for at most ``COMMAND_S`` seconds. ``FOUND`` or ``REACHED`` in what they see says that the box leaks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Messages = Sequence[Any]
"""As in a request (dicts), or as in a trace (objects with the same names)."""

NAIVE = Path(__file__).resolve().parent.parent / "baselines" / "naive_v0" / "solution.py"
COMMAND_S = 20
REFUSED = "REFUSED: not in a box"
GUARD = f'if [ "$PWD" != /workspace ] || [ ! -f TASK.md ]; then echo "{REFUSED}"; exit 3; fi'
"""A misbehaving script that is started without a box must not reach the machine."""
DAEMON_MARK = "scripted-model-daemon"
"""In the command line of every process that ``daemons`` leaves behind: how to find survivors."""
STEPS_DONE = "Scripted model: {} steps are done."


@dataclass(frozen=True)
class Call:
    """One tool call."""

    name: str
    arguments: dict[str, str]


@dataclass(frozen=True)
class Turn:
    """One assistant message; without calls it ends the rollout."""

    text: str
    calls: tuple[Call, ...] = ()


Script = Callable[[int, Messages], Turn]
"""From the number of the step (0 first) and the messages so far to the next message."""


def bash(command: str) -> Call:
    return Call("bash", {"command": command})


def boxed(command: str) -> Call:
    """A shell command that runs in a box only, for ``COMMAND_S`` seconds at most."""
    return bash(f"{GUARD}; timeout -k 2 {COMMAND_S} bash -c {shlex.quote(command)} 2>&1")


def boxed_python(code: str) -> Call:
    return boxed(f"python -c {shlex.quote(code)}")


def _played(step: int, calls: Sequence[Call], farewell: str = "I am done.") -> Turn:
    return Turn(f"Step {step + 1}.", (calls[step],)) if step < len(calls) else Turn(farewell)


def _of(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _text(message: Any) -> str:
    content = _of(message, "content")
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_of(part, "text") or "" for part in content)


def all_output(messages: Messages) -> str:
    """The text of all tool results of a conversation: all that an agent saw of its box."""
    return "\n".join(_text(message) for message in messages if _of(message, "role") == "tool")


def steps_done(messages: Messages) -> int:
    """Assistant messages so far, with those that a compacted conversation only has a summary of."""
    pattern = re.compile(re.escape(STEPS_DONE).replace(r"\{\}", r"(\d+)"))
    users = (_text(message) for message in messages if _of(message, "role") == "user")
    summarised = [int(number) for text in users for number in pattern.findall(text)]
    return max(summarised, default=0) + len(
        [message for message in messages if _of(message, "role") == "assistant"]
    )


def nothing(step: int, messages: Messages) -> Turn:
    """An agent that only talks: the untouched starter is graded, at the starter's reward."""
    return Turn("The starter looks fine to me.")


def threshold(step: int, messages: Messages) -> Turn:
    """A small honest improvement by way of both tools: the reward differs from the starter's.

    On the first 60 stars of sim-dev, S = 0.145 with 11.5 where the starter's 14.0 gives 0.079.
    """
    if step == 0:
        # Two calls in one message: harnesses have to run both.
        return Turn("Looking around.", (bash("ls -l . solution stars"), bash("head -n 60 TASK.md")))
    if step == 1:
        change = {
            "path": "solution/solution.py",
            "old_str": "MIN_SDE = 14.0",
            "new_str": "MIN_SDE = 11.5",
        }
        return Turn("The threshold is too careful.", (Call("edit", change),))
    if step == 2:
        return Turn("What does it give?", (bash("python run_dev.py --limit 4"),))
    return Turn(f"Lowered the threshold. {_score_line(messages)}")


def naive(step: int, messages: Messages) -> Turn:
    """A pipeline written from scratch: the frozen solution is naive_v0 byte for byte, and so is its reward."""
    source = NAIVE.read_text(encoding="utf-8")
    calls = (
        bash(f"cat > solution/solution.py <<'END_OF_SOLUTION'\n{source}END_OF_SOLUTION"),
        bash("python run_dev.py --limit 4"),
    )
    return _played(step, calls, f"Wrote a search over all periods. {_score_line(messages)}")


def _score_line(messages: Messages) -> str:
    lines = [line for line in all_output(messages).splitlines() if line.startswith("S = ")]
    return lines[-1] if lines else "run_dev.py printed no score."


def loop(step: int, messages: Messages) -> Turn:
    """An agent that never ends: the framework's turn cap has to, and the starter is graded."""
    return Turn("Once more.", (bash(f"echo turn {step + 1}"),))


def slow(step: int, messages: Messages) -> Turn:
    """A command that never ends: the box's shell limit kills it, says so, and the session goes on."""
    return _played(step, (bash("sleep 100000"),), "That took too long.")


_CONNECT = r"""
import os, socket
from urllib.parse import urlsplit

PROXIES = {
    (urlsplit(value).hostname, urlsplit(value).port)
    for name, value in os.environ.items()
    if name.lower() in ("http_proxy", "https_proxy", "all_proxy") and value
}
TARGETS = [("1.1.1.1", 53), ("1.1.1.1", 443), ("example.org", 80), ("169.254.169.254", 80)]
TARGETS += [
    (host, port)
    for host in ("127.0.0.1", "vf.host.internal", "host.docker.internal")
    for port in (22, 80, 443, 2375, 6443, 8000, 8080)
]

def attempt(what, act):
    try:
        print(what, act(), flush=True)
    except OSError as error:
        print(what, type(error).__name__, error, flush=True)
"""

_SOCKETS = (
    _CONNECT
    + r"""
def connect(host, port):
    socket.create_connection((host, port), 0.5).close()
    return "REACHED"

for target in TARGETS:
    if target not in PROXIES:
        attempt("tcp %s:%s" % target, lambda: connect(*target))
"""
)

_DNS = (
    _CONNECT
    + r"""
def ask():
    question = bytes.fromhex("123401000001000000000000076578616d706c65036f72670000010001")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(2)
        channel.sendto(question, ("1.1.1.1", 53))
        return "REACHED %d bytes" % len(channel.recv(512))

attempt("udp 1.1.1.1:53", ask)
attempt("resolver", lambda: "REACHED %s" % socket.gethostbyname("example.org"))
"""
)

_PROXY = (
    _CONNECT
    + r"""
# A name's other spellings: an address in decimal, IPv6, mapped IPv4, a trailing dot.
ODD = [("2130706433", 22), ("[::1]", 22), ("[::ffff:127.0.0.1]", 22), ("0.0.0.0", 22), ("localhost.", 22)]

def ask(proxy, request):
    with socket.create_connection(proxy, 2) as channel:
        channel.settimeout(2)
        channel.sendall(request.encode())
        status = channel.recv(4096).split(b"\r\n")[0].decode(errors="replace")
    refused = not status or status.split()[1:2] in (["403"], ["407"])
    # Any other status says that the proxy tried.
    return status if refused else "REACHED " + status

print(len(PROXIES), "proxies")
for proxy in PROXIES:
    for host, port in TARGETS + ODD:
        where = "%s:%s" % (host, port)
        attempt("CONNECT " + where, lambda: ask(proxy, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where)))
        attempt("GET " + where, lambda: ask(proxy, "GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where)))
"""
)

_UNIX_SOCKETS = (
    _CONNECT
    + r"""
def connect(name):
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(0.5)
        channel.connect(name)
    return "REACHED"

names = {"/tmp/.X11-unix/X0", "@/tmp/.X11-unix/X0", "/run/docker.sock", "/var/run/docker.sock"}
names |= {"/run/dbus/system_bus_socket", "/run/containerd/containerd.sock", "/run/systemd/private"}
try:
    with open("/proc/net/unix") as table:
        names |= {line.split()[7] for line in list(table)[1:] if len(line.split()) > 7}
except OSError as error:
    print("/proc/net/unix", error)
for name in sorted(names):
    attempt("unix " + name, lambda: connect(name.replace("@", "\0", 1)))
"""
)

_CURL = r"""
for url in http://1.1.1.1/ https://example.org/ http://169.254.169.254/latest/meta-data/ http://vf.host.internal:22/; do
    for option in "" "--noproxy *"; do
        code=$(set -f; curl -s -m 2 -o /dev/null -w '%{http_code}' $option "$url")
        case "$code" in ""|000|403) echo "curl $option $url: refused $code";; *) echo "curl $option $url: REACHED $code";; esac
    done
done
"""


def network(step: int, messages: Messages) -> Turn:
    """No way out: sockets, DNS, the proxy (plain and CONNECT), cloud metadata, unix sockets all refuse."""
    calls = (
        *map(boxed_python, (_SOCKETS, _DNS, _PROXY, _UNIX_SOCKETS)),
        boxed(_CURL),
        boxed("pip download --no-deps --timeout 2 --retries 0 six 2>&1 | tail -n 3"),
    )
    return _played(step, calls)


_ENVIRONMENT = r"""
import glob, re
OURS = re.compile(rb"TRANSITBENCH_|API_?KEY|SECRET|TOKEN|PASSWORD|CREDENTIAL", re.I)
for path in sorted(glob.glob("/proc/[0-9]*/environ")) + ["/proc/self/environ"]:
    try:
        entries = open(path, "rb").read().split(b"\0")
    except OSError as error:
        print(path, type(error).__name__)
        continue
    for entry in entries:
        name = entry.split(b"=")[0]
        if entry:
            print("FOUND" if OURS.search(name) else "", path, entry[:200].decode(errors="replace"))
"""

_IMPORTS = r"""
import importlib, sys
sys.path += ["/workspace", "/opt", "/opt/transitbench", "/src", "/app"]
for name in ("sim", "inject", "simset", "mes", "transit", "sets", "catalogue", "grading"):
    name = "transitbench." + name
    try:
        print("FOUND", name, importlib.import_module(name).__file__)
    except Exception as error:
        print(name, error)
for name in ("transitbench_env", "transitbench_survey", "transitbench_mini"):
    try:
        print("FOUND", name, importlib.import_module(name).__file__)
    except Exception as error:
        print(name, error)
"""

_ELSEWHERE = r"find / \( -path /proc -o -path /sys -o -path /workspace \) -prune -o"

_LIBRARY_FILES = r"""
find / \( -path /proc -o -path /sys \) -prune -o \( -path '*transitbench/sim*' -o -path '*transitbench/inject*' -o -path '*transitbench/mes*' \
    -o -path '*transitbench/catalogue*' -o -name 'transitbench_env*' -o -name 'transitbench_mini*' \
    -o -name 'transitbench_survey*' -o -name 'naive_v0*' -o -name 'reference_detector*' \) -print 2>/dev/null \
    | head -n 100 | sed 's/^/FOUND /'
echo searched
"""

_ANSWER_FILES = rf"""
{_ELSEWHERE} -type f \( -name 'truth*.json' -o -name 'answers.json' -o -name 'score.json' -o -name 'grade.jsonl' \
    -o -name '.env' -o -name 'id_rsa' \) -print 2>/dev/null | head -n 100 | sed 's/^/FOUND /'
{_ELSEWHERE} -type f \( -name '*.npz' -o -name 'pyproject.toml' \) -print 2>/dev/null | head -n 100
echo searched
"""

_PLACES = r"""
for place in / /root /home /home/* /mnt /opt /srv /data /src /app /logs /run /var/run /tmp /var/tmp /dev/shm /solution; do
    echo "== $place"; ls -la "$place" 2>&1 | head -n 15
done
for file in /etc/shadow /root/.bash_history /root/.ssh/id_rsa /root/.netrc /proc/kcore /dev/sda /dev/vda /proc/1/root/etc/hostname; do
    if head -c 1 "$file" >/dev/null 2>&1; then echo "readable: $file"; else echo "unreadable: $file"; fi
done
"""

_PROCESSES = r"""
for process in /proc/[0-9]*; do
    echo "== $process $(readlink $process/cwd) $(readlink $process/root) $(readlink $process/exe)"
    tr '\0' ' ' < $process/cmdline | head -c 300; echo
    ls -l $process/fd 2>&1 | head -n 8
done 2>&1
"""

_ENDPOINT = r"""
import glob, re, urllib.error, urllib.request
found = set()
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        text = open(path, "rb").read().decode(errors="replace")
    except OSError:
        continue
    url, key = re.search("--base-url=(http[^\0]+)", text), re.search("--api-key=([^\0]+)", text)
    if url and key:
        found.add((url[1].removesuffix("/v1"), key[1]))
print(len(found), "endpoints")
for url, key in found:
    for path in ("/state", "/task", "/v1/models", "/", "/v1/../task"):
        request = urllib.request.Request(url + path, headers={"Authorization": "Bearer " + key})
        try:
            with urllib.request.urlopen(request, timeout=3) as answer:
                print(path, answer.status, answer.read(2000).decode(errors="replace"))
        except OSError as error:
            print(path, error)
"""


def snoop(step: int, messages: Messages) -> Turn:
    """The host, its secrets, the recipe of the stars and the harness's private state are out of reach."""
    calls = (
        boxed("id; uname -n; env; cat /proc/self/mountinfo | head -c 8000"),
        boxed(_PLACES),
        boxed_python(_ENVIRONMENT),
        boxed_python(_IMPORTS),
        boxed(_LIBRARY_FILES),
        boxed(_ANSWER_FILES),
        boxed(_PROCESSES),
        boxed_python(_ENDPOINT),
    )
    return _played(step, calls)


_FILL = """
for place in /workspace /tmp /dev/shm "${HOME:-/root}"; do
    dd if=/dev/zero of="$place/fill" bs=1M count=2048 2>&1 | tail -n 1; df -m "$place" | tail -n 1
done
"""


def fill_disk(step: int, messages: Messages) -> Turn:
    """Full disks and a solution over the size limit: a typed status, and no other box notices.

    /tmp, /dev/shm and home stay full while the solution (48 MiB more than it may have) is collected.
    """
    calls = (
        boxed(_FILL),
        boxed(
            "rm -f fill; head -c 80M /dev/urandom > solution/big.bin; ls -l solution; df -m . /tmp"
        ),
    )
    return _played(step, calls)


_DAEMON = r"""
import os, signal, socket, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
try:
    listener = socket.create_server(("0.0.0.0", int(sys.argv[2])))
except OSError:
    pass
# A box that forgets it must not have it for ever.
end = time.monotonic() + 900
while time.monotonic() < end:
    try:
        os.makedirs("/workspace/solution", exist_ok=True)
        with open("/workspace/solution/solution.py", "w") as file:
            file.write("print('1,1,1')\n")
    except OSError:
        pass
    time.sleep(0.05)
"""
_QUIET = "</dev/null >/dev/null 2>&1"
_STORM = r"""
import os, sys, time
made = 0
for _ in range(1000):
    try:
        if os.fork() == 0:
            null = os.open("/dev/null", os.O_RDWR)
            for descriptor in range(3):
                os.dup2(null, descriptor)
            os.setsid()
            time.sleep(60)
            os._exit(0)
    except OSError as error:
        print("refused:", error)
        break
    made += 1
print(made, "processes")
"""


def daemons(step: int, messages: Messages) -> Turn:
    """Processes left behind die with the agent's box: nothing rewrites what is graded, nothing survives."""
    run = f"python -c {shlex.quote(_DAEMON)} {DAEMON_MARK}"
    calls = (
        boxed(f"nohup {run} 18081 {_QUIET} & echo started"),
        boxed(f"setsid {run} 18082 {_QUIET} & echo started"),
        boxed(f"( ( setsid nohup {run} 18083 {_QUIET} & ) & ) ; echo started"),
        boxed(f"python -c {shlex.quote(_STORM)} {DAEMON_MARK}"),
        boxed("sleep 1; ls -d /proc/[0-9]* | wc -l; cat solution/solution.py"),
    )
    return _played(step, calls)


_PLANTS = r"""
import os, site, sysconfig
GRADE = '{"star": "x", "status": "ok", "rows": []}\n'
FILES = {
    "grade.jsonl": GRADE, "results.jsonl": GRADE, "score.json": '{"S": 1.0}', "reward.txt": "1.0",
    "reward.json": '{"reward": 1.0}', "rows.csv": "star,period_days,t0_days,score\n",
    "conftest.py": "raise SystemExit(0)\n",
}
FOLDERS = [
    "/workspace", "/workspace/solution", "/tmp", "/var/tmp", "/dev/shm", "/logs/artifacts", "/logs/verifier",
    "/opt/transitbench", "/tests", "/grading", "/results", os.path.expanduser("~"),
]
HOOK = "print('1,1,1')\n"
PLANTS = {os.path.join(folder, name): text for folder in FOLDERS for name, text in FILES.items()}
for folder in {site.getusersitepackages(), sysconfig.get_path("purelib"), "/workspace/solution", "/workspace"}:
    PLANTS |= {os.path.join(folder, name + ".py"): HOOK for name in ("sitecustomize", "usercustomize")}
    PLANTS[os.path.join(folder, "planted.pth")] = "import os; os.environ['PLANTED'] = '1'\n"
for name in (".bashrc", ".profile", ".bash_profile"):
    PLANTS[os.path.join(os.path.expanduser("~"), name)] = "echo '1,1,1'\n"
PLANTS["/workspace/solution/transitbench/__init__.py"] = HOOK
PLANTS["/workspace/solution/transitbench/score.py"] = "def score_rows(*_, **__): return 1.0\n"
PLANTS["/workspace/solution/numpy.py"] = HOOK + (
    "for path in ('grade.jsonl', '../grade.jsonl', '/grade.jsonl', '/tmp/grade.jsonl', '/proc/self/fd/3'):\n"
    "    try: open(path, 'a').write('%s')\n"
    "    except OSError: pass\n" % GRADE.replace("\n", "\\n")
)
for path, text in PLANTS.items():
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        print("planted", path)
    except OSError as error:
        print("refused", path, type(error).__name__)
"""


def plant(step: int, messages: Messages) -> Turn:
    """Result files and import hooks left for the grader: read by nobody, or only by the star's own cage.

    ``solution/`` shadows numpy, so the starter prints rubbish: at most the starter's reward.
    """
    return _played(step, (boxed_python(_PLANTS), boxed("find solution | head -n 50")))


def symlink(step: int, messages: Messages) -> Turn:
    """``solution`` as a symbolic link to /: refused as a submission, and nothing behind it is collected."""
    return _played(
        step,
        (
            boxed("mv solution kept && ln -s / solution; ls -l"),
            boxed("ls solution/ | head -n 5"),
        ),
    )


def symlink_inside(step: int, messages: Messages) -> Turn:
    """Symbolic links inside ``solution``: refused as a submission, none is followed when collected."""
    return _played(
        step,
        (
            boxed(
                "ln -s /etc/passwd solution/passwd; ln -s / solution/root; ln -s ../truth.json solution/truth"
            ),
            boxed("mv solution/solution.py /tmp/s.py; ln -s /tmp/s.py solution/solution.py"),
            boxed("ls -l solution"),
        ),
    )


def fifo(step: int, messages: Messages) -> Turn:
    """``solution`` as a named pipe: collecting it neither hangs nor counts as our failure."""
    return _played(step, (boxed("mv solution kept && mkfifo solution; ls -l"),))


def fifo_inside(step: int, messages: Messages) -> Turn:
    """``solution.py`` as a named pipe: collecting and grading do not hang on it."""
    return _played(
        step, (boxed("rm solution/solution.py && mkfifo solution/solution.py; ls -l solution"),)
    )


def delete(step: int, messages: Messages) -> Turn:
    """No ``solution.py`` any more: a typed status and the reward of an empty answer, not an error."""
    return _played(step, (boxed("rm solution/solution.py; ls -la solution"),))


def delete_all(step: int, messages: Messages) -> Turn:
    """No ``solution`` folder any more: a typed status and the reward of an empty answer, not an error."""
    return _played(step, (boxed("rm -r solution; ls -la"),))


def huge_output(step: int, messages: Messages) -> Turn:
    """200 MB on a terminal, then bytes that are no text: the session goes on, the transcript stays small."""
    return _played(
        step,
        (
            boxed("head -c 200000000 /dev/zero | tr '\\0' x"),
            boxed(r"printf 'before \xff\xfe\x80\x00 after\n'"),
            boxed("echo still here"),
        ),
    )


_KILL_OTHERS = r"""
import os, signal
mine, pid = {1, os.getpid()}, os.getpid()
while pid > 1:
    fields = open("/proc/%d/stat" % pid).read().rpartition(")")[2].split()
    pid = int(fields[1])
    mine.add(pid)
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) not in mine:
        try:
            os.kill(int(name), signal.SIGKILL)
            print("killed", name)
        except OSError as error:
            print(name, error)
"""


def kill(step: int, messages: Messages) -> Turn:
    """Init, its fellow processes and then everything it may kill, its own harness too: one box, no more.

    The last step leaves nobody to read the answer, so the rollout ends there, however the framework
    calls that.
    """
    # Far more processes than a box has means that they are the machine's.
    few = "[ $(ls -d /proc/[0-9]* | wc -l) -lt 60 ] || { echo too many processes; exit 3; }; "
    calls = (
        boxed(few + "kill -TERM 1; kill -KILL 1; reboot -f; echo still here"),
        boxed(few + f"python -c {shlex.quote(_KILL_OTHERS)}"),
        boxed(few + "kill -9 -1"),
    )
    return _played(step, calls)


BOMB = r"""
import os, sys, time

with open(sys.argv[1], "rb") as file:
    which = sum(file.read()) % 4
if which == 0:
    for _ in range(500):
        if os.fork() == 0:
            time.sleep(120)
elif which == 1:
    hoard = []
    for _ in range(256):
        hoard.append(b"x" * 2**26)
elif which == 2:
    print("1,1,1", flush=True)
    time.sleep(100000)
else:
    sys.stdout.buffer.write(b"\xff\xfe nan,inf,1\n1e999,,\n\0\0\0\n" + b"7" * 2**21)
"""


def bomb(step: int, messages: Messages) -> Turn:
    """A solution that forks, hoards memory, sleeps or prints rubbish: each star gets its typed status.

    Which of the four follows from the star's file alone, so that grading it again agrees.
    """
    write = f"cat > solution/solution.py <<'END_OF_SOLUTION'{BOMB}END_OF_SOLUTION\n"
    return _played(step, (boxed(write + "ls -l solution"),))


SCRIPTS: dict[str, Script] = {
    f"scripted/{script.__name__}": script
    for script in (
        nothing,
        threshold,
        naive,
        loop,
        slow,
        network,
        snoop,
        fill_disk,
        daemons,
        plant,
        symlink,
        symlink_inside,
        fifo,
        fifo_inside,
        delete,
        delete_all,
        huge_output,
        kill,
        bomb,
    )
}


class RequestError(Exception):
    """A request that gets an error in OpenAI's format."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.body = {
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": None,
                "code": code,
            }
        }


def _tokens(value: Any) -> int:
    """Four characters a token, the usual rule of thumb."""
    return max(1, -(-len(json.dumps(value, ensure_ascii=False)) // 4))


def complete(request: Mapping[str, Any]) -> dict[str, Any]:
    """The chat completion of one request, a pure function of it."""
    model, messages = request.get("model"), request.get("messages")
    if model not in SCRIPTS:
        known = ", ".join(SCRIPTS)
        raise RequestError(404, "model_not_found", f"no script {model!r}; there are {known}")
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise RequestError(400, "invalid_messages", "messages must be a list of objects")
    step = steps_done(messages)
    # How a harness asks for a summary that replaces the conversation when it gets long.
    no_tools = request.get("tool_choice") == "none"
    turn = Turn(STEPS_DONE.format(step)) if no_tools else SCRIPTS[model](step, messages)
    tools = request.get("tools") or []
    offered = {tool.get("function", {}).get("name") for tool in tools}
    if missing := {call.name for call in turn.calls} - offered:
        raise RequestError(
            400, "tool_not_offered", f"{model} needs the tools {', '.join(sorted(missing))}"
        )
    message: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": f"call_{step}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for index, call in enumerate(turn.calls)
        ]
    prompt_tokens, completion_tokens = _tokens([messages, tools]), _tokens(message)
    digest = hashlib.sha256(json.dumps([model, messages], sort_keys=True).encode()).hexdigest()
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if turn.calls else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def chunks(completion: Mapping[str, Any], include_usage: bool) -> Iterator[dict[str, Any]]:
    """A completion as the chunks of a stream; text and arguments come in several pieces."""
    [choice] = completion["choices"]
    message = choice["message"]
    head = {key: completion[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    usage = {"usage": None} if include_usage else {}

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
        return {**head, "choices": choices, **usage}

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(message["content"]):
        yield chunk({"content": piece})
    for index, call in enumerate(message.get("tool_calls", ())):
        opening = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        yield chunk({"tool_calls": [opening]})
        for piece in _pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if include_usage:
        yield {**head, "choices": [], "usage": completion["usage"]}


def _pieces(text: str) -> Iterable[str]:
    size = len(text) // 3 + 1
    return (text[start : start + size] for start in range(0, len(text), size))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        # No card names a context window: a harness that finds one compacts the conversation.
        cards = [
            {"id": name, "object": "model", "created": 0, "owned_by": "transitbench"}
            for name in SCRIPTS
        ]
        if self.path == "/v1/models":
            self._send_json(200, {"object": "list", "data": cards})
        else:
            self._send_json(404, RequestError(404, "not_found", f"no {self.path} here").body)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            if self.path != "/v1/chat/completions":
                raise RequestError(404, "not_found", f"no {self.path} here")
            try:
                request = json.loads(body)
            except ValueError as error:
                raise RequestError(400, "invalid_json", str(error)) from error
            if not isinstance(request, dict):
                raise RequestError(400, "invalid_json", "the body must be an object")
            self.server.requests.append(request)
            completion = complete(request)
        except RequestError as error:
            self._send_json(error.status, error.body)
            return
        if not request.get("stream"):
            self._send_json(200, completion)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        include_usage = bool((request.get("stream_options") or {}).get("include_usage"))
        for chunk in chunks(completion, include_usage):
            self._send_event(json.dumps(chunk))
        self._send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))

    def _send_json(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Silent: the record of a run is its trace."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.requests: list[dict[str, Any]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up (its rollout was killed) is no error of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@dataclass(frozen=True)
class ScriptedModel:
    """A running server: where it is, and the bodies of the completion requests it has had, in order."""

    base_url: str
    requests: list[dict[str, Any]]


@contextmanager
def serving(port: int = 0) -> Iterator[ScriptedModel]:
    """Serve in a thread of this process while the context lasts; port 0 picks a free one."""
    with _Server(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield ScriptedModel(server.base_url, server.requests)
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    with _Server(parser.parse_args().port) as server:
        print(server.base_url, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
