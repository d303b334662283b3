"""Copy tasks and their epochs."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class EpochEnded(Event):
    """
    An epoch of a copy task ended. The fields are its figures.

    What to do: a high `throttled_ms` means that a quota of either cluster slows the task down; `paced_ms` that
    `catch.up.latency.ms` does; `cpu_s` close to `elapsed_s` that it needs more than one core. See
    [sizing](sizing.md#copy-tasks).
    """

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
    """
    An epoch returned no outcome: its worker was killed, or its job failed. Its partitions are planned again once the
    lost epoch can no longer write.

    What to do: nothing, if it stays at one. Otherwise see `cause` and Spark's own log.
    """

    level = Level.ERROR

    flow: Flow
    task: int
    epoch: int
    cause: str
    retry_in_s: float


@attrs.frozen
class CopyTaskLate(Event):
    """
    An epoch did not return in time: its worker hangs, or Spark does. The worker is killed or its job is cancelled, and
    its partitions are planned again. The flow is not ready until an epoch returns.

    In time is `slack_s` after its duration (`copy.epoch.ms`, at least five seconds) and its drain (`copy.drain.ms`). A
    micro-batch of a transform has five minutes more, in exactly-once mode as long as its transaction may last, and the
    next ones are smaller. Preparing a transform, which calls its function, may take five minutes.

    What to do: nothing, if it stays at one. Otherwise find out what blocked `worker`: memory, a debugger, a SIGSTOP.
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
    """A copy task that was lost has finished an epoch again."""

    flow: Flow
    task: int
    epoch: int
    lost_epochs: int


@attrs.frozen
class WaitingForSlot(Event):
    """
    Spark has not started an epoch for some seconds: no slot is free.

    What to do: give Spark more slots (`spark.master = local[N]`, more cores on the cluster), or lower `tasks.max`.
    """

    level = Level.WARN

    flow: Flow
    task: int
    epoch: int
    waited_s: float
    hint: str = "give Spark more slots (spark.master=local[N], more cores on the cluster) or lower tasks.max"


@attrs.frozen
class CopyTasksNotReached(Event):
    """
    Executors of a Spark cluster do not reach this process. Each epoch is a Spark job of its own, and runs its full
    time.

    They were to connect to `address`. If `worker` is absent, this process could not listen there.

    What to do: open a port and set `copy.plans.port` to it. -1 does without, and logs nothing.
    """

    level = Level.WARN

    #: Where they were to connect.
    address: str
    #: ``host:pid`` of the one that did not; empty if this process could not listen.
    worker: str
    error: str
    hint: str = "open a port for them and set copy.plans.port to it; with -1 records only wait longer between epochs"
