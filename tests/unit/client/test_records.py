"""Which topic holds what, and records that are not what the topic is for."""

from __future__ import annotations

import pytest

from mm2py.client.records import (
    Malformed,
    Other,
    RecordKind,
    Removed,
    SourcePosition,
    decoded,
    kind_of,
    latest,
    mirror_topics,
    topic_of,
)
from mm2py.model.checkpoint import Checkpoint, encode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position
from mm2py.policy.replication import DefaultReplicationPolicy
from mm2py.wire.topic_log import LogRecord


DEFAULT = DefaultReplicationPolicy()
UNDERLINED = DefaultReplicationPolicy("_")


@pytest.mark.parametrize(
    "policy", [DEFAULT, UNDERLINED, DefaultReplicationPolicy("_", internal_separator_enabled=False)]
)
@pytest.mark.parametrize("kind", list(RecordKind), ids=lambda kind: kind.value)
def test_the_name_that_is_made_is_recognised(kind: RecordKind, policy: DefaultReplicationPolicy) -> None:
    """A topic's kind follows from the name that the policy gives it."""
    assert kind_of(topic_of(kind, "A", policy), policy) is kind


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("heartbeats", RecordKind.HEARTBEAT),
        ("B.A.heartbeats", RecordKind.HEARTBEAT),
        ("us.west.checkpoints.internal", RecordKind.CHECKPOINT),
        ("mm2-offset-syncs.us.west.internal", RecordKind.OFFSET_SYNC),
        ("mm2-offsets.us.west.internal", RecordKind.POSITION),
        ("mm2-offset-syncs.internal", None),
        ("mm2-offset-syncs..internal", None),
        ("mm2-configs.A.internal", None),
        ("A.orders", None),
    ],
)
def test_kinds_by_name(topic: str, kind: RecordKind | None) -> None:
    """A mirror's own topics are told from others; aliases may hold dots."""
    assert kind_of(topic, DEFAULT) is kind


def test_positions_keep_the_dot() -> None:
    """Java names its Connect topics with dots whatever the separator is."""
    topics = ["mm2-offsets.A.internal", "mm2-offset-syncs_A_internal", "mm2-offset-syncs.A.internal", "A_orders"]

    assert mirror_topics(topics, UNDERLINED) == {
        "mm2-offset-syncs_A_internal": RecordKind.OFFSET_SYNC,
        "mm2-offsets.A.internal": RecordKind.POSITION,
    }


def _content(kind: RecordKind, key: bytes | None, value: bytes | None) -> object:
    return decoded(kind, "topic", LogRecord(key, value, partition=2, offset=7, timestamp_ms=5)).content


def test_a_position_says_what_it_is_of() -> None:
    """A position comes with its source cluster, and prints as Java would if it had a formatter for it."""
    position = Position(TopicPartition("orders", 3), 101, downstream=57)
    key, value, headers = encode_position("A", position)
    record = LogRecord(key, value, tuple(headers), partition=2, offset=7, timestamp_ms=5)

    content = decoded(RecordKind.POSITION, "topic", record).content

    assert content == SourcePosition("A", position)
    assert str(content) == (
        "Position{sourceClusterAlias=A, topicPartition=orders-3, upstreamOffset=100, downstreamOffset=57}"
    )


def test_offsets_of_java_s_other_connectors() -> None:
    """What Java's other two connectors store beside the positions is shown as it is."""
    key = b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]'

    assert _content(RecordKind.POSITION, key, b'{"offset":0}') == Other(key.decode(), '{"offset":0}')


@pytest.mark.parametrize("kind", list(RecordKind), ids=lambda kind: kind.value)
@pytest.mark.parametrize(("key", "value"), [(b"\xff", b"\xfe"), (None, b"{}"), (None, None), (b"", b"")])
def test_records_that_are_something_else(kind: RecordKind, key: bytes | None, value: bytes | None) -> None:
    """Whatever lies in a topic, reading it gives a value that says why it cannot be understood."""
    content = _content(kind, key, value)

    assert isinstance(content, Malformed)
    assert content.reason


def test_the_latest_of_each_key() -> None:
    """The last record of a key is kept, removed ones are left out, and nothing is lost that has no key."""
    orders, bills = TopicPartition("A.orders", 0), TopicPartition("A.bills", 0)
    first, second = encode_checkpoint(Checkpoint("g", orders, 1, 1)), encode_checkpoint(Checkpoint("g", orders, 2, 2))
    gone = encode_checkpoint(Checkpoint("g", bills, 1, 1))
    pairs = [first, gone, (None, b"x"), (gone[0], None), (None, b"y"), second]
    records = [
        decoded(RecordKind.CHECKPOINT, "topic", LogRecord(key, value, partition=0, offset=offset, timestamp_ms=0))
        for offset, (key, value) in enumerate(pairs)
    ]

    assert isinstance(records[3].content, Removed)
    assert [record.offset for record in latest(records)] == [2, 4, 5]
