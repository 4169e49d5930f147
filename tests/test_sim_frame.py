"""Cadences, times, flags, population and photometry of simulated stars."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import REAL
from hypothesis import given
from hypothesis import strategies as st

from transitbench.sim import cadences, photometry, population, spectrum


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_rows_are_keplers_rows_per_quarter() -> None:
    mission = cadences.mission()
    counts = [int((mission.quarter == q).sum()) for q in (10, 11, 12, 13)]
    assert counts == [4491, 4560, 3965, 4343]
    assert mission.slot[0] == 0
    assert mission.slot[-1] == cadences.N_SLOTS - 1
    assert np.all(np.diff(mission.slot) > 0)
    assert (~mission.missing).sum() == 16_707


def test_desaturations_are_146_cadences_apart_and_lost() -> None:
    mission = cadences.mission()
    row = np.flatnonzero(mission.quality & cadences.DESATURATION_BIT)
    assert np.median(np.diff(mission.slot[row])) == 146
    assert mission.missing[row].all()


def test_segments_are_parted_by_half_a_day_or_more() -> None:
    mission = cadences.mission()
    good = ~mission.missing
    slot, segment = mission.slot[good], mission.segment[good]
    jump = np.diff(segment) > 0
    assert np.all(np.diff(slot)[jump] >= 24)
    assert np.all(np.diff(slot)[~jump] < 24)


def test_times_are_bkjd_of_a_star_in_the_field() -> None:
    time_days = cadences.barycentric_time_days(290.7, 44.5, np.array([3, 3, 3, 3]))
    assert 906.84 < time_days[0] < 906.85
    assert 1273.05 < time_days[-1] < 1273.06
    assert np.all(np.diff(time_days) > 0.0204)


def test_light_time_differs_across_the_field_as_geometry_says() -> None:
    slices = np.full(4, 3)
    one = cadences.barycentric_time_days(285.0, 44.5, slices)
    other = cadences.barycentric_time_days(296.0, 44.5, slices)
    difference_s = (one - other) * 86400
    # 1 au × the angle between the two (7.85°) = 499 s × 0.137, swinging once around in a year.
    assert 50 < np.abs(difference_s).max() < 75
    assert difference_s.min() < 0 < difference_s.max()


def test_module_slices_shift_time_by_620_ms() -> None:
    one = cadences.barycentric_time_days(290.0, 44.0, np.array([1, 1, 1, 1]))
    other = cadences.barycentric_time_days(290.0, 44.0, np.array([2, 1, 1, 1]))
    shift_s = (other - one) * 86400
    assert np.allclose(shift_s[:4491], 0.62, atol=1e-4)
    assert np.allclose(shift_s[4491:], 0.0, atol=1e-4)


@pytest.mark.skipif(not (REAL / "years").is_dir(), reason="no real Kepler data (TRANSITBENCH_REAL)")
def test_times_equal_those_of_real_stars() -> None:
    # Kepler-11: coordinates and read-out slice from its file headers.
    with np.load(REAL / "years" / "kic006541920.npz") as star:
        real_time, cadence, quality = star["time"], star["cadenceno"], star["quality"]
    made = cadences.barycentric_time_days(297.115121, 41.90914, np.array([3, 3, 3, 3]))
    mission = cadences.mission()
    assert np.array_equal(cadence, mission.slot + cadences.FIRST_CADENCE)
    assert np.abs(made - real_time).max() * 86400 < 0.2
    mission_bits = 2 | 4 | 8 | 16 | 32 | 64 | 16384 | 32768 | 65536
    assert np.array_equal(quality & mission_bits, mission.quality & mission_bits)


def test_missing_quarters_follow_the_observed_strings() -> None:
    quarter = cadences.mission().quarter
    lost = [
        4 - np.unique(quarter[cadences.draw_observed_quarters(rng(s))]).size for s in range(1500)
    ]
    assert set(lost) == {0, 1}
    assert np.mean(lost) == pytest.approx(0.200, abs=0.04)


def test_star_flags_have_real_rates() -> None:
    counts = np.array(
        [
            [
                (cadences.draw_star_flags(rng(s), 14.0) & bit > 0).sum() / 4
                for bit in (cadences.COSMIC_RAY_BIT, cadences.COLLATERAL_BIT)
            ]
            for s in range(60)
        ]
    )
    cosmic, collateral = np.median(counts, axis=0)
    assert 35 < cosmic < 95
    assert 80 < collateral < 180


def test_population_is_consistent_and_faint() -> None:
    stars = [population.draw_star(rng(s)) for s in range(1500)]
    value = {
        n: np.array([getattr(s, n) for s in stars])
        for n in ("kepmag", "teff", "logg", "radius", "mass")
    }
    gravity = population.SOLAR_LOGG_CGS + np.log10(value["mass"] / value["radius"] ** 2)
    assert np.abs(gravity - value["logg"]).max() < 0.005
    assert 14.2 < np.median(value["kepmag"]) < 14.8
    assert 0.25 < np.mean(value["kepmag"] > 15) < 0.5
    assert 5300 < np.median(value["teff"]) < 5900
    assert 0.03 < np.mean([s.is_giant for s in stars]) < 0.10
    assert 0.02 < np.mean([not s.catalogued for s in stars]) < 0.07
    assert value["radius"].min() > 0.2
    assert value["radius"].max() < 25


def test_the_sun_oscillates_at_the_suns_frequency() -> None:
    sun = population.Star(12.0, 5772.0, 4.438, 1.0, 1.0, True)
    assert sun.nu_max_uhz == pytest.approx(3090)


@pytest.mark.parametrize(
    ("kepmag", "stated_ppm"), [(12.39, 81.7), (13.99, 164.0), (14.57, 237.5), (15.54, 504.2)]
)
def test_shot_noise_matches_errors_stated_for_real_stars(kepmag: float, stated_ppm: float) -> None:
    # Kp and median flux_err / flux of KIC 5120793, 10000797, 10000962 and 10020000.
    assert photometry.shot_noise_ppm(kepmag) == pytest.approx(stated_ppm, rel=0.2)


@given(
    st.lists(st.floats(0.1, 2.0), min_size=1, max_size=50),
    st.floats(10.0, 17.0),
)
def test_quantize_flux_is_idempotent_and_on_a_binary_grid(
    relative: list[float], kepmag: float
) -> None:
    level = photometry.mean_flux_e_per_s(kepmag)
    flux = np.array(relative) * level
    once = photometry.quantize_flux(flux, level)
    step = photometry.grid_step(level, 2e-6)
    assert np.log2(step) == np.round(np.log2(step))
    assert 1.3e-6 < step / level < 2.9e-6
    assert np.array_equal(once.astype(np.float64) / step, np.round(once.astype(np.float64) / step))
    assert np.array_equal(photometry.quantize_flux(once.astype(np.float64), level), once)
    assert np.abs(once - flux).max() <= step / 2


def test_quantize_flux_absorbs_last_bit_differences() -> None:
    level = photometry.mean_flux_e_per_s(14.0)
    flux = level * (1 + 1e-3 * rng(0).standard_normal(200_000))
    nudged = np.nextafter(flux, np.where(rng(1).random(flux.size) < 0.5, np.inf, -np.inf))
    assert np.array_equal(
        photometry.quantize_flux(flux, level), photometry.quantize_flux(nudged, level)
    )
    assert np.isnan(photometry.quantize_flux(np.array([np.nan]), level)).all()


def test_noise_from_psd_has_the_spectrum_asked_for() -> None:
    white = spectrum.noise_from_psd(rng(0), spectrum.white_psd(100.0))
    assert white.size == cadences.N_SLOTS
    assert white.std() == pytest.approx(100.0, rel=0.03)
    assert abs(white.mean()) < 3.0
    knee_per_day = 2.0
    psd = 1e4 / (1 + (spectrum.frequency_per_day() / knee_per_day) ** 4)
    red = np.concatenate([spectrum.noise_from_psd(rng(s), psd) for s in range(4)])
    expected = np.sqrt(1e4 * knee_per_day * np.pi / (2 * np.sqrt(2)))
    assert red.std() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("n_cadences", [6, 13, 24])
def test_predicted_proxy_equals_the_measured_one(n_cadences: int) -> None:
    from scipy.signal import savgol_filter

    psd = spectrum.white_psd(100.0) + 400.0 / (1 + (spectrum.frequency_per_day() / 0.5) ** 2)
    noise = np.concatenate([spectrum.noise_from_psd(rng(s), psd) for s in range(3)])
    flat = noise - savgol_filter(noise, 101, 2)
    measured = np.convolve(flat, np.full(n_cadences, 1 / n_cadences), "valid").std()
    assert measured == pytest.approx(spectrum.proxy_cdpp_ppm(psd, n_cadences), rel=0.05)
