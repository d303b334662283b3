"""
What the positions topic of a flow holds: positions, and beside them the index of where records went.

Several flows may share one, and Connect's connectors keep their own offsets there. A record that cannot be read is as
if it were not there: what stands of its key before or after it counts.
"""

from __future__ import annotations

import functools
from typing import Final, Protocol, TypeAlias

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord, read_json
from mm2py.model.positions import MIRROR_SOURCE, Headers, Position, decode_position
from mm2py.model.run_chunk import OWNER, KeptChunk, decode_chunk


#: What a record says: a position, that the one of a topic-partition was removed, or a part of the index.
Stored: TypeAlias = Position | TopicPartition | KeptChunk


#: The log has a key for each time its record was written.
_KEYS_KEPT: Final = 20_000


class Kept(Protocol):
    """A record of the topic."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Headers: ...


def decode_stored(record: Kept, connector: str = MIRROR_SOURCE) -> tuple[str, Stored] | UnreadableRecord | None:
    """Read a record: the source cluster and what it says of it; None for what belongs to others than *connector*."""
    chunk = decode_chunk(record.key, record.value, connector)
    return chunk or decode_position(record.key, record.value, record.headers, connector)


@attrs.frozen
class Subject:
    """What a record is about: a partition of a source cluster, as a connector keeps it."""

    connector: str
    cluster: str
    source: TopicPartition
    #: Whether it is a part of the index of where records went.
    is_chunk: bool


def owner_of(key: bytes | None) -> tuple[str, str] | None:
    """Return the connector that keeps a record, and its source cluster; None if the *key* is no MirrorMaker's."""
    subject = subject_of(key)
    return None if subject is None else (subject.connector, subject.cluster)


@functools.lru_cache(maxsize=_KEYS_KEPT)
def subject_of(key: bytes | None) -> Subject | None:
    """Return what a record with this *key* is about; None if it is no MirrorMaker's."""
    try:
        match read_json(key or b""):
            case [str(name), {"cluster": str(cluster), "partition": int(partition), "topic": str(topic), **more}]:
                is_chunk = name == OWNER and "kind" in more
                owner = str(more.get("connector", MIRROR_SOURCE)) if is_chunk else name
                return Subject(owner, cluster, TopicPartition(topic, partition), is_chunk)
            case _:
                return None
    except ValueError:
        return None


def decode_any(record: Kept) -> tuple[str, Stored] | UnreadableRecord | None:
    """Read a record, whichever connector keeps it: the source cluster and what it says of it."""
    name, _ = owner_of(record.key) or (MIRROR_SOURCE, "")
    return decode_stored(record, name)


class PositionsTopic:
    """
    What the topic says of one source *cluster*, as a *connector* keeps it, fed record by record in the log's order.

    Before a partition gets another producer, a node claims one: two nodes may do so at once, and would otherwise write
    every record, each as a producer of its own. The claim that comes first counts, for every reader: `claims` has it
    until the partition has another producer. A claim names the producer that it replaces, so a later one is void.
    """

    def __init__(self, cluster: str, connector: str = MIRROR_SOURCE) -> None:
        self.cluster, self.connector = cluster, connector
        self.positions: dict[TopicPartition, Position] = {}
        self.claims: dict[TopicPartition, Position] = {}
        self.chunks: dict[tuple[TopicPartition, int], KeptChunk] = {}
        self._removed: set[TopicPartition] = set()
        #: Of which partitions other connectors have positions, by their names.
        self.of_others: dict[str, set[TopicPartition]] = {}

    def take(self, record: Kept) -> Stored | UnreadableRecord | None:
        """Take a record, and return what it says; None where that is about something else."""
        match decode_stored(record, self.connector):
            case (self.cluster, KeptChunk() as chunk):
                self.chunks[chunk.source, chunk.number] = chunk
                return chunk
            case (self.cluster, Position() as position):
                self._removed.discard(position.source)
                self._take_position(position)
                return position
            case (self.cluster, TopicPartition() as source):
                self.positions.pop(source, None)
                self.claims.pop(source, None)
                self._removed.add(source)
                return source
            case UnreadableRecord() as unreadable:
                return unreadable
            case None:
                self._take_from_others(record)
        return None

    def _take_from_others(self, record: Kept) -> None:
        match subject_of(record.key):
            case Subject(connector, self.cluster, source, False) if connector != self.connector:
                known = self.of_others.setdefault(connector, set())
                known.discard(source) if record.value is None else known.add(source)

    def stamp(self, source: TopicPartition, written_ms: int | None, known: Position | None = None) -> None:
        """Note when the position of *source* was written. One that is *known* has its parts in memory once."""
        position = self.positions[source]
        self.positions[source] = attrs.evolve(known if known == position else position, written_ms=written_ms)

    def _take_position(self, position: Position) -> None:
        source = position.source
        if position.claimed is None:
            claim = self.claims.get(source)
            if claim is not None and claim.producer_identity != position.producer_identity:
                del self.claims[source]
            self.positions[source] = position
            return
        standing = self.positions.get(source)
        if standing is None or standing.producer_identity == position.producer_identity:
            self.claims.setdefault(source, position)
            self.positions[source] = attrs.evolve(position, claimed=None)

    @property
    def with_runs(self) -> set[TopicPartition]:
        """The source partitions of which it is known where records went."""
        return {source for (source, _), kept in self.chunks.items() if kept.chunk is not None}

    @property
    def removed(self) -> set[TopicPartition]:
        """
        The source partitions whose position was removed.

        Where there are runs, there was a position: compaction forgets in time that it was removed.
        """
        return (self._removed | self.with_runs) - self.positions.keys()
