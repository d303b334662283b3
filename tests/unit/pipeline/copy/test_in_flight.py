"""How many small requests are under way: as many as keep the target's broker busy, and no more."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.support.clocks import now
from tests.support.sending import Sender, sender, settle


_PARTITIONS = 20


async def _trickle(s: Sender, *, every_s: float) -> None:
    """Send a record to one partition after the other."""
    for copy in itertools.cycle(s.copies):
        s.put(copy)
        await asyncio.sleep(every_s)


async def _answer_in_turn(s: Sender, *, took_s: float) -> None:
    """Be a broker that takes so long for each request, one after the other."""
    while True:
        await asyncio.sleep(took_s if s.line.requests else 0.001)
        s.answer()


async def _answer_from_afar(s: Sender, *, took_s: float) -> None:
    """Be a broker for which each request is so long on its way, and that answers at once."""
    arrived: dict[int, float] = {}
    while True:
        await asyncio.sleep(0.001)
        for request in s.line.requests:
            arrived.setdefault(id(request), now() + took_s)
        while s.line.requests and arrived[id(s.line.requests[0])] <= now():
            del arrived[id(s.line.requests[0])]
            s.answer()


@pytest.mark.parametrize(
    ("answers", "most"),
    [
        pytest.param(_answer_in_turn, 2, id="a busy broker"),
        pytest.param(_answer_from_afar, 5, id="a far one"),
    ],
)
async def test_small_requests_do_not_wait_at_the_broker(
    answers: Callable[..., Coroutine[Any, Any, None]], most: int
) -> None:
    """What comes while a broker is busy goes with the next request; one that is far away gets them as they come."""
    async with sender(partitions=_PARTITIONS) as s:
        s.target.is_manual = True
        s.put(s.copies[0])
        await settle()
        seen = []
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(_trickle(s, every_s=0.01)),
                tasks.create_task(answers(s, took_s=0.1)),
            ]
            await asyncio.sleep(2)
            for _ in range(100):
                await asyncio.sleep(0.01)
                seen.append(len(s.line.requests))
            for loop in loops:
                loop.cancel()
        copied = sum(copy.records for copy in s.copies)

    assert max(seen) == most
    assert copied > 250
