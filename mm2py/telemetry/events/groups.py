"""Events of consumer groups, their checkpoints and their offsets at the target; and of what translates offsets."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class CheckpointsRead(Event):
    """The checkpoints topic was read and is continued."""

    flow: Flow
    topic: str
    checkpoints: int
    malformed: int


@attrs.frozen
class CheckpointsUnreadable(Event):
    """The checkpoints topic may not be read; only exact translations are written, so that groups never go back."""

    level = Level.WARN

    flow: Flow
    topic: str
    error: str
    hint: str


@attrs.frozen
class CheckpointsWritten(Event):
    """A round of checkpoints was written."""

    level = Level.DEBUG

    flow: Flow
    groups: int
    checkpoints: int
    took_ms: float


@attrs.frozen
class GroupsChanged(Event):
    """The set of translated consumer groups changed."""

    flow: Flow
    groups: int
    added: int
    gone: int


@attrs.frozen
class GroupNotTranslated(Event):
    """A group that the filter selects is of a kind whose offsets cannot be translated."""

    flow: Flow
    group: str
    reason: str


@attrs.frozen
class GroupOffsetsSynced(Event):
    """A group's translated offsets were committed at the target."""

    level = Level.DEBUG

    flow: Flow
    group: str
    partitions: int


@attrs.frozen
class GroupSyncSkipped(Event):
    """A group's offsets at the target are not written, with the reason; reported once until it changes."""

    flow: Flow
    group: str
    state: str
    reason: str
    hint: str


@attrs.frozen
class GroupSyncResumed(Event):
    """A skipped group can be written at the target again."""

    flow: Flow
    group: str
    state: str
    held_s: float


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

    level = Level.WARN

    flow: Flow
    place: TopicPartition
    offset: int
    problem: str
    others: int
    hint: str = "another program writes to this topic: find out which, and who may write there"
