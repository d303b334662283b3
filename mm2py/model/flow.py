"""
The nouns of replication: a flow between two clusters, and a topic-partition.

The connectors of a pair of clusters are one flow, with one source connector. A worker of Kafka Connect may have more of
these for a pair: each further one is a flow of its own, which has the connector's name.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

import attrs


#: A flow as text, with the name of a further source connector.
_TEXT: Final = re.compile(r"(.+?)->(.+?)(?: \((.+)\))?", re.DOTALL)
#: What a further source connector's name follows, in a URL after the target.
_IN_URL: Final = ";connector="


@attrs.frozen(order=True)
class Flow:
    """One direction between two clusters, written ``A->B`` in settings and ``from:A/to:B`` in URLs. A further source
    connector of the pair is written ``A->B (NAME)`` and ``from:A/to:B;connector=NAME``.
    """

    source: str
    target: str
    #: The name of a further source connector of the pair.
    connector: str = ""

    def __str__(self) -> str:
        return f"{self.source}->{self.target}" + (f" ({self.connector})" if self.connector else "")

    @classmethod
    def parse(cls, text: str) -> Flow | None:
        """Return the flow that is written so; None if *text* is none."""
        if (found := _TEXT.fullmatch(text.strip())) is None:
            return None
        source, target, connector = found.groups(default="")
        return cls(source.strip(), target.strip(), connector)  # a connector's name may begin with a blank

    @classmethod
    def of_url(cls, source: str, target: str) -> Flow:
        """Return the flow of two decoded parts of a URL, which follow ``from:`` and ``to:``."""
        target, _, connector = target.partition(_IN_URL)
        return cls(source, target, connector)

    @property
    def pair(self) -> Flow:
        """The flow of the pair's first source connector."""
        return Flow(self.source, self.target)

    @property
    def reverse(self) -> Flow:
        """The pair in the other direction."""
        return Flow(self.target, self.source)

    @property
    def aliases(self) -> tuple[str, str]:
        """Return the aliases of its two clusters, the source's first."""
        return self.source, self.target

    def url_path(self, *rest: str) -> str:
        """Return the flow's address in REST, or that of something in it: KIP-382's ``/from:A/to:B/…``, encoded."""
        source, target, connector, *parts = (quote(name, safe="") for name in (*attrs.astuple(self), *rest))
        named = f"{_IN_URL}{connector}" if connector else ""
        return "/".join(["", f"from:{source}", f"to:{target}{named}", *parts])


# The key of nearly every table, and sorted by the ten thousands: an attrs class takes two to three times as long.
class TopicPartition(NamedTuple):
    """One partition of a topic; prints as Kafka prints it, ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
