"""Finished simulated stars: determinism, the file contract, noise against Kepler's, no tell-tale arrays."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pytest
from scipy.signal import savgol_filter

from transitbench.errors import TransitBenchError
from transitbench.sim import SIM_GENERATOR_VERSION, SimulatedStar, compose, simulate_star

SimKind = Literal["eb", "false_alarm", "quiet"]
SIM_KINDS: tuple[SimKind, ...] = get_args(SimKind)


def make(kind: SimKind, seed: int) -> SimulatedStar:
    return simulate_star(kind, np.random.default_rng(seed))


@pytest.mark.parametrize("kind", SIM_KINDS)
def test_same_seed_same_bytes_other_seed_other_bytes(kind: SimKind) -> None:
    files = [make(kind, seed).light_curve.npz_bytes() for seed in (5, 5, 6)]
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_stars_from_one_generator_differ() -> None:
    generator = np.random.default_rng(1)
    one, other = (simulate_star("quiet", generator).light_curve.npz_bytes() for _ in range(2))
    assert one != other


@pytest.mark.parametrize("kind", SIM_KINDS)
def test_star_follows_the_file_contract(kind: SimKind) -> None:
    for seed in range(12):
        star = make(kind, seed)
        curve = star.light_curve
        quarters = set(curve.quarter.tolist())
        assert star.kind == kind
        assert (star.signal is None) == (kind == "quiet")
        assert quarters <= {10, 11, 12, 13}
        assert len(quarters) >= 3
        assert np.isfinite(curve.time).all()
        assert np.all(np.diff(curve.time) > 0)
        if len(quarters) == 4:
            assert len(curve) == 17359
            assert 16_695 <= curve.finite.sum() <= 16_708
        assert 0.93 < curve.finite.mean() < 0.99
        assert np.array_equal(np.isfinite(curve.flux), np.isfinite(curve.flux_err))
        assert np.nanmin(curve.flux) > 0
        assert np.nanmin(curve.flux_err) > 0
        assert 10 < curve.kepmag < 16.5


def test_nothing_but_flux_depends_on_the_kind() -> None:
    for seed in range(15):
        quiet, eb, alarm = (make(kind, seed).light_curve for kind in ("quiet", "eb", "false_alarm"))
        for other in (eb, alarm):
            for name in ("time", "quality", "cadenceno", "quarter", "flux_err"):
                assert np.array_equal(getattr(quiet, name), getattr(other, name), equal_nan=True)
            for name in ("kepmag", "teff", "logg", "radius", "mass"):
                assert np.array_equal(getattr(quiet, name), getattr(other, name), equal_nan=True)
            assert np.array_equal(np.isnan(quiet.flux), np.isnan(other.flux))
            assert not np.array_equal(quiet.flux, other.flux, equal_nan=True)


def cdpp_proxy_ppm(flux: np.ndarray, cadence: np.ndarray, n_cadences: int) -> float:
    """Measure lightkurve's estimate_cdpp on one quarter: SavGol 101/2, 5 σ clip, running mean."""
    good = np.isfinite(flux)
    filled = np.interp(np.arange(cadence[0], cadence[-1] + 1), cadence[good], flux[good])
    flat = filled / np.median(filled) - savgol_filter(filled / np.median(filled), 101, 2)
    flat = flat[np.abs(flat) < 5 * 1.4826 * np.median(np.abs(flat))]
    return float(1e6 * np.convolve(flat, np.full(n_cadences, 1 / n_cadences), "valid").std())


@pytest.mark.parametrize(
    ("kepmag", "median_ppm"),
    [(12.5, (62.1, 54.3)), (13.5, (89.2, 73.2)), (14.5, (143.0, 112.8)), (15.5, (248.2, 191.6))],
)
def test_quiet_stars_are_as_noisy_as_keplers(
    monkeypatch: pytest.MonkeyPatch, kepmag: float, median_ppm: tuple[float, float]
) -> None:
    """Medians of ``stellar_cdpp_quarters`` per magnitude; proxy / pipeline = 0.885 and 0.823 at 3 and 6 h

    as on 53 ordinary real stars.
    """
    from transitbench.sim import population

    def near(rng: np.random.Generator) -> float:
        return round(kepmag + rng.uniform(-0.5, 0.5), 3)

    monkeypatch.setattr(population, "draw_kepmag", near)
    measured = []
    for seed in range(70):
        curve = make("quiet", 1000 + seed).light_curve
        one = curve.quarter == curve.quarter[-1]
        flux, cadence = curve.flux[one].astype(np.float64), curve.cadenceno[one]
        measured.append(
            [cdpp_proxy_ppm(flux, cadence, n) / r for n, r in ((6, 0.885), (12, 0.823))]
        )
    assert np.median(measured, axis=0) == pytest.approx(median_ppm, rel=0.17)


def test_stated_errors_match_the_scatter() -> None:
    ratios = []
    for seed in range(25):
        curve = make("quiet", seed).light_curve
        one = curve.quarter == 13
        if one.any():
            scatter = 1.4826 * np.nanmedian(np.abs(np.diff(curve.flux[one]))) / np.sqrt(2)
            ratios.append(np.nanmedian(curve.flux_err[one]) / scatter)
    assert np.median(ratios) == pytest.approx(0.94, abs=0.05)


def test_outliers_are_as_rare_and_positive_as_keplers() -> None:
    rates = []
    for seed in range(25):
        curve = make("quiet", seed).light_curve
        one = curve.finite & (curve.quarter == (13 if (curve.quarter == 13).any() else 11))
        flux = curve.flux[one].astype(np.float64)
        residual = flux - savgol_filter(flux, 25, 2)
        z = residual / (1.4826 * np.median(np.abs(residual)))
        rates.append([1e3 * np.mean(z > 5), 1e3 * np.mean(z < -5)])
    above, below = np.median(rates, axis=0)
    assert 0.3 < above < 1.5
    assert below < 0.4


def test_signal_of_an_eclipsing_binary_is_in_the_flux() -> None:
    seen = 0
    for seed in range(40):
        star = make("eb", seed)
        signal, curve = star.signal, star.light_curve
        assert signal is not None
        if signal.cause not in ("detached", "twins", "eccentric") or signal.depth_ppm < 2e4:
            continue
        assert 1.0 <= signal.period_days <= 130
        phase = (curve.time - signal.t0_days) / signal.period_days
        phase_days = (phase - np.round(phase)) * signal.period_days
        at_eclipse = curve.finite & (np.abs(phase_days) < 0.015)
        if at_eclipse.sum() < 2:
            continue
        local = [
            np.nanmedian(curve.flux[np.abs(curve.time - t) < 0.8]) for t in curve.time[at_eclipse]
        ]
        depth = 1 - np.median(curve.flux[at_eclipse] / np.array(local))
        assert depth > 0.5 * signal.depth_ppm * 1e-6, (seed, signal)
        seen += 1
    assert seen >= 8


def test_every_type_of_binary_occurs() -> None:
    causes = {s.cause for s in (make("eb", seed).signal for seed in range(80)) if s is not None}
    assert causes == set(compose.EB_TYPES)


def test_unknown_kind_is_an_error() -> None:
    with pytest.raises(TransitBenchError, match="TB-E016"):
        simulate_star("planet", np.random.default_rng(0))  # type: ignore[arg-type]


def test_generator_has_a_version() -> None:
    assert SIM_GENERATOR_VERSION == "0.1"
