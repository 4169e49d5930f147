"""Errors that say what happened and not what the variables held.

The framework's commands write tracebacks to their logs with the values of the variables in each line. In
the hooks of a task these are the hidden truth and the evaluator's secret.
"""

from __future__ import annotations

import functools
import traceback
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from transitbench_env.log import logger

P = ParamSpec("P")
T = TypeVar("T")


def discreet(hook: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Decorate a hook: what it raises leaves it without frames. An error's are logged here, without values."""

    @functools.wraps(hook)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await hook(*args, **kwargs)
        except BaseException as error:
            if isinstance(error, Exception):
                logger.warning("%s failed\n%s", hook.__name__, traceback.format_exc().rstrip())
            _drop_frames(error)
            raise

    return guarded


def _drop_frames(error: BaseException) -> None:
    """Take the frames off an error, and off those that led to it."""
    pending, seen = [error], set[int]()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = None
        pending += [cause for cause in (each.__cause__, each.__context__) if cause is not None]
        if isinstance(each, BaseExceptionGroup):
            pending += each.exceptions
