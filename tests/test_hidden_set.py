"""Simulated sets drawn with the evaluator's secret: where they lie, that they are whole, what they reveal."""

from __future__ import annotations

import hmac
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
from conftest import REPOSITORY

from transitbench.catalogue import SETS, SetInfo, open_hidden_set, open_set
from transitbench.errors import TransitBenchError
from transitbench.home import evaluator_secret, private_dir
from transitbench.lightcurve import same_light_curve
from transitbench.sets import secret_tag, star_id, verify_set
from transitbench.sim import simulate_star
from transitbench.simset import (
    PUBLIC_SECRET,
    SIM_ROOT_SEED,
    SIM_SETS,
    Composition,
    StarRecipe,
    build_sim_set,
    make_star,
)

SECRET = b"correct horse battery staple"
TINY = Composition(planet=2, eb=1, false_alarm=1, quiet=1)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a simulated set of five stars."""
    monkeypatch.setitem(SIM_SETS, "sim-tiny", TINY)
    info = SetInfo("sim-tiny", "sets", "five stars", "open it", TINY.n_stars)
    monkeypatch.setitem(SETS, "sim-tiny", info)
    return "sim-tiny"


def test_secret_is_the_bytes_of_the_variable(monkeypatch) -> None:
    monkeypatch.setenv("TRANSITBENCH_SECRET", "schlüssel")
    assert evaluator_secret() == "schlüssel".encode()
    monkeypatch.setenv("TRANSITBENCH_SECRET", "")
    assert evaluator_secret() is None
    monkeypatch.delenv("TRANSITBENCH_SECRET")
    assert evaluator_secret() is None


def test_star_is_seeded_by_the_documented_hmac() -> None:
    recipe = StarRecipe("sim-A", 499, "quiet")
    star, light_curve, truth = make_star(recipe, SECRET)
    entropy = int.from_bytes(hmac.digest(SECRET, b"sim-A/499", "sha256"), "big")
    expected = simulate_star("quiet", np.random.default_rng(np.random.SeedSequence(entropy)))
    assert same_light_curve(light_curve, expected.light_curve)
    assert truth.kind == "quiet"
    # The id is shown to agents: it must not be a piece of the seed.
    assert star != star_id(SECRET, "sim-A/499")


def test_secrets_and_the_public_set_share_no_star() -> None:
    recipe = StarRecipe("sim-A", 0, "false_alarm", (0.5,))
    made = [make_star(recipe, secret) for secret in (None, SECRET, b"another", PUBLIC_SECRET)]
    assert len({star for star, _, _ in made}) == 4
    assert len({light_curve.flux.tobytes() for _, light_curve, _ in made}) == 4
    assert len({truth.planets for _, _, truth in made}) == 4


def test_hidden_set_is_made_once_in_the_private_folder(tiny) -> None:
    seen: list[None] = []
    star_set = open_hidden_set(tiny, SECRET, on_star=lambda: seen.append(None))
    assert len(seen) == len(star_set.stars) == TINY.n_stars
    assert star_set.path == private_dir() / f"{tiny}-{secret_tag(SECRET)}"
    assert star_set.name == tiny
    assert stat.S_IMODE(private_dir().stat().st_mode) == 0o700
    assert verify_set(star_set.path) == []
    kinds = [truth.kind for truth in star_set.truth.values()]
    assert {kind: kinds.count(kind) for kind in ("planet", "eb")} == {"planet": 2, "eb": 1}

    again = open_hidden_set(tiny, SECRET, limit=2, on_star=lambda: seen.append(None))
    assert len(seen) == TINY.n_stars
    assert again.stars == star_set.stars[:2]


def test_manifest_names_the_secret_by_its_tag_alone(tiny) -> None:
    star_set = open_hidden_set(tiny, SECRET)
    generator = star_set.manifest.generator
    assert (generator["drawn_with"], generator["tag"]) == ("secret", secret_tag(SECRET))
    assert "root_seed" not in generator
    for path in star_set.path.rglob("*"):
        assert not path.is_file() or SECRET not in path.read_bytes()
    assert len(secret_tag(SECRET)) == 10


def test_another_secret_is_another_set(tiny) -> None:
    one, other = open_hidden_set(tiny, SECRET), open_hidden_set(tiny, b"another")
    assert one.path != other.path
    assert one.manifest.digest != other.manifest.digest
    assert not set(one.stars) & set(other.stars)


def test_without_a_secret_it_is_the_public_set(tiny, private_data_dir) -> None:
    star_set = open_hidden_set(tiny, None, limit=3)
    assert star_set.path == private_data_dir / "sets" / tiny
    assert star_set.stars == open_set(tiny).stars[:3]
    assert star_set.manifest.generator["root_seed"] == SIM_ROOT_SEED
    assert not (private_data_dir / "private").exists()


def test_other_sets_are_opened_as_ever(tiny) -> None:
    public = open_set(tiny)
    assert open_hidden_set(str(public.path), SECRET).path == public.path
    with pytest.raises(TransitBenchError, match="TB-E001"):
        open_hidden_set("A", SECRET)
    with pytest.raises(TransitBenchError, match="TB-E008"):
        open_hidden_set("sim-C", SECRET)


def test_private_folder_that_cannot_be_written_is_an_error(private_data_dir) -> None:
    (private_data_dir / "private").write_text("a file is in the way")
    with pytest.raises(TransitBenchError, match="TB-E011"):
        private_dir()


def test_private_folder_is_closed_to_others(private_data_dir) -> None:
    (private_data_dir / "private").mkdir(mode=0o755)
    assert stat.S_IMODE(private_dir().stat().st_mode) == 0o700


def test_set_that_another_process_finished_first_is_used(tiny, monkeypatch) -> None:
    def build_second(*arguments, **named) -> None:
        build_sim_set(*arguments, **named)
        build_sim_set(*arguments, **named)

    monkeypatch.setattr("transitbench.catalogue.build_sim_set", build_second)
    assert verify_set(open_hidden_set(tiny, SECRET).path) == []


OPEN_TINY = f"""
import sys
from transitbench.catalogue import open_hidden_set
from transitbench.home import evaluator_secret
from transitbench.simset import SIM_SETS, Composition
SIM_SETS["sim-tiny"] = {TINY!r}
print("ready", flush=True)
sys.stdin.readline()
print(open_hidden_set("sim-tiny", evaluator_secret()).manifest.digest)
"""


def test_two_processes_may_make_the_same_set_at_once(tiny, private_data_dir) -> None:
    makers = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", OPEN_TINY],
            env={**os.environ, "TRANSITBENCH_SECRET": SECRET.decode()},
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [maker.stdout.readline() for maker in makers] == ["ready\n"] * 2
    for maker in makers:
        maker.stdin.write("go\n")
        maker.stdin.flush()
    digests = [maker.communicate(timeout=60)[0].strip() for maker in makers]
    star_set = open_hidden_set(tiny, SECRET)
    assert digests == [star_set.manifest.digest] * 2
    assert verify_set(star_set.path) == []
    assert [path.name for path in (private_data_dir / "private").iterdir()] == [star_set.path.name]
