"""Simulated sets: who is in them, and that everyone gets the same ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import REPOSITORY
from numpy._core._multiarray_umath import __cpu_dispatch__

from transitbench.catalogue import open_set
from transitbench.errors import TransitBenchError
from transitbench.lightcurve import same_light_curve
from transitbench.simset import SIM_SETS, make_star, set_recipes

SHARES = {"planet": 0.45, "eb": 0.20, "false_alarm": 0.25, "quiet": 0.10}


@pytest.mark.parametrize(("name", "n_stars"), [("sim-dev", 196), ("sim-A", 500), ("sim-B", 500)])
def test_composition_is_the_specified_one(name: str, n_stars: int) -> None:
    composition = SIM_SETS[name]
    assert composition.n_stars == n_stars
    for kind, share in SHARES.items():
        assert getattr(composition, kind) / n_stars == pytest.approx(share, abs=0.005)
    assert composition.doubles / composition.planet == pytest.approx(0.15, abs=0.006)
    assert composition.triples / composition.planet == pytest.approx(0.03, abs=0.006)
    assert composition.n_planets / n_stars == pytest.approx(0.54, abs=0.01)


@pytest.mark.parametrize("name", SIM_SETS)
def test_recipes_follow_the_composition(name: str) -> None:
    composition, recipes = SIM_SETS[name], set_recipes(name)
    with_planets = [r for r in recipes if r.mes_quantiles]
    assert len(recipes) == composition.n_stars
    assert sum(len(r.mes_quantiles) for r in recipes) == composition.n_planets
    assert {r.host for r in with_planets} == {"quiet", "false_alarm"}
    quiet_hosts = sum(r.host == "quiet" for r in with_planets)
    assert quiet_hosts == pytest.approx(composition.planet / 2, abs=1)
    quantiles = sorted(q for r in recipes for q in r.mes_quantiles)
    assert np.allclose(np.diff(quantiles), 1 / composition.n_planets)


def test_a_star_depends_on_nothing_but_its_recipe() -> None:
    recipes = set_recipes("sim-A")
    for recipe in (recipes[3], recipes[240], recipes[400]):
        (one_id, one, one_truth), (other_id, other, other_truth) = (
            make_star(recipe),
            make_star(recipe),
        )
        assert (one_id, one_truth) == (other_id, other_truth)
        assert same_light_curve(one, other)


def test_sets_share_no_star() -> None:
    a, b = (make_star(set_recipes(name)[0]) for name in ("sim-A", "sim-B"))
    assert a[0] != b[0]
    assert not same_light_curve(a[1], b[1])


STARS_OF_EVERY_KIND = (0, 1, 90, 226, 240, 330, 360, 460)

FINGERPRINTS = f"""
import numpy as np
from transitbench.fingerprint import light_curve_fingerprint
from transitbench.simset import make_star, set_recipes
x = np.linspace(-5, 5, 10_001)
print(np.exp(x).tobytes().hex() + np.sin(x).tobytes().hex())
for index in {STARS_OF_EVERY_KIND}:
    star, light_curve, truth = make_star(set_recipes("sim-A")[index])
    print(star, light_curve_fingerprint(light_curve), truth)
"""


def test_digests_survive_another_processors_arithmetic() -> None:
    """The same stars with every vector unit of numpy and libm switched off: other last bits, same digests."""
    plain = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4",
    }
    arithmetic, *stars = run_fingerprints({})
    other_arithmetic, *other_stars = run_fingerprints(plain)
    if arithmetic == other_arithmetic:
        pytest.skip("this processor has no vector unit that numpy or libm could do without")
    assert len(stars) == len(STARS_OF_EVERY_KIND)
    assert stars == other_stars


def run_fingerprints(environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FINGERPRINTS],
        env={**os.environ, **environment},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_unknown_set_is_an_error() -> None:
    with pytest.raises(TransitBenchError, match="TB-E008"):
        set_recipes("sim-C")


@pytest.mark.slow
def test_sim_dev_is_the_published_set() -> None:
    star_set = open_set("sim-dev")
    entries = json.loads((REPOSITORY / "results" / "baselines.json").read_text())["entries"]
    published = {e["set_digest"] for e in entries if e["set"] == "sim-dev"}
    assert published == {star_set.manifest.digest}
    kinds = [truth.kind for truth in star_set.truth.values()]
    composition = SIM_SETS["sim-dev"]
    assert {kind: kinds.count(kind) for kind in SHARES} == {
        kind: getattr(composition, kind) for kind in SHARES
    }
    mes = np.array([p.mes for truth in star_set.truth.values() for p in truth.planets])
    assert mes.size == composition.n_planets
    assert np.mean(mes >= 7.1) == pytest.approx(0.80, abs=0.02)
    assert mes.min() >= 4
    assert all(p.n_transits >= 3 for truth in star_set.truth.values() for p in truth.planets)
