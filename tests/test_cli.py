"""The command line as a user meets it: output, JSON, exit codes, help."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import lightkurve
import numpy as np
import pytest
from conftest import white_noise_star

from transitbench.cli import main
from transitbench.fingerprint import sha256_hex
from transitbench.lightcurve import LightCurve
from transitbench.sets import StarSet, star_id, write_set
from transitbench.transit import transit_duration_hours, transit_model
from transitbench.truth import Planet, StarTruth

ORBIT = {"period_days": 4.321, "rp_rs": 0.03, "a_rs": 12.0, "impact": 0.2}
T0_DAYS = 908.5
PLANET = Planet(4.321, T0_DAYS, transit_duration_hours(**ORBIT), 900.0, 0.03, 12.0, 0.2, 18, 30.0)
KINDS = ("planet", "planet", "eb", "false_alarm", "quiet", "quiet")


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


def transitbench(*arguments: object) -> Done:
    """What the installed command does, without paying for a new interpreter each time."""
    stdout, stderr = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["transitbench", *map(str, arguments)]
    returncode = 0
    try:
        with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            main()
    except SystemExit as leaving:
        returncode = int(leaving.code or 0)
    finally:
        sys.argv = argv
    return Done(returncode, stdout.getvalue(), stderr.getvalue())


@pytest.fixture(autouse=True)
def wide_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setenv("NO_COLOR", "1")


def test_module_and_script_are_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "transitbench", "data", "list", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == json.loads(transitbench("data", "list", "--json").stdout)


@pytest.fixture(scope="module")
def small_set(tmp_path_factory: pytest.TempPathFactory) -> StarSet:
    def stars():
        for index, kind in enumerate(KINDS):
            star = white_noise_star(index)
            truth = StarTruth(kind)
            if kind == "planet":
                flux = star.flux * transit_model(
                    star.time, t0_days=T0_DAYS, limb_darkening=(0.45, 0.2), **ORBIT
                )
                star = LightCurve(**{**star.__dict__, "flux": flux})
                truth = StarTruth(kind, (PLANET,))
            yield star_id(b"key", f"small/{index}"), star, truth

    path = tmp_path_factory.mktemp("sets") / "small"
    return write_set(path, "small", "sim", {"version": "1"}, stars())


@pytest.fixture
def knowing_solution(tmp_path: Path) -> Path:
    """A submission that finds every planet and reports one false candidate on a quiet star."""
    directory = tmp_path / "knowing"
    directory.mkdir()
    (directory / "solution.py").write_text(f"""
import sys
import numpy as np

star = np.load(sys.argv[1])
phase = (star["time"] - {T0_DAYS} + 2.0) % {PLANET.period_days} - 2.0
inside = np.abs(phase) < 0.03
depth = 1 - np.nanmean(star["flux"][inside]) / np.nanmean(star["flux"][~inside])
print("period_days,t0_days,score")
if depth > 3e-4:
    print(f"{PLANET.period_days},{T0_DAYS},{{depth}}")
elif "{star_id(b"key", "small/4")}" in sys.argv[1]:
    print("3.3,907.0,1")
""")
    return directory


def test_grade_scores_and_keeps_the_run(small_set, knowing_solution, tmp_path) -> None:
    out = tmp_path / "run"
    done = transitbench("grade", knowing_solution, "--set", small_set.path, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["n_stars"], document["n_planets"], document["credit"]) == (6, 2, 2.0)
    assert document["n_false"] == 1
    assert document["S"] == pytest.approx(0.5)
    assert document["quiet_as_planet"] == pytest.approx(0.5)
    assert document["set_digest"] == small_set.manifest.digest
    assert document["sandbox"] == "bubblewrap"
    assert sorted(p.name for p in out.iterdir()) == [
        "grade.jsonl",
        "rows.csv",
        "run.json",
        "score.json",
    ]
    records = [json.loads(line) for line in (out / "grade.jsonl").read_text().splitlines()]
    assert [r["star"] for r in records] == list(small_set.stars)

    again = transitbench("score", out / "rows.csv", "--set", small_set.path, "--json")
    rescored = json.loads(again.stdout)
    assert {k: rescored[k] for k in ("S", "S_ci95", "C")} == {
        k: document[k] for k in ("S", "S_ci95", "C")
    }


def test_grade_prints_a_table_with_intervals(small_set, knowing_solution, tmp_path) -> None:
    done = transitbench(
        "grade", knowing_solution, "--set", small_set.path, "--out", tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    assert "S = (credit − false) / planets" in done.stdout
    assert "0.500" in done.stdout
    assert "…" in done.stdout
    assert "6 stars, 2 planets, credit 2, false candidates 1" in done.stdout


def test_existing_run_is_not_overwritten_and_wrong_resume_refused(
    small_set, knowing_solution, tmp_path
) -> None:
    out = tmp_path / "run"
    first = transitbench("grade", "empty", "--set", small_set.path, "--out", out)
    assert first.returncode == 0, first.stderr
    second = transitbench("grade", "empty", "--set", small_set.path, "--out", out)
    assert (second.returncode, "TB-E016" in second.stderr, "--resume" in second.stderr) == (
        2,
        True,
        True,
    )
    other = transitbench(
        "grade", knowing_solution, "--set", small_set.path, "--out", out, "--resume"
    )
    assert (other.returncode, "TB-E012" in other.stderr) == (2, True)
    shorter = transitbench(
        "grade", "empty", "--set", small_set.path, "--limit", 2, "--out", out, "--resume"
    )
    assert (shorter.returncode, "TB-E012" in shorter.stderr) == (2, True)


def test_reference_detector_reads_the_answers(small_set, tmp_path) -> None:
    out = tmp_path / "run"
    done = transitbench(
        "grade", "reference_detector", "--set", small_set.path, "--out", out, "--json"
    )
    assert json.loads(done.stdout)["S"] == 1.0, done.stderr


def test_no_sandbox_is_loud_and_marked(small_set, tmp_path) -> None:
    out = tmp_path / "run"
    done = transitbench(
        "grade", "empty", "--set", small_set.path, "--out", out, "--unsafe-no-sandbox", "--json"
    )
    assert "warning" in done.stderr
    assert json.loads(done.stdout)["sandbox"] == "none"
    assert json.loads((out / "run.json").read_text())["sandbox"] == "none"


def test_compare_pairs_two_runs(small_set, knowing_solution, tmp_path) -> None:
    for name, solution in (("a", knowing_solution), ("b", "empty")):
        transitbench("grade", solution, "--set", small_set.path, "--out", tmp_path / name)
    done = transitbench("compare", tmp_path / "a", tmp_path / "b", "--json")
    document = json.loads(done.stdout)
    assert document["delta_S"] == pytest.approx(0.5)
    assert document["S_second"] == 0.0
    low, high = document["delta_S_ci95"]
    assert low <= 0.5 <= high
    shown = transitbench("compare", tmp_path / "a", tmp_path / "b")
    assert "ΔS = +0.500" in shown.stdout


def test_compare_refuses_other_stars_and_no_run(small_set, tmp_path) -> None:
    transitbench("grade", "empty", "--set", small_set.path, "--out", tmp_path / "a")
    transitbench("grade", "empty", "--set", small_set.path, "--limit", 3, "--out", tmp_path / "b")
    assert "TB-E016" in transitbench("compare", tmp_path / "a", tmp_path / "b").stderr
    assert "TB-E012" in transitbench("compare", tmp_path / "a", tmp_path).stderr


ERRORS = {
    "TB-E001": ("grade", "empty", "--set", "A"),
    "TB-E002": ("grade", "empty", "--set", "dev"),
    "TB-E003": ("grade", "no-such-directory", "--set", "SMALL"),
    "TB-E008": ("grade", "empty", "--set", "no-such-set"),
    "TB-E014": ("score", "BAD_ROWS", "--set", "SMALL"),
    "TB-E016": ("grade", "empty", "--set", "SMALL", "--resume"),
}


@pytest.mark.parametrize("code", ERRORS)
def test_errors_have_code_hint_and_exit_2(code, small_set, tmp_path) -> None:
    bad_rows = tmp_path / "rows.csv"
    bad_rows.write_text("star,period_days,t0_days,score\ns1,nan,3,4\n")
    places = {"SMALL": str(small_set.path), "BAD_ROWS": str(bad_rows)}
    arguments = [places.get(a, a) for a in ERRORS[code]]
    done = transitbench(*arguments)
    assert done.returncode == 2
    assert code in done.stderr
    assert "→" in done.stderr
    as_json = transitbench(*arguments, "--json")
    assert as_json.returncode == 2
    error = json.loads(as_json.stdout)["error"]
    assert error["code"] == code
    assert error["hint"]


def test_data_folder_that_cannot_be_written_is_an_error(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRANSITBENCH_DATA", str(tmp_path / "file" / "below"))
    done = transitbench("data", "list")
    assert (done.returncode, "TB-E011" in done.stderr) == (2, True)


def test_data_verify_tells_damage_by_exit_code(small_set, tmp_path) -> None:
    assert transitbench("data", "verify", small_set.path).returncode == 0
    damaged = tmp_path / "damaged"
    shutil.copytree(small_set.path, damaged)
    (damaged / "stars" / f"{small_set.stars[0]}.npz").unlink()
    done = transitbench("data", "verify", damaged, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["ok"] is False


def test_data_list_names_every_set() -> None:
    names = [
        entry["set"] for entry in json.loads(transitbench("data", "list", "--json").stdout)["sets"]
    ]
    assert names == ["sim-dev", "sim-A", "sim-B", "real-check", "dev", "A", "B"]
    assert "transitbench data build sim-A" in transitbench("data", "list").stdout


@pytest.mark.parametrize("file_format", ["fits", "csv"])
def test_export(small_set, tmp_path, file_format) -> None:
    done = transitbench(
        "data",
        "export",
        small_set.path,
        "--format",
        file_format,
        "--out",
        tmp_path / "x",
        "--limit",
        1,
    )
    assert done.returncode == 0, done.stderr
    files = list((tmp_path / "x").iterdir())
    assert len(files) == 1
    star = small_set.light_curve(small_set.stars[0])
    if file_format == "fits":
        back = LightCurve.from_kepler_fits(files)
        opened = lightkurve.read(files[0], quality_bitmask="none")
        assert isinstance(opened, lightkurve.KeplerLightCurve)
        assert opened.time.value[100] == star.time[100]
        assert np.array_equal(opened.flux.value, star.flux, equal_nan=True)
        assert sha256_hex(back.flux.tobytes()) == sha256_hex(star.flux.tobytes())
    else:
        assert len(files[0].read_text().splitlines()) == len(star) + 1


@pytest.mark.parametrize("command", ["grade", "check", "score", "compare", "doctor", "data build"])
def test_help_has_an_example(command) -> None:
    done = transitbench(*command.split(), "-h")
    assert done.returncode == 0
    assert f"transitbench {command}" in done.stdout
    assert "Example" in done.stdout


def test_doctor_knows_this_machine() -> None:
    done = transitbench("doctor", "--json")
    document = json.loads(done.stdout)
    rules = {finding["rule"] for finding in document["findings"]}
    assert {"sandbox", "cores", "TRANSITBENCH_DATA", "sets", "Prime", "versions"} <= rules
    assert document["ready"] is (done.returncode == 0)
