"""Consumer groups and translated offsets."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class CheckpointsRead(Event):
    """
    The checkpoints topic was read and is continued.

    `malformed` records in it were ignored.
    """

    flow: Flow
    topic: str
    checkpoints: int
    malformed: int


@attrs.frozen
class CheckpointsUnreadable(Event):
    """
    The checkpoints topic may not be read. Only exact translations are written, so that groups do not go back after a
    restart.

    What to do: grant the mirror's principal READ on the topic.
    """

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
    """
    A group that the filter selects is of a kind whose offsets have no meaning at the target. Logged once.

    What to do: exclude it with `groups.exclude`.
    """

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
    """
    A group's offsets are not written at the target. Logged once until it changes.

    `state` says why: `active`, `in_use`, `other_protocol`, `unknown`, `refused`. See [failing
    over](failing-over.md#which-groups-are-written).

    What to do: for `active` after a failover, nothing. For `unknown` and `refused`, grant what `hint` names.
    """

    flow: Flow
    group: str
    state: str
    reason: str
    hint: str


@attrs.frozen
class GroupSyncResumed(Event):
    """
    A group's offsets are written at the target again.

    `held_s` is how long they were not, because of `state`.
    """

    flow: Flow
    group: str
    state: str
    held_s: float


@attrs.frozen
class OffsetSyncsRead(Event):
    """Existing offset syncs were read, those of mm2py and those of a Java MirrorMaker."""

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
    """New offset translations were written to the target, right before the positions that depend on them."""

    level = Level.DEBUG

    flow: Flow
    chunks: int
    bytes: int
    took_ms: float


@attrs.frozen
class RecordPassedOver(Event):
    """
    One of the mirror's own topics has a record that cannot be parsed. The record is ignored: an earlier or later valid
    record with the same key is used, and a position without any other record counts as never written.

    `topic`, `partition` and `offset` tell where, `problem` what is wrong. `others` counts further records that were
    found with it. Logged once for each.

    What to do: find out which program writes to this topic, and restrict who may.
    """

    level = Level.WARN

    flow: Flow
    place: TopicPartition
    offset: int
    problem: str
    others: int
    hint: str = "another program writes to this topic: find out which, and who may write there"
