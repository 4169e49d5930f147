"""Hosts and a search-free matched filter (known ephemeris) for the tests of injection and MES."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.inject import draw_mes_target, draw_system, multiply_flux, solve_rp_rs
from transitbench.lightcurve import LightCurve
from transitbench.mes import box_train, noise_model, transits_with_data
from transitbench.search.ses import template_statistics
from transitbench.transit import Orbit, in_transit

QUARTERS = {10: (39049, 43621), 11: (43667, 48420), 12: (48473, 52516), 13: (52551, 56971)}
LEVEL = 2e4


def make_host(
    noise: np.ndarray | float, rng: np.random.Generator, gaps: bool = True, **star: float
):
    """A star on the cadences of Q10–13: relative noise series (or white σ) on its 17,923 slots."""
    slots = np.arange(39049, 56972)
    series = noise * rng.standard_normal(slots.size) if np.isscalar(noise) else noise
    quarter = np.zeros(slots.size, dtype=np.int8)
    flux = LEVEL * (1.0 + series)
    for number, (first, last) in QUARTERS.items():
        inside = (slots >= first) & (slots <= last)
        quarter[inside] = number
        # Each quarter has its own level, as on Kepler's four chips.
        flux[inside] *= 1.0 + 0.01 * (number - 11)
        if gaps:
            third = (last - first) // 3
            for start in (first + third, first + 2 * third):
                flux[(slots >= start) & (slots < start + 45)] = np.nan
    if gaps:
        flux[::146] = np.nan
    rows = quarter > 0
    return LightCurve(
        time=906.8446 + LONG_CADENCE_DAYS * (slots[rows] - slots[0]),
        flux=flux[rows],
        flux_err=np.full(int(rows.sum()), 1.0),
        quality=np.where(np.isfinite(flux[rows]), 0, 32),
        cadenceno=slots[rows],
        quarter=quarter[rows],
        **star,
    )


def red_noise(rng: np.random.Generator, n: int = 17923) -> np.ndarray:
    """White 150 ppm, granulation-like 60 ppm with 0.3 d memory, 500 ppm of slow spots."""
    shocks = rng.standard_normal(n)
    memory = np.exp(-LONG_CADENCE_DAYS / 0.3)
    granulation = np.empty(n)
    value = shocks[0]
    for i in range(n):
        granulation[i] = value
        value = memory * value + np.sqrt(1 - memory**2) * shocks[i]
    days = LONG_CADENCE_DAYS * np.arange(n)
    phase, period = rng.uniform(0, 2 * np.pi, 2), rng.uniform(12, 25)
    spots = np.sin(2 * np.pi * days / period + phase[0]) + 0.5 * np.sin(
        4 * np.pi * days / period + phase[1]
    )
    return 150e-6 * rng.standard_normal(n) + 60e-6 * granulation + 500e-6 * spots


@dataclass(frozen=True)
class Recovery:
    """Measured over injected; noise is cancelled by subtracting the same measurement on the host."""

    mes_ratio: float
    depth_ratio: float
    epoch_error_hours: float
    duration_hours: float
    mes: float
    noise_mes: float


def inject_orbit(
    host: LightCurve, rng: np.random.Generator
) -> tuple[LightCurve, Orbit, float, float] | None:
    noise = noise_model(host)
    (orbit,) = draw_system(host, rng, 1, noise.grid)
    solved = solve_rp_rs(noise, orbit, draw_mes_target(rng))
    if solved is None:
        return None
    rp_rs, mes = solved
    return multiply_flux(host, orbit.flux(host.time, rp_rs)), orbit, rp_rs, mes


def measure(curve: LightCurve, orbit: Orbit, rp_rs: float, shifts: np.ndarray, known: bool = True):
    """Box MES at shifted epochs, and the fitted scale of the true shape, with the curve's own noise."""
    duration = orbit.duration_hours(rp_rs)
    exclude = in_transit(curve.time, orbit.period_days, orbit.t0_days, duration + 1.0)
    noise = noise_model(curve, exclude if known else None)
    grid = noise.grid
    mid = transits_with_data(grid, orbit.period_days, orbit.t0_days, duration)
    n, d = np.transpose(
        [
            template_statistics(
                noise, box_train(grid, orbit.period_days, duration, mid + shift).astype(float)
            )
            for shift in shifts
        ]
    )
    shape = 1.0 - orbit.flux(grid.time_days, rp_rs)
    shape_n, shape_d = template_statistics(noise, np.where(grid.finite, shape, 0.0))
    return n / np.sqrt(d), shape_n / shape_d


def recover(
    host: LightCurve,
    injected: LightCurve,
    orbit: Orbit,
    rp_rs: float,
    mes: float,
    known: bool = True,
) -> Recovery:
    duration = orbit.duration_hours(rp_rs)
    shifts = LONG_CADENCE_DAYS * np.arange(-4, 5)
    with_planet, depth_with = measure(injected, orbit, rp_rs, shifts, known)
    without, depth_without = measure(host, orbit, rp_rs, shifts, known)
    rise = np.clip(with_planet - without, 0.0, None)
    peak = rise > 0.5 * rise.max()
    epoch = float(np.sum(shifts[peak] * rise[peak]) / np.sum(rise[peak]))
    centre = shifts.size // 2
    return Recovery(
        float(rise[centre] / mes),
        depth_with - depth_without,
        24.0 * epoch,
        duration,
        mes,
        float(without[centre]),
    )


def recover_many(hosts: list[LightCurve], n_each: int, seed: int, known: bool = True):
    rng = np.random.default_rng(seed)
    results = []
    for host in hosts:
        for _ in range(n_each):
            injection = inject_orbit(host, rng)
            if injection is not None:
                results.append(recover(host, *injection, known=known))
    return results
