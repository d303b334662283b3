"""Rate limits inside an epoch, and over epochs one after the other, in virtual time."""

from __future__ import annotations

import asyncio
import struct

import pytest

from mm2py.core.rates import refilled
from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.rates import Metered, RateShare, Unit
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.throttle import Throttle
from mm2py.wire.fetch_forms import FetchSizes
from tests.support.clocks import now
from tests.support.copy_rig import TOPIC, CopyRig, rig_of


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


async def test_the_narrower_of_two_limits_counts() -> None:
    """Bytes and records are both kept to."""
    throttle = Throttle([RateShare(BYTES, 1e9), RateShare(RECORDS, 100.0)], [a_copy()])

    rate = await run(throttle, a_copy(), 1_000, 10, 300)

    assert rate == pytest.approx(10_000, rel=0.05)


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


# Epochs one after the other, over model brokers.


_SECONDS = 20


async def copied(
    rig: CopyRig, share: RateShare, *, epoch_ms: int = 1_000, seconds: int = _SECONDS
) -> tuple[float, float]:
    """Run epochs, each with what the last one left; give the bytes and records a second, of what has arrived."""
    begun, took, records = now(), 0, 0
    while now() - begun < seconds:
        at = now()
        outcome = await rig.epoch(epoch_ms=epoch_ms, rates=(share,))
        took, records = took + outcome.bytes, records + outcome.records
        (use,) = outcome.rates
        level = refilled(use.level, share.per_s, now() - at - outcome.elapsed_s)
        share = RateShare(share.of, share.per_s, level)
        await asyncio.sleep(0.05)  # the boundary
        share = RateShare(share.of, share.per_s, refilled(share.level, share.per_s, 0.05))
    elapsed = now() - begun
    for number in rig.plans:
        held = rig.values(number)
        assert held == list(range(len(held)))
    return took / elapsed, records / elapsed


def loaded(batches: int, *, records: int, size: int, partitions: int = 3, brokers: int = 2) -> CopyRig:
    rig = rig_of(partitions, brokers=brokers, coalesce_below_bytes=0)
    for number in range(partitions):
        rig.load(number, batches, records=records, size=size)
    return rig


@pytest.mark.parametrize(
    ("of", "per_s", "brokers"),
    [
        # Each two of the three choices meet.
        (BYTES, 20_000.0, 1),
        (BYTES, 100_000.0, 2),
        (OF_TOPIC, 20_000.0, 2),
        (OF_TOPIC, 100_000.0, 1),
    ],
    ids=["flow, slow, one broker", "flow, fast, two", "topic, slow, two", "topic, fast, one"],
)
async def test_bytes_arrive_at_the_rate(of: Metered, per_s: float, brokers: int) -> None:
    """Over epochs, their boundaries, fetchers and brokers; batches may be a twentieth of a second's worth or more."""
    rig = loaded(round(per_s / 20), records=4, size=200, brokers=brokers)

    bytes_per_s, _ = await copied(rig, RateShare(of, per_s))

    assert bytes_per_s == pytest.approx(per_s, rel=0.05)


@pytest.mark.parametrize("of", [RECORDS, Metered(TOPIC, Unit.RECORDS)], ids=["flow", "topic"])
async def test_records_arrive_at_the_rate(of: Metered) -> None:
    """Records are counted in their batches, whatever their size."""
    rig = loaded(1_000, records=5, size=20)

    _, records_per_s = await copied(rig, RateShare(of, 300.0))

    assert records_per_s == pytest.approx(300.0, rel=0.05)


@pytest.mark.parametrize("of", [BYTES, OF_TOPIC], ids=["flow", "topic"])
async def test_a_batch_of_many_seconds_worth(of: Metered) -> None:
    """One batch every five seconds through epochs of one: the average is right, and every partition gets its turn."""
    rig = loaded(60, records=10, size=500)

    bytes_per_s, _ = await copied(rig, RateShare(of, 1_000.0), seconds=300)

    assert bytes_per_s == pytest.approx(1_000.0, rel=0.1)
    turns = [len(rig.values(number)) for number in rig.plans]
    assert min(turns) > 60, turns


async def test_few_fetches_are_made_while_there_is_nothing_to_give() -> None:
    """Waiting for a limit is no busy loop: about ten fetches a second for each fetcher at most."""
    rig = loaded(1_500, records=4, size=200, brokers=1)
    for of in (BYTES, OF_TOPIC):
        outcome = await rig.epoch(epoch_ms=5_000, rates=(RateShare(of, 20_000.0),))

        assert outcome.fetches < 5 * 50, of
        assert [use.waited_s for use in outcome.rates] == [pytest.approx(5.0, abs=1.0)]


async def test_below_its_limit_a_stream_is_as_quick_as_without() -> None:
    """Records that come one batch at a time arrive within milliseconds under a limit that is far away."""
    rig = rig_of(1, coalesce_below_bytes=0)
    late = []

    async def write() -> None:
        for _ in range(100):
            rig.load(0, 1, records=4, size=200)
            await asyncio.sleep(0.02)
            late.append(rig.upstream().end - rig.remote().end)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        epoch = tasks.create_task(rig.epoch(epoch_ms=4_500, rates=(RateShare(BYTES, 100_000.0, 5_000.0),)))

    assert set(late[5:]) == {0}
    assert [use.waited_s for use in epoch.result().rates] == [0.0]
