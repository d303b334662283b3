"""An epoch after the other under rate limits, over model brokers in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.core.rates import refilled
from mm2py.model.rates import Metered, RateShare, Unit
from tests.support.copy_rig import TOPIC, CopyRig, rig_of


_SECONDS = 20
_FLOW_BYTES, _FLOW_RECORDS = Metered("", Unit.BYTES), Metered("", Unit.RECORDS)


async def copied(
    rig: CopyRig, share: RateShare, *, epoch_ms: int = 1_000, seconds: int = _SECONDS
) -> tuple[float, float]:
    """Run epochs, each with what the last one left; give the bytes and records a second, of what has arrived."""
    loop = asyncio.get_running_loop()
    begun, took, records = loop.time(), 0, 0
    while loop.time() - begun < seconds:
        at = loop.time()
        outcome = await rig.epoch(epoch_ms=epoch_ms, rates=(share,))
        took, records = took + outcome.bytes, records + outcome.records
        (use,) = outcome.rates
        level = refilled(use.level, share.per_s, loop.time() - at - outcome.elapsed_s)
        share = RateShare(share.of, share.per_s, level)
        await asyncio.sleep(0.05)  # the boundary
        share = RateShare(share.of, share.per_s, refilled(share.level, share.per_s, 0.05))
    elapsed = loop.time() - begun
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
        (_FLOW_BYTES, 20_000.0, 1),
        (_FLOW_BYTES, 100_000.0, 2),
        (Metered(TOPIC, Unit.BYTES), 20_000.0, 2),
        (Metered(TOPIC, Unit.BYTES), 100_000.0, 1),
    ],
    ids=["flow, slow, one broker", "flow, fast, two", "topic, slow, two", "topic, fast, one"],
)
async def test_bytes_arrive_at_the_rate(of: Metered, per_s: float, brokers: int) -> None:
    """Over epochs, their boundaries, fetchers and brokers; batches may be a twentieth of a second's worth or more."""
    rig = loaded(round(per_s / 20), records=4, size=200, brokers=brokers)

    bytes_per_s, _ = await copied(rig, RateShare(of, per_s))

    assert bytes_per_s == pytest.approx(per_s, rel=0.05)


@pytest.mark.parametrize("of", [_FLOW_RECORDS, Metered(TOPIC, Unit.RECORDS)], ids=["flow", "topic"])
async def test_records_arrive_at_the_rate(of: Metered) -> None:
    """Records are counted in their batches, whatever their size."""
    rig = loaded(1_000, records=5, size=20)

    _, records_per_s = await copied(rig, RateShare(of, 300.0))

    assert records_per_s == pytest.approx(300.0, rel=0.05)


@pytest.mark.parametrize("of", [_FLOW_BYTES, Metered(TOPIC, Unit.BYTES)], ids=["flow", "topic"])
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
    for of in (_FLOW_BYTES, Metered(TOPIC, Unit.BYTES)):
        outcome = await rig.epoch(epoch_ms=5_000, rates=(RateShare(of, 20_000.0),))

        assert outcome.fetches < 5 * 50, of
        assert [use.waited_s for use in outcome.rates] == [pytest.approx(5.0, abs=1.0)]


async def test_below_its_limit_a_stream_is_as_quick_as_without() -> None:
    """Records that come one batch at a time arrive within milliseconds under a limit that is far away."""
    rig = rig_of(1, coalesce_below_bytes=0)
    source = rig.upstream()
    target = rig.remote()
    late = []

    async def write() -> None:
        for _ in range(100):
            rig.load(0, 1, records=4, size=200)
            await asyncio.sleep(0.02)
            late.append(source.end - target.end)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        epoch = tasks.create_task(rig.epoch(epoch_ms=4_500, rates=(RateShare(_FLOW_BYTES, 100_000.0, 5_000.0),)))

    assert set(late[5:]) == {0}
    assert [use.waited_s for use in epoch.result().rates] == [0.0]
