"""
The byte forms of positions in ``mm2-offsets.<source>.internal``, as Java MirrorMaker 2 reads and writes them.

Java keeps the offset of the *last replicated* record; our `Position` holds the next one to read, which is one more. Key
and value are JSON in Jackson's spelling, and the key byte for byte Java's, because the partition in the topic follows
from its hash. What Java does not store goes into record headers, which Java ignores: where the last record went, its
producer, the ids of the source and remote topics, and the source's leader epoch. A record that Java wrote over ours has
no headers, so a downstream offset always belongs to its position.

Other programs may write to the topic. An invalid record is `UnreadableRecord`, and ignored: earlier or later records of
that partition are used. An invalid header is ignored, as if Java had written the record.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Self

import attrs

from mm2py.model.epoch import LeaderMark, ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import (
    INT32_MOST,
    INT64_MOST,
    LONGEST_TOPIC,
    OFFSET_MOST,
    UnreadableRecord,
    read_json,
    topic_name,
    whole,
    words,
)
from mm2py.model.topic import is_other_topic


#: Where in the target's log the last replicated record is, in decimal.
DOWNSTREAM_HEADER = "mm2py.downstream"
#: Producer id, producer epoch and the sequence of the record after the last replicated one, in decimal with colons.
PRODUCER_HEADER = "mm2py.producer"
#: The producer that a node claims for the partition, likewise; it counts once it is the `PRODUCER_HEADER`.
CLAIM_HEADER = "mm2py.claimed-producer"
#: The source topic's id, in Kafka's format.
TOPIC_ID_HEADER = "mm2py.topic-id"
#: The remote topic's id, likewise; its name, if brokers from before 2.8 give it no id.
REMOTE_TOPIC_ID_HEADER = "mm2py.remote-topic-id"
REMOTE_TOPIC_HEADER = "mm2py.remote-topic"
#: The source's leader epoch at the last replicated record, and an offset from which on it applies, in decimal.
LEADER_HEADER = "mm2py.leader-epoch"
#: The upstream offset from which to search for the target's last record before using the position, in decimal.
SEARCH_HEADER = "mm2py.search-from"

#: The connector whose positions they are, unless a worker's connector has a name of its own.
MIRROR_SOURCE = "MirrorSourceConnector"
#: The log has a key for each time its position was written. Parsing it takes half of the time of reading a record.
_KEYS_KEPT = 20_000
#: A value as Java and we write it, of an offset that any is less than.
_PLAIN_VALUE = re.compile(rb'\{"offset":(-1|0|[1-9]\d{0,17})\}')
_NUMBER = re.compile(rb"-?\d{1,19}")
_MARK = re.compile(rb"(\d{1,19}):(\d{1,5}):(\d{1,10})")
_LEADER = re.compile(rb"(\d{1,10}):(\d{1,19})")
_TOPIC = re.compile(rb"[\w.-]{1,%d}" % LONGEST_TOPIC, re.ASCII)
_TOPIC_ID = re.compile(rb"[\w-]{22}", re.ASCII)
_INT16_MOST = 2**15 - 1
_ESCAPED = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

Headers = Sequence[tuple[str, bytes | None]]


@attrs.frozen
class Position:
    """
    How far a topic-partition has been mirrored.

    `next_upstream` is the upstream offset to read next, `downstream` the offset of the last replicated record at the
    target, None if unknown. `topic_id` is the source topic's, if known, `producer` the producer of the remote partition
    with the next record's sequence. `remote_topic_id` is the remote topic's, or `remote_topic` its name if it has no
    id, and `leader` the source's leader epoch of the last replicated record, if known. With `search_from` the position
    is used only if the target's last record is not in the source from there on. `claimed` is the producer that a node
    is about to use in place of `producer`, unless another node's claim came first: see `PositionsTopic`. `written_ms`
    is when a position that was read was written, by its record's timestamp.
    """

    source: TopicPartition
    next_upstream: int
    downstream: int | None = None
    topic_id: str | None = None
    producer: ProducerMark | None = None
    remote_topic_id: str | None = None
    leader: LeaderMark | None = None
    search_from: int | None = None
    claimed: ProducerMark | None = None
    remote_topic: str | None = None
    written_ms: int | None = attrs.field(default=None, eq=False)

    def at(self, remote_topic: str) -> Self:
        """Name the remote topic, if that has no id."""
        return self if self.remote_topic_id is not None else attrs.evolve(self, remote_topic=remote_topic)

    def is_of_others(self, topic_id: str | None, remote_topic_id: str | None) -> bool:
        """Whether it is of another source or remote topic than those with these ids; an unknown one may be any."""
        pairs = (self.topic_id, topic_id), (self.remote_topic_id, remote_topic_id)
        return any(is_other_topic(own, other) for own, other in pairs)

    @property
    def producer_identity(self) -> tuple[int, int] | None:
        return self.producer.identity if self.producer is not None else None


def position_key(cluster: str, source: TopicPartition, connector: str = MIRROR_SOURCE) -> bytes:
    """Return the record key of *source* of the source *cluster*; the order of the members is Java's."""
    members = f'"cluster":{quoted(cluster)},"partition":{source.partition},"topic":{quoted(source.topic)}'
    return f"[{quoted(connector)},{{{members}}}]".encode()


def encode_position(
    cluster: str, position: Position, connector: str = MIRROR_SOURCE
) -> tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]:
    """Return key, value and headers of the record for *position* of the source *cluster*, as *connector* keeps it.
    Nothing replicated yet becomes offset -1, which Java treats as a partition without an offset.
    """
    headers = []
    if position.downstream is not None:
        headers.append((DOWNSTREAM_HEADER, b"%d" % position.downstream))
    if position.topic_id is not None:
        headers.append((TOPIC_ID_HEADER, position.topic_id.encode()))
    for name, mark in ((PRODUCER_HEADER, position.producer), (CLAIM_HEADER, position.claimed)):
        if mark is not None:
            headers.append((name, b"%d:%d:%d" % (mark.producer_id, mark.producer_epoch, mark.sequence)))
    if position.remote_topic_id is not None:
        headers.append((REMOTE_TOPIC_ID_HEADER, position.remote_topic_id.encode()))
    if position.remote_topic is not None:
        headers.append((REMOTE_TOPIC_HEADER, position.remote_topic.encode()))
    if position.leader is not None:
        headers.append((LEADER_HEADER, b"%d:%d" % (position.leader.epoch, position.leader.since)))
    if position.search_from is not None:
        headers.append((SEARCH_HEADER, b"%d" % position.search_from))
    value = b'{"offset":%d}' % (position.next_upstream - 1)
    return position_key(cluster, position.source, connector), value, tuple(headers)


def decode_position(
    key: bytes | None, value: bytes | None, headers: Headers = (), connector: str = MIRROR_SOURCE
) -> tuple[str, Position | TopicPartition] | UnreadableRecord | None:
    """Parse a record: the source cluster and the position, or just the topic-partition if its position was removed.
    None if it belongs to another connector than *connector*. Spaces and the order of the members do not matter. A
    negative offset means that nothing was replicated.
    """
    try:
        owner = _owner(key, connector)
        if owner is None:
            return None
        cluster, source = owner
        offset = _offset(value)
        if offset is None:
            return cluster, source
    except ValueError as error:
        return UnreadableRecord(str(error))
    return cluster, Position(
        source,
        max(0, offset + 1),
        _number(headers, DOWNSTREAM_HEADER),
        topic_id_in(headers, TOPIC_ID_HEADER),
        _producer(headers, PRODUCER_HEADER),
        topic_id_in(headers, REMOTE_TOPIC_ID_HEADER),
        _leader(headers),
        _number(headers, SEARCH_HEADER),
        _producer(headers, CLAIM_HEADER),
        _topic(headers),
    )


def _offset(value: bytes | None) -> int | None:
    if value is not None and (plain := _PLAIN_VALUE.fullmatch(value)) is not None:
        return int(plain[1])
    match None if value is None else read_json(value):
        case None:
            return None
        case {"offset": offset}:
            return whole(offset, least=-INT64_MOST, most=OFFSET_MOST - 1)
        case _:
            raise ValueError("it has no offset")


@functools.lru_cache(maxsize=_KEYS_KEPT)
def _owner(key: bytes | None, ours: str) -> tuple[str, TopicPartition] | None:
    """Return the partition of a position, None for another connector's. Raise ValueError if the key is invalid."""
    match read_json(key or b""):
        case [str(connector), dict(place)]:
            if connector != ours:
                return None
            if missing := [name for name in ("cluster", "partition", "topic") if name not in place]:
                raise ValueError(f"its key names no {missing[0]}")
            partition = whole(place["partition"], most=INT32_MOST)
            return words(place["cluster"]), TopicPartition(topic_name(place["topic"]), partition)
        case _:
            raise ValueError("its key names no connector and its partition")


def _number(headers: Headers, name: str) -> int | None:
    text = _last(headers, name)
    number = int(text) if text is not None and _NUMBER.fullmatch(text) else None
    return number if number is not None and -1 <= number < OFFSET_MOST else None


def _producer(headers: Headers, name: str) -> ProducerMark | None:
    found = _MARK.fullmatch(_last(headers, name) or b"")
    if found is None:
        return None
    producer_id, producer_epoch, sequence = map(int, found.groups())
    if producer_id > INT64_MOST or producer_epoch > _INT16_MOST or sequence > INT32_MOST:
        return None
    return ProducerMark(producer_id, producer_epoch, sequence)


def _leader(headers: Headers) -> LeaderMark | None:
    found = _LEADER.fullmatch(_last(headers, LEADER_HEADER) or b"")
    if found is None:
        return None
    epoch, since = map(int, found.groups())
    return LeaderMark(epoch, since) if epoch <= INT32_MOST and since <= OFFSET_MOST else None


def topic_id_in(headers: Headers, name: str) -> str | None:
    """Return the topic id in the last header of that *name*; None if there is none, or it is invalid."""
    text = _last(headers, name)
    return text.decode() if text and _TOPIC_ID.fullmatch(text) else None


def _topic(headers: Headers) -> str | None:
    text = _last(headers, REMOTE_TOPIC_HEADER)
    return text.decode("ascii") if text and _TOPIC.fullmatch(text) else None


def _last(headers: Headers, name: str) -> bytes | None:
    return next((value for key, value in reversed(headers) if key == name), None)


def quoted(text: str) -> str:
    """Escape *text* like Jackson: hex in upper case, characters beyond the BMP as two escapes, others unchanged."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    units = character.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
