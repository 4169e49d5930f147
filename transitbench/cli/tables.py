"""Result tables for people, made from the JSON objects that machines get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

_SHARES = (
    ("eb_as_planet", "eclipsing binaries called planets"),
    ("false_alarm_as_planet", "false-alarm stars called planets"),
    ("quiet_as_planet", "quiet stars called planets"),
)


def _value(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _interval(bounds: list[float | None] | None, digits: int) -> str:
    if bounds is None or None in bounds:
        return ""
    low, high = bounds
    return f"{_value(low, digits)} … {_value(high, digits)}"


def score_table(document: Mapping[str, Any], title: str) -> Table:
    """Return S, completeness, false candidates and shares per kind, each with its 95 % interval."""
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    rows: list[tuple[str, str, int]] = [
        ("S", "[bold]S = (credit − false) / planets[/]", 3),
        ("C", "C, planets found (full or half credit)", 3),
        ("F_per_100", "F, false candidates per 100 stars", 1),
        *((key, label, 3) for key, label in _SHARES),
    ]
    for key, label, digits in rows:
        interval = _interval(document.get(f"{key}_ci95"), digits)
        table.add_row(label, _value(document[key], digits), interval)
    return table


def score_summary(document: Mapping[str, Any]) -> str:
    """Return one line of counts under the table."""
    statuses = document.get("statuses") or {}
    failed = ", ".join(f"{n} {status}" for status, n in statuses.items() if n and status != "ok")
    return (
        f"{document['n_stars']} stars, {document['n_planets']} planets, "
        f"credit {document['credit']:g}, false candidates {document['n_false']}"
        + (f"; failed runs: {failed}" if failed else "")
    )
