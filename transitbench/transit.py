"""Transit geometry and the exposure-averaged transit light curve.

Angles in degrees, periods and times in days, durations in hours, densities in units of the Sun's mean
density. Eccentric orbits follow Winn (2010, arXiv:1001.2010): ``impact`` is the sky-projected distance
at inferior conjunction in stellar radii, ``omega_deg`` the argument of periastron of the star's orbit
as batman counts it, and ``t0_days`` the time of conjunction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transitbench.errors import TransitBenchError

FloatArray = NDArray[np.float64]

EXPOSURE_DAYS = 0.0204336
"""Length of a long-cadence exposure: 29.424 min (Kepler Data Characteristics Handbook)."""

N_NODES, N_CONTACT_NODES = 7, 31
"""Gauss–Legendre nodes per exposure, and in exposures that hold a contact, where the flux has a kink.
batman's own supersampling puts equal weights on nodes that include both ends of the exposure, which
averages over an exposure (n + 1)/(n − 1) times too long."""

_QUADRATURE = {n: np.polynomial.legendre.leggauss(n) for n in (N_NODES, N_CONTACT_NODES)}

_PROFILE_SAMPLES = 257


def scaled_semimajor_axis(period_days: float, density_solar: float) -> float:
    """Semi-major axis in stellar radii, ``a/R★ = 4.2083 (ρ★/ρ☉)^(1/3) (P/1 d)^(2/3)`` (Kepler's third law)."""
    return 4.2083 * math.cbrt(density_solar) * math.cbrt(period_days) ** 2


def _check_geometry(
    period_days: float, rp_rs: float, a_rs: float, impact: float, ecc: float, omega_deg: float
) -> None:
    ok = (
        0 < period_days < math.inf
        and 0 < rp_rs < 1
        and 0 <= ecc < 1
        and a_rs * (1 - ecc) > 1 + rp_rs
        and 0 <= impact < 1 + rp_rs
        and _cos_inclination(a_rs, impact, ecc, omega_deg) < 1
    )
    if not ok:
        raise TransitBenchError(
            "TB-E016",
            "expected period > 0, 0 < rp_rs < 1, 0 ≤ ecc < 1, a_rs (1 − ecc) > 1 + rp_rs, 0 ≤ impact < 1 + rp_rs, "
            f"got {period_days=}, {rp_rs=}, {a_rs=}, {impact=}, {ecc=}, {omega_deg=}",
            "give a transiting orbit outside the star",
        )


def _cos_inclination(a_rs: float, impact: float, ecc: float, omega_deg: float) -> float:
    return impact / a_rs * (1 + ecc * math.sin(math.radians(omega_deg))) / (1 - ecc**2)


def _half_chord_days(
    radius: float, period_days: float, a_rs: float, impact: float, ecc: float, omega_deg: float
) -> float:
    """Half the time that the planet's centre is within ``radius`` of the star's."""
    if impact >= radius:
        return 0.0
    sin_inclination = math.sqrt(1 - _cos_inclination(a_rs, impact, ecc, omega_deg) ** 2)
    sine = math.sqrt(radius**2 - impact**2) / (a_rs * sin_inclination)
    speed_factor = math.sqrt(1 - ecc**2) / (1 + ecc * math.sin(math.radians(omega_deg)))
    return period_days / (2 * math.pi) * math.asin(min(1.0, sine)) * speed_factor


def transit_duration_hours(
    period_days: float,
    rp_rs: float,
    a_rs: float,
    impact: float,
    ecc: float = 0.0,
    omega_deg: float = 90.0,
) -> float:
    """Full duration, first to fourth contact, in hours.

    ``T14 = (P/π) asin{ √[(1+k)² − b²] / (a/R★ · sin i) }`` for a circular orbit (Seager &
    Mallén-Ornelas 2003). For an eccentric one it is multiplied by ``√(1−e²) / (1 + e sin ω)``, the
    inverse of the planet's relative speed at conjunction (Winn 2010, eqs. 14–16): an approximation
    that is good while the speed hardly changes during the transit.

    Raises
    ------
    TransitBenchError
        TB-E016 if the orbit does not transit or touches the star.
    """
    _check_geometry(period_days, rp_rs, a_rs, impact, ecc, omega_deg)
    return 48.0 * _half_chord_days(1 + rp_rs, period_days, a_rs, impact, ecc, omega_deg)


def _days_from_transit(time_days: FloatArray, period_days: float, t0_days: float) -> FloatArray:
    """Distance to the nearest mid-transit, NaN where the time is."""
    cycles = (time_days - t0_days) / period_days
    return np.abs(cycles - np.rint(cycles)) * period_days


def transit_model(
    time_days: FloatArray,
    period_days: float,
    t0_days: float,
    rp_rs: float,
    a_rs: float,
    impact: float,
    limb_darkening: tuple[float, float],
    ecc: float = 0.0,
    omega_deg: float = 90.0,
) -> FloatArray:
    """Relative flux of a star with one transiting planet, averaged over each long-cadence exposure.

    batman (Kreidberg 2015) gives the flux of a quadratically limb-darkened star; it is evaluated at
    Gauss–Legendre nodes of each exposure (:data:`N_NODES`), and only near transits: elsewhere, and
    where the time is NaN, the result is exactly 1.

    Parameters
    ----------
    time_days
        Mid-exposure times, shape ``(n,)``, in any order; NaN allowed.
    period_days, t0_days
        Period and a mid-transit (conjunction) time.
    rp_rs, a_rs, impact
        Radius ratio, scaled semi-major axis, impact parameter.
    limb_darkening
        Quadratic coefficients (u1, u2).
    ecc, omega_deg
        Eccentricity and argument of periastron.

    Returns
    -------
    FloatArray
        Relative flux, shape ``(n,)``.

    Raises
    ------
    TransitBenchError
        TB-E016 if the orbit does not transit or touches the star.
    """
    import batman

    _check_geometry(period_days, rp_rs, a_rs, impact, ecc, omega_deg)
    outer, inner = (
        _half_chord_days(radius, period_days, a_rs, impact, ecc, omega_deg)
        for radius in (1 + rp_rs, 1 - rp_rs)
    )
    # On an eccentric orbit the contacts lie unevenly about conjunction and their formula is approximate.
    margin = 0.5 * EXPOSURE_DAYS + (0.5 * outer if ecc > 0 else 0.0)
    distance = _days_from_transit(time_days, period_days, t0_days)
    near = np.flatnonzero(distance <= outer + margin)
    flux = np.ones(time_days.shape)
    if near.size == 0:
        return flux
    contact_distance = np.minimum(np.abs(distance[near] - outer), np.abs(distance[near] - inner))
    at_contact = contact_distance <= margin
    params = batman.TransitParams()
    params.t0, params.per = t0_days, period_days
    params.rp, params.a = rp_rs, a_rs
    params.inc = math.degrees(math.acos(_cos_inclination(a_rs, impact, ecc, omega_deg)))
    params.ecc, params.w = ecc, omega_deg
    params.limb_dark, params.u = "quadratic", list(limb_darkening)
    for index, n_nodes in ((near[~at_contact], N_NODES), (near[at_contact], N_CONTACT_NODES)):
        if index.size:
            nodes, weights = _QUADRATURE[n_nodes]
            instants = (time_days[index, None] + 0.5 * EXPOSURE_DAYS * nodes).ravel()
            model = batman.TransitModel(params, instants).light_curve(params)
            loss = (1.0 - np.asarray(model)).reshape(-1, n_nodes)
            # A mean of non-negative losses leaves exposures without any at exactly 1.
            flux[index] = 1.0 - loss @ (0.5 * weights)
    return flux


def in_transit(
    time_days: FloatArray, period_days: float, t0_days: float, duration_hours: float
) -> NDArray[np.bool_]:
    """Whether a cadence's mid-time lies within ± half a duration of a mid-transit, shape ``(n,)``."""
    return _days_from_transit(time_days, period_days, t0_days) <= duration_hours / 48.0


def mean_in_transit_depth(
    time_days: FloatArray,
    flux: FloatArray,
    period_days: float,
    t0_days: float,
    duration_hours: float,
) -> float:
    """Mean of ``1 − flux`` over the in-transit cadences: δ_eff of white noise, relative (not ppm).

    Raises
    ------
    TransitBenchError
        TB-E016 if no cadence is in transit.
    """
    mask = in_transit(time_days, period_days, t0_days, duration_hours)
    if not mask.any():
        raise TransitBenchError(
            "TB-E016",
            f"no cadence in transit for {period_days=}, {t0_days=}, {duration_hours=}",
            "check the ephemeris against the span of the data",
        )
    return float(np.mean(1.0 - flux[mask]))


@dataclass(frozen=True, slots=True)
class Orbit:
    """Everything of a transiting planet but its size, with the limb darkening of its star.

    Field names and units are those of :func:`transit_model`.
    """

    period_days: float
    t0_days: float
    a_rs: float
    impact: float
    limb_darkening: tuple[float, float]
    ecc: float = 0.0
    omega_deg: float = 90.0

    def duration_hours(self, rp_rs: float) -> float:
        """Full duration of a planet of this size (:func:`transit_duration_hours`)."""
        return transit_duration_hours(
            self.period_days, rp_rs, self.a_rs, self.impact, self.ecc, self.omega_deg
        )

    def flux(self, time_days: FloatArray, rp_rs: float) -> FloatArray:
        """Relative flux with a planet of this size (:func:`transit_model`)."""
        return transit_model(
            time_days,
            self.period_days,
            self.t0_days,
            rp_rs,
            self.a_rs,
            self.impact,
            self.limb_darkening,
            self.ecc,
            self.omega_deg,
        )

    def loss(self, time_days: FloatArray, rp_rs: float) -> FloatArray:
        """``1 − flux``, interpolated from one finely sampled transit: a template for many transits.

        Within about 10⁻³ of the depth of the exact model at a fraction of its cost.
        """
        reach = self.duration_hours(rp_rs) / 48.0 * (1.5 if self.ecc > 0 else 1.0) + EXPOSURE_DAYS
        offset = np.linspace(-reach, reach, _PROFILE_SAMPLES)
        profile = 1.0 - self.flux(self.t0_days + offset, rp_rs)
        cycles = (time_days - self.t0_days) / self.period_days
        days = (cycles - np.rint(cycles)) * self.period_days
        loss = np.zeros(time_days.shape)
        near = np.abs(days) < reach
        loss[near] = np.interp(days[near], offset, profile)
        return loss

    def mid_transit_depth_ppm(self, rp_rs: float) -> float:
        """Depth in ppm of an exposure centred on mid-transit."""
        flux = self.flux(np.array([self.t0_days]), rp_rs)
        return 1e6 * (1.0 - float(flux[0]))
