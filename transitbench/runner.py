"""Run a submission on stars, one caged process each, and write down what came of every star.

:func:`run_stars` is one loop in one thread: the kernel ends a cage with the thread that started it, so
that thread must outlive its cages. Results are appended line by line, so that a run which is killed at
any moment can be taken up again; the finished file is sorted by star.

A *status* is the submission's doing. Whatever is the grader's failure (no cage, unreadable star) raises
instead, and what was written so far stays.

``python -m transitbench.runner`` is the same for boxes that hold only Python and the modules
``errors``, ``submission``, ``cage`` and this one: standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import random
import re
import resource
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, Literal, get_args

from transitbench.cage import (
    FIXED_ENVIRONMENT,
    SETUP_LIMIT_S,
    Cage,
    CagedProcess,
    Limits,
    Star,
    prepare_cage,
)
from transitbench.errors import TransitBenchError
from transitbench.submission import ENTRY_POINT, stage_submission
from transitbench.uidcage import UidCage, prepare_uid_cage

Status = Literal["ok", "timeout", "crash", "oom", "output_limit", "killed"]
Row = tuple[float, float, float]

HEADER = b"period_days,t0_days,score"
MAX_ROWS = 3
STDERR_TAIL_BYTES = 2048
POLL_S = 0.03
# Measuring what processes share walks all their page tables: not at every poll.
SHARED_MEMORY_POLL_S = 0.25
STALE_STAGE_S = 60.0

_FAULTS = (
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGSYS,
    signal.SIGTRAP,
)
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANKS = b" \t\r\v\f"
_STAR_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")
_STAGE_PREFIX = "transitbench-stage-"


@dataclass(frozen=True, slots=True)
class StarResult:
    """What came of one star.

    ``rows`` are the kept ``(period_days, t0_days, score)``, highest score first, empty unless ``status``
    is ``ok``; ``n_rows`` and ``n_bad_rows`` count the valid and the dropped lines of an ``ok`` star.
    ``cpu_s`` and ``max_rss_mb`` (MiB) cover all processes of the star. ``exit_code`` is a shell's: 128 + n
    after signal n; it is None if the grader ended the star.
    """

    star: str
    status: Status
    rows: tuple[Row, ...]
    n_rows: int
    n_bad_rows: int
    wall_s: float
    cpu_s: float
    max_rss_mb: float
    exit_code: int | None
    stderr_tail: str

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> StarResult:
        """Read what :meth:`to_json` wrote. Raises ValueError if it is something else."""
        try:
            rows = tuple((float(p), float(t), float(s)) for p, t, s in document["rows"])
            result = cls(**{**document, "rows": rows})
        except (KeyError, TypeError) as problem:
            raise ValueError(f"no star's record: {problem}") from problem
        if result.status not in get_args(Status):
            raise ValueError(f"unknown status {result.status!r}")
        return result


def parse_rows(stdout: bytes) -> tuple[tuple[Row, ...], int, int]:
    """Read candidate rows: the kept ones (highest score first), the number of valid and of bad lines.

    A row is three decimal numbers ``period_days,t0_days,score``, all finite, with a period above 0; blanks
    around a number and a carriage return at the end do no harm. Blank lines and the literal header are no
    rows. Kept are the three with the highest score, of equals the first printed.
    """
    rows: list[Row] = []
    n_bad = 0
    for line in stdout.split(b"\n"):
        stripped = line.strip(_BLANKS)
        if not stripped or stripped == HEADER:
            continue
        fields = [part.strip(_BLANKS) for part in stripped.split(b",", 3)]
        if len(fields) != 3 or not all(map(_NUMBER.fullmatch, fields)):
            n_bad += 1
            continue
        period_days, t0_days, score = map(float, fields)
        if not all(map(math.isfinite, (period_days, t0_days, score))) or not period_days > 0:
            n_bad += 1
            continue
        rows.append((period_days, t0_days, score))
    kept = sorted(rows, key=lambda row: -row[2])[:MAX_ROWS]
    return tuple(kept), len(rows), n_bad


def usable_cores() -> list[int]:
    """Return the cores that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def run_stars(
    solution_dir: Path,
    stars: Mapping[str, Path],
    results: Path,
    *,
    limits: Limits,
    cores: Sequence[int],
    sandbox: bool = True,
    in_box: bool = False,
    shuffle_seed: int | None = None,
    on_result: Callable[[StarResult], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> list[StarResult]:
    """Run a submission on every star that ``results`` does not hold yet.

    Parameters
    ----------
    solution_dir
        The submission; a copy of it is run.
    stars
        Light-curve file of each star, by star id.
    results
        JSON lines, one star each. What it holds already is kept, a torn last line is cut off.
    limits
        What each star may use.
    cores
        Processor cores; each runs one star at a time.
    sandbox
        False runs the submission as a plain process with the grader's rights: one's own code only.
    in_box
        This is a box that will be thrown away and holds nothing to steal: where bubblewrap cannot run,
        :mod:`transitbench.uidcage` may do.
    shuffle_seed
        Fixes the order of the stars, which changes no result; drawn at random if None.
    on_result
        Called with each star's record as it is written.
    should_stop
        Asked before each star; once it says yes no other star is started, those at work finish.

    Returns
    -------
    list of StarResult
        All stars that ran, those of an earlier run included, sorted by star id.

    Raises
    ------
    TransitBenchError
        TB-E003, TB-E013 for the submission; TB-E004 without a sandbox; TB-E007 if a cage could not be set
        up; TB-E010 for an unreadable star; TB-E012 if ``results`` holds something else or is being written
        by another grader; TB-E016 for a core or star id that cannot be used.
    """
    _check_arguments(stars, cores)
    with _open_results(results, stars) as (log, done):
        missing = sorted(stars.keys() - done.keys())
        random.Random(shuffle_seed).shuffle(missing)
        if missing:
            cage = prepare_sandbox(in_box) if sandbox else None
            if cage is not None:
                _keep_out_of_sight(cage, stars, results)
            with _staging_area() as area:
                stage_submission(solution_dir, area / "solution")
                if cage is not None:
                    cage.admit(area)
                with contextlib.closing(
                    _run(missing, stars, area, limits, cores, cage, should_stop)
                ) as arriving:
                    for result in arriving:
                        # In one call, so that a grader killed here leaves at most one torn line.
                        os.write(log, _as_line(result))
                        done[result.star] = result
                        if on_result is not None:
                            on_result(result)
        finished = [done[star] for star in sorted(done)]
        _replace_sorted(results, finished)
    return finished


def prepare_sandbox(in_box: bool) -> Cage | UidCage:
    """Return what stars are caged with. Raises TB-E004, with the reason why bubblewrap does not run here."""
    try:
        return prepare_cage()
    except TransitBenchError:
        if in_box:
            with contextlib.suppress(TransitBenchError):
                return prepare_uid_cage()
        raise


def _check_arguments(stars: Mapping[str, Path], cores: Sequence[int]) -> None:
    usable = usable_cores()
    if not cores or len(set(cores)) != len(cores) or not set(cores) <= set(usable):
        raise TransitBenchError(
            "TB-E016", f"cores {list(cores)} asked for", f"name each once, out of {usable}"
        )
    for star, path in stars.items():
        if not _STAR_ID.fullmatch(star):
            raise TransitBenchError(
                "TB-E016", f"{star!r} is no star id", "use letters, digits and _ . + -"
            )
        os.close(_open_star(path))


def _open_star(path: Path) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return descriptor
        os.close(descriptor)
        problem = "not a regular file"
    except OSError as error:
        problem = error.strerror or str(error)
    raise TransitBenchError(
        "TB-E010",
        f"cannot read {path}: {problem}",
        "`transitbench data verify` checks a set's files",
    )


def _keep_out_of_sight(cage: Cage | UidCage, stars: Mapping[str, Path], results: Path) -> None:
    for path in (results, *stars.values()):
        if cage.shows(path):
            raise TransitBenchError(
                "TB-E016",
                f"{path} lies where submissions can read it",
                "keep star files and results outside the system's and Python's directories",
            )


@contextlib.contextmanager
def _open_results(
    results: Path, stars: Mapping[str, Path]
) -> Iterator[tuple[int, dict[str, StarResult]]]:
    results.parent.mkdir(parents=True, exist_ok=True)
    log = os.open(results, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            raise _other_run(f"another grader is writing {results}") from problem
        content = results.read_bytes()
        whole, newline, _ = content.rpartition(b"\n")
        os.ftruncate(log, len(whole) + len(newline))
        done: dict[str, StarResult] = {}
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                result = StarResult.from_json(json.loads(line))
            except ValueError as problem:
                raise _other_run(f"line {number} of {results}: {problem}") from problem
            if result.star not in stars:
                raise _other_run(
                    f"line {number} of {results}: star {result.star!r} was not asked for"
                )
            done.setdefault(result.star, result)
        yield log, done
    finally:
        os.close(log)


def _other_run(what: str) -> TransitBenchError:
    return TransitBenchError("TB-E012", what, "choose another results file, or the run's own")


def _as_line(result: StarResult) -> bytes:
    return json.dumps(result.to_json(), allow_nan=False).encode() + b"\n"


def _replace_sorted(results: Path, finished: Sequence[StarResult]) -> None:
    partial = results.with_name(results.name + ".partial")
    with partial.open("wb") as file:
        file.writelines(map(_as_line, finished))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(results)


@contextlib.contextmanager
def _staging_area() -> Iterator[Path]:
    """A private directory for the copy that runs; those that killed graders left are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_STAGE_PREFIX}*"):
        with contextlib.suppress(OSError):
            facts = path.lstat()
            old = time.time() - facts.st_mtime > STALE_STAGE_S
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or not old:
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                # A living grader holds the lock.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)
    with tempfile.TemporaryDirectory(prefix=_STAGE_PREFIX, ignore_cleanup_errors=True) as name:
        descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(descriptor)


class _PlainProcess:
    """An uncaged process in a session of its own, for ``sandbox=False``."""

    def __init__(self, area: Path, star: str, descriptor: int) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="home-", dir=area))
        data = self.home / f"{star}.npz"
        with os.fdopen(os.dup(descriptor), "rb") as source:
            data.write_bytes(source.read())
        self.process = subprocess.Popen(
            [sys.executable, ENTRY_POINT, data],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            cwd=area / "solution",
            env={**FIXED_ENVIRONMENT, "HOME": str(self.home), "TMPDIR": str(self.home)},
        )
        self.watched_pid = self.process.pid

    def kill(self) -> None:
        """Kill the process group, and the descendants that left it."""
        # All of them first: the children of a killed process are nobody's any more.
        for pid in list(_descendants(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Remove what the process wrote."""
        shutil.rmtree(self.home, ignore_errors=True)


@dataclass(slots=True)
class _Running:
    """A star at work, and what is known of it so far."""

    star: str
    core: int
    caged: CagedProcess | _PlainProcess
    pidfd: int
    own_peak_rss: int
    since: float
    started: bool
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    n_stderr: int = 0
    verdict: Status | None = None
    peak_memory: int = 0
    polled_cpu_s: float = 0.0
    shared_measured: float = -math.inf

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.caged.process

    def end(self, verdict: Status) -> None:
        if self.verdict is None:
            self.verdict = verdict
            self.caged.kill()

    def read_stdout(self, limits: Limits) -> bool:
        """Read what there is, at most one byte over the limit; False once there will be no more."""
        while chunk := _read(self.process.stdout, limits.stdout_bytes + 1 - len(self.stdout)):
            self.stdout += chunk
            if len(self.stdout) > limits.stdout_bytes:
                self.end("output_limit")
                return False
        return chunk is None

    def read_stderr(self, limits: Limits) -> bool:
        """Read what there is and keep the tail; False once there will be no more."""
        while chunk := _read(self.process.stderr, 2**16):
            self.stderr += chunk
            del self.stderr[:-STDERR_TAIL_BYTES]
            self.n_stderr += len(chunk)
            if self.n_stderr > limits.stderr_bytes:
                self.end("output_limit")
                return False
        return chunk is None

    def begin(self) -> None:
        """Open the cage's gate and start the clock, unless the cage could not be set up."""
        assert isinstance(self.caged, CagedProcess)
        self.started = self.caged.open_gate()
        self.since = time.monotonic()

    def watch(self, limits: Limits, now: float) -> None:
        """Enforce the limits that only a watcher can."""
        if not self.started:
            if now - self.since > SETUP_LIMIT_S:
                raise _cage_failed(self.star, f"not ready after {SETUP_LIMIT_S:.0f} s")
            return
        if now - self.since >= limits.wall_s:
            self.end("timeout")
        resident, peak = _resident_bytes(self.caged.watched_pid)
        self.peak_memory = max(self.peak_memory, resident, peak)
        self.polled_cpu_s = max(self.polled_cpu_s, _cpu_seconds(self.caged.watched_pid))
        if resident > limits.memory_bytes and now - self.shared_measured > SHARED_MEMORY_POLL_S:
            # Forked children share pages, which the sum counts once for each of them.
            if _proportional_bytes(self.caged.watched_pid) > limits.memory_bytes:
                self.end("oom")
            self.shared_measured = time.monotonic()


def _run(
    queue: Sequence[str],
    stars: Mapping[str, Path],
    area: Path,
    limits: Limits,
    cores: Sequence[int],
    cage: Cage | UidCage | None,
    should_stop: Callable[[], bool] | None = None,
) -> Generator[StarResult, None, None]:
    """Run the stars of ``queue``, one at a time on each core, and yield each as it ends."""
    waiting = list(reversed(queue))
    running: list[_Running] = []
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or running:
                if waiting and should_stop is not None and should_stop():
                    waiting.clear()
                for slot, core in enumerate(cores):
                    if waiting and all(run.core != core for run in running):
                        star = waiting.pop()
                        run = _start(star, stars[star], area, limits, core, slot, cage)
                        running.append(run)
                        _register(selector, run)
                for run in _attend(selector, running, limits):
                    result = _collect(run, limits)
                    running.remove(run)
                    _release(selector, run)
                    yield result
        finally:
            for run in running:
                run.caged.kill()
            for run in running:
                run.process.wait()
                _release(selector, run)


def _start(
    star: str,
    path: Path,
    area: Path,
    limits: Limits,
    core: int,
    slot: int,
    cage: Cage | UidCage | None,
) -> _Running:
    caged: CagedProcess | _PlainProcess
    own_peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    own_cores = os.sched_getaffinity(0)
    descriptor = _open_star(path)
    # A child gets its parent's cores, and a caged one cannot change them.
    os.sched_setaffinity(0, {core})
    try:
        if cage is None:
            caged = _PlainProcess(area, star, descriptor)
        else:
            inside = Star(cage.star_path(star, slot), descriptor)
            command = [sys.executable, ENTRY_POINT, inside.path]
            caged = cage.start(command, area / "solution", inside, limits, slot)
    except OSError as problem:
        raise _cage_failed(star, str(problem)) from problem
    finally:
        os.sched_setaffinity(0, own_cores)
        os.close(descriptor)
    pidfd = os.pidfd_open(caged.process.pid)
    return _Running(star, core, caged, pidfd, own_peak_rss, time.monotonic(), started=cage is None)


def _register(selector: selectors.BaseSelector, run: _Running) -> None:
    handles: dict[str, Any] = {
        "exit": run.pidfd,
        "stdout": run.process.stdout,
        "stderr": run.process.stderr,
    }
    if isinstance(run.caged, CagedProcess):
        handles["gate"] = run.caged.gate
    for name, handle in handles.items():
        selector.register(handle, selectors.EVENT_READ, (run, name))
    for stream in (run.process.stdout, run.process.stderr):
        assert stream is not None
        os.set_blocking(stream.fileno(), False)


def _release(selector: selectors.BaseSelector, run: _Running) -> None:
    for key in list(selector.get_map().values()):
        if key.data[0] is run:
            selector.unregister(key.fileobj)
    os.close(run.pidfd)
    for stream in (run.process.stdout, run.process.stderr):
        assert stream is not None
        stream.close()
    run.caged.close()


def _attend(
    selector: selectors.BaseSelector, running: Sequence[_Running], limits: Limits
) -> list[_Running]:
    """Wait a moment for news, act on them, enforce the limits; the stars whose process has ended."""
    now = time.monotonic()
    deadlines = [run.since + limits.wall_s - now for run in running if run.started]
    ended: list[_Running] = []
    for key, _ in selector.select(max(0.0, min([POLL_S, *deadlines]))):
        run, name = key.data
        if name == "exit":
            ended.append(run)
        elif name == "gate":
            selector.unregister(key.fileobj)
            run.begin()
        elif not (run.read_stdout if name == "stdout" else run.read_stderr)(limits):
            selector.unregister(key.fileobj)
    now = time.monotonic()
    for run in running:
        if run not in ended:
            run.watch(limits, now)
    return ended


def _collect(run: _Running, limits: Limits) -> StarResult:
    """Turn an ended star into its record."""
    wall_s = time.monotonic() - run.since
    if isinstance(run.caged, _PlainProcess):
        run.caged.kill()
    _, wait_status, usage = os.wait4(run.process.pid, 0)
    code = os.waitstatus_to_exitcode(wait_status)
    # Popen must not wait once more for a pid that may be somebody else's.
    run.process.returncode = code
    run.read_stdout(limits)
    run.read_stderr(limits)
    stderr_tail = run.stderr.decode("utf-8", errors="replace")
    if not run.started:
        raise _cage_failed(run.star, stderr_tail.strip() or f"exit code {code}")
    exit_code = 128 - code if code < 0 else code
    status = run.verdict or _status_of(exit_code)
    rows, n_rows, n_bad_rows = parse_rows(bytes(run.stdout)) if status == "ok" else ((), 0, 0)
    # The kernel forgets the time of processes that it kills together with their pid namespace.
    cpu_s = max(run.polled_cpu_s, usage.ru_utime + usage.ru_stime)
    peak = run.peak_memory
    # A child starts out with its parent's peak, which says nothing about the submission.
    if (measured := usage.ru_maxrss * 1024) > run.own_peak_rss + 2**20:
        peak = max(peak, measured)
    return StarResult(
        star=run.star,
        status=status,
        rows=rows,
        n_rows=n_rows,
        n_bad_rows=n_bad_rows,
        wall_s=round(wall_s, 4),
        cpu_s=round(cpu_s, 4),
        max_rss_mb=round(peak / 2**20, 1),
        exit_code=None if run.verdict else exit_code,
        stderr_tail=stderr_tail,
    )


def _status_of(exit_code: int) -> Status:
    """Return the status of a process that ended by itself, from its exit code as a shell gives it."""
    if exit_code == 0:
        return "ok"
    by_signal = exit_code - 128 in set(signal.Signals)
    return "killed" if by_signal and exit_code - 128 not in _FAULTS else "crash"


def _cage_failed(star: str, what: str) -> TransitBenchError:
    return TransitBenchError(
        "TB-E007",
        f"the process of star {star} could not be set up: {what}",
        "finished stars are kept: run again with --resume; `transitbench doctor` examines the sandbox",
    )


def _read(stream: IO[bytes] | None, n_bytes: int) -> bytes | None:
    """Return what a non-blocking pipe holds, empty at its end, None if there is nothing at the moment."""
    assert stream is not None
    try:
        return os.read(stream.fileno(), min(n_bytes, 2**16))
    except BlockingIOError:
        return None


def _descendants(pid: int) -> Iterator[int]:
    """Yield ``pid`` and all processes below it."""
    found = [pid]
    for parent in found:
        yield parent
        # Any thread of a process may have children; any of them may end while it is looked at.
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                with contextlib.suppress(OSError):
                    children = (task / "children").read_bytes()
                    found += map(int, children.split())


_MEMORY_FIELD = re.compile(rb"^(VmHWM|VmRSS|VmSwap):\s*([0-9]+) kB", re.MULTILINE)
_SHARE_FIELD = re.compile(rb"^(?:Pss|SwapPss):\s*([0-9]+) kB", re.MULTILINE)


def _resident_bytes(pid: int) -> tuple[int, int]:
    """Return the memory of a process tree, swap included, and the largest peak of one process in it."""
    total = peak = 0
    for each in _descendants(pid):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{each}/status").read_bytes()
            fields = {name: int(kib) * 1024 for name, kib in _MEMORY_FIELD.findall(status)}
            total += fields.get(b"VmRSS", 0) + fields.get(b"VmSwap", 0)
            peak = max(peak, fields.get(b"VmHWM", 0))
    return total, peak


def _cpu_seconds(pid: int) -> float:
    """Return the processor time of a process tree, with that of children which were waited for."""
    ticks = 0
    for each in _descendants(pid):
        with contextlib.suppress(OSError):
            # The name in parentheses may hold anything; user and system time are fields 14 to 17.
            fields = Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _proportional_bytes(pid: int) -> int:
    """Return the memory of a process tree with every shared page divided among its users."""
    total = 0
    for each in _descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            try:
                shares = Path(f"/proc/{each}/smaps_rollup").read_bytes()
            except PermissionError:
                # A process can forbid this look at it; then it counts in full.
                total += _resident_bytes(each)[0]
                continue
            total += sum(int(kib) for kib in _SHARE_FIELD.findall(shares)) * 1024
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a submission on a directory of stars; the command line of this module."""
    parser = argparse.ArgumentParser(prog="python -m transitbench.runner", description=main.__doc__)
    parser.add_argument("--solution", type=Path, required=True, help="directory with solution.py")
    parser.add_argument(
        "--stars", type=Path, required=True, help="directory with <star id>.npz files"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="results, JSON lines; resumed if there"
    )
    parser.add_argument("--jobs", type=int, default=len(usable_cores()), help="stars at a time")
    parser.add_argument("--limits", default="{}", help='JSON, for instance {"wall_s": 20}')
    parser.add_argument(
        "--box",
        action="store_true",
        help="this is a throw-away box: do without namespaces if need be",
    )
    parser.add_argument("--seed", type=int, help="fixes the order of the stars")
    options = parser.parse_args(arguments)
    leave_on_sigterm()
    try:
        run_stars(
            options.solution,
            {path.stem: path for path in options.stars.glob("*.npz")},
            options.out,
            limits=Limits.from_json(json.loads(options.limits)),
            cores=usable_cores()[: options.jobs],
            in_box=options.box,
            shuffle_seed=options.seed,
        )
    except TransitBenchError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def leave_on_sigterm() -> None:
    """Turn SIGTERM into ``SystemExit``, so that cages and the staged copy are cleared away on the way out."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)


if __name__ == "__main__":
    sys.exit(main())
