"""Transit times and which of them were observed, against loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_reference import observed_transits

from transitbench.ephemeris import observed_transit_times, transit_times, transit_trains


def test_times_on_both_ends_of_the_span_are_in_it():
    assert transit_times(2.0, 1.0, 3.0, 9.0).tolist() == [3.0, 5.0, 7.0, 9.0]


def test_a_span_between_two_transits_has_none():
    assert transit_times(50.0, 0.0, 10.0, 40.0).size == 0


def test_a_far_epoch_gives_the_same_times():
    near = transit_times(3.25, 1.5, 900.0, 1000.0)
    for k in (-(10**6), -7, 1, 10**6):
        assert transit_times(3.25, 1.5 + k * 3.25, 900.0, 1000.0).tolist() == near.tolist()


@given(
    period=st.floats(0.3, 200),
    t0=st.floats(-2000, 2000),
    start=st.floats(-100, 1000),
    span=st.floats(0, 400),
)
@settings(max_examples=1000, deadline=None, derandomize=True)
def test_times_are_all_multiples_in_the_span(period: float, t0: float, start: float, span: float):
    end = start + span
    phase = t0 % period
    around = range(math.floor(start / period) - 2, math.ceil(end / period) + 3)
    expected = [t for k in around if start <= (t := phase + period * k) <= end]
    assert transit_times(period, t0, start, end).tolist() == expected


def test_trains_of_many_are_those_of_each():
    rng = np.random.default_rng(5)
    period, t0 = rng.uniform(0.5, 90, 30), rng.uniform(-500, 500, 30)
    start, end = np.full(30, 906.85), rng.uniform(950, 1273, 30)
    trains = transit_trains(period, t0, start, end)
    for i in range(30):
        mid = trains.mid_days[trains.offset[i] : trains.offset[i] + trains.count[i]]
        inside = mid[(mid >= start[i]) & (mid <= end[i])]
        assert inside.tolist() == transit_times(period[i], t0[i], start[i], end[i]).tolist()
        assert (trains.train[trains.offset[i] : trains.offset[i] + trains.count[i]] == i).all()


@given(
    gaps=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), max_size=5),
    period=st.floats(0.4, 40),
    t0=st.floats(-50, 50),
    hours=st.sampled_from([0.1, 0.48, 1.2, 4.8, 12.0]),
)
@settings(max_examples=1000, deadline=None, derandomize=True)
def test_observed_transits_equal_the_slow_reference(
    gaps: list[tuple[int, int]], period: float, t0: float, hours: float
):
    time = np.arange(320) * 0.1
    for begin, length in gaps:
        time = np.delete(time, slice(begin, begin + length)) if time.size > begin + length else time
    expected = observed_transits(time.tolist(), period, t0, hours)
    assert observed_transit_times(time, period, t0, hours).tolist() == expected


@pytest.mark.parametrize(("hours", "n_seen"), [(4.7, 0), (4.9, 1)])
def test_one_cadence_within_half_a_duration_is_enough(hours: float, n_seen: int):
    assert observed_transit_times(np.array([0.0, 4.9, 10.0]), 100.0, 5.0, hours).size == n_seen
