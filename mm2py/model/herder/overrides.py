"""Overrides of a flow's file by operators: pauses, rate limits, settings changed while it runs. They are stored on the
target cluster, so that they survive the daemon, and stay in force until reverted.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from mm2py.model.flow import TopicPartition


class Wanted(enum.Enum):
    """The target state of a task group. The first three are Connect's (KIP-875)."""

    RUNNING = "running"
    #: It is idle but keeps its connections.
    PAUSED = "paused"
    #: It has released everything, so its offsets may be altered.
    STOPPED = "stopped"
    #: Stopped, and no longer listed, until its config is put again.
    DELETED = "deleted"


@attrs.frozen
class RateLimit:
    """A rate limit per second; None is no limit. Bytes are those of record batches as stored at the source."""

    bytes_per_s: float | None = None
    records_per_s: float | None = None

    @property
    def is_none(self) -> bool:
        return self.bytes_per_s is None and self.records_per_s is None


NO_LIMIT = RateLimit()


@attrs.frozen
class Pause:
    """Who paused or stopped something, and the wall time of that."""

    by: str
    at_ms: int


@attrs.frozen
class Overrides:
    """All overrides of one flow. Connectors have Java's names without the package, topics their names at the source.
    `groups` has those that are not RUNNING. `config` has, for each connector, the settings that override the file's, by
    their keys without a flow's prefix. `pauses` has what is known of when and by whom each of `held` was paused or
    stopped. `put` has each connector's config as it was put, secrets masked.
    """

    groups: Mapping[str, Wanted] = attrs.field(factory=dict)
    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    limit: RateLimit = NO_LIMIT
    topic_limits: Mapping[str, RateLimit] = attrs.field(factory=dict)
    config: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    put: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)
    pauses: Mapping[str, Pause] = attrs.field(factory=dict, eq=False)

    @property
    def held(self) -> Mapping[str, Wanted]:
        """What is paused or stopped: connectors, ``topic orders``, and partitions as ``orders-1``."""
        topics = {f"topic {topic}": Wanted.PAUSED for topic in self.topics}
        return {**self.groups, **topics, **{str(one): Wanted.PAUSED for one in self.partitions}}

    def dated(self, before: Overrides, pause: Pause) -> Overrides:
        """Return the same overrides, with the *pause* of all that was not held in the same way *before*."""
        was, known = before.held, before.pauses
        pauses = {it: known.get(it, pause) if was.get(it) is how else pause for it, how in self.held.items()}
        return attrs.evolve(self, pauses=pauses)

    def wanted(self, connector: str) -> Wanted:
        """Return the target state of *connector*'s task group."""
        return self.groups.get(connector, Wanted.RUNNING)

    @property
    def has_pauses(self) -> bool:
        """Whether any topic or partition is paused."""
        return bool(self.topics or self.partitions)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether *partition* is paused, by itself or with its topic."""
        return partition.topic in self.topics or partition in self.partitions


NO_OVERRIDES = Overrides()
