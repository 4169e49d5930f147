"""What a check found: the common record of ``check`` and ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["pass", "note", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule, whether it holds (``note``: it holds, but look at this), and what was seen."""

    level: Level
    rule: str
    text: str
