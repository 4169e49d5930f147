"""Which stars Kepler looked at: magnitude, temperature, gravity, radius, mass, consistent with each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from transitbench.sim.facts import table

SOLAR_TEFF_K = 5772.0
SOLAR_LOGG_CGS = 4.438
SOLAR_NU_MAX_UHZ = 3090.0

GIANT_SHARE, SUBGIANT_SHARE, HOT_SHARE = 0.06, 0.08, 0.09
UNKNOWN_SHARE = 0.04
"""Stars without parameters in the input catalogue (3 of 53 ordinary stars of the real sample)."""


@dataclass(frozen=True)
class Star:
    """What the star is: Kp in mag, Teff in K, logg in dex (cgs), radius in R☉, mass in M☉."""

    kepmag: float
    teff: float
    logg: float
    radius: float
    mass: float
    catalogued: bool

    @property
    def nu_max_uhz(self) -> float:
        """Frequency of maximum oscillation power, ∝ g/√Teff (Kjeldsen & Bedding 1995)."""
        gravity = 10 ** (self.logg - SOLAR_LOGG_CGS)
        return float(SOLAR_NU_MAX_UHZ * gravity / np.sqrt(self.teff / SOLAR_TEFF_K))

    @property
    def is_giant(self) -> bool:
        """Whether its oscillations fall below the long-cadence Nyquist frequency, 283 µHz."""
        return self.nu_max_uhz < 250.0

    @property
    def is_hot(self) -> bool:
        """Whether it lies where δ Scuti and γ Doradus stars are found, 6,600–8,500 K on the main sequence."""
        return self.teff > 6600.0 and self.logg > 3.5


def draw_kepmag(rng: np.random.Generator) -> float:
    """Kp from the quantiles of ``stellar_cdpp_quarters`` (median 14.5; 40 % within 15–16)."""
    quantiles = table("kepmag_quantiles")
    kepmag = np.interp(rng.random(), np.linspace(0, 1, quantiles.size), quantiles)
    return round(float(kepmag), 3)


def draw_star(rng: np.random.Generator) -> Star:
    """One star of the Kepler field.

    Dwarfs scatter around 5,650 K; hot dwarfs (9 %), subgiants (8 %) and giants (6 %) complete the
    mixture. Mass follows T ∝ M^0.55 on the main sequence, logg falls from the zero-age value
    4.6 − 0.7 log M (1.2 above 1 M☉) by evolution, and R² = M · 10^(4.438 − logg), so density and gravity agree.
    Values are rounded as catalogues round them.
    """
    kepmag = draw_kepmag(rng)
    kind, unknown = rng.random(2)
    z_teff, z_logg, z_mass = rng.standard_normal(3)
    evolution = rng.random()
    if kind < GIANT_SHARE:
        teff, logg = 4850.0 + 180.0 * z_teff, 2.3 + 1.0 * evolution
        mass = 1.2 * np.exp(0.2 * z_mass)
    else:
        if kind < GIANT_SHARE + HOT_SHARE:
            teff = 6500.0 + 650.0 * abs(z_teff)
        else:
            teff = 5650.0 + 480.0 * z_teff
        teff = float(np.clip(teff, 3300.0, 8500.0))
        mass = (teff / SOLAR_TEFF_K) ** (1 / 0.55) * np.exp(0.06 * z_mass)
        zero_age = 4.6 - (0.7 if mass < 1.0 else 1.2) * np.log10(mass)
        subgiant = GIANT_SHARE + HOT_SHARE <= kind < GIANT_SHARE + HOT_SHARE + SUBGIANT_SHARE
        drop = 0.5 + 0.4 * evolution if subgiant else 0.3 * evolution * min(mass, 1.0) ** 2
        logg = zero_age - drop + 0.02 * z_logg
    mass = round(float(mass), 3)
    logg = round(float(logg), 3)
    radius = round(float(np.sqrt(mass * 10 ** (SOLAR_LOGG_CGS - logg))), 3)
    return Star(kepmag, float(round(teff)), logg, radius, mass, bool(unknown > UNKNOWN_SHARE))
