"""Linear ephemerides on a light curve: which transits there are, and which of them were observed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

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


@dataclass(frozen=True, slots=True)
class TransitTrains:
    """Transit times of several ephemerides, one train after the other in one flat array.

    Attributes
    ----------
    mid_days
        Mid-times, shape ``(n_transits,)``, ascending within a train. Each train reaches up to one
        transit beyond its span on both sides, so that rounding never loses one at the edge.
    train
        Which ephemeris a mid-time belongs to, shape ``(n_transits,)``.
    offset, count
        Where each train starts and how long it is, shape ``(n_trains,)``.
    period_days
        Period of each train, shape ``(n_trains,)``.
    """

    mid_days: FloatArray
    train: IntArray
    offset: IntArray
    count: IntArray
    period_days: FloatArray


def transit_trains(
    period_days: FloatArray, t0_days: FloatArray, start_days: FloatArray, end_days: FloatArray
) -> TransitTrains:
    """Transit times of many ephemerides over their spans; all arguments have shape ``(n_trains,)``.

    The epoch is first reduced to ``t0 mod P`` (an exact operation), so ephemerides that differ by
    whole periods in ``t0`` give the same times, and a far-away epoch costs no precision in ``k·P``.
    """
    phase = np.mod(t0_days, period_days)
    first = np.floor((start_days - phase) / period_days)
    last = np.ceil((end_days - phase) / period_days)
    count = (last - first).astype(np.int64) + 1
    offset = np.cumsum(count) - count
    train = np.repeat(np.arange(count.size), count)
    k = np.arange(train.size) - offset[train] + first[train]
    mid = phase[train] + period_days[train] * k
    return TransitTrains(mid, train, offset, count, period_days)


def transit_times(
    period_days: float, t0_days: float, start_days: float, end_days: float
) -> FloatArray:
    """All mid-times of an ephemeris in ``[start_days, end_days]``, ascending, shape ``(n,)``."""
    ephemeris = (np.array([value]) for value in (period_days, t0_days, start_days, end_days))
    mid = transit_trains(*ephemeris).mid_days
    return mid[(mid >= start_days) & (mid <= end_days)]


def next_cadence(finite_time_days: FloatArray, from_days: FloatArray) -> FloatArray:
    """First cadence at or after each time, shape of ``from_days``; the last cadence if there is none."""
    index = np.searchsorted(finite_time_days, from_days, side="left")
    return finite_time_days.take(index, mode="clip")


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
    cadence = next_cadence(finite_time_days, mid - half_days)
    return mid[(cadence >= mid - half_days) & (cadence <= mid + half_days)]
