"""
A connector's offsets (KIP-875), read and altered in the positions topic of a flow.

The caller ensures that the connector is stopped, so nothing else writes there or to the remote topics meanwhile. Offset
translations are kept. The next start begins at the target's end: records that are copied again are appended, and
translated from there on.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.control_writers import ControlWriters
from mm2py.connectors.plugins import remote_names_of, selected_topics, topic_filter_of
from mm2py.connectors.reach import Reach
from mm2py.core import internal_topics
from mm2py.core.herder.connector_offsets import PartitionOffsets, altered_positions
from mm2py.core.herder.sharing import flow_tasks
from mm2py.errors import BrokerAnsweredError
from mm2py.model.connector_offset import SOURCE, ConnectorOffset, is_of, offset_key, read_key, read_value
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position, encode_position
from mm2py.model.positions_topic import PositionsTopic, subject_of
from mm2py.model.run_chunk import HAD_POSITION, chunk_key, encode_chunk
from mm2py.storage.compacted_topic import create
from mm2py.telemetry.events import OffsetsAltered
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import has_transactions
from mm2py.wire.log_end import whole_ends
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.security.access import hint_at
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.topics.admin import Admin


@attrs.frozen
class _Kept:
    """The content of the positions topic: the connector's records by partition, and the resulting positions."""

    records: Mapping[tuple[int | None, bytes], LogRecord]
    positions: Mapping[TopicPartition, Position]
    #: Partitions with offset translations.
    with_runs: Collection[TopicPartition]


@attrs.frozen
class Survey:
    """
    Where a flow stands, and what there is to copy.

    `remote_of` is the remote topic of each topic that it mirrors. A place that is a text is the reason why it is
    unknown.
    """

    positions: Mapping[TopicPartition, Position]
    remote_of: Mapping[str, str]
    places: Mapping[TopicPartition, PartitionOffsets | str]


class ConnectorOffsets:
    """
    The offsets of one flow's connectors. It opens the clusters for each call, and closes them again.

    Source connectors of a standalone worker keep positions under one name: those of topics that the ones beside it copy
    are none of this one's.
    """

    def __init__(self, settings: FlowSettings, *, clock: Clock, events: EventLog) -> None:
        self._settings = settings
        self._clock = clock
        self._events = events

    @property
    def _flow(self) -> Flow:
        return self._settings.flow

    @property
    def _name(self) -> str:
        """The name under which the source connector's offsets are stored."""
        return self._settings.source_connector.name

    async def read(self, connector: str) -> tuple[ConnectorOffset, ...]:
        """Return the offsets as last written; a source connector's is that of the last copied record."""
        async with self._open() as target:
            kept = await self._read(target, connector)
        found: dict[str, ConnectorOffset] = {}
        for (_, key), record in kept.records.items():
            named, offset = read_key(key), read_value(record.value)
            if named is None or offset is None or (connector == SOURCE and not _is_copied(offset)):
                continue
            found[repr(sorted(named[1].items(), key=repr))] = ConnectorOffset(named[1], offset)
        return tuple(sorted(found.values(), key=_in_order))

    async def survey(self, takes: Callable[[TopicPartition], bool], timestamp_ms: int | None = None) -> Survey:
        """
        Return the positions, and where each partition of *takes* that is mirrored or has a position begins and ends.

        With *timestamp_ms* also the first offset from then on.
        """
        settings = self._settings
        async with self._open() as target, Cluster(settings.source, self._clock) as source:
            positions = (await self._read(target, SOURCE)).positions
            there = await Admin(source).list_topics()
            selected = selected_topics(settings.source_connector, there.partition_counts())
            mirrored = {TopicPartition(it, at) for it in selected.remote_of for at in there.topics[it].partitions}
            asked = dict.fromkeys(filter(takes, mirrored | positions.keys()), timestamp_ms)
            return Survey(positions, selected.remote_of, await self._places(source, target, asked))

    async def positions(self) -> Mapping[TopicPartition, Position]:
        """Return the positions as last written; this needs only the target."""
        async with self._open() as target:
            return (await self._read(target, SOURCE)).positions

    async def alter(
        self, connector: str, asked: Collection[ConnectorOffset], *, by: str, is_taken_over: bool = False
    ) -> None:
        """Alter validated offsets; those of another mirror with *is_taken_over* (see `altered_positions`). Raise
        OverrideRejectedError with all problems.
        """
        removed = [one.partition for one in asked if one.offset is None]
        kept_ones = [one for one in asked if one.offset is not None]
        async with self._open() as target:
            await self._fence(target, connector)
            kept = await self._read(target, connector)
            tombstones = self._tombstones(connector, kept, removed)
            if connector != SOURCE:
                records = [LogRecord(offset_key(connector, one.partition), b'{"offset":0}') for one in kept_ones]
                await self._write(target, [*tombstones, *records])
                self._events.emit(OffsetsAltered(self._flow, connector, len(asked), len(removed), 0, 0, by))
                return
            places: Mapping[TopicPartition, PartitionOffsets | str] = {}
            if kept_ones:
                async with Cluster(self._settings.source, self._clock) as source:
                    places = await self._places(source, target, {one.source: one.timestamp_ms for one in kept_ones})
            altered = altered_positions(kept_ones, kept.positions, places, is_taken_over=is_taken_over)
            records = [LogRecord(*encode_position(self._flow.source, one.position, self._name)) for one in altered]
            await self._write(target, [*tombstones, *records])
        repeated, skipped = sum(one.repeated for one in altered), sum(one.skipped for one in altered)
        count = len(altered) + len(removed)
        self._events.emit(OffsetsAltered(self._flow, connector, count, len(removed), repeated, skipped, by))

    async def reset(self, connector: str, *, by: str) -> None:
        """Remove all offsets of a connector: each partition starts where the settings say."""
        async with self._open() as target:
            await self._fence(target, connector)
            kept = await self._read(target, connector)
            names = [named[1] for _, key in kept.records if (named := read_key(key)) is not None]
            await self._write(target, self._tombstones(connector, kept, names))
        self._events.emit(OffsetsAltered(self._flow, connector, len(names), len(names), 0, 0, by))

    def _tombstones(self, connector: str, kept: _Kept, partitions: Collection[Mapping[str, Any]]) -> list[LogRecord]:
        """Remove *partitions* under any spelling of their keys."""
        records: list[LogRecord] = []
        for (number, key), record in kept.records.items():
            named = read_key(key)
            if named is not None and named[1] in partitions and record.value is not None:
                records.append(LogRecord(key, None, partition=number))
        # Compaction eventually removes the tombstone. A start without a position must not take the target's records for
        # the beginning of this copy.
        if connector == SOURCE:
            gone = {position for position in kept.positions if _members(self._flow, position) in partitions}
            for source in sorted(gone - set(kept.with_runs)):
                marker = encode_chunk(HAD_POSITION, kept.positions[source].topic_id)
                records.append(LogRecord(chunk_key(self._flow.source, source, 0, self._name), marker))
        return records

    async def _fence(self, target: Cluster, connector: str) -> None:
        """Have the brokers refuse what a node may still write that was frozen before the connector was stopped."""
        settings = self._settings
        if connector != SOURCE or not settings.worker.refuses or not await has_transactions(target):
            return
        reach = Reach(settings.flow, self._clock, self._events, random.random)
        writers = ControlWriters(settings.flow, settings.worker, self._events, reach)
        tasks = range(flow_tasks(settings.source_connector)[0])
        try:
            await writers.fence_tasks(settings.source_connector, target, tasks)
        except BrokerAnsweredError as error:
            writers.give_up_fencing(tasks, error)

    async def _read(self, target: Cluster, connector: str) -> _Kept:
        topic = self._settings.source_connector.offset_storage.topic
        if not await target.has_topic(topic):
            return _Kept({}, {}, ())
        records: dict[tuple[int | None, bytes], LogRecord] = {}
        stored = PositionsTopic(self._flow.source, self._name)
        is_others = self._of_others() if connector == SOURCE else None
        for record in await TopicLog(target, topic).read_all():
            if is_others is not None and (subject := subject_of(record.key)) and is_others(subject.source.topic):
                continue
            stored.take(record)
            named = read_key(record.key)
            if record.key is None or named is None or named[0] != (self._name if connector == SOURCE else connector):
                continue
            if is_of(self._flow, connector, named[1]):
                records[record.partition, record.key] = record
        # What a node has claimed and not begun is ended by an alteration; a life would go on where the claim was made.
        claimed = {it: attrs.evolve(stored.positions[it], producer=one.claimed) for it, one in stored.claims.items()}
        return _Kept(records, {**stored.positions, **claimed}, stored.with_runs)

    def _of_others(self) -> Callable[[str], bool] | None:
        """Return whether a topic is copied by a connector beside, None without any: the first one that selects it."""
        own, beside = self._settings.source_connector, self._settings.beside
        if not beside:
            return None
        filters = [(one.order, topic_filter_of(one)) for one in (own, *beside)]
        filters.sort(key=lambda it: it[0])

        def is_others(topic: str) -> bool:
            return next((at for at, its in filters if its.takes_topic(topic)), own.order) != own.order

        return functools.cache(is_others)

    async def _write(self, target: Cluster, records: Collection[LogRecord]) -> None:
        topic = internal_topics.positions(self._settings.source_connector)
        log = TopicLog(target, topic.name)
        await create(log, topic)
        await log.append(list(records))

    # Queries to both clusters.

    async def _places(
        self, source: Cluster, target: Cluster, asked: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, PartitionOffsets | str]:
        """Return where each of the partitions *asked* and its remote partition begin and end, and where its timestamp
        is, if it has one; a text is the reason why not.
        """
        name_remote = remote_names_of(self._settings.source_connector)
        remote_of = {it: TopicPartition(name_remote(it.topic), it.partition) for it in asked}
        await source.refresh_metadata({it.topic for it in asked})
        await target.refresh_metadata({remote.topic for remote in remote_of.values()})
        there = [it for it in asked if not source.is_missing(it)]
        since = await _since(source, {it: at for it in there if (at := asked[it]) is not None})
        starts = await source.list_offsets(there, EARLIEST) if there else {}
        ends = await source.list_offsets(there, LATEST) if there else {}
        remotes = [it for it in remote_of.values() if not target.is_missing(it)]
        remote_ends = await whole_ends(target, remotes) if remotes else {}
        places: dict[TopicPartition, PartitionOffsets | str] = {}
        for it, remote in remote_of.items():
            answers = (starts.get(it), ends.get(it), since.get(it), remote_ends.get(remote, 0))
            refusal = next((one for one in answers if isinstance(one, BrokerAnsweredError)), None)
            if refusal is not None:
                hint = hint_at(refusal, (source if refusal.cluster == source.alias else target).endpoint)
                places[it] = f"{refusal}; {hint}" if hint else str(refusal)
            else:
                ids = source.topic_id(it.topic), target.topic_id(remote.topic)
                places[it] = _place(answers, ids, remote.topic)
        return places

    def _open(self) -> Cluster:
        return Cluster(self._settings.target, self._clock)


def _place(
    answers: tuple[int | BrokerAnsweredError | None, ...], ids: tuple[str | None, str | None], remote_topic: str
) -> PartitionOffsets | str:
    start, end, since, remote_end = (None if isinstance(one, BrokerAnsweredError) else one for one in answers)
    if start is None or end is None or remote_end is None:
        return "the source has no such topic-partition"
    return PartitionOffsets(start, end, ids[0], remote_end, ids[1], remote_topic, since)


async def _since(
    source: Cluster, timestamps_ms: Mapping[TopicPartition, int]
) -> Mapping[TopicPartition, int | BrokerAnsweredError]:
    """Return the first offset of each partition from its timestamp on."""
    found: dict[TopicPartition, int | BrokerAnsweredError] = {}
    for at_ms in set(timestamps_ms.values()):
        found |= await source.offsets_since([it for it, at in timestamps_ms.items() if at == at_ms], at_ms)
    return found


def _members(flow: Flow, source: TopicPartition) -> dict[str, Any]:
    return {"cluster": flow.source, "partition": source.partition, "topic": source.topic}


def _is_copied(offset: Mapping[str, Any]) -> bool:
    """Whether a record was copied: before the first one, the offset is -1."""
    last = offset.get("offset")
    return not isinstance(last, int) or last >= 0


def _in_order(one: ConnectorOffset) -> tuple[str, ...]:
    numbers = {name: f"{value:012}" if isinstance(value, int) else str(value) for name, value in one.partition.items()}
    return (numbers.get("topic", ""), numbers.get("partition", ""), repr(one.partition))
