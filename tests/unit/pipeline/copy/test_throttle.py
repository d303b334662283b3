"""Rate limits inside an epoch, in virtual time."""

from __future__ import annotations

import asyncio
import struct

import pytest

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.rates import Metered, RateShare, Unit
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.throttle import Throttle
from mm2py.wire.fetch_forms import FetchSizes


SIZES = FetchSizes(1, 8_000_000, 1_000_000, reads_committed=False)
BYTES, RECORDS = Metered("", Unit.BYTES), Metered("", Unit.RECORDS)
OF_TOPIC = Metered("orders", Unit.BYTES)


def a_copy(topic: str = "orders", partition: int = 0) -> PartitionCopy:
    plan = PartitionPlan(TopicPartition(topic, partition), f"A.{topic}", 0, -1, is_unsure=False)
    return PartitionCopy.of(plan)


def batches(*sizes: int, cut_to: int | None = None) -> memoryview:
    """Make record sets that have nothing but sizes."""
    whole = b"".join(struct.pack(">qi", 0, size - 12) + bytes(size - 12) for size in sizes)
    return memoryview(whole[:cut_to])


def now() -> float:
    return asyncio.get_running_loop().time()


async def run(throttle: Throttle, copy: PartitionCopy, batch_bytes: int, records: int, seconds: float) -> float:
    """Fetch as a fetcher does for so long, what each fetch may bring in whole batches; give the bytes a second."""
    begun, taken = now(), 0
    until = begun + seconds
    while now() < until:
        await throttle.turn(until)
        if now() >= until:
            break
        number = max(1, throttle.sizes(SIZES, 1).max_bytes // batch_bytes)
        throttle.charge(copy, batches(*[batch_bytes] * number), records * number)
        taken += batch_bytes * number
        await asyncio.sleep(0.001)
    return taken / seconds


@pytest.mark.parametrize("per_s", [1_000.0, 50_000.0, 3_000_000.0])
async def test_bytes_come_at_the_rate(per_s: float) -> None:
    """Within a hundredth, whether a second holds a hundred batches or a sixteenth of one."""
    throttle, copy = Throttle([RateShare(BYTES, per_s)], [a_copy()]), a_copy()

    rate = await run(throttle, copy, 16_000, 100, max(100.0, 3_200_000 / per_s))

    assert rate == pytest.approx(per_s, rel=0.02)


async def test_records_come_at_the_rate() -> None:
    """How large records are is learnt on the way."""
    throttle, copy = Throttle([RateShare(RECORDS, 500.0)], [a_copy()]), a_copy()

    rate = await run(throttle, copy, 16_000, 50, 600)

    assert rate / 16_000 * 50 == pytest.approx(500.0, rel=0.02)


async def test_the_narrower_of_two_limits_counts() -> None:
    """Bytes and records are both kept to."""
    throttle = Throttle([RateShare(BYTES, 1e9), RateShare(RECORDS, 100.0)], [a_copy()])

    rate = await run(throttle, a_copy(), 1_000, 10, 300)

    assert rate == pytest.approx(10_000, rel=0.05)


async def test_a_stream_below_its_limit_never_waits() -> None:
    """A thousand records a second in bursts, half of what may come: no fetch is held up by a moment."""
    throttle, copy = Throttle([RateShare(RECORDS, 2_000.0)], [a_copy()]), a_copy()
    await asyncio.sleep(1)
    for _ in range(100):
        begun = now()
        await throttle.turn(begun + 5)

        assert now() == begun
        throttle.charge(copy, batches(10_000), 500)
        await asyncio.sleep(0.5)
    assert [use.waited_s for use in throttle.uses()] == [0.0]


async def test_a_debt_goes_from_epoch_to_epoch() -> None:
    """One batch of ten seconds' worth, epochs of one second: ten of them pass before there is another."""
    level, copy, fetches = 0.0, a_copy(), 0
    for _ in range(40):
        throttle, until = Throttle([RateShare(BYTES, 1_000.0, level)], [copy]), now() + 1
        while now() < until:
            await throttle.turn(until)
            if now() < until:
                throttle.charge(copy, batches(10_000), 100)
                fetches += 1
        level = throttle.uses()[0].level

    assert fetches == 4


async def test_a_wait_is_counted_once_however_many_wait() -> None:
    """Two fetchers that wait beside each other have waited for as long as one."""
    throttle, copy = Throttle([RateShare(BYTES, 1_000.0)], [a_copy()]), a_copy()
    throttle.charge(copy, batches(3_000), 1)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(throttle.turn(now() + 60))

    (use,) = throttle.uses()

    assert now() == pytest.approx(3.0, abs=0.01)
    assert (use.used, use.waited_s) == (3_000, pytest.approx(3.0, abs=0.01))


async def test_the_end_of_an_epoch_is_not_waited_for() -> None:
    """A fetcher that waits is let go when the epoch ends, early or not."""
    throttle, copy = Throttle([RateShare(BYTES, 1.0)], [a_copy()]), a_copy()
    throttle.charge(copy, batches(1_000), 1)
    await throttle.turn(now() + 5)
    at_deadline = now()
    asyncio.get_running_loop().call_later(1, throttle.stop)
    await throttle.turn(now() + 60)

    assert (at_deadline, now()) == (pytest.approx(5.0), pytest.approx(6.0))


async def test_a_topic_is_held_back_alone() -> None:
    """Its partitions wait until its debt is paid; the flow and other topics do not."""
    copies = [a_copy("orders", 0), a_copy("orders", 1), a_copy("other")]
    throttle = Throttle([RateShare(OF_TOPIC, 1_000.0)], copies)
    before = throttle.held(copies)
    throttle.charge(copies[0], batches(2_000), 10)
    throttle.charge(copies[2], batches(9_000), 10)

    assert (before, throttle.held(copies)) == ([], copies[:2])
    assert throttle.hold_s(copies[1]) == pytest.approx(2.0)
    assert throttle.release_s(copies[:2]) == pytest.approx(2.0)
    assert throttle.release_s(copies) == 0
    begun = now()
    await throttle.turn(begun + 5)
    assert now() == begun
    await asyncio.sleep(2.01)
    assert throttle.held(copies) == []


async def test_partitions_share_what_their_topic_may_fetch() -> None:
    """A fetch asks for a tenth of a second's worth of a limited topic, and for all it can get of another."""
    copies = [a_copy("orders", 0), a_copy("orders", 1), a_copy("other")]
    throttle = Throttle([RateShare(OF_TOPIC, 100_000.0)], copies)

    assert throttle.partition_bytes(copies[0], 1_000_000) == 5_000
    assert throttle.partition_bytes(copies[0], 1_000) == 1_000
    assert throttle.partition_bytes(copies[2], 1_000_000) is None


async def test_a_batch_that_did_not_fit_gets_room() -> None:
    """
    The broker gives the first partition of an answer a whole batch; another one may get a piece of one each time.

    It would never get on, and the broker would answer at once each time.
    """
    copy = a_copy()
    throttle = Throttle([RateShare(BYTES, 1_000.0), RateShare(OF_TOPIC, 1_000.0)], [copy])
    throttle.charge(copy, batches(16_000, cut_to=100), 0)

    assert throttle.partition_bytes(copy, 1_000_000) == 16_000
    assert throttle.sizes(SIZES, 1).max_bytes >= 16_000
    assert [use.used for use in throttle.uses()] == [0.0, 0.0]
    throttle.charge(copy, batches(16_000), 10)
    assert throttle.partition_bytes(copy, 1_000_000) == 100


async def test_without_limits_nothing_changes() -> None:
    """Fetches ask for what they always did, and nothing is counted."""
    throttle = Throttle([], [a_copy()])
    await throttle.turn(now() + 5)

    assert throttle.sizes(SIZES, 4) is SIZES
    assert (throttle.is_limiting, throttle.uses(), throttle.held([a_copy()])) == (False, (), [])
