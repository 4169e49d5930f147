from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from graders import (
    DEFAULTS,
    NOBODY,
    PACKAGE,
    Grader,
    attack,
    first_python_of_all,
    n_words,
    processes_with,
    seed_that_starts_with,
    wait_until,
)
from hostile import HOSTILE, ROW, Hostile
from hypothesis import given
from hypothesis import strategies as st
from sandbox import NO_SANDBOX, needs_sandbox

from transitbench.cage import Limits
from transitbench.errors import TransitBenchError
from transitbench.runner import (
    MAX_ROWS,
    StarResult,
    parse_rows,
    run_stars,
    usable_cores,
)

USERS = ("me", "nobody") if os.geteuid() == 0 else ("me",)


@pytest.fixture(params=USERS)
def grader(request: pytest.FixtureRequest) -> Iterator[Grader]:
    if NO_SANDBOX:
        pytest.skip(NO_SANDBOX)
    command = [sys.executable]
    if request.param == "nobody":
        python = first_python_of_all()
        if python is None:
            pytest.skip("no Python >= 3.11 outside home directories, which another user needs")
        ids = ("--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
        command = ["setpriv", *ids, python]
    # Not pytest's tmp_path, which nobody else may enter.
    with tempfile.TemporaryDirectory(prefix="transitbench-test-") as name:
        yield Grader(Path(name).resolve(), command)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_hostile_submission_gets_its_status_and_touches_nothing(
    hostile: Hostile, grader: Grader, host_port: int
) -> None:
    token = f"h{uuid.uuid4().hex}"
    secrets = [
        *(grader.results, grader.folder / "stars", grader.library, grader.folder / "tmp"),
        *(PACKAGE / "errors.py", Path(__file__), Path("/tmp").resolve() / "transitbench-hostile"),
    ]
    limits = replace(DEFAULTS, **hostile.limits)
    if hostile.status == "oom" and "setpriv" in grader.command:
        # Once with the real number is enough: touching gigabytes is what takes the time.
        limits = replace(limits, memory_bytes=2**29)
    stars = [token, f"{token}-next"]
    runner = grader.start(
        attack(hostile, token, host_port, secrets),
        stars,
        limits,
        seed_that_starts_with(token, stars),
    )
    _, message = runner.communicate(timeout=60)
    assert (runner.returncode, message) == (0, b"")
    records = grader.read()
    bad, following = records[token], records[f"{token}-next"]

    assert (bad.status, bad.exit_code) == (hostile.status, hostile.exit_code), bad
    assert bad.rows == hostile.rows, bad.stderr_tail
    assert hostile.stderr in bad.stderr_tail
    assert len(bad.stderr_tail) <= 2048
    if hostile.counts is not None:
        assert (bad.n_rows, bad.n_bad_rows) == hostile.counts
    assert (following.status, following.rows) == ("ok", ROW), following
    assert processes_with(token) == []
    assert list((grader.folder / "tmp").iterdir()) == []
    assert [path.name for path in (grader.folder / "out").iterdir()] == ["grade.jsonl"]
    assert not list(Path("/").glob("transitbench-hostile*"))


def test_environment_is_the_fixed_one(grader: Grader) -> None:
    code = "import json, os, sys\nprint(json.dumps(dict(os.environ)), file=sys.stderr)"
    assert grader.start(code, ["s1"]).wait(60) == 0
    seen = json.loads(grader.read()["s1"].stderr_tail)
    # What a shell may add by itself; dash adds nothing, bash the last three.
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):
        seen.pop(name, None)
    path = seen.pop("PATH")
    assert path.endswith(":/usr/local/bin:/usr/bin:/bin")
    assert seen == {
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "BLIS_NUM_THREADS": "1",
        "VECLIB_MAXIMUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
    }


def test_inherited_descriptors_do_not_reach_a_cage(tmp_path: Path) -> None:
    if NO_SANDBOX:
        pytest.skip(NO_SANDBOX)
    secret = tmp_path / "secret"
    secret.write_text("answer")
    descriptor = os.open(secret, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    try:
        code = "import os, sys; print(*sorted(os.listdir('/proc/self/fd')), file=sys.stderr)"
        (result,) = run_here(tmp_path, code, ["s1"])
    finally:
        os.close(descriptor)
    assert result.stderr_tail == "0 1 2 3\n"


def run_here(
    folder: Path, code: str, stars: list[str], *, sandbox: bool = True, limits: Limits = DEFAULTS
) -> list[StarResult]:
    solution = folder / "solution"
    solution.mkdir(exist_ok=True)
    (solution / "solution.py").write_text(code)
    paths = {star: folder / f"{star}.npz" for star in stars}
    for star, path in paths.items():
        path.write_text(star)
    return run_stars(
        solution,
        paths,
        folder / "grade.jsonl",
        limits=limits,
        cores=usable_cores()[:1],
        sandbox=sandbox,
    )


@needs_sandbox
def test_the_star_is_the_one_asked_for_and_the_record_is_measured(tmp_path: Path) -> None:
    code = """
import sys, time
assert open(sys.argv[1]).read() in sys.argv[1]
x = b"x" * (300 * 2**20)
until = time.process_time() + 0.3
while time.process_time() < until: pass
print("7,7,7")"""
    first, second = run_here(tmp_path, code, ["sb", "sa"])
    assert (first.star, second.star) == ("sa", "sb")
    for result in (first, second):
        assert (result.status, result.rows) == ("ok", ROW), result
        assert 300 < result.max_rss_mb < 400
        assert 0.3 <= result.cpu_s < result.wall_s + 0.1


@needs_sandbox
def test_processor_time_of_a_killed_star_is_known(tmp_path: Path) -> None:
    limits = replace(DEFAULTS, wall_s=1.5)
    (result,) = run_here(tmp_path, "while True: pass", ["s1"], limits=limits)
    assert result.status == "timeout"
    assert 0.2 < result.cpu_s <= result.wall_s + 0.1


@needs_sandbox
def test_peak_memory_of_the_grader_is_not_booked_on_the_submission(tmp_path: Path) -> None:
    ballast = b"x" * (400 * 2**20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > len(ballast)
    (result,) = run_here(tmp_path, "import time; time.sleep(0.2)", ["s1"])
    assert 0 < result.max_rss_mb < 100


def test_sigkill_of_the_grader_leaves_no_process_and_a_run_to_resume(grader: Grader) -> None:
    token = f"k{uuid.uuid4().hex}"
    stars = [f"{token}-{i}" for i in range(4)]
    code = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
if sys.argv[1].endswith("-2.npz"): time.sleep(0.4)
print(sys.argv[1][-5] + ",7,7")"""
    undisturbed = grader.start(code, stars, jobs=2)
    assert undisturbed.wait(60) == 0
    expected = {star: (r.status, r.rows) for star, r in grader.read().items()}
    assert expected[stars[3]] == ("ok", ((3.0, 7.0, 7.0),))
    grader.results.unlink()

    for delay_s in (0.0, 0.01, 0.02, 0.04):
        runner = grader.again(jobs=1, seed=seed_that_starts_with(stars[2], stars))
        wait_until(lambda: bool(processes_with(stars[2])))
        time.sleep(delay_s)
        runner.kill()
        runner.wait()
        wait_until(lambda: processes_with(token) == [])
        assert list((grader.folder / "tmp").iterdir())
    with grader.results.open("a") as file:
        file.write('{"star": "torn')
    for left in (grader.folder / "tmp").iterdir():
        os.utime(left, (0, 0))
    assert grader.again().wait(60) == 0
    assert {star: (r.status, r.rows) for star, r in grader.read().items()} == expected
    assert [json.loads(line)["star"] for line in grader.results.read_text().splitlines()] == stars
    assert list((grader.folder / "tmp").iterdir()) == []


def test_sigkill_of_the_grader_while_cages_are_being_set_up(grader: Grader) -> None:
    token = f"e{uuid.uuid4().hex}"
    stars = [f"{token}-{i}" for i in range(2)]
    code = "import time; time.sleep(600)"
    grader.start(code, stars).kill()
    for delay_ms in range(20, 320, 12):
        runner = grader.again()
        time.sleep(delay_ms / 1000)
        runner.kill()
        runner.wait()
    wait_until(lambda: processes_with(token) == [] and processes_with(str(grader.folder)) == [])
    # Trial cages bear no token; those of other graders come and go.
    wait_until(lambda: processes_with("print(6 * 7)") == [])


def test_sigterm_and_sigint_clear_up(grader: Grader) -> None:
    token = f"t{uuid.uuid4().hex}"
    for number in (signal.SIGTERM, signal.SIGINT):
        runner = grader.start("import time; time.sleep(600)", [token])
        wait_until(lambda: bool(processes_with(token + ".npz")))
        runner.send_signal(number)
        assert runner.wait(20) == 128 + number
        wait_until(lambda: processes_with(token) == [])
        assert list((grader.folder / "tmp").iterdir()) == []


def test_a_kill_that_the_grader_did_not_send(grader: Grader) -> None:
    token = f"o{uuid.uuid4().hex}"
    runner = grader.start("import time; print('1,1,1', flush=True); time.sleep(600)", [token])
    # Not bubblewrap or the shell, whose command lines end with the submission's.
    wait_until(lambda: any(n_words(pid) == 3 for pid in processes_with(f"/data/{token}.npz")))
    (inside,) = (pid for pid in processes_with(f"/data/{token}.npz") if n_words(pid) == 3)
    os.kill(inside, signal.SIGKILL)
    assert runner.wait(20) == 0
    result = grader.read()[token]
    assert (result.status, result.exit_code, result.rows) == ("killed", 137, ())


@needs_sandbox
def test_only_missing_stars_run_and_the_order_does_not_matter(tmp_path: Path) -> None:
    code = "import sys, time; print(f'{time.time()},7,7')"
    before = run_here(tmp_path, code, ["s1", "s2"])
    after = run_here(tmp_path, code, ["s3", "s1", "s2"])
    assert [result.star for result in after] == ["s1", "s2", "s3"]
    assert after[:2] == before
    assert StarResult.from_json(json.loads(json.dumps(after[0].to_json()))) == after[0]


@pytest.mark.parametrize("line", ["not json", '{"star": "s1"}', "[]", '"x"'])
def test_results_of_something_else_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "grade.jsonl").write_text(line + "\n")
    with pytest.raises(TransitBenchError, match="TB-E012"):
        run_here(tmp_path, "", ["s1"], sandbox=False)
    assert (tmp_path / "grade.jsonl").read_text() == line + "\n"


def test_results_with_an_unknown_star_are_refused(tmp_path: Path) -> None:
    run_here(tmp_path, "", ["other"], sandbox=False)
    with pytest.raises(TransitBenchError, match=r"TB-E012.*'other'"):
        run_here(tmp_path, "", ["s1"], sandbox=False)


def test_two_graders_do_not_share_a_results_file(tmp_path: Path) -> None:
    def grade_again(result: StarResult) -> None:
        with pytest.raises(TransitBenchError, match="another grader"):
            run_here(tmp_path, "", ["s1"], sandbox=False)
        raise StopIteration

    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solution.py").write_text("")
    (tmp_path / "s1.npz").write_text("")
    with pytest.raises(StopIteration):
        run_stars(
            tmp_path / "solution",
            {"s1": tmp_path / "s1.npz"},
            tmp_path / "grade.jsonl",
            limits=Limits(),
            cores=usable_cores()[:1],
            sandbox=False,
            on_result=grade_again,
        )


def test_a_star_that_cannot_be_read_is_an_error_and_not_a_status(tmp_path: Path) -> None:
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solution.py").write_text("")
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "absent.npz", tmp_path / "pipe.npz", tmp_path):
        with pytest.raises(TransitBenchError, match="TB-E010"):
            run_stars(
                tmp_path / "solution",
                {"s1": path},
                tmp_path / "grade.jsonl",
                limits=Limits(),
                cores=usable_cores()[:1],
            )


@pytest.mark.parametrize("star", ["../s1", "", "a b", "-x", "a/b", "s\n"])
def test_star_ids_that_are_no_file_names_are_refused(tmp_path: Path, star: str) -> None:
    with pytest.raises(TransitBenchError, match="TB-E016"):
        run_stars(
            tmp_path, {star: tmp_path}, tmp_path / "r", limits=Limits(), cores=usable_cores()[:1]
        )


def test_cores_must_be_usable_and_distinct(tmp_path: Path) -> None:
    core = usable_cores()[0]
    for cores in ([], [core, core], [10**6]):
        with pytest.raises(TransitBenchError, match="TB-E016"):
            run_stars(tmp_path, {}, tmp_path / "r", limits=Limits(), cores=cores)


@needs_sandbox
def test_stars_that_every_cage_would_show_are_refused(tmp_path: Path) -> None:
    (tmp_path / "solution").mkdir()
    with pytest.raises(TransitBenchError, match=r"TB-E016.*submissions can read it"):
        run_stars(
            tmp_path / "solution",
            {"s1": Path(os.__file__)},
            tmp_path / "r",
            limits=Limits(),
            cores=usable_cores()[:1],
        )


@needs_sandbox
def test_a_submission_that_vanishes_is_the_graders_failure(tmp_path: Path) -> None:
    (tmp_path / "solution").mkdir()
    (tmp_path / "solution" / "solution.py").write_text("")
    stars = {name: tmp_path / f"{name}.npz" for name in ("s1", "s2")}
    for path in stars.values():
        path.write_text("")

    def lose_it(result: StarResult) -> None:
        (staged,) = Path(tempfile.gettempdir()).glob("transitbench-stage-*/solution")
        shutil.rmtree(staged)

    own_cores = os.sched_getaffinity(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(TransitBenchError, match="TB-E007"):
            run_stars(
                tmp_path / "solution",
                stars,
                tmp_path / "grade.jsonl",
                limits=Limits(),
                cores=usable_cores()[:1],
                on_result=lose_it,
            )
    assert len((tmp_path / "grade.jsonl").read_text().splitlines()) == 1
    assert os.sched_getaffinity(0) == own_cores


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("print('7,7,7')", "ok", 0),
        ("import os; print('7,7,7', flush=True); os.fork() or (os.setsid(), __import__('time').sleep(3))", "ok", 0),
        ("import time; time.sleep(600)", "timeout", None),
        ("import os, time; os.fork() or (os.setsid(), time.sleep(600)); time.sleep(600)", "timeout", None),
        ("x = b'x' * (400 * 2**20); import time; time.sleep(600)", "oom", None),
        ("import sys; sys.stdout.write('1' * 2**21)", "output_limit", None),
        ("import sys; sys.exit(2)", "crash", 2),
        ("import os; os.kill(os.getpid(), 9)", "killed", 137),
        ("import os; os.abort()", "crash", 134),
        ("import os, tempfile; assert os.environ['HOME'] == tempfile.gettempdir(); open(os.environ['HOME'] + '/x', 'w'); print('7,7,7')", "ok", 0),
    ],
)  # fmt: skip
def test_without_a_sandbox_the_record_is_the_same(
    tmp_path: Path, code: str, status: str, exit_code: int | None
) -> None:
    token = f"u{uuid.uuid4().hex}"
    limits = Limits(wall_s=1.5, memory_bytes=300 * 2**20)
    (result,) = run_here(tmp_path, code, [token], sandbox=False, limits=limits)
    assert (result.status, result.exit_code) == (status, exit_code), result
    assert result.rows == (ROW if status == "ok" else ())
    if status != "ok":
        # Killed one by one, not by the kernel at one stroke: the last may still be on its way out.
        wait_until(lambda: processes_with(token) == [])


def test_rows_are_the_three_best_and_ties_go_to_the_first_printed() -> None:
    rows, n_rows, n_bad = parse_rows(b"1,0,5\n2,0,9\n3,0,5\n4,0,5\n5,0,1\n")
    assert rows == ((2.0, 0.0, 9.0), (1.0, 0.0, 5.0), (3.0, 0.0, 5.0))
    assert (n_rows, n_bad) == (5, 0)


@pytest.mark.parametrize(
    "line", [b"1,2,3", b" 1 ,\t2, 3 ", b"1,2,3\r", b"+1.,-.5,1e-3", b"001,2,3", b"1E+2,2,3"]
)
def test_lines_that_are_rows(line: bytes) -> None:
    (row,), n_rows, n_bad = parse_rows(line)
    assert row == tuple(float(part) for part in line.decode().split(","))
    assert (n_rows, n_bad) == (1, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"nan,1,1", b"1,inf,1", b"1,1,-Infinity", b"1e999,1,1", b"0,1,1", b"-0.0,1,1", b"-1,1,1",
        b"1e-999,1,1", b"1_000,1,1", b"0x1p3,1,1", "١,1,1".encode(), "1,1,1".encode("utf-16"),
        b"1,1", b"1,1,", b",,", b"1,1,1,", b"1,1,1,1", b"1 1,1,1", b"1;1;1", b"1,1,1 # best",
        b"\xff,1,1", b"1,1,1\x00", b"e5,1,1", b".,1,1", b"1e,1,1", b"period_days,t0_days", b"--1,1,1",
        b"1,1\r,\r1,1",
    ],
)  # fmt: skip
def test_lines_that_are_no_rows_are_counted(line: bytes) -> None:
    rows, n_rows, n_bad = parse_rows(line.replace(b"\n", b""))
    assert (rows, n_rows, n_bad) == ((), 0, 1)


@pytest.mark.parametrize("text", [b"", b"\n\n \n\t\r\n", b"period_days,t0_days,score\r\n"])
def test_lines_that_do_not_count(text: bytes) -> None:
    assert parse_rows(text) == ((), 0, 0)


@given(st.lists(st.tuples(*[st.floats(allow_nan=True, allow_infinity=True)] * 3), max_size=8))
def test_rows_survive_printing(rows: list[tuple[float, float, float]]) -> None:
    text = "".join(f"{p!r},{t!r},{s!r}\n" for p, t, s in rows)
    valid = [r for r in rows if all(abs(x) < float("inf") for x in r) and r[0] > 0]
    best: list[tuple[float, float, float]] = []
    left = list(valid)
    while left and len(best) < MAX_ROWS:
        top = max(row[2] for row in left)
        best.append(left.pop([row[2] for row in left].index(top)))
    assert parse_rows(text.encode()) == (tuple(best), len(valid), len(rows) - len(valid))


@given(st.binary(max_size=300) | st.text("0123456789.,eE+-\n \r", max_size=300).map(str.encode))
def test_any_bytes_are_read_without_an_error(stdout: bytes) -> None:
    rows, n_rows, n_bad = parse_rows(stdout)
    assert len(rows) == min(n_rows, MAX_ROWS)
    assert n_rows + n_bad <= stdout.count(b"\n") + 1


@pytest.mark.parametrize(
    "unit", [b"\n", b",", b",\n", b"1,1,1\n", b"9", b"9" * 1000 + b",1,1\n", b"\xff", b"1e5,"]
)
def test_a_mebibyte_of_anything_is_read(unit: bytes) -> None:
    stdout = (unit * (2**20 // len(unit)))[: 2**20]
    rows, n_rows, n_bad = parse_rows(stdout)
    assert len(rows) == min(n_rows, MAX_ROWS)
    assert n_rows + n_bad == sum(1 for line in stdout.split(b"\n") if line)
