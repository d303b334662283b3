"""Events of consumer groups: which are translated, their checkpoints, their offsets at the target."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
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
