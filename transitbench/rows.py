"""Kept candidate rows as CSV, ``star,period_days,t0_days,score``: the form in which they travel.

A star's rows are an array of shape ``(n, 3)``, columns period_days, t0_days, score, best first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from transitbench.ephemeris import FloatArray
from transitbench.errors import TransitBenchError
from transitbench.match import MAX_ROWS

HEADER = "star,period_days,t0_days,score"


def keep_best(rows: FloatArray) -> FloatArray:
    """Return the (at most) three rows of highest score, best first; of equal scores the first printed.

    Raises
    ------
    TransitBenchError
        TB-E014 if the rows are not of shape ``(n, 3)`` or hold a number that is not finite.
    """
    rows = np.asarray(rows, dtype=np.float64)
    if rows.size == 0:
        return np.empty((0, 3))
    if rows.ndim != 2 or rows.shape[1] != 3 or not np.isfinite(rows).all():
        raise TransitBenchError(
            "TB-E014",
            f"expected rows of finite [period_days, t0_days, score], got {rows.tolist()}",
            "drop rows that do not parse before choosing the best",
        )
    return rows[np.argsort(-rows[:, 2], kind="stable")[:MAX_ROWS]]


def _parse(line: str) -> tuple[str, tuple[float, float, float]]:
    fields = [text.strip() for text in line.split(",")]
    if len(fields) != 4:
        raise ValueError(f"{len(fields)} fields instead of 4")
    star = fields[0]
    if not star:
        raise ValueError("no star")
    if "_" in "".join(fields[1:]):
        raise ValueError("a number with '_'")
    period_days, t0_days, score = (float(text) for text in fields[1:])
    if not all(math.isfinite(value) for value in (period_days, t0_days, score)):
        raise ValueError("a number that is not finite")
    if period_days <= 0:
        raise ValueError("a period that is not positive")
    return star, (period_days, t0_days, score)


def read_rows_csv(path: str | Path) -> dict[str, FloatArray]:
    """Read kept rows; per star the best three, best first. Blank lines are ignored.

    Raises
    ------
    TransitBenchError
        TB-E014 if the file cannot be read, has another header, or has a line that is not a star and
        three finite numbers with a positive period; the message gives the line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise TransitBenchError(
            "TB-E014", f"cannot read {path} ({problem})", f"give a CSV file with header {HEADER}"
        ) from problem
    if not lines or lines[0].strip() != HEADER:
        got = lines[0][:200] if lines else "an empty file"
        raise TransitBenchError(
            "TB-E014",
            f"{path} line 1: expected the header {HEADER}, got {got!r}",
            "add the header line",
        )
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            star, row = _parse(line)
        except ValueError as problem:
            raise TransitBenchError(
                "TB-E014",
                f"{path} line {number} {line[:200]!r}: {problem}",
                f"every line needs {HEADER}, three finite numbers and a period above 0",
            ) from problem
        rows.setdefault(star, []).append(row)
    return {star: keep_best(np.array(of_star)) for star, of_star in rows.items()}


def write_rows_csv(path: str | Path, rows: Mapping[str, FloatArray]) -> None:
    """Write kept rows sorted by star, best first; same rows, same bytes, exact when read back.

    Raises
    ------
    TransitBenchError
        TB-E014 for what :func:`read_rows_csv` would refuse.
    """
    lines = [HEADER]
    for star in sorted(rows):
        for row in keep_best(rows[star]).tolist():
            line = ",".join((star, *map(repr, row)))
            try:
                is_same = _parse(line)[0] == star and len(line.splitlines()) == 1
            except ValueError as problem:
                raise TransitBenchError(
                    "TB-E014", f"cannot write {line!r}: {problem}", "drop the row before writing"
                ) from problem
            if not is_same:
                raise TransitBenchError(
                    "TB-E014",
                    f"star name {star!r} does not survive a CSV file",
                    "name stars without commas, line breaks and outer blanks",
                )
            lines.append(line)
    Path(path).write_bytes(("\n".join(lines) + "\n").encode())
