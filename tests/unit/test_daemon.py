"""What the node itself does, beside its flows."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from mm2py.daemon import FreezesWhatStays, collect_forever
from tests.support.clocks import LoopClock, ManualClock


@pytest.mark.parametrize(
    ("generation", "took_s", "freezes"),
    [(2, 0.2, 1), (2, 0.01, 0), (1, 0.2, 0)],
    ids=["a long full collection", "a short one", "one of young objects"],
)
def test_what_a_long_collection_leaves_is_not_collected_again(generation: int, took_s: float, freezes: int) -> None:
    """A full collection that held everything up is not repeated over the same objects."""
    clock, frozen = ManualClock(now_s=1.0), list[float]()
    keeper = FreezesWhatStays(clock, lambda: frozen.append(clock.monotonic()))
    info = {"generation": generation, "collected": 0, "uncollectable": 0}
    keeper("start", info)
    clock.advance(took_s)
    keeper("stop", info)

    assert len(frozen) == freezes


async def test_old_garbage_is_collected_hourly() -> None:
    """Not at once: what the start left is frozen, or young."""
    clock, collected = LoopClock(), list[float]()
    began = clock.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * 3600 + 1):
            await collect_forever(clock, lambda: collected.append(clock.monotonic() - began))

    assert collected == [3600, 7200, 10800]
