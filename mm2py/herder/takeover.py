"""
The first start of a connector of a Connect worker: it goes on where it, or another one in its place, stood.

Connect keeps positions under the connector's name, and so does mm2py. What former versions kept under the name of the
class, and what connectors have left that the worker no longer has, is taken over, unless the connector itself has been
here since. Only what is stored is taken over: what was copied after that is found at the target, as after any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.plugins import remote_names_of
from mm2py.core.herder.left_positions import LeftPositions, taken_over
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.mirus_offset import MirusOffset, read_record
from mm2py.model.positions import Position, encode_position
from mm2py.model.positions_topic import PositionsTopic, owner_of
from mm2py.model.run_chunk import chunk_key, encode_chunk
from mm2py.telemetry.events import ConnectorPositionsTakenOver
from mm2py.telemetry.events.base import Event
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import LATEST
from mm2py.wire.topic_log import LogRecord, TopicLog


async def take_over_positions(
    settings: FlowSettings,
    *,
    living: Collection[str],
    worker: ClusterEndpoint,
    clock: Clock,
    report: Callable[[Event], None],
) -> None:
    """
    Write as positions of a flow's source connector what connectors have left that are not *living* in its worker.

    Where the connector's target is another cluster than the *worker*'s, it may have been run by Java, which keeps its
    positions at the worker's: those count as long as its own cluster has none (KIP-618).
    """
    config = settings.source_connector
    alias, own, topic = settings.flow.source, config.name, config.offset_storage.topic
    async with Cluster(settings.target, clock) as target:
        here = await _left(target, topic, alias)
        ours = here.pop(own, LeftPositions(PositionsTopic(alias, own)))
        others = [left for name, left in here.items() if name not in living]
        if not ours.written_ms and worker.bootstrap_servers != settings.target.bootstrap_servers:
            async with Cluster(worker, clock) as first:
                of_java = (await _left(first, topic, alias)).get(own)
            others += [] if of_java is None else [of_java.without_mm2py()]
        taken = taken_over(ours, others)
        if not taken:
            return
        log = TopicLog(target, topic)
        chunks = [
            LogRecord(chunk_key(alias, it.source, it.number, own), encode_chunk(it.chunk, it.topic_id))
            for source, left in taken.items()
            for it in left.chunks_of(source)
            if it.chunk is not None
        ]
        positions = [left.stored.positions[source] for source, left in taken.items()]
        if chunks:  # what a position rests on comes before it
            await log.append(chunks)
        await log.append([LogRecord(*encode_position(alias, it, own)) for it in positions])
    report(ConnectorPositionsTakenOver(settings.flow, own, topic, len(taken)))


async def _left(cluster: Cluster, topic: str, alias: str) -> dict[str, LeftPositions]:
    """Return what each connector has left of positions of source *alias*, by its name."""
    await cluster.refresh_metadata({topic})
    found: dict[str, LeftPositions] = {}
    for record in await TopicLog(cluster, topic).read_all() if cluster.partitions_of(topic) else ():
        match owner_of(record.key):
            case (str(name), cluster_name) if cluster_name == alias:
                found.setdefault(name, LeftPositions(PositionsTopic(alias, name))).take(record, record.timestamp_ms)
    return found


async def take_over_from_mirus(
    settings: FlowSettings, connector: str, *, clock: Clock, report: Callable[[Event], None]
) -> None:
    """Write the positions that Mirus's *connector* had as those of its flow, unless the flow has or had any."""
    alias, topic = settings.flow.source, settings.source_connector.offset_storage.topic
    async with Cluster(settings.target, clock) as target:
        await target.refresh_metadata({topic})
        if not target.partitions_of(topic):
            return
        log = TopicLog(target, topic)
        ours, theirs = PositionsTopic(alias), dict[TopicPartition, Position]()
        for record in await log.read_all():
            ours.take(record)
            found = _of_mirus(connector, record)
            if isinstance(found, Position):
                theirs[found.source] = found
            elif found is not None:
                theirs.pop(found, None)
        if ours.positions or ours.removed or not theirs:
            return
        kept = await _begun(settings, target, theirs)
        await log.append([LogRecord(*encode_position(alias, position)) for position in kept])
    report(ConnectorPositionsTakenOver(settings.flow, connector, topic, len(theirs)))


async def _begun(settings: FlowSettings, target: Cluster, theirs: Mapping[TopicPartition, Position]) -> list[Position]:
    """Return Mirus's positions, with nothing to look for in empty remote partitions: unlike a MirrorMaker's, these need
    not have lost anything. Mirus's producer may have chosen other partitions for all records of the source's.
    """
    name_remote = remote_names_of(settings.source_connector)
    remote_of = {source: TopicPartition(name_remote(source.topic), source.partition) for source in theirs}
    await target.refresh_metadata({remote.topic for remote in remote_of.values()})
    there = [it for it in remote_of.values() if it.partition in target.partitions_of(it.topic)]
    ends = await target.list_offsets(there, LATEST) if there else {}
    empty = {source for source, remote in remote_of.items() if ends.get(remote, 0) == 0}
    return [attrs.evolve(it, downstream=-1) if it.source in empty else it for it in theirs.values()]


def _of_mirus(connector: str, record: LogRecord) -> Position | TopicPartition | None:
    found = read_record(record.key, record.value)
    if not isinstance(found, MirusOffset) or found.connector != connector:
        return None
    return found.source if found.offset is None else Position(found.source, found.offset)
