"""Events of offset syncs and offset translations."""

from __future__ import annotations

from typing import ClassVar

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class OffsetSyncsRead(Event):
    """Existing offset syncs were read."""

    flow: Flow
    offset_syncs_topic: str
    cluster: str
    partitions: int


@attrs.frozen
class OffsetSyncsWritten(Event):
    """The newest pending offset sync of each partition was written."""

    level = Level.DEBUG

    flow: Flow
    offset_syncs_topic: str
    cluster: str
    partitions: int
    took_ms: float


@attrs.frozen
class TranslationsWritten(Event):
    """New offset translations were written to the target cluster."""

    level = Level.DEBUG

    flow: Flow
    chunks: int
    bytes: int
    took_ms: float


@attrs.frozen
class RecordPassedOver(Event):
    """A record in one of the mirror's own topics cannot be parsed, and is ignored. `others` counts further ones that
    were found with it.
    """

    level: ClassVar[Level] = Level.WARN

    flow: Flow
    place: TopicPartition
    offset: int
    problem: str
    others: int
    hint: str = "another program writes to this topic: find out which, and who may write there"
