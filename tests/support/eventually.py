"""The one way in which tests wait: poll a condition until it holds, and say what was seen when it never did."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from mm2py.errors import ClusterUnreachableError


T = TypeVar("T")

#: Slow machines stretch every deadline by this factor, and so do tests that run beside each other.
SLOWNESS = float(os.environ.get("MM2PY_TEST_SLOWNESS") or (4 if "PYTEST_XDIST_WORKER" in os.environ else 1))


def scaled(seconds: float) -> float:
    """Stretch a deadline on slow machines: only a failure lasts so long."""
    return seconds * SLOWNESS


def long_enough(seconds: float) -> float:
    """Stretch, by half as much, what a test waits out in any case, as the silence that counts as a hang."""
    return seconds * max(1.0, SLOWNESS / 2)


@overload
async def eventually(
    condition: Callable[[], Awaitable[T | None]], *, within_s: float, what: str, every_s: float = 0.1
) -> T: ...


@overload
async def eventually(condition: Callable[[], T | None], *, within_s: float, what: str, every_s: float = 0.1) -> T: ...


async def eventually(condition: Callable[[], Any], *, within_s: float, what: str, every_s: float = 0.1) -> Any:
    """
    Poll *condition* until it gives something true, and return that.

    An `AssertionError` inside the condition means "not yet", and so does a cluster that does not answer for a moment;
    any other error is the test's failure at once.
    """
    loop = asyncio.get_running_loop()
    limit_s = scaled(within_s)
    deadline = loop.time() + limit_s
    while True:
        seen: object
        try:
            answer = condition()
            value = await answer if inspect.isawaitable(answer) else answer
        except (AssertionError, ClusterUnreachableError) as error:
            seen = error
        else:
            if value:
                return value
            seen = value
        if loop.time() > deadline:
            message = f"not within {limit_s:g} s: {what}; last seen: {seen!r}"
            raise AssertionError(message)
        await asyncio.sleep(every_s)
