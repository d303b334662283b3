"""What happens to offset syncs and to what offsets are translated by."""

from __future__ import annotations

from typing import ClassVar

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class OffsetSyncsRead(Event):
    """The offset syncs that were written before were read."""

    flow: Flow
    offset_syncs_topic: str
    cluster: str
    partitions: int


@attrs.frozen
class OffsetSyncsWritten(Event):
    """The newest offset sync of each partition that had one waiting was written."""

    level = Level.DEBUG

    flow: Flow
    offset_syncs_topic: str
    cluster: str
    partitions: int
    took_ms: float


@attrs.frozen
class TranslationsWritten(Event):
    """What is newly known of where records went was written to the target cluster."""

    level = Level.DEBUG

    flow: Flow
    chunks: int
    bytes: int
    took_ms: float


@attrs.frozen
class RecordPassedOver(Event):
    """
    A record of one of the mirror's own topics says nothing that can be understood, and is as if it were not there.

    `others` counts those that were found with it and are not named.
    """

    level: ClassVar[Level] = Level.WARN

    flow: Flow
    place: TopicPartition
    offset: int
    problem: str
    others: int
    hint: str = "something else writes to this topic: find out what, and who else may write there"
