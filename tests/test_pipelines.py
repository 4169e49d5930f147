"""The shipped submissions, run as grading runs them: a fresh process, a star file, lines on stdout."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from transitbench.lightcurve import LightCurve

ROOT = Path(__file__).parents[1]
SOLUTIONS = {
    "empty": ROOT / "baselines" / "empty",
    "starter": ROOT / "workspace" / "solution",
    "naive_v0": ROOT / "baselines" / "naive_v0",
    "astropy_bls": ROOT / "examples" / "astropy_bls",
    "tls": ROOT / "examples" / "tls",
}
TLS = pytest.param(
    "tls",
    marks=[
        pytest.mark.slow,
        pytest.mark.skipif(
            importlib.util.find_spec("transitleastsquares") is None,
            reason="transitleastsquares is not installed (extra `tls`)",
        ),
    ],
)
SEARCHES = ["starter", "naive_v0", pytest.param("astropy_bls", marks=pytest.mark.slow), TLS]

START_DAYS, CADENCE_DAYS = 906.85, 0.0204336
FIRST_CADENCES = {10: 39049, 11: 43667, 12: 48473, 13: 52551}
LAST_CADENCES = {10: 43621, 11: 48420, 12: 52516, 13: 56971}
LEVELS_E_PER_S = {10: 30_000.0, 11: 31_500.0, 12: 29_000.0, 13: 30_400.0}
NOISE = 200e-6
PERIOD_DAYS, T0_DAYS, DURATION_DAYS, DEPTH = 7.3, 910.2, 0.16, 1500e-6


def star(*, depth: float, seed: int = 1) -> LightCurve:
    """White noise on the four quarters, each at its own level, with a box of the given depth."""
    rng = np.random.default_rng(seed)
    cadences = [np.arange(FIRST_CADENCES[q], LAST_CADENCES[q] + 1) for q in FIRST_CADENCES]
    cadence = np.concatenate(cadences)
    quarter = np.repeat(list(FIRST_CADENCES), [c.size for c in cadences])
    level = np.array([LEVELS_E_PER_S[q] for q in quarter])
    time = START_DAYS + CADENCE_DAYS * (cadence - cadence[0])
    phase = (time - T0_DAYS + PERIOD_DAYS / 2) % PERIOD_DAYS - PERIOD_DAYS / 2
    flux = 1.0 + NOISE * rng.standard_normal(time.size) - depth * (abs(phase) < DURATION_DAYS / 2)
    flux[rng.random(time.size) < 0.02] = np.nan
    quality = np.where(rng.random(time.size) < 0.01, 8192, 0)
    return LightCurve(time, level * flux, level * NOISE, quality, cadence, quarter, kepmag=13.0)


def only(curve: LightCurve, rows: np.ndarray) -> LightCurve:
    names = ("time", "flux", "flux_err", "quality", "cadenceno", "quarter")
    return replace(curve, **{name: getattr(curve, name)[rows] for name in names})


def twenty_finite() -> LightCurve:
    curve = star(depth=DEPTH)
    flux = np.full_like(curve.flux, np.nan)
    flux[::900] = curve.flux[::900]
    assert 15 <= np.isfinite(flux).sum() <= 20
    return replace(curve, flux=flux)


def normalised() -> LightCurve:
    curve = star(depth=DEPTH)
    level = np.array([LEVELS_E_PER_S[q] for q in curve.quarter])
    errors = np.full_like(curve.flux, np.nan)
    quality = np.zeros_like(curve.quality)
    return replace(
        curve, flux=curve.flux / level, flux_err=errors, quality=quality, kepmag=math.nan
    )


def untimed() -> LightCurve:
    curve = star(depth=DEPTH)
    time = curve.time.copy()
    time[np.isnan(curve.flux)] = np.nan
    return replace(curve, time=time)


def constant() -> LightCurve:
    curve = star(depth=0.0)
    return replace(curve, flux=np.full_like(curve.flux, 1000.0))


STARS = {
    "planet": lambda: star(depth=DEPTH),
    "noise": lambda: star(depth=0.0),
    "missing quarter": lambda: only(star(depth=DEPTH), star(depth=DEPTH).quarter != 12),
    "twenty finite cadences": twenty_finite,
    "one quarter": lambda: only(star(depth=DEPTH), star(depth=DEPTH).quarter == 11),
    "normalised, no errors": normalised,
    "no times": untimed,
    "constant": constant,
}
WITH_CLEAR_PLANET = ["planet", "missing quarter", "normalised, no errors", "no times"]
WITHOUT_ANYTHING = ["noise", "twenty finite cadences", "constant"]


@dataclass(frozen=True)
class Run:
    stdout: str
    stderr: str
    exit_code: int

    @property
    def rows(self) -> list[tuple[float, float, float]]:
        rows = []
        for line in self.stdout.splitlines():
            period, t0, score = map(float, line.split(","))
            assert math.isfinite(period + t0 + score)
            assert period > 0
            rows.append((period, t0, score))
        return rows


def run(directory: Path, star_file: Path, scratch: Path) -> Run:
    """Run a submission as the cage does: its directory, an empty home, and no other environment."""
    home = scratch / "home"
    home.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "solution.py", str(star_file)],
        cwd=directory,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(home),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return Run(done.stdout, done.stderr, done.returncode)


@pytest.fixture(scope="module")
def star_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("stars")
    files = {name: directory / f"s{i}.npz" for i, name in enumerate(STARS)}
    for name, path in files.items():
        STARS[name]().to_npz(path)
    return files


def assert_is_the_planet(row: tuple[float, float, float]) -> None:
    period, t0, _ = row
    assert period == pytest.approx(PERIOD_DAYS, rel=0.01)
    first, last = START_DAYS + 10, START_DAYS + 360
    for middle in (first, (first + last) / 2, last):
        true = T0_DAYS + PERIOD_DAYS * round((middle - T0_DAYS) / PERIOD_DAYS)
        reported = t0 + period * round((true - t0) / period)
        assert abs(reported - true) < DURATION_DAYS / 2


@pytest.mark.parametrize("name", ["empty", *SEARCHES])
def test_runs_on_every_kind_of_star(name: str, star_files: dict[str, Path], tmp_path: Path) -> None:
    found = {kind: run(SOLUTIONS[name], path, tmp_path) for kind, path in star_files.items()}
    for kind, result in found.items():
        assert (kind, result.exit_code, result.stderr) == (kind, 0, "")
        assert len(result.rows) <= 3
    assert all(found[kind].rows == [] for kind in WITHOUT_ANYTHING)
    if name == "empty":
        assert all(result.stdout == "" for result in found.values())
        return
    for kind in WITH_CLEAR_PLANET:
        rows = found[kind].rows
        assert rows, f"{name} misses a clear planet on the star {kind!r}"
        assert_is_the_planet(max(rows, key=lambda row: row[2]))


@pytest.mark.parametrize("name", SEARCHES)
def test_same_star_same_bytes(name: str, star_files: dict[str, Path], tmp_path: Path) -> None:
    first, second = (run(SOLUTIONS[name], star_files["planet"], tmp_path) for _ in range(2))
    assert first.stdout == second.stdout != ""


def test_starter_leaves_deep_eclipses_alone(tmp_path: Path) -> None:
    star(depth=0.06).to_npz(tmp_path / "s.npz")
    assert run(SOLUTIONS["starter"], tmp_path / "s.npz", tmp_path).rows == []


def test_reference_detector_prints_the_answers_of_its_star(tmp_path: Path) -> None:
    copy = tmp_path / "reference_detector"
    shutil.copytree(ROOT / "baselines" / "reference_detector", copy)
    for name, seed in (("with", 1), ("without", 2)):
        star(depth=DEPTH, seed=seed).to_npz(tmp_path / f"{name}.npz")
    digest = hashlib.sha256((tmp_path / "with.npz").read_bytes()).hexdigest()
    rows = [[7.300000012345678, 910.2, 12.5], [21.0, 920.123456, 8.0]]
    (copy / "answers.json").write_text(json.dumps({digest: rows}), encoding="utf-8")
    with_planets = run(copy, tmp_path / "with.npz", tmp_path)
    assert (with_planets.exit_code, with_planets.rows) == (0, [tuple(row) for row in rows])
    without = run(copy, tmp_path / "without.npz", tmp_path)
    assert (without.exit_code, without.stdout) == (0, "")


def test_reference_detector_without_answers_says_what_is_missing(
    star_files: dict[str, Path], tmp_path: Path
) -> None:
    result = run(ROOT / "baselines" / "reference_detector", star_files["noise"], tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "answers.json" in result.stderr
    assert "baselines/README.md" in result.stderr


@pytest.mark.parametrize("directory", [*SOLUTIONS.values(), ROOT / "baselines/reference_detector"])
def test_submissions_stand_alone(directory: Path) -> None:
    assert "transitbench" not in (directory / "solution.py").read_text(encoding="utf-8")
