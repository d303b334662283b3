"""The tests' own clock, loop and waiting."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.clocks import WALL_START_MS, LoopClock, ManualClock
from tests.support.eventually import eventually


async def test_an_hour_costs_nothing() -> None:
    """Sleeping moves virtual time and not the real one."""
    clock = LoopClock()
    before, really = clock.monotonic(), time.perf_counter()
    await clock.sleep(3_600)

    assert clock.monotonic() - before == pytest.approx(3_600)
    assert clock.wall_ms() >= WALL_START_MS + 3_600_000
    assert time.perf_counter() - really < 60


async def test_timeouts_follow_virtual_time() -> None:
    """A deadline passes as soon as there is nothing else to do."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await asyncio.Event().wait()


async def test_a_manual_clock_moves_when_told() -> None:
    """Time stands still until a test advances it or the code sleeps."""
    clock = ManualClock()
    clock.advance(2)
    await clock.sleep(0.5)

    assert (clock.monotonic(), clock.wall_ms()) == (2.5, WALL_START_MS + 2_500)


async def test_eventually_gives_what_the_condition_gave() -> None:
    """Sync and async conditions are polled until they give something true; a failed assertion means not yet."""
    answers = iter([0, None, "", "there"])

    async def slow() -> str:
        await asyncio.sleep(1)
        answer = next(answers)
        assert answer != ""
        return str(answer or "")

    numbers = iter([0, 0, 7])

    assert await eventually(lambda: next(numbers), within_s=10, what="a number") == 7
    assert await eventually(slow, within_s=10, what="a word") == "there"


async def test_eventually_says_what_it_saw_last() -> None:
    """On failure the message carries the wish and the last observation."""
    with pytest.raises(AssertionError, match=r"not within .* s: three sheep; last seen: \[\]"):
        await eventually(list[int], within_s=5, what="three sheep")


async def test_eventually_does_not_hide_errors() -> None:
    """Anything but a failed assertion inside the condition ends the wait at once."""
    with pytest.raises(ZeroDivisionError):
        await eventually(lambda: 1 // 0, within_s=5, what="nonsense")
