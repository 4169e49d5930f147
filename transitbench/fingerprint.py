"""Digests of content that two computers agree on although their last bits differ.

``exp``, ``sin`` and FFTs may differ in the last bit between CPUs and library builds, and one such
bit would change a plain sha256. The digests here hash integers exactly (cadences, quarters, quality
flags, the pattern of missing flux) and real numbers only after rounding coarse averages: a relative
error of 1e-15 moves a block mean rounded to 1e-6 across a rounding edge with a probability of about
1e-9, for some 1e5 block means in a set. A change of any substance (another seed, noise level, transit
or gap) moves the rounded values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transitbench.lightcurve import LightCurve
from transitbench.truth import Truth, truth_to_json

BLOCK_CADENCES = 256
RELATIVE_GRID = 1e-6
TIME_GRID_DAYS = 1e-4
TRUTH_DIGITS = 5


def sha256_hex(data: bytes) -> str:
    """Return the sha256 of ``data`` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _rounded(values: NDArray[np.float64], grid: float) -> bytes:
    return np.rint(values / grid).astype("<i8").tobytes()


def _block_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array(
        [values[i : i + BLOCK_CADENCES].mean() for i in range(0, values.size, BLOCK_CADENCES)]
    )


def light_curve_fingerprint(light_curve: LightCurve) -> str:
    """Return the arithmetic-robust sha256 of one star's light curve (see the module docstring)."""
    finite = light_curve.finite
    flux = light_curve.flux.astype(np.float64)
    level = float(np.median(np.abs(flux[finite])))
    digest = hashlib.sha256()
    for exact in (light_curve.cadenceno, light_curve.quality, light_curve.quarter, finite):
        digest.update(np.ascontiguousarray(exact).tobytes())
    for quarter in np.unique(light_curve.quarter):
        rows = finite & (light_curve.quarter == quarter)
        if not rows.any():
            continue
        relative = flux[rows] / level
        digest.update(_rounded(_block_means(relative), RELATIVE_GRID))
        scatter = np.sqrt(np.mean(np.diff(relative) ** 2)) if relative.size > 1 else 0.0
        digest.update(_rounded(np.array([scatter]), RELATIVE_GRID))
        digest.update(_rounded(light_curve.time[rows][[0, -1]], TIME_GRID_DAYS))
    return digest.hexdigest()


def truth_fingerprint(truth: Truth) -> str:
    """Return the sha256 of a truth whose numbers are rounded to :data:`TRUTH_DIGITS` digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.{TRUTH_DIGITS - 1}e}"
        if isinstance(value, Mapping):
            return {key: rounded(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [rounded(item) for item in value]
        return value

    document = rounded(truth_to_json(truth))
    return sha256_hex(json.dumps(document, sort_keys=True).encode())
