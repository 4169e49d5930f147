"""Digests that do not hang on the last bit, and do hang on everything of substance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conftest import white_noise_star

from transitbench.fingerprint import light_curve_fingerprint, truth_fingerprint
from transitbench.lightcurve import LightCurve
from transitbench.truth import Planet, StarTruth


def changed(star: LightCurve, **arrays: object) -> LightCurve:
    return dataclasses.replace(star, **arrays)


def test_last_bit_of_every_flux_value_does_not_matter() -> None:
    star = white_noise_star(1)
    nudged = np.nextafter(star.flux, np.float32(np.inf))
    assert not np.array_equal(nudged, star.flux, equal_nan=True)
    # One float32 step is 1e8 times coarser than a float64 rounding error; few blocks may flip at all.
    same = sum(
        light_curve_fingerprint(s) == light_curve_fingerprint(changed(s, flux=s.flux * (1 + 1e-15)))
        for s in (white_noise_star(seed) for seed in range(20))
    )
    assert same == 20


def test_last_bit_of_time_does_not_matter() -> None:
    star = white_noise_star(2)
    other = changed(star, time=np.nextafter(star.time, np.inf))
    assert light_curve_fingerprint(other) == light_curve_fingerprint(star)


def moved_flux(star: LightCurve) -> LightCurve:
    flux = star.flux.copy()
    flux[100:112] *= 0.9995
    return changed(star, flux=flux)


def lost_cadence(star: LightCurve) -> LightCurve:
    flux = star.flux.copy()
    flux[np.flatnonzero(star.finite)[50]] = np.nan
    return changed(star, flux=flux)


def flagged(star: LightCurve) -> LightCurve:
    quality = star.quality.copy()
    quality[7] = 128
    return changed(star, quality=quality)


CHANGES = {
    "half a day's dip of 500 ppm": moved_flux,
    "a lost cadence": lost_cadence,
    "a flag": flagged,
    "other noise": lambda star: white_noise_star(99),
    "a shift of one minute": lambda star: changed(star, time=star.time + 1 / 1440),
    "another quarter": lambda star: changed(star, quarter=star.quarter + 1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_substance_matters(change) -> None:
    star = white_noise_star(3)
    assert light_curve_fingerprint(change(star)) != light_curve_fingerprint(star)


def planet(**changes: float) -> Planet:
    values = {
        "period_days": 10.123456,
        "t0_days": 910.5,
        "duration_hours": 3.2,
        "depth_ppm": 432.1,
        "rp_rs": 0.02,
        "a_rs": 20.0,
        "impact": 0.3,
        "n_transits": 30,
        "mes": 9.9,
    }
    return Planet(**{**values, **changes})


def test_truth_digest_rounds_but_sees_a_change() -> None:
    def digest(**changes: float) -> str:
        return truth_fingerprint({"s1": StarTruth("planet", (planet(**changes),))})

    assert digest(mes=9.9 * (1 + 1e-12)) == digest()
    assert digest(mes=9.91) != digest()
    assert digest(n_transits=29) != digest()
