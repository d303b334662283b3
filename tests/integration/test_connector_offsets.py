"""Offsets of a stopped connector, altered (KIP-875): what is copied again, what is skipped, what Java reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mm2py.clock import SystemClock
from mm2py.connectors.plugins import transforms_of
from mm2py.connectors.source.transactions import transactions_of
from mm2py.core import internal_topics
from mm2py.core.herder.connector_offsets import read_offsets
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE, want_connector
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions
from mm2py.errors import (
    ClusterUnreachableError,
    OverrideRejectedError,
    OverridesNotStoredError,
    UnknownConnectorError,
)
from mm2py.herder.connector_offsets import ConnectorOffsets
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Wanted
from mm2py.model.herder.stored_overrides import overrides_key
from mm2py.model.positions import Position, encode_position
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.state import FlowState
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.storage.override_store import OverrideStore
from mm2py.telemetry.events import ForeignRecordsFound, OffsetsAltered, ResumedExactly, ResumeUnproven
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.transactions import ProducerFencedError, TransactionalProducer
from tests.support.eventually import eventually
from tests.support.flows import flow_settings
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node
from tests.support.producing import produce, produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.records import MIDDLE_MS, assert_written, plain_records
from tests.support.topics import create_topic


_COUNT = 600


def _file(primary: KafkaCluster, backup: KafkaCluster, alias: str, **keys: Any) -> str:
    settings = {
        "topics": f"{alias}-.*",
        "emit.checkpoints.interval.seconds": 1,
        "listeners": "",
        "copy.epoch.ms": 1000,
        "copy.drain.ms": 2000,
        "groups": f"{alias}-.*",
        **keys,
    }
    return mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=(alias, "B"), **settings)


async def _mirrored(running: RunningNode, flow: Flow, backup: KafkaCluster, remote: str, count: int) -> None:
    await running.running(flow)
    await await_arrived(backup.bootstrap_servers, remote, count)


async def _want(running: RunningNode, flow: Flow, connector: str, wanted: Wanted) -> None:
    await running.node.control.change_overrides(flow, lambda known: want_connector(known, connector, wanted))


async def _stop(running: RunningNode, flow: Flow) -> None:
    await _want(running, flow, SOURCE, Wanted.STOPPED)
    await running.until(flow, SOURCE, FlowState.STOPPED)


async def _idle(running: RunningNode, flow: Flow) -> None:
    def idle() -> bool:
        partitions = running.view(flow).partitions
        return bool(partitions) and all(partition.lag == 0 for partition in partitions)

    await eventually(idle, within_s=30, what="all that there is was copied")


async def _translated(running: RunningNode, topic: str, wanted: Mapping[int, int]) -> None:
    """Wait until offsets of partition 0 are translated as *wanted*."""
    translations = running.node._fleet.runners[0]._translations

    def found() -> bool:
        answers = {at: translations.downstream(TopicPartition(topic, 0), at) for at in wanted}
        assert {at: getattr(answer, "offset", answer) for at, answer in answers.items()} == wanted
        return True

    await eventually(found, within_s=20, what="offsets are translated")


async def _resume(running: RunningNode, flow: Flow) -> None:
    await _want(running, flow, SOURCE, Wanted.RUNNING)


def _of(flow: Flow, topic: str, offset: int | None, partition: int = 0) -> dict[str, Any]:
    """Return an entry of a body."""
    return {
        "partition": {"cluster": flow.source, "partition": partition, "topic": topic},
        "offset": None if offset is None else {"offset": offset},
    }


async def test_offsets_set_back_are_copied_again_and_no_others(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A hundred records back are a hundred records twice, also when the daemon dies before it begins and while it copies.

    What is shown is Java's: the offset of the record that was copied last. Nothing is altered while the connector runs.
    """
    topic, flow = f"{prefix}-t", Flow(prefix, "B")
    remote = f"{prefix}.{topic}"
    await create_topic(primary.bootstrap_servers, topic, partitions=2)
    await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=2)
    each = _COUNT // 2
    text = _file(primary, backup, prefix)
    async with running_node(text, tmp_path) as running:
        await _mirrored(running, flow, backup, remote, _COUNT)
        with pytest.raises(OverrideRejectedError, match="must be stopped"):
            await running.node.control.alter_offsets(flow, SOURCE, [_of(flow, topic, 1)])
        await _stop(running, flow)
        shown = await running.node.control.offsets(flow, SOURCE)
        with pytest.raises(OverrideRejectedError, match="the source ends at 300"):
            await running.node.control.alter_offsets(flow, SOURCE, [_of(flow, topic, 300)])
        await running.node.control.alter_offsets(
            flow, SOURCE, [_of(flow, topic, each - 101), _of(flow, topic, each - 1, 1)]
        )
        altered = await running.node.control.offsets(flow, SOURCE)
        await running.crash()
        told = running.events.of(OffsetsAltered)

    async with running_node(text, tmp_path) as running:
        await running.until(flow, SOURCE, FlowState.STOPPED)
        await _resume(running, flow)
        await await_arrived(backup.bootstrap_servers, remote, _COUNT + 100)
        await running.crash()
        crashed = running.events
    await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=2)
    async with running_node(text, tmp_path) as running:
        await await_arrived(backup.bootstrap_servers, remote, 2 * _COUNT + 100)
        # What was copied twice is where its second copy is: no group misses a record.
        await _translated(running, topic, {150: 150, 250: 350, 350: 450})
        await running.stop()

    assert [one.offset for one in shown] == [{"offset": each - 1}, {"offset": each - 1}]
    assert [one.offset for one in altered] == [{"offset": each - 101}, {"offset": each - 1}]
    assert [(it.partitions, it.repeated, it.skipped) for it in told] == [(1, 100, 0)]
    source, found = (
        await read_numbers(primary.bootstrap_servers, topic),
        await read_numbers(backup.bootstrap_servers, remote),
    )
    assert found[0] == source[0][:each] + source[0][each - 100 : each] + source[0][each:]
    assert found[1] == source[1]
    for events in (crashed, running.events):
        assert not events.of(ResumeUnproven)
        assert not events.of(ForeignRecordsFound)


async def test_offsets_set_forward_are_never_copied(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    What came while the connector was stopped, and lies before the new offset, is passed over; the rest is copied.

    Instead of an offset a timestamp may be given; what is shown afterwards is Connect's offset.
    """
    topic, flow = f"{prefix}-t", Flow(prefix, "B")
    records, more = list(plain_records(200)), list(plain_records(200, start=200))
    await create_topic(primary.bootstrap_servers, topic, partitions=3)
    await produce(primary.bootstrap_servers, topic, [records] * 3)
    at_a_time = {**_of(flow, topic, None, 1), "offset": {"timestamp": MIDDLE_MS + 350}}
    at_the_end = {**_of(flow, topic, None, 2), "offset": {"timestamp": "2024-06-01T00:00:00Z"}}
    async with running_node(_file(primary, backup, prefix), tmp_path) as running:
        await _mirrored(running, flow, backup, f"{prefix}.{topic}", 600)
        await _stop(running, flow)
        await produce(primary.bootstrap_servers, topic, [more] * 3)
        with pytest.raises(OverrideRejectedError, match="no such topic-partition"):
            await running.node.control.alter_offsets(
                flow, SOURCE, [{**_of(flow, topic, None, 3), "offset": {"timestamp": 0}}]
            )
        await running.node.control.alter_offsets(flow, SOURCE, [_of(flow, topic, 349), at_a_time, at_the_end])
        shown = await running.node.control.offsets(flow, SOURCE)
        await _resume(running, flow)
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{topic}", 700)
        await _translated(running, topic, {150: 150, 250: 200, 360: 210})
        await running.stop()

    assert [one.offset for one in shown] == [{"offset": 349}, {"offset": 349}, {"offset": 399}]
    assert [(it.partitions, it.repeated, it.skipped) for it in running.events.of(OffsetsAltered)] == [(3, 0, 500)]
    assert_written(
        [[*records, *more[150:]], [*records, *more[150:]], records],
        await read_topic(backup.bootstrap_servers, f"{prefix}.{topic}"),
    )


async def test_a_reset_copies_all_again(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Without offsets a connector begins at the start and appends to the target: all is there a second time."""
    topic, flow = f"{prefix}-t", Flow(prefix, "B")
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=1)
    text = _file(primary, backup, prefix)
    async with running_node(text, tmp_path) as running:
        await _mirrored(running, flow, backup, f"{prefix}.{topic}", _COUNT)
        with pytest.raises(OverrideRejectedError, match="must be stopped"):
            await running.node.control.reset_offsets(flow, SOURCE)
        await _stop(running, flow)
        await running.node.control.reset_offsets(flow, SOURCE)
        left = await running.node.control.offsets(flow, SOURCE)
        await _resume(running, flow)
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{topic}", 2 * _COUNT)
        await running.crash()

    async with running_node(text, tmp_path) as running:
        await running.running(flow)
        await _idle(running, flow)
        await running.stop()

    assert left == ()
    source = await read_numbers(primary.bootstrap_servers, topic)
    found = await read_numbers(backup.bootstrap_servers, f"{prefix}.{topic}")
    assert found[0] == source[0] * 2
    assert not running.events.of(ResumeUnproven)
    assert len(running.events.of(ResumedExactly)) <= 1


async def test_offsets_of_the_other_connectors(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """They keep no offsets, as in Java: only 0 and null can be written; stored ones can be read and removed."""
    flow = Flow(prefix, "B")
    keys = {f"{prefix}->B.emit.heartbeats.enabled": "true", "emit.checkpoints.enabled": "true"}
    body = [{"partition": {"group": "g", "topic": f"{prefix}.t", "partition": 0}, "offset": {"offset": 0}}]
    async with running_node(_file(primary, backup, prefix, **keys), tmp_path) as running:
        await running.running(flow)
        await _want(running, flow, CHECKPOINT, Wanted.STOPPED)
        await running.until(flow, CHECKPOINT, FlowState.STOPPED)
        await running.node.control.alter_offsets(flow, CHECKPOINT, body)
        written = await running.node.control.offsets(flow, CHECKPOINT)
        await running.node.control.reset_offsets(flow, CHECKPOINT)
        with pytest.raises(OverrideRejectedError, match="only 0 and null"):
            await running.node.control.alter_offsets(flow, HEARTBEAT, [{"partition": {}, "offset": {"offset": 3}}])
        with pytest.raises(UnknownConnectorError):
            await running.node.control.offsets(flow, "FileStreamSource")

        assert written == (ConnectorOffset(body[0]["partition"], {"offset": 0}),)
        assert await running.node.control.offsets(flow, CHECKPOINT) == ()


async def test_java_reads_what_was_altered_and_leaves_overrides_alone(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Java MirrorMaker 2 starts with our overrides in its config topic, and copies from the offset that we altered.

    Its own records in that topic stay as they are when we write, and ours when it does.
    """
    topic, flow = f"{prefix}-t", Flow(prefix, "B")
    remote = f"{prefix}.{topic}"
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=1)
    text = _file(primary, backup, prefix)
    async with running_node(text, tmp_path) as running:
        await _mirrored(running, flow, backup, remote, _COUNT)
        await _stop(running, flow)
        await running.node.control.alter_offsets(flow, SOURCE, [_of(flow, topic, _COUNT - 51)])
        await running.stop()
        kept = running.node.control.overrides(flow)
    book = OverrideStore(running.node.settings.flows[0], running.node._clock)

    file = tmp_path / "java.properties"
    file.write_text(text.replace("listeners = \n", ""))
    with JavaMirrorMaker2(file, log_file=tmp_path / "java.log", jvm=JvmOptions(heap_mb=256)) as java:
        java.await_replicating(prefix, "B")
        await await_arrived(backup.bootstrap_servers, remote, _COUNT + 50)
        java_said = java.log_text()
    by_java = await _configs(backup, book.topic)
    async with running_node(text, tmp_path) as running:
        await running.until(flow, SOURCE, FlowState.STOPPED)
        read_again = running.node.control.overrides(flow)
        await _resume(running, flow)
        await running.running(flow)
        await _idle(running, flow)
        await running.stop()
    by_both = await _configs(backup, book.topic)

    assert "mm2py-orders-" in java_said  # as a key that it discards
    assert read_again == kept
    assert b"connector-MirrorSourceConnector" in by_java
    assert {key: value for key, value in by_both.items() if key != overrides_key(flow)} == {
        key: value for key, value in by_java.items() if key != overrides_key(flow)
    }
    assert await arrived(backup.bootstrap_servers, remote) == _COUNT + 50


async def _configs(cluster: KafkaCluster, topic: str) -> dict[bytes | None, bytes | None]:
    records = (await read_topic(cluster.bootstrap_servers, topic))[0]
    return {record.key: record.value for record in records}


async def test_a_node_that_was_frozen_meanwhile_does_not_undo_it(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """
    It was about to write positions when the connector was stopped, or to commit them with a transform's records. The
    brokers refuse both after the alteration.
    """
    topic, clock = f"{prefix}-t", SystemClock()
    settings = flow_settings(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        alias=prefix,
        topics=topic,
        **{
            f"{prefix}->B.transform.{topic}.sql": "SELECT * FROM records",
            "B.exactly.once.source.support": "enabled",
        },
    )
    config = settings.source_connector
    (terms,) = (transactions_of(config, it) for it in transforms_of(config).tasks)
    assert terms is not None
    positions = TopicPartition(settings.source_connector.offset_storage.topic, 0)
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=100, partitions=1)
    offsets = ConnectorOffsets(settings, clock=clock, events=EventLog(clock))
    asked = read_offsets(settings.flow, SOURCE, [_of(settings.flow, topic, 9)])
    async with Cluster(settings.target, clock) as cluster:
        await offsets.alter(SOURCE, asked, by="the test")
        frozen = FencedWriter(settings.worker.task_id(0))
        await frozen.open(cluster)
        transforming = TransactionalProducer(cluster, terms.transactional_id, terms.timeout_ms)
        await transforming.open()
        await transforming.add([positions])
        stored = internal_topics.positions(settings.source_connector)
        log = CompactedTopic(settings.flow, cluster, stored, EventLog(clock), writer=frozen)
        await offsets.alter(SOURCE, asked, by="the test")
        with pytest.raises(TakenOverError):
            await log.append([LogRecord(b"old", b"old")])
        with pytest.raises(ProducerFencedError):
            await transforming.commit()

    assert list(await offsets.positions()) == [TopicPartition(topic, 0)]


async def test_an_alteration_ends_what_a_node_has_claimed(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """
    A node claimed a producer for a partition that had none yet, and was stopped before it could begin.

    The claim has the position of that moment: the next life would go on there, and undo the alteration.
    """
    topic, clock = f"{prefix}-t", SystemClock()
    settings = flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, alias=prefix, topics=topic)
    source, kept = TopicPartition(topic, 0), settings.source_connector.offset_storage
    claim = Position(source, 0, -1, claimed=ProducerMark(7, 0, 0))
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=100, partitions=1)
    await create_topic(backup.bootstrap_servers, kept.topic)
    asked = read_offsets(settings.flow, SOURCE, [_of(settings.flow, topic, 59)])
    stored = PositionsTopic(prefix)
    async with Cluster(settings.target, clock) as cluster:
        await TopicLog(cluster, kept.topic).append([LogRecord(*encode_position(prefix, claim))])
        await ConnectorOffsets(settings, clock=clock, events=EventLog(clock)).alter(SOURCE, asked, by="the test")
        for record in await TopicLog(cluster, kept.topic).read_all():
            stored.take(record)

    assert stored.claims == {}
    assert (stored.positions[source].next_upstream, stored.positions[source].producer) == (60, ProducerMark(7, 1, 0))


async def test_a_source_that_is_away_is_named_where_offsets_are_altered(backup: KafkaCluster, tmp_path: Path) -> None:
    """What is refused names the cluster that does not answer, and not the target, which does."""
    flow = Flow("gone", "B")
    file = mm2_properties(
        "127.0.0.1:1", backup.bootstrap_servers, aliases=(flow.source, flow.target), topics="x", listeners=""
    )
    place = {"cluster": flow.source, "topic": "x", "partition": 0}
    async with running_node(file, tmp_path) as running:

        async def asked_to_stop() -> bool:
            try:
                await _want(running, flow, SOURCE, Wanted.STOPPED)
            except OverridesNotStoredError as error:
                raise AssertionError("the flow's overrides are being read") from error
            return True

        await eventually(asked_to_stop, within_s=30, what="the connector is to stop")
        await running.until(flow, SOURCE, FlowState.STOPPED)
        with pytest.raises(ClusterUnreachableError, match="cluster gone does not answer"):
            await running.node.control.alter_offsets(flow, SOURCE, [{"partition": place, "offset": {"offset": 5}}])
