"""Topics as the control plane sees them: what a cluster has, what is to be created, how a topic is configured."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping

import attrs

from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition


_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether *name* is a valid topic name (org.apache.kafka.common.internals.Topic)."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


def is_other_topic(one_id: str | None, other_id: str | None) -> bool:
    """Whether two topic ids (KIP-516) belong to different topics; an unknown one, None, may be equal to any."""
    return None not in (one_id, other_id) and one_id != other_id


@attrs.frozen
class Unmatched:
    """What of a flow's selection finds nothing at the source, which has so many topics `at_source`.

    It has none of the `names`; `near` may be meant. A flow that `is_idle` mirrors nothing but heartbeats.
    """

    at_source: int
    names: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    is_idle: bool = False

    @property
    def hint(self) -> str:
        return f"correct topics: did you mean {', '.join(self.near)}?" if self.near else ""


@attrs.frozen
class TopicDescription:
    """One topic. `partitions` maps each partition to its leader, None while it has none."""

    topic_id: str | None
    partitions: Mapping[int, int | None]
    is_internal: bool = False
    #: The largest number of replicas of any partition; 0 if unknown.
    replication_factor: int = 0


@attrs.frozen
class TopicsView:
    """All topics of a cluster that are visible to us, at one moment."""

    topics: Mapping[str, TopicDescription]

    def ids_and_counts(self) -> dict[str, tuple[str | None, int]]:
        """Return the id of each topic and how many partitions it has, without Kafka's own."""
        return {
            name: (topic.topic_id, len(topic.partitions))
            for name, topic in self.topics.items()
            if not topic.is_internal
        }

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each topic has, Kafka's own left out, whatever a policy says of them."""
        return {name: len(topic.partitions) for name, topic in self.topics.items() if not topic.is_internal}


@attrs.frozen
class NewTopic:
    """A topic to create. A replication factor of -1 leaves it to the brokers' default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = attrs.field(factory=dict)


class ConfigSource(enum.IntEnum):
    """Where a config value comes from; the numbers are Kafka's."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


@attrs.frozen
class ConfigEntry:
    """One config of a topic or broker. Brokers do not return the values of sensitive ones."""

    value: str | None = attrs.field(repr=False)
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False
    #: The effective value if the topic's own value were removed.
    beneath: str | None = attrs.field(default=None, repr=False)

    @property
    def is_default(self) -> bool:
        """Whether Kafka's own default is in force."""
        return self.source is ConfigSource.DEFAULT


@attrs.frozen
class MissingTopic:
    """A mirrored topic of which the target lacks partitions, so many from number `first` on: all of them if it has no
    remote topic. `failure` is why, if it refused to create or grow that. The mirror itself does not copy it if it
    `is_refused`: its records would get into a wrong remote topic. If it `is_hidden`, the source does not show it, with
    the reason in `failure`; without that it has just come back.
    """

    topic: str
    remote_topic: str
    first: int
    partitions: int
    failure: PartitionFailure | None = None
    is_refused: bool = False
    is_hidden: bool = False

    @property
    def sources(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(self.topic, self.first + number) for number in range(self.partitions))


def have_records_waiting(topics: Iterable[MissingTopic]) -> bool:
    """Whether records wait of *topics* that the target lacks, or that the source hides, nobody knows how many."""
    return any(not topic.is_refused for topic in topics)
