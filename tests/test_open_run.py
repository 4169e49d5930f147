"""A run whose stars are no set directory, or run elsewhere: opened, filled and finished by its caller."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import white_noise_star

from transitbench import __version__
from transitbench.cage import MINI_LIMITS
from transitbench.errors import TransitBenchError
from transitbench.grading import Machine, finish_run, grade, open_run, read_run_facts, run_facts
from transitbench.mini import DrawnStar, graded_stars, star_files
from transitbench.runner import StarResult, run_stars, usable_cores
from transitbench.sets import GradedStars, star_id, write_set
from transitbench.submission import submission_digest
from transitbench.truth import Planet, StarTruth

NAME = "mini-train-17"
BOX = Machine({"python": "3.12.7", "numpy": "2.2.0"}, "a box", 2)
SOLUTION = """
import sys, hashlib
digest = hashlib.sha256(open(sys.argv[1], "rb").read()).digest()
if digest[0] < 160:
    print(f"7.5,910.0,{digest[1]}")
"""


@pytest.fixture(scope="module")
def drawn() -> list[DrawnStar]:
    planet = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0)
    return [
        DrawnStar(
            star_id(b"key", str(i)),
            white_noise_star(i, n=2000),
            StarTruth("planet", (planet,)) if i % 2 else StarTruth("quiet"),
        )
        for i in range(6)
    ]


@pytest.fixture(scope="module")
def stars(drawn) -> GradedStars:
    return graded_stars(NAME, drawn)


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    directory = tmp_path / "submission"
    directory.mkdir()
    (directory / "solution.py").write_text(SOLUTION)
    return directory


def facts_of(stars: GradedStars, digest: str = "d" * 64, machine: Machine = BOX) -> dict:
    return run_facts("mine", digest, stars, MINI_LIMITS, "bubblewrap", machine)


def result(star: str, rows: tuple = ()) -> StarResult:
    return StarResult(star, "ok", rows, len(rows), 0, 1.0, 1.0, 50.0, 0, "")


def test_score_is_that_of_grading_a_directory_of_the_same_stars(
    drawn, stars, submission, tmp_path
) -> None:
    files = tmp_path / "stars"
    files.mkdir()
    for star, data in star_files(drawn).items():
        (files / f"{star}.npz").write_bytes(data)
    facts = facts_of(stars, submission_digest(submission), Machine.here())
    mine = tmp_path / "runs" / "mine"
    open_run(mine, facts, resume=False)
    results = run_stars(
        submission,
        {star: files / f"{star}.npz" for star in stars.truth},
        mine / "grade.jsonl",
        limits=MINI_LIMITS,
        cores=usable_cores(),
    )
    run = finish_run(mine, facts, stars, results)

    star_set = write_set(
        tmp_path / "set", NAME, "sim", {}, ((d.star, d.light_curve, d.truth) for d in drawn)
    )
    other = tmp_path / "runs" / "other"
    grade("mine", submission, star_set, other, limits=MINI_LIMITS, cores=usable_cores())
    for name in ("rows.csv", "score.json"):
        assert (mine / name).read_bytes() == (other / name).read_bytes()
    assert read_run_facts(other) == {**facts, "set_path": str(star_set.path.resolve())}
    assert run.score.credit + run.score.n_false == sum(bool(r.rows) for r in results) > 0


def test_facts_of_a_box_are_recorded(stars, tmp_path) -> None:
    open_run(tmp_path / "run", facts_of(stars), resume=False)
    facts = read_run_facts(tmp_path / "run")
    assert facts["versions"] == {"transitbench": __version__, **BOX.versions}
    assert facts["machine"] == {"platform": "a box", "cores": 2}
    assert (facts["set"], facts["set_path"], facts["n_stars"]) == (NAME, None, 6)
    assert facts["set_digest"] == stars.digest


def test_a_run_is_opened_twice_only_to_resume_it(stars, tmp_path) -> None:
    open_run(tmp_path / "run", facts_of(stars), resume=True)
    before = (tmp_path / "run" / "run.json").read_bytes()
    with pytest.raises(TransitBenchError, match="TB-E016"):
        open_run(tmp_path / "run", facts_of(stars), resume=False)
    open_run(tmp_path / "run", facts_of(stars), resume=True)
    assert (tmp_path / "run" / "run.json").read_bytes() == before
    other_box = Machine({**BOX.versions, "numpy": "2.3.0"}, "a box", 2)
    for other in (facts_of(stars, "e" * 64), facts_of(stars, machine=other_box)):
        with pytest.raises(TransitBenchError, match="TB-E012"):
            open_run(tmp_path / "run", other, resume=True)


def test_a_directory_with_other_files_is_no_run(stars, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TransitBenchError, match="TB-E016"):
        open_run(tmp_path, facts_of(stars), resume=True)


def test_rows_and_score_come_from_the_results_given(stars, tmp_path) -> None:
    facts = facts_of(stars)
    open_run(tmp_path / "run", facts, resume=False)
    with_planet = next(star for star in stars.truth if stars.truth[star].planets)
    results = [result(s, ((7.5, 910.0, 3.0),) if s == with_planet else ()) for s in stars.truth]
    run = finish_run(tmp_path / "run", facts, stars, results)
    assert (run.score.credit, run.score.n_false, run.score.n_planets) == (1, 0, 3)
    rows = (tmp_path / "run" / "rows.csv").read_text().splitlines()
    assert rows[1:] == [f"{with_planet},7.5,910.0,3.0"]
    document = json.loads((tmp_path / "run" / "score.json").read_text())
    assert (document["set"], document["set_digest"]) == (NAME, stars.digest)
    assert (document["submission"], document["submission_digest"]) == ("mine", "d" * 64)


@pytest.mark.parametrize("change", ["a star short", "a star too many"])
def test_results_of_other_stars_are_not_scored(change, stars, tmp_path) -> None:
    facts = facts_of(stars)
    open_run(tmp_path / "run", facts, resume=False)
    results = [result(star) for star in stars.truth]
    results = results[1:] if change == "a star short" else [*results, result("sother")]
    with pytest.raises(TransitBenchError, match="TB-E016"):
        finish_run(tmp_path / "run", facts, stars, results)
    assert not (tmp_path / "run" / "score.json").exists()
