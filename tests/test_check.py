"""``check``: what an author is told about a submission."""

from __future__ import annotations

from pathlib import Path

import pytest

from transitbench.check import check_submission
from transitbench.demo_stars import write_demo_stars
from transitbench.lightcurve import LightCurve
from transitbench.runner import usable_cores

CASES = {
    "prints nothing": ("", {"runs": "pass", "output": "pass", "repeatable": "pass"}),
    "crashes": ("raise ValueError('no detrending today')", {"runs": "fail"}),
    "prints logs": ("print('searching…')", {"output": "fail"}),
    "prints five rows": (
        "for k in range(5): print(f'{k + 1},900,{k}')",
        {"runs": "pass", "output": "note"},
    ),
    "is random": ("import random; print(f'{1 + random.random()},900,1')", {"repeatable": "fail"}),
}


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES.keys())
def test_findings(source: str, expected: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text(source)
    findings = check_submission(tmp_path, cores=usable_cores())
    for rule, level in expected.items():
        assert level in {f.level for f in findings if f.rule == rule}, findings


def test_crash_is_shown_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("raise ValueError('no detrending today')")
    findings = check_submission(tmp_path, cores=usable_cores())
    assert any("no detrending today" in f.text for f in findings if f.level == "fail")


def test_directory_without_solution_is_a_finding(tmp_path: Path) -> None:
    [finding] = check_submission(tmp_path, cores=usable_cores())
    assert (finding.level, "TB-E003" in finding.text) == ("fail", True)


def test_demo_stars_are_what_they_say(tmp_path: Path) -> None:
    planet, eclipse, noise = write_demo_stars(tmp_path)
    depths = []
    for star in (planet, eclipse, noise):
        light_curve = LightCurve.from_npz(star.path)
        flux = light_curve.flux[light_curve.finite]
        depths.append(1 - float(flux.min()) / 16384)
    assert depths[0] == pytest.approx(0.0026, abs=0.0008)
    assert depths[1] == pytest.approx(0.065, abs=0.01)
    assert depths[2] < 0.001
    assert len(planet.planets) == 1
    assert not eclipse.planets
    assert not noise.planets
