"""
What operators asked of a flow while it ran.

`by` is who did, empty where nobody said so: orders that were kept on the target are obeyed at a start too.
"""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class ConnectorPaused(Event):
    """A task group does nothing from now on, and keeps what it has opened."""

    level = Level.WARN

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorResumed(Event):
    """A task group that was paused goes on where it was."""

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorStopped(Event):
    """A task group has ended in good order and holds nothing; deleted ones are not listed any more."""

    level = Level.WARN

    flow: Flow
    connector: str
    is_deleted: bool
    by: str


@attrs.frozen
class ConnectorStarted(Event):
    """A task group that was stopped starts again, where it was."""

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorRestarted(Event):
    """Somebody had a task group end and restart; `is_alone` leaves the copy tasks as they are."""

    flow: Flow
    connector: str
    is_alone: bool
    by: str


@attrs.frozen
class CopyTaskRestarted(Event):
    """Somebody had a copy task's epoch end, and its pauses forgotten."""

    flow: Flow
    task: int
    by: str


@attrs.frozen
class TopicPaused(Event):
    """Nothing of a topic is copied from the next epoch on."""

    level = Level.WARN

    flow: Flow
    topic: str
    by: str


@attrs.frozen
class TopicResumed(Event):
    """A topic is copied again."""

    flow: Flow
    topic: str
    by: str


@attrs.frozen
class PartitionPaused(Event):
    """Nothing of a topic-partition is copied from the next epoch on."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    by: str


@attrs.frozen
class PartitionResumed(Event):
    """A topic-partition is copied again."""

    flow: Flow
    source: TopicPartition
    by: str


@attrs.frozen
class RateLimited(Event):
    """A flow, or a topic of it, is copied no faster than this from now on."""

    flow: Flow
    topic: str
    bytes_per_s: float | None
    records_per_s: float | None
    by: str


@attrs.frozen
class RateLimitLifted(Event):
    """A flow, or a topic of it, is copied as fast as it goes again."""

    flow: Flow
    topic: str
    by: str
