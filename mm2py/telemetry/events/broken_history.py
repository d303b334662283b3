"""Events of clusters that no longer match a position."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class _HistoryBroke(Event):
    """Shared by these events. `records` are concerned, `lost` ones will never be at the target, `repeated` ones may be
    there twice; all three are offsets, so upper bounds where a topic is compacted or transactional.
    """

    level = Level.ERROR

    flow: Flow
    source: TopicPartition
    remote_topic: str
    message: str
    records: int
    #: The setting that decided, and its value.
    setting: str
    policy: str
    #: The upstream offset that was next.
    position: int
    #: Where copying continues; None if it stopped, or waits for the remote topic to be created again.
    goes_on_at: int | None
    lost: int | None
    repeated: int | None


@attrs.frozen
class SourceTopicRecreated(_HistoryBroke):
    """A source topic was deleted and created again; `records` of the old one were never copied."""


@attrs.frozen
class SourceRecordsExpired(_HistoryBroke):
    """Retention, or DeleteRecords, removed `records` at the source before they were copied."""


@attrs.frozen
class SourceTruncated(_HistoryBroke):
    """The source has lost `records` that were copied, and may hold others at their offsets."""


@attrs.frozen
class RemoteTopicRewound(_HistoryBroke):
    """The target has lost `records` that were copied: the remote topic was truncated."""


@attrs.frozen
class RemoteTopicRecreated(_HistoryBroke):
    """The remote topic was deleted and created again: `records` that were copied are not in it."""


@attrs.frozen
class RemoteTopicDeleted(Event):
    """The mirror deleted a remote topic, to create it again for a re-created source topic."""

    level = Level.WARN

    flow: Flow
    topic: str
    remote_topic: str
