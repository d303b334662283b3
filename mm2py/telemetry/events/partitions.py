"""Partitions and their records."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class PartitionInterrupted(Event):
    """A topic-partition ended its epoch early: a broker was unavailable, or a leader moved. It is retried within
    seconds.
    """

    level = Level.DEBUG

    flow: Flow
    source: TopicPartition
    message: str
    retry_in_s: float


@attrs.frozen
class PartitionsHeldUp(Event):
    """
    These topic-partitions could not be copied for some time. They are retried all the while, and the lag counts what
    waits.

    Ten of `count` are named. `held_s` is the longest time of any, and `message` the reason of the first. Logged after a
    minute, or after five for a transaction that is still open at a source that is read with `read_committed`.

    What to do: see `hint`. A transaction that a dead producer left open ends by itself after its
    `transaction.timeout.ms`; one that hangs needs `kafka-transactions.sh`.
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
    """
    These topic-partitions are copied again.

    Ten of `count` are named.
    """

    flow: Flow
    partitions: tuple[str, ...]
    count: int
    held_s: float


@attrs.frozen
class PartitionStopped(Event):
    """
    A topic-partition needs attention. Other partitions continue. It is retried at growing intervals of up to five
    minutes.

    What to do: see [recovering](recovering.md#a-partition-stopped).
    """

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
    """A topic-partition that had stopped is copied again."""

    flow: Flow
    source: TopicPartition
    stopped_s: float


@attrs.frozen
class ResumedExactly(Event):
    """The target held records beyond the last written position. They were recognised, and not copied again."""

    flow: Flow
    source: TopicPartition
    records: int
    position: int


@attrs.frozen
class ResumeUnproven(Event):
    """
    The target's records beyond the last written position could not be matched with the source.

    Everything from `position` on is copied; up to `repeated` of these records are at the target already, and will be
    there twice. `repeated` is absent if that number is unknown.

    What to do: read `message`, and find out who else writes to the remote topic. See
    [recovering](recovering.md#records-that-may-be-there-twice).
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
    """
    A partition had no position, and the target's last records are not in the source. As the settings demand, existing
    records of the source are skipped.

    The setting is `auto.offset.reset` = `latest`, or `start.timestamp`. Records from `skipped_from` up to `position`
    are not copied.

    What to do: if they are wanted, [set the position](recovering.md#setting-a-position) to `skipped_from`.
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
    """
    Records that the mirror did not write appeared in a remote topic. Logged once for each partition.

    What to do: find out who writes there, and stop it: after a crash the mirror cannot tell which records are its own.
    """

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    remote_topic: str
    records: int
    hint: str = "let only the mirror write there: after a crash it cannot tell which records are its own"


@attrs.frozen
class PositionsRead(Event):
    """
    The positions of a flow were read from its target cluster.

    `found` exist, `fresh` ones are new.

    What to do: if `fresh` is unexpected, check that it is the right file and the right target.
    """

    flow: Flow
    found: int
    fresh: int


@attrs.frozen
class PositionsWritten(Event):
    """Changed positions were written to the target."""

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
    """
    A source topic was deleted and created again.

    `records` of the old one were never copied. The event of the first partition counts the `others` on this node. Those
    that lose nothing are logged as *debug*.

    What to do: see [when history breaks](recovering.md#when-history-breaks).
    """

    #: None if it is one of the others.
    others: int | None = 0

    @property
    def severity(self) -> Level:
        return Level.DEBUG if self.others is None and not self.records and not self.lost else self.level


@attrs.frozen
class SourceTopicRebuilt(Event):
    """
    A source topic was created again and holds, from its first record on, what is at the target, or was there until the
    target's cleanup removed it.

    Copying continues after the target's last record, at `goes_on_at`. `left` records of the former topic were never
    copied.

    What to do: look for those, if there are any, where they were written. See [a primary that was
    rebuilt](recovering.md#a-primary-that-was-rebuilt).
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
    """
    Retention, or DeleteRecords, removed records at the source before they were copied.

    `records` counts them.

    What to do: find out why the mirror was so far behind. See [when history breaks](recovering.md#when-history-breaks).
    """


@attrs.frozen
class SourceRecordsPurged(_HistoryBroke):
    """
    Records of a source topic without retention were deleted on purpose before they were copied, as Kafka Streams does
    in its repartition topics. They are no loss.

    Both `retention.ms` and `retention.bytes` of the topic are -1. Logged once for each partition, then as *debug*.
    """

    level = Level.INFO

    is_repeated: bool = False

    @property
    def severity(self) -> Level:
        return Level.DEBUG if self.is_repeated else self.level


@attrs.frozen
class SourceTruncated(_HistoryBroke):
    """
    The source has lost records that were copied, and may hold others at their offsets.

    What to do: see [when history breaks](recovering.md#when-history-breaks).
    """


@attrs.frozen
class RemoteTopicRewound(_HistoryBroke):
    """
    The target has lost records that were copied: the remote topic was truncated.

    What to do: see [when history breaks](recovering.md#when-history-breaks).
    """


@attrs.frozen
class RemoteTopicRecreated(_HistoryBroke):
    """
    The remote topic was deleted and created again. Records that were copied are not in it.

    What to do: see [when history breaks](recovering.md#when-history-breaks).
    """


@attrs.frozen
class RemoteTopicDeleted(Event):
    """
    The mirror deleted a remote topic, to create it again for a re-created source topic.

    `copy.on.source.recreated = re-create` says so.
    """

    level = Level.WARN

    flow: Flow
    topic: str
    remote_topic: str


@attrs.frozen
class TransactionFenced(Event):
    """
    Another daemon runs the same flow, and has taken over the transactional id of a record task twice in ten minutes.
    This one pauses its topics, then takes over again.

    It pauses them for `pause_s`.

    What to do: stop one of the two daemons. See [transforms](transforms.md#exactly-once).
    """

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
    """
    A transform could not process a record, and the settings tolerate that (`errors.tolerance`): the record is not
    mirrored.

    It was written to the topic in `dead_letters`, if one is named.

    What to do: correct the transform, or the record's producer. See [transforms](transforms.md#errors).
    """

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    offset: int
    transform: str
    error: str
    #: The dead letter topic, empty if there is none.
    dead_letters: str
