"""Trend, whitening and single-event statistics against slow references."""

import numpy as np
import pytest
from matched_filter import make_host, red_noise
from scipy.linalg import toeplitz

from transitbench.errors import TransitBenchError
from transitbench.search.detrend import MAX_GAP_CADENCES, smooth_trend
from transitbench.search.grid import Segment, cadence_grid
from transitbench.search.noise import noise_model, whiten
from transitbench.search.ses import single_event_statistics, template_statistics
from transitbench.search.whiten import Whitener, autocovariance, fit_whitener


def ar_process(coefficients, n, rng):
    series = np.zeros(n + 500)
    shocks = rng.standard_normal(n + 500)
    for t in range(len(coefficients), n + 500):
        series[t] = shocks[t] + sum(c * series[t - j - 1] for j, c in enumerate(coefficients))
    return series[500:]


def test_grid_holds_every_row_and_normalises_quarters():
    host = make_host(1e-4, np.random.default_rng(0))
    grid = cadence_grid(host)
    assert grid.finite.sum() == host.finite.sum()
    assert np.array_equal(np.flatnonzero(grid.finite), grid.rows[host.finite])
    for quarter in (10, 11, 12, 13):
        assert np.median(grid.flux[grid.finite & (grid.quarter == quarter)]) == pytest.approx(
            1.0, abs=1e-9
        )
    np.testing.assert_allclose(grid.time_days[grid.rows], host.time, atol=1e-9)
    np.testing.assert_allclose(grid.slot(host.time[[5, 900]]), grid.rows[[5, 900]], atol=1e-6)


def test_segments_cover_finite_slots_once_and_split_where_they_should():
    host = make_host(1e-4, np.random.default_rng(0))
    grid = cadence_grid(host)
    segments = grid.segments(4)
    covered = np.concatenate([np.arange(s.start, s.stop) for s in segments])
    assert np.array_equal(
        np.intersect1d(covered, np.flatnonzero(grid.finite)), np.flatnonzero(grid.finite)
    )
    assert covered.size == np.unique(covered).size
    assert len(segments) == 12
    assert all(grid.finite[s.start] and grid.finite[s.stop - 1] for s in segments)


def test_trend_passes_slow_sines_and_stops_transits():
    n = 4000
    days = np.arange(n) * 0.0204
    segment, everything = [Segment(0, n, 10)], np.ones(n, dtype=bool)
    middle = slice(1000, 3000)

    def kept(period):
        sine = 1e-3 * np.sin(2 * np.pi * days / period)
        return np.std(smooth_trend(1 + sine, everything, segment)[middle]) / np.std(sine[middle])

    assert kept(40.0) > 0.95
    assert kept(12.0) == pytest.approx(0.5, abs=0.1)
    assert kept(3.0) < 0.02


def test_deep_eclipses_flares_and_spikes_do_not_move_the_trend():
    rng = np.random.default_rng(1)
    days = np.arange(4000) * 0.0204
    flux = 1 + 2e-3 * np.sin(2 * np.pi * days / 30) + 1e-4 * rng.standard_normal(4000)
    everything, segment = np.ones(4000, dtype=bool), [Segment(0, 4000, 10)]
    clean = smooth_trend(flux, everything, segment)
    flux[(days % 4.0) < 0.25] -= 0.06
    flux[rng.integers(0, 4000, 30)] += 0.01
    np.testing.assert_allclose(smooth_trend(flux, everything, segment), clean, atol=1e-4)


def test_trend_leaves_the_step_between_segments_alone():
    flux = np.r_[np.full(500, 1.01), np.full(700, 0.99)]
    segments = [Segment(0, 500, 10), Segment(500, 1200, 10)]
    trend = smooth_trend(flux, np.ones(1200, dtype=bool), segments)
    np.testing.assert_allclose(trend, flux, atol=1e-6)


def test_levinson_filters_equal_the_inverse_cholesky_factor():
    covariance = 2.0 * np.exp(-np.arange(8) / 3.0) + 0.5 * (np.arange(8) == 0)
    whitener = fit_whitener(covariance, 100_000)
    order = whitener.kernel.size - 1
    loaded = covariance.copy()
    loaded[0] *= 1 + 1e-6
    factor = np.linalg.inv(np.linalg.cholesky(toeplitz(loaded[:order])))
    ratio = whitener.start / np.where(factor == 0, 1.0, factor)
    lower = np.tril(np.ones((order, order), dtype=bool))
    np.testing.assert_allclose(ratio[lower], ratio[0, 0], rtol=1e-8)


def test_whitening_recovers_the_shocks_of_a_known_process():
    rng = np.random.default_rng(2)
    series = ar_process([0.6, 0.2], 20000, rng)
    covariance = autocovariance(series, np.ones(series.size, dtype=bool), 48)
    whitener = fit_whitener(covariance, series.size)
    kernel = np.zeros(49)
    kernel[: whitener.kernel.size] = whitener.kernel
    np.testing.assert_allclose(kernel[:4], [1, -0.6, -0.2, 0], atol=0.03)
    whitened = whitener(series)
    lag = [np.mean(whitened[k:] * whitened[: whitened.size - k]) for k in range(1, 6)]
    assert np.std(whitened) == pytest.approx(1.0, abs=0.02)
    assert np.max(np.abs(lag)) < 0.03
    starts = np.array([whitener(ar_process([0.6, 0.2], 30, rng))[:3] for _ in range(800)])
    np.testing.assert_allclose(np.std(starts, axis=0), 1.0, atol=0.08)


def test_excluding_regular_holes_does_not_change_the_expected_covariance():
    rng = np.random.default_rng(3)
    series = ar_process([0.8], 60000, rng)
    excluded = np.arange(series.size) % 30 < 6
    whole = autocovariance(series, np.ones(series.size, dtype=bool), 10)
    holed = autocovariance(series, ~excluded, 10, excluded)
    np.testing.assert_allclose(holed, whole, rtol=0.06)


def test_whitening_is_linear_and_zero_where_data_are_missing():
    host = make_host(red_noise(np.random.default_rng(4)), np.random.default_rng(4))
    noise = noise_model(host)
    rng = np.random.default_rng(5)
    one, two = rng.standard_normal((2, noise.residual.size))
    apply = lambda x: whiten(x, noise.grid.finite, noise.segments, noise.whiteners)  # noqa: E731
    np.testing.assert_allclose(apply(2 * one - two), 2 * apply(one) - apply(two), atol=1e-9)
    assert np.all(apply(one)[~noise.grid.finite] == 0)
    np.testing.assert_allclose(apply(noise.residual), noise.whitened, atol=1e-12)


def test_single_event_statistics_equal_one_template_at_a_time():
    host = make_host(red_noise(np.random.default_rng(6)), np.random.default_rng(6))
    noise = noise_model(host)
    numerator, denominator = single_event_statistics(noise, 6.0)
    first_of_segment = [s.start for s in noise.segments]
    rng = np.random.default_rng(7)
    for slot in rng.choice(np.flatnonzero(noise.grid.finite), 200, replace=False):
        box = np.zeros(noise.residual.size)
        box[max(0, slot - 6) : slot + 6] = 1.0
        n, d = template_statistics(noise, box)
        lost = ~noise.grid.finite[max(0, slot - 12) : slot + 60]
        if lost.any() or any(slot - 60 <= start <= slot + 60 for start in first_of_segment):
            assert denominator[slot] == pytest.approx(d, rel=1.0)
        else:
            assert (numerator[slot], denominator[slot]) == pytest.approx((n, d), rel=1e-9)


@pytest.mark.parametrize("seed", [0, 1])
def test_significance_of_pure_noise_has_unit_variance(seed):
    rng = np.random.default_rng(seed)
    noise = noise_model(make_host(red_noise(rng), rng))
    for hours in (2.0, 6.0, 12.0):
        numerator, denominator = single_event_statistics(noise, hours)
        good = noise.grid.finite & (denominator > 0)
        scatter = np.std(numerator[good] / np.sqrt(denominator[good]))
        assert scatter == pytest.approx(1.0, abs=0.1)


def test_sensitivity_falls_where_data_are_missing():
    noise = noise_model(make_host(2e-4, np.random.default_rng(8)))
    finite, n_slots = noise.grid.finite, noise.grid.finite.size
    _, denominator = single_event_statistics(noise, 8.0)
    half = 8
    share = np.array([finite[max(0, i - half) : i + half].sum() / 16 for i in range(n_slots)])
    full = np.median(denominator[share == 1])
    for part in (0.25, 0.5, 0.75):
        assert np.median(denominator[share == part]) / full == pytest.approx(part, abs=0.12)
    assert np.all(denominator[share == 0] < 0.05 * full)


def test_local_noise_follows_a_noisy_week():
    rng = np.random.default_rng(9)
    scale = np.full(17923, 1e-4)
    scale[6000:6700] = 4e-4
    noise = noise_model(make_host(scale * rng.standard_normal(17923), rng))
    sigma = noise.inverse_variance[noise.grid.finite] ** -0.5
    slots = np.flatnonzero(noise.grid.finite)
    assert np.median(sigma[(slots > 6200) & (slots < 6500)]) == pytest.approx(4e-4, rel=0.2)
    assert np.median(sigma[slots > 8000]) == pytest.approx(1e-4, rel=0.03)


@pytest.mark.parametrize(
    "kind", ["pulsator", "eclipses", "constant", "steps", "one quarter of few"]
)
def test_hard_light_curves_give_finite_statistics(kind):
    rng = np.random.default_rng(10)
    days = np.arange(17923) * 0.0204336
    series = 1e-4 * rng.standard_normal(17923)
    if kind == "pulsator":
        series += 0.05 * np.sin(2 * np.pi * days / 0.08) + 0.3 * np.sin(2 * np.pi * days / 0.55)
    elif kind == "eclipses":
        series -= np.where((days % 1.3) < 0.2, 0.4, 0.0)
    elif kind == "constant":
        series[:] = 0.0
    elif kind == "steps":
        series += 0.01 * np.floor(days / 17)
    host = make_host(series, rng)
    if kind == "one quarter of few":
        flux = host.flux.copy()
        flux[np.flatnonzero(host.quarter == 11)[7:]] = np.nan
        host = type(host)(
            host.time, flux, host.flux_err, host.quality, host.cadenceno, host.quarter
        )
    noise = noise_model(host)
    for hours in (1.0, 5.0, 13.0):
        numerator, denominator = single_event_statistics(noise, hours)
        assert np.all(np.isfinite(numerator))
        assert np.all(np.isfinite(denominator))
        assert np.all(denominator >= 0)


def test_excluding_everything_is_an_error():
    host = make_host(1e-4, np.random.default_rng(0))
    with pytest.raises(TransitBenchError, match="TB-E016"):
        noise_model(host, np.ones(len(host), dtype=bool))


def test_white_noise_needs_no_filter():
    whitener = fit_whitener(np.r_[1.0, np.zeros(48)], 4000)
    assert isinstance(whitener, Whitener)
    assert whitener.kernel.tolist() == [1.0]
    assert MAX_GAP_CADENCES > 4
