"""Expected MES: closed form, and recovery by a matched filter that knows the ephemeris."""

from functools import cache

import numpy as np
import pytest
from conftest import REAL
from matched_filter import Recovery, make_host, recover_many, red_noise

from transitbench.lightcurve import LightCurve
from transitbench.mes import box_train, cdpp_ppm, expected_mes, noise_model, transits_with_data
from transitbench.search.grid import cadence_grid
from transitbench.search.ses import single_event_statistics
from transitbench.transit import Orbit, mean_in_transit_depth

needs_real = pytest.mark.skipif(
    not (REAL / "quarters").is_dir(), reason="no real Kepler data (set TRANSITBENCH_REAL)"
)


@cache
def ordinary_quarters() -> list[tuple[LightCurve, np.ndarray]]:
    """Real quarters whose noise by lightkurve's proxy is near the header's CDPP: about a third."""
    chosen = []
    for path in sorted((REAL / "quarters").glob("*.npz")):
        with np.load(path) as d:
            timed = np.isfinite(d["time"])
            names = ("time", "flux", "flux_err", "quality", "cadenceno")
            star = {name: float(d[name]) for name in ("kepmag", "teff", "logg", "radius")}
            curve = LightCurve(
                **{name: d[name][timed] for name in names},
                quarter=np.full(timed.sum(), d["quarter"]),
                **star,
            )
            header = d["cdpp_3_6_12h_ppm"].astype(float)
        proxy = curve.to_lightkurve().remove_nans().normalize().estimate_cdpp(transit_duration=13)
        if 0.55 < float(proxy.value) / header[1] < 1.1:
            chosen.append((curve, header))
    return chosen


def check(results: list[Recovery], n_at_least: int) -> None:
    assert len(results) >= n_at_least
    for name in ("mes_ratio", "depth_ratio"):
        ratio = np.array([getattr(r, name) for r in results])
        assert ratio.std() / np.sqrt(ratio.size) < 0.007
        assert ratio.mean() == pytest.approx(1.0, abs=0.02), name
    epoch = np.array([r.epoch_error_hours for r in results])
    assert epoch.mean() == pytest.approx(0.0, abs=0.05)
    assert epoch.std() < 0.25


@pytest.mark.slow
def test_matched_filter_recovers_injections_in_white_noise():
    rng = np.random.default_rng(1)
    hosts = [make_host(2e-4, rng, teff=5700.0) for _ in range(10)]
    check(recover_many(hosts, 3, seed=5), 30)


@pytest.mark.slow
def test_matched_filter_recovers_injections_in_red_noise():
    rng = np.random.default_rng(2)
    hosts = [make_host(red_noise(rng), rng) for _ in range(10)]
    check(recover_many(hosts, 3, seed=6), 30)


@needs_real
@pytest.mark.slow
def test_matched_filter_recovers_injections_in_real_quarters():
    # Strong variables are left out: their own signal does not cancel between the two noise models, and
    # the ratio scatters by 0.1 instead of 0.01 (its mean over all 56 quarters is within 1 % of 1 as well).
    hosts = [
        curve
        for curve, cdpp in ordinary_quarters()
        if 1e6 * np.nanstd(curve.flux) / np.nanmedian(curve.flux) < 8 * cdpp[1]
    ]
    check(recover_many(hosts, 3, seed=7), 100)


@needs_real
@pytest.mark.slow
def test_implied_cdpp_agrees_with_the_headers_of_ordinary_quarters():
    quarters = ordinary_quarters()
    assert len(quarters) >= 40
    models = [(noise_model(curve), header) for curve, header in quarters]
    ratio = [
        [cdpp_ppm(n, h) / c for h, c in zip((3, 6, 12), header, strict=True)]
        for n, header in models
    ]
    assert np.all(np.abs(np.median(ratio, axis=0) - 1) <= 0.1)


@pytest.mark.parametrize("gaps", [True, False])
def test_white_noise_mes_is_depth_root_n_over_sigma(gaps):
    rng = np.random.default_rng(11)
    ratios = []
    for _ in range(8):
        host = make_host(3e-4, rng, gaps)
        noise = noise_model(host)
        period = float(np.exp(rng.uniform(np.log(1.0), np.log(90.0))))
        orbit = Orbit(
            period, 910.0 + period * rng.random(), 4.2 * period ** (2 / 3), 0.3, (0.45, 0.2)
        )
        duration = orbit.duration_hours(0.03)
        mid = transits_with_data(noise.grid, period, orbit.t0_days, duration)
        used = box_train(noise.grid, period, duration, mid) & noise.grid.finite
        flux = orbit.flux(noise.grid.time_days, 0.03)[used]
        depth = mean_in_transit_depth(
            noise.grid.time_days[used], flux, period, orbit.t0_days, duration
        )
        ratios.append(expected_mes(noise, orbit, 0.03) * 3e-4 / (depth * np.sqrt(used.sum())))
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.015)
    assert np.std(ratios) < 0.04


def test_mes_is_effective_depth_times_root_of_summed_single_event_sensitivity():
    rng = np.random.default_rng(12)
    noise = noise_model(make_host(red_noise(rng), rng))
    # A duration of 12 whole cadences, epochs on the grid: every in-transit box is the same 12 slots.
    period = 500 * 0.020433598
    t0 = noise.grid.time_days[0] + 250.5 * 0.020433598
    orbit = Orbit(period, t0, 12.9, 0.0, (0.45, 0.2))
    duration = orbit.duration_hours(0.02)
    mid = transits_with_data(noise.grid, period, t0, duration)
    box = box_train(noise.grid, period, duration, mid)
    n_box = int(np.median(np.diff(np.flatnonzero(np.diff(box.astype(int))))[::2]))
    _, d = single_event_statistics(noise, n_box * 0.020433598 * 24)
    centre = np.floor(noise.grid.slot(mid) + 0.5).astype(int)
    plain = np.sqrt(d[centre].sum())
    depth = np.mean(orbit.loss(noise.grid.time_days, 0.02)[box & noise.grid.finite])
    assert expected_mes(noise, orbit, 0.02) == pytest.approx(depth * plain, rel=0.08)


def test_a_transit_counts_if_half_of_its_cadences_are_finite():
    host = make_host(1e-4, np.random.default_rng(13), gaps=False)
    flux = host.flux.copy()
    start = 1000
    duration_hours = 10.2 * 0.020433598 * 24
    t0 = host.time[start]
    for n_lost, counted in ((5, True), (6, False)):
        changed = flux.copy()
        changed[start - 5 : start - 5 + n_lost] = np.nan
        curve = type(host)(
            host.time, changed, host.flux_err, host.quality, host.cadenceno, host.quarter
        )
        mid = transits_with_data(cadence_grid(curve), 1000.0, t0, duration_hours)
        assert mid.size == counted


def test_transits_between_quarters_do_not_count():
    host = make_host(1e-4, np.random.default_rng(14), gaps=False)
    last = host.time[host.quarter == 10][-1]
    first = host.time[host.quarter == 11][0]
    grid = cadence_grid(host)
    assert transits_with_data(grid, 1000.0, 0.5 * (last + first), 6.0).size == 0
    assert transits_with_data(grid, 1000.0, last - 0.3, 6.0).size == 1


def test_no_observed_transit_means_mes_zero():
    host = make_host(1e-4, np.random.default_rng(15))
    orbit = Orbit(1000.0, host.time[-1] + 100, 400.0, 0.0, (0.45, 0.2))
    assert expected_mes(noise_model(host), orbit, 0.05) == 0.0


def test_white_noise_cdpp_falls_with_the_root_of_duration():
    noise = noise_model(make_host(3e-4, np.random.default_rng(16)))
    for hours in (3.0, 6.0, 12.0):
        assert cdpp_ppm(noise, hours) == pytest.approx(300 / np.sqrt(hours / 0.4904), rel=0.05)
