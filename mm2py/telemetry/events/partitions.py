"""What happens to single topic-partitions."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class PartitionInterrupted(Event):
    """A topic-partition ended its epoch early: a broker was away or a leader moved."""

    level = Level.DEBUG

    flow: Flow
    source: TopicPartition
    message: str
    retry_in_s: float


@attrs.frozen
class PartitionsHeldUp(Event):
    """
    For some time nothing of these topic-partitions could be copied, for one reason; they are tried again all the while.

    Ten of `count` are named; `message` is of the first one, `held_s` of the one that has stood still for longest.
    """

    level = Level.WARN

    flow: Flow
    partitions: tuple[str, ...]
    count: int
    held_s: float
    message: str
    hint: str


@attrs.frozen
class PartitionsGoOn(Event):
    """Nothing holds these topic-partitions up any more; ten of `count` are named."""

    flow: Flow
    partitions: tuple[str, ...]
    count: int
    held_s: float


@attrs.frozen
class PartitionStopped(Event):
    """A topic-partition needs attention; it is tried again at long intervals, the others go on."""

    level = Level.ERROR

    flow: Flow
    source: TopicPartition
    ended: str
    message: str
    hint: str
    offset: int | None
    #: None where it is not tried again.
    retry_in_s: float | None


@attrs.frozen
class PartitionRecovered(Event):
    """A stopped topic-partition copies again."""

    flow: Flow
    source: TopicPartition
    stopped_s: float


@attrs.frozen
class ResumedExactly(Event):
    """The target held records past the last written position; they were recognised, and copying went on after them."""

    flow: Flow
    source: TopicPartition
    records: int
    position: int


@attrs.frozen
class ResumeUnproven(Event):
    """
    What the target holds past the last written position could not be found in the source; records may arrive twice.

    All from `position` on are copied, of which up to `repeated` are there already; None where nobody knows how many.
    """

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    position: int
    message: str
    hint: str = "somebody else writes to the remote topic, or it was changed by hand"
    repeated: int | None = None


@attrs.frozen
class RecordsSkipped(Event):
    """There was no position, and what the target ends with is not in the source: what the source held is not copied."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    #: The first offset that is skipped, and the one that copying begins with.
    skipped_from: int
    position: int
    message: str
    hint: str = "so auto.offset.reset = latest wants it; to have them copied, set the position back"


@attrs.frozen
class ForeignRecordsFound(Event):
    """Records that are not ours appeared between ours in a remote topic; said once for each topic-partition."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    remote_topic: str
    records: int
    hint: str = "let nobody but the mirror write there: after a crash it cannot tell which records are its own"


@attrs.frozen
class PositionsRead(Event):
    """The positions of a flow were read from its target cluster."""

    flow: Flow
    found: int
    fresh: int


@attrs.frozen
class PositionsWritten(Event):
    """Positions that had moved were written to the target cluster."""

    level = Level.DEBUG

    flow: Flow
    partitions: int
    took_ms: float
