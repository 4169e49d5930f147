"""Error codes are an interface: known, documented, and they survive a process boundary."""

from __future__ import annotations

import pickle
import re

import pytest
from conftest import REPOSITORY

from transitbench.errors import ERROR_TITLES, TransitBenchError


def test_every_code_is_documented_with_its_title() -> None:
    documented = dict(
        re.findall(
            r"^\| (TB-E\d{3}) \| ([^|]+) \|", (REPOSITORY / "docs/errors.md").read_text(), re.M
        )
    )
    assert documented == ERROR_TITLES


def test_every_code_raised_in_the_package_is_known() -> None:
    raised = set()
    for folder in ("transitbench", "transitbench_env", "scripts"):
        for path in (REPOSITORY / folder).rglob("*.py"):
            raised |= set(re.findall(r'"(TB-E\d{3})"', path.read_text()))
    assert {"TB-E001", "TB-E016"} <= raised <= set(ERROR_TITLES)


def test_message_says_what_and_what_next() -> None:
    error = TransitBenchError("TB-E008", "expected a set, got 'x'", "see the list")
    assert str(error) == "TB-E008 unknown set or task: expected a set, got 'x' → see the list"


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(TransitBenchError("TB-E010", "what", "hint")))
    assert (error.code, error.what, error.hint) == ("TB-E010", "what", "hint")


def test_unknown_code_is_refused() -> None:
    with pytest.raises(KeyError):
        TransitBenchError("TB-E999", "what", "hint")
