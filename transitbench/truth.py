"""What is hidden in a set's stars: kinds, injected planets, known signals (``truth.json``)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from transitbench.ephemeris import LONG_CADENCE_DAYS, Ephemeris
from transitbench.errors import TransitBenchError

TRUTH_SCHEMA = 1

Kind = Literal["planet", "eb", "false_alarm", "quiet"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Planet:
    """One planet that a search should find. Depth and MES are those of the light curve it sits in.

    ``a_rs`` is the scaled semi-major axis a/R★, ``rp_rs`` the radius ratio, ``impact`` the impact
    parameter b. Quantities that a catalogue does not give are NaN (``null`` in the file).
    """

    period_days: float
    t0_days: float
    duration_hours: float
    depth_ppm: float
    rp_rs: float
    a_rs: float
    impact: float
    n_transits: int
    mes: float

    @property
    def ephemeris(self) -> Ephemeris:
        """Period, epoch and duration."""
        return Ephemeris(self.period_days, self.t0_days, self.duration_hours)


@dataclass(frozen=True, slots=True)
class Signal:
    """What is known of an impostor (for reports only; reporting it is still a false candidate)."""

    period_days: float
    t0_days: float
    depth_ppm: float
    cause: str


@dataclass(frozen=True, slots=True)
class StarTruth:
    """The truth of one star. ``ignored`` holds ephemerides that neither earn credit nor count as false."""

    kind: Kind
    planets: tuple[Planet, ...] = ()
    signal: Signal | None = None
    ignored: tuple[Ephemeris, ...] = field(default=())


Truth = Mapping[str, StarTruth]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def truth_to_json(truth: Truth) -> dict[str, Any]:
    """The JSON object of ``truth.json``; NaN becomes ``null``."""
    stars: dict[str, Any] = {}
    for star in sorted(truth):
        entry = truth[star]
        record: dict[str, Any] = {
            "kind": entry.kind,
            "planets": [{k: _number(v) for k, v in asdict(p).items()} for p in entry.planets],
            "signal": None
            if entry.signal is None
            else {
                k: _number(v) if isinstance(v, float) else v
                for k, v in asdict(entry.signal).items()
            },
        }
        if entry.ignored:
            record["ignored"] = [asdict(e) for e in entry.ignored]
        stars[star] = record
    return {"schema": TRUTH_SCHEMA, "stars": stars}


def _is_ephemeris(ephemeris: Ephemeris) -> bool:
    numbers = (ephemeris.period_days, ephemeris.t0_days, ephemeris.duration_hours)
    return (
        all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
        # A shorter period would mean millions of transits and cannot be sampled.
        and ephemeris.period_days >= LONG_CADENCE_DAYS
        and 0 < ephemeris.duration_hours < 24 * ephemeris.period_days
    )


def check_truth(truth: Truth, source: str) -> None:
    """Check what scoring relies on: planets on ``planet`` stars alone, every ephemeris usable.

    Raises
    ------
    TransitBenchError
        TB-E015 naming the star; ``source`` names the truth.
    """
    for star, entry in truth.items():
        problem = None
        if entry.kind not in KINDS:
            problem = f"kind {entry.kind!r}, none of {', '.join(KINDS)}"
        elif bool(entry.planets) != (entry.kind == "planet"):
            problem = "planets without being a planet star, or is one without planets"
        else:
            # By number and without its values: the truth of a hidden set does not belong in a message.
            ephemerides = (*(p.ephemeris for p in entry.planets), *entry.ignored)
            for number, ephemeris in enumerate(ephemerides, start=1):
                if not _is_ephemeris(ephemeris):
                    problem = f"an unusable ephemeris, number {number}"
        if problem:
            raise TransitBenchError(
                "TB-E015",
                f"{source}: star {star} has {problem}",
                "rebuild the set with `transitbench data build`, or fix the file",
            )


def _planet_from_json(record: Mapping[str, Any]) -> Planet:
    values: dict[str, Any] = {k: math.nan if v is None else float(v) for k, v in record.items()}
    return Planet(**{**values, "n_transits": int(record["n_transits"])})


def _signal_from_json(record: Mapping[str, Any]) -> Signal:
    values: dict[str, Any] = {k: math.nan if v is None else v for k, v in record.items()}
    return Signal(**values)


def truth_from_json(document: Any, source: str) -> dict[str, StarTruth]:
    """Parse a ``truth.json`` object; ``source`` names it in errors.

    Raises
    ------
    TransitBenchError
        TB-E015 if the document does not follow the schema.
    """
    try:
        if document["schema"] != TRUTH_SCHEMA:
            raise ValueError(f"schema {document['schema']!r} instead of {TRUTH_SCHEMA}")
        truth: dict[str, StarTruth] = {}
        for star, record in document["stars"].items():
            kind = record["kind"]
            planets = tuple(_planet_from_json(p) for p in record["planets"])
            signal = None if record.get("signal") is None else _signal_from_json(record["signal"])
            ignored = tuple(Ephemeris(**e) for e in record.get("ignored", ()))
            truth[star] = StarTruth(kind, planets, signal, ignored)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as problem:
        raise TransitBenchError(
            "TB-E015",
            f"{source} does not follow truth schema {TRUTH_SCHEMA} ({type(problem).__name__}: {problem})",
            "rebuild the set with `transitbench data build`, or fix the file",
        ) from problem
    check_truth(truth, source)
    return truth


def read_truth(path: Path) -> dict[str, StarTruth]:
    """Read ``truth.json``. Raises TB-E015 if it is missing, no JSON, or off the schema."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as problem:
        raise TransitBenchError(
            "TB-E015",
            f"cannot read {path} ({problem})",
            "rebuild the set with `transitbench data build`",
        ) from problem
    return truth_from_json(document, str(path))


def truth_text(truth: Truth) -> str:
    """Return ``truth.json`` with one star a line: same truth, same text."""
    document = truth_to_json(truth)
    lines = ",\n".join(
        f"{json.dumps(star)}: {json.dumps(record, allow_nan=False, sort_keys=True)}"
        for star, record in document["stars"].items()
    )
    return f'{{"schema": {TRUTH_SCHEMA}, "stars": {{\n{lines}\n}}}}\n'


def write_truth(path: Path, truth: Truth) -> None:
    """Write ``truth.json``; see :func:`truth_text`."""
    path.write_text(truth_text(truth), encoding="utf-8")
