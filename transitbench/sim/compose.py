"""Put the ingredients together: one finished star of a kind from one random generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transitbench.errors import TransitBenchError
from transitbench.lightcurve import LightCurve
from transitbench.sim import binaries, instrument, photometry, stellar
from transitbench.sim.cadences import FIRST_CADENCE, Frame, draw_frame, mission
from transitbench.sim.false_alarms import Circumstances, draw_false_alarm
from transitbench.sim.population import Star, draw_star
from transitbench.sim.spectrum import noise_from_psd, proxy_cdpp_ppm, white_psd
from transitbench.truth import Kind, Signal

FloatArray = NDArray[np.float64]

SIM_GENERATOR_VERSION = "0.1"
"""Changes whenever the same seed would give another star."""

ROTATOR_SHARE = 0.27
FAINT_ROTATOR_SHARE = 0.35
FLARING_SHARE = 0.02
PULSATING_SHARE_OF_HOT = 0.2
ROLLING_BAND_SHARE = 0.2
DESATURATION_SHARE = 0.15
DROPOUTS_PER_YEAR = 0.2

EB_TYPES = ("detached", "twins", "eccentric", "contact", "background", "heartbeat")
EB_SHARES = (0.30, 0.12, 0.14, 0.20, 0.19, 0.05)
TIMING_VARIATION_SHARE = 0.15


@dataclass(frozen=True)
class SimulatedStar:
    """A finished star. ``signal`` says what is known of an ``eb`` or ``false_alarm`` (NaN where nothing is)."""

    light_curve: LightCurve
    kind: Kind
    signal: Signal | None


@dataclass(frozen=True)
class _Noise:
    """Additive noise per mission cadence (relative flux), its white part, and the star's 6-hour CDPP in ppm."""

    red: FloatArray
    white: FloatArray
    white_ppm: float
    cdpp6_ppm: float


def _proxy6(psd_ppm2_day: FloatArray) -> float:
    return proxy_cdpp_ppm(psd_ppm2_day, 13)


def _noise(rng: np.random.Generator, star: Star) -> _Noise:
    """Photon, read, granulation, oscillation and residual noise that add up to the CDPP of such stars."""
    cdpp6_ppm = photometry.draw_cdpp6_ppm(rng, star.kepmag)
    equivalent_ppm = instrument.white_equivalent_of_cdpp(cdpp6_ppm)
    white_ppm = photometry.draw_white_noise_ppm(rng, star.kepmag, equivalent_ppm)
    intrinsic = stellar.granulation_psd(star.nu_max_uhz, star.mass) + stellar.oscillation_psd(star)
    residual = instrument.residual_red_psd(rng)
    total = _proxy6(white_psd(equivalent_ppm))
    left = total**2 - _proxy6(white_psd(white_ppm)) ** 2 - _proxy6(intrinsic) ** 2
    floor = (0.15 * total) ** 2
    residual *= max(left, floor) / _proxy6(residual) ** 2
    psd = intrinsic + residual + instrument.drift_psd(rng)
    red_ppm = noise_from_psd(rng, psd)[mission().slot]
    white = rng.standard_normal(red_ppm.size) * instrument.noise_inflation()
    cdpp_total = np.hypot(_proxy6(white_psd(white_ppm)), _proxy6(intrinsic + residual)) / 0.81
    return _Noise(red_ppm * 1e-6, white * white_ppm * 1e-6, white_ppm, float(cdpp_total))


def _stellar_variability(rng: np.random.Generator, star: Star, time_days: FloatArray) -> FloatArray:
    """What any star may show besides noise: spots, flares, weak pulsation."""
    flux = np.zeros(time_days.size)
    u = rng.random(3)
    if star.is_hot:
        if u[0] < PULSATING_SHARE_OF_HOT:
            make = stellar.delta_scuti if u[1] < 0.5 else stellar.gamma_doradus
            flux += make(rng, time_days)
    elif not star.is_giant:
        if u[0] < ROTATOR_SHARE:
            flux += stellar.spots(rng, time_days, *stellar.draw_rotation(rng))
        elif u[0] < ROTATOR_SHARE + FAINT_ROTATOR_SHARE:
            flux += stellar.spots(rng, time_days, 12.0 * 4 ** u[1], 100.0 * 8 ** rng.random())
        if u[2] < FLARING_SHARE:
            flux += stellar.flares(rng, time_days, int(rng.integers(2, 40)))
    return flux


def _instrumental(
    rng: np.random.Generator, white_ppm: float, quality: NDArray[np.int32]
) -> FloatArray:
    """What the spacecraft adds to any star."""
    u = rng.random(3)
    flux = instrument.draw_dropouts(rng, DROPOUTS_PER_YEAR) + instrument.spikes(rng, white_ppm)
    flux += instrument.wheel_jitter(rng, 0.25 * white_ppm * np.exp(0.5 * rng.standard_normal()))
    if u[0] < instrument.RECOVERING_SHARE:
        flux += instrument.recoveries(rng, 50.0 * 10 ** rng.random())
    if u[1] < DESATURATION_SHARE:
        flux += instrument.desaturation_residuals(rng, rng.uniform(50.0, 200.0))
    if u[2] < ROLLING_BAND_SHARE:
        amplitude_ppm, n_bursts = 20.0 * 10 ** rng.random(), int(rng.integers(1, 6))
        flux += instrument.rolling_band(rng, amplitude_ppm, n_bursts, quality)
    return flux


def _eclipsing(
    rng: np.random.Generator, star: Star, time_days: FloatArray
) -> tuple[FloatArray, Signal]:
    """Relative flux (around 1) of an eclipsing or tidally distorted binary, and its ephemeris."""
    start_days = float(time_days[0])
    choice = EB_TYPES[
        min(int(np.searchsorted(np.cumsum(EB_SHARES), rng.random(), "right")), len(EB_TYPES) - 1)
    ]
    if choice == "heartbeat":
        period_days = float(5.0 * 12 ** rng.random())
        t0_days = start_days + period_days * rng.random()
        amplitude = 4e-4 * 20 ** rng.random()
        pulse = binaries.heartbeat(
            time_days,
            period_days,
            t0_days,
            eccentricity=rng.uniform(0.35, 0.8),
            inclination_rad=float(np.arccos(rng.random())),
            omega_rad=rng.uniform(0, 2 * np.pi),
            amplitude=amplitude,
        )
        return 1.0 + pulse, Signal(period_days, t0_days, amplitude * 1e6, choice)
    share: FloatArray | float = 1.0
    dilution = 1.0
    if choice == "contact":
        binary = binaries.draw_contact(rng, start_days)
    elif choice == "background":
        binary, dilution = binaries.draw_background(rng, start_days)
        # Another aperture each quarter catches another part of the neighbour.
        share = (dilution * np.exp(0.12 * rng.standard_normal(4)))[mission().quarter - 10]
    else:
        binary = binaries.draw_detached(
            rng, star, start_days, eccentric=choice == "eccentric", twins=choice == "twins"
        )
        dilution = 1.0 - 0.5 * rng.random() ** 3
        share = dilution
    delay_days: FloatArray | float = 0.0
    if rng.random() < TIMING_VARIATION_SHARE:
        delay_days = binaries.timing_variation(rng, time_days)
    pair = binaries.binary_flux(binary, time_days, delay_days)
    depths = binaries.eclipse_depths(binary)
    t0_days = binary.t0_days
    if depths[1] > depths[0]:
        phase = binaries.secondary_phase(binary.eccentricity, binary.omega_rad)
        t0_days += phase * binary.period_days
    depth_ppm = 1e6 * dilution * (max(depths) or float(np.ptp(pair)))
    return 1.0 + share * (pair - 1.0), Signal(binary.period_days, t0_days, depth_ppm, choice)


def _light_curve(
    star: Star,
    frame: Frame,
    relative_flux: FloatArray,
    level: FloatArray,
    white_ppm: float,
    error_scatter: FloatArray,
) -> LightCurve:
    """Rows of the star file: flux on its grid, catalogue values or NaN, only the quarters observed."""
    mean_flux = photometry.mean_flux_e_per_s(star.kepmag)
    level_e_per_s = mean_flux * level
    flux = photometry.quantize_flux(
        np.where(frame.missing, np.nan, level_e_per_s * relative_flux), mean_flux
    )
    error = photometry.flux_error_e_per_s(level_e_per_s, white_ppm, error_scatter)
    rows = frame.observed
    known = (star.teff, star.logg, star.radius, star.mass) if star.catalogued else (np.nan,) * 4
    return LightCurve(
        frame.time_days[rows],
        flux[rows],
        np.where(frame.missing, np.nan, error)[rows].astype(np.float32),
        frame.quality[rows],
        (mission().slot + FIRST_CADENCE)[rows].astype(np.int32),
        mission().quarter[rows],
        star.kepmag,
        *known,
    )


def simulate_star(
    kind: Literal["eb", "false_alarm", "quiet"], rng: np.random.Generator
) -> SimulatedStar:
    """Simulate one star of Kepler's quarters 10–13.

    The star, its frame (times, flags, losses, errors) and its noise are drawn from streams of their own
    before the kind matters: the same generator state gives the same non-flux arrays for every kind.

    Parameters
    ----------
    kind
        ``eb`` eclipsing or heartbeat binary, ``false_alarm`` something a search fires on though nothing
        transits, ``quiet`` neither.
    rng
        Source of randomness; same state, same star, byte for byte, on the same numpy and scipy.

    Raises
    ------
    TransitBenchError
        TB-E016 for another kind (planets are injected into finished stars).
    """
    if kind not in ("eb", "false_alarm", "quiet"):
        raise TransitBenchError(
            "TB-E016",
            f"kind expected 'eb', 'false_alarm' or 'quiet', got {kind!r}",
            "inject planets into a quiet or false_alarm star",
        )
    frame_rng, base_rng, kind_rng = map(np.random.default_rng, rng.integers(2**63, size=3))
    star = draw_star(frame_rng)
    frame = draw_frame(frame_rng, star.kepmag)
    quarters = instrument.draw_quarters(frame_rng)
    level, dilution = quarters.per_cadence()
    noise = _noise(frame_rng, star)
    error_scatter = 0.004 * frame_rng.standard_normal(4)[mission().quarter - 10]

    intrinsic = 1.0 + _stellar_variability(base_rng, star, frame.time_days)
    systematics = _instrumental(base_rng, noise.white_ppm, frame.quality)
    signal: Signal | None = None
    if kind == "eb":
        pair, signal = _eclipsing(kind_rng, star, frame.time_days)
        intrinsic *= pair
    elif kind == "false_alarm":
        at = Circumstances(star, noise.cdpp6_ppm, frame.quality)
        effect, signal = draw_false_alarm(kind_rng, at)
        systematics += effect
    seen = 1.0 + (1.0 - dilution) * (intrinsic - 1.0)
    # Photon noise follows the light that is left in an eclipse.
    relative = seen * (1.0 + systematics + noise.red) + noise.white * np.sqrt(
        np.maximum(seen, 0.05)
    )
    curve = _light_curve(star, frame, relative, level, noise.white_ppm, error_scatter)
    return SimulatedStar(curve, kind, signal)
