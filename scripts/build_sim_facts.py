"""Derive ``transitbench/sim/facts.json`` from real Kepler files, so that every number in it can be checked.

Usage: ``TRANSITBENCH_REAL=../shared/kepler python scripts/build_sim_facts.py``

Reads the original FITS files of four stars that have all of quarters 10–13 and two catalogues; writes
cadence ranges, the spacecraft's clock and place, and quantile tables. No light curve is copied.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from astropy.io import fits
from numpy.typing import NDArray

STAMPS = {10: "2011271113734", 11: "2012004120508", 12: "2012088054726", 13: "2012179063303"}
STARS = ("000757076", "001996679", "006541920", "011138155")
MISSION_BITS = (1, 2, 3, 4, 5, 6, 12, 14, 15, 16)
"""Attitude tweak, safe mode, coarse point, Earth point, zero crossing, desaturation, two argabrightenings,
detector anomaly, no fine point, no data: flags of the spacecraft, not of a star."""
POSITION_DEGREE = 16
CLOCK_TOLERANCE_S = 0.05
TIME_SLICE_S = 0.62
SECONDS_PER_DAY = 86400.0
REAL = Path(os.environ.get("TRANSITBENCH_REAL", "../shared/kepler"))
OUT = Path(__file__).parents[1] / "transitbench" / "sim" / "facts.json"


def ranges(values: NDArray[np.int64]) -> list[list[int]]:
    """Ascending integers as inclusive ``[first, last]`` pairs."""
    runs = np.split(values, np.flatnonzero(np.diff(values) > 1) + 1) if values.size else []
    return [[int(run[0]), int(run[-1])] for run in runs]


def clock_knots(cadence: NDArray[np.int64], clock_s: NDArray[np.float64]) -> list[list[float]]:
    """Fewest ``[cadence, seconds]`` knots (greedy) whose polyline stays within the tolerance."""
    knots, start = [0], 0
    while start < cadence.size - 1:
        low, high = start + 1, cadence.size - 1
        while low < high:
            middle = (low + high + 1) // 2
            line = np.interp(
                cadence[start : middle + 1], cadence[[start, middle]], clock_s[[start, middle]]
            )
            fits_line = np.abs(line - clock_s[start : middle + 1]).max() <= CLOCK_TOLERANCE_S
            low, high = (middle, high) if fits_line else (low, middle - 1)
        knots.append(low)
        start = low
    return [[int(cadence[k]), round(float(clock_s[k]), 4)] for k in knots]


def mission(real: Path) -> dict[str, Any]:
    """Cadences, flags, clock and spacecraft position from the FITS files."""
    cadence_parts, correction_parts, clock_parts = [], [], []
    timed: dict[str, list[list[int]]] = {}
    flags: dict[str, list[int]] = {str(1 << bit): [] for bit in MISSION_BITS}
    missing: list[int] = []
    directions: list[NDArray[np.float64]] = []
    for quarter, stamp in STAMPS.items():
        quality, no_flux, corrections = [], [], []
        for star in STARS:
            (path,) = (real / "fits" / star).glob(f"*{stamp}_llc.fits*")
            with fits.open(path) as hdus:
                table, head = hdus[1].data, hdus[1].header
                time_days = np.asarray(table["TIME"], dtype=np.float64)
                has_time = np.isfinite(time_days)
                cadence = np.asarray(table["CADENCENO"], dtype=np.int64)[has_time]
                quality.append(np.asarray(table["SAP_QUALITY"], dtype=np.int64)[has_time])
                no_flux.append(np.isnan(np.asarray(table["PDCSAP_FLUX"]))[has_time])
                correction_days = np.asarray(table["TIMECORR"], dtype=np.float64)[has_time]
                slice_s = 0.25 + TIME_SLICE_S * (5 - head["TIMSLICE"])
                # TIMECORR holds the light time minus the read-out delay of the star's module.
                corrections.append(correction_days * SECONDS_PER_DAY + slice_s)
                clock_s = time_days[has_time] * SECONDS_PER_DAY
                clock_s -= correction_days * SECONDS_PER_DAY
                if quarter == 13:
                    ra, dec = np.radians([head["RA_OBJ"], head["DEC_OBJ"]])
                    directions.append(
                        np.array([np.cos(dec) * np.cos(ra), np.cos(dec) * np.sin(ra), np.sin(dec)])
                    )
        timed[str(quarter)] = ranges(cadence)
        # A majority, because one of the files is of an older processing that set some flags otherwise.
        for bit in MISSION_BITS:
            votes = np.mean([(q >> bit) & 1 for q in quality], axis=0)
            flags[str(1 << bit)] += cadence[votes > 0.5].tolist()
        missing += cadence[np.mean(no_flux, axis=0) > 0.5].tolist()
        cadence_parts.append(cadence)
        correction_parts.append(np.array(corrections))
        clock_parts.append(clock_s)
    cadence = np.concatenate(cadence_parts)
    correction = np.concatenate(correction_parts, axis=1)
    scaled = 2 * (cadence - cadence[0]) / (cadence[-1] - cadence[0]) - 1
    basis = np.polynomial.chebyshev.chebvander(scaled, POSITION_DEGREE)
    # Light-time s·r/c of four directions gives r at each cadence; three directions would do.
    place_s = np.linalg.lstsq(np.array(directions), correction, rcond=None)[0]
    coefficients = np.linalg.lstsq(basis, place_s.T, rcond=None)[0]
    residual_s = np.abs(np.array(directions) @ (basis @ coefficients).T - correction).max()
    print(f"light-time residual {residual_s * 1e3:.1f} ms")
    return {
        "timed_cadences": timed,
        "mission_flags": {bit: ranges(np.array(c, dtype=np.int64)) for bit, c in flags.items()},
        "no_flux_cadences": ranges(np.array(missing, dtype=np.int64)),
        "clock_knots_s": clock_knots(cadence, np.concatenate(clock_parts)),
        "position_chebyshev_light_s": np.round(coefficients.T, 5).tolist(),
        "light_time_residual_s": round(float(residual_s), 4),
    }


def population(real: Path) -> dict[str, Any]:
    """Quantiles of Kp and CDPP and the observed-quarter strings of ``stellar_cdpp_quarters``."""
    with gzip.open(real / "catalogs" / "stellar_cdpp_quarters.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    kepmag = np.array([float(r["kepmag"] or "nan") for r in rows])
    cdpp6 = np.array([float(r["rrmscdpp06p0"] or "nan") for r in rows])
    bright = (kepmag > 10.5) & (kepmag < 16.2) & np.isfinite(cdpp6)
    centres = np.arange(11.0, 16.0, 0.5)
    cdpp_quantiles = [
        np.percentile(cdpp6[bright & (np.abs(kepmag - centre) < 0.3)], [5, 25, 50, 75]).round(1)
        for centre in centres
    ]
    kp_probability = np.linspace(0, 1, 21)
    strings = Counter(r["st_quarters"][9:13] for r in rows)
    one_missing = {
        str(quarter): strings["".join("01"[q != quarter] for q in range(10, 14))]
        for quarter in range(10, 14)
    }
    total = strings["1111"] + sum(one_missing.values())
    return {
        "kepmag_quantiles": np.quantile(kepmag[bright], kp_probability).round(3).tolist(),
        "cdpp6_kepmag": centres.tolist(),
        "cdpp6_quantiles_ppm": [q.tolist() for q in cdpp_quantiles],
        "missing_quarter_share": {q: round(n / total, 4) for q, n in one_missing.items()},
    }


def rotation(real: Path) -> dict[str, Any]:
    """Quantiles of ln period and of ln amplitude per period bin, McQuillan et al. 2014."""
    with gzip.open(real / "catalogs" / "rotation_mcquillan2014.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    period = np.array([float(r["Prot" if "Prot" in r else "period"]) for r in rows])
    amplitude = np.array([float(r["Rper"]) for r in rows])
    probability = np.linspace(0, 1, 21)[1:-1]
    edges = [0.0, 3.0, 7.0, 12.0, 18.0, 25.0, 35.0, 80.0]
    return {
        "rotation_period_quantiles_days": np.quantile(period, probability).round(3).tolist(),
        "rotation_bin_edges_days": edges,
        "rotation_amplitude_quantiles_ppm": [
            np.quantile(amplitude[(period >= a) & (period < b)], probability).round(0).tolist()
            for a, b in itertools.pairwise(edges)
        ],
    }


def main() -> None:
    """Write the facts file."""
    facts = mission(REAL) | population(REAL) | rotation(REAL)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items())
    OUT.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"{OUT} {OUT.stat().st_size / 1000:.1f} kB")


if __name__ == "__main__":
    main()
