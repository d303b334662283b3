"""What the demo shows: an immutable snapshot of the flow and its topics, taken from outside the mirror."""

from __future__ import annotations

import attrs


@attrs.frozen
class TopicSnapshot:
    """A topic: its records at the source, and those of them that a consumer of the target can read."""

    topic: str
    remote_topic: str
    codec: str
    partitions: int
    written: int
    mirrored: int


@attrs.frozen
class FlowSnapshot:
    """
    A flow. `records_per_s` and `lag` come from the end offsets of both clusters.

    Bytes and latency are the mirror's own figures, those of its copy tasks' last epochs.
    """

    flow: str
    state: str
    records_per_s: float
    bytes_per_s: float | None
    lag: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None


@attrs.frozen
class Said:
    """A line of the mirror's log."""

    time: str
    level: str
    event: str
    facts: str


@attrs.frozen
class Snapshot:
    """Everything at one moment. `since_first_s` counts from the first mirrored record."""

    flow: FlowSnapshot
    topics: tuple[TopicSnapshot, ...]
    said: tuple[Said, ...] = ()
    history: tuple[float, ...] = ()
    spark_ui: str = ""
    since_first_s: float | None = None
    first_after_s: float | None = None

    @property
    def written(self) -> int:
        return sum(topic.written for topic in self.topics)

    @property
    def mirrored(self) -> int:
        return sum(topic.mirrored for topic in self.topics)

    @property
    def partitions(self) -> int:
        return sum(topic.partitions for topic in self.topics)
