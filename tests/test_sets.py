"""A set directory: written whole or not at all, verified to the byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import white_noise_star

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve
from transitbench.sets import StarSet, star_id, verify_set, write_set
from transitbench.truth import Planet, StarTruth

PLANET = Planet(7.5, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0)


def three_stars() -> Iterator[tuple[str, LightCurve, StarTruth]]:
    for index in range(3):
        truth = StarTruth("planet", (PLANET,)) if index == 0 else StarTruth("quiet")
        yield star_id(b"key", f"three/{index}"), white_noise_star(index), truth


@pytest.fixture
def three(tmp_path: Path) -> StarSet:
    return write_set(tmp_path / "three", "three", "sim", {"version": "1"}, three_stars())


def test_star_ids_are_opaque_and_keyed() -> None:
    assert re.fullmatch(r"s[a-z2-7]{10}", star_id(b"key", "A/1"))
    assert len({star_id(b"key", f"A/{i}") for i in range(1000)}) == 1000
    assert star_id(b"key", "A/1") != star_id(b"other", "A/1")


def test_written_set_verifies_and_reads_back(three: StarSet) -> None:
    assert verify_set(three.path) == []
    assert (
        sorted(three.truth)
        == list(three.stars)
        == sorted(p.stem for p in three.path.glob("stars/*"))
    )
    first = star_id(b"key", "three/0")
    assert three.truth[first].planets == (PLANET,)
    assert three.finite_times()[first].size == white_noise_star(0).finite.sum()


def test_same_stars_give_the_same_bytes(three: StarSet, tmp_path: Path) -> None:
    again = write_set(tmp_path / "again", "three", "sim", {"version": "1"}, three_stars())
    for path in sorted(three.path.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (again.path / path.relative_to(three.path)).read_bytes()


def test_file_times_say_nothing(three: StarSet) -> None:
    assert {path.stat().st_mtime for path in three.path.glob("stars/*")} == {0.0}


def test_limit_takes_the_first_ids(three: StarSet) -> None:
    assert StarSet(three.path, limit=2).stars == three.stars[:2]
    assert set(StarSet(three.path, limit=2).truth) == set(three.stars[:2])


def corrupt_star(path: Path) -> None:
    star = sorted(path.glob("stars/*"))[0]
    light_curve = LightCurve.from_npz(star)
    flux = light_curve.flux.copy()
    flux[np.flatnonzero(light_curve.finite)[10]] *= 1.01
    LightCurve(**{**light_curve.__dict__, "flux": flux}).to_npz(star)


def truncate_star(path: Path) -> None:
    star = sorted(path.glob("stars/*"))[0]
    star.write_bytes(star.read_bytes()[:1000])


def lose_star(path: Path) -> None:
    sorted(path.glob("stars/*"))[0].unlink()


def add_star(path: Path) -> None:
    white_noise_star(77).to_npz(path / "stars" / "sintruder.npz")


def change_truth(path: Path) -> None:
    text = (path / "truth.json").read_text()
    (path / "truth.json").write_text(text.replace('"mes": 12.0', '"mes": 13.0'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (corrupt_star, "sha256 differs"),
        (truncate_star, "cannot be read"),
        (lose_star, "cannot be read"),
        (add_star, "not in the manifest"),
        (change_truth, "truth.json: sha256 differs"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_verify_names_the_damage(three: StarSet, damage, said: str) -> None:
    damage(three.path)
    assert any(said in problem for problem in verify_set(three.path))


def test_interrupted_build_leaves_no_set(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[str, LightCurve, StarTruth]]:
        yield next(three_stars())
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_set(tmp_path / "three", "three", "sim", {}, broken())
    assert not (tmp_path / "three").exists()
    assert verify_set(write_set(tmp_path / "three", "three", "sim", {}, three_stars()).path) == []


def test_existing_directory_is_not_overwritten(three: StarSet) -> None:
    with pytest.raises(TransitBenchError, match="TB-E016"):
        write_set(three.path, "three", "sim", {}, three_stars())


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 99}', "[1]"])
def test_bad_manifest_is_an_error(three: StarSet, text: str) -> None:
    (three.path / "manifest.json").write_text(text)
    with pytest.raises(TransitBenchError, match="TB-E005"):
        StarSet(three.path)


def test_truth_without_a_star_is_an_error(three: StarSet) -> None:
    document = json.loads((three.path / "truth.json").read_text())
    document["stars"].pop(three.stars[0])
    (three.path / "truth.json").write_text(json.dumps(document))
    with pytest.raises(TransitBenchError, match="TB-E015"):
        _ = three.truth
