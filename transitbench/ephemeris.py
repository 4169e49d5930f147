"""Linear ephemerides on a light curve: which transits there are, and which of them were observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

LONG_CADENCE_DAYS = 0.020433598
"""Kepler's long cadence: 270 × 6.54 s frames ≈ 29.42 min (Kepler Data Characteristics Handbook)."""


@dataclass(frozen=True, slots=True)
class Ephemeris:
    """A periodic event: mid-times ``t0_days + k · period_days``, each ``duration_hours`` long.

    ``t0_days`` is BKJD (BJD − 2454833 d); any integer number of periods may be added to it.
    """

    period_days: float
    t0_days: float
    duration_hours: float


def transit_times(
    period_days: float, t0_days: float, start_days: float, end_days: float
) -> FloatArray:
    """All mid-times of an ephemeris in ``[start_days, end_days]``, ascending, shape ``(n,)``.

    Times are computed as ``t0 + k·P`` from the epoch, never accumulated, so that two ephemerides that
    differ by whole periods in ``t0`` give the same times to rounding.
    """
    first = int(np.ceil((start_days - t0_days) / period_days))
    last = int(np.floor((end_days - t0_days) / period_days))
    return t0_days + period_days * np.arange(first, last + 1, dtype=np.float64)


def observed_transit_times(
    finite_time_days: FloatArray, period_days: float, t0_days: float, duration_hours: float
) -> FloatArray:
    """Mid-times inside the span of the data with at least one finite cadence within ± half a duration.

    Parameters
    ----------
    finite_time_days
        Ascending BKJD of the cadences with finite time and flux, shape ``(n,)``, ``n ≥ 1``.
    period_days, t0_days, duration_hours
        The ephemeris; ``duration_hours`` is the full (first to fourth contact) duration.
    """
    mid = transit_times(period_days, t0_days, finite_time_days[0], finite_time_days[-1])
    half_days = duration_hours / 48.0
    nearest_from = np.searchsorted(finite_time_days, mid - half_days, side="left")
    has_data = nearest_from < finite_time_days.size
    index = np.minimum(nearest_from, finite_time_days.size - 1)
    has_data &= finite_time_days[index] <= mid + half_days
    return mid[has_data]
