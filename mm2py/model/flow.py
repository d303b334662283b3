"""The nouns of replication: a flow between two clusters, and a topic-partition."""

from __future__ import annotations

import attrs


@attrs.frozen(order=True)
class Flow:
    """One direction between two clusters, written ``A->B`` in settings and ``from:A/to:B`` in URLs."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@attrs.frozen(order=True)
class TopicPartition:
    """One partition of a topic; prints as Kafka prints it, ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
