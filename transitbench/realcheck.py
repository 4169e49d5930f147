"""A graded set of real stars, from a folder of year-long light curves and what is known of each.

Eclipsing binaries and pulsators have nothing to find. Planet hosts are graded on their confirmed
planets with at least three observed transits: the three of highest MES count, since a submission may
report three rows; the other planets are ``ignored`` (neither credit nor false).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transitbench.ephemeris import LONG_CADENCE_DAYS, Ephemeris
from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve
from transitbench.mes import box_mes, noise_model, transits_with_data
from transitbench.sets import StarSet, star_id, write_set
from transitbench.truth import Kind, Planet, Signal, StarTruth

MIN_TRANSITS = 3
MAX_PLANETS = 3

PUBLIC_SECRET = b"transitbench real-check"
"""Key of the star ids: opaque names, the same for everyone who builds the set."""

KINDS_OF_INDEX: dict[str, Kind] = {
    "planets": "planet",
    "eb": "eb",
    "pulsator": "false_alarm",
    "quiet": "quiet",
}


def read_index(source: Path) -> list[dict[str, Any]]:
    """Read ``index.json`` of a folder of real stars.

    Raises
    ------
    TransitBenchError
        TB-E002 if it is not such a folder.
    """
    try:
        entries = json.loads((source / "index.json").read_text(encoding="utf-8"))
        return [e for e in entries if e["kind"] in KINDS_OF_INDEX]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise TransitBenchError(
            "TB-E002",
            f"expected index.json and one .npz a star in {source}, got {problem!r}",
            "give the folder of real stars: `transitbench data build real-check --from DIR`",
        ) from problem


def real_check_names(source: Path) -> list[str]:
    """Return the names of the stars in a folder of real stars."""
    return [entry["name"] for entry in read_index(source)]


def real_check_id(name: str) -> str:
    """Return the opaque id that a star of the folder has in the set."""
    return star_id(PUBLIC_SECRET, name)


def read_real_star(path: Path) -> LightCurve:
    """Read a star of the folder; where its source had no cadence numbers they are counted from the times.

    Estimated numbers in such files can repeat, which a star file must not.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            values: dict[str, Any] = dict(archive)
    except (OSError, ValueError) as problem:
        raise TransitBenchError(
            "TB-E010", f"cannot read {path} ({problem})", "get the folder of real stars anew"
        ) from problem
    if np.any(np.diff(values["cadenceno"]) <= 0):
        since_first = (values["time"] - values["time"][0]) / LONG_CADENCE_DAYS
        values["cadenceno"] = values["cadenceno"][0] + np.rint(since_first).astype(np.int32)
    return LightCurve(**values)


def _in_transit(light_curve: LightCurve, ephemerides: Sequence[Ephemeris]) -> NDArray[np.bool_]:
    inside = np.zeros(len(light_curve), dtype=np.bool_)
    for e in ephemerides:
        cycles = (light_curve.time - e.t0_days) / e.period_days
        inside |= np.abs(cycles - np.rint(cycles)) * e.period_days <= e.duration_hours / 48.0
    return inside


def _known_planets(light_curve: LightCurve, koi_rows: Sequence[Sequence[Any]]) -> list[Planet]:
    confirmed = [row for row in koi_rows if row[1] == "CONFIRMED"]
    ephemerides = [Ephemeris(period, t0, hours) for _, _, period, t0, hours, _ in confirmed]
    noise = noise_model(light_curve, exclude=_in_transit(light_curve, ephemerides))
    planets = []
    for ephemeris, row in zip(ephemerides, confirmed, strict=True):
        observed = transits_with_data(
            noise.grid, ephemeris.period_days, ephemeris.t0_days, ephemeris.duration_hours
        )
        planets.append(
            Planet(
                period_days=ephemeris.period_days,
                t0_days=ephemeris.t0_days,
                duration_hours=ephemeris.duration_hours,
                depth_ppm=row[5],
                rp_rs=math.nan,
                a_rs=math.nan,
                impact=math.nan,
                n_transits=int(observed.size),
                mes=round(box_mes(noise, ephemeris, row[5]), 4),
            )
        )
    return planets


def real_star_truth(entry: dict[str, Any], light_curve: LightCurve) -> StarTruth:
    """Return the truth of a real star from its index entry.

    ``koi`` rows are (name, disposition, period in days, epoch in BKJD, duration in hours, depth in ppm)
    of the cumulative KOI table.
    """
    kind = KINDS_OF_INDEX[entry["kind"]]
    if kind != "planet":
        signal = Signal(math.nan, math.nan, math.nan, entry["kind"])
        return StarTruth(kind, signal=None if kind == "quiet" else signal)
    known = _known_planets(light_curve, entry["koi"])
    findable = sorted(
        (planet for planet in known if planet.n_transits >= MIN_TRANSITS), key=lambda p: -p.mes
    )
    graded = tuple(findable[:MAX_PLANETS])
    return StarTruth(kind, graded, ignored=tuple(p.ephemeris for p in known if p not in graded))


def build_real_check(
    source: Path, path: Path, on_star: Callable[[], None] | None = None
) -> StarSet:
    """Make the set ``real-check`` in ``path`` from the stars in ``source``.

    Raises
    ------
    TransitBenchError
        TB-E002 if ``source`` is no folder of real stars, TB-E010 for a star file that cannot be read.
    """

    def stars() -> Iterator[tuple[str, LightCurve, StarTruth]]:
        for entry in read_index(source):
            light_curve = read_real_star(source / f"{entry['name']}.npz")
            yield real_check_id(entry["name"]), light_curve, real_star_truth(entry, light_curve)
            if on_star:
                on_star()

    generator = {"name": "transitbench.realcheck", "version": "1"}
    return write_set(path, "real-check", "kepler", generator, stars())
