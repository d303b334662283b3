"""Bounds on what runs in other processes count only time in which this one was awake."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.pipeline.spark.patience import Patience, done_within
from tests.support.clocks import LoopClock, ManualClock


def over_after(steps: list[float], seconds: float) -> float | None:
    """Return the time at which a bound of *seconds* has passed, asked after each of *steps*; None where it has not."""
    clock = ManualClock()
    patience = Patience(seconds, clock)
    for step in steps:
        clock.advance(step)
        if patience.is_over():
            return clock.now_s
    return None


@pytest.mark.parametrize(
    ("steps", "over_at"),
    [
        pytest.param([1.0] * 40, 30.0, id="awake all the time"),
        pytest.param([1.0] * 10 + [100.0] + [1.0] * 40, 130.0, id="a gap does not count"),
        pytest.param([1.0] * 29 + [100.0] + [1.0] * 40, 139.0, id="after a gap there is time for what woke up, too"),
        pytest.param([4.0] * 10, 32.0, id="a slow loop counts"),
    ],
)
def test_a_bound_counts_time_awake(steps: list[float], over_at: float) -> None:
    """Whatever was waited for may have stood still with us; it gets the time that it had left, and some."""
    assert over_after(steps, 30.0) == over_at


async def test_a_job_goes_on_that_is_not_done_in_time() -> None:
    """The caller learns that the time is over; the job itself is not cancelled."""
    job = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(7, job.set_result, "done")

    assert not await done_within(job, 5, LoopClock())
    assert await done_within(job, 5, LoopClock())
    assert job.result() == "done"
