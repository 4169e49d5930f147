"""Transit geometry and the model against independent, slow computations."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transitbench.errors import TransitBenchError
from transitbench.transit import (
    EXPOSURE_DAYS,
    Orbit,
    in_transit,
    mean_in_transit_depth,
    scaled_semimajor_axis,
    transit_duration_hours,
    transit_model,
)

EARTH = (365.25, 0.00916, 215.0, 0.0)


def disc_flux(z: np.ndarray, k: float, u1: float, u2: float, n: int = 150) -> np.ndarray:
    """Flux of a quadratically limb-darkened disc behind a dark one at distances z: rings, summed up."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    angle = 0.5 * np.pi * (nodes + 1)
    z = np.maximum(z, 1e-12)[..., None]
    edges = np.sort(
        [np.clip(z - k, 0, 1), np.minimum(np.abs(z - k), 1), np.minimum(z + k, 1)], axis=0
    )
    blocked = 0.0
    for low, high in ((edges[0], edges[1]), (edges[1], edges[2])):
        # Nodes crowd at both ends, where the covered arc has its square-root edges.
        r = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(angle)
        step = 0.5 * (high - low) * np.sin(angle) * 0.5 * np.pi * weights
        cosine = (r**2 + z**2 - k**2) / np.maximum(2 * r * z, 1e-300)
        mu = np.sqrt(np.clip(1 - r**2, 0, None))
        intensity = 1 - u1 * (1 - mu) - u2 * (1 - mu) ** 2
        covered = np.arccos(np.clip(cosine, -1, 1))
        blocked = blocked + np.sum(step * 2 * r * covered * intensity, axis=-1)
    return 1 - blocked / (np.pi * (1 - u1 / 3 - u2 / 6))


def sky_distance(time, period, t0, a_rs, impact, ecc, omega_deg):
    """Projected distance of the centres in stellar radii, by Newton's iteration on Kepler's equation."""
    omega = math.radians(omega_deg)
    cos_i = impact / a_rs * (1 + ecc * math.sin(omega)) / (1 - ecc**2)
    anomaly_at_transit = math.pi / 2 - omega
    eccentric = 2 * math.atan2(
        math.sqrt(1 - ecc) * math.sin(anomaly_at_transit / 2),
        math.sqrt(1 + ecc) * math.cos(anomaly_at_transit / 2),
    )
    mean = 2 * np.pi * (time - t0) / period + eccentric - ecc * math.sin(eccentric)
    e_anomaly = mean.copy()
    for _ in range(50):
        e_anomaly -= (e_anomaly - ecc * np.sin(e_anomaly) - mean) / (1 - ecc * np.cos(e_anomaly))
    true = 2 * np.arctan2(
        math.sqrt(1 + ecc) * np.sin(e_anomaly / 2), math.sqrt(1 - ecc) * np.cos(e_anomaly / 2)
    )
    r = a_rs * (1 - ecc * np.cos(e_anomaly))
    return r * np.sqrt(1 - np.sin(omega + true) ** 2 * (1 - cos_i**2))


@pytest.mark.parametrize(
    ("period", "k", "a_rs", "impact", "ecc", "omega"),
    [
        (5.0, 0.1, 12.0, 0.3, 0.0, 90.0),
        (40.0, 0.02, 50.0, 0.7, 0.0, 90.0),
        (0.7, 0.2, 3.0, 0.0, 0.0, 90.0),
        (12.0, 0.15, 25.0, 0.9, 0.0, 90.0),
        (9.0, 0.06, 18.0, 0.4, 0.4, 30.0),
    ],
)
def test_model_equals_integration_over_disc_and_exposure(period, k, a_rs, impact, ecc, omega):
    u1, u2 = 0.4, 0.25
    half = transit_duration_hours(period, k, a_rs, impact, ecc, omega) / 48 + 2 * EXPOSURE_DAYS
    time = 100.0 + np.linspace(-half, half, 19)
    instants = time[:, None] + EXPOSURE_DAYS * ((np.arange(200) + 0.5) / 200 - 0.5)
    z = sky_distance(instants, period, 100.0, a_rs, impact, ecc, omega)
    expected = disc_flux(z, k, u1, u2).mean(axis=1)
    model = transit_model(time, period, 100.0, k, a_rs, impact, (u1, u2), ecc, omega)
    assert np.min(expected) < 1 - 0.6 * k**2
    np.testing.assert_allclose(model, expected, rtol=0, atol=1e-6)


@given(
    period=st.floats(0.6, 120),
    k=st.floats(0.005, 0.2),
    density=st.floats(0.3, 3.0),
    impact=st.floats(0, 0.9),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_duration_is_the_time_between_the_models_contacts(period, k, density, impact):
    a_rs = scaled_semimajor_axis(period, density)
    duration = transit_duration_hours(period, k, a_rs, impact) / 24
    edge = np.array([-0.5 * duration * (1 - 1e-6), -0.5 * duration * (1 + 1e-6)])
    inside, outside = sky_distance(edge, period, 0.0, a_rs, impact, 0.0, 90.0) - (1 + k)
    assert inside < 0 < outside


@given(ecc=st.floats(0, 0.6), omega=st.floats(0, 360), impact=st.floats(0, 0.8))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_eccentric_duration_factor_is_good_to_two_per_cent(ecc, omega, impact):
    duration = transit_duration_hours(30.0, 0.05, 40.0, impact, ecc, omega) / 24
    offsets = np.linspace(-1.5 * duration, 1.5 * duration, 4001)
    inside = sky_distance(offsets, 30.0, 0.0, 40.0, impact, ecc, omega) < 1.05
    assert np.sum(inside) * (offsets[1] - offsets[0]) == pytest.approx(duration, rel=0.02)


def test_earth_and_sun():
    assert scaled_semimajor_axis(365.25, 1.0) == pytest.approx(215.0, rel=0.001)
    assert transit_duration_hours(*EARTH) == pytest.approx(13.1, abs=0.05)


@given(
    period=st.floats(0.7, 20),
    k=st.floats(0.01, 0.2),
    impact=st.floats(0, 0.9),
    ecc=st.sampled_from([0.0, 0.1, 0.5]),
    omega=st.floats(0, 360),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_nothing_is_cut_off_by_evaluating_near_transits_only(period, k, impact, ecc, omega):
    import batman

    a_rs = 2.5 * scaled_semimajor_axis(period, 1.0)
    time = np.arange(0.0, 3 * period, 0.005)
    flux = transit_model(time, period, 0.3, k, a_rs, impact, (0.4, 0.2), ecc, omega)
    params = batman.TransitParams()
    params.t0, params.per, params.rp, params.a = 0.3, period, k, a_rs
    cos_i = impact / a_rs * (1 + ecc * math.sin(math.radians(omega))) / (1 - ecc**2)
    params.inc, params.ecc, params.w = math.degrees(math.acos(cos_i)), ecc, omega
    params.limb_dark, params.u = "quadratic", [0.4, 0.2]
    instant = batman.TransitModel(params, time).light_curve(params)
    assert np.all(flux[instant < 1] < 1)


def test_far_cadences_are_exactly_one_and_nan_times_are_harmless():
    time = np.arange(0.0, 30.0, 0.02)
    time[::7] = np.nan
    flux = transit_model(time, 10.0, 5.0, 0.1, 20.0, 0.2, (0.45, 0.2))
    duration = transit_duration_hours(10.0, 0.1, 20.0, 0.2)
    near = in_transit(time, 10.0, 5.0, duration + 24 * EXPOSURE_DAYS)
    assert np.all(flux[~near] == 1.0)
    assert np.all(flux[in_transit(time, 10.0, 5.0, duration)] < 1.0)
    assert not near[::7].any()


def test_profile_interpolation_is_close_to_the_model():
    time = 900.0 + 0.0204336 * np.arange(4000)
    for ecc, omega in ((0.0, 90.0), (0.4, 200.0)):
        orbit = Orbit(3.3, 901.0, 9.0, 0.5, (0.45, 0.2), ecc, omega)
        loss = 1 - orbit.flux(time, 0.08)
        np.testing.assert_allclose(orbit.loss(time, 0.08), loss, atol=1e-3 * loss.max())


def test_mean_in_transit_depth_is_the_mean_over_in_transit_cadences():
    time = np.arange(0.0, 30.0, 0.02)
    flux = transit_model(time, 10.0, 5.0, 0.1, 20.0, 0.2, (0.45, 0.2))
    duration = transit_duration_hours(10.0, 0.1, 20.0, 0.2)
    chosen = [
        f for t, f in zip(time, flux, strict=True) if abs((t - 5 + 5) % 10 - 5) <= duration / 48
    ]
    depth = mean_in_transit_depth(time, flux, 10.0, 5.0, duration)
    assert depth == pytest.approx(1 - np.mean(chosen), rel=1e-12)
    with pytest.raises(TransitBenchError, match="TB-E016"):
        mean_in_transit_depth(time, flux, 100.0, 50.0, duration)


@pytest.mark.parametrize(
    "change",
    [
        {"period_days": 0.0},
        {"period_days": math.nan},
        {"rp_rs": 0.0},
        {"a_rs": 1.05},
        {"impact": 1.2},
        {"ecc": 0.95},
        {"a_rs": math.nan},
    ],
)
def test_impossible_orbits_are_errors(change):
    good = {"period_days": 10.0, "rp_rs": 0.1, "a_rs": 15.0, "impact": 0.3, "ecc": 0.0}
    with pytest.raises(TransitBenchError, match="TB-E016"):
        transit_duration_hours(**(good | change))
