"""``truth.json``: round trips, stable bytes, and a code for whatever is wrong with it."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from star_cases import planet_of

from transitbench.ephemeris import Ephemeris
from transitbench.errors import TransitBenchError
from transitbench.truth import (
    Signal,
    StarTruth,
    read_truth,
    truth_from_json,
    truth_to_json,
    write_truth,
)

TRUTH = {
    "sb": StarTruth(
        "planet",
        (planet_of(Ephemeris(3.3, 907.1, 2.5)), planet_of(Ephemeris(9.9, 1e3 / 3, 4.0), 8.25)),
        None,
        (Ephemeris(50.0, 910.0, 6.0),),
    ),
    "sa": StarTruth("eb", (), Signal(1.7, 906.9, 21000.0, "detached binary")),
    "sc": StarTruth("quiet"),
}


def test_truth_survives_the_file_and_its_bytes_do_not_depend_on_order(tmp_path: Path):
    write_truth(tmp_path / "truth.json", TRUTH)
    assert read_truth(tmp_path / "truth.json") == TRUTH
    write_truth(tmp_path / "again.json", dict(reversed(TRUTH.items())))
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "truth.json").read_bytes()


def test_an_unknown_quantity_is_null_in_the_file_and_nan_in_memory(tmp_path: Path):
    truth = {"s": StarTruth("planet", (planet_of(Ephemeris(3.3, 907.1, 2.5), math.nan),))}
    write_truth(tmp_path / "truth.json", truth)
    assert '"mes": null' in (tmp_path / "truth.json").read_text()
    assert math.isnan(read_truth(tmp_path / "truth.json")["s"].planets[0].mes)


def test_the_form_is_that_of_the_specification():
    document = truth_to_json(TRUTH)
    assert document["schema"] == 1
    assert set(document["stars"]["sb"]["planets"][0]) == {
        "period_days",
        "t0_days",
        "duration_hours",
        "depth_ppm",
        "rp_rs",
        "a_rs",
        "impact",
        "n_transits",
        "mes",
    }
    assert document["stars"]["sc"] == {"kind": "quiet", "planets": [], "signal": None}


def broken(*path: str | int, value: Any = None) -> Any:
    document = copy.deepcopy(truth_to_json(TRUTH))
    at = document
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return document


@pytest.mark.parametrize(
    "document",
    [
        [],
        None,
        {"schema": 1},
        broken("schema", value=2),
        broken("stars", value=[1]),
        broken("stars", "sc", "kind", value="comet"),
        broken("stars", "sc", "kind"),
        broken("stars", "sc", "kind", value="planet"),
        broken("stars", "sb", "kind", value="eb"),
        broken("stars", "sb", "planets", 0, "mes"),
        broken("stars", "sb", "planets", 0, "colour", value="red"),
        broken("stars", "sb", "planets", 0, "period_days", value="long"),
        broken("stars", "sb", "planets", 0, "period_days", value=-3.0),
        broken("stars", "sb", "planets", 0, "period_days", value=1e-6),
        broken("stars", "sb", "planets", 0, "t0_days", value=math.nan),
        broken("stars", "sb", "planets", 0, "duration_hours", value=1000.0),
        broken("stars", "sb", "planets", 0, "n_transits", value=math.inf),
        broken("stars", "sb", "ignored", 0, "period_days", value="long"),
        broken("stars", "sb", "ignored", 0, "t0_days", value=math.inf),
        broken("stars", "sa", "signal", "cause"),
    ],
)
def test_a_truth_off_the_schema_is_refused(document: Any):
    with pytest.raises(TransitBenchError, match=r"TB-E015.*here"):
        truth_from_json(document, "here")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_json_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "truth.json").write_bytes(content)
    with pytest.raises(TransitBenchError, match=r"TB-E015.*truth\.json"):
        read_truth(tmp_path / "truth.json")


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(TransitBenchError, match="TB-E015"):
        read_truth(tmp_path / "truth.json")


def test_json_numbers_are_strict(tmp_path: Path):
    write_truth(tmp_path / "truth.json", TRUTH)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads((tmp_path / "truth.json").read_text(), parse_constant=refuse)
