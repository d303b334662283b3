"""Run, pause, run again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from mm2py.connectors.supervise import leaves, supervise
from mm2py.errors import Mm2Error
from mm2py.telemetry.events import TaskRestarted
from tests.support.clocks import LoopClock
from tests.support.flow_rig import HopelessError


async def run(body: Callable[[], Awaitable[None]]) -> list[TaskRestarted]:
    """Supervise *body* with pauses of 1, 2, 4 … seconds; return what was reported."""
    reports: list[TaskRestarted] = []
    await supervise("A->B", body, clock=LoopClock(), jitter=lambda: 0.5, report=reports.append)
    return reports


def failing(times: int, error: Exception, *, after_s: float = 0.0) -> Callable[[], Awaitable[None]]:
    """Make a body that fails so many times, each time after a while, and then returns."""
    left = [error] * times

    async def body() -> None:
        await asyncio.sleep(after_s)
        if left:
            raise left.pop()

    return body


async def test_it_returns_with_its_body() -> None:
    """A body that ends well is not run again."""
    assert await run(failing(0, ValueError())) == []


async def test_bugs_and_errors_are_tried_again() -> None:
    """After a failure the body runs again, after pauses that grow; a bug keeps its traceback, an error needs none."""
    bugs = await run(failing(3, ValueError("no")))
    errors = await run(failing(1, Mm2Error("no")))

    assert [report.pause_s for report in bugs] == [1.0, 2.0, 4.0]
    assert bugs[0].causes == ("ValueError: no",)
    assert "Traceback" in bugs[0].exception
    assert errors[0].exception == ""


async def test_a_healthy_stretch_is_forgiven() -> None:
    """A failure long after the last one pauses like the first."""
    reports = await run(failing(3, ValueError(), after_s=3_600))

    assert [report.pause_s for report in reports] == [1.0, 1.0, 1.0]


async def test_every_failure_of_a_group_is_told() -> None:
    """Failures inside nested task groups are all named."""
    group = ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [KeyError("b"), Mm2Error("c")])])

    (report,) = await run(failing(1, group))

    assert report.causes == ("ValueError: a", "KeyError: 'b'", "Mm2Error: c")
    assert len(list(leaves(group))) == 3


async def test_what_must_stop_stops() -> None:
    """An error that says so ends the supervision, by itself and at once."""
    with pytest.raises(HopelessError):
        await run(failing(1, ExceptionGroup("group", [HopelessError()])))


async def test_cancellation_passes_through() -> None:
    """Cancelling the supervisor cancels its body and reports nothing."""
    ended = []

    async def body() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(True)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await run(body)

    assert ended == [True]


async def test_a_failure_in_the_midst_of_a_cancellation_restarts_nothing() -> None:
    """A task that fails as it is cancelled does not keep its supervisor, and with it the daemon, from ending."""
    begun = []

    async def fail_when_cancelled() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            raise ValueError

    async def body() -> None:
        begun.append(True)
        async with asyncio.TaskGroup() as tasks:
            if len(begun) == 1:
                tasks.create_task(fail_when_cancelled())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await run(body)

    assert begun == [True]


async def test_a_task_that_fails_at_the_end_of_its_group_is_run_again_and_can_be_cancelled() -> None:
    """Before Python 3.13 such a failure leaves the group's task as if it had been cancelled."""
    begun = []

    async def fail() -> None:
        raise ValueError

    async def body() -> None:
        begun.append(True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail() if len(begun) < 3 else asyncio.sleep(3_600))

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await run(body)

    assert len(begun) == 3
