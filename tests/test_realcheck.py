"""The graded set of real stars."""

from __future__ import annotations

from pathlib import Path

import pytest

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve, same_light_curve
from transitbench.realcheck import build_real_check, real_check_id, real_check_names
from transitbench.sets import verify_set

HOT_PLANETS = {
    "kic006922244": 3.522498,
    "kic007950644": 10.290994,
    "kic011138155": 4.959319,
}


@pytest.fixture(scope="module")
def real_check(real_kepler: Path, tmp_path_factory: pytest.TempPathFactory):
    return build_real_check(real_kepler / "years", tmp_path_factory.mktemp("sets") / "real-check")


def test_every_star_of_the_folder_is_in(real_check, real_kepler: Path) -> None:
    names = real_check_names(real_kepler / "years")
    assert len(real_check.stars) == len(names) == len(set(real_check.stars))
    star = real_check.light_curve(real_check_id("kic006541920"))
    assert same_light_curve(star, LightCurve.from_npz(real_kepler / "years" / "kic006541920.npz"))
    assert verify_set(real_check.path) == []


def test_kepler_11_is_graded_on_its_three_strongest_planets(real_check) -> None:
    truth = real_check.truth[real_check_id("kic006541920")]
    assert truth.kind == "planet"
    assert len(truth.planets) == 3
    assert len(truth.ignored) == 3
    periods = sorted(p.period_days for p in truth.planets) + sorted(
        e.period_days for e in truth.ignored
    )
    assert sorted(round(p, 1) for p in periods) == [10.3, 13.0, 22.7, 32.0, 46.7, 118.4]
    assert all(p.mes > 7.1 and p.n_transits >= 3 for p in truth.planets)


@pytest.mark.parametrize("name", HOT_PLANETS)
def test_hot_planets_are_strong(real_check, name: str) -> None:
    [planet] = real_check.truth[real_check_id(name)].planets
    assert planet.period_days == pytest.approx(HOT_PLANETS[name], abs=1e-4)
    assert planet.mes > 50


def test_impostors_have_nothing_to_find(real_check) -> None:
    kinds = [truth.kind for truth in real_check.truth.values()]
    assert (kinds.count("planet"), kinds.count("eb"), kinds.count("quiet")) == (4, 19, 1)
    assert kinds.count("false_alarm") == 7
    assert not any(t.planets for t in real_check.truth.values() if t.kind != "planet")


def test_folder_without_index_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TransitBenchError, match="TB-E002"):
        build_real_check(tmp_path, tmp_path / "out")
