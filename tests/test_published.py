"""Published results: recorded from runs, scored again, and any change of a byte is seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY, white_noise_star

from transitbench import catalogue, pipelines, published
from transitbench.cage import SURVEY_LIMITS
from transitbench.errors import TransitBenchError
from transitbench.grading import grade
from transitbench.pipelines import PIPELINES, answering_solution, open_submission
from transitbench.runner import usable_cores
from transitbench.sets import StarSet, star_id, write_set
from transitbench.submission import submission_digest
from transitbench.truth import Planet, StarTruth

FINDABLE = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0)
FAINT = Planet(3.1, 908.0, 2.5, 60.0, 0.007, 11.0, 0.2, 25, 5.2)


@pytest.fixture
def star_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StarSet:
    """A set that goes by the name of sim-dev, with one planet above Kepler's threshold and one below."""

    def stars():
        truths = (StarTruth("planet", (FINDABLE,)), StarTruth("planet", (FAINT,)), StarTruth("eb"))
        for index, truth in enumerate(truths):
            yield star_id(b"key", str(index)), white_noise_star(index, n=3000), truth

    return write_set(catalogue.SETS["sim-dev"].path, "sim-dev", "sim", {}, stars())


@pytest.fixture
def results(star_set: StarSet, tmp_path: Path) -> Path:
    for name in ("empty", "reference_detector"):
        with open_submission(name, star_set) as (label, directory):
            run = tmp_path / "runs" / name
            grade(label, directory, star_set, run, limits=SURVEY_LIMITS, cores=usable_cores())
            published.record_run(tmp_path / "results", run)
    return tmp_path / "results"


def test_recorded_results_hold(results: Path) -> None:
    entries = {e["row"]: e for e in published.read_published(results)}
    assert (entries["empty"]["S"], entries["reference_detector"]["S"]) == (0.0, 0.5)
    assert published.check_published(results) == []


def change_rows(results: Path) -> None:
    path = results / "rows" / "reference_detector-sim-dev.csv"
    path.write_text(path.read_text().replace("7.5,", "7.6,"))


def change_score(results: Path) -> None:
    path = results / "baselines.json"
    path.write_text(path.read_text().replace('"S": 0.5', '"S": 0.75'))


def change_set(results: Path) -> None:
    path = results / "baselines.json"
    document = json.loads(path.read_text())
    document["entries"][0]["set_digest"] = "0" * 64
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (change_rows, "sha256 of reference_detector-sim-dev.csv differs"),
        (change_score, "changes S"),
        (change_set, "the set's digest differs"),
    ],
    ids=["rows", "score", "set"],
)
def test_any_change_is_seen(results: Path, tamper, said: str) -> None:
    tamper(results)
    assert any(said in problem for problem in published.check_published(results))


def test_nothing_published_is_a_problem_and_no_pass(tmp_path: Path) -> None:
    assert published.check_published(tmp_path)


def test_recording_again_replaces_the_entry(results: Path, tmp_path: Path) -> None:
    before = published.read_published(results)
    published.record_run(results, tmp_path / "runs" / "empty")
    assert published.read_published(results) == before


def test_gold_is_exactly_one(star_set: StarSet, tmp_path: Path) -> None:
    with answering_solution(star_set, min_mes=0.0) as gold:
        run = grade(
            "gold", gold, star_set, tmp_path / "g", limits=SURVEY_LIMITS, cores=usable_cores()
        )
    assert run.score.S == 1.0


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pipeline_is_found_by_name(name: str, star_set: StarSet) -> None:
    with open_submission(name, star_set) as (label, directory):
        assert (label, (directory / "solution.py").is_file()) == (name, True)


def test_bytecode_beside_a_pipeline_does_not_change_its_digest(
    star_set: StarSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(REPOSITORY / "baselines" / "empty", tmp_path / "baselines" / "empty")
    monkeypatch.setattr(pipelines, "shipped_path", lambda relative: tmp_path / relative)
    digests = []
    for _ in range(2):
        with open_submission("empty", star_set) as (_, directory):
            digests.append(submission_digest(directory))
        cache = tmp_path / "baselines" / "empty" / "__pycache__"
        cache.mkdir(exist_ok=True)
        (cache / "solution.cpython-311.pyc").write_bytes(b"bytecode")
    assert digests[0] == digests[1]


def test_the_detector_gets_its_answers_by_path_too(star_set: StarSet) -> None:
    path = REPOSITORY / "baselines" / "reference_detector"
    with open_submission(str(path), star_set) as (label, directory):
        assert label == "reference_detector"
        assert (directory / "answers.json").is_file()
    assert not (path / "answers.json").exists()


def test_a_directory_wins_over_a_name(star_set: StarSet, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(REPOSITORY / "baselines" / "empty", tmp_path / "starter")
    monkeypatch.chdir(tmp_path)
    with open_submission("starter", star_set) as (_, directory):
        assert directory == tmp_path / "starter"


def test_neither_name_nor_directory(star_set: StarSet) -> None:
    with (
        pytest.raises(TransitBenchError, match="TB-E003"),
        open_submission("no-such-thing", star_set),
    ):
        pass
