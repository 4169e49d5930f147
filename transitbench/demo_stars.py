"""Three built-in stars whose answer is beyond doubt: a clear planet, a deep eclipse, pure noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transitbench.ephemeris import Ephemeris
from transitbench.lightcurve import LightCurve
from transitbench.sets import star_id
from transitbench.sim.cadences import FIRST_CADENCE, draw_frame, mission
from transitbench.transit import transit_duration_hours, transit_model

DEMO_SEED = 20_090_307
"""Named seed of the demo stars: Kepler's launch day."""

KEPMAG = 13.5
FLUX_LEVEL = 16384.0
NOISE_PPM = 150.0

LIMB_DARKENING = (0.45, 0.2)
PLANET_ORBIT = {
    "period_days": 7.317,
    "t0_days": 909.81,
    "rp_rs": 0.045,
    "a_rs": 17.0,
    "impact": 0.3,
}
ECLIPSE_ORBIT = {"period_days": 4.603, "t0_days": 908.22, "rp_rs": 0.24, "a_rs": 9.0, "impact": 0.4}


@dataclass(frozen=True)
class DemoStar:
    """One built-in star: its file, what it is, and the planets that a search has to find in it."""

    name: str
    what: str
    path: Path
    light_curve: LightCurve
    planets: tuple[Ephemeris, ...]


def _noise_star(rng: np.random.Generator, relative_flux: np.ndarray | float = 1.0) -> LightCurve:
    frame = draw_frame(rng, KEPMAG)
    common = mission()
    noise = 1.0 + NOISE_PPM * 1e-6 * rng.standard_normal(frame.time_days.size)
    flux = FLUX_LEVEL * noise * relative_flux
    flux[frame.missing] = np.nan
    return LightCurve(
        time=frame.time_days,
        flux=flux.astype(np.float32),
        flux_err=np.full(flux.size, FLUX_LEVEL * NOISE_PPM * 1e-6, dtype=np.float32),
        quality=frame.quality,
        cadenceno=(common.slot + FIRST_CADENCE).astype(np.int32),
        quarter=common.quarter,
        kepmag=KEPMAG,
        teff=5778.0,
        logg=4.44,
        radius=1.0,
        mass=1.0,
    )


def write_demo_stars(directory: Path) -> list[DemoStar]:
    """Write the three stars into ``directory``: planet, eclipse, noise, in this order."""
    stars: list[DemoStar] = []
    orbits: tuple[tuple[str, dict[str, float] | None, bool], ...] = (
        ("a clear planet", PLANET_ORBIT, True),
        ("a 6 % deep eclipse", ECLIPSE_ORBIT, False),
        ("pure noise", None, False),
    )
    for index, (what, orbit, is_planet) in enumerate(orbits):
        light_curve = _noise_star(np.random.default_rng((DEMO_SEED, index)))
        planets: tuple[Ephemeris, ...] = ()
        if orbit is not None:
            model = transit_model(light_curve.time, **orbit, limb_darkening=LIMB_DARKENING)
            light_curve = _noise_star(np.random.default_rng((DEMO_SEED, index)), model)
            shape = {key: value for key, value in orbit.items() if key != "t0_days"}
            duration_hours = transit_duration_hours(**shape)
            if is_planet:
                planets = (Ephemeris(orbit["period_days"], orbit["t0_days"], duration_hours),)
        name = star_id(b"transitbench demo stars", str(index))
        path = directory / f"{name}.npz"
        light_curve.to_npz(path)
        stars.append(DemoStar(name, what, path, light_curve, planets))
    return stars
