"""
One frozen class for each thing that happens, named NounVerbed.

An event's log line is its class name in snake case with its fields as keys. Emitting one (see `journal.EventLog`) is
the only way to write a log line, so log, counters and tests cannot disagree.
"""

from __future__ import annotations

import enum
import re
from typing import ClassVar

import attrs

from mm2py.model.flow import Flow, TopicPartition


class Level(enum.Enum):
    """How loud an event is; the numbers are those of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40


@attrs.frozen
class Event:
    """What all events share: a name for the log and a loudness."""

    level: ClassVar[Level] = Level.INFO

    @property
    def name(self) -> str:
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    def fields(self) -> dict[str, object]:
        """Give the facts as a log line holds them: plain values, nothing that is empty."""
        facts: dict[str, object] = {}
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            if isinstance(value, TopicPartition):
                facts |= {"topic": value.topic, "partition": value.partition}
            elif isinstance(value, float):
                facts[field.name] = round(value, 3)
            elif isinstance(value, Flow):
                facts[field.name] = str(value)
            elif value is not None and value != "":
                facts[field.name] = value
        return facts


# --- the daemon and its Spark ---------------------------------------------------------------------------------------


@attrs.frozen
class DaemonStarted(Event):
    """The properties file was read and the flows of this node are about to start."""

    version: str
    pid: int
    flows: tuple[str, ...]


@attrs.frozen
class SettingNoted(Event):
    """The properties file holds something that works, but not as its author may think."""

    level = Level.WARN

    note: str


@attrs.frozen
class DaemonDraining(Event):
    """Somebody asked the daemon to stop; epochs end now and positions are written."""

    reason: str
    within_s: float


@attrs.frozen
class DaemonStopped(Event):
    """All flows are down and Spark is stopped."""

    drain_s: float
    is_drained: bool


@attrs.frozen
class SparkStarted(Event):
    """Spark takes epochs. `warm_up_s` is its first job's share of the wait."""

    master: str
    start_s: float
    warm_up_s: float
    ui: str


@attrs.frozen
class SparkEnded(Event):
    """Spark's JVM is gone; it is started again if the daemon goes on."""

    level = Level.WARN

    reason: str


@attrs.frozen
class SparkSaid(Event):
    """A line from Spark's own log, at WARN or above, or from a Python worker's stderr."""

    level = Level.WARN

    line: str


# --- a flow ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class FlowStarted(Event):
    """A flow has its positions and starts to copy."""

    flow: Flow
    topics: int
    partitions: int
    copy_tasks: int


@attrs.frozen
class FlowSummary(Event):
    """What a flow did lately, every so often."""

    flow: Flow
    topics: int
    partitions: int
    stopped_partitions: int
    records: int
    records_per_s: float
    bytes_per_s: float
    lag: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None


@attrs.frozen
class FlowDrained(Event):
    """A flow copies no more, and the target holds all that its positions say."""

    flow: Flow
    records: int
    took_s: float
    positions_written: bool


@attrs.frozen
class FlowFailed(Event):
    """A flow is down for good and needs somebody; other flows go on."""

    level = Level.ERROR

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class TaskRestarted(Event):
    """A loop of ours fell over and starts anew after a pause. Tracebacks mean a bug of ours."""

    level = Level.ERROR

    task: str
    causes: tuple[str, ...]
    pause_s: float
    exception: str = ""


@attrs.frozen
class ClusterUnreachable(Event):
    """A cluster stopped answering; said once, the flow keeps trying."""

    level = Level.WARN

    flow: Flow
    cluster: str
    error: str
    hint: str


@attrs.frozen
class ClusterRecovered(Event):
    """A cluster answers again."""

    flow: Flow
    cluster: str
    away_s: float
    attempts: int


@attrs.frozen
class StepFailed(Event):
    """A cluster refused one step of the control plane; it is tried again on the next round."""

    level = Level.WARN

    flow: Flow
    step: str
    error: str
    hint: str


# --- topics ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class TopicCreated(Event):
    """A remote topic was created."""

    flow: Flow
    topic: str
    remote_topic: str
    partitions: int
    reason: str


@attrs.frozen
class PartitionsGrown(Event):
    """A remote topic got as many partitions as its source."""

    flow: Flow
    remote_topic: str
    before: int
    after: int
    reason: str


@attrs.frozen
class TopicGone(Event):
    """A topic is no longer mirrored: deleted at the source, or no longer chosen. Its remote topic stays as it is."""

    flow: Flow
    topic: str


@attrs.frozen
class TopicsRefreshed(Event):
    """A look at both clusters is over."""

    level = Level.DEBUG

    flow: Flow
    topics: int
    partitions: int
    actions: int


@attrs.frozen
class AssignmentChanged(Event):
    """Topic-partitions were given to copy tasks anew."""

    flow: Flow
    copy_tasks: int
    partitions: int
    moves: int
    reason: str


# --- epochs ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class EpochEnded(Event):
    """One round of a copy task, with its numbers."""

    level = Level.DEBUG

    flow: Flow
    task: int
    epoch: int
    partitions: int
    records: int
    bytes: int
    records_per_s: float
    lag: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    elapsed_s: float
    boundary_ms: float
    drain_s: float
    cpu_s: float
    rss_bytes: int
    fetches: int
    produces: int
    retries: int
    throttled_ms: int
    worker: str


@attrs.frozen
class CopyTaskLost(Event):
    """An epoch's job failed; its topic-partitions are planned again once the lost one can no longer write."""

    level = Level.ERROR

    flow: Flow
    task: int
    epoch: int
    cause: str
    retry_in_s: float


@attrs.frozen
class CopyTaskRecovered(Event):
    """A copy task that was lost has finished an epoch again."""

    flow: Flow
    task: int
    epoch: int
    lost_epochs: int


@attrs.frozen
class WaitingForSlot(Event):
    """Spark has not started a copy task's epoch: no slot is free."""

    level = Level.WARN

    flow: Flow
    task: int
    epoch: int
    waited_s: float
    hint: str = "give Spark more slots (spark.master=local[N], more cores on the cluster) or lower tasks.max"


# --- topic-partitions -----------------------------------------------------------------------------------------------


@attrs.frozen
class PartitionInterrupted(Event):
    """A topic-partition ended its epoch early: a broker was away or a leader moved."""

    level = Level.DEBUG

    flow: Flow
    source: TopicPartition
    message: str
    retry_in_s: float


@attrs.frozen
class PartitionStopped(Event):
    """A topic-partition needs somebody; it is tried again at long intervals, the others go on."""

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
    """What the target holds past the last written position is not ours to explain; records may arrive twice."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    position: int
    message: str
    hint: str = "somebody else writes to the remote topic, or it was changed by hand"


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
