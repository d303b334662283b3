"""What happens to epochs."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


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
class CopyTaskLate(Event):
    """
    An epoch is not back `slack_s` after its time and its drain were over: its worker hangs, or Spark does.

    Its worker is killed, or its job is cancelled; then its topic-partitions are planned again, as after any loss.
    """

    level = Level.ERROR

    flow: Flow
    task: int
    epoch: int
    #: ``host:pid``, where it is known.
    worker: str
    due_s: float
    slack_s: float
    hint: str = "its worker is ended by force and its topic-partitions go on in another; look for what held it up"


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
