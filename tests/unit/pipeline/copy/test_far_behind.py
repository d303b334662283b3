"""Partitions that are far behind are fetched beside the others and sent after them."""

from __future__ import annotations

import asyncio
import math
import random
from statistics import median
from types import SimpleNamespace
from typing import cast

import pytest

from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.far_behind import FarBehind
from mm2py.pipeline.copy.fetcher import behind_fetcher_id
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.wire.error_codes import ErrorCode, name_of
from tests.support.copy_rig import CopyRig, rig_of
from tests.support.in_process import ProduceFault


#: One batch of a backlog.
BATCH_BYTES = 16_000
#: What an answer may bring of one partition, and in all.
PARTITION_BYTES, FETCH_BYTES = 2 * BATCH_BYTES, 4 * BATCH_BYTES


def _backlogs(partitions: int, batches: int, *, live: int = 1, **limits: int) -> CopyRig:
    """Make partitions that are behind by so many batches, and after them some without records."""
    limits = {
        "fetch_max_bytes": FETCH_BYTES,
        "fetch_partition_max_bytes": PARTITION_BYTES,
        "buffer_bytes": 4 * FETCH_BYTES,
        "partition_buffer_bytes": 4 * BATCH_BYTES,
        "produce_request_max_bytes": PARTITION_BYTES,
        "coalesce_below_bytes": 0,
    } | limits
    rig = rig_of(partitions + live, **limits)
    for number in range(partitions):
        rig.load(number, batches, records=4, size=4_000)
    return rig


def _copied(rig: CopyRig, partitions: int) -> int:
    return sum(rig.remote(number).end for number in range(partitions))


def _live(rig: CopyRig) -> set[int]:
    """Return the partitions of fetchers of what is not far behind."""
    fetched_by = rig.fetched_by()
    return set().union(*(fetched_by[it] for it in fetched_by if it < behind_fetcher_id(0)))


async def test_a_live_record_does_not_wait_for_those_far_behind() -> None:
    """Before it arrives, less is copied of what is far behind than one answer brings of a quarter of the partitions."""
    rig = _backlogs(40, 16)
    rig.target.bytes_per_s = 2_000_000

    async def watch() -> list[int]:
        meanwhile = []
        for number in range(1, 11):
            await asyncio.sleep(0.25)
            before = _copied(rig, 40)
            rig.load(40, 1)
            await rig.arrives(40, 3 * number)
            meanwhile.append((_copied(rig, 40) - before) * 4_000)
        return meanwhile

    meanwhile = await rig.epochs_until(watch(), epoch_ms=2_000)

    assert _copied(rig, 40) < 40 * 16 * 4
    assert median(meanwhile) < 3 * FETCH_BYTES
    assert max(meanwhile) < 40 * PARTITION_BYTES / 4
    for number in range(41):
        assert rig.values(number) == list(range(len(rig.values(number))))


async def test_a_live_record_waits_for_no_rest_of_a_backlog() -> None:
    """Partitions catch up one after the other, and what is left of them in the buffer leaves as before."""
    kib = 1024
    rig = _backlogs(
        20,
        0,
        fetch_max_bytes=512 * kib,
        fetch_partition_max_bytes=256 * kib,
        buffer_bytes=2_048 * kib,
        partition_buffer_bytes=512 * kib,
        produce_request_max_bytes=256 * kib,
    )
    for number in range(20):
        rig.load(number, 8, records=4, size=32_000)
    rig.target.bytes_per_s = 16_000_000

    async def watch() -> list[float]:
        waits = []
        await asyncio.sleep(0.1)
        while _copied(rig, 20) < 20 * 8 * 4:
            rig.load(20, 1)
            waits.append(await rig.arrives(20, rig.upstream(20).end))
        return waits

    waits = await rig.epochs_until(watch(), epoch_ms=3_000)

    assert len(waits) > 50
    assert max(waits) < 0.025, max(waits)


@pytest.mark.parametrize("seed", [0, 1])
async def test_what_falls_behind_and_catches_up_again_is_sent_in_order(seed: int) -> None:
    """Its batches leave on one connection until all are answered, and on another one from then on."""
    rig, chance = _backlogs(6, 0, live=0), random.Random(seed)
    await _ups_and_downs(rig, chance, 200)

    purposes = {connection.purpose for connection in rig.target.connections}
    assert purposes >= {"produce", "produce what is far behind"}
    assert [it for outcome in rig.outcomes for it in outcome.partitions if it.failure or it.is_unsure] == []
    assert [rig.values(number) for number in range(6)] == [list(range(rig.upstream(it).end)) for it in range(6)]


async def test_no_more_batches_are_under_way_than_a_broker_remembers() -> None:
    """Else it takes one that is repeated for one that comes too late, once others have followed it."""
    rig, chance = _backlogs(6, 0, live=0), random.Random(21)

    def fault(_tp: TopicPartition, _raw: bytes) -> ProduceFault | None:
        return (ErrorCode.NOT_LEADER_OR_FOLLOWER, chance.random() < 0.3) if chance.random() < 0.01 else None

    rig.target.produce_fault = fault
    await _ups_and_downs(rig, chance, 400, loss=0.02)
    rig.target.produce_fault = lambda _tp, _raw: None
    for _ in range(3):
        await rig.epoch(epoch_ms=3_000)

    failed = {it.failure.error for outcome in rig.outcomes for it in outcome.partitions if it.failure}
    assert name_of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) not in failed
    assert [rig.values(number) for number in range(6)] == [list(range(rig.upstream(it).end)) for it in range(6)]


async def _ups_and_downs(rig: CopyRig, chance: random.Random, loads: int, *, loss: float = 0.0) -> None:
    """Run epochs while six partitions get now one batch, now many; connections are lost by chance."""
    rig.target.bytes_per_s = 4_000_000
    await rig.epoch(epoch_ms=100)

    async def load() -> None:
        for _ in range(loads):
            rig.load(chance.randrange(6), chance.choice((1, 1, 1, 40)), records=4, size=1_000)
            if loss and chance.random() < loss:
                rig.target.drop()
            await asyncio.sleep(chance.uniform(0.001, 0.02))

    await rig.epochs_until(load(), epoch_ms=1_000)
    await rig.epoch(epoch_ms=5_000)


async def test_many_batches_of_a_live_partition_do_not_each_wait_for_a_full_request() -> None:
    """A request takes one batch of a partition. Those of what is far behind leave on another connection."""
    rig = _backlogs(40, 16)
    rig.target.bytes_per_s = 2_000_000
    count = 60

    async def watch() -> int:
        await asyncio.sleep(0.25)
        before = _copied(rig, 40)
        rig.load(40, count)
        await rig.arrives(40, 3 * count)
        return (_copied(rig, 40) - before) * 4_000

    assert 0 < await rig.epochs_until(watch(), epoch_ms=2_000) < count * PARTITION_BYTES / 2
    assert rig.values(40) == list(range(3 * count))


async def test_what_is_far_behind_has_fetchers_of_its_own_until_it_has_caught_up() -> None:
    """Then it is fetched with the others again; each epoch begins as the last one ended."""
    rig = _backlogs(4, 60, live=2)
    rig.target.bytes_per_s = 2_000_000
    await rig.epoch(epoch_ms=500)
    (far_behind,) = rig.worker.far_behind.values()
    behind, live = set(far_behind._copies), _live(rig)
    await rig.epoch(epoch_ms=20)
    next_epoch = set(far_behind._copies)
    for _ in range(4):
        await rig.epoch(epoch_ms=1_000)

    assert {tp.partition for tp in behind} == {0, 1, 2, 3}
    assert next_epoch == behind
    assert live == {4, 5}
    assert _live(rig) == set(range(6))
    assert not far_behind._copies
    assert all(rig.values(number) == list(range(240)) for number in range(2))


async def test_a_record_that_comes_while_a_partition_changes_its_fetcher_waits_for_no_long_poll() -> None:
    """Whichever fetcher has it, waits for it at the broker."""
    rig = _backlogs(1, 40)
    await rig.epoch(epoch_ms=1_000)
    assert rig.values(0) == list(range(160))

    async def watch() -> float:
        # In the middle of the next backlog's end, and a while later.
        rig.load(0, 40, records=4, size=4_000)
        await rig.arrives(0, 320)
        waits = []
        for number in range(1, 10):
            await asyncio.sleep(0.007 * number)
            rig.load(0, 1)
            waits.append(await rig.arrives(0, rig.upstream().end))
        return max(waits)

    assert await rig.epochs_until(watch(), epoch_ms=3_000) < 0.05


async def test_a_partition_whose_share_of_the_buffer_is_full_changes_its_fetcher_too() -> None:
    """It continues with those that are far behind once there is room, and misses nothing."""
    rig = _backlogs(2, 60, partition_buffer_bytes=BATCH_BYTES)
    rig.target.bytes_per_s = 1_000_000
    await rig.epoch(epoch_ms=300)
    live = _live(rig)
    for _ in range(3):
        await rig.epoch(epoch_ms=1_000)

    assert not live & {0, 1}
    assert all(rig.values(number) == list(range(240)) for number in range(2))


def _copies(count: int) -> list[PartitionCopy]:
    return [PartitionCopy.of(plan) for plan in rig_of(count).plan().partitions]


def _begun(count: int = 2, *, has_behind: bool = False) -> tuple[FarBehind, list[PartitionCopy]]:
    """Begin an epoch of *count* partitions, the first of which is far behind if asked for."""
    far_behind, copies = FarBehind(), _copies(count)
    far_behind.begin(copies, 1_000)
    if has_behind:
        _note(far_behind, copies[0], at=10, end=10_000, offsets=10, size_bytes=500)
    return far_behind, copies


def _note(far_behind: FarBehind, copy: PartitionCopy, *, at: int, end: int, offsets: int, size_bytes: int = 0) -> bool:
    copy.fetching.position.offset, copy.fetching.high_watermark = at, end
    far_behind.note(copy, offsets, size_bytes)
    return copy.fetching.is_behind


async def test_who_is_far_behind() -> None:
    """It is, if an answer could not bring what is left, until nothing is left."""
    far_behind, copies = _begun()
    copy = copies[0]
    found = [
        _note(far_behind, copy, at=at, end=end, offsets=10, size_bytes=500)
        for at, end in ((10, 10), (10, 30), (10, 31), (30, 31), (31, 31), (41, 60))
    ]

    assert found == [False, False, True, True, False, False]


async def test_an_answer_without_room_for_a_partition_shows_that_it_is_far_behind() -> None:
    """A few records that had none are not counted as a backlog."""
    far_behind, copies = _begun()

    assert not _note(far_behind, copies[0], at=0, end=1_000, offsets=0)
    assert _note(far_behind, copies[0], at=0, end=1_001, offsets=0)


async def test_few_records_are_a_backlog_if_they_are_as_large_as_others() -> None:
    """Else the first answer of each of many such partitions would be taken for live, and fill the buffer."""
    far_behind, copies = _begun(3)
    _note(far_behind, copies[0], at=1, end=1, offsets=1, size_bytes=500)

    assert not _note(far_behind, copies[1], at=0, end=2, offsets=0)
    assert _note(far_behind, copies[2], at=0, end=3, offsets=0)


async def test_only_what_is_stable_is_left_to_copy() -> None:
    """Records of an open transaction are nothing to catch up with."""
    far_behind, copies = _begun()
    copies[0].fetching.last_stable_offset = 10

    assert not _note(far_behind, copies[0], at=10, end=100_000, offsets=10, size_bytes=500)


@pytest.mark.parametrize(("pause_s", "is_known"), [(1, True), (60, False)])
async def test_what_was_far_behind_is_so_in_the_next_epoch_unless_it_is_long_ago(
    pause_s: float, *, is_known: bool
) -> None:
    far_behind, _ = _begun(has_behind=True)
    far_behind.end()
    await asyncio.sleep(pause_s)
    again = _copies(2)
    far_behind.begin(again, 1_000)

    assert [copy.fetching.is_behind for copy in again] == [is_known, False]


def _room(
    far_behind: FarBehind, *, buffered: int, is_behind: bool, freed: int = 0, left_s: float = math.inf, pace: int = -1
) -> bool:
    limits = CopyLimits(buffer_bytes=100, fetch_max_bytes=10, catch_up_latency_ms=pace)
    sender = SimpleNamespace(buffered_bytes=buffered, freed_bytes=freed, limits=limits)
    return far_behind.has_room(cast("BatchSender", sender), left_s, is_behind=is_behind)


async def test_what_is_far_behind_leaves_a_quarter_of_the_buffer_to_others() -> None:
    """They have it even when fetches of what is behind have brought more than there was room for."""
    far_behind, copies = _begun(has_behind=True)
    sizes = (74, 75, 99, 120)
    behind, live = ([_room(far_behind, buffered=size, is_behind=it) for size in sizes] for it in (True, False))
    copies[0].buffer.size_bytes = 96
    live_of_its_own = [_room(far_behind, buffered=size, is_behind=False) for size in (120, 121)]

    assert behind == [True, False, False, False]
    assert live == [True, True, True, False]
    assert live_of_its_own == [True, False]


async def test_where_all_or_none_are_far_behind_they_have_the_whole_buffer() -> None:
    far_behind, copies = _begun(1)
    none = [_room(far_behind, buffered=size, is_behind=False) for size in (99, 100)]
    _note(far_behind, copies[0], at=10, end=10_000, offsets=10, size_bytes=500)

    assert none == [_room(far_behind, buffered=size, is_behind=True) for size in (99, 100)] == [True, False]


async def test_no_more_is_fetched_of_what_is_far_behind_than_is_sent_before_the_epoch_ends() -> None:
    """Else live records wait for the end of the drain. But one answer at a time is always fetched."""
    far_behind, copies = _begun(has_behind=True)
    copies[0].buffer.size_bytes = 30
    await asyncio.sleep(5)
    found = [
        _room(far_behind, buffered=30, is_behind=True, freed=100, left_s=left_s) for left_s in (math.inf, 2.0, 1.9)
    ]
    paced = _room(far_behind, buffered=30, is_behind=True, freed=100, left_s=1.9, pace=10)
    copies[0].buffer.size_bytes = 0

    assert found == [True, True, False]
    assert paced
    assert _room(far_behind, buffered=30, is_behind=True, freed=100, left_s=0.1)
    assert _room(far_behind, buffered=30, is_behind=True, freed=0, left_s=0.1)


async def test_a_live_record_waits_for_no_backlog_at_the_end_of_an_epoch() -> None:
    """What is left to send then is little; before, it was most of the buffer."""
    rig = _backlogs(40, 16)
    rig.target.bytes_per_s = 500_000
    drains = [(await rig.epoch(epoch_ms=2_000)).drain_s for _ in range(3)]

    assert max(drains) < 1.5 * FETCH_BYTES / 500_000
