"""Injection: distributions, rules, and what it must not touch."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matched_filter import make_host, red_noise

from transitbench.errors import TransitBenchError
from transitbench.inject import (
    ECCENTRIC_SHARE,
    STRATUM_SHARES,
    draw_mes_target,
    draw_system,
    inject_planets,
    mes_target,
    stellar_density_solar,
)
from transitbench.lightcurve import LightCurve, same_light_curve
from transitbench.mes import expected_mes, noise_model, transits_with_data
from transitbench.search.grid import cadence_grid
from transitbench.transit import Orbit, in_transit


@pytest.fixture(scope="module")
def host() -> LightCurve:
    rng = np.random.default_rng(0)
    return make_host(red_noise(rng), rng, teff=5500.0, radius=0.9, mass=0.95)


@pytest.fixture(scope="module")
def orbits(host: LightCurve) -> list[Orbit]:
    rng, grid = np.random.default_rng(1), cadence_grid(host)
    return [draw_system(host, rng, 1, grid)[0] for _ in range(1500)]


def test_mes_targets_have_the_specified_shares():
    targets = np.array([mes_target(q) for q in (np.arange(2000) + 0.5) / 2000])
    assert np.mean(targets >= 7.1) == pytest.approx(0.80, abs=0.005)
    assert np.mean((targets >= 7.5) & (targets <= 14)) == pytest.approx(0.60, abs=0.01)
    assert targets.min() >= 4
    assert 45 < targets.max() <= 50
    assert np.all(np.diff(targets) > 0)


def test_drawn_mes_targets_follow_the_quantiles():
    rng = np.random.default_rng(2)
    targets = np.array([draw_mes_target(rng) for _ in range(3000)])
    assert np.mean(targets >= 7.1) == pytest.approx(0.80, abs=0.02)
    assert np.mean((targets >= 7.5) & (targets <= 14)) == pytest.approx(0.60, abs=0.025)


def test_every_drawn_orbit_keeps_the_rules(host, orbits):
    grid = cadence_grid(host)
    start = host.time[0]
    for orbit in orbits:
        assert 0.6 <= orbit.period_days <= 120
        assert start - 1e-6 <= orbit.t0_days <= start + orbit.period_days + 1e-6
        assert 0 <= orbit.impact <= 0.9
        assert orbit.a_rs * (1 - orbit.ecc) > 2
        density = 0.95 / 0.9**3
        assert orbit.a_rs == pytest.approx(
            4.2083 * (density * orbit.period_days**2) ** (1 / 3), 1e-6
        )
        duration = orbit.duration_hours(0.03)
        assert transits_with_data(grid, orbit.period_days, orbit.t0_days, duration).size >= 3


def test_shares_of_strata_eccentricity_and_impact(host, orbits):
    grid = cadence_grid(host)
    n = np.array(
        [
            transits_with_data(grid, o.period_days, o.t0_days, o.duration_hours(0.03)).size
            for o in orbits
        ]
    )
    shares = [np.mean(n == 3), np.mean((n >= 4) & (n <= 6)), np.mean(n >= 7)]
    np.testing.assert_allclose(shares, STRATUM_SHARES, atol=0.035)
    assert np.mean([o.ecc > 0 for o in orbits]) == pytest.approx(ECCENTRIC_SHARE, abs=0.035)
    quantiles = np.quantile([o.impact for o in orbits], [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quantiles, [0.225, 0.45, 0.675], atol=0.04)
    phase = [(o.t0_days - host.time[0]) / o.period_days for o in orbits]
    np.testing.assert_allclose(np.quantile(phase, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.05)


def test_periods_are_log_uniform_within_many_transits(orbits):
    periods = np.array([o.period_days for o in orbits])
    short = np.log(periods[periods < 40] / 0.6) / np.log(40 / 0.6)
    np.testing.assert_allclose(np.quantile(short, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.05)


def test_systems_are_spaced_and_off_resonance(host):
    rng, grid = np.random.default_rng(3), cadence_grid(host)
    for n_planets in (2, 3):
        for _ in range(150):
            system = draw_system(host, rng, n_planets, grid)
            assert len(system) == n_planets
            for i, inner in enumerate(system):
                for outer in system[i + 1 :]:
                    ratio = outer.period_days / inner.period_days
                    assert ratio > 1.3
                    assert all(abs(ratio / r - 1) > 0.02 for r in (1.5, 2, 3))
                    assert inner.a_rs * (1 + inner.ecc) < outer.a_rs * (1 - outer.ecc)


@pytest.mark.parametrize("n_planets", [1, 2, 3])
def test_injection_changes_only_flux_in_transit(host, n_planets):
    injected, planets = inject_planets(host, n_planets, np.random.default_rng(n_planets))
    assert len(planets) == n_planets
    for name in ("time", "flux_err", "quality", "cadenceno", "quarter"):
        assert getattr(injected, name).tobytes() == getattr(host, name).tobytes()
    near = np.zeros(len(host), dtype=bool)
    for planet in planets:
        # Eccentric transits are not centred exactly on the time of conjunction.
        near |= in_transit(
            host.time, planet.period_days, planet.t0_days, 1.3 * planet.duration_hours + 0.5
        )
    assert injected.flux[~near].tobytes() == host.flux[~near].tobytes()
    assert np.array_equal(np.isnan(injected.flux), np.isnan(host.flux))
    good = np.isfinite(host.flux)
    assert np.all(injected.flux[good] <= host.flux[good])
    assert np.any(injected.flux[good] < host.flux[good])


def test_truth_is_what_the_flux_holds():
    rng = np.random.default_rng(4)
    curve = make_host(np.zeros(17923), rng, gaps=False)
    noisy = make_host(2e-4, rng, gaps=False)
    for seed in range(10):
        injected, (planet,) = inject_planets(
            noisy, 1, np.random.default_rng(seed), mes_targets=[20.0]
        )
        ratio = injected.flux.astype(float) / noisy.flux
        phase = np.abs(
            (noisy.time - planet.t0_days + 0.5 * planet.period_days) % planet.period_days
            - 0.5 * planet.period_days
        )
        assert planet.depth_ppm == pytest.approx(1e6 * (1 - ratio[phase < 0.01].min()), rel=0.03)
        assert planet.n_transits >= 3
        assert 20.0 <= planet.mes <= 20.21
        assert planet.rp_rs <= 0.2
    assert len(curve) == len(noisy)


def test_recorded_mes_is_the_expected_mes_on_the_untouched_host(host):
    seed = next(s for s in range(20) if draw_is_circular(host, s))
    rng = np.random.default_rng(seed)
    _, (planet,) = inject_planets(host, 1, rng, mes_targets=[12.0])
    (orbit,) = draw_system(host, np.random.default_rng(seed), 1)
    assert (orbit.period_days, orbit.t0_days) == (planet.period_days, planet.t0_days)
    mes = expected_mes(noise_model(host), orbit, planet.rp_rs)
    assert planet.mes == pytest.approx(mes, rel=1e-5)


def draw_is_circular(host: LightCurve, seed: int) -> bool:
    return draw_system(host, np.random.default_rng(seed), 1)[0].ecc == 0


def test_same_seed_same_injection(host):
    one = inject_planets(host, 2, np.random.default_rng(5))
    two = inject_planets(host, 2, np.random.default_rng(5))
    assert same_light_curve(one[0], two[0])
    assert one[1] == two[1]
    assert inject_planets(host, 2, np.random.default_rng(6))[1] != one[1]


def test_quantum_rounds_the_changed_cadences_only(host):
    plain, _ = inject_planets(host, 1, np.random.default_rng(7))
    coarse, _ = inject_planets(host, 1, np.random.default_rng(7), flux_quantum=0.0625)
    changed = np.isfinite(host.flux) & (coarse.flux != host.flux)
    assert np.all(coarse.flux[changed] % 0.0625 == 0)
    np.testing.assert_allclose(coarse.flux, plain.flux, atol=0.0325)
    untouched = np.isfinite(host.flux) & (plain.flux == host.flux)
    assert np.mean(coarse.flux[untouched] == host.flux[untouched]) > 0.999


def test_hosts_that_cannot_carry_a_planet_are_errors():
    rng = np.random.default_rng(8)
    hopeless = make_host(2.0 * rng.standard_normal(17923) ** 2, rng)
    with pytest.raises(TransitBenchError, match="TB-E017"):
        inject_planets(hopeless, 1, rng, mes_targets=[40.0])
    good = make_host(1e-4, rng)
    short = LightCurve(
        **{
            n: getattr(good, n)[:60]
            for n in ("time", "flux", "flux_err", "quality", "cadenceno", "quarter")
        }
    )
    with pytest.raises(TransitBenchError, match="TB-E017"):
        inject_planets(short, 1, rng)


@pytest.mark.parametrize(("n_planets", "targets"), [(0, None), (2, [8.0])])
def test_nonsense_arguments_are_errors(host, n_planets, targets):
    with pytest.raises(TransitBenchError, match="TB-E016"):
        inject_planets(host, n_planets, np.random.default_rng(0), mes_targets=targets)


@given(seed=st.integers(0, 2**32 - 1), n_planets=st.integers(1, 3))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_every_planet_is_consistent(host, seed, n_planets):
    _, planets = inject_planets(host, n_planets, np.random.default_rng(seed))
    for planet in planets:
        assert planet.n_transits >= 3
        assert 4 <= planet.mes <= 50.5
        assert 0 < planet.rp_rs <= 0.2
        assert 0.5 * planet.rp_rs**2 < planet.depth_ppm * 1e-6 < 1.6 * planet.rp_rs**2
        assert all(math.isfinite(v) for v in (planet.duration_hours, planet.a_rs, planet.impact))


def test_density_prefers_what_is_known_of_the_star():
    rng = np.random.default_rng(9)
    base = make_host(1e-4, rng)
    sun = make_host(1e-4, rng, radius=1.0, mass=1.0)
    giant = make_host(1e-4, rng, radius=10.0, logg=2.438)
    assert stellar_density_solar(sun, rng) == pytest.approx(1.0)
    assert stellar_density_solar(giant, rng) == pytest.approx(1e-3, rel=1e-4)
    drawn = [stellar_density_solar(base, rng) for _ in range(200)]
    assert 0.8 < np.median(drawn) < 1.3
    assert min(drawn) > 0.2
