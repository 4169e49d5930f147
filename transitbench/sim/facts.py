"""The committed facts table (``facts.json``, made by ``scripts/build_sim_facts.py``) as typed arrays."""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray


@functools.cache
def facts() -> dict[str, Any]:
    """Parse the facts table once per process."""
    return dict(json.loads(files(__package__).joinpath("facts.json").read_text(encoding="utf-8")))


@functools.cache
def table(name: str) -> NDArray[np.float64]:
    """One numeric entry of the facts table as a read-only float64 array."""
    values = np.array(facts()[name], dtype=np.float64)
    values.flags.writeable = False
    return values
