"""The stars of a mini task: a pure function of a secret, a split and the task's index.

A task has labelled stars, which an agent sees with their truth, and hidden ones, which it is graded on.
Their kinds and numbers are the same in every task; everything else is drawn with a key: the evaluator's
secret, or :data:`PUBLIC_KEY` where there is none. Without a secret anybody who has this package can
recompute a task's answers.

Simulated stars are made for their task alone, so no two tasks, splits or parts share one. Stars of a pool
are too few for that: ``dev`` and ``train`` draw from disjoint shares of it, the two parts of a task are
disjoint, and stars are named anew in every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from transitbench.errors import TransitBenchError
from transitbench.fingerprint import light_curve_fingerprint
from transitbench.lightcurve import LightCurve
from transitbench.score import MINI_PLANETS
from transitbench.sets import GradedStars, StarSet, keyed_rng, set_digest, star_id
from transitbench.simset import HostKind, StarRecipe, make_star
from transitbench.truth import Kind, StarTruth

Split = Literal["train", "dev"]
Part = Literal["labelled", "hidden"]

MINI_VERSION = 1
"""Changes whenever the same secret, split and index would give another task."""

PUBLIC_KEY = b"transitbench public mini tasks"
"""Key of the tasks of everyone who has set no secret."""

N_STARS: Mapping[Part, Mapping[Kind, int]] = {
    "labelled": {"planet": 6, "eb": 2, "false_alarm": 3, "quiet": 1},
    "hidden": {"planet": MINI_PLANETS, "eb": 3, "false_alarm": 4, "quiet": 1},
}
"""Stars of each kind: half with one planet each, the others in the proportions of a survey set (20:25:10)."""

POOL_DEV_DIVISOR = 4
"""Of each kind in a pool, one star in this many is kept for ``dev``."""


@dataclass(frozen=True)
class DrawnStar:
    """One star of a task: its opaque id, its light curve, and what is hidden in it."""

    star: str
    light_curve: LightCurve
    truth: StarTruth


def simulated_stars(split: Split, idx: int, part: Part, secret: bytes | None) -> list[DrawnStar]:
    """Simulate one part of a task, sorted by star id (a random order).

    Star ``i`` draws from ``HMAC-SHA256(key, "mini/{version}/{split}/{idx}/{part}/{i}")``.

    Parameters
    ----------
    split
        ``train`` or ``dev``.
    idx
        Number of the task, ≥ 0.
    part
        ``labelled`` or ``hidden``.
    secret
        As :func:`transitbench.home.evaluator_secret` gives it.

    Raises
    ------
    TransitBenchError
        TB-E016 for an unknown split or part, or a negative index.
    """
    _check_task(split, idx, part)
    key = secret or PUBLIC_KEY
    recipes = _recipes(f"mini/{MINI_VERSION}/{split}/{idx}/{part}", part, key)
    return _by_id([DrawnStar(*make_star(recipe, key)) for recipe in recipes])


def _recipes(task_part: str, part: Part, key: bytes) -> list[StarRecipe]:
    """Hosts of planets are half quiet and half false-alarm stars, their MES spread evenly over the part."""
    n_stars = N_STARS[part]
    n_planets = n_stars["planet"]
    rng = keyed_rng(key, task_part)
    # Somewhere in its stratum, not at its middle: otherwise every task would have the same MES.
    quantiles = (rng.permutation(n_planets) + rng.random(n_planets)) / n_planets
    stars: list[tuple[HostKind, tuple[float, ...]]] = [
        ("quiet" if i % 2 else "false_alarm", (float(quantile),))
        for i, quantile in enumerate(quantiles)
    ]
    for host in get_args(HostKind):
        stars += [(host, ())] * n_stars[host]
    return [StarRecipe(task_part, i, host, mes) for i, (host, mes) in enumerate(stars)]


def pool_stars(
    pool: StarSet, split: Split, idx: int, part: Part, secret: bytes | None
) -> list[DrawnStar]:
    """Draw one part of a task from a set directory, sorted by star id (a random order).

    Planet stars with more than one planet are left alone. A star's id in the task has nothing to do with
    its id in the pool.

    Parameters
    ----------
    pool
        Directory of labelled stars.
    split, idx, part, secret
        As in :func:`simulated_stars`.

    Raises
    ------
    TransitBenchError
        TB-E016 as in :func:`simulated_stars`, or if the pool is too small.
    """
    _check_task(split, idx, part)
    key = secret or PUBLIC_KEY
    shares = _pool_shares(pool, split, key)
    _check_pool(pool.name, split, shares)
    task = f"mini-pool/{MINI_VERSION}/{split}/{idx}"
    rng = keyed_rng(key, task)
    drawn: list[DrawnStar] = []
    for kind, members in shares.items():
        order = [members[i] for i in rng.permutation(len(members))]
        n_labelled, n_hidden = N_STARS["labelled"][kind], N_STARS["hidden"][kind]
        labelled, hidden = order[:n_labelled], order[n_labelled : n_labelled + n_hidden]
        drawn += [
            DrawnStar(star_id(key, f"{task}/{star}"), pool.light_curve(star), pool.truth[star])
            for star in (labelled if part == "labelled" else hidden)
        ]
    return _by_id(drawn)


def _pool_shares(pool: StarSet, split: Split, key: bytes) -> dict[Kind, list[str]]:
    """Stars of the pool that a split may use, per kind."""
    shares: dict[Kind, list[str]] = {}
    for kind in N_STARS["hidden"]:
        of_kind = [
            star
            for star, truth in pool.truth.items()
            if truth.kind == kind and len(truth.planets) <= 1
        ]
        of_kind.sort(key=lambda star: star_id(key, f"mini-pool/{MINI_VERSION}/split/{star}"))
        n_dev = len(of_kind) // POOL_DEV_DIVISOR
        shares[kind] = of_kind[:n_dev] if split == "dev" else of_kind[n_dev:]
    return shares


def _check_pool(name: str, split: Split, shares: Mapping[Kind, Sequence[str]]) -> None:
    needed = {kind: sum(N_STARS[part][kind] for part in N_STARS) for kind in shares}
    if any(len(members) < needed[kind] for kind, members in shares.items()):

        def listed(counts: Mapping[Kind, int]) -> str:
            return ", ".join(f"{n} {kind}" for kind, n in counts.items())

        whole = {kind: POOL_DEV_DIVISOR * n for kind, n in needed.items()}
        raise TransitBenchError(
            "TB-E016",
            f"a mini task needs {listed(needed)} stars (planet stars with one planet each), pool {name} "
            f"has {listed({k: len(v) for k, v in shares.items()})} for split {split}",
            f"a quarter of a pool is for dev: {listed(whole)} stars are enough for both splits",
        )


def _check_task(split: str, idx: int, part: str) -> None:
    if split not in get_args(Split) or part not in get_args(Part) or idx < 0:
        raise TransitBenchError(
            "TB-E016",
            f"there is no mini task with {split=}, {idx=}, {part=}",
            "split is train or dev, idx is 0 or more, part is labelled or hidden",
        )


def _by_id(stars: list[DrawnStar]) -> list[DrawnStar]:
    return sorted(stars, key=lambda drawn: drawn.star)


def star_files(stars: Sequence[DrawnStar]) -> dict[str, bytes]:
    """Return the star file of each star: same stars, same bytes."""
    return {drawn.star: drawn.light_curve.npz_bytes() for drawn in stars}


def truth_of(stars: Sequence[DrawnStar]) -> dict[str, StarTruth]:
    """Return the truth of each star."""
    return {drawn.star: drawn.truth for drawn in stars}


def graded_stars(name: str, stars: Sequence[DrawnStar]) -> GradedStars:
    """Return stars as grading needs them; ``name`` is what records call them, as in ``mini-train-17``.

    The digest is the one that a set directory of the same stars would have.
    """
    truth = truth_of(stars)
    return GradedStars(
        name,
        set_digest(((d.star, light_curve_fingerprint(d.light_curve)) for d in stars), truth),
        truth,
        {drawn.star: drawn.light_curve.finite_time_days for drawn in stars},
    )
