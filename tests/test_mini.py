"""The stars of mini tasks: what a task holds, that it is reproducible, and that tasks share no star."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from conftest import REPOSITORY, white_noise_star
from hypothesis import given, settings
from hypothesis import strategies as st

from transitbench import mini
from transitbench.errors import TransitBenchError
from transitbench.inject import MES_TOLERANCE, mes_target
from transitbench.lightcurve import LightCurve, same_light_curve
from transitbench.mini import (
    N_STARS,
    DrawnStar,
    graded_stars,
    pool_stars,
    simulated_stars,
    star_files,
    truth_of,
)
from transitbench.sets import StarSet, star_id, write_set
from transitbench.truth import KINDS, Planet, StarTruth, truth_to_json

SECRET = b"only for tests"
PARTS = ("labelled", "hidden")
COUNTS = {
    "labelled": {"planet": 6, "eb": 2, "false_alarm": 3, "quiet": 1},
    "hidden": {"planet": 8, "eb": 3, "false_alarm": 4, "quiet": 1},
}
ONE_OF_EACH = {part: dict.fromkeys(KINDS, 1) for part in PARTS}


def digests(stars: list[DrawnStar]) -> dict[str, str]:
    return {star: hashlib.sha256(data).hexdigest() for star, data in star_files(stars).items()}


def kinds(stars: list[DrawnStar]) -> dict[str, int]:
    return dict(Counter(drawn.truth.kind for drawn in stars))


def fluxes(stars: list[DrawnStar]) -> set[bytes]:
    return {drawn.light_curve.flux.tobytes() for drawn in stars}


@pytest.fixture(scope="module")
def task() -> dict[str, list[DrawnStar]]:
    return {part: simulated_stars("train", 17, part, SECRET) for part in PARTS}


def test_a_task_has_the_specified_stars(task) -> None:
    assert {part: len(stars) for part, stars in task.items()} == {"labelled": 12, "hidden": 16}
    for part, stars in task.items():
        assert kinds(stars) == COUNTS[part]
        for drawn in stars:
            assert len(drawn.truth.planets) == (drawn.truth.kind == "planet")


@pytest.mark.parametrize("part", PARTS)
def test_other_stars_are_in_a_survey_sets_proportions(part) -> None:
    others = {kind: n for kind, n in N_STARS[part].items() if kind != "planet"}
    for kind, share in (("eb", 20), ("false_alarm", 25), ("quiet", 10)):
        assert others[kind] == pytest.approx(sum(others.values()) * share / 55, abs=0.5)


@pytest.mark.parametrize("part", PARTS)
def test_half_of_the_planets_sit_in_false_alarm_stars(part) -> None:
    hosts = Counter(
        recipe.host for recipe in mini._recipes("label", part, SECRET) if recipe.mes_quantiles
    )
    half = COUNTS[part]["planet"] // 2
    assert hosts == {"quiet": half, "false_alarm": half}


@pytest.mark.parametrize("part", PARTS)
def test_there_is_one_planet_in_each_stratum_of_mes(task, part) -> None:
    mes = sorted(d.truth.planets[0].mes for d in task[part] if d.truth.planets)
    edges = [mes_target(i / len(mes)) for i in range(len(mes) + 1)]
    for value, low, high in zip(mes, edges, edges[1:], strict=False):
        assert low <= value <= high * (1 + MES_TOLERANCE)


def test_the_order_of_stars_tells_nothing(task) -> None:
    for stars in task.values():
        ids = [drawn.star for drawn in stars]
        assert ids == sorted(ids)
        labels = [drawn.truth.kind for drawn in stars]
        assert labels != sorted(labels, key=KINDS.index)


def test_files_are_readable_star_files(task, tmp_path) -> None:
    for star, data in star_files(task["labelled"][:3]).items():
        (tmp_path / f"{star}.npz").write_bytes(data)
    for drawn in task["labelled"][:3]:
        read = LightCurve.from_npz(tmp_path / f"{drawn.star}.npz")
        assert same_light_curve(read, drawn.light_curve)


TASK_IN_ANOTHER_PROCESS = f"""
import hashlib, json
from transitbench.mini import simulated_stars, star_files, truth_of
from transitbench.truth import truth_to_json
for part in {PARTS}:
    stars = simulated_stars("train", 17, part, {SECRET!r})
    files = {{star: hashlib.sha256(data).hexdigest() for star, data in star_files(stars).items()}}
    print(json.dumps([files, truth_to_json(truth_of(stars))]))
"""


def test_another_process_makes_the_same_task(task) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TASK_IN_ANOTHER_PROCESS],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    made = [json.loads(line) for line in done.stdout.splitlines()]
    assert made == [[digests(task[p]), truth_to_json(truth_of(task[p]))] for p in PARTS]


def test_the_parts_of_a_task_share_no_star(task) -> None:
    labelled, hidden = (digests(task[part]) for part in PARTS)
    assert not labelled.keys() & hidden.keys()
    assert len({*labelled.values(), *hidden.values()}) == 28
    assert not fluxes(task["labelled"]) & fluxes(task["hidden"])


def small_part(split: str, idx: int, part: str, secret: bytes | None = SECRET) -> list[DrawnStar]:
    with mock.patch.object(mini, "N_STARS", ONE_OF_EACH):
        return simulated_stars(split, idx, part, secret)


PART_OF_A_TASK = st.tuples(
    st.sampled_from(["train", "dev"]), st.integers(0, 10**9), st.sampled_from(PARTS)
)


@settings(max_examples=12, deadline=None)
@given(PART_OF_A_TASK, PART_OF_A_TASK)
def test_any_two_parts_of_tasks_share_no_star(one, other) -> None:
    stars, others = small_part(*one), small_part(*other)
    if one == other:
        assert digests(stars) == digests(others)
        return
    assert not digests(stars).keys() & digests(others).keys()
    assert not set(digests(stars).values()) & set(digests(others).values())
    assert not fluxes(stars) & fluxes(others)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_neighbouring_tasks_share_no_star(split) -> None:
    parts = [(split, idx, part) for idx in (0, 1, 10, 11) for part in PARTS]
    parts += [("dev" if split == "train" else "train", 1, part) for part in PARTS]
    made = [small_part(*part) for part in parts]
    n_stars = len(parts) * len(KINDS)
    assert len({drawn.star for stars in made for drawn in stars}) == n_stars
    assert len(set().union(*map(fluxes, made))) == n_stars


def test_another_secret_gives_other_stars() -> None:
    made = [small_part("train", 3, "hidden", secret) for secret in (SECRET, b"another", None)]
    assert len({drawn.star for stars in made for drawn in stars}) == 3 * len(KINDS)
    assert len(set().union(*map(fluxes, made))) == 3 * len(KINDS)
    assert len({drawn.truth for s in made for drawn in s if drawn.truth.planets}) == 3


@pytest.mark.parametrize(
    ("split", "idx", "part"),
    [("test", 0, "hidden"), ("train", -1, "hidden"), ("dev", 0, "all"), ("train/1", 0, "hidden")],
)
def test_no_such_task(split, idx, part) -> None:
    with pytest.raises(TransitBenchError, match="TB-E016"):
        simulated_stars(split, idx, part, SECRET)


def planets(n: int, seed: int) -> tuple[Planet, ...]:
    return tuple(
        Planet(7.5 + seed / 100 + i, 910.0, 3.0, 500.0, 0.02, 18.0, 0.2, 10, 12.0) for i in range(n)
    )


def write_pool(path, counts: dict[str, int], n_doubles: int = 0) -> StarSet:
    truths = [StarTruth("planet", planets(2, i)) for i in range(n_doubles)]
    for kind, n in counts.items():
        truths += [StarTruth(kind, planets(1, i) if kind == "planet" else ()) for i in range(n)]
    stars = (
        (star_id(b"pool", str(i)), white_noise_star(i, n=300), truth)
        for i, truth in enumerate(truths)
    )
    return write_set(path, "a pool", "kepler", {}, stars)


ENOUGH_FOR_BOTH = {"planet": 56, "eb": 20, "false_alarm": 28, "quiet": 8}


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> StarSet:
    return write_pool(tmp_path_factory.mktemp("pools") / "pool", ENOUGH_FOR_BOTH, n_doubles=4)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_task_from_a_pool_has_the_specified_stars(pool, split) -> None:
    by_flux = {pool.light_curve(star).flux.tobytes(): pool.truth[star] for star in pool.stars}
    seen = [fluxes(pool_stars(pool, split, 2, part, SECRET)) for part in PARTS]
    assert not seen[0] & seen[1]
    for part in PARTS:
        stars = pool_stars(pool, split, 2, part, SECRET)
        assert kinds(stars) == COUNTS[part]
        assert [drawn.star for drawn in stars] == sorted(drawn.star for drawn in stars)
        for drawn in stars:
            assert drawn.truth == by_flux[drawn.light_curve.flux.tobytes()]
            assert len(drawn.truth.planets) == (drawn.truth.kind == "planet")


def test_splits_of_a_pool_are_disjoint(pool) -> None:
    seen = {
        split: {
            flux
            for idx in range(12)
            for part in PARTS
            for flux in fluxes(pool_stars(pool, split, idx, part, SECRET))
        }
        for split in ("train", "dev")
    }
    n_usable = sum(ENOUGH_FOR_BOTH.values())
    assert not seen["train"] & seen["dev"]
    assert len(seen["dev"]) == n_usable / 4
    assert len(seen["train"]) <= 3 * n_usable / 4


def test_stars_of_a_pool_are_named_anew_in_every_task(pool) -> None:
    tasks = [pool_stars(pool, "dev", idx, part, SECRET) for idx in range(3) for part in PARTS]
    ids = {drawn.star for stars in tasks for drawn in stars}
    assert len(ids) == 3 * 28
    assert not ids & set(pool.stars)
    assert digests(tasks[0]) == digests(pool_stars(pool, "dev", 0, "labelled", SECRET))


def test_another_secret_draws_others_from_a_pool(pool) -> None:
    one, other, public = (
        pool_stars(pool, "train", 0, "hidden", secret) for secret in (SECRET, b"another", None)
    )
    assert fluxes(one) != fluxes(other) != fluxes(public) != fluxes(one)
    assert len({drawn.star for stars in (one, other, public) for drawn in stars}) == 3 * 16


@pytest.mark.parametrize("kind", KINDS)
def test_too_small_a_pool_says_what_it_needs(kind, tmp_path) -> None:
    counts = {**ENOUGH_FOR_BOTH, kind: ENOUGH_FOR_BOTH[kind] - 1}
    small = write_pool(tmp_path / "small", counts, n_doubles=3)
    # Only dev, with its quarter, is a star short.
    assert len(pool_stars(small, "train", 0, "hidden", SECRET)) == 16
    with pytest.raises(TransitBenchError, match="TB-E016") as refusal:
        pool_stars(small, "dev", 0, "hidden", SECRET)
    message = str(refusal.value)
    needed = {k: N_STARS["labelled"][k] + N_STARS["hidden"][k] for k in KINDS}
    for words in (needed, {**needed, kind: needed[kind] - 1}, ENOUGH_FOR_BOTH):
        assert ", ".join(f"{n} {k}" for k, n in words.items()) in message


def test_drawn_stars_are_graded_under_the_digest_of_their_set(pool, tmp_path) -> None:
    drawn = pool_stars(pool, "train", 0, "hidden", SECRET)
    stars = graded_stars("mini-train-0", drawn)
    written = write_set(
        tmp_path / "set",
        "mini-train-0",
        "kepler",
        {},
        ((d.star, d.light_curve, d.truth) for d in drawn),
    ).graded()
    assert (stars.name, stars.digest, stars.truth) == (written.name, written.digest, written.truth)
    assert stars.path is None
    for star, time_days in stars.finite_times.items():
        np.testing.assert_array_equal(time_days, written.finite_times[star])
