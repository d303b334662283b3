"""What is to be measured: the arguments of ``python -m bench.scale``, and what follows from them."""

from __future__ import annotations

import enum
import math

import attrs

from bench.candidates import Candidate
from bench.cluster import Place


PARTITIONS_EACH = 50
#: Partitions at the target that are not mirrored.
OTHERS = 10
#: Of twenty topics, one is busy.
BUSY_SHARE = 0.05
#: Busy topics between simulated brokers, unless they are named: 500 partitions.
MOST_BUSY_SIMULATED = 10


class Part(enum.Enum):
    """One of the parts, by the name on the command line."""

    IDLE = "idle"
    CREATE = "create"
    LEADERS = "leaders"
    FLAPPING = "flapping"
    SIMULATED = "simulated"
    CATCH_UP = "catch-up"


@attrs.frozen
class Order:
    """What is to be measured."""

    part: Part
    partitions: int
    busy_topics: int | None
    brokers: int
    tasks_max: int
    rate: int
    idle_s: float
    settle_s: float
    #: How often topics are refreshed: so often that several refreshes fall into what is measured.
    refresh_s: int
    busy_s: float
    epoch_ms: int
    limit_s: float
    new_topics: int
    new_partitions: int
    flap_every_s: float
    backlog_bytes: int
    catch_up_ms: int
    is_profiled: bool

    @property
    def topics(self) -> dict[str, int]:
        """Return the partitions of each topic, the busy topics last."""
        count = math.ceil(self.partitions / PARTITIONS_EACH)
        busy = self.busy_topics
        if busy is None:
            busy = max(1, round(count * BUSY_SHARE))
            if self.part is Part.SIMULATED:
                busy = min(busy, MOST_BUSY_SIMULATED)
        names = [f"{'idle' if number < count - busy else 'busy'}-{number:04}" for number in range(count)]
        sizes = [min(PARTITIONS_EACH, self.partitions - number * PARTITIONS_EACH) for number in range(count)]
        return dict(zip(names, sizes, strict=True))

    @property
    def busy(self) -> dict[str, int]:
        """Return the partitions of each busy topic."""
        return {topic: partitions for topic, partitions in self.topics.items() if topic.startswith("busy-")}

    @property
    def behind(self) -> dict[str, int]:
        """Return the partitions of each topic that a backlog is written to."""
        return {topic: partitions for topic, partitions in self.topics.items() if topic not in self.busy}

    @property
    def others(self) -> dict[str, int]:
        """Return the partitions of each topic of the target's own."""
        return {"others": OTHERS}

    @property
    def created(self) -> dict[str, int]:
        """Return the partitions of each topic that is created while the flow runs."""
        return {f"new-{number:04}": self.new_partitions for number in range(self.new_topics)}

    @property
    def nodes(self) -> int:
        """Return the brokers of each cluster; a cluster that is to outlive one of two needs a third that votes."""
        return 3 if self.part is Part.LEADERS else self.brokers

    @property
    def replicas(self) -> int:
        return min(2, self.brokers)

    def settings(self, candidate: Candidate, source: str, target: str, port: int) -> dict[str, str]:
        """Return the flow's configuration; *port* is for mm2py's REST server and its metrics."""
        copies = str(self.replicas)
        common = {
            "clusters": "A, B",
            "A.bootstrap.servers": source,
            "B.bootstrap.servers": target,
            "A->B.enabled": "true",
            "A->B.topics": "idle-.*, busy-.*, new-.*",
            "tasks.max": str(self.tasks_max),
            "refresh.topics.interval.seconds": str(self.refresh_s),
            "replication.factor": copies,
            "config.storage.replication.factor": copies,
            "offset.storage.replication.factor": copies,
            "offset-syncs.topic.replication.factor": copies,
            "checkpoints.topic.replication.factor": copies,
            "status.storage.replication.factor": copies,
            # Else Java runs a second worker, for the direction that is not enabled.
            "emit.heartbeats.enabled": "false",
        }
        if not candidate.is_ours:
            return common
        return common | {
            "copy.epoch.ms": str(self.epoch_ms),
            "listeners": f"http://127.0.0.1:{port}",
            "log.level": "debug",
            "log.format": "json",
            **({"catch.up.latency.ms": str(self.catch_up_ms)} if self.part is Part.CATCH_UP else {}),
        }


def places(topics: dict[str, int]) -> list[Place]:
    """Return every partition of *topics*, the topics taking turns, so that neighbours lie in different ones."""
    most = max(topics.values(), default=0)
    return [(topic, number) for number in range(most) for topic, partitions in topics.items() if number < partitions]


def remote(place: Place) -> Place:
    """Return where *place* is mirrored to."""
    topic, number = place
    return f"A.{topic}", number
