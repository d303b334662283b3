"""A whole epoch over model clusters: what it copies, when it ends, and what it says of all that goes wrong."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, NoReturn

import attrs
import pytest

from mm2py.model.epoch import RECREATED, Ended, LogOffsets, ProducerMark, Run
from mm2py.model.flow import Flow, TopicPartition
from mm2py.pipeline.copy import epoch
from mm2py.pipeline.copy.epoch import copy_epoch
from mm2py.pipeline.copy.worker_state import worker_name
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import START_MS, Content, build_batch
from tests.support.clocks import LoopClock
from tests.support.copy_rig import EPOCH_MS, NEW_ID, OLD_ID, REMOTE, TOPIC, CopyRig, known, of, rig_of, worker_of
from tests.support.fake_brokers import FETCH


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


async def test_an_epoch_shorter_than_a_long_poll_ends_in_time() -> None:
    """Fetches at its start end with it as well: others would be given up, and their connections with them."""
    rig = rig_of(4)
    await rig.epoch()
    connections = len(rig.source.connections)
    outcomes = [await rig.epoch(epoch_ms=300) for _ in range(3)]

    assert [outcome.elapsed_s for outcome in outcomes] == pytest.approx([0.3] * 3, abs=0.02)
    assert len(rig.source.connections) == connections


async def test_epochs_follow_each_other_without_a_seam(rig: CopyRig) -> None:
    """Records written between, before and during epochs are copied once; connections and producer id live on."""
    for _ in range(3):
        rig.load(0, 2)
        asyncio.get_running_loop().call_later(0.5, rig.load, 0, 2)
        await rig.epoch()

    assert rig.values(0) == list(range(36))
    assert len(rig.source.connections) == 2
    assert len(rig.target.connections) == 1
    assert rig.target.simulated.producer_ids == 1001


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


async def test_an_executor_whose_clock_is_hours_ahead_is_named(rig: CopyRig) -> None:
    """By its time each plan is too old to be sent by, as on a machine that was suspended: nothing else tells why."""
    rig.load(0, 3)
    clock = LoopClock()
    plan = attrs.evolve(rig.plan(), void_after_ms=clock.wall_ms() - 1)
    outcome = await epoch.copy_epoch(plan, clock, rig.worker)

    assert rig.values() == []
    assert [p.ended for p in outcome.partitions] == [Ended.INTERRUPTED] * 2
    failure = known(of(outcome).failure)
    assert f"{worker_name()} this epoch was planned hours ago" in failure.message
    assert "clocks" in failure.hint


async def test_an_epoch_that_is_asked_to_end_does_so_at_once(rig: CopyRig, tmp_path: Path) -> None:
    """Where the daemon can ask, the stop file is looked for once a second, in case that what it asks gets lost."""
    loop, stop_file, ends = asyncio.get_running_loop(), tmp_path / "stop", []
    for file, is_lost in ((None, False), (str(stop_file), False), (str(stop_file), True)):
        is_asked_to_end = asyncio.Event()
        loop.call_later(2.03, stop_file.touch if is_lost else is_asked_to_end.set)
        plan = attrs.evolve(rig.plan(), epoch_ms=60_000, stop_file=file)
        ends.append((await copy_epoch(plan, LoopClock(), rig.worker, is_asked_to_end)).elapsed_s)

    # What is fetched has a tenth of a second to arrive.
    assert ends[:2] == pytest.approx([2.13, 2.13], abs=0.02)
    assert 3.0 <= ends[2] <= 3.12


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


async def test_source_trouble_that_was_overcome_is_not_reported(rig: CopyRig) -> None:
    """A quiet partition whose source leader was missing at the start has had no trouble once a fetch was answered."""
    rig.upstream().lead(None)
    asyncio.get_running_loop().call_later(0.4, rig.upstream().lead, 0)
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
    assert code.name in known(of(outcome, 0).failure).message
    assert hint in known(of(outcome, 0).failure).hint
    assert (of(outcome, 1).ended, rig.values(1)) == (Ended.OK, list(range(9)))


async def test_position_behind_the_source_is_out_of_range(rig: CopyRig) -> None:
    """A position that the source no longer holds, or does not hold yet, is reported with its offset."""
    rig.load(0, 10)
    rig.upstream().start = 20
    rig.load(1, 1)
    rig.plans[1] = attrs.evolve(rig.plans[1], position=50, downstream=49)
    outcome = await rig.epoch()

    assert [(p.ended, p.failure and p.failure.offset) for p in outcome.partitions] == [
        (Ended.OUT_OF_RANGE, 0),
        (Ended.OUT_OF_RANGE, 50),
    ]


@pytest.mark.parametrize("planned_id", [OLD_ID, NEW_ID, None])
async def test_position_is_not_used_for_another_topic_of_the_name(rig: CopyRig, planned_id: str | None) -> None:
    """A topic that was created again ends its partition; without an id in the plan nothing can be said."""
    rig.source.create(TOPIC, 1, NEW_ID)
    rig.load(0, 1)
    rig.plans = {0: attrs.evolve(rig.plans[0], topic_id=planned_id)}
    outcome = await rig.epoch()

    failed = planned_id == OLD_ID
    assert (of(outcome).ended, of(outcome).failure) == ((Ended.RECREATED, RECREATED) if failed else (Ended.OK, None))
    assert rig.values(0) == ([] if failed else [0, 1, 2])


@pytest.mark.parametrize("fetch_versions", [(4, 12), (4, 18)])
async def test_topic_created_again_under_an_open_fetch_ends_its_partition(
    rig: CopyRig, fetch_versions: tuple[int, int]
) -> None:
    """A new topic that has grown past the position is not read on, and what was copied before is in the outcome."""
    rig.source.versions[FETCH] = fetch_versions
    rig.plans.pop(1)
    rig.load(0, 2)

    def exchange() -> None:
        rig.source.create(TOPIC, 1, NEW_ID)
        rig.load(0, 5)

    asyncio.get_running_loop().call_later(0.3, exchange)
    outcome = await rig.epoch()

    assert (of(outcome).ended, of(outcome).failure) == (Ended.RECREATED, RECREATED)
    assert (of(outcome).records, of(outcome).position, rig.values()) == (6, 6, list(range(6)))


async def test_topic_id_that_a_broker_does_not_know_yet_is_asked_for_again(rig: CopyRig) -> None:
    """A broker that learns of a topic later than others answers that it knows no such id: that passes."""
    rig.plans.pop(1)
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
    rig.plans = {number: attrs.evolve(plan, topic_id=None) for number, plan in rig.plans.items()}
    rig.load(0, 1)

    def exchange() -> None:
        rig.source.create(TOPIC, 2, NEW_ID)
        rig.load(0, 2)

    asyncio.get_running_loop().call_later(0.3, exchange)
    outcome = await rig.epoch()

    assert (of(outcome).ended, rig.values()) == (Ended.RECREATED, [0, 1, 2])


async def test_records_of_others_have_the_remote_topic_looked_up(rig: CopyRig) -> None:
    """A batch that lands behind records which are not ours may have gone to another topic of that name."""
    rig.load(0, 1)
    await rig.epoch()
    before = rig.target.asked("Metadata")
    rig.remote().load(build_batch([Content(0, START_MS, None, b"7")], base_offset=3))
    rig.load(0, 1)
    outcome = await rig.epoch()

    assert of(outcome).foreign_records == 1
    assert rig.target.asked("Metadata") == before + 1


async def test_producer_goes_with_its_partition_to_another_worker(rig: CopyRig) -> None:
    """An epoch in another worker goes on with the partition's producer id and sequence, and asks for none."""
    rig.load(0, 2)
    rig.load(1, 1)
    await rig.epoch()
    rig.worker = worker_of(rig.source, rig.target)
    rig.load(0, 3)
    await rig.epoch()

    assert rig.values() == list(range(15))
    assert rig.target.simulated.producer_ids == 1001
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


async def test_a_long_hold_of_one_broker_does_not_keep_the_partitions_of_others_waiting() -> None:
    """
    A quota of the target holds one of its brokers' partitions for several epochs.

    What was fetched of them cannot be sent, so the end of an epoch does not wait for it; once the hold is over it is.
    """
    rig = rig_of(2, brokers=2)
    for number in (0, 1):
        rig.load(number, 1)
    await rig.epoch()
    now = asyncio.get_running_loop().time
    for connection in rig.target.connections:
        if connection.node == 0:
            connection.muted_until = now() + 4
    held = []
    for _ in range(2):
        rig.load(0, 1)
        rig.load(1, 1)
        held.append(await rig.epoch())
    during = len(rig.values(0)), len(rig.values(1))
    for _ in range(4):
        await rig.epoch()

    assert [outcome.drain_s for outcome in held] == pytest.approx([0.1, 0.1], abs=0.02)
    assert during == (3, 9)
    assert rig.values(0) == rig.values(1) == list(range(9))


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

    original = epoch._Epoch._drain

    async def look(self: Any, sender: Any) -> None:
        views = [it.batch.obj for copy in self._copies for it in (*copy.buffer.in_flight, *copy.buffer.queue)]
        held.extend({id(it): len(it) for it in views}.values())
        await original(self, sender)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(epoch._Epoch, "_drain", look)
        feed(400)
        await rig.epoch(epoch_ms=9_000)

    assert len(held) >= 300
    assert sum(held) < 100 * 50_000


def test_a_measure_that_fails_loses_no_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may have as many files open as it may; what it has copied is copied."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    found = epoch._rss_bytes()
    monkeypatch.setattr("builtins.open", refuse)

    assert (found > 0, epoch._rss_bytes()) == (True, 0)
