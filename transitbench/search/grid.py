"""A light curve on the uniform grid of Kepler's cadence numbers, one element per slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transitbench.lightcurve import LightCurve

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Segment:
    """A stretch ``[start, stop)`` of the grid inside one quarter, beginning and ending on a finite cadence."""

    start: int
    stop: int
    quarter: int


@dataclass(frozen=True)
class CadenceGrid:
    """Flux per cadence slot, each quarter divided by its median.

    Attributes
    ----------
    rows
        Grid slot of each row of the light curve, shape ``(n_rows,)``.
    flux
        Relative flux, shape ``(n_slots,)``; 1 where missing.
    finite
        Slots with finite time and flux, shape ``(n_slots,)``.
    time_days
        BKJD of every slot, missing ones interpolated, shape ``(n_slots,)``.
    quarter
        Kepler quarter of every slot (of the row before it, in gaps), shape ``(n_slots,)``.
    """

    rows: NDArray[np.intp]
    flux: FloatArray
    finite: BoolArray
    time_days: FloatArray
    quarter: NDArray[np.int8]

    def slot(self, time_days: FloatArray) -> FloatArray:
        """Fractional grid slot at given times, shape of the input; extrapolated at the mean cadence rate."""
        slots = np.arange(self.time_days.size, dtype=np.float64)
        inside = np.interp(time_days, self.time_days, slots)
        step = (self.time_days[-1] - self.time_days[0]) / max(self.time_days.size - 1, 1)
        before = np.minimum(time_days - self.time_days[0], 0.0)
        after = np.maximum(time_days - self.time_days[-1], 0.0)
        return inside + (before + after) / step if step > 0 else inside

    def segments(self, max_gap: int) -> list[Segment]:
        """Split the finite slots at quarter boundaries and at gaps of more than ``max_gap`` slots."""
        index = np.flatnonzero(self.finite)
        cut = np.flatnonzero((np.diff(index) > max_gap + 1) | (np.diff(self.quarter[index]) != 0))
        starts = index[np.r_[0, cut + 1]]
        stops = index[np.r_[cut, index.size - 1]] + 1
        return [
            Segment(int(a), int(b), int(self.quarter[a]))
            for a, b in zip(starts, stops, strict=True)
        ]


def cadence_grid(light_curve: LightCurve) -> CadenceGrid:
    """Put a light curve on the cadence grid. Quality flags are not used: PDC already blanks bad cadences."""
    first = int(light_curve.cadenceno[0])
    rows = (light_curve.cadenceno.astype(np.intp) - first).astype(np.intp)
    n_slots = int(rows[-1]) + 1
    ok = light_curve.finite
    flux = np.ones(n_slots)
    finite = np.zeros(n_slots, dtype=np.bool_)
    finite[rows] = ok
    relative = light_curve.flux.astype(np.float64)
    for quarter in np.unique(light_curve.quarter):
        part = ok & (light_curve.quarter == quarter)
        if part.any():
            # The mean level carries a star that sits at zero or below, whose median says nothing.
            level = float(np.median(relative[part]))
            relative[part] /= level if level > 0 else float(np.max(np.abs(relative[part]))) or 1.0
    flux[rows[ok]] = relative[ok]
    slots = np.arange(n_slots)
    timed = np.isfinite(light_curve.time)
    time_days = np.interp(slots, rows[timed], light_curve.time[timed])
    before = np.maximum(np.searchsorted(rows, slots, side="right") - 1, 0)
    return CadenceGrid(rows, flux, finite, time_days, light_curve.quarter[before])
