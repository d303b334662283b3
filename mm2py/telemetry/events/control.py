"""
Overrides by operators.

`by` names the operator, if known. Stored overrides are applied, and reported, at each start.
"""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class ConnectorPaused(Event):
    """A task group completed what it had begun, wrote its positions and is idle. Its connections stay open."""

    level = Level.WARN

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorResumed(Event):
    """A paused task group continues exactly where it was."""

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorStopped(Event):
    """
    A task group shut down cleanly and holds no resources, so its offsets may be altered.

    With `is_deleted` it is no longer listed.
    """

    level = Level.WARN

    flow: Flow
    connector: str
    is_deleted: bool
    by: str


@attrs.frozen
class ConnectorStarted(Event):
    """A stopped or deleted task group starts again, exactly where it was."""

    flow: Flow
    connector: str
    by: str


@attrs.frozen
class ConnectorRestarted(Event):
    """
    An operator restarted a task group, or its settings changed.

    With `is_alone` its copy tasks continued.
    """

    flow: Flow
    connector: str
    is_alone: bool
    by: str


@attrs.frozen
class CopyTaskRestarted(Event):
    """An operator restarted a copy task. Its epoch ends, and all its partitions are retried or checked at once."""

    flow: Flow
    task: int
    by: str


@attrs.frozen
class RestartPassedOn(Event):
    """An operator restarted a connector, or a task of it, that other nodes of the flow run. They carry the restart out
    within ten seconds, and log it then.
    """

    flow: Flow
    connector: str
    task: int | None
    nodes: str
    by: str


@attrs.frozen
class TopicPaused(Event):
    """A topic is no longer copied. Its positions are kept."""

    level = Level.WARN

    flow: Flow
    topic: str
    by: str


@attrs.frozen
class TopicResumed(Event):
    """All partitions of a topic are copied again, from their positions on."""

    flow: Flow
    topic: str
    by: str


@attrs.frozen
class PartitionPaused(Event):
    """A topic-partition is no longer copied. Its position is kept."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    by: str


@attrs.frozen
class PartitionResumed(Event):
    """A topic-partition is copied again, from its position on."""

    flow: Flow
    source: TopicPartition
    by: str


@attrs.frozen
class RateLimited(Event):
    """A rate limit was set for a flow, or for one topic of it."""

    flow: Flow
    topic: str
    bytes_per_s: float | None
    records_per_s: float | None
    by: str


@attrs.frozen
class RateLimitLifted(Event):
    """The rate limit of a flow, or of one topic of it, was removed."""

    flow: Flow
    topic: str
    by: str


@attrs.frozen
class OverridesLoaded(Event):
    """
    Existing overrides of a flow were read from the target, and apply.

    `revision` counts their changes; `by` and `at_ms` tell who made the last one, and when.
    """

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
    """
    The target does not let the mirror read overrides. The flow runs with the file's settings, and accepts no overrides.

    What to do: grant what `hint` names.
    """

    level = Level.WARN

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class LiveSettingsChanged(Event):
    """
    An operator overrode settings of a connector, or reverted them to the file's. The connectors that read them restart.

    `set` and `reverted` name them.
    """

    flow: Flow
    connector: str
    set: tuple[str, ...]
    reverted: tuple[str, ...]
    by: str


@attrs.frozen
class LiveSettingsRejected(Event):
    """
    Overridden settings do not fit the current file. A flow that runs continues as it was; one that does not run waits.

    `is_running` says which.

    What to do: revert the settings that `problems` names, or correct the file and reload it.
    """

    level = Level.ERROR

    flow: Flow
    problems: tuple[str, ...]
    is_running: bool
    hint: str = "revert these settings, or fix the file and reload it"


@attrs.frozen
class OffsetsAltered(Event):
    """
    An operator altered the offsets of a connector.

    For the source connector, `repeated` offsets are copied again and `skipped` ones never. Partitions with `removed`
    positions start where the settings say.
    """

    level = Level.WARN

    flow: Flow
    connector: str
    partitions: int
    removed: int
    repeated: int
    skipped: int
    by: str
