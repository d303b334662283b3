"""
The byte forms of positions in ``mm2-offsets.<source>.internal``, as Java MirrorMaker 2 reads and writes them.

Java keeps the offset of the *last replicated* record; our `Position` holds the next one to read, which is one more.
Key and value are JSON in Jackson's spelling, and the key byte for byte Java's, because the partition in the topic
follows from its hash. What Java does not keep goes into record headers, which Java ignores: where the last record
went, by which producer, which topics of their names it came from and went to, and under which leader it was written. A
record that Java wrote over ours has no headers, so that a downstream offset is never read that does not belong to its
position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import attrs

from mm2py.model.epoch import LeaderMark, ProducerMark
from mm2py.model.flow import TopicPartition


#: Where in the target's log the last replicated record is, in decimal.
DOWNSTREAM_HEADER = "mm2py.downstream"
#: Producer id, producer epoch and the sequence of the record after the last replicated one, in decimal with colons.
PRODUCER_HEADER = "mm2py.producer"
#: The source topic's id, in Kafka's own print.
TOPIC_ID_HEADER = "mm2py.topic-id"
#: The remote topic's id, likewise.
REMOTE_TOPIC_ID_HEADER = "mm2py.remote-topic-id"
#: The source leader's epoch at the last replicated record, and an offset from which on it holds, in decimal.
LEADER_HEADER = "mm2py.leader-epoch"

_CONNECTOR = "MirrorSourceConnector"
_NUMBER = re.compile(rb"-?\d{1,19}")
_MARK = re.compile(rb"(\d{1,19}):(\d{1,5}):(\d{1,10})")
_LEADER = re.compile(rb"(\d{1,10}):(\d{1,19})")
_ESCAPED = re.compile('["\\\\\x00-\x1f\U00010000-\U0010ffff]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

Headers = Sequence[tuple[str, bytes | None]]


@attrs.frozen
class Position:
    """
    How far a topic-partition has been mirrored.

    `next_upstream` is the upstream offset to read next, `downstream` the offset of the last replicated record at the
    target, None where nobody wrote it down. `topic_id` is the source topic's, where known, `producer` who writes the
    remote partition and the sequence that its next record must carry. `remote_topic_id` is the remote topic's, and
    `leader` tells under which leader the source wrote the last replicated record, each where known.
    """

    source: TopicPartition
    next_upstream: int
    downstream: int | None = None
    topic_id: str | None = None
    producer: ProducerMark | None = None
    remote_topic_id: str | None = None
    leader: LeaderMark | None = None


def position_key(cluster: str, source: TopicPartition) -> bytes:
    """Give the record key of *source* of the source *cluster*; the order of the members is Java's."""
    members = f'"cluster":{quoted(cluster)},"partition":{source.partition},"topic":{quoted(source.topic)}'
    return f'["{_CONNECTOR}",{{{members}}}]'.encode()


def encode_position(cluster: str, position: Position) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """
    Give key, value and headers of the record that stores *position* of the source *cluster*.

    Nothing replicated yet becomes offset -1, which Java takes for a partition without an offset.
    """
    headers = []
    if position.downstream is not None:
        headers.append((DOWNSTREAM_HEADER, b"%d" % position.downstream))
    if position.topic_id is not None:
        headers.append((TOPIC_ID_HEADER, position.topic_id.encode()))
    if (mark := position.producer) is not None:
        numbers = (mark.producer_id, mark.producer_epoch, mark.sequence)
        headers.append((PRODUCER_HEADER, b"%d:%d:%d" % numbers))
    if position.remote_topic_id is not None:
        headers.append((REMOTE_TOPIC_ID_HEADER, position.remote_topic_id.encode()))
    if position.leader is not None:
        headers.append((LEADER_HEADER, b"%d:%d" % (position.leader.epoch, position.leader.since)))
    value = b'{"offset":%d}' % (position.next_upstream - 1)
    return position_key(cluster, position.source), value, headers


def decode_position(
    key: bytes | None, value: bytes | None, headers: Headers = ()
) -> tuple[str, Position | TopicPartition] | None:
    """
    Read a record: the source cluster and the position, or just the topic-partition where its position was removed.

    None is what belongs to other connectors or cannot be read. Content counts, not spelling: spaces and the order of
    the members do not matter.
    """
    owner = _owner(key)
    if owner is None:
        return None
    cluster, source = owner
    if value is None or value == b"null":
        return cluster, source
    match _parsed(value):
        case {"offset": int(offset)} if not isinstance(offset, bool):
            next_upstream = max(0, offset + 1)
            return cluster, Position(
                source,
                next_upstream,
                _downstream(headers),
                _topic_id(headers, TOPIC_ID_HEADER),
                _producer(headers),
                _topic_id(headers, REMOTE_TOPIC_ID_HEADER),
                _leader(headers),
            )
        case _:
            return None


def _owner(key: bytes | None) -> tuple[str, TopicPartition] | None:
    match _parsed(key):
        case [str(connector), {"cluster": str(cluster), "partition": int(partition), "topic": str(topic)}] if (
            connector == _CONNECTOR and not isinstance(partition, bool)
        ):
            return cluster, TopicPartition(topic, partition)
        case _:
            return None


def _parsed(text: bytes | None) -> object:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:  # not JSON, or not UTF-8
        return None


def _downstream(headers: Headers) -> int | None:
    text = _last(headers, DOWNSTREAM_HEADER)
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None


def _producer(headers: Headers) -> ProducerMark | None:
    found = _MARK.fullmatch(_last(headers, PRODUCER_HEADER) or b"")
    if found is None:
        return None
    producer_id, producer_epoch, sequence = map(int, found.groups())
    return ProducerMark(producer_id, producer_epoch, sequence)


def _leader(headers: Headers) -> LeaderMark | None:
    found = _LEADER.fullmatch(_last(headers, LEADER_HEADER) or b"")
    return None if found is None else LeaderMark(*map(int, found.groups()))


def _topic_id(headers: Headers, name: str) -> str | None:
    text = _last(headers, name)
    return text.decode(errors="replace") if text else None


def _last(headers: Headers, name: str) -> bytes | None:
    return next((value for key, value in reversed(headers) if key == name), None)


def quoted(text: str) -> str:
    """Spell *text* as Jackson does: hex in upper case, what lies beyond the BMP as two escapes, the rest as it is."""
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[character]
    units = character.encode("utf-16-be").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
