"""Sets of simulated stars: who is in them, from which seeds.

Star ``i`` of a public set draws from ``SeedSequence((SIM_ROOT_SEED, crc32(set name), i))``, and with an
evaluator's secret from ``SeedSequence(HMAC-SHA256(secret, "set name/i"))``. So a star depends on nothing
but the secret, the set's name and its index, and sets can be made in parallel and in part.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve
from transitbench.runner import usable_cores
from transitbench.sets import StarSet, keyed_rng, secret_tag, star_id, write_set
from transitbench.truth import Signal, StarTruth

HostKind = Literal["eb", "false_alarm", "quiet"]

SIM_ROOT_SEED = 20_110_629
"""Named seed of all public simulated sets: the first day of Kepler's quarter 10."""

PUBLIC_SECRET = b"transitbench public simulated sets"
"""Key of the star ids of public sets: opaque, but the same for everyone."""


MAX_HOSTS = 20
"""Hosts tried for a planet star: a few are too noisy or too variable for its target MES."""


@dataclass(frozen=True, slots=True)
class Composition:
    """How many stars of each kind, and how many planet stars carry two and three planets."""

    planet: int
    eb: int
    false_alarm: int
    quiet: int

    @property
    def n_stars(self) -> int:
        """Return the number of stars."""
        return self.planet + self.eb + self.false_alarm + self.quiet

    @property
    def doubles(self) -> int:
        """Return the number of planet stars with two planets (15 %)."""
        return round(0.15 * self.planet)

    @property
    def triples(self) -> int:
        """Return the number of planet stars with three planets (3 %)."""
        return round(0.03 * self.planet)

    @property
    def n_planets(self) -> int:
        """Return the number of planets in the set."""
        return self.planet + self.doubles + 2 * self.triples


SIM_SETS: dict[str, Composition] = {
    "sim-dev": Composition(planet=88, eb=39, false_alarm=49, quiet=20),
    "sim-A": Composition(planet=225, eb=100, false_alarm=125, quiet=50),
    "sim-B": Composition(planet=225, eb=100, false_alarm=125, quiet=50),
}


@dataclass(frozen=True, slots=True)
class StarRecipe:
    """What one star of a simulated set or task is made of, before any random number is drawn.

    ``host`` is the kind of star that is simulated; ``mes_quantiles`` has an entry in (0, 1) per planet
    to be injected, spread evenly over the set so that its share of MES ≥ 7.1 does not fluctuate.
    """

    set_name: str
    index: int
    host: HostKind
    mes_quantiles: tuple[float, ...] = ()


def set_recipes(name: str) -> list[StarRecipe]:
    """Return the recipe of every star of a simulated set.

    Half of the planets' hosts are quiet stars and half are false-alarm stars (variable, spotted,
    systematics-heavy), so that the type of a star does not betray its label.

    Raises
    ------
    TransitBenchError
        TB-E008 for a name that is no simulated set.
    """
    if name not in SIM_SETS:
        raise TransitBenchError(
            "TB-E008",
            f"{name!r} is none of the simulated sets {', '.join(SIM_SETS)}",
            "see `transitbench data list`",
        )
    composition = SIM_SETS[name]
    rng = np.random.default_rng((SIM_ROOT_SEED, zlib.crc32(name.encode()), composition.n_stars))
    strata = (rng.permutation(composition.n_planets) + 0.5) / composition.n_planets
    quantiles = iter(float(q) for q in strata)
    hosts: list[tuple[HostKind, int]] = []
    for i in range(composition.planet):
        n_planets = 1 + (i < composition.doubles + composition.triples) + (i < composition.triples)
        hosts.append(("quiet" if i % 2 else "false_alarm", n_planets))
    hosts += [("eb", 0)] * composition.eb
    hosts += [("false_alarm", 0)] * composition.false_alarm
    hosts += [("quiet", 0)] * composition.quiet
    return [
        StarRecipe(name, index, host, tuple(next(quantiles) for _ in range(n_planets)))
        for index, (host, n_planets) in enumerate(hosts)
    ]


def sim_flux_quantum(light_curve: LightCurve) -> float:
    """Return the step (e⁻/s) of the grid that a simulated star's flux lies on."""
    from transitbench.sim.photometry import QUANTIZATION_PPM, grid_step, mean_flux_e_per_s

    return grid_step(mean_flux_e_per_s(light_curve.kepmag), QUANTIZATION_PPM * 1e-6)


def _rounded(signal: Signal | None) -> Signal | None:
    """Eight significant digits: a truth file should not hang on the last bit of a CPU's arithmetic."""
    if signal is None:
        return None

    def rounded(number: float) -> float:
        return float(f"{number:.7e}")

    return Signal(
        period_days=rounded(signal.period_days),
        t0_days=rounded(signal.t0_days),
        depth_ppm=rounded(signal.depth_ppm),
        cause=signal.cause,
    )


def _identity(recipe: StarRecipe, secret: bytes | None) -> tuple[str, np.random.Generator]:
    label = f"{recipe.set_name}/{recipe.index}"
    if secret is not None:
        return star_id(secret, f"{label}/id"), keyed_rng(secret, label)
    seed = (SIM_ROOT_SEED, zlib.crc32(recipe.set_name.encode()), recipe.index)
    return star_id(PUBLIC_SECRET, label), np.random.default_rng(np.random.SeedSequence(seed))


def make_star(recipe: StarRecipe, secret: bytes | None = None) -> tuple[str, LightCurve, StarTruth]:
    """Simulate one star of a set: (star id, light curve, truth).

    Parameters
    ----------
    secret
        Key of the star's id and random numbers; None for the star of the public set.

    Raises
    ------
    TransitBenchError
        TB-E017 if none of :data:`MAX_HOSTS` hosts carries the planets.
    """
    from transitbench.inject import inject_planets, mes_target
    from transitbench.sim import simulate_star

    star, rng = _identity(recipe, secret)
    if not recipe.mes_quantiles:
        host = simulate_star(recipe.host, rng)
        return star, host.light_curve, StarTruth(host.kind, signal=_rounded(host.signal))
    targets = [mes_target(quantile) for quantile in recipe.mes_quantiles]
    for _ in range(MAX_HOSTS):
        host = simulate_star(recipe.host, rng)
        try:
            light_curve, planets = inject_planets(
                host.light_curve,
                len(targets),
                rng,
                mes_targets=targets,
                flux_quantum=sim_flux_quantum(host.light_curve),
            )
        except TransitBenchError as refusal:
            if refusal.code != "TB-E017":
                raise
            continue
        return star, light_curve, StarTruth("planet", planets)
    raise TransitBenchError(
        "TB-E017",
        f"none of {MAX_HOSTS} hosts for star {recipe.index} of {recipe.set_name} carries its planets",
        "this is a defect of the set's recipe: please report it",
    )


def build_sim_set(
    name: str,
    path: Path,
    jobs: int | None = None,
    on_star: Callable[[], None] | None = None,
    secret: bytes | None = None,
) -> StarSet:
    """Generate a simulated set into the directory ``path``: same name and secret, same stars.

    Without a secret it is the public set. The manifest names a secret by its tag alone. ``jobs`` is the
    number of processes, every core's by default; 1 stays in this one, which a program of many threads,
    or one that may have no children, needs.
    """
    from transitbench.sim import SIM_GENERATOR_VERSION

    recipes = set_recipes(name)

    def stars() -> Iterator[tuple[str, LightCurve, StarTruth]]:
        make = partial(make_star, secret=secret)
        n_processes = jobs or len(usable_cores())
        with ExitStack() as stack:
            made: Iterable[tuple[str, LightCurve, StarTruth]] = map(make, recipes)
            if n_processes > 1:
                pool = stack.enter_context(ProcessPoolExecutor(n_processes))
                made = pool.map(make, recipes, chunksize=4)
            for star in made:
                yield star
                if on_star:
                    on_star()

    generator: dict[str, Any] = {
        "name": "transitbench.simset",
        "version": SIM_GENERATOR_VERSION,
    }
    if secret is None:
        generator["root_seed"] = SIM_ROOT_SEED
    else:
        generator |= {"drawn_with": "secret", "tag": secret_tag(secret)}
    return write_set(path, name, "sim", generator, stars())
