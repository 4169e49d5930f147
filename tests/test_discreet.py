"""Errors of a task's hooks: what happened stays, what the variables held goes."""

from __future__ import annotations

import asyncio
import inspect
import logging

import pytest
from verifiers.v1.utils.decorators import discover_decorated
from verifiers.v1.utils.loaders import load_taskset

from transitbench.errors import TransitBenchError
from transitbench_env.discreet import discreet
from transitbench_env.log import logger
from transitbench_env.survey import SurveyConfig, SurveyTask


def frames(error: BaseException) -> list[str]:
    """Functions whose variables a log could show, of an error and of all that led to it."""
    names = []
    trace = error.__traceback__
    while trace:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    for cause in (error.__cause__, error.__context__):
        names += frames(cause) if cause else []
    return names


@discreet
async def hook(answer: str, ends_with: BaseException) -> None:
    try:
        int(answer[:0])
    except ValueError as problem:
        raise ends_with from problem


@pytest.mark.parametrize(
    "ends_with",
    [
        TransitBenchError("TB-E007", "what", "hint"),
        ExceptionGroup("several", [ValueError("one")]),
        asyncio.CancelledError(),
    ],
)
def test_errors_leave_without_frames(ends_with: BaseException) -> None:
    async def caller() -> BaseException:
        try:
            await hook("the answer", ends_with)
        except BaseException as error:
            return error
        raise AssertionError("nothing was raised")

    error = asyncio.run(caller())
    assert error is ends_with
    assert isinstance(error.__cause__, ValueError)
    assert "hook" not in frames(error)


def test_the_log_says_where_but_not_with_what(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("verifiers.v1"), "propagate", True)
    with caplog.at_level(logging.WARNING, logger.name), pytest.raises(TransitBenchError):
        asyncio.run(hook("the answer", TransitBenchError("TB-E007", "what", "hint")))
    assert "raise ends_with from problem" in caplog.text
    assert "TB-E007" in caplog.text
    assert "the answer" not in caplog.text


def test_a_hook_that_works_is_left_alone() -> None:
    @discreet
    async def works(trace: int, runtime: str = "box") -> str:
        return f"{trace} {runtime}"

    assert asyncio.run(works(1)) == "1 box"
    # The framework gives a hook what its signature asks for.
    assert list(inspect.signature(works).parameters) == ["trace", "runtime"]


@pytest.mark.parametrize("name", ["setup", "graded", "validate"])
def test_hooks_that_see_the_truth_are_discreet(name: str) -> None:
    inner = getattr(getattr(SurveyTask, name), "__wrapped__", None)
    assert inspect.iscoroutinefunction(inner)
    assert getattr(SurveyTask, name).__code__ is hook.__code__


def test_grading_is_still_a_metric() -> None:
    task = next(iter(load_taskset(SurveyConfig(id="transitbench-survey"))))
    assert [each.__name__ for each in discover_decorated(task, "metric")] == ["graded"]
