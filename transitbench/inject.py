"""Injection of planets into a light curve at a wanted detectability.

Geometry is drawn first, then the radius ratio is solved for so that the expected MES on the host hits
its target. All numbers are rounded before the transit is rendered from them, so that the truth on
record is what the flux holds, and does not hang on the last bit of a CPU's arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import SOLAR_LOGG_CGS, LightCurve
from transitbench.mes import NoiseModel, expected_mes, noise_model, transits_with_data
from transitbench.search.grid import CadenceGrid, cadence_grid
from transitbench.transit import Orbit, scaled_semimajor_axis
from transitbench.truth import Planet

PERIOD_RANGE_DAYS = (0.6, 120.0)
MIN_TRANSITS = 3
MAX_RP_RS = 0.2
MAX_IMPACT = 0.9
MIN_PERIASTRON_RS = 2.0

TRANSIT_STRATA = ((3, 3), (4, 6), (7, 10**6))
"""Observed transits (from, to) of the strata that periods are drawn in."""

STRATUM_SHARES = (0.10, 0.15, 0.75)
"""Share of planets per stratum; log-uniform periods on Q10–13 alone would give about 0.07, 0.13, 0.80."""

ECCENTRIC_SHARE = 0.2
ECCENTRICITY_BETA = (0.87, 3.03)
"""Beta distribution of e for eccentric orbits (Kipping 2013, MNRAS 434 L51)."""

MIN_PERIOD_RATIO = 1.3
RESONANCES = (1.5, 2.0, 3.0)
RESONANCE_WIDTH = 0.02

MES_RANGE = (4.0, 50.0)
MES_CORE_MEDIAN, MES_CORE_SIGMA = 9.22, 0.33
MES_TAIL_START, MES_TAIL_SHARE = 14.0, 0.06
MES_TOLERANCE = 0.01
"""A planet's MES lies between its target and this relative amount above."""

MAX_PERIOD_DRAWS = 400
MAX_SYSTEM_DRAWS = 20
_MAX_RADIUS_STEPS = 8
_FIRST_RP_RS = 0.03


def mes_target(quantile: float) -> float:
    """MES at a quantile in [0, 1] of the target distribution.

    94 % of the targets are lognormal (median 9.22, σ 0.33, cut to 4–50), 6 % log-uniform in 14–50:
    80 % of all are ≥ 7.1 and 60 % within 7.5–14. Evenly spread quantiles give a set those shares
    exactly.
    """
    lowest, highest = MES_RANGE

    def core(mes: float) -> float:
        return float(ndtr(math.log(mes / MES_CORE_MEDIAN) / MES_CORE_SIGMA))

    def cumulative(mes: float) -> float:
        body = (core(mes) - core(lowest)) / (core(highest) - core(lowest))
        tail = math.log(max(mes, MES_TAIL_START) / MES_TAIL_START)
        tail /= math.log(highest / MES_TAIL_START)
        return (1 - MES_TAIL_SHARE) * body + MES_TAIL_SHARE * tail

    low, high = MES_RANGE
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cumulative(middle) < quantile else (low, middle)
    return math.sqrt(low * high)


def draw_mes_target(rng: np.random.Generator) -> float:
    """Draw a target from the distribution of :func:`mes_target`."""
    return mes_target(float(rng.random()))


def _known(value: float) -> bool:
    return math.isfinite(value) and value > 0


def stellar_density_solar(light_curve: LightCurve, rng: np.random.Generator) -> float:
    """Mean density of the star, ρ☉: from mass and radius, from log g and radius, else a solar-like draw.

    The draw is M ~ N(1, 0.12) cut to 0.7–1.3 M☉ and R = M^0.9 with 8 % lognormal scatter, a main
    sequence around the Sun.
    """
    mass = min(max(float(rng.normal(1.0, 0.12)), 0.7), 1.3)
    radius = mass**0.9 * math.exp(0.08 * rng.normal())
    if _known(light_curve.radius) and _known(light_curve.mass):
        mass, radius = light_curve.mass, light_curve.radius
    elif _known(light_curve.radius) and math.isfinite(light_curve.logg):
        radius = light_curve.radius
        mass = 10.0 ** (light_curve.logg - SOLAR_LOGG_CGS) * radius**2
    return float(mass / radius**3)


def draw_limb_darkening(light_curve: LightCurve, rng: np.random.Generator) -> tuple[float, float]:
    """Quadratic coefficients: (0.45, 0.20) at 5778 K, uniform jitter of ± 0.1 on each.

    Cooler stars are darker at the limb: u1 falls and u2 rises by 0.13 and 0.08 per 1000 K, a straight
    line through the trend of Kepler-band tables (Claret & Bloemen 2011), held outside 4000–7500 K.
    """
    jitter = rng.uniform(-0.1, 0.1, 2)
    teff = light_curve.teff if _known(light_curve.teff) else 5778.0
    kilokelvin = (min(max(teff, 4000.0), 7500.0) - 5778.0) / 1000.0
    return (
        round(0.45 - 0.13 * kilokelvin + float(jitter[0]), 6),
        round(0.20 + 0.08 * kilokelvin + float(jitter[1]), 6),
    )


def _significant(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _draw_orbit(
    grid: CadenceGrid,
    density_solar: float,
    limb_darkening: tuple[float, float],
    stratum: tuple[int, int],
    rng: np.random.Generator,
) -> Orbit | None:
    """One orbit whose observed transits fall into the stratum, or None after one vain try."""
    start, span = float(grid.time_days[0]), float(grid.time_days[-1] - grid.time_days[0])
    few, many = stratum
    # Up to two potential transits more than observed, because some are lost in gaps.
    shortest = max(PERIOD_RANGE_DAYS[0], span / (many + 3))
    longest = min(PERIOD_RANGE_DAYS[1], span / (few - 1))
    uniform = rng.random(5).tolist()
    if shortest >= longest:
        return None
    period = _significant(shortest * (longest / shortest) ** uniform[0], 8)
    a_rs = _significant(scaled_semimajor_axis(period, density_solar), 8)
    ecc, omega = 0.0, 90.0
    beta = float(rng.beta(*ECCENTRICITY_BETA))
    if uniform[3] < ECCENTRIC_SHARE:
        ecc, omega = _significant(beta, 6), round(360.0 * uniform[4], 4)
    if a_rs * (1 - ecc) <= MIN_PERIASTRON_RS:
        return None
    orbit = Orbit(
        period,
        round(start + period * uniform[1], 6),
        a_rs,
        round(MAX_IMPACT * uniform[2], 6),
        limb_darkening,
        ecc,
        omega,
    )
    observed = transits_with_data(
        grid, period, orbit.t0_days, orbit.duration_hours(_FIRST_RP_RS)
    ).size
    return orbit if few <= observed <= many else None


def compatible(one: Orbit, other: Orbit) -> bool:
    """Whether two orbits can share a star: ratio > 1.3, off 3:2, 2:1 and 3:1 by 2 %, never crossing."""
    inner, outer = sorted((one, other), key=lambda orbit: orbit.period_days)
    ratio = outer.period_days / inner.period_days
    return (
        ratio > MIN_PERIOD_RATIO
        and all(abs(ratio / r - 1) > RESONANCE_WIDTH for r in RESONANCES)
        and inner.a_rs * (1 + inner.ecc) < outer.a_rs * (1 - outer.ecc)
    )


def draw_system(
    light_curve: LightCurve,
    rng: np.random.Generator,
    n_planets: int,
    grid: CadenceGrid | None = None,
) -> tuple[Orbit, ...]:
    """Draw the orbits of one system, ascending in period.

    Periods are log-uniform in 0.6–120 d within strata of observed transits (:data:`TRANSIT_STRATA`),
    epochs uniform over one period from the first cadence, impact parameters uniform in 0–0.9, a fifth
    of the orbits eccentric, all with periastron beyond 2 R★ and at least three observed transits.

    Parameters
    ----------
    grid
        ``cadence_grid(light_curve)`` if at hand.

    Raises
    ------
    TransitBenchError
        TB-E017 if :data:`MAX_PERIOD_DRAWS` draws do not give ``n_planets`` compatible orbits.
    """
    grid = cadence_grid(light_curve) if grid is None else grid
    density = stellar_density_solar(light_curve, rng)
    limb_darkening = draw_limb_darkening(light_curve, rng)
    orbits: list[Orbit] = []
    strata = [int(rng.choice(len(TRANSIT_STRATA), p=STRATUM_SHARES)) for _ in range(n_planets)]
    for stratum in strata:
        for attempt in range(MAX_PERIOD_DRAWS):
            # A short or gappy light curve may have no orbit of the stratum at all.
            if attempt == MAX_PERIOD_DRAWS // 2:
                stratum = len(TRANSIT_STRATA) - 1
            orbit = _draw_orbit(grid, density, limb_darkening, TRANSIT_STRATA[stratum], rng)
            if orbit is not None and all(compatible(orbit, other) for other in orbits):
                orbits.append(orbit)
                break
        else:
            raise TransitBenchError(
                "TB-E017",
                f"no orbit for planet {len(orbits) + 1} of {n_planets} in {MAX_PERIOD_DRAWS} draws "
                f"(span {grid.time_days[-1] - grid.time_days[0]:.1f} d, density {density:.3g} of the Sun's)",
                "choose another host or fewer planets",
            )
    return tuple(sorted(orbits, key=lambda orbit: orbit.period_days))


def solve_rp_rs(noise: NoiseModel, orbit: Orbit, target_mes: float) -> tuple[float, float] | None:
    """Radius ratio, to six digits, and its expected MES within 1 % above the target.

    None if the target needs a planet larger than :data:`MAX_RP_RS`.
    """
    aim = target_mes * (1 + 0.4 * MES_TOLERANCE)
    rp_rs, slope = _FIRST_RP_RS, 2.0
    previous: tuple[float, float] | None = None
    for _ in range(_MAX_RADIUS_STEPS):
        mes = expected_mes(noise, orbit, rp_rs)
        if 0 <= mes / target_mes - 1 <= MES_TOLERANCE:
            return rp_rs, _significant(mes, 6)
        if mes <= 0 or (rp_rs >= MAX_RP_RS and mes < target_mes):
            return None
        if previous is not None and previous[0] != rp_rs and previous[1] != mes:
            secant = math.log(mes / previous[1]) / math.log(rp_rs / previous[0])
            slope = min(max(secant, 1.0), 4.0)
        previous = rp_rs, mes
        rp_rs = _significant(min(MAX_RP_RS, rp_rs * (aim / mes) ** (1 / slope)), 6)
    return None


def _planet(noise: NoiseModel, orbit: Orbit, target_mes: float) -> Planet | None:
    solved = solve_rp_rs(noise, orbit, target_mes)
    if solved is None:
        return None
    rp_rs, mes = solved
    duration_hours = orbit.duration_hours(rp_rs)
    n_transits = transits_with_data(
        noise.grid, orbit.period_days, orbit.t0_days, duration_hours
    ).size
    if n_transits < MIN_TRANSITS:
        return None
    return Planet(
        period_days=orbit.period_days,
        t0_days=orbit.t0_days,
        duration_hours=_significant(duration_hours, 8),
        depth_ppm=_significant(orbit.mid_transit_depth_ppm(rp_rs), 8),
        rp_rs=rp_rs,
        a_rs=orbit.a_rs,
        impact=orbit.impact,
        n_transits=n_transits,
        mes=mes,
    )


def multiply_flux(
    light_curve: LightCurve, model: NDArray[np.float64], flux_quantum: float | None = None
) -> LightCurve:
    """Multiply a relative model into the flux; cadences where it is 1 or the flux NaN stay bit for bit.

    ``flux_quantum`` (e⁻/s, a power of two) rounds the changed cadences to the grid of a simulated
    star's flux, so that they do not depend on the last bit of the model.
    """
    changed = np.flatnonzero((model != 1.0) & np.isfinite(light_curve.flux))
    values = light_curve.flux[changed].astype(np.float64) * model[changed]
    if flux_quantum is not None:
        values = np.rint(values / flux_quantum) * flux_quantum
    flux = light_curve.flux.copy()
    flux[changed] = values
    return replace(light_curve, flux=flux)


def inject_planets(
    light_curve: LightCurve,
    n_planets: int,
    rng: np.random.Generator,
    *,
    mes_targets: Sequence[float] | None = None,
    flux_quantum: float | None = None,
) -> tuple[LightCurve, tuple[Planet, ...]]:
    """Inject planets into a light curve: ``F = F_PDC · Π m(t)``.

    A system that would need a planet above k = 0.2, or leaves one with fewer than three observed
    transits, is drawn anew with the same MES targets, at most :data:`MAX_SYSTEM_DRAWS` times.

    Parameters
    ----------
    light_curve
        The host. Times, errors, flags and missing values are handed through untouched.
    n_planets
        Number of planets, ≥ 1.
    rng
        Source of all draws.
    mes_targets
        One target per planet; drawn by :func:`draw_mes_target` if not given.
    flux_quantum
        See :func:`multiply_flux`; None for real stars.

    Returns
    -------
    tuple
        The new light curve, and its planets ascending in period. ``depth_ppm`` is the depth of an
        exposure centred on mid-transit, ``mes`` the expected MES on the un-injected host.

    Raises
    ------
    TransitBenchError
        TB-E017 if the host cannot carry such planets; TB-E016 if the arguments make no sense.
    """
    if n_planets < 1 or (mes_targets is not None and len(mes_targets) != n_planets):
        raise TransitBenchError(
            "TB-E016",
            f"expected n_planets ≥ 1 and as many MES targets, got {n_planets=}, {mes_targets=}",
            "give one target per planet, or none",
        )
    noise = noise_model(light_curve)
    targets = (
        [draw_mes_target(rng) for _ in range(n_planets)] if mes_targets is None else mes_targets
    )
    for _ in range(MAX_SYSTEM_DRAWS):
        orbits = draw_system(light_curve, rng, n_planets, noise.grid)
        planets = [_planet(noise, *pair) for pair in zip(orbits, targets, strict=True)]
        found = tuple(planet for planet in planets if planet is not None)
        if len(found) == n_planets:
            model = np.ones(len(light_curve))
            for orbit, planet in zip(orbits, found, strict=True):
                model *= orbit.flux(light_curve.time, planet.rp_rs)
            return multiply_flux(light_curve, model, flux_quantum), found
    raise TransitBenchError(
        "TB-E017",
        f"host cannot carry {n_planets} planets at the MES wanted with rp_rs ≤ {MAX_RP_RS} "
        f"and {MIN_TRANSITS} transits in {MAX_SYSTEM_DRAWS} draws",
        "choose another host or lower targets",
    )
