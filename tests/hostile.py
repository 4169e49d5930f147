"""Submissions that misbehave, each with the one status that it must get.

``@PORT@`` in a code is a TCP port that listens on the host, ``@SECRETS@`` a list of host paths that must
not be readable. A row printed by a code that looks around says that it found something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ROW = ((7.0, 7.0, 7.0),)


@dataclass(frozen=True)
class Hostile:
    name: str
    code: str
    status: str
    rows: tuple[tuple[float, float, float], ...] = ()
    exit_code: int | None = 0
    counts: tuple[int, int] | None = None
    stderr: str = ""
    limits: dict[str, Any] = field(default_factory=dict)


def _looks(name: str, code: str) -> Hostile:
    """A look around: ok, and nothing found."""
    return Hostile(name, _LOOK + code, "ok")


_LOOK = """
import glob, os
def found(what):
    print("1,1,1")
    print("FOUND", what, file=sys.stderr)
def readable(path):
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        with open(path, "rb") as file:
            return bool(file.read(1))
    except OSError:
        return False
"""

HOSTILE = (
    # time
    Hostile("sleeps", "import time; time.sleep(600)", "timeout", exit_code=None, limits={"wall_s": 1}),
    Hostile(
        "ignores_sigterm",
        """
import signal, time
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
print("1,1,1", flush=True)
time.sleep(600)""",
        "timeout",
        exit_code=None,
        limits={"wall_s": 1},
    ),
    # processes
    Hostile(
        "forks_1000",
        """
import os, time
for _ in range(1000):
    if os.fork() == 0: time.sleep(600)""",
        "crash",
        exit_code=1,
        stderr="Resource temporarily unavailable",
    ),
    Hostile(
        "forks_1000_and_catches",
        """
import os, time
n = 0
try:
    for _ in range(1000):
        if os.fork() == 0:
            time.sleep(600)
        n += 1
except OSError:
    pass
print(f"{n},7,7")""",
        "ok",
        # With the first one that makes 64.
        rows=((63.0, 7.0, 7.0),),
    ),
    Hostile(
        "fork_bomb",
        """
import os
while True:
    try: os.fork()
    except OSError: pass""",
        "timeout",
        exit_code=None,
        limits={"wall_s": 1},
    ),
    Hostile(
        "leaves_a_daemon",
        """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.wait()
print("7,7,7")""",
        "ok",
        rows=ROW,
    ),
    # memory
    Hostile(
        "allocates_8_gib",
        "x = []\nfor _ in range(8 * 16): x.append(b'x' * 2**26)",
        "oom",
        exit_code=None,
    ),
    Hostile(
        "spreads_3_gib_over_children",
        """
import os, time
for _ in range(12):
    if os.fork() == 0:
        x = b"x" * 2**28
        time.sleep(600)
time.sleep(600)""",
        "oom",
        exit_code=None,
    ),
    Hostile(
        "shares_memory_with_children",
        """
import os, time
x = b"x" * (100 * 2**20)
for _ in range(8):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(0.6)
print("7,7,7")""",
        "ok",
        rows=ROW,
        limits={"memory_bytes": 300 * 2**20},
    ),
    Hostile(
        "memory_in_an_unmapped_file",
        "import os\nos.memfd_create('x')",
        "crash",
        exit_code=1,
        stderr="Function not implemented",
    ),
    # output
    Hostile(
        "prints_100_mb",
        "for _ in range(100): sys.stdout.write('7,7,7\\n' * 170_000)",
        "output_limit",
        exit_code=None,
    ),
    Hostile(
        "prints_exactly_the_limit",
        "sys.stdout.write('7,7,7\\n' + '\\n' * (2**20 - 6))",
        "ok",
        rows=ROW,
        counts=(1, 0),
    ),
    Hostile(
        "prints_one_byte_over_the_limit",
        "sys.stdout.write('7,7,7\\n' + '\\n' * (2**20 - 5))",
        "output_limit",
        exit_code=None,
    ),
    Hostile(
        "prints_100_mb_to_stderr",
        "for _ in range(100): sys.stderr.write('x' * 10**6)",
        "output_limit",
        exit_code=None,
    ),
    Hostile(
        "one_huge_line", "sys.stdout.write('7' * 10**6)", "ok", counts=(0, 1)
    ),
    Hostile("closes_stdout", "import os; os.close(1); os._exit(0)", "ok", counts=(0, 0)),
    Hostile(
        "prints_garbage",
        r"""
sys.stdout.buffer.write(b'''period_days,t0_days,score
nan,1,1
1,inf,1
1,1,-inf
-3,1,1
0,1,1
1e999,1,1
1_000,1,1
0x10,1,1
1,2
1,2,3,4
hello
\xff\xfe,1,1

 3 , 1.5 ,\t2e0\r
1,1,1
2,1,3
4,1,2
5,1,-1''')""",
        "ok",
        rows=((2.0, 1.0, 3.0), (3.0, 1.5, 2.0), (4.0, 1.0, 2.0)),
        counts=(5, 12),
    ),
    # writing
    Hostile(
        "writes_2_gib",
        """
with open("/tmp/big", "wb") as file:
    for _ in range(2048): file.write(bytes(2**20))""",
        "crash",
        exit_code=1,
        stderr="No space left on device",
    ),
    Hostile(
        "writes_2_gib_and_catches",
        """
import os
for name in ("/tmp/big", "/dev/shm/big"):
    try:
        with open(name, "wb", buffering=0) as file:
            for _ in range(2048): file.write(bytes(2**20))
    except OSError:
        pass
print(f"{sum(f.stat().st_size for f in os.scandir('/tmp') if f.is_file()) / 2**20},7,7")""",
        "ok",
        rows=((512.0, 7.0, 7.0),),
    ),
    _looks(
        "writes_everywhere",
        """
targets = ["/", "/solution", "/data", "/dev", "/etc", "/usr", "/usr/lib", "/proc/sys/kernel", sys.prefix, "/home", "/root", "/var", "/run", "/var/tmp", "/mnt", *@SECRETS@]
for folder in targets:
    try:
        with open(os.path.join(folder, "transitbench-hostile"), "w"): found(folder)
    except OSError: pass
    try: os.mkdir(os.path.join(folder, "transitbench-hostile-d")); found(folder)
    except OSError: pass
for file in ("/solution/solution.py", sys.argv[1], "/etc/passwd", sys.executable, "/proc/sys/kernel/core_pattern"):
    try:
        with open(file, "ab"): found(file)
    except OSError: pass
    try: os.unlink(file); found(file)
    except OSError: pass""",
    ),
    # network
    Hostile(
        "connects_to_the_host",
        "import socket; socket.create_connection(('127.0.0.1', @PORT@), 5)",
        "crash",
        exit_code=1,
        stderr="Connection refused",
    ),
    Hostile(
        "connects_outside",
        "import socket; socket.create_connection(('192.0.2.1', 80), 5)",
        "crash",
        exit_code=1,
        stderr="Network is unreachable",
    ),
    # looking around
    _looks(
        "reads_proc",
        """
for path in glob.glob("/proc/[0-9]*/*"):
    if path.split("/")[2] not in ("1", str(os.getpid())): found(path)
for name in ("cmdline", "environ", "mountinfo"):
    for pid in ("1", "self"):
        try: text = open(f"/proc/{pid}/{name}", "rb").read()
        except PermissionError: continue
        if b"@TOKEN@" in text.replace(sys.argv[1].encode(), b"") or b"HOST_SECRET" in text: found(name)
if os.listdir("/proc/self/fd") != ["0", "1", "2", "3"]: found(os.listdir("/proc/self/fd"))
if os.readlink("/proc/self/fd/0") != "/dev/null": found("stdin")""",
    ),
    _looks(
        "reads_the_host",
        """
for path in ["/home", "/root/.ssh", "/root/.bashrc", "/etc/shadow", "/etc/hosts", "/etc/hostname", "/var", "/run", "/sys", "/mnt", "/opt", "/srv", "/boot", "/proc/kcore", "/dev/vda", "/dev/sda", *@SECRETS@]:
    if readable(path): found(path)""",
    ),
    _looks(
        "reads_another_star",
        "if os.listdir('/data') != [os.path.basename(sys.argv[1])]: found(os.listdir('/data'))",
    ),
    _looks(
        "finds_what_an_earlier_star_left",
        """
for entry in os.scandir("/tmp"):
    # Python itself may live there.
    if not sys.prefix.startswith(entry.path) and not sys.base_prefix.startswith(entry.path): found(entry.path)
if os.listdir("/solution") != ["solution.py"]: found("/solution")""",
    ),
    _looks(
        "imports_the_answers",
        """
for name in ("transitbench", "transitbench.sim", "transitbench_env"):
    try: __import__(name); found(name)
    except ImportError: pass""",
    ),
    _looks(
        "looks_at_its_rights",
        """
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
    if int(status[name], 16) and not (name == "CapBnd" and os.getuid() == 1000): found(name)
if 0 in os.getresuid() + os.getresgid(): found("root")
if status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2": found("seccomp")
if len(os.sched_getaffinity(0)) != 1: found("cores")
if os.uname().nodename != "cage": found(os.uname().nodename)""",
    ),
    _looks(
        "makes_namespaces",
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for flag in (0x10000000, 0x10020000, 0x00020000, 0x40000000, 0x20000000, 0x08000000):
    if libc.unshare(flag) == 0: found(hex(flag))
if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0: found("mount")
if libc.chroot(b"/tmp") == 0: found("chroot")
if libc.shmget(0, 1 << 20, 0o1600) >= 0: found("shmget")
try: os.sched_setaffinity(0, range(64)); found("cores")
except OSError: pass
import resource
try: resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000)); found("rlimit")
except (OSError, ValueError): pass""",
    ),
    # ways to end
    Hostile("exits_non_zero", "print('1,1,1'); sys.exit(3)", "crash", exit_code=3),
    Hostile("raises", "print('1,1,1'); 1 / 0", "crash", exit_code=1, stderr="ZeroDivisionError"),
    Hostile(
        "kills_itself",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "killed",
        exit_code=137,
    ),
    Hostile(
        "kills_everything_it_sees",
        """
import os, signal
for pid in (-1, 1):
    try: os.kill(pid, signal.SIGKILL)
    except OSError: pass
print('7,7,7')""",
        "ok",
        rows=ROW,
    ),
    Hostile(
        "segfaults", "import ctypes; ctypes.string_at(0)", "crash", exit_code=139
    ),
    Hostile("aborts", "import os; os.abort()", "crash", exit_code=134),
)  # fmt: skip
