"""
What operators asked a flow to do beside its file: pauses, rate limits, settings changed while it runs.

They are kept on the target cluster, so that they survive the daemon, and hold until somebody takes them back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from mm2py.model.flow import TopicPartition


class Wanted(enum.Enum):
    """What a task group is to do. The first three are Connect's target states (KIP-875)."""

    RUNNING = "running"
    #: It keeps what it has opened and does nothing.
    PAUSED = "paused"
    #: It holds nothing, so its offsets may be altered.
    STOPPED = "stopped"
    #: Stopped, and not listed any more, until its config is put again.
    DELETED = "deleted"


@attrs.frozen
class RateLimit:
    """What may be copied in a second; None is no limit. Bytes are those of record batches as the source has them."""

    bytes_per_s: float | None = None
    records_per_s: float | None = None

    @property
    def is_none(self) -> bool:
        return self.bytes_per_s is None and self.records_per_s is None


NO_LIMIT = RateLimit()


@attrs.frozen
class Overrides:
    """
    All orders of one flow. Connectors go by Java's names without the package, topics by their names at the source.

    `groups` holds what is not RUNNING. `config` holds, for each connector, the settings that are to count instead of
    the file's, by their keys without a flow's prefix.
    """

    groups: Mapping[str, Wanted] = attrs.field(factory=dict)
    topics: frozenset[str] = frozenset()
    partitions: frozenset[TopicPartition] = frozenset()
    limit: RateLimit = NO_LIMIT
    topic_limits: Mapping[str, RateLimit] = attrs.field(factory=dict)
    config: Mapping[str, Mapping[str, str]] = attrs.field(factory=dict)

    def wanted(self, connector: str) -> Wanted:
        """Return what *connector*'s task group is to do."""
        return self.groups.get(connector, Wanted.RUNNING)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether nothing of *partition* is to be copied, by itself or by its topic."""
        return partition.topic in self.topics or partition in self.partitions


NO_OVERRIDES = Overrides()
