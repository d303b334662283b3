"""Which partitions share a fetch: where there are many, busy ones do not wait for those without records."""

from __future__ import annotations

import asyncio
import gc

import pytest

from mm2py.model.epoch import Ended
from mm2py.model.rates import Metered, RateShare, Unit
from mm2py.pipeline.copy.fetching import SourceReader
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.sent_plan import MANY
from mm2py.pipeline.copy.slow_lines import SlowLines
from mm2py.pipeline.spark.worker import uncollected
from mm2py.wire.fetch import FetchSession
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from tests.support import in_process
from tests.support.batches import LOG_APPEND_TIME, build_batch
from tests.support.copy_rig import NEW_ID, REMOTE, TOPIC, CopyRig, rig_of
from tests.support.fake_brokers import FETCH
from tests.support.in_process import InProcessConnection


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


async def test_a_partition_is_never_in_two_fetches() -> None:
    """
    A busy fetcher takes it over while the quiet one takes an answer.

    The quiet one pauses after a batch that it had to build, before the partition's part of that answer.
    """
    rig = rig_of(MANY + 1)
    rig.load(5, 1)
    await rig.epoch()
    rig.source.is_manual = True
    epoch = asyncio.create_task(rig.epoch())
    await asyncio.sleep(0.1)
    by_purpose = {it.purpose: it for it in rig.source.connections}
    quiet, busy = by_purpose["fetch 5"], by_purpose["fetch 1"]
    rig.load(3, 1)
    await _answered(quiet)  # from now on the busy fetcher expects it
    rig.upstream(1).load(build_batch(2, attributes=LOG_APPEND_TIME))
    for number in (3, 5):
        rig.load(number, 1)
    await _answered(quiet, busy)
    rig.load(3, 1)
    while not epoch.done():
        await _answered(*rig.source.connections)

    assert [fetcher_id for fetcher_id, some in rig.fetched_by().items() if 3 in some] == [1]
    assert rig.values(3) == list(range(9))


async def _answered(*connections: InProcessConnection) -> None:
    """Have the answers to what is asked arrive together, and give them time to be taken."""
    for connection in connections:
        connection.process()
    for connection in connections:
        connection.deliver()
    await asyncio.sleep(0.01)


async def test_fetches_that_may_not_wait_are_made_all_the_same() -> None:
    rig = rig_of(2, fetch_max_wait_ms=0)
    asyncio.get_running_loop().call_later(0.3, rig.load, 1, 2)
    outcome = await rig.epoch()

    assert rig.values(1) == list(range(6))
    assert outcome.elapsed_s == pytest.approx(1, abs=0.1)


async def test_epochs_without_records_keep_the_connection_to_a_broker_that_is_far_away() -> None:
    """The last fetch of each allows for the way of its answer, which would come too late otherwise."""
    rig = rig_of(1)
    rig.source.far_s = 0.2
    outcomes = [await rig.epoch() for _ in range(3)]

    assert [connection.is_closed for connection in rig.source.connections] == [False]
    assert not [partition.failure for outcome in outcomes for partition in outcome.partitions if partition.failure]


async def test_a_broker_that_has_answered_nothing_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An epoch ends before one broker's first answer: it has records, which the other one's answers do not tell of.

    Taken for a partition that has nothing new, it would show a lag of 0.
    """
    rig = rig_of(2, brokers=2)
    first = await rig.epoch()
    behind = rig.upstream(1).leader
    monkeypatch.setattr(rig.source, "work_s", lambda line, key, _: 0.8 if (line.node, key) == (behind, FETCH) else 0.0)
    rig.load(1, 1)
    late = await rig.epoch(epoch_ms=200)
    after = await rig.epoch()

    assert [outcome.is_complete for outcome in (first, late, after)] == [True, False, True]
    assert (late.fetches > 0, late.partitions, after.records) == (True, (), 3)


async def test_a_quota_of_the_source_holds_in_the_next_epochs_too() -> None:
    """
    The broker reads nothing from the connection meanwhile; a fetch would seem to have no answer from it.

    Each epoch counts its own part, so that none of them takes the silence for the news that there is nothing new.
    """
    rig = rig_of(1)
    rig.source.simulated.throttle_ms = 3_500
    first = await rig.epoch()
    rig.source.simulated.throttle_ms = 0
    rig.load(0, 1)
    held = [await rig.epoch() for _ in range(2)]
    then = [await rig.epoch() for _ in range(2)]

    assert [outcome.fetches for outcome in held] == [0, 0]
    throttled_ms = [outcome.throttled_ms for outcome in (first, *held, *then)]
    assert all(throttled_ms[:3])
    assert sum(throttled_ms) <= 3_500
    assert not [partition.failure for outcome in held for partition in outcome.partitions if partition.failure]
    assert sum(outcome.records for outcome in then) == 3


@pytest.mark.parametrize(("fetch_versions", "fetches"), [((4, 18), 6), ((4, 12), 40)], ids=["by id", "by name"])
async def test_quiet_partitions_are_fetched_seldom(fetch_versions: tuple[int, int], fetches: int) -> None:
    """A broker looks at all of them for each fetch. A record that arrives meanwhile is copied at once all the same."""
    rig = rig_of(MANY + 1)
    rig.source.versions[FETCH] = fetch_versions
    idle = await rig.epoch(epoch_ms=10_000)
    asyncio.get_running_loop().call_later(4.0, rig.load, 3, 1)
    arrival = asyncio.create_task(_arrives(rig, 3, after_s=4.0))
    await rig.epoch(epoch_ms=10_000)

    assert idle.fetches == pytest.approx(fetches, abs=2)
    assert await arrival < 0.05


async def test_what_comes_during_a_long_fetch_does_not_wait_for_its_end() -> None:
    """Its leader was away for a moment. It is fetched with busy partitions until the next epoch."""
    rig = rig_of(MANY + 1)
    loop, partition = asyncio.get_running_loop(), rig.upstream(3)
    loop.call_later(4.0, partition.lead, None)
    loop.call_later(4.2, partition.lead, 0)
    loop.call_later(4.8, rig.load, 3, 1)
    arrival = asyncio.create_task(_arrives(rig, 3, after_s=4.8))
    await rig.epoch(epoch_ms=10_000)
    with_busy = [number for number, some in rig.fetched_by().items() if 3 in some]
    rig.worker.heard_at.clear()
    await rig.epoch(epoch_ms=10_000)

    assert await arrival < 0.05
    assert with_busy != [number for number, some in rig.fetched_by().items() if 3 in some]


async def _arrives(rig: CopyRig, number: int, *, after_s: float) -> float:
    """Return how long the first record takes that comes *after_s*."""
    await asyncio.sleep(after_s)
    return await rig.arrives(number, 1)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_of_many_partitions_none_is_copied_to_or_from_another_topic_of_the_name(side: str) -> None:
    """Those without news are not compared with the clusters' metadata again, unless that has changed."""
    rig = rig_of(MANY + 1)
    for _ in range(3):
        await rig.epoch()
    cluster, topic = (rig.source, TOPIC) if side == "source" else (rig.target, REMOTE)
    cluster.create(topic, MANY + 1, NEW_ID)
    await cluster.refresh_metadata([topic])
    outcome = await rig.epoch()

    expected = Ended.RECREATED if side == "source" else Ended.TARGET_REWOUND
    assert [partition.ended for partition in outcome.partitions] == [expected] * (MANY + 1)


_RATES = [(), (RateShare(Metered("", Unit.BYTES), 1e6),), (RateShare(Metered(TOPIC, Unit.BYTES), 1e6),)]


@pytest.mark.parametrize("rates", _RATES, ids=["no limit", "flow", "topic"])
async def test_of_many_partitions_those_without_news_are_made_once(rates: tuple[RateShare, ...]) -> None:
    """The next epoch has them as they are; those that had records, or a new plan, are made again."""
    rig = rig_of(MANY + 1)
    for _ in range(2):
        await rig.epoch(rates=rates)
    before = rig.untouched()
    rig.load(3, 1)
    await rig.epoch(rates=rates)
    after = rig.untouched()
    await rig.epoch(rates=rates)
    later = rig.untouched()

    assert {it.partition for it in before} == set(range(MANY + 1))
    assert {it.partition for it in before if after.get(it) is not before[it]} == {3}
    assert {it.partition for it in later if later[it] is not after.get(it)} == {3}


async def test_of_many_partitions_those_without_news_are_not_assigned_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where they were fetched they are again, until their leaders move or something happens to them."""
    rig = rig_of(MANY + 1, brokers=2)
    assigned: list[int] = []
    assign = SourceReader.assign

    def noted(reader: SourceReader, copy: PartitionCopy) -> None:
        assigned.append(copy.plan.source.partition)
        assign(reader, copy)

    monkeypatch.setattr(SourceReader, "assign", noted)
    for _ in range(2):
        await rig.epoch()
    assigned.clear()
    rig.load(3, 1)
    await rig.epoch()
    without_news, assigned[:] = list(assigned), []
    for partition in rig.source.partitions.values():
        partition.lead(1 - partition.leader)
    await rig.epoch()
    moved, assigned[:] = set(assigned), []
    rig.load(5, 1)
    await rig.epoch()

    assert without_news == []
    assert moved == set(range(MANY + 1))
    assert rig.values(3) == rig.values(5) == [0, 1, 2]


async def test_of_many_partitions_those_without_news_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is known that they have none, an epoch costs what the others do: tens of thousands may stand still."""
    rig = rig_of(MANY + 1)
    looked: set[int] = set()
    has_news, adopt = vars(PartitionCopy)["has_news"].fget, FetchSession._adopt

    def noted_news(copy: PartitionCopy) -> bool:
        looked.add(copy.plan.source.partition)
        return bool(has_news(copy))

    def noted_adopt(session: FetchSession, position: FetchPosition) -> None:
        looked.add(position.partition)
        adopt(session, position)

    monkeypatch.setattr(PartitionCopy, "has_news", property(noted_news))
    monkeypatch.setattr(FetchSession, "_adopt", noted_adopt)
    told = []
    for number in range(5):
        looked.clear()
        if number == 4:
            rig.load(3, 1)
        outcome = await rig.epoch()
        told.append(({it.source.partition for it in outcome.partitions}, set(looked)))

    everything = set(range(MANY + 1))
    assert told[:2] == [(everything, everything), (set(), everything)]
    assert told[2:] == [(set(), set()), (set(), set()), ({3}, {3})]
    assert rig.values(3) == [0, 1, 2]


@pytest.mark.parametrize("partitions", [MANY, MANY + 1])
async def test_what_an_epoch_leaves_is_garbage_at_once(partitions: int) -> None:
    """A worker looks at what is older once an hour: that takes longer, and nothing is copied meanwhile."""
    rig = rig_of(partitions)

    def copies() -> int:
        return sum(isinstance(it, PartitionCopy) for it in gc.get_objects())

    gc.collect()
    before = copies()
    with uncollected():
        for number in range(5):
            await rig.epoch()
            rig.load(number, 1)
            gc.collect(1)
        left = copies() - before
        gc.collect()

    assert left == copies() - before
    assert left <= partitions


async def test_a_limit_that_is_new_holds_for_partitions_that_were_made_before() -> None:
    """The broker has them in its session without a limit, and is told of the limit's end, too."""
    rig = rig_of(MANY + 1)
    told = []
    for rates in ((), (), _RATES[2], ()):
        await rig.epoch(rates=rates)
        sessions = [session for it in rig.source.simulated.brokers.values() for session in it.sessions.values()]
        told.append({most for session in sessions for _, _, most in session.wanted.values()})

    share = int(1e6 * 0.1 / (MANY + 1))
    assert told == [{rig.limits.fetch_partition_max_bytes}] * 2 + [{share}, {rig.limits.fetch_partition_max_bytes}]


async def test_answers_that_take_longer_than_an_epoch_become_smaller() -> None:
    """
    A mirror has a backlog after an outage, and a slow line to the source.

    An answer with as much as it may bring needs several epochs to arrive, and none of it counts before it has arrived
    as a whole.
    """
    rig = rig_of(1)
    rig.source.answers_bytes_per_s = 200_000
    rig.load(0, 30, size=10_000)
    for _ in range(20):
        await rig.epoch()

    assert rig.values() == list(range(90))


async def test_quick_answers_of_other_partitions_make_none_of_a_backlog_larger() -> None:
    """Another fetcher of the broker has partitions that are not behind: over a slow line, too, little comes quickly."""
    rig = rig_of(2)
    rig.source.answers_bytes_per_s = 60_000
    rig.load(0, 30, size=10_000)
    for _ in range(15):
        rig.load(1, 1)
        await rig.epoch(epoch_ms=5_000)

    assert rig.values(0) == list(range(90))
    assert rig.values(1) == list(range(45))


async def test_a_resume_gets_through_a_slow_line() -> None:
    """A daemon that was killed leaves more at the target than is known: that is read at the source to be compared."""
    rig = rig_of(1)
    rig.load(0, 30, size=10_000)
    await rig.epoch(is_lost=True)
    rig.doubt()
    rig.source.answers_bytes_per_s = 60_000
    for _ in range(30):
        await rig.epoch(epoch_ms=5_000)

    assert rig.values() == list(range(90))
    assert rig.plans[0].position == 90
    assert not rig.plans[0].is_unsure


async def test_a_broker_that_is_far_away_is_no_slow_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds fetches of idle partitions back until shortly before the epoch ends; what it answers then comes late."""
    monkeypatch.setattr(in_process, "LATENCY_S", 0.15)
    rig, sizes = rig_of(1), FetchSizes(1, 8 * 1024 * 1024, 1024 * 1024, reads_committed=False)
    for _ in range(15):
        await rig.epoch()

    assert rig.worker.slow_lines.limited(("A", 0), sizes) is sizes


def _full(sizes: FetchSizes) -> list[PartitionAnswer]:
    """Return an answer that brings as much as *sizes* allow."""
    return [PartitionAnswer(FetchPosition(b"t", 0, 0, -1, None), 0, 0, 0, 0, (), memoryview(bytes(sizes.max_bytes)))]


def test_what_takes_long_because_it_is_far_away_is_not_slow_for_ever() -> None:
    """
    Each answer takes a fifth of a short epoch, since the broker is far away, and once the line to it was slow.

    The time alone does not tell whether more would arrive in time: every now and then that is tried.
    """
    sizes = FetchSizes(1, 8 * 1024 * 1024, 1024 * 1024, reads_committed=False)
    line, lines = ("A", 1), SlowLines()
    lines.given_up(line, 0.9, sizes)
    limits = [lines.limited(line, sizes).max_bytes]
    for _ in range(2 * 32):
        lines.answered(line, 0.2, [], sizes)
        lines.answered(line, 0.2, _full(sizes), sizes)
        limits.append(lines.limited(line, sizes).max_bytes)

    assert limits == [2 * 1024 * 1024] * 32 + [4 * 1024 * 1024] * 32 + [sizes.max_bytes]


async def test_a_line_that_is_fast_again_gets_full_answers_again() -> None:
    """A broker that was stopped for a while answers nothing in that time, and then as fast as ever."""
    sizes = FetchSizes(1, 8 * 1024 * 1024, 1024 * 1024, reads_committed=False)
    line, lines = ("A", 1), SlowLines()
    for _ in range(20):
        lines.given_up(line, 0.9, sizes)
    least = lines.limited(line, sizes).max_bytes
    full = _full(sizes)
    lines.answered(line, 0.3, full, sizes)
    lines.answered(line, 0.01, [], sizes)
    same, other = lines.limited(line, sizes).max_bytes, lines.limited(("A", 2), sizes)
    answers = 0
    while lines.limited(line, sizes) is not sizes:
        lines.answered(line, 0.01, full, sizes)
        answers += 1
    lines.given_up(line, 0.1, sizes)  # it was sent shortly before the epoch ended

    assert least == same == 64 * 1024
    assert answers == 7
    assert other is lines.limited(line, sizes) is sizes
