"""Physical sanity of each ingredient of a simulated star: sizes, signs, timescales."""

from __future__ import annotations

import numpy as np
import pytest

from transitbench.ephemeris import LONG_CADENCE_DAYS
from transitbench.sim import binaries, cadences, false_alarms, instrument, spectrum, stellar
from transitbench.sim.population import Star

SUN = Star(13.0, 5772.0, 4.438, 1.0, 1.0, True)
GIANT = Star(12.0, 4800.0, 2.6, 9.0, 1.2, True)
HOT = Star(12.0, 7300.0, 4.1, 1.8, 1.6, True)
TIME = 906.845 + instrument.elapsed_days()


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def rms_ppm(psd: np.ndarray) -> float:
    return float(np.sqrt(psd.sum() * spectrum.frequency_per_day()[1]))


def test_granulation_of_the_sun_and_of_a_giant() -> None:
    assert 10 < rms_ppm(stellar.granulation_psd(3090.0, 1.0)) < 40
    assert 250 < rms_ppm(stellar.granulation_psd(50.0, 1.2)) < 1000


def test_only_giants_oscillate_below_nyquist_and_peak_at_nu_max() -> None:
    assert rms_ppm(stellar.oscillation_psd(SUN)) == 0.0
    psd = stellar.oscillation_psd(GIANT)
    assert 30 < rms_ppm(psd) < 600
    weights = psd / psd.sum()
    centre_uhz = (weights * spectrum.frequency_per_day()).sum() * spectrum.UHZ_PER_CYCLE_PER_DAY
    assert centre_uhz == pytest.approx(GIANT.nu_max_uhz, rel=0.1)


@pytest.mark.parametrize("period_days", [0.7, 5.0, 22.0])
def test_spots_have_their_period_and_amplitude(period_days: float) -> None:
    peaks = []
    for seed in range(4):
        flux = stellar.spots(rng(seed), TIME, period_days, 5000.0)
        low, high = np.quantile(flux, [0.05, 0.95])
        assert (high - low) * 1e6 == pytest.approx(5000.0, rel=0.05)
        assert abs(flux.mean()) < 1e-6
        even = np.interp(np.arange(TIME[0], TIME[-1], 0.05), TIME, flux)
        power = np.abs(np.fft.rfft(even - even.mean())) ** 2
        peaks.append(np.argmax(power) / (even.size * 0.05) * period_days)
    # Two active longitudes may show half the period; differential rotation lengthens it by some per cent.
    assert all(any(abs(p - k) < 0.12 * k + 0.08 for k in (1, 2, 3)) for p in peaks), peaks
    assert any(abs(p - 1) < 0.2 for p in peaks)


def test_coarse_spots_equal_spots_computed_at_every_cadence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    coarse = stellar.spots(rng(3), TIME, 20.0, 5000.0)
    monkeypatch.setattr(stellar, "SPOT_STEPS_PER_ROTATION", 100_000)
    exact = stellar.spots(rng(3), TIME, 20.0, 5000.0)
    assert (coarse - exact).std() < 5e-6
    assert np.abs(coarse - exact).max() < 1e-4


def test_rotation_is_drawn_from_the_catalogue() -> None:
    drawn = np.array([stellar.draw_rotation(rng(s)) for s in range(800)])
    assert np.median(drawn[:, 0]) == pytest.approx(16.7, rel=0.12)
    assert np.median(drawn[:, 1]) == pytest.approx(5600, rel=0.2)
    assert np.median(drawn[drawn[:, 0] < 10, 1]) > np.median(drawn[drawn[:, 0] > 25, 1])


def test_flare_template_peaks_at_one_and_has_unit_fwhm() -> None:
    x = np.linspace(-2, 20, 200_001)
    shape = stellar.flare_shape(x, 1.0)
    assert shape.max() == pytest.approx(1.0, abs=0.01)
    assert x[np.argmax(shape)] == pytest.approx(0.0, abs=0.01)
    above = x[shape > 0.5]
    assert above[-1] - above[0] == pytest.approx(1.0, abs=0.1)
    assert shape.min() >= -0.01


def test_flares_brighten_for_hours_at_most() -> None:
    flux = stellar.flares(rng(1), TIME, 40)
    assert flux.min() > -1e-4
    assert 5e-5 < flux.max() < 0.02
    assert np.mean(flux > 1e-5) < 0.1


def test_pulsators_pulsate_at_their_frequencies() -> None:
    delta, gamma = stellar.delta_scuti(rng(0), TIME), stellar.gamma_doradus(rng(0), TIME)
    for flux in (delta, gamma):
        assert 1e-5 < np.ptp(flux) < 0.1
        assert abs(flux.mean()) < 0.1 * flux.std()
    first = slice(0, 1400)
    even = gamma[first] - gamma[first].mean()
    power = np.abs(np.fft.rfft(even)) ** 2
    peak_per_day = np.argmax(power) / (even.size * LONG_CADENCE_DAYS)
    assert 0.3 < peak_per_day < 3.0


def test_rr_lyrae_has_the_amplitude_of_one() -> None:
    for seed in range(5):
        assert 0.15 < np.ptp(stellar.rr_lyrae(rng(seed), TIME)) < 1.3


def test_recoveries_start_at_interruptions_and_fade() -> None:
    flux = instrument.recoveries(rng(0), 300.0)
    starts = instrument.restart_days()
    assert 10 <= starts.size <= 20
    age_days = instrument.elapsed_days() - starts[cadences.mission().segment]
    assert 100e-6 < np.abs(flux[age_days < 0.05]).max() < 1500e-6
    assert np.abs(flux[age_days > 10]).max() < 1e-6
    dips = instrument.recoveries(rng(0), 300.0, common_sign=True)
    assert dips.max() <= 0
    assert dips.min() < -1e-4


def test_desaturation_residuals_follow_desaturations() -> None:
    flux = instrument.desaturation_residuals(rng(0), 100.0, n_cadences=2)
    row = np.flatnonzero(flux)
    flagged = np.flatnonzero(cadences.mission().quality & cadences.DESATURATION_BIT)
    assert set(row) <= set(flagged + 1) | set(flagged + 2)
    assert len(set(np.sign(flux[row]))) == 1
    assert np.median(np.abs(flux[flagged[:-1] + 1])) == pytest.approx(1e-4, rel=0.3)


def test_dropout_steps_down_recovers_and_ends_with_the_quarter() -> None:
    flux = instrument.dropout(20.0, drop=1e-3, recovered=0.5, tau_days=0.5)
    days, quarter = instrument.elapsed_days(), cadences.mission().quarter
    assert np.all(flux[days < 20.0] == 0)
    assert flux.min() == pytest.approx(-1e-3, rel=0.05)
    assert flux[(quarter == 10) & (days > 40)] == pytest.approx(-5e-4)
    assert np.all(flux[quarter > 10] == 0)


def test_dropouts_come_at_their_rate() -> None:
    hit = [np.any(instrument.draw_dropouts(rng(s), 0.2)) for s in range(400)]
    assert np.mean(hit) == pytest.approx(1 - np.exp(-0.2), abs=0.06)


def test_spikes_are_single_bright_cadences() -> None:
    flux = instrument.spikes(rng(0), 100.0)
    assert flux.min() == 0
    hits = flux[flux > 0]
    assert 5 < hits.size < 45
    assert 3e-4 <= hits.min() <= hits.max() <= 1e-3


def test_rolling_band_comes_in_bursts() -> None:
    quality = np.zeros(TIME.size, dtype=np.int32)
    quality[5000:5100] = cadences.ROLLING_BAND_BITS
    flux = instrument.rolling_band(rng(0), 100.0, 1, quality)
    touched = np.flatnonzero(flux)
    assert np.ptp(TIME[touched]) < 21
    assert touched[0] < 5100
    assert touched[-1] > 5000
    assert 5e-5 < np.abs(flux).max() <= 1e-4


def test_noise_rises_only_around_the_storms_of_q12() -> None:
    factor = instrument.noise_inflation()
    assert factor.max() > 1.5
    assert set(cadences.mission().quarter[factor > 1.05]) == {12}
    assert factor.min() >= 1.0


def test_quarters_differ_in_level_and_dilution() -> None:
    drawn = [instrument.draw_quarters(rng(s)) for s in range(200)]
    levels, dilutions = np.array([d.level for d in drawn]), np.array([d.dilution for d in drawn])
    assert levels.std() == pytest.approx(0.04, rel=0.15)
    assert dilutions.min() >= 0
    assert dilutions.max() <= 0.05


def disc_loss(separation: float, ratio: float, limb: tuple[float, float]) -> float:
    """Share of a limb-darkened unit disc hidden by a disc of radius ``ratio``: brute-force sum."""
    axis = (np.arange(500) + 0.5) / 250 - 1
    x, y = np.meshgrid(axis, axis)
    rr = x**2 + y**2
    mu = np.sqrt(np.clip(1 - rr, 0, 1))
    light = np.where(rr < 1, 1 - limb[0] * (1 - mu) - limb[1] * (1 - mu) ** 2, 0.0)
    hidden = (x - separation) ** 2 + y**2 < ratio**2
    return float(light[hidden].sum() / light.sum())


@pytest.mark.parametrize(("ratio", "inclination_deg"), [(0.3, 89.0), (1.0, 87.0), (1.6, 86.0)])
def test_eclipse_equals_an_independent_integration(ratio: float, inclination_deg: float) -> None:
    period_days, r_behind, limb = 3.0, 0.12, (0.45, 0.2)
    inclination = np.radians(inclination_deg)
    loss = binaries.eclipse_loss(
        period_days, r_behind, ratio * r_behind, inclination, 0.0, np.pi / 2, limb
    )
    assert loss is not None
    offset_days = np.linspace(0, 0.15, 5)
    expected = []
    for centre in offset_days:
        exposed = centre + (np.arange(5) + 0.5) / 5 * LONG_CADENCE_DAYS - LONG_CADENCE_DAYS / 2
        angle = 2 * np.pi * exposed / period_days
        z = np.hypot(np.sin(angle), np.cos(angle) * np.cos(inclination)) / r_behind
        expected.append(np.mean([disc_loss(s, ratio, limb) for s in z]))
    assert loss.mean_over_exposure(offset_days) == pytest.approx(expected, abs=1.5e-3)


def test_eclipse_lasts_as_long_as_the_formula_says() -> None:
    duration_days = binaries.eclipse_duration_days(10.0, 0.05, 0.5, np.pi / 2, 0.0, np.pi / 2)
    assert duration_days == pytest.approx(10 / np.pi * np.arcsin(0.05 * 1.5))
    loss = binaries.eclipse_loss(10.0, 0.05, 0.025, np.pi / 2, 0.0, np.pi / 2, (0.45, 0.2))
    assert loss is not None
    hidden = np.diff(loss.integral) > 1e-12
    assert hidden.sum() * np.diff(loss.offset_days)[0] == pytest.approx(duration_days, rel=0.01)


def test_bodies_that_miss_each_other_do_not_eclipse() -> None:
    assert (
        binaries.eclipse_loss(10.0, 0.05, 0.02, np.radians(80), 0.0, np.pi / 2, (0.4, 0.2)) is None
    )


def test_keplers_equation_is_solved() -> None:
    mean = np.linspace(-np.pi, np.pi, 1001)
    for e in (0.0, 0.3, 0.8):
        anomaly = binaries.eccentric_anomaly(mean, e)
        assert np.abs(anomaly - e * np.sin(anomaly) - mean).max() < 1e-9


def test_secondary_of_an_eccentric_pair_sits_where_it_dims() -> None:
    binary = binaries.Binary(20.0, 910.0, 0.05, 0.04, np.pi / 2, 0.4, 0.3, surface_brightness=0.5)
    phase = binaries.secondary_phase(0.4, 0.3)
    assert phase == pytest.approx(0.5 + 2 * 0.4 * np.cos(0.3) / np.pi, abs=0.05)
    times = np.arange(910.0, 930.0, 0.01)
    flux = binaries.binary_flux(binary, times)
    away = np.abs(times - 910.0) > 1
    away &= np.abs(times - 930.0) > 1
    deepest = times[away][np.argmin(flux[away])]
    assert deepest == pytest.approx(910.0 + phase * 20.0, abs=0.05)


def test_tides_are_deepest_at_conjunction_and_scale_with_the_mass_ratio() -> None:
    light = binaries.Binary(
        1.0, 0.0, 0.3, 0.05, 1.0, mass_ratio=0.1, surface_brightness=1e-6, albedo=0.0
    )
    heavy = binaries.Binary(
        1.0, 0.0, 0.3, 0.05, 1.0, mass_ratio=0.2, surface_brightness=1e-6, albedo=0.0
    )
    phase = np.linspace(0, 1, 101)
    one, two = (binaries.tides_and_reflection(b, phase) for b in (light, heavy))
    assert one[0] == one.min()
    assert one[25] == one.max()
    assert np.ptp(two) == pytest.approx(2 * np.ptp(one), rel=1e-3)


def test_heartbeat_pulses_at_periastron() -> None:
    pulse = binaries.heartbeat(TIME, 20.0, 915.0, 0.6, 0.8, 1.0, 1e-3)
    assert np.ptp(pulse) == pytest.approx(1e-3, rel=0.05)
    phase = (TIME - 915.0) / 20.0
    phase -= np.round(phase)
    assert np.abs(pulse[np.abs(phase) > 0.35]).max() < 0.15e-3


@pytest.mark.parametrize("kind", ["detached", "eccentric", "twins"])
def test_drawn_pairs_fit_their_orbits(kind: str) -> None:
    for seed in range(25):
        b = binaries.draw_detached(
            rng(seed), SUN if seed % 5 else GIANT, 906.8, kind == "eccentric", kind == "twins"
        )
        depths = binaries.eclipse_depths(b)
        assert b.r1 + b.r2 <= 0.5 * (1 - b.eccentricity) + 1e-9
        assert b.period_days >= 1.0
        assert 500e-6 <= max(depths) < 1.0
        if kind == "twins" and min(depths) > 0.02:
            assert depths[1] / depths[0] == pytest.approx(1.0, abs=0.15)
        if kind == "detached":
            assert b.eccentricity == 0


def test_contact_pairs_vary_all_the_time() -> None:
    for seed in range(20):
        b = binaries.draw_contact(rng(seed), 906.8)
        assert 0.25 <= b.period_days <= 0.6
        flux = binaries.binary_flux(b, TIME)
        assert 0.001 < np.ptp(flux) < 0.8
        assert b.r1 + b.r2 < 1


def test_background_pairs_are_diluted_and_odd_even() -> None:
    for seed in range(25):
        b, dilution = binaries.draw_background(rng(seed), 906.8)
        first, second = np.array(binaries.eclipse_depths(b)) * dilution * 1e6
        assert 300 <= first <= 3000
        assert 0.03 < 1 - second / first < 0.40


def test_timing_variation_is_minutes() -> None:
    delays = [binaries.timing_variation(rng(s), TIME) * 1440 for s in range(20)]
    assert 0.5 < np.median([np.abs(d).max() for d in delays]) < 20


@pytest.mark.parametrize("cause", [cause for _, cause in false_alarms.CAUSES])
def test_every_cause_outshouts_the_noise(cause: false_alarms.Cause) -> None:
    quality = cadences.mission().quality
    at = false_alarms.Circumstances(SUN, 100.0, quality)
    for seed in range(4):
        flux, signal = cause(rng(seed), at)
        assert flux.shape == TIME.shape
        assert np.isfinite(flux).all()
        averaged = np.convolve(flux - np.median(flux), np.full(7, 1 / 7), "same")
        deep = np.sqrt(np.sum((averaged[::7] / 100e-6) ** 2))
        assert deep > 7.1, (signal.cause, deep)


def test_few_events_are_few() -> None:
    at = false_alarms.Circumstances(SUN, 100.0, cadences.mission().quality)
    for seed in range(10):
        flux, signal = false_alarms.few_events(rng(seed), at)
        starts = np.flatnonzero(np.diff((flux < -100e-6).astype(int)) == 1)
        assert 3 <= starts.size + int(flux[0] < -100e-6) <= 12
        assert 35 <= signal.period_days <= 120
        assert 906 < signal.t0_days < 1273


def test_causes_follow_the_star() -> None:
    def drawn(star: Star) -> set[str]:
        at = false_alarms.Circumstances(star, 100.0, cadences.mission().quality)
        return {false_alarms.draw_false_alarm(rng(s), at)[1].cause for s in range(60)}

    pulsators = {"delta_scuti", "gamma_doradus", "rr_lyrae"}
    assert not drawn(SUN) & pulsators
    assert drawn(HOT) & pulsators
    assert not drawn(HOT) & {"spots", "flares"}
    assert len(drawn(SUN)) >= 8
