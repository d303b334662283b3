"""The nouns of replication: a flow between two clusters, and a topic-partition."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

import attrs


@attrs.frozen(order=True)
class Flow:
    """One direction between two clusters, written ``A->B`` in settings and ``from:A/to:B`` in URLs."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def aliases(self) -> tuple[str, str]:
        """Return the aliases of its two clusters, the source's first."""
        return self.source, self.target

    def url_path(self, *rest: str) -> str:
        """Return the flow's address in REST, or that of something in it: KIP-382's ``/from:A/to:B/…``, encoded."""
        source, target, *parts = (quote(name, safe="") for name in (self.source, self.target, *rest))
        return "/".join(["", f"from:{source}", f"to:{target}", *parts])


# The key of nearly every table, and sorted by the ten thousands: an attrs class takes two to three times as long.
class TopicPartition(NamedTuple):
    """One partition of a topic; prints as Kafka prints it, ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
