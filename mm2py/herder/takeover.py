"""
The first start of a connector that another worker ran: its positions are taken over.

Kafka Connect keeps them in the worker's topic under the connector's name, mm2py under the source's alias, as
MirrorMaker itself does. Only what is stored is taken over: what was copied after that is found at the target, as after
any crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.plugins import remote_names_of
from mm2py.model.flow import TopicPartition
from mm2py.model.mirus_offset import MirusOffset, read_record
from mm2py.model.positions import Position, decode_position, encode_position
from mm2py.model.positions_topic import PositionsTopic
from mm2py.telemetry.events import ConnectorPositionsTakenOver
from mm2py.telemetry.events.base import Event
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import LATEST
from mm2py.wire.topic_log import LogRecord, TopicLog


async def take_over_positions(
    settings: FlowSettings, connector: str, *, is_mirus: bool, clock: Clock, report: Callable[[Event], None]
) -> None:
    """Write the positions that *connector* had as those of its flow, unless the flow has or had any."""
    alias, topic = settings.flow.source, settings.source_connector.offset_storage.topic
    async with Cluster(settings.target, clock) as target:
        await target.refresh_metadata({topic})
        if not target.partitions_of(topic):
            return
        log = TopicLog(target, topic)
        ours, theirs = PositionsTopic(alias), dict[TopicPartition, Position]()
        for record in await log.read_all():
            ours.take(record)
            found = _of_mirus(connector, record) if is_mirus else _of_java(connector, alias, record)
            if isinstance(found, Position):
                theirs[found.source] = found
            elif found is not None:
                theirs.pop(found, None)
        if ours.positions or ours.removed or not theirs:
            return
        kept = await _begun(settings, target, theirs) if is_mirus else theirs.values()
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


def _of_java(connector: str, alias: str, record: LogRecord) -> Position | TopicPartition | None:
    match decode_position(record.key, record.value, connector=connector):
        case (str(cluster), (Position() | TopicPartition()) as found) if cluster == alias:
            return found
        case _:
            return None


def _of_mirus(connector: str, record: LogRecord) -> Position | TopicPartition | None:
    found = read_record(record.key, record.value)
    if not isinstance(found, MirusOffset) or found.connector != connector:
        return None
    return found.source if found.offset is None else Position(found.source, found.offset)
