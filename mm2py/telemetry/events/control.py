"""Overrides that operators set while a flow runs, and offsets that they alter. `by` names the operator, if known;
overrides stored on the target are applied at a start too.
"""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class ConnectorPaused(Event):
    """A task group pauses, and keeps its connections."""

    level = Level.WARN

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorResumed(Event):
    """A paused task group continues where it was."""

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorStopped(Event):
    """A task group has shut down cleanly and holds no resources; deleted ones are no longer listed."""

    level = Level.WARN

    flow: Flow
    connector: str
    is_deleted: bool
    by: str


@attrs.frozen
class ConnectorStarted(Event):
    """A stopped task group starts again, where it was."""

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorRestarted(Event):
    """An operator restarted a task group, or its settings changed; with `is_alone` its copy tasks continue."""

    flow: Flow
    connector: str
    is_alone: bool
    by: str


@attrs.frozen
class CopyTaskRestarted(Event):
    """An operator restarted a copy task: its epoch ends, and back-off is cancelled."""

    flow: Flow
    task: int
    by: str


@attrs.frozen
class RestartPassedOn(Event):
    """An operator restarted what runs on other nodes of the flow; they carry it out when they read it."""

    flow: Flow
    connector: str
    task: int | None
    nodes: str
    by: str


@attrs.frozen
class TopicPaused(Event):
    """A topic is not copied from the next epoch on."""

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
    """A topic-partition is not copied from the next epoch on."""

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
    """A rate limit was set for a flow, or for a topic of it."""

    flow: Flow
    topic: str
    bytes_per_s: float | None
    records_per_s: float | None
    by: str


@attrs.frozen
class RateLimitLifted(Event):
    """The rate limit of a flow, or of a topic of it, was removed."""

    flow: Flow
    topic: str
    by: str


@attrs.frozen
class OverridesLoaded(Event):
    """Existing overrides of a flow were read from the target, and apply."""

    flow: Flow
    revision: int
    by: str
    at_ms: int


@attrs.frozen
class OverridesStored(Event):
    """A change of a flow's overrides is stored on the target."""

    flow: Flow
    revision: int
    by: str


@attrs.frozen
class OverridesUnavailable(Event):
    """The target does not let the mirror read overrides: the flow runs with the file's settings, and accepts none."""

    level = Level.WARN

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class LiveSettingsChanged(Event):
    """An operator overrode settings of a flow, or reverted them."""

    flow: Flow
    connector: str
    set: tuple[str, ...]
    reverted: tuple[str, ...]
    by: str


@attrs.frozen
class LiveSettingsRejected(Event):
    """Overridden settings no longer fit the file: the flow continues as it was, or does not start."""

    level = Level.ERROR

    flow: Flow
    problems: tuple[str, ...]
    is_running: bool
    hint: str = "revert these settings, or fix the file and reload it"


@attrs.frozen
class OffsetsAltered(Event):
    """An operator altered a connector's offsets; for the source connector, `repeated` offsets are copied again,
    `skipped` offsets are never copied; for `removed` positions the start is determined when the connector starts.
    """

    level = Level.WARN

    flow: Flow
    connector: str
    partitions: int
    removed: int
    repeated: int
    skipped: int
    by: str
