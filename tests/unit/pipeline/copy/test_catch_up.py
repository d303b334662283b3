"""Partitions that are behind are held back while the target is slow; others are not."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.pipeline.copy.catch_up import CatchUp
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.throttle import Throttle
from tests.support.copy_rig import CopyRig, rig_of


async def _waits(rig: CopyRig) -> list[float]:
    """Copy a backlog of partition 0 for some seconds, and return how long a record of partition 1 takes meanwhile."""

    async def watch() -> list[float]:
        waits = []
        for number in range(1, 40):
            await asyncio.sleep(0.15)
            rig.load(1, 1)
            waits.append(await rig.arrives(1, 3 * number))
        return waits[10:]

    return await rig.epochs_until(watch(), epoch_ms=2_000)


async def test_what_is_behind_leaves_room_for_what_is_not() -> None:
    """A backlog is copied at the pace at which the target still answers soon, and exactly; else live records wait."""
    found = []
    for more_ms in (-1, 10):
        rig = rig_of(2, catch_up_latency_ms=more_ms)
        rig.target.bytes_per_s = 2_000_000
        rig.load(0, 1_500, records=10, size=1_000)
        waits = await _waits(rig)
        behind = rig.values(0)
        assert behind == list(range(len(behind)))
        found.append((max(waits), len(behind)))
    (unbounded_s, _), (bounded_s, copied) = found

    assert unbounded_s > 0.3
    assert bounded_s < 0.1
    assert copied > 3_000


async def test_without_a_bound_a_backlog_is_copied_at_once() -> None:
    rig = rig_of(2, fetch_partition_max_bytes=20_000)
    rig.load(0, 1_000, records=3, size=1_000)
    outcome = await rig.epoch()

    assert outcome.records == 3_000
    assert not rig.worker.catch_ups


async def test_a_backlog_that_is_copied_is_not_behind_any_more() -> None:
    """A partition is behind as long as the source has more of it than one fetch brings."""
    rig = rig_of(1, catch_up_latency_ms=10, fetch_partition_max_bytes=20_000)
    rig.load(0, 200, records=3, size=1_000)
    outcome = await rig.epoch()
    (catch_up,) = rig.worker.catch_ups.values()

    assert outcome.records == 600
    assert not catch_up.behind


async def test_a_fetch_of_what_is_behind_is_small() -> None:
    """The target gets a backlog evenly, not in answers of megabytes."""
    catch_up, copies = _begun(2)
    throttle = Throttle([], copies, None, catch_up)
    catch_up.note(copies[0], 10, 1_000_000)
    catch_up.note(copies[1], 1_000, 1_000_000)

    assert throttle.partition_bytes(copies[0], 1 << 20) == pytest.approx(catch_up.pace.bytes_per_s * 0.02, rel=0.01)
    assert throttle.partition_bytes(copies[1], 1 << 20) is None
    assert throttle.held(copies) == copies[:1]
    assert throttle.release_s(copies[:1]) == pytest.approx(1_000_000 / catch_up.pace.bytes_per_s, rel=0.01)
    assert throttle.hold_s(copies[1]) == 0


def _begun(partitions: int) -> tuple[CatchUp, list[PartitionCopy]]:
    """Make a pace, and partitions whose sources end at 1000."""
    rig = rig_of(partitions)
    catch_up, copies = CatchUp(10), [PartitionCopy.of(plan) for plan in rig.plan().partitions]
    catch_up.begin(copies)
    for copy in copies:
        copy.fetching.high_watermark, copy.fetching.node = 1_000, 0
    return catch_up, copies


def _backlogs(partitions: int, batches: int, *, live: int = 0, **limits: int) -> CopyRig:
    """Make partitions that are behind by so many batches of 16 kB, and after them some without records."""
    rig = rig_of(partitions + live, catch_up_latency_ms=10, coalesce_below_bytes=0, **limits)
    for number in range(partitions):
        rig.load(number, batches, records=4, size=4_000)
    return rig


async def test_first_fetches_are_paced_in_each_epoch() -> None:
    """Whether a partition is behind is not known at first, and known in later epochs: no megabyte comes of each."""
    rig = _backlogs(60, 40)
    copied = [(await rig.epoch(epoch_ms=200)).bytes for _ in range(3)]
    (catch_up,) = rig.worker.catch_ups.values()

    assert 0 < max(copied) < catch_up.pace.bytes_per_s * 0.4


async def test_of_many_that_are_behind_some_have_their_turn_at_a_time() -> None:
    """Fetches are as large as the pace allows, and each partition gets its turn, in order."""
    rig = _backlogs(60, 60)
    outcomes = [await rig.epoch(epoch_ms=1_000) for _ in range(3)]

    assert sum(it.bytes for it in outcomes) / sum(it.fetches for it in outcomes) > 40_000
    assert all(values and values == list(range(len(values))) for values in map(rig.values, range(60)))


async def test_what_cannot_be_fetched_has_no_turn() -> None:
    """Partitions without a leader keep none of the others waiting."""
    rig = _backlogs(60, 60)
    await rig.epoch(epoch_ms=100)
    for number in range(50):
        rig.upstream(number).lead(None)
    before = [len(rig.values(number)) for number in range(60)]
    outcome = await rig.epoch(epoch_ms=1_000)

    assert outcome.bytes > 3_000_000
    assert all(len(rig.values(number)) > before[number] for number in range(50, 60))


async def test_what_was_not_watched_for_a_while_may_be_behind() -> None:
    """After a pause nothing is known of a partition, and it is asked for as little as one that is new."""
    rig = _backlogs(60, 0)
    await rig.epoch(epoch_ms=100)
    await asyncio.sleep(60)
    for number in range(60):
        rig.load(number, 40, records=4, size=4_000)
    outcome = await rig.epoch(epoch_ms=100)

    assert outcome.bytes < 2_000_000


async def test_a_batch_that_takes_seconds_of_the_pace_is_not_followed_by_many_at_once() -> None:
    """While nothing may be fetched, nothing is: that is no sign that a round of fetches brings too little."""
    catch_up, copies = _begun(30)
    for copy in copies:
        catch_up.note(copy, 1, 0)
    catch_up.note(copies[0], 10, int(catch_up.pace.bytes_per_s * 3))
    turns = []
    for _ in range(22):
        await asyncio.sleep(0.26)
        catch_up.answered(0.001, 0.001, 0)
        turns.append((catch_up.hold_s() > 0, catch_up._width))

    assert turns[:11] == [(True, 1)] * 11
    assert turns[-1][1] > 8


async def test_what_has_little_left_has_its_turn_before_a_backlog() -> None:
    """After a pause live partitions have some records left as well. They are not copied in turn with a backlog."""
    rig = _backlogs(60, 20, fetch_partition_max_bytes=64 * 1024, live=20)
    rig.target.bytes_per_s = 10_000_000
    loop, live = asyncio.get_running_loop(), range(60, 80)
    for number in live:
        rig.load(number, 100, records=1, size=200)

    def copied(numbers: range) -> list[int]:
        return [rig.remote(number).end for number in numbers]

    async def watch() -> tuple[float, int]:
        began = loop.time()
        while min(copied(live)) < 100:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.01)
        return loop.time() - began, sum(copied(range(60)))

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        while not watching.done():
            await rig.epoch(epoch_ms=2_000)
    level_after_s, copied_of_backlog = watching.result()

    assert level_after_s < 0.5
    assert copied_of_backlog < 60 * 20 * 4 / 10
    await rig.worker.close()
