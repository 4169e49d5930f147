"""Brightness, photon and read noise, the CDPP a star should have, and the grid its flux is rounded to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transitbench.sim.facts import table

INTEGRATION_S = 270 * 6.02
"""Time on target per long cadence: 270 exposures of 6.02 s."""
FLUX_AT_KP12 = 2.19e5
"""Median PDCSAP flux at Kp 12 in e⁻/s of 53 ordinary stars (Q9–Q10), which scatter by 7 %."""
CADENCES_PER_6H = 12.234

QUANTIZATION_PPM = 2.0
ERROR_GRID = 1e-4
"""Grid of the stated errors, relative to their size."""


def mean_flux_e_per_s(kepmag: float) -> float:
    """PDCSAP flux of a star, e⁻/s: F = F₁₂ · 10^(−0.4 (Kp − 12))."""
    return float(FLUX_AT_KP12 * 10 ** (-0.4 * (kepmag - 12.0)))


def pixel_variance_e2(kepmag: float) -> float:
    """Variance per cadence that does not come from the star's photons: read-out, background, digitisation.

    2.6 · 10⁷ e⁻² at Kp 15.5 (ten pixels, ~100 e⁻ a read, 270 reads), growing with the aperture as
    10^(0.2 (15.5 − Kp)). Fitted to ``flux_err`` of ordinary stars between Kp 12 and 16.
    """
    return float(2.6e7 * 10 ** (0.2 * (15.5 - kepmag)))


def shot_noise_ppm(kepmag: float) -> float:
    """White noise per long cadence in ppm: √(N + pixel variance) / N for N collected electrons."""
    electrons = mean_flux_e_per_s(kepmag) * INTEGRATION_S
    return float(1e6 * np.sqrt(electrons + pixel_variance_e2(kepmag)) / electrons)


def draw_cdpp6_ppm(rng: np.random.Generator, kepmag: float) -> float:
    """6-hour CDPP that white noise and red noise of a star without other signals add up to.

    Drawn from the quantiles of ``stellar_cdpp_quarters`` at this magnitude. The table's upper quarter
    belongs to spotted and pulsating stars, whose signals are added separately; so the draw ends a
    little above the table's third quartile.
    """
    centres, quantiles = table("cdpp6_kepmag"), table("cdpp6_quantiles_ppm")
    five, quarter, half, three = (np.interp(kepmag, centres, np.log(q)) for q in quantiles.T)
    edges = [five - 0.5 * (quarter - five), five, quarter, half, three, three + 0.1]
    log_cdpp = np.interp(rng.random(), [0.0, 0.07, 0.33, 0.65, 0.97, 1.0], edges)
    # The table ends at Kp 15.5 and starts at 11; beyond them the noise follows the photons.
    inside = float(np.clip(kepmag, centres[0], centres[-1]))
    scale = shot_noise_ppm(kepmag) / shot_noise_ppm(inside)
    return float(np.exp(log_cdpp) * scale)


WHITE_SHARE_KEPMAG = (11.0, 12.0, 13.0, 14.0, 15.0, 15.5)
WHITE_SHARE = (0.46, 0.50, 0.57, 0.68, 0.80, 0.84)


def draw_white_noise_ppm(
    rng: np.random.Generator, kepmag: float, white_equivalent_ppm: float
) -> float:
    """Standard deviation of the uncorrelated noise per cadence, ppm.

    Its share of the total follows from how CDPP falls from 3 to 6 h in ``stellar_cdpp_quarters`` (by 1.31
    at Kp 15.5, 1.14 at Kp 12; by √2 if all were white): a star that is noisier than others of its
    magnitude (crowded, badly placed) has more of both kinds. Never below 0.92 of the shot noise.

    Parameters
    ----------
    kepmag
        Kp in mag.
    white_equivalent_ppm
        White noise per cadence that alone would give the star's whole 6-hour CDPP.
    """
    share = np.interp(kepmag, WHITE_SHARE_KEPMAG, WHITE_SHARE) * np.exp(
        0.04 * rng.standard_normal()
    )
    white = min(share, 0.97) * white_equivalent_ppm
    return float(max(white, 0.92 * shot_noise_ppm(kepmag)))


def flux_error_e_per_s(
    flux_e_per_s: NDArray[np.float64], white_ppm: float, scatter: NDArray[np.float64]
) -> NDArray[np.float64]:
    """1-σ error per cadence as the pipeline states it, e⁻/s, rounded to a grid like the flux.

    Stated errors are 5 % below the scatter from cadence to cadence (median of 53 ordinary stars).

    Parameters
    ----------
    flux_e_per_s
        Level of the star in each cadence (without its variability: errors must not show an eclipse).
    white_ppm
        White noise per cadence.
    scatter
        Relative deviation of the stated error (background, aperture), shape of ``flux_e_per_s``.
    """
    error = flux_e_per_s * (white_ppm * 1e-6 / 1.05) * (1.0 + scatter)
    step = grid_step(float(error[0]), ERROR_GRID)
    return np.asarray(np.round(error / step) * step)


def grid_step(level: float, relative: float) -> float:
    """Return the power of two nearest (in the logarithm) to ``relative · level``."""
    return float(2.0 ** np.round(np.log2(relative * level)))


def quantize_flux(flux_e_per_s: NDArray[np.float64], level_e_per_s: float) -> NDArray[np.float32]:
    """Round flux to a grid: a power of two e⁻/s close to 2 ppm of the star's level.

    Digests of simulated sets are compared between machines, but the last bit of exp, sin or an FFT
    depends on the processor's vector unit. A relative difference of 2⁻⁵³ ≈ 10⁻¹⁶ moves a value across
    the middle between two grid points, which are 2 · 10⁻⁶ apart, with a probability of about 10⁻¹⁰; so
    one star in a million would differ where without the grid each would. A power of two keeps every
    grid point below 2²⁴ steps exact in float32. The rounding noise, 0.6 ppm, is far below any star's.

    Parameters
    ----------
    flux_e_per_s
        Flux, NaN where missing.
    level_e_per_s
        Level of the star; must itself be drawn, not measured from ``flux_e_per_s``.
    """
    step = grid_step(level_e_per_s, QUANTIZATION_PPM * 1e-6)
    return np.asarray(np.round(flux_e_per_s / step) * step, dtype=np.float32)
