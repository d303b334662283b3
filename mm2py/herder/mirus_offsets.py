"""What a Mirus installation stored of its positions, in the offset topic of its Connect workers at the target."""

from __future__ import annotations

from typing import ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.errors import Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.mirus_offset import MirusOffset, read_record
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import TopicLog


@attrs.define(eq=False)
class NoOffsetTopicError(Mm2Error):
    """The target has no such topic."""

    hint: ClassVar[str] = "it is offset.storage.topic of the Mirus worker's file, on the cluster that Mirus writes to"

    cluster: str
    topic: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} has no topic {self.topic}"


@attrs.frozen
class MirusOffsets:
    """The newest offset of each connector and topic-partition; and which records could not be read, and why."""

    offsets: tuple[MirusOffset, ...]
    unreadable: tuple[str, ...] = ()


async def read_mirus_offsets(settings: FlowSettings, topic: str, clock: Clock) -> MirusOffsets:
    """Read *topic* to its end."""
    async with Cluster(settings.target, clock) as target:
        if not await target.has_topic(topic):
            raise NoOffsetTopicError(target.alias, topic)
        found: dict[tuple[str, TopicPartition], MirusOffset] = {}
        unreadable: list[str] = []
        for record in await TopicLog(target, topic).read_all():
            stored = read_record(record.key, record.value)
            if isinstance(stored, MirusOffset):
                found[stored.connector, stored.source] = stored
            elif isinstance(stored, UnreadableRecord):
                unreadable.append(f"{topic}-{record.partition}, offset {record.offset}: {stored.problem}")
    return MirusOffsets(tuple(found[key] for key in sorted(found)), tuple(unreadable))
