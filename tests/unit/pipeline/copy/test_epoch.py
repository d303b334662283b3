"""A whole epoch over model clusters: what it copies, when it ends, and what it says of all that goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from mm2py.model.epoch import (
    RECREATED,
    SETTLING_MS,
    Ended,
    EpochOutcome,
    LogOffsets,
    PartitionOutcome,
    ProducerMark,
    Run,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy import epoch
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import START_MS, Content, build_batch
from tests.support.copy_rig import DRAIN_MS, EPOCH_MS, REMOTE, TOPIC, CopyRig, rig_of, worker_of
from tests.support.model_cluster import ModelCluster, ModelConnection, ModelPartition


OLD_ID, NEW_ID = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.fixture
async def rig() -> AsyncIterator[CopyRig]:
    rig = rig_of()
    yield rig
    await rig.worker.close()


def of(outcome: EpochOutcome, number: int = 0) -> PartitionOutcome:
    return next(p for p in outcome.partitions if p.source.partition == number)


async def test_epoch_copies_what_is_there_and_says_where_it_went(rig: CopyRig) -> None:
    """Everything in the source arrives, and the outcome tells positions, runs and the source's ends."""
    rig.load(0, 20)
    rig.load(1, 5, records=1)
    outcome = await rig.epoch()

    assert rig.values(0) == list(range(60))
    assert rig.values(1) == list(range(5))
    assert (outcome.flow, outcome.task, outcome.epoch) == (Flow("A", "B"), 0, 0)
    assert (of(outcome).position, of(outcome).downstream, of(outcome).runs) == (60, 59, (Run(0, 0, 60),))
    assert (of(outcome).log, of(outcome).ended) == (LogOffsets(0, 60), Ended.OK)
    assert (outcome.records, of(outcome, 1).records) == (65, 5)
    assert outcome.latency.count == outcome.age.count == 65
    assert outcome.elapsed_s == pytest.approx(EPOCH_MS / 1000, abs=0.02)
    assert outcome.drain_s == pytest.approx(0, abs=0.02)
    assert (outcome.retries, outcome.throttled_ms) == (0, 0)


async def test_epochs_follow_each_other_without_a_seam(rig: CopyRig) -> None:
    """Records written between, before and during epochs are copied once; connections and producer id live on."""
    for _ in range(3):
        rig.load(0, 2)
        asyncio.get_running_loop().call_later(0.5, rig.load, 0, 2)
        await rig.epoch()

    assert rig.values(0) == list(range(36))
    assert len(rig.source.connections) == 2
    assert len(rig.target.connections) == 1
    assert rig.target.producer_ids == 1001


async def test_partition_without_news_is_told_once(rig: CopyRig) -> None:
    """The first epoch tells the ends of quiet partitions, later ones leave them out."""
    first = await rig.epoch()
    second = await rig.epoch()

    assert [p.log.high_watermark for p in first.partitions] == [0, 0]
    assert second.partitions == ()


async def test_quiet_epoch_asks_little(rig: CopyRig) -> None:
    """With nothing to copy the two fetches wait at the broker as long as they may."""
    outcome = await rig.epoch(epoch_ms=5_000)

    assert outcome.fetches <= 2 * 12
    assert outcome.produces == 0


async def test_stop_file_ends_the_epoch_early(rig: CopyRig, tmp_path: Path) -> None:
    """If the worker sees the stop file the epoch ends within a moment, with all it had copied."""
    stop_file = tmp_path / "stop"
    rig.load(0, 3)
    asyncio.get_running_loop().call_later(2, stop_file.touch)
    outcome = await rig.epoch(epoch_ms=60_000, stop_file=str(stop_file))

    assert rig.values() == list(range(9))
    assert outcome.elapsed_s == pytest.approx(2.2, abs=0.2)


async def test_a_settled_epoch_does_not_look_at_its_partitions_again(
    rig: CopyRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a stop file may appear an epoch polls for it, not for partitions that are sure: there may be thousands."""
    looked: list[float] = []
    monkeypatch.setattr(epoch, "_is_resuming", lambda _copy: looked.append(asyncio.get_running_loop().time()))
    begun = asyncio.get_running_loop().time()
    outcome = await rig.epoch(epoch_ms=3_000, stop_file=str(tmp_path / "stop"))

    assert outcome.elapsed_s == pytest.approx(3, abs=0.1)
    assert looked
    assert max(looked) - begun < 0.5


# Trouble with clusters.


@pytest.mark.parametrize("side", ["source", "target"])
async def test_unreachable_cluster_is_an_outcome(rig: CopyRig, side: str) -> None:
    """A cluster that is away for the whole epoch interrupts every partition, with what to check."""
    getattr(rig, side).is_unreachable = True
    outcome = await rig.epoch()

    assert [p.ended for p in outcome.partitions] == [Ended.INTERRUPTED] * 2
    assert all(p.failure and "bootstrap.servers" in p.failure.hint for p in outcome.partitions)
    assert outcome.elapsed_s == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_cluster_that_comes_back_within_the_epoch_is_used(rig: CopyRig, side: str) -> None:
    """An epoch keeps trying until its deadline, and what it overcame is not its result."""
    rig.load(0, 3)
    cluster: ModelCluster = getattr(rig, side)
    cluster.is_unreachable = True
    asyncio.get_running_loop().call_later(0.5, setattr, cluster, "is_unreachable", False)
    outcome = await rig.epoch()

    assert rig.values() == list(range(9))
    assert {p.ended for p in outcome.partitions} == {Ended.OK}


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("harm", ["is_frozen", "hanging"])
async def test_epoch_ends_in_time_whatever_hangs(rig: CopyRig, side: str, harm: str) -> None:
    """Brokers that answer nothing, or open no connection for ten seconds, hold no epoch beyond its drain time."""
    rig.load(0, 3)
    cluster: ModelCluster = getattr(rig, side)
    setattr(cluster, harm, True if harm == "is_frozen" else {0})
    outcome = await rig.epoch(epoch_ms=SETTLING_MS)

    assert outcome.elapsed_s <= (SETTLING_MS + DRAIN_MS) / 1000 + 0.2
    assert not outcome.records
    assert of(outcome).is_unsure is (side == "target" and harm == "is_frozen") if outcome.partitions else True


@pytest.mark.parametrize("harm", ["is_frozen", "hanging"])
async def test_a_silent_source_is_told_however_long_its_time_outs_are(rig: CopyRig, harm: str) -> None:
    """The epoch ends before the connection gives the broker up: that it has answered nothing is said all the same."""
    setattr(rig.source, harm, True if harm == "is_frozen" else {0})
    outcome = await rig.epoch(epoch_ms=SETTLING_MS)

    assert [p.ended for p in outcome.partitions] == [Ended.INTERRUPTED] * 2
    assert all(p.failure and "broker 0 at the source answered nothing" in p.failure.message for p in outcome.partitions)


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
    connect = ModelCluster.connection

    async def slowly(cluster: ModelCluster, node: int, purpose: str) -> ModelConnection:
        if not any(it.purpose == purpose for it in cluster.connections):
            await asyncio.sleep(0.8)
        return await connect(cluster, node, purpose)

    monkeypatch.setattr(ModelCluster, "connection", slowly)
    rig.load(0, 3)
    for _ in range(2):
        await rig.epoch(epoch_ms=500)

    assert rig.values() == list(range(9))


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


async def test_slow_target_stops_fetching(rig: CopyRig) -> None:
    """While the target takes nothing, no more than the buffer and one answer are read; then everything goes on."""
    rig = rig_of(1, buffer_bytes=50_000, partition_buffer_bytes=30_000, fetch_max_bytes=10_000)
    rig.load(0, 400, size=1_000)
    rig.target.is_frozen = True
    await rig.epoch()
    read = sum(1 for _, key in rig.source.sent if key == 1)

    assert read <= 5
    rig.target.is_frozen = False
    for connection in rig.target.connections:
        connection.close("reset by peer")
    while rig.plans[0].position < 1_200:
        await rig.epoch()

    assert rig.values() == list(range(1_200))
    await rig.worker.close()


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
    failure = of(outcome, 0).failure
    assert failure is not None
    assert "NOT_ENOUGH_REPLICAS" in failure.message
    await rig.worker.close()


async def test_source_broker_that_goes_away_while_a_share_is_full_does_not_stop_the_epoch() -> None:
    """
    A fetcher whose remaining partitions all wait for the target has nothing to ask of a broker that is gone.

    The source's broker vanishes from the metadata while one partition is paused and the other one is being fetched;
    then the target takes batches again, and another broker leads at the source.
    """
    rig = rig_of(2, partition_buffer_bytes=5_000, fetch_max_bytes=20_000)
    rig.load(0, 100, size=1_000)
    rig.target.produce_fault = lambda _tp, _raw: (ErrorCode.NOT_ENOUGH_REPLICAS, False)
    loop = asyncio.get_running_loop()

    def lose_the_broker() -> None:
        for partition in rig.source.partitions.values():
            partition.leader = 1
        rig.source.unlisted = {0}
        for connection in rig.source.connections:
            connection.close("reset by peer")

    loop.call_later(0.3, lose_the_broker)
    loop.call_later(0.5, setattr, rig.target, "produce_fault", lambda _tp, _raw: None)
    loop.call_later(0.6, rig.load, 1, 5)
    async with asyncio.timeout(60):
        await rig.epoch(epoch_ms=4_000)

    assert (rig.values(0), rig.values(1)) == (list(range(300)), list(range(15)))
    await rig.worker.close()


async def test_leaders_that_move_are_followed_on_both_sides() -> None:
    """Partitions whose leaders move during an epoch go on at the new ones within it."""
    rig = rig_of(4, brokers=3)
    for number in range(4):
        rig.load(number, 10)
    loop = asyncio.get_running_loop()

    def move() -> None:
        for cluster in (rig.source, rig.target):
            cluster.known_leaders = {tp: p.leader for tp, p in cluster.partitions.items()}
            for partition in cluster.partitions.values():
                partition.leader = ((partition.leader or 0) + 1) % 3
                partition.leader_epoch += 1
        for number in range(4):
            rig.load(number, 10)

    loop.call_later(0.3, move)
    loop.call_later(1.0, move)
    outcome = await rig.epoch(epoch_ms=3_000)

    assert [rig.values(number) for number in range(4)] == [list(range(90))] * 4
    assert [(p.ended, p.is_unsure) for p in outcome.partitions] == [(Ended.OK, False)] * 4
    assert outcome.retries > 0
    await rig.worker.close()


async def test_source_trouble_that_was_overcome_is_not_reported(rig: CopyRig) -> None:
    """A quiet partition whose source leader was missing at the start has had no trouble once a fetch was answered."""
    rig.source.partitions[TopicPartition(TOPIC, 0)].leader = None
    asyncio.get_running_loop().call_later(0.4, setattr, rig.source.partitions[TopicPartition(TOPIC, 0)], "leader", 0)
    outcome = await rig.epoch(epoch_ms=3_000)

    assert (of(outcome).ended, of(outcome).failure) == (Ended.OK, None)
    assert outcome.retries > 0


SOURCE_ERRORS = [
    (ErrorCode.OFFSET_OUT_OF_RANGE, Ended.OUT_OF_RANGE, "copy.on.source"),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Ended.FAILED, "READ"),
    (ErrorCode.CORRUPT_MESSAGE, Ended.FAILED, "disk"),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, Ended.INTERRUPTED, "tried again"),
    (ErrorCode.FENCED_LEADER_EPOCH, Ended.INTERRUPTED, "tried again"),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Ended.INTERRUPTED, "tried again"),
    (ErrorCode.KAFKA_STORAGE_ERROR, Ended.INTERRUPTED, "tried again"),
]


@pytest.mark.parametrize(("code", "ended", "hint"), SOURCE_ERRORS, ids=lambda value: getattr(value, "name", ""))
async def test_source_errors_end_or_interrupt_one_partition(
    rig: CopyRig, code: ErrorCode, ended: Ended, hint: str
) -> None:
    """What the source answers for one partition concerns that one: it ends visibly, or is tried again."""
    rig.load(0, 3)
    rig.load(1, 3)
    rig.source.fetch_fault = lambda tp: code if tp.partition == 0 else 0
    outcome = await rig.epoch()

    assert of(outcome, 0).ended is ended
    failure = of(outcome, 0).failure
    assert failure is not None
    assert code.name in failure.message
    assert hint in failure.hint
    assert (of(outcome, 1).ended, rig.values(1)) == (Ended.OK, list(range(9)))


async def test_position_behind_the_source_is_out_of_range(rig: CopyRig) -> None:
    """A position that the source no longer holds, or does not hold yet, is reported with its offset."""
    partition = rig.source.partitions[TopicPartition(TOPIC, 0)]
    rig.load(0, 10)
    partition.start = 20
    rig.load(1, 1)
    rig.plans[1] = attrs.evolve(rig.plans[1], position=50, downstream=49)
    outcome = await rig.epoch()

    assert [(p.ended, p.failure and p.failure.offset) for p in outcome.partitions] == [
        (Ended.OUT_OF_RANGE, 0),
        (Ended.OUT_OF_RANGE, 50),
    ]


@pytest.mark.parametrize("planned_id", ["old", "new", None])
async def test_position_is_not_used_for_another_topic_of_the_name(rig: CopyRig, planned_id: str | None) -> None:
    """A topic that was created again ends its partition; without an id in the plan nothing can be said."""
    rig.load(0, 1)
    rig.source.topic_ids[TOPIC] = "new"
    rig.plans = {0: attrs.evolve(rig.plans[0], topic_id=planned_id)}
    outcome = await rig.epoch()

    failed = planned_id == "old"
    assert (of(outcome).ended, of(outcome).failure) == ((Ended.RECREATED, RECREATED) if failed else (Ended.OK, None))
    assert rig.values(0) == ([] if failed else [0, 1, 2])


@pytest.mark.parametrize("fetch_versions", [(4, 12), (4, 18)])
async def test_topic_created_again_under_an_open_fetch_ends_its_partition(
    rig: CopyRig, fetch_versions: tuple[int, int]
) -> None:
    """A new topic that has grown past the position is not read on, and what was copied before is in the outcome."""
    partition = TopicPartition(TOPIC, 0)
    rig.source.topic_ids[TOPIC], rig.source.fetch_versions = OLD_ID, fetch_versions
    rig.plans = {0: attrs.evolve(rig.plans[0], topic_id=OLD_ID)}
    rig.load(0, 2)

    async def exchange() -> None:
        await asyncio.sleep(0.3)
        rig.source.partitions[partition].leader = None
        await asyncio.sleep(0.02)
        rig.source.partitions[partition] = ModelPartition(0)
        rig.source.topic_ids[TOPIC] = NEW_ID
        rig.load(0, 5)

    exchanging = asyncio.create_task(exchange())
    outcome = await rig.epoch()
    await exchanging

    assert (of(outcome).ended, of(outcome).failure) == (Ended.RECREATED, RECREATED)
    assert (of(outcome).records, of(outcome).position, rig.values()) == (6, 6, list(range(6)))


async def test_topic_id_that_a_broker_does_not_know_yet_is_asked_for_again(rig: CopyRig) -> None:
    """A broker that learns of a topic later than others answers that it knows no such id: that passes."""
    rig.source.topic_ids[TOPIC] = OLD_ID
    rig.plans = {0: attrs.evolve(rig.plans[0], topic_id=OLD_ID)}
    rig.load(0, 1)
    knows_from = asyncio.get_running_loop().time() + 0.2
    rig.source.fetch_fault = lambda _: (
        0 if asyncio.get_running_loop().time() >= knows_from else ErrorCode.UNKNOWN_TOPIC_ID
    )
    outcome = await rig.epoch()

    assert (of(outcome).ended, rig.values()) == (Ended.OK, [0, 1, 2])
    assert outcome.retries > 0


async def test_epoch_stays_with_the_topic_that_it_has_found(rig: CopyRig) -> None:
    """If a plan has no topic id, it is about the topic that exists when the epoch begins."""
    rig.source.topic_ids[TOPIC] = OLD_ID
    rig.load(0, 1)
    asyncio.get_running_loop().call_later(0.3, rig.source.topic_ids.update, {TOPIC: NEW_ID})
    asyncio.get_running_loop().call_later(0.3, rig.load, 0, 1)
    outcome = await rig.epoch()

    assert (of(outcome).ended, rig.values()) == (Ended.RECREATED, [0, 1, 2])


async def test_records_of_others_have_the_remote_topic_looked_up(rig: CopyRig) -> None:
    """A batch that lands behind records which are not ours may have gone to another topic of that name."""
    rig.load(0, 1)
    await rig.epoch()
    before = rig.target.refreshes
    rig.target.partitions[TopicPartition(REMOTE, 0)].load(
        build_batch([Content(0, START_MS, None, b"7")], base_offset=3)
    )
    rig.load(0, 1)
    outcome = await rig.epoch()

    assert of(outcome).foreign_records == 1
    assert rig.target.refreshes == before + 1


async def test_missing_remote_partition_is_an_interruption(rig: CopyRig) -> None:
    """A remote topic that is not there yet keeps its partitions waiting, with the reason, and no others."""
    rig.load(0, 1)
    rig.load(1, 1)
    del rig.target.partitions[TopicPartition(REMOTE, 1)]
    outcome = await rig.epoch()
    failure = of(outcome, 1).failure

    assert rig.values(0) == [0, 1, 2]
    assert of(outcome, 1).ended is Ended.INTERRUPTED
    assert failure is not None
    assert "no broker leads A.orders-1" in failure.message


async def test_producer_goes_with_its_partition_to_another_worker(rig: CopyRig) -> None:
    """An epoch in another worker goes on with the partition's producer id and sequence, and asks for none."""
    rig.load(0, 2)
    rig.load(1, 1)
    await rig.epoch()
    rig.worker = worker_of(rig.source, rig.target)
    rig.load(0, 3)
    await rig.epoch()

    assert rig.values() == list(range(15))
    assert rig.target.producer_ids == 1001
    assert [rig.plans[number].producer for number in (0, 1)] == [ProducerMark(1001, 0, 15), ProducerMark(1001, 0, 3)]


async def test_producer_that_the_target_lost_is_replaced(rig: CopyRig) -> None:
    """A sequence that is refused although nothing more arrived means a lost producer: a new id is taken, once."""
    rig.load(0, 1)
    await rig.epoch()
    rig.target.produce_fault = lambda _tp, _raw: (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False)
    rig.load(0, 1)
    outcome = await rig.epoch()

    assert (of(outcome).ended, of(outcome).is_unsure) == (Ended.INTERRUPTED, True)
    rig.target.produce_fault = lambda _tp, _raw: None
    outcome = await rig.epoch()

    assert (of(outcome).ended, of(outcome).producer) == (Ended.INTERRUPTED, None)
    await rig.epoch()

    assert rig.values() == list(range(6))
    assert rig.plans[0].producer == ProducerMark(1002, 0, 3)
    assert rig.plans[1].producer == ProducerMark(1001, 0, 0)


async def test_answers_do_not_stay_for_the_sake_of_one_stuck_partition() -> None:
    """
    The memory of many small answers goes although a partition that does not get on has a small part of each.

    One partition gets a record with each answer and is not taken by the target; the other gets a hundred times as
    much and is copied at once.
    """
    rig = rig_of(2)
    sick = TopicPartition(REMOTE, 0)
    rig.target.produce_fault = lambda tp, _raw: (ErrorCode.NOT_ENOUGH_REPLICAS, False) if tp == sick else None
    held: list[int] = []
    loop = asyncio.get_running_loop()

    def feed(left: int) -> None:
        rig.load(0, 1, records=1)
        rig.load(1, 1, records=1, size=50_000)
        if left:
            loop.call_later(0.02, feed, left - 1)

    from mm2py.pipeline.copy import epoch as copier  # noqa: PLC0415

    original = copier._Epoch._drain

    async def look(self: Any, sender: Any) -> None:
        held.extend(
            {
                id(p.batch.obj): len(p.batch.obj) for c in self._copies for p in (*c.buffer.in_flight, *c.buffer.queue)
            }.values()
        )
        await original(self, sender)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copier._Epoch, "_drain", look)
        feed(400)
        await rig.epoch(epoch_ms=9_000)

    assert len(held) >= 300
    assert sum(held) < 100 * 50_000
    await rig.worker.close()
