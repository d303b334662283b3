"""Offset syncs: none is lost while their cluster is away or refuses, and none piles up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import attrs
import pytest

from mm2py.connectors.control_writers import ControlWriters
from mm2py.connectors.offsets import offset_syncs
from mm2py.connectors.offsets.offset_syncs import OffsetSyncs
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.source.group import SourceLife
from mm2py.core.internal_topics import InternalTopic
from mm2py.core.offsets.translation import Untranslated
from mm2py.core.source.progress import PartitionState
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.model.epoch import PartitionOutcome, Run
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.offset_sync import OffsetSync, decode_offset_sync, encode_offset_sync, offset_sync_headers
from mm2py.model.positions import Position
from mm2py.telemetry.events import ClusterUnreachable, OffsetSyncsRead, OffsetSyncsWritten, StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.flow_rig import source_context
from tests.support.flows import flow_settings


@attrs.define
class Log:
    """The offset syncs topic: what is in it, and what it answers."""

    topic: str = ""
    records: list[LogRecord] = attrs.field(factory=list)
    error: Mm2Error | None = None
    read_error: Mm2Error | None = None
    #: Why its cluster does not describe it.
    hidden: Mm2Error | None = None
    created: int = 0
    is_look_due: bool = False

    async def ensure(self) -> None:
        self.created += 1

    async def read_from(self, positions: Mapping[int, int]) -> AsyncGenerator[list[LogRecord], None]:
        assert not positions
        if self.read_error is not None:
            raise self.read_error
        for record in list(self.records):
            yield [record]

    async def append(self, records: Sequence[LogRecord]) -> None:
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        assert {record.partition for record in records} == {0}
        self.records += records

    @property
    def syncs(self) -> list[OffsetSync]:
        return [decode_offset_sync(record.key, record.value, record.headers) for record in self.records]


@attrs.define
class OffsetSyncsRig:
    log: Log
    events: EventLog
    syncs: OffsetSyncs
    translations: Translations
    writers: ControlWriters
    ledger: SimpleNamespace

    def acknowledged(self, partition: int, *runs: Run) -> None:
        source = TopicPartition("orders", partition)
        last = runs[-1]
        outcome = PartitionOutcome(
            source, last.upstream + last.length, last.downstream + last.length - 1, is_unsure=False, runs=runs
        )
        self.syncs.note(outcome, 0)


class Cluster:
    """A cluster that knows the topic, or does not describe it."""

    def __init__(self, alias: str, refusal: Mm2Error | None = None) -> None:
        self.alias, self._refusal = alias, refusal

    async def has_topic(self, topic: str) -> bool:
        if self._refusal is not None:
            raise self._refusal
        return bool(topic)


@asynccontextmanager
async def running(
    log: Log, monkeypatch: pytest.MonkeyPatch, states: Sequence[PartitionState] = (), **keys: str
) -> AsyncIterator[OffsetSyncsRig]:
    """Run the loop on *log* until the end of the block."""
    settings = flow_settings("a:1", "b:1", **keys)
    clock = LoopClock()
    events = EventLog(clock)
    made: list[str] = []

    def open_log(_flow: Flow, cluster: Cluster, topic: InternalTopic, *_: object, **__: object) -> Log:
        made.append(f"{topic.name} on {cluster.alias}")
        log.topic = topic.name
        return log

    monkeypatch.setattr(offset_syncs, "CompactedTopic", open_log)
    translations = Translations(flow_runs=100, partition_runs=100)
    idle = [PartitionState(TopicPartition("orders", number), "A.orders", 0, None) for number in range(3)]
    ledger = SimpleNamespace(states={state.source: state for state in [*idle, *states]}, taken_over=0)
    tasks = SimpleNamespace(ledger=ledger, outcomes=SimpleNamespace(listeners=[]))
    life = cast("SourceLife", SimpleNamespace(source=Cluster("A", log.hidden), target=Cluster("B"), tasks=tasks))
    context = source_context(clock, events, settings)
    syncs = OffsetSyncs(context, translations, life)
    is_at_target = keys.get("offset-syncs.topic.location") == "target"
    assert made == ["mm2-offset-syncs.A.internal on B" if is_at_target else "mm2-offset-syncs.B.internal on A"]
    async with asyncio.TaskGroup() as group:
        loop = group.create_task(syncs.run(), name="offset syncs")
        yield OffsetSyncsRig(log, events, syncs, translations, context.writers, ledger)
        loop.cancel()


def sync(upstream: int, downstream: int, partition: int = 0) -> OffsetSync:
    return OffsetSync(TopicPartition("orders", partition), upstream, downstream)


@pytest.mark.parametrize("location", ["source", "target"])
async def test_the_last_record_is_told_at_once(monkeypatch: pytest.MonkeyPatch, location: str) -> None:
    """A partition's first acknowledgement is due, with the newest record (testSendSyncEvent)."""
    async with running(Log(), monkeypatch, **{"offset-syncs.topic.location": location}) as rig:
        rig.acknowledged(0, Run(0, 100, 5), Run(7, 105, 3))
        await asyncio.sleep(0.5)

        assert rig.log.syncs == [sync(9, 107)]


async def test_what_is_not_due_waits_for_the_partition_to_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records more are told once no newer came for an epoch; then the last one is exact (testOffsetSync...)."""
    async with running(Log(), monkeypatch, **{"copy.epoch.ms": "10000"}) as rig:
        rig.acknowledged(0, Run(0, 0, 5))
        for n in range(4):
            await asyncio.sleep(5)
            rig.acknowledged(0, Run(5 + n, 5 + n, 1))
        moving = list(rig.log.syncs)
        await asyncio.sleep(12)

        assert moving == [sync(4, 4)]
        assert rig.log.syncs == [sync(4, 4), sync(8, 8)]


async def test_none_is_lost_while_the_cluster_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest of each partition waits, however many come meanwhile, and is written when the cluster is back."""
    async with running(Log(), monkeypatch) as rig:
        await asyncio.sleep(0.5)
        rig.log.error = ClusterUnreachableError("A", "a:1", "refused")
        for n in range(300):
            rig.acknowledged(n % 3, Run(n * 1000, n * 500, 400))
            await asyncio.sleep(1)
        rig.log.error = None
        await asyncio.sleep(20)

        assert {(it.source.partition, it.upstream) for it in rig.log.syncs} == {
            (number, (297 + number) * 1000 + 399) for number in range(3)
        }
        assert len(rig.events.of(ClusterUnreachable)) == 1


async def test_what_is_refused_is_told_once_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A topic that may neither be read nor written gives a message for each, which names the way out. It is written as
    soon as that is allowed, and what is there is read within a minute once that is.
    """
    refusal = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "A", "Produce", "no")
    log = Log(error=refusal, read_error=error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "A", "Fetch", "no"))
    async with running(log, monkeypatch) as rig:
        for n in range(50):
            rig.acknowledged(0, Run(n * 1000, n * 1000, 400))
            await asyncio.sleep(5)
        told = rig.events.of(StepFailed)
        rig.log.error = None
        await asyncio.sleep(30)
        written, unread = list(rig.log.syncs), rig.events.of(OffsetSyncsRead)
        rig.log.read_error = None
        await asyncio.sleep(65)

        assert [it.step for it in told] == ["read offset syncs", "write offset syncs"]
        assert all("offset-syncs.topic.location = target" in it.hint for it in told)
        assert (written, unread) == ([sync(49_399, 49_399)], ())
        assert len(rig.events.of(OffsetSyncsRead)) == 1
        assert rig.log.created > 1


async def test_the_last_words_are_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain writes what is not due, too (testPromoteDelayedOffsetSyncs)."""
    async with running(Log(), monkeypatch) as rig:
        rig.acknowledged(0, Run(0, 0, 5))
        await asyncio.sleep(0.5)
        rig.acknowledged(0, Run(5, 5, 1))
        await rig.syncs.finish()

        assert rig.log.syncs == [sync(4, 4), sync(5, 5)]


async def test_what_an_earlier_life_did_not_come_to_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An idle partition whose last sync is older than its position gets one; one that has it gets none.

    Nor does one at whose end a transaction's marker lies behind the record.
    """
    states = [
        PartitionState(TopicPartition("orders", 0), "A.orders", position=10, downstream=7),
        PartitionState(TopicPartition("orders", 1), "A.orders", position=10, downstream=7),
        PartitionState(TopicPartition("orders", 2), "A.orders", position=10, downstream=None),
        PartitionState(TopicPartition("orders", 3), "A.orders", position=10, downstream=-1),
        PartitionState(TopicPartition("orders", 4), "A.orders", position=10, downstream=8),
    ]
    known = sync(3, 2), sync(9, 7, partition=1), sync(9, 7, partition=4)
    records = [LogRecord(*encode_offset_sync(it), partition=0) for it in known]
    async with running(Log(records=list(records)), monkeypatch, states) as rig:
        await asyncio.sleep(5)

        assert rig.log.syncs[3:] == [sync(9, 7)]


async def test_what_a_former_node_did_not_come_to_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that is taken over while all else is copied gets the sync that the node lacks which had it."""
    taken = PartitionState(TopicPartition("orders", 7), "A.orders", position=10, downstream=7)
    async with running(Log(), monkeypatch) as rig:
        await asyncio.sleep(5)
        before = list(rig.log.syncs)
        rig.ledger.states[taken.source] = taken
        rig.ledger.taken_over += 1
        await asyncio.sleep(5)

        assert (before, rig.log.syncs) == ([], [sync(9, 7, partition=7)])


async def test_a_sync_of_a_partition_that_another_node_has_is_left_to_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not due, and came after newer ones of the other node."""
    async with running(Log(), monkeypatch, **{"copy.epoch.ms": "3000"}) as rig:
        rig.acknowledged(0, Run(0, 0, 5))
        await asyncio.sleep(1)
        rig.acknowledged(0, Run(5, 5, 1))
        del rig.ledger.states[TopicPartition("orders", 0)]
        await asyncio.sleep(10)

        assert rig.log.syncs == [sync(4, 4)]


async def test_a_node_that_may_have_been_replaced_writes_no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was frozen, and another node writes newer syncs of its partitions: at the source nothing refuses old ones."""
    is_certain = False
    async with running(Log(), monkeypatch) as rig:
        rig.writers.follow(is_certain=lambda: is_certain, on_fenced=lambda: None)
        rig.acknowledged(0, Run(0, 0, 5))
        await asyncio.sleep(5)
        before = list(rig.log.syncs)
        is_certain = True
        await asyncio.sleep(5)

        assert (before, rig.log.syncs) == ([], [sync(4, 4)])


async def test_a_sync_of_the_remote_topic_before_is_none_of_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remote topic was created again: what is copied now lies before the old sync, and gets one with its topic."""
    orders, first, second = TopicPartition("orders", 0), "A" * 22, "B" * 22
    state = PartitionState(orders, "A.orders", position=10, downstream=7, remote_topic_id=second)
    old = OffsetSync(orders, 9, 9, first)
    records = [LogRecord(*encode_offset_sync(old), offset_sync_headers(old), partition=0)]
    async with running(Log(records=records), monkeypatch, [state]) as rig:
        await asyncio.sleep(5)

        assert rig.log.syncs == [old, OffsetSync(orders, 9, 7, second)]
        assert rig.translations.downstream(orders, 50) is Untranslated.NOT_READY


async def test_no_sync_leads_past_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resume that proved nothing goes on behind records that may be the source's next ones: no sync says 40."""
    state = PartitionState(TopicPartition("orders", 0), "A.orders", position=10, downstream=40)
    async with running(Log(), monkeypatch, [state]) as rig:
        rig.translations.adopt({state.source: Position(state.source, 10, 7)}, {state.source: "A.orders"})
        await asyncio.sleep(5)

        assert rig.log.syncs == [sync(9, 7)]


async def test_without_syncs_of_ours_those_of_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """With emission off nothing is written or created; what a Java MirrorMaker wrote is read all the same."""
    records = [LogRecord(*encode_offset_sync(sync(3, 2)), partition=0), LogRecord(b"rubbish", None, partition=0)]
    async with running(Log(records=records), monkeypatch, **{"emit.offset-syncs.enabled": "false"}) as rig:
        rig.translations.adopt({}, {})
        rig.acknowledged(0, Run(0, 0, 5))
        await asyncio.sleep(5)
        answer = rig.translations.downstream(TopicPartition("orders", 0), 5)
        await rig.syncs.finish()

        assert (len(rig.log.records), rig.log.created, rig.events.of(OffsetSyncsWritten)) == (2, 0, ())
        assert getattr(answer, "offset", None) == 3


async def test_without_syncs_of_ours_no_permission_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With emission off the source is only read, so its topic of offset syncs may be hidden from us."""
    hidden = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "A", "Metadata", "no")
    async with running(Log(hidden=hidden), monkeypatch, **{"emit.offset-syncs.enabled": "false"}) as rig:
        await asyncio.sleep(60)

        assert rig.events.of(StepFailed) == ()
