"""Which partitions share a fetch: where there are many, busy ones do not wait for those without records."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.model.rates import Metered, RateShare, Unit
from mm2py.pipeline.copy.sent_plan import MANY
from tests.support.copy_rig import TOPIC, rig_of


async def test_few_partitions_have_two_fetchers() -> None:
    rig = rig_of(MANY)
    await rig.epoch()

    assert len(rig.fetched_by()) == 2


async def test_a_partition_with_records_leaves_the_quiet_ones_and_goes_back() -> None:
    """It loses no record on its way to the busy ones, begins the next epoch there, and is quiet again after a while."""
    rig = rig_of(MANY + 1)
    await rig.epoch()
    quiet = rig.fetched_by()
    loop = asyncio.get_running_loop()
    for number in range(8):
        loop.call_later(0.1 * number, rig.load, 3, 1)
    await rig.epoch()
    after = rig.fetched_by()
    rig.load(3, 1)
    await rig.epoch()
    next_epoch = rig.fetched_by()
    rig.worker.heard_at.update(dict.fromkeys(rig.worker.heard_at, loop.time() - 60))
    await rig.epoch()

    assert sum(map(len, quiet.values())) == MANY + 1
    assert len(quiet) == 2
    (busy,) = after.keys() - quiet.keys()
    assert after[busy] == next_epoch[busy] == {3}
    assert [3 in some for fetcher_id, some in next_epoch.items() if fetcher_id != busy] == [False, False]
    assert any(3 in some for fetcher_id, some in rig.fetched_by().items() if fetcher_id != busy)
    assert rig.values(3) == list(range(9 * 3))
    assert {number for number in range(MANY + 1) if rig.values(number)} == {3}


_RATES = [(), (RateShare(Metered("", Unit.BYTES), 1e6),), (RateShare(Metered(TOPIC, Unit.BYTES), 1e6),)]


@pytest.mark.parametrize("rates", _RATES, ids=["no limit", "flow", "topic"])
async def test_of_many_partitions_those_without_news_are_made_once(rates: tuple[RateShare, ...]) -> None:
    """The next epoch has them as they are; those that had records, or a new plan, are made again."""
    rig = rig_of(MANY + 1)
    for _ in range(2):
        await rig.epoch(rates=rates)
    (before,) = (dict(it) for it in rig.worker.untouched.values())
    rig.load(3, 1)
    await rig.epoch(rates=rates)
    (after,) = (dict(it) for it in rig.worker.untouched.values())
    await rig.epoch(rates=rates)
    (later,) = rig.worker.untouched.values()

    assert {it.partition for it in before} == set(range(MANY + 1))
    assert {it.partition for it in before if after.get(it) is not before[it]} == {3}
    assert {it.partition for it in later if later[it] is not after.get(it)} == {3}


async def test_a_limit_that_is_new_holds_for_partitions_that_were_made_before() -> None:
    """The broker has them in its session without a limit, and is told of the limit's end, too."""
    rig = rig_of(MANY + 1)
    told = []
    for rates in ((), (), _RATES[2], ()):
        await rig.epoch(rates=rates)
        sessions = [session for it in rig.source.connections for session in it._sessions.values()]
        told.append({most for session in sessions for _, _, most in session.values()})

    share = int(1e6 * 0.1 / (MANY + 1))
    assert told == [{rig.limits.fetch_partition_max_bytes}] * 2 + [{share}, {rig.limits.fetch_partition_max_bytes}]
