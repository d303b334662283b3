"""
The first start of a connector of a Connect worker: it goes on where it, or another one in its place, stood.

Connect keeps positions under the connector's name, and so does mm2py. What former versions kept under the name of the
class, and what connectors have left that the worker no longer has, is taken over, unless the connector itself has been
here since. Only what is stored is taken over: what was copied after that is found at the target, as after any crash.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.plugins import remote_names_of
from mm2py.connectors.source.left_by_others import left_by
from mm2py.core import internal_topics
from mm2py.core.herder.left_positions import LeftPositions, taken_over
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.mirus_offset import MirusOffset, read_record
from mm2py.model.positions import Position, encode_position, position_key
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.run_chunk import HAD_POSITION, KeptChunk, chunk_key, encode_chunk
from mm2py.storage.compacted_topic import create
from mm2py.telemetry.events import ConnectorPositionsTakenOver, ConnectorWritesUnguarded
from mm2py.telemetry.events.base import Event
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import FencedWriter, hint_of
from mm2py.wire.requests import LATEST
from mm2py.wire.topic_log import LogRecord, TopicLog


#: A number that no copy task has: under its transactional id one node at a time takes over.
_NO_TASK: Final = 2**31 - 1


async def take_over_positions(
    settings: FlowSettings,
    *,
    living: Collection[str],
    worker: ClusterEndpoint,
    clock: Clock,
    report: Callable[[Event], None],
) -> bool:
    """
    Write as positions of a flow's source connector what those have left that are not *living* in its worker. Return
    whether there are such: a node that has yet to know that they are gone may still write there.

    Where the connector's target is another cluster than the *worker*'s, it may have been run by Java, which keeps its
    positions at the worker's: those count as long as its own cluster has none (KIP-618).
    """
    alias, config = settings.flow.source, settings.source_connector
    own, topic = config.name, config.offset_storage.topic
    are_left = False

    async def decide(records: Sequence[LogRecord]) -> _Taken:
        nonlocal are_left
        here = left_by(records, alias)
        ours = here.pop(own, LeftPositions(PositionsTopic(alias, own)))
        others = [left for name, left in here.items() if name not in living]
        are_left = bool(others)
        if not ours.sources and worker.bootstrap_servers != settings.target.bootstrap_servers:
            async with Cluster(worker, clock) as first:
                of_java = left_by(await _read(TopicLog(first, topic)), alias).get(own)
            others += [] if of_java is None else [of_java.without_mm2py()]
        taken = taken_over(ours, others)
        return _Taken(len(taken), _records(alias, own, taken))

    await _write_once(settings, own, decide, clock=clock, report=report)
    return are_left


def _records(alias: str, own: str, taken: Mapping[TopicPartition, LeftPositions]) -> list[LogRecord]:
    """Return what connector *own* has to hold of what is *taken*: what a position rests on comes before it."""
    chunks = [it for source, left in taken.items() for it in _chunks(left, source)]
    standing = {source: left.stored.positions.get(source) for source, left in taken.items()}
    return [
        *(
            LogRecord(chunk_key(alias, it.source, it.number, own), encode_chunk(it.chunk, it.topic_id))
            for it in chunks
            if it.chunk is not None
        ),
        *(
            LogRecord(position_key(alias, source, own), None)
            if at is None
            else LogRecord(*encode_position(alias, at, own))
            for source, at in standing.items()
        ),
    ]


async def take_over_from_mirus(
    settings: FlowSettings, connector: str, *, clock: Clock, report: Callable[[Event], None]
) -> None:
    """Write the positions that Mirus's *connector* had as those of its flow, unless the flow has or had any."""
    alias = settings.flow.source

    async def decide(records: Sequence[LogRecord]) -> _Taken:
        ours, theirs = PositionsTopic(alias), dict[TopicPartition, Position]()
        for record in records:
            ours.take(record)
            found = _of_mirus(connector, record)
            if isinstance(found, Position):
                theirs[found.source] = found
            elif found is not None:
                theirs.pop(found, None)
        if ours.positions or ours.removed or not theirs:
            return _Taken()
        async with Cluster(settings.target, clock) as target:
            kept = await _begun(settings, target, theirs)
        return _Taken(len(kept), [LogRecord(*encode_position(alias, position)) for position in kept])

    await _write_once(settings, connector, decide, clock=clock, report=report)


@attrs.frozen
class _Taken:
    """Of how many partitions something is taken over, and what is to be written for it."""

    count: int = 0
    records: Sequence[LogRecord] = ()


async def _write_once(
    settings: FlowSettings,
    connector: str,
    decide: Callable[[Sequence[LogRecord]], Awaitable[_Taken]],
    *,
    clock: Clock,
    report: Callable[[Event], None],
) -> None:
    """
    Write what *decide* makes of the positions topic, all of it or nothing.

    Several nodes may start a connector at once, and one may be frozen in between: each reads again once it alone may
    write, so nobody's older positions come after those of a node that has gone on.
    """
    topic = internal_topics.positions(settings.source_connector)
    async with Cluster(settings.target, clock) as target:
        log = TopicLog(target, topic.name)
        taken = await decide(await _read(log))
        if not taken.records:
            return
        await create(log, topic)
        writer = FencedWriter(settings.worker.task_id(_NO_TASK))
        if settings.worker.refuses and (error := await writer.try_open(target)) is not None:
            report(ConnectorWritesUnguarded(log.topic, writer.transactional_id, str(error), hint_of(error)))
        taken = await decide(await _read(log))
        if taken.records:
            await writer.append(log, taken.records)
            report(ConnectorPositionsTakenOver(settings.flow, connector, log.topic, taken.count))


async def _read(log: TopicLog) -> Sequence[LogRecord]:
    """Return all that the topic says, nothing if it is missing."""
    if not await log.cluster.has_topic(log.topic):
        return ()
    # What follows an open transaction, of a node that was killed, would be missed.
    await log.await_stable()
    return await log.read_all()


def _chunks(left: LeftPositions, source: TopicPartition) -> Iterable[KeptChunk]:
    """Return where records of a partition went; of one whose position was removed, at least that it had one."""
    if source in left.stored.positions or source in left.stored.with_runs:
        return left.chunks_of(source)
    return (KeptChunk(source, 0, None, HAD_POSITION),)


async def _begun(settings: FlowSettings, target: Cluster, theirs: Mapping[TopicPartition, Position]) -> list[Position]:
    """Return Mirus's positions, with nothing to look for in empty remote partitions: unlike a MirrorMaker's, these need
    not have lost anything. Mirus's producer may have chosen other partitions for all records of the source's.
    """
    name_remote = remote_names_of(settings.source_connector)
    remote_of = {source: TopicPartition(name_remote(source.topic), source.partition) for source in theirs}
    await target.refresh_metadata({remote.topic for remote in remote_of.values()})
    there = [it for it in remote_of.values() if not target.is_missing(it)]
    ends = await target.list_offsets(there, LATEST) if there else {}
    empty = {source for source, remote in remote_of.items() if ends.get(remote, 0) == 0}
    return [attrs.evolve(it, downstream=-1) if it.source in empty else it for it in theirs.values()]


def _of_mirus(connector: str, record: LogRecord) -> Position | TopicPartition | None:
    found = read_record(record.key, record.value)
    if not isinstance(found, MirusOffset) or found.connector != connector:
        return None
    return found.source if found.offset is None else Position(found.source, found.offset)
