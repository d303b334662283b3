"""What is done about a source or a target that is not what a position is about. Both clusters only pretend."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import cast

import attrs
import pytest

from mm2py.config.connector import BrokenHistorySettings
from mm2py.connectors.offsets.translations import Translations, chunk_record
from mm2py.connectors.source.broken_history import About, BrokenHistory
from mm2py.connectors.source.group import SourceLife
from mm2py.connectors.source.position_writer import PositionWriter
from mm2py.connectors.source.positions import Positions
from mm2py.core.offsets.translation import Precision, Translated
from mm2py.core.source.broken_history import Observation
from mm2py.core.source.progress import PartitionState
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error
from mm2py.model.epoch import Ended, EpochOutcome, EpochPlan, LogOffsets, PartitionFailure, PartitionOutcome, Run, Runs
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import MIRROR_SOURCE, Position, encode_position
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.state import PartitionStage
from mm2py.storage.compacted_topic import TopicVanishedError
from mm2py.telemetry.events import (
    ClusterRecovered,
    PartitionStopped,
    RemoteTopicRecreated,
    SourceRecordsExpired,
    SourceTopicRecreated,
    StepFailed,
)
from mm2py.telemetry.events.base import Level
from mm2py.telemetry.journal import EventLog
from mm2py.wire.fenced_writer import TakenOverError
from mm2py.wire.metadata import UNKNOWN_EPOCH
from mm2py.wire.requests import EARLIEST
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, changed, source_context
from tests.support.source_tasks import MARK, copied, running


#: They are not listed again.
TOPICS = SimpleNamespace(want_refresh=lambda: None, latest=None)
REFUSED = TopicVanishedError("B", "CreateTopics", 44, "POLICY_VIOLATION", "mm2-offsets.A.internal")


@attrs.define
class Written:
    """The positions topic, which refuses what is written as long as there is an error."""

    error: Mm2Error | None = None
    positions: list[Position] = attrs.field(factory=list)

    async def start_over(self, positions: Collection[Position], *_: object) -> None:
        if self.error is not None:
            raise self.error
        self.positions += positions


class Log:
    """The positions topic, record by record."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    async def write(self, positions: Collection[Position], before: Sequence[Sequence[LogRecord]] = ()) -> None:
        self.records += [record for step in before for record in step]
        self.records += [LogRecord(*encode_position("A", position)) for position in positions]


async def _looked(_: BrokenHistory, states: Collection[PartitionState]) -> list[tuple[PartitionState, Observation]]:
    """Find another remote topic."""
    return [(state, Observation("id-1", 0, 100, "new", 0)) for state in states]


async def test_a_finding_that_is_not_stored_before_the_group_restarts_is_told_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    The target's disks were wiped, so this node is no member any more and may not write, and its source group restarts.

    What was decided is not stored, so the next life finds it again: it stops nothing, and reports nothing twice.
    """
    written, undone = Written(TakenOverError("B", "A-mm2-MirrorSourceConnector-0")), dict[TopicPartition, About]()
    monkeypatch.setattr(BrokenHistory, "_look", _looked)
    async with running(partitions=1, tasks_max=1) as group:
        tasks = group.tasks
        context = source_context(tasks._clock, group.events)
        life = SimpleNamespace(tasks=tasks, writer=written, topics=TOPICS)
        await asyncio.sleep(10)
        (state,) = [attrs.evolve(state, remote_topic_id="old") for state in tasks.ledger.states.values()]
        tasks.doubts.question(state, Ended.TARGET_REWOUND, PartitionFailure("another topic"))
        for error in (written.error, None):
            written.error = error
            truth = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life), undone).run())
            await asyncio.sleep(10)
            truth.cancel()

    assert len(group.events.of(RemoteTopicRecreated)) == 1
    assert group.events.of(PartitionStopped) == ()
    assert [position.next_upstream for position in written.positions] == [0]
    assert undone == {}


async def test_what_is_removed_while_a_finding_cannot_be_stored_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 copied, the source removes ten more records, and 20 before the target takes the position: 30 are gone."""
    written, starts = Written(BrokerConnectionError("B", "b:9092", "refused")), iter((40, 40, 60))

    async def look(_: BrokenHistory, states: Collection[PartitionState]) -> list[tuple[PartitionState, Observation]]:
        start = next(starts)
        written.error = written.error if start == 40 else None
        return [(state, Observation("id-1", start, 100, None, 30)) for state in states]

    monkeypatch.setattr(BrokenHistory, "_look", look)
    async with running(partitions=1, tasks_max=1) as group:
        context = source_context(group.tasks._clock, group.events)
        life = SimpleNamespace(tasks=group.tasks, writer=written, topics=TOPICS)
        await asyncio.sleep(10)
        (state,) = group.tasks.ledger.states.values()
        group.tasks.doubts.question(state, Ended.OUT_OF_RANGE, PartitionFailure("out of range"))
        truth = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life)).run())
        await asyncio.sleep(30)
        truth.cancel()

    assert [(it.lost, it.goes_on_at) for it in group.events.of(SourceRecordsExpired)] == [(10, 40), (30, 60)]
    assert [position.next_upstream for position in written.positions] == [60]


async def test_a_finding_that_cannot_be_stored_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A remote topic was created again, and for some minutes the target does not take the position that follows.

    The partition is shown as stopped, with the hint, and asked about at growing intervals; then it goes on.
    """
    written = Written(REFUSED)

    monkeypatch.setattr(BrokenHistory, "_look", _looked)
    async with running(partitions=2, tasks_max=1) as group:
        clock, events = group.tasks._clock, group.events
        context = source_context(clock, events)
        life = SimpleNamespace(tasks=group.tasks, writer=written, topics=TOPICS)
        truth = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life)).run())
        await asyncio.sleep(10)
        (first, second) = [attrs.evolve(state, remote_topic_id="old") for state in group.tasks.ledger.states.values()]
        group.tasks.doubts.question(first, Ended.TARGET_REWOUND, PartitionFailure("another topic"))
        await asyncio.sleep(200)
        stopped, goes_on = (group.tasks.ledger.states[state.source] for state in (first, second))
        written.error = None
        await asyncio.sleep(200)
        group.tasks.note_fenced([attrs.evolve(it.standing, producer=MARK) for it in group.tasks.ledger.unfenced()])
        await asyncio.sleep(200)
        truth.cancel()

    (told,) = group.events.of(RemoteTopicRecreated)
    (stop,) = group.events.of(PartitionStopped)
    (step,) = group.events.of(StepFailed)
    assert told.source == stop.source == first.source
    assert stop.hint == step.hint == REFUSED.hint
    assert (stopped.stage, goes_on.stage) == (PartitionStage.STOPPED, PartitionStage.COPYING)
    assert group.tasks.ledger.states[first.source].stage is PartitionStage.COPYING
    assert [position.next_upstream for position in written.positions] == [0]


@pytest.mark.parametrize("is_untouched", [False, True], ids=["all stop", "all but one go on"])
async def test_a_topic_that_was_created_again_is_one_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, *, is_untouched: bool
) -> None:
    """
    Of many partitions the first one says how many others there are, and another one has a line if it lost something.

    Each is reported all the same, for the metrics, and for those who look closer.
    """

    async def look(_: BrokenHistory, states: Collection[PartitionState]) -> list[tuple[PartitionState, Observation]]:
        ends = {2: 5}  # of the former topic, of which nothing was copied
        logs = {it.source: LogOffsets(0, ends.get(it.source.partition, 0)) for it in states}
        seen = [attrs.evolve(it, log=logs[it.source], position=0, downstream=-1) for it in states]
        found = Observation("another", 0, 0, None, 0, is_untouched=is_untouched)
        return [(state, found) for state in seen]

    monkeypatch.setattr(BrokenHistory, "_look", look)
    async with running(partitions=4, tasks_max=1) as group:
        tasks = group.tasks
        life = SimpleNamespace(tasks=tasks, writer=Written(), topics=TOPICS)
        await asyncio.sleep(10)
        states = tasks.ledger.states
        for state in list(states.values()):
            states[state.source] = attrs.evolve(state, topic_id="id-1")
        first = next(iter(states.values()))
        context = source_context(tasks._clock, group.events)
        truth = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life)).run())
        tasks.doubts.question(first, Ended.RECREATED, PartitionFailure("another topic"))
        await asyncio.sleep(100)
        truth.cancel()

    told = group.events.of(SourceTopicRecreated)
    assert sorted(event.source.partition for event in told) == [0, 1, 2, 3]
    assert [event.others for event in told] == [3, None, 2 if is_untouched else None, None]
    assert {event.source.partition for event in told if event.severity is Level.ERROR} == {told[0].source.partition, 2}


@attrs.define
class Side:
    """A cluster on which topic t, or its remote topic, has two partitions that end somewhere."""

    topic_id_now: str
    ends: dict[int, int] = attrs.field(factory=dict)
    epoch: int = UNKNOWN_EPOCH
    has_leaders: bool = True

    async def refresh_metadata(self, _topics: Collection[str]) -> None:
        return

    def topic_id(self, _topic: str) -> str:
        return self.topic_id_now

    def partitions_of(self, _topic: str) -> tuple[int, ...]:
        return (0, 1)

    def leader(self, _partition: TopicPartition) -> int:
        return 0

    def leader_epoch(self, _partition: TopicPartition) -> int:
        return self.epoch

    async def list_offsets(
        self, partitions: Collection[TopicPartition], when: int, *, patience_s: float | None = None
    ) -> dict[TopicPartition, int]:
        if not self.has_leaders:
            await asyncio.sleep(30 if patience_s is None else patience_s)
            raise BrokerConnectionError("B", "b1:9092", "it is gone")
        return {it: 0 if when == EARLIEST else self.ends.get(it.partition, 0) for it in partitions}


@pytest.mark.parametrize(("written", "is_untouched"), [("new", True), ("old", False)])
async def test_what_other_nodes_copy_of_a_recreated_topic(
    events: EventLog, written: str, *, is_untouched: bool
) -> None:
    """
    A topic is created again before its first record, and two nodes copy it.

    The other node goes on with its partition first: what that copies is of the new topic, as it has written before.
    """
    ours, theirs = TopicPartition("t", 0), TopicPartition("t", 1)
    state = PartitionState(ours, "A.t", position=0, downstream=-1, topic_id="old", remote_topic_id="r")
    known: dict[TopicPartition, Position] = {}

    async def follow() -> None:
        known[theirs] = Position(theirs, 50, 49, written)

    life = SimpleNamespace(
        source=Side("new", {0: 50, 1: 50}),
        target=Side("r", {1: 50}),
        positions=SimpleNamespace(known=known),
        keeper=SimpleNamespace(follow=follow),
        tasks=SimpleNamespace(
            doubts=None,
            ledger=SimpleNamespace(states={ours: state}),
            holders=SimpleNamespace(is_alone=False),
        ),
    )
    truth = BrokenHistory(source_context(LoopClock(), events), cast("SourceLife", life))
    [(_, look)] = await truth._look([state])

    assert look.is_untouched is is_untouched


async def test_a_quiet_remote_partition_that_lost_records_is_questioned(
    monkeypatch: pytest.MonkeyPatch, events: EventLog
) -> None:
    """
    Two partitions get another leader at the target: one lost its end by that, the other one is as it was.

    Nothing is copied to either, so no answer shows it; nor do listings before or after it. Brokers that do not answer
    yet are asked again, and so is a leader that does not tell its end yet.
    """
    unknown = BrokerAnsweredError("B", "ListOffsets", 78, "OFFSET_NOT_AVAILABLE")
    ends: list[dict[int, object] | None] = [None, {0: unknown}, {0: 60}]
    asked, questioned, epoch = list[set[int]](), list[tuple[TopicPartition, str]](), 3

    async def whole_ends(
        _: object, partitions: Collection[TopicPartition], **_wait: float
    ) -> dict[TopicPartition, object]:
        asked.append({it.partition for it in partitions})
        if (some := ends.pop(0)) is None:
            raise BrokerConnectionError("B", "b1:9092", "it is gone")
        found = {1: 100, **some}
        return {it: found[it.partition] for it in partitions}

    monkeypatch.setattr("mm2py.connectors.source.broken_history.whole_ends", whole_ends)
    states = {
        it: PartitionState(it, "A.t", position=100, downstream=99, is_unsure=False)
        for it in (TopicPartition("t", 0), TopicPartition("t", 1))
    }
    life = SimpleNamespace(
        target=SimpleNamespace(leader_epoch=lambda _: epoch),
        tasks=SimpleNamespace(
            doubts=SimpleNamespace(question=lambda state, _, failure: questioned.append((state.source, str(failure)))),
            ledger=SimpleNamespace(states=states, mirrored=lambda: list(states.values())),
        ),
    )
    truth = BrokenHistory(source_context(LoopClock(), events), cast("SourceLife", life))
    await truth._look_for_losses()
    epoch = 4
    with pytest.raises(BrokerConnectionError):
        await truth._look_for_losses()
    for _ in range(3):
        await truth._look_for_losses()

    assert asked == [{0, 1}, {0, 1}, {0}]
    ((source, why),) = questioned
    assert source.partition == 0
    assert "A.t-0 ends at 60 at the target, but offset 99 was written to it" in why


async def test_what_is_in_question_waits_for_no_leader_of_another_partition(events: EventLog) -> None:
    """
    The only broker of a remote partition dies, which shows in its leader epoch; its end can be learnt from none.

    A partition that is in question is not copied, so it is asked about within seconds all the same.
    """
    asked, clock, target = list[float](), LoopClock(), Side("r", epoch=3, has_leaders=False)
    states = {it: PartitionState(it, "A.t", 100, 99, is_unsure=False) for it in [TopicPartition("t", 0)]}
    topics = SimpleNamespace(latest="a listing")
    doubts = SimpleNamespace(has_questions=asyncio.Event(), suspects=tuple)
    doubts.questions = lambda: asked.append(clock.monotonic()) or ()
    ledger = SimpleNamespace(states=states, mirrored=lambda: list(states.values()))
    life = SimpleNamespace(target=target, tasks=SimpleNamespace(doubts=doubts, ledger=ledger), topics=topics)
    looking = asyncio.create_task(BrokenHistory(source_context(clock, events), cast("SourceLife", life)).run())
    await asyncio.sleep(10)
    target.epoch, topics.latest = 4, "another listing"
    await asyncio.sleep(100)
    looking.cancel()

    assert max(after - before for before, after in itertools.pairwise(asked)) < 10


async def test_a_look_for_lost_records_that_asks_nothing_makes_no_recovery(events: EventLog) -> None:
    """Topics were listed, then the target's broker died. No leader has moved since, so it is not asked for any end."""
    life = SimpleNamespace(
        target=SimpleNamespace(leader_epoch=lambda _: 3),
        tasks=SimpleNamespace(
            doubts=SimpleNamespace(has_questions=asyncio.Event(), questions=tuple, suspects=tuple),
            ledger=SimpleNamespace(states={}, mirrored=tuple),
        ),
        topics=SimpleNamespace(latest="a listing"),
    )
    context = source_context(LoopClock(), events)
    context.reach.failed("write positions", ClusterUnreachableError("B", "b:9092", "connection refused"))
    looking = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life)).run())
    await asyncio.sleep(10)
    looking.cancel()

    assert context.reach.steps()[0].step == "look for lost records"
    assert not context.reach.is_complete
    assert events.of(ClusterRecovered) == ()


async def test_where_records_went_is_removed_before_the_position_of_a_new_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A remote topic was created again, and the source has lost its first records by now, so offsets differ.

    A daemon that follows after a crash, another node, the library: nobody reads the new position beside what was known
    of the former topic, by which groups would skip records.
    """
    log = Log()
    monkeypatch.setattr(BrokenHistory, "_look", _looked)
    async with running(partitions=1, tasks_max=1) as group:
        tasks, translations = group.tasks, Translations(flow_runs=10, partition_runs=10)
        context = source_context(tasks._clock, group.events)
        writer = PositionWriter(context, tasks, cast("Positions", log), translations, logs=())
        life = SimpleNamespace(tasks=tasks, positions=log, writer=writer, topics=TOPICS)
        await asyncio.sleep(10)
        (state,) = [attrs.evolve(state, remote_topic_id="old") for state in tasks.ledger.states.values()]
        translations.adopt({state.source: state.standing}, {state.source: state.remote_topic})
        log.records += [chunk_record(context.flow, change, MIRROR_SOURCE) for change in translations.take_changes()]
        tasks.doubts.question(state, Ended.TARGET_REWOUND, PartitionFailure("another topic"))
        truth = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life)).run())
        await asyncio.sleep(10)
        truth.cancel()
    stored, seen = PositionsTopic("A"), []
    for record in log.records:
        stored.take(record)
        seen.append((set(stored.positions), stored.with_runs))

    assert seen == [(set(), {state.source}), (set(), set()), ({state.source}, set())]


async def test_what_was_copied_before_the_source_lost_records_is_translated_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The leader epoch of what was copied last ends at offset 60 of the source: another history follows, and is copied.

    What a daemon reads after a crash, before anything of it was copied, says the same as this one.
    """
    log = Log()

    async def looked(_: BrokenHistory, states: Collection[PartitionState]) -> list[tuple[PartitionState, Observation]]:
        look = Observation("id-1", 0, 200, "old", 100, history_end=60, history_epoch=3)
        return [(state, look) for state in states]

    monkeypatch.setattr(BrokenHistory, "_look", looked)
    async with running(partitions=1, tasks_max=1) as group:
        tasks, translations = group.tasks, Translations(flow_runs=10, partition_runs=10)
        context = source_context(tasks._clock, group.events)
        writer = PositionWriter(context, tasks, cast("Positions", log), translations, logs=())
        life = SimpleNamespace(tasks=tasks, positions=log, writer=writer, topics=TOPICS)
        await asyncio.sleep(10)
        (state,) = tasks.ledger.states.values()
        state = attrs.evolve(
            state, position=100, downstream=99, topic_id="id-1", remote_topic_id="old", is_unsure=False
        )
        tasks.ledger.states[state.source] = state
        start = Position(state.source, 0, -1, "id-1", remote_topic_id="old")
        translations.adopt({state.source: start}, {state.source: state.remote_topic})
        runs = Runs([Run(0, 0, 100)])
        outcome = PartitionOutcome(
            state.source, 100, 99, is_unsure=False, records=100, bytes=1, log=state.log, runs=runs
        )
        translations.account(outcome, 0)
        log.records += [chunk_record(context.flow, change, MIRROR_SOURCE) for change in translations.take_changes()]
        tasks.doubts.question(state, Ended.TRUNCATED, PartitionFailure("it ended before the position"))
        truth = asyncio.create_task(BrokenHistory(context, cast("SourceLife", life)).run())
        await asyncio.sleep(10)
        truth.cancel()
    stored = PositionsTopic("A")
    for record in log.records:
        stored.take(record)
    later = Translations(flow_runs=10, partition_runs=10)
    later.load(stored.chunks.values())
    later.adopt(stored.positions, {state.source: state.remote_topic})

    for known in (translations, later):
        assert [known.downstream(state.source, at) for at in (30, 60)] == [Translated(30), Translated(100)]
        assert known.downstream(state.source, 90) == Translated(100, Precision.END)


class RefusingAdmin:
    """A target that deletes no topics."""

    def __init__(self, _target: object) -> None: ...

    async def delete_topics(self, topics: Collection[str]) -> dict[str, BrokerAnsweredError]:
        return {it: BrokerAnsweredError("B", "DeleteTopics", 29, "TOPIC_AUTHORIZATION_FAILED", it) for it in topics}


async def _looked_at_the_source(
    _: BrokenHistory, states: Collection[PartitionState]
) -> list[tuple[PartitionState, Observation]]:
    """Find another source topic."""
    return [(state, Observation("id-2", 0, 100, state.remote_topic_id, 0)) for state in states]


async def test_a_refused_deletion_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again and again, at growing intervals, while the target does not delete a remote topic."""
    monkeypatch.setattr(BrokenHistory, "_look", _looked_at_the_source)
    monkeypatch.setattr("mm2py.connectors.source.broken_history.Admin", RefusingAdmin)
    async with running(partitions=1, tasks_max=1) as group:
        tasks = group.tasks
        settings = changed(SETTINGS, broken_history=BrokenHistorySettings(on_source_recreated="re-create"))
        life = SimpleNamespace(
            tasks=tasks,
            positions=Written(),
            source=SimpleNamespace(partitions_of=lambda _: (0,)),
            target=None,
            topics=TOPICS,
        )
        await asyncio.sleep(10)
        tasks.doubts.question(next(iter(tasks.ledger.states.values())), Ended.RECREATED, PartitionFailure("another"))
        truth = asyncio.create_task(
            BrokenHistory(source_context(tasks._clock, group.events, settings), cast("SourceLife", life)).run()
        )
        await asyncio.sleep(300)
        truth.cancel()

    (step,) = group.events.of(StepFailed)
    assert "TOPIC_AUTHORIZATION_FAILED" in step.error
    assert len(group.events.of(PartitionStopped)) == 1


async def test_the_topics_of_a_stopped_partition_are_looked_for_once_it_is_interrupted() -> None:
    """It stays stopped, for another reason than its topic, which was deleted since."""

    def stop_then_interrupt(plan: EpochPlan) -> EpochOutcome:
        return copied(plan, records=0, ended=Ended.INTERRUPTED if plan.epoch else Ended.FAILED)

    async with running(stop_then_interrupt, partitions=1, tasks_max=1) as group:
        await asyncio.sleep(10)
        before = group.tasks.doubts.suspects()
        await asyncio.sleep(60)
        (suspect,) = group.tasks.doubts.suspects()

    assert before == ()
    assert suspect.stage is PartitionStage.STOPPED
