"""Events of epochs."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class EpochEnded(Event):
    """An epoch of a copy task, with its figures."""

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
    paced_ms: int
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
    """An epoch did not return within `slack_s` after its duration and drain: its worker hangs, or Spark does. Its
    worker is killed, or its job is cancelled; then its topic-partitions are planned again, as after any loss.
    """

    level = Level.ERROR

    flow: Flow
    task: int
    epoch: int
    #: ``host:pid``, if known.
    worker: str
    due_s: float
    slack_s: float
    hint: str = "its worker is killed and its topic-partitions continue in another; find out what blocked it"


@attrs.frozen
class CopyTaskRecovered(Event):
    """A lost copy task has finished an epoch again."""

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


@attrs.frozen
class CopyTasksNotReached(Event):
    """Executors of a Spark cluster cannot get further plans from this process, so each epoch is a Spark job."""

    level = Level.WARN

    #: Where they were to connect.
    address: str
    #: ``host:pid`` of the one that did not; empty if this process could not listen.
    worker: str
    error: str
    hint: str = "open a port for them and set copy.plans.port to it; with -1 records only wait longer between epochs"
