"""
Which replica a source partition is read from (KIP-392).

The leader names a replica in the reader's rack; from then on that one is used, until it fails or some minutes have
passed, and then the leader again.
"""

from __future__ import annotations

from typing import Final

from mm2py.model.flow import TopicPartition


#: How long a replica is read without asking the leader again, as Java's consumer does by its default settings.
_LEASE_S: Final = 300.0
#: Beyond so many, those whose time is over are forgotten: topics come and go under ever new names.
_REMEMBERED: Final = 1_000


class ReadReplicas:
    """The replicas that leaders have named, for all source clusters of a worker."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, TopicPartition], tuple[int, float]] = {}
        self._most = _REMEMBERED

    def note(self, cluster: str, partition: TopicPartition, node: int, now: float) -> None:
        """Read *partition* from the broker *node* from now on."""
        self._known[cluster, partition] = (node, now + _LEASE_S)
        if len(self._known) > self._most:
            self._known = {key: (node, until) for key, (node, until) in self._known.items() if now < until}
            self._most = max(_REMEMBERED, 2 * len(self._known))

    def of(self, cluster: str, partition: TopicPartition, now: float) -> int | None:
        """Return the broker to read *partition* from; None for its leader."""
        node, until = self._known.get((cluster, partition), (None, 0.0))
        return node if now < until else None

    def forget(self, cluster: str, partition: TopicPartition) -> bool:
        """Read *partition* from its leader again; False if it already is."""
        return self._known.pop((cluster, partition), None) is not None
