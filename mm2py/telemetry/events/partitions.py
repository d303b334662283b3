"""Events of single topic-partitions and their records."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class PartitionInterrupted(Event):
    """A topic-partition ended its epoch early: a broker was unavailable or a leader moved."""

    level = Level.DEBUG

    flow: Flow
    source: TopicPartition
    message: str
    retry_in_s: float


@attrs.frozen
class PartitionsHeldUp(Event):
    """These topic-partitions could not be copied for some time, for one reason; they are retried all the while. Ten of
    `count` are named; `message` is that of the first one, `held_s` the longest time of any.
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
    """These topic-partitions are copied again; ten of `count` are named."""

    flow: Flow
    partitions: tuple[str, ...]
    count: int
    held_s: float


@attrs.frozen
class PartitionStopped(Event):
    """A topic-partition needs attention; it is retried at long intervals, the others continue."""

    level = Level.ERROR

    flow: Flow
    source: TopicPartition
    ended: str
    message: str
    hint: str
    offset: int | None
    #: None if it is not retried.
    retry_in_s: float | None


@attrs.frozen
class PartitionRecovered(Event):
    """A stopped topic-partition is copied again."""

    flow: Flow
    source: TopicPartition
    stopped_s: float


@attrs.frozen
class ResumedExactly(Event):
    """The target held records beyond the last written position; they were recognised and not copied again."""

    flow: Flow
    source: TopicPartition
    records: int
    position: int


@attrs.frozen
class ResumeUnproven(Event):
    """The target's records beyond the last written position could not be matched with the source; records may arrive
    twice. Everything from `position` on is copied, of which up to `repeated` records are there already; None if
    unknown.
    """

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    position: int
    message: str
    hint: str = "the remote topic has another writer, or was changed by hand"
    repeated: int | None = None


@attrs.frozen
class RecordsSkipped(Event):
    """There was no position, and the target's last records are not in the source: the source's existing records are
    skipped.
    """

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    #: The first offset that is skipped, and the first that is copied.
    skipped_from: int
    position: int
    message: str
    hint: str = "as auto.offset.reset or start.timestamp demands; to copy them, set the position back"


@attrs.frozen
class ForeignRecordsFound(Event):
    """Foreign records appeared between the mirror's in a remote topic; reported once for each topic-partition."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    remote_topic: str
    records: int
    hint: str = "let only the mirror write there: after a crash it cannot tell which records are its own"


@attrs.frozen
class PositionsRead(Event):
    """The positions of a flow were read from its target cluster."""

    flow: Flow
    found: int
    fresh: int


@attrs.frozen
class PositionsWritten(Event):
    """Changed positions were written to the target cluster."""

    level = Level.DEBUG

    flow: Flow
    partitions: int
    took_ms: float


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
    """A source topic was deleted and created again; `records` of the old one were never copied. Of its partitions on
    this node the first one has the number of the `others`; of these, such as lose nothing are logged as DEBUG.
    """

    #: None if it is one of the others.
    others: int | None = 0

    @property
    def severity(self) -> Level:
        return Level.DEBUG if self.others is None and not self.records and not self.lost else self.level


@attrs.frozen
class SourceTopicRebuilt(Event):
    """A source topic was created again, and all of its records up to the target's last one are at the target, in order,
    or would have been removed by its cleanup: it was rebuilt from there. Copying goes on after that record. Of the
    former topic, `left` records were never copied.
    """

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    remote_topic: str
    log_start: int
    goes_on_at: int
    left: int


@attrs.frozen
class SourceRecordsExpired(_HistoryBroke):
    """Retention, or DeleteRecords, removed `records` at the source before they were copied."""


@attrs.frozen
class SourceRecordsPurged(_HistoryBroke):
    """`records` of a source topic without retention were deleted on purpose before they were copied, as Kafka Streams
    does with what it has read of its repartition topics: they are no loss. Once a partition, then as DEBUG.
    """

    level = Level.INFO

    is_repeated: bool = False

    @property
    def severity(self) -> Level:
        return Level.DEBUG if self.is_repeated else self.level


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


@attrs.frozen
class TransactionFenced(Event):
    """Another producer has opened the transactional id of a record task: two daemons run the same flow."""

    level = Level.ERROR

    flow: Flow
    task: int
    transactional_id: str
    error: str
    hint: str
    #: How long this daemon pauses its topics before it takes over again.
    pause_s: float


@attrs.frozen
class RecordLeftOut(Event):
    """A transform could not process a record, which `errors.tolerance` tolerates: it is not mirrored."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    offset: int
    transform: str
    error: str
    #: The dead letter topic, empty if there is none.
    dead_letters: str
