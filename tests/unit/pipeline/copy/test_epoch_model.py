"""Whatever happens between and during epochs, each record of the source is at the target once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.epoch import SETTLING_MS, Ended
from mm2py.pipeline.copy import fetching, worker_state
from mm2py.wire.error_codes import ErrorCode
from tests.support.copy_rig import CopyRig, rig_of
from tests.support.model_cluster import ModelCluster


PARTITIONS = 2
EPOCH_MS = 600

PASSING = [
    (ErrorCode.NOT_ENOUGH_REPLICAS, False),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    (ErrorCode.REQUEST_TIMED_OUT, True),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
    (ErrorCode.UNKNOWN_PRODUCER_ID, True),
]


def drop(cluster: ModelCluster) -> None:
    for connection in cluster.connections:
        connection.close("reset by peer")


def move(cluster: ModelCluster) -> None:
    for partition in cluster.partitions.values():
        partition.leader = 1 - (partition.leader or 0)
        partition.leader_epoch += 1


def thaw(cluster: ModelCluster) -> None:
    """Go on after a freeze: the broker takes what it had been sent; whether the answers arrive is another matter."""
    cluster.is_frozen = False
    for connection in cluster.connections:
        for _ in list(connection.requests):
            connection.process()
    drop(cluster)


#: What may happen at some moment of an epoch.
EVENTS: dict[str, Callable[[CopyRig, int], None]] = {
    "write": lambda rig, number: rig.load(number % PARTITIONS, 1 + number % 4, records=1 + number % 3),
    "write many": lambda rig, number: rig.load(number % PARTITIONS, 20, size=200),
    "drop source": lambda rig, _: drop(rig.source),
    "drop target": lambda rig, _: drop(rig.target),
    "move source": lambda rig, _: move(rig.source),
    "move target": lambda rig, _: move(rig.target),
    "freeze target": lambda rig, _: setattr(rig.target, "is_frozen", True),
    "thaw target": lambda rig, _: thaw(rig.target),
    "lose target": lambda rig, _: setattr(rig.target, "is_unreachable", True),
    "find target": lambda rig, _: setattr(rig.target, "is_unreachable", False),
}

moment = st.tuples(st.sampled_from(list(EVENTS)), st.integers(0, 20), st.integers(0, EPOCH_MS))
epochs = st.lists(
    st.tuples(
        st.lists(moment, max_size=5),
        st.lists(st.sampled_from(PASSING), max_size=2),
        st.sampled_from(["accounted", "accounted", "accounted", "lost"]),
    ),
    min_size=1,
    max_size=5,
)


async def run(rig: CopyRig, events: Sequence[tuple[str, int, int]], faults: list[tuple[int, bool]], end: str) -> None:
    """Run one epoch in which these things happen."""
    loop = asyncio.get_running_loop()
    rig.target.produce_fault = lambda _tp, _raw: faults.pop() if faults else None
    for name, number, at_ms in events:
        loop.call_later(at_ms / 1000, EVENTS[name], rig, number)
    outcome = await rig.epoch(epoch_ms=EPOCH_MS, drain_ms=500, is_lost=end == "lost")

    assert all(p.ended in {Ended.OK, Ended.INTERRUPTED} for p in outcome.partitions), outcome.partitions
    assert outcome.elapsed_s <= (SETTLING_MS + 500) / 1000 + 0.2
    if end == "lost":
        rig.doubt()
    await asyncio.sleep(EPOCH_MS / 1000)


@settings(deadline=None, max_examples=60)
@given(epochs, st.booleans())
async def test_every_record_arrives_once_whatever_happens(
    plan: list[tuple[list[tuple[str, int, int]], list[tuple[int, bool]], str]],
    are_many: bool,
) -> None:
    """Dropped, frozen and moved brokers, refused batches and lost epochs leave no record out and none twice."""
    many = 0 if are_many else PARTITIONS
    with patch.object(fetching, "MANY", many), patch.object(worker_state, "MANY", many):
        await _copied_exactly(plan)


async def _copied_exactly(plan: list[tuple[list[tuple[str, int, int]], list[tuple[int, bool]], str]]) -> None:
    rig = rig_of(PARTITIONS, brokers=2, retry_backoff_ms=20, fetch_partition_max_bytes=2_000)
    rig.load(0, 3)
    for events, faults, end in plan:
        await run(rig, events, list(faults), end)
        for number in range(PARTITIONS):
            held = rig.values(number)

            assert held == list(range(len(held))), f"partition {number}"
            assert rig.plans[number].position <= len(held)
    thaw(rig.target)
    rig.target.is_unreachable = False
    rig.target.produce_fault = lambda _tp, _raw: None
    ends = [partition.end for partition in rig.source.partitions.values()]
    for _ in range(20):
        if [rig.plans[number].position for number in range(PARTITIONS)] == ends:
            break
        await rig.epoch(epoch_ms=2_000)

    assert [rig.values(number) for number in range(PARTITIONS)] == [list(range(end)) for end in ends]
