"""Comparing slices as a Spark task."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from mm2py.clock import SystemClock
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.spark.worker import this_worker, uncollected
from mm2py.verify.slice import compare_slice
from mm2py.verify.values import SliceOutcome, VerifyPlan


_MOVES_EVERY_S: Final = 1.0


def compare_slices(payloads: Iterable[bytes]) -> list[SliceOutcome]:
    """Compare the slices of the sealed plans in *payloads*; nothing is written, so Spark may do it again."""
    worker, clock = this_worker(), SystemClock()
    outcomes: list[SliceOutcome] = []
    for payload in payloads:
        plan: VerifyPlan = unseal(payload)
        clusters = worker.state.cluster(plan.source, clock), worker.state.cluster(plan.target, clock)
        for part in plan.slices:
            with uncollected(), _moving(worker.runner.get_loop()):
                outcomes.append(worker.run(compare_slice(plan, part, clusters)))
    return outcomes


@contextmanager
def _moving(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Wake up every second, whatever is waited for: who does not move is taken for one that hangs (`Stillness`)."""
    timers: list[asyncio.TimerHandle] = []

    def wake() -> None:
        timers[:] = [loop.call_later(_MOVES_EVERY_S, wake)]

    wake()
    try:
        yield
    finally:
        timers[0].cancel()
