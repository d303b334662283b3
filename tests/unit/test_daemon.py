"""What the node itself does, beside its flows."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from mm2py.daemon import FreezesWhatStays, collect_forever
from tests.support.clocks import LoopClock, ManualClock


class CollectorRig:
    """A garbage collector by numbers of objects: those that are alive, garbage, and which of both are frozen."""

    def __init__(self) -> None:
        self.clock = ManualClock(now_s=1.0)
        self.keeper = FreezesWhatStays(self.clock, self)
        self.living = self.seen = 1_000
        self.frozen = 0

    def restart(self) -> None:
        """Let go of all that is alive, and begin as much again."""
        self.seen += self.living

    def collect(self, generation: int, took_s: float) -> None:
        info = {"generation": generation, "collected": 0, "uncollectable": 0}
        self.keeper("start", info)
        self.clock.advance(took_s)
        self.seen = min(self.seen, self.living)
        self.keeper("stop", info)

    def freeze(self) -> None:
        self.frozen += self.seen
        self.seen = 0

    def unfreeze(self) -> None:
        self.seen += self.frozen
        self.frozen = 0

    def get_freeze_count(self) -> int:
        return self.frozen


@pytest.mark.parametrize(
    ("generation", "took_s", "frozen"),
    [(2, 0.2, 1_000), (2, 0.01, 0), (1, 0.2, 0)],
    ids=["a long full collection", "a short one", "one of young objects"],
)
def test_what_a_long_collection_leaves_is_not_collected_again(generation: int, took_s: float, frozen: int) -> None:
    """A full collection that held everything up is not repeated over the same objects."""
    rig = CollectorRig()
    rig.collect(generation, took_s)

    assert rig.frozen == frozen


def test_what_stays_no_more_is_collected() -> None:
    """
    A flow with tens of thousands of partitions restarts each hour, for weeks.

    Each of its lives was frozen. It is let go of, in circles that only the collector breaks, and would stay for good.
    """
    rig = CollectorRig()
    frozen = []
    for _ in range(50):
        rig.collect(2, 0.2)
        frozen.append(rig.frozen)
        rig.restart()

    assert max(frozen) <= 3 * rig.living
    assert rig.living in frozen[-2:]


async def test_old_garbage_is_collected_hourly() -> None:
    """Not at once: what the start left is frozen, or young."""
    clock, collected = LoopClock(), list[float]()
    began = clock.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * 3600 + 1):
            await collect_forever(clock, lambda: collected.append(clock.monotonic() - began))

    assert collected == [3600, 7200, 10800]
