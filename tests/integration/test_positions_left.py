"""The positions that connectors of a worker have left, in a real topic: who goes on where they stood."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.offsets.translation import RunIndex, cut_chunk
from mm2py.devkit.broker import KafkaCluster
from mm2py.herder.takeover import take_over_from_mirus, take_over_positions
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position, position_key
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.run_chunk import chunk_key, encode_chunk
from mm2py.telemetry.events import Event
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import TakenOverError, fence
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.transactions import TransactionalProducer
from tests.support.flows import flow_settings
from tests.support.topics import create_topic


_CLICKS = (TopicPartition("clicks", 0), TopicPartition("clicks", 1))
_MIRUS = (
    (b'["us-west",{"topic":"orders","partition":0}]', b'{"offset":42}'),
    (b'["us-west",{"topic":"orders","partition":1}]', b'{"offset":null}'),
    (b'["other",{"topic":"orders","partition":2}]', b'{"offset":1}'),
)


async def test_positions_of_mirus_are_taken_over_once(backup: KafkaCluster, prefix: str) -> None:
    """
    Those of this connector, at its first start; from then on the flow's own count.

    Where a remote partition is empty, Mirus may have put all records of the source's into others: that is written down.
    """
    target, clock = backup.bootstrap_servers, SystemClock()
    await create_topic(target, prefix, partitions=2)
    settings = flow_settings(target, target, **{"offset.storage.topic": prefix})
    reported: list[Event] = []

    async def taken_over() -> PositionsTopic:
        await take_over_from_mirus(settings, "us-west", clock=clock, report=reported.append)
        return await _positions(target, prefix)

    await _write(target, prefix, *_MIRUS)
    first = await taken_over()
    await _write(target, prefix, *((key, b'{"offset":99}') for key, _ in _MIRUS))
    second = await taken_over()

    (position,) = first.positions.values()
    assert (position.source, position.next_upstream, position.downstream) == (TopicPartition("orders", 0), 42, -1)
    assert second.positions == first.positions
    assert [event.name for event in reported] == ["connector_positions_taken_over"]


async def test_a_connector_goes_on_where_one_stood_that_is_no_longer_there(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """
    A former version of mm2py kept positions under the name of the class; what a living connector has stays its own.

    Where records went comes along. Later starts find its own, and what a node of the former version still wrote.
    """
    target, source, clock = backup.bootstrap_servers, TopicPartition("orders", 0), SystemClock()
    await create_topic(target, prefix, partitions=2)
    settings = _named(flow_settings(target, target, **{"offset.storage.topic": prefix}), "us-west")
    former = Position(source, 40, 39, producer=ProducerMark(7, 0, 40))
    chunk = encode_chunk(cut_chunk(RunIndex(0, 0), 0), None)
    await _write(target, prefix, (chunk_key("A", source, 0), chunk), encode_position("A", former))
    await _write(target, prefix, *(encode_position("A", Position(it, 9), "other") for it in _CLICKS))
    reported: list[Event] = []

    async def start(*living: str, worker: str = target) -> PositionsTopic:
        endpoint = ClusterEndpoint("B", (worker,))
        await take_over_positions(settings, living=living, worker=endpoint, clock=clock, report=reported.append)
        return await _positions(target, prefix, "us-west")

    first = await start("us-west", "other")
    await _write(target, prefix, encode_position("A", attrs.evolve(former, next_upstream=50)))
    second = await start("us-west", "other")
    third = await start("us-west")

    assert (first.positions, list(first.chunks)) == ({source: former}, [(source, 0)])
    assert second.positions == {source: attrs.evolve(former, next_upstream=50)}
    assert third.positions.keys() == {source, *_CLICKS}
    assert [attrs.asdict(event)["partitions"] for event in reported] == [1, 1, 2]


async def test_a_connector_with_a_target_of_its_own_goes_on_where_java_s_stood(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Connect keeps the positions of all of a worker's connectors at the worker's cluster (KIP-618), nothing here."""
    target, worker = backup.bootstrap_servers, primary.bootstrap_servers
    settings = _named(flow_settings(worker, target, **{"offset.storage.topic": prefix}), "us-west")
    by_java, elsewhere = Position(TopicPartition("orders", 0), 40), Position(TopicPartition("orders", 1), 40, 39)
    await create_topic(worker, prefix, partitions=2)
    await _write(worker, prefix, *(encode_position("A", it, "us-west") for it in (by_java, elsewhere)))
    endpoint = ClusterEndpoint("W", (worker,))
    for _ in range(2):
        await take_over_positions(
            settings, living=["us-west"], worker=endpoint, clock=SystemClock(), report=lambda _: None
        )

    assert (await _positions(target, prefix, "us-west")).positions == {by_java.source: by_java}


async def test_a_reset_holds_when_the_connector_gets_another_name(backup: KafkaCluster, prefix: str) -> None:
    """Else it would go on where the target's records end, or where it stood before Java or a former version ran it."""
    target, source = backup.bootstrap_servers, TopicPartition("orders", 0)
    await create_topic(target, prefix)
    settings = _named(flow_settings(target, target, **{"offset.storage.topic": prefix}), "us-west")
    await _write(target, prefix, encode_position("A", Position(source, 40), "us-west"))
    await _write(target, prefix, encode_position("A", Position(source, 90, 89)), (position_key("A", source), None))
    await take_over_positions(
        settings, living=["us-west"], worker=settings.target, clock=SystemClock(), report=lambda _: None
    )
    found = await _positions(target, prefix, "us-west")

    assert (found.positions, found.removed) == ({}, {source})
    assert found.with_runs  # compaction forgets what was removed


async def test_a_first_start_waits_for_what_a_killed_node_left_open(backup: KafkaCluster, prefix: str) -> None:
    """What follows an open transaction cannot be read yet, and counts all the same."""
    target, source, clock = backup.bootstrap_servers, TopicPartition("orders", 0), SystemClock()
    await create_topic(target, prefix)
    settings = _named(flow_settings(target, target, **{"offset.storage.topic": prefix}), "us-west")
    early, late = Position(source, 40, 39), Position(source, 90, 89)
    await _write(target, prefix, encode_position("A", early))
    async with Cluster(settings.target, clock) as cluster:
        killed, log = TransactionalProducer(cluster, f"{prefix}-killed", 60_000), TopicLog(cluster, prefix)
        await killed.open()
        await killed.add({TopicPartition(prefix, 0)})
        await log.append([LogRecord(b"k", b"v")], killed)
        await _write(target, prefix, encode_position("A", late))
        starting = asyncio.create_task(
            take_over_positions(
                settings, living=["us-west"], worker=settings.target, clock=clock, report=lambda _: None
            )
        )
        await asyncio.wait([starting], timeout=1.0)
        await fence(cluster, f"{prefix}-killed")
        await starting

    assert (await _positions(target, prefix, "us-west")).positions == {source: late}


async def test_a_node_that_was_frozen_as_it_took_over_writes_nothing(
    backup: KafkaCluster, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another node has taken over meanwhile, and gone on from there."""
    target, source, clock = backup.bootstrap_servers, TopicPartition("orders", 0), SystemClock()
    await create_topic(target, prefix)
    settings = _named(flow_settings(target, target, **{"offset.storage.topic": prefix}), "us-west")
    await _write(target, prefix, encode_position("A", Position(source, 40, 39, producer=ProducerMark(7, 0, 40))))
    frozen, thawed, places = asyncio.Event(), asyncio.Event(), TopicLog.placed
    gone_on = Position(source, 70, 69, producer=ProducerMark(7, 1, 30))

    async def take_over() -> None:
        await take_over_positions(
            settings, living=["us-west"], worker=settings.target, clock=clock, report=lambda _: None
        )

    async def placed(log: TopicLog, records: Sequence[LogRecord]) -> dict[TopicPartition, list[LogRecord]]:
        found = await places(log, records)
        if not frozen.is_set():
            frozen.set()
            await thawed.wait()
        return found

    monkeypatch.setattr(TopicLog, "placed", placed)
    node = asyncio.create_task(take_over())
    await frozen.wait()
    await take_over()
    await _write(target, prefix, encode_position("A", gone_on, "us-west"))
    thawed.set()
    with pytest.raises(TakenOverError):
        await node

    assert (await _positions(target, prefix, "us-west")).positions == {source: gone_on}


def _named(settings: FlowSettings, name: str) -> FlowSettings:
    return attrs.evolve(settings, source_connector=attrs.evolve(settings.source_connector, name=name))


async def _write(bootstrap: str, topic: str, *records: tuple[bytes, bytes | None] | tuple[Any, ...]) -> None:
    async with Cluster(ClusterEndpoint("B", (bootstrap,)), SystemClock()) as cluster:
        await TopicLog(cluster, topic).append([LogRecord(*record) for record in records])


async def _positions(bootstrap: str, topic: str, connector: str = "MirrorSourceConnector") -> PositionsTopic:
    found = PositionsTopic("A", connector)
    async with Cluster(ClusterEndpoint("B", (bootstrap,)), SystemClock()) as cluster:
        for record in await TopicLog(cluster, topic).read_all():
            found.take(record)
    return found
