"""Epochs whose clusters, or brokers of them, fail, are slow, or move their leaders: each record arrives once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.epoch import SETTLING_MS, Ended
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy import fetching, worker_state
from mm2py.wire.error_codes import ErrorCode
from tests.support import in_process
from tests.support.clocks import now
from tests.support.copy_rig import DRAIN_MS, REMOTE, TOPIC, CopyRig, known, of, rig_of
from tests.support.in_process import InProcessCluster, InProcessConnection, ProduceFault


@pytest.mark.parametrize("side", ["source", "target"])
async def test_unreachable_cluster_is_an_outcome(rig: CopyRig, side: str) -> None:
    """A cluster that is away for the whole epoch interrupts every partition, with what to check."""
    getattr(rig, side).is_unreachable = True
    outcome = await rig.epoch()

    assert [p.ended for p in outcome.partitions] == [Ended.INTERRUPTED] * 2
    assert all(p.failure and "bootstrap.servers" in p.failure.hint for p in outcome.partitions)
    assert outcome.elapsed_s == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_partitions_without_records_are_well_again_once_both_clusters_answer(rig: CopyRig, side: str) -> None:
    """The first epoch that is answered after one that could not begin says so of each, later ones nothing of any."""
    cluster: InProcessCluster = getattr(rig, side)
    await rig.epoch()
    cluster.is_unreachable = True
    cluster.doubt(0)  # else an epoch begins with what is known of its topics
    interrupted = await rig.epoch()
    cluster.is_unreachable = False
    outcomes = [await rig.epoch(epoch_ms=3_000) for _ in range(3)]
    (again,) = (outcome.partitions for outcome in outcomes if outcome.partitions)

    assert [p.ended for p in interrupted.partitions] == [Ended.INTERRUPTED] * 2
    assert [(p.source.partition, p.ended) for p in again] == [(0, Ended.OK), (1, Ended.OK)]


@pytest.mark.parametrize("side", ["source", "target"])
async def test_cluster_that_comes_back_within_the_epoch_is_used(rig: CopyRig, side: str) -> None:
    """An epoch keeps trying until its deadline, and what it overcame is not its result."""
    rig.load(0, 3)
    cluster: InProcessCluster = getattr(rig, side)
    cluster.is_unreachable = True
    asyncio.get_running_loop().call_later(0.5, setattr, cluster, "is_unreachable", False)
    outcome = await rig.epoch()

    assert rig.values() == list(range(9))
    assert {p.ended for p in outcome.partitions} == {Ended.OK}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("harm", ["is_frozen", "hanging"])
async def test_epoch_ends_in_time_whatever_hangs(rig: CopyRig, side: str, harm: str) -> None:
    """Brokers that answer nothing, or open no connection for ten seconds, hold no epoch beyond its drain time."""
    await rig.epoch()
    rig.load(0, 3)
    _harm(getattr(rig, side), harm)
    outcome = await rig.epoch(epoch_ms=SETTLING_MS)

    assert outcome.elapsed_s <= (SETTLING_MS + DRAIN_MS) / 1000 + 0.2
    assert not outcome.records
    assert of(outcome).is_unsure is (side == "target" and harm == "is_frozen") if outcome.partitions else True


@pytest.mark.parametrize("harm", ["is_frozen", "hanging"])
async def test_a_silent_source_is_told_however_long_its_time_outs_are(rig: CopyRig, harm: str) -> None:
    """The epoch ends before the connection gives the broker up: that it has answered nothing is said all the same."""
    await rig.epoch()
    _harm(rig.source, harm)
    outcome = await rig.epoch(epoch_ms=SETTLING_MS)

    assert [p.ended for p in outcome.partitions] == [Ended.INTERRUPTED] * 2
    assert all(p.failure and "broker 0 at the source answered nothing" in p.failure.message for p in outcome.partitions)


def _harm(cluster: InProcessCluster, harm: str) -> None:
    """Have the cluster answer nothing, or have all connections end and none be opened."""
    if harm == "is_frozen":
        cluster.is_frozen = True
    else:
        cluster.hanging = {0}
        cluster.drop()


@pytest.mark.parametrize("alias", ["A", "B"])
async def test_the_cluster_that_opens_no_connection_is_named(rig: CopyRig, alias: str) -> None:
    """A cluster that has as many connections as it takes neither accepts nor refuses another one."""
    (rig.source if alias == "A" else rig.target).hanging = {0}
    outcome = await rig.epoch(epoch_ms=SETTLING_MS)

    assert {known(it.failure).message for it in outcome.partitions} == {
        f"cluster {alias} did not answer within the epoch's time"
    }


async def test_an_epoch_lasts_until_it_is_known_what_has_arrived(rig: CopyRig) -> None:
    """
    The resume takes longer than an epoch: it is not started again in each.

    Copying is lost with its outcome, and epochs are shorter than the target's end must stand still.
    """
    rig.load(0, 3)
    await rig.epoch(is_lost=True)
    rig.doubt()
    rig.load(0, 2)
    first = await rig.epoch(epoch_ms=100)
    await rig.epoch(epoch_ms=100)

    assert [p.is_unsure for p in first.partitions] == [False, False]
    assert 0.25 < first.elapsed_s < 1
    assert rig.values() == list(range(15))


async def test_an_epoch_lasts_until_its_brokers_are_connected(rig: CopyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting to a distant source takes longer than an epoch: the next one finds the connection open."""
    connect = InProcessCluster.connection

    async def slowly(cluster: InProcessCluster, node: int, purpose: str = "") -> InProcessConnection:
        if purpose and not any(it.purpose == purpose for it in cluster.connections):
            await asyncio.sleep(0.8)
        return await connect(cluster, node, purpose)

    monkeypatch.setattr(InProcessCluster, "connection", slowly)
    rig.load(0, 3)
    for _ in range(2):
        await rig.epoch(epoch_ms=500)

    assert rig.values() == list(range(9))


async def test_all_is_fetched_until_an_epoch_that_lasts_longer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker opens no connection. The other one is fetched from in the last millisecond before the planned end."""
    monkeypatch.setattr(in_process, "LATENCY_S", 0.0007)
    rig = rig_of(2, brokers=2, fetch_max_wait_ms=0)
    await rig.source.refresh_metadata([TOPIC])
    rig.source.hanging = {0}
    asyncio.get_running_loop().call_later(2, rig.load, 1, 3)
    outcome = await rig.epoch()

    assert outcome.elapsed_s == pytest.approx(SETTLING_MS / 1000, abs=0.2)
    assert rig.values(1) == list(range(9))


async def test_frozen_target_leaves_doubt_and_the_next_epoch_resolves_it(rig: CopyRig) -> None:
    """What a frozen target had been sent is in doubt, found out at the next epoch, and nothing is there twice."""
    rig.load(0, 3)
    await rig.epoch()
    rig.load(0, 5)
    rig.target.is_manual = True
    loop = asyncio.get_running_loop()
    loop.call_later(0.5, lambda: [c.process() for c in rig.target.connections])
    outcome = await rig.epoch()

    assert (of(outcome).ended, of(outcome).is_unsure, of(outcome).position) == (Ended.INTERRUPTED, True, 9)
    rig.target.is_manual = False
    outcome = await rig.epoch(epoch_ms=2_000)

    assert rig.values() == list(range(24))
    assert of(outcome).resumed_records == 15
    assert (of(outcome).is_unsure, of(outcome).position) == (False, 24)


@pytest.mark.parametrize("for_s", [0.1, 60])
async def test_what_the_target_refuses_holds_no_epoch_up(rig: CopyRig, for_s: float) -> None:
    """
    What has just been refused when the epoch ends gets another attempt.

    Nothing is fetched of the other partitions meanwhile.
    """
    refused_until = now() + 0.95 + for_s

    def fault(tp: TopicPartition, _raw: bytes) -> ProduceFault | None:
        return (ErrorCode.NOT_ENOUGH_REPLICAS, False) if tp.partition == 0 and now() < refused_until else None

    rig.target.produce_fault = fault
    asyncio.get_running_loop().call_later(0.95, rig.load, 0, 3)
    outcome = await rig.epoch()

    assert outcome.drain_s < 0.2
    assert of(outcome).records == (9 if for_s < 1 else 0)


async def test_what_the_target_refuses_is_not_looked_for_at_the_source(rig: CopyRig) -> None:
    """A partition ends while its leader at the source is away: no other one has to be found for it."""

    def fault(tp: TopicPartition, _raw: bytes) -> ProduceFault:
        rig.upstream(tp.partition).lead(None)
        rig.source.drop()
        return ErrorCode.MESSAGE_TOO_LARGE, False

    rig.target.produce_fault = fault
    rig.plans.pop(1)
    rig.load(0, 1)
    outcome = await rig.epoch()

    assert of(outcome).ended is Ended.FAILED
    assert outcome.retries <= 1


async def test_slow_target_stops_fetching() -> None:
    """While the target takes nothing, no more than the buffer and one answer are read; then everything goes on."""
    rig = rig_of(1, buffer_bytes=50_000, partition_buffer_bytes=30_000, fetch_max_bytes=10_000)
    rig.load(0, 400, size=1_000)
    rig.target.is_frozen = True
    await rig.epoch()
    read = sum(1 for _, key in rig.source.sent if key == 1)

    assert read <= 5
    rig.target.is_frozen = False
    rig.target.drop()
    while rig.plans[0].position < 1_200:
        await rig.epoch()

    assert rig.values() == list(range(1_200))


async def test_one_partition_with_a_full_share_does_not_stop_others() -> None:
    """A partition that the target does not take is left out of fetches; the others go on."""
    rig = rig_of(2, brokers=1, partition_buffer_bytes=10_000)
    sick = TopicPartition(REMOTE, 0)
    rig.target.produce_fault = lambda tp, _raw: (ErrorCode.NOT_ENOUGH_REPLICAS, False) if tp == sick else None
    for number in (0, 1):
        rig.load(number, 50, size=1_000)
    outcome = await rig.epoch()

    assert (rig.values(0), rig.values(1)) == ([], list(range(150)))
    assert (of(outcome, 0).ended, of(outcome, 1).ended) == (Ended.INTERRUPTED, Ended.OK)
    failure = known(of(outcome, 0).failure)
    assert "NOT_ENOUGH_REPLICAS" in failure.message
    assert "fewer replicas than its min.insync.replicas" in failure.hint


async def test_source_broker_that_goes_away_while_a_share_is_full_does_not_stop_the_epoch() -> None:
    """
    A fetcher whose remaining partitions all wait for the target has nothing to ask of a broker that is gone.

    The source's broker vanishes from the metadata while one partition is paused and the other one is being fetched;
    then the target takes batches again, and another broker leads at the source.
    """
    rig = rig_of(2, brokers=2, partition_buffer_bytes=5_000, fetch_max_bytes=20_000)
    rig.upstream(1).lead(0)
    rig.load(0, 100, size=1_000)
    rig.target.produce_fault = lambda _tp, _raw: (ErrorCode.NOT_ENOUGH_REPLICAS, False)
    loop = asyncio.get_running_loop()

    def lose_the_broker() -> None:
        for partition in rig.source.partitions.values():
            partition.lead(1)
        rig.source.simulated.fenced[0] = None
        rig.source.drop()

    loop.call_later(0.3, lose_the_broker)
    loop.call_later(0.5, setattr, rig.target, "produce_fault", lambda _tp, _raw: None)
    loop.call_later(0.6, rig.load, 1, 5)
    async with asyncio.timeout(60):
        await rig.epoch(epoch_ms=4_000)

    assert (rig.values(0), rig.values(1)) == (list(range(300)), list(range(15)))


# Whatever happens between and during epochs.


PARTITIONS = 2
SHORT_MS = 600

PASSING = [
    (ErrorCode.NOT_ENOUGH_REPLICAS, False),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
    (ErrorCode.REQUEST_TIMED_OUT, True),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False),
    (ErrorCode.UNKNOWN_PRODUCER_ID, True),
]


def move(cluster: InProcessCluster) -> None:
    for partition in cluster.partitions.values():
        partition.lead(1 - partition.leader)


def thaw(cluster: InProcessCluster) -> None:
    """Go on after a freeze: the broker takes what it had been sent; whether the answers arrive is another matter."""
    cluster.is_frozen = False
    for connection in cluster.connections:
        for _ in list(connection.requests):
            connection.process()
    cluster.drop()


#: What may happen at some moment of an epoch.
EVENTS: dict[str, Callable[[CopyRig, int], None]] = {
    "write": lambda rig, number: rig.load(number % PARTITIONS, 1 + number % 4, records=1 + number % 3),
    "write many": lambda rig, number: rig.load(number % PARTITIONS, 20, size=200),
    "drop source": lambda rig, _: rig.source.drop(),
    "drop target": lambda rig, _: rig.target.drop(),
    "move source": lambda rig, _: move(rig.source),
    "move target": lambda rig, _: move(rig.target),
    "freeze target": lambda rig, _: setattr(rig.target, "is_frozen", True),
    "thaw target": lambda rig, _: thaw(rig.target),
    "lose target": lambda rig, _: setattr(rig.target, "is_unreachable", True),
    "find target": lambda rig, _: setattr(rig.target, "is_unreachable", False),
}

moment = st.tuples(st.sampled_from(list(EVENTS)), st.integers(0, 20), st.integers(0, SHORT_MS))
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
    outcome = await rig.epoch(epoch_ms=SHORT_MS, drain_ms=500, is_lost=end == "lost")

    assert all(p.ended in {Ended.OK, Ended.INTERRUPTED} for p in outcome.partitions), outcome.partitions
    assert outcome.elapsed_s <= (SETTLING_MS + 500) / 1000 + 0.2
    assert not [copy for copy in rig.untouched().values() if copy.has_news or not copy.is_as_planned]
    if end == "lost":
        rig.doubt()
    await asyncio.sleep(SHORT_MS / 1000)


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
