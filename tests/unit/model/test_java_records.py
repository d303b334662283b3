"""Records of Java MirrorMaker's internal topics: its bytes both ways, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from mm2py.model.checkpoint import Checkpoint, MalformedCheckpointError, decode_checkpoint, encode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.heartbeat import Heartbeat, MalformedHeartbeatError, decode_heartbeat, encode_heartbeat
from mm2py.model.offset_sync import MalformedOffsetSyncError, OffsetSync, decode_offset_sync, encode_offset_sync


@attrs.frozen
class Kind:
    """A kind of record, and one as Java writes and prints it."""

    record: Any
    key: bytes
    value: bytes
    text: str
    encode: Callable[[Any], tuple[bytes, bytes]]
    decode: Callable[[bytes | None, bytes | None], Any]
    error: type[Exception]


CHECKPOINT = Kind(
    Checkpoint("g1", TopicPartition("A.foo", 3), 100, 57),
    bytes.fromhex("000267310005412e666f6f00000003"),
    bytes.fromhex("0000000000000000006400000000000000390000"),
    "Checkpoint{consumerGroupId=g1, topicPartition=A.foo-3, upstreamOffset=100, downstreamOffset=57, metadata=}",
    encode_checkpoint,
    decode_checkpoint,
    MalformedCheckpointError,
)
HEARTBEAT = Kind(
    Heartbeat("A", "B", 1_700_000_000_000),
    bytes.fromhex("000141000142"),
    bytes.fromhex("00000000018bcfe56800"),
    "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}",
    encode_heartbeat,
    decode_heartbeat,
    MalformedHeartbeatError,
)
SYNC = Kind(
    OffsetSync(TopicPartition("foo", 3), 100, 57),
    bytes.fromhex("0003666f6f00000003"),
    bytes.fromhex("00000000000000640000000000000039"),
    "OffsetSync{topicPartition=foo-3, upstreamOffset=100, downstreamOffset=57}",
    encode_offset_sync,
    decode_offset_sync,
    MalformedOffsetSyncError,
)
each_kind = pytest.mark.parametrize("kind", [CHECKPOINT, HEARTBEAT, SYNC], ids=["checkpoint", "heartbeat", "sync"])


@each_kind
def test_serde(kind: Kind) -> None:
    """Bytes and text are Java's (CheckpointTest, HeartbeatTest, OffsetSyncTest: testSerde); added fields do no harm."""
    assert kind.encode(kind.record) == (kind.key, kind.value)
    assert kind.decode(kind.key, kind.value) == kind.record
    assert kind.decode(kind.key + b"more", kind.value + b"more") == kind.record
    assert str(kind.record) == kind.text


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (CHECKPOINT, Checkpoint("", TopicPartition("", 0), 0, 0)),
        (CHECKPOINT, Checkpoint("gruppe-ä", TopicPartition("A.B.foo", 2**31 - 1), 2**63 - 1, 2**62, "owner=日本")),
        (CHECKPOINT, Checkpoint("g" * 32_767, TopicPartition("t", 1), 1, 1, "m" * 32_767)),
        (HEARTBEAT, Heartbeat("", "", 0)),
        (HEARTBEAT, Heartbeat("zürich", "東京", -1)),
        (HEARTBEAT, Heartbeat("a" * 32_767, "b", 2**63 - 1)),
        (SYNC, OffsetSync(TopicPartition("", 0), 0, 0)),
        (SYNC, OffsetSync(TopicPartition("täglich.日本", 2**31 - 1), 2**63 - 1, 2**62)),
        (SYNC, OffsetSync(TopicPartition("t" * 249, 1), 1, 1)),
    ],
)
def test_every_record_comes_back(kind: Kind, record: object) -> None:
    """Nothing, other alphabets and the longest texts survive."""
    assert kind.decode(*kind.encode(record)) == record


@each_kind
def test_what_is_missing_or_cut_short_at_any_byte_is_refused(kind: Kind) -> None:
    """A record without key or value, and each beginning of either, is malformed."""
    cut_keys = [(kind.key[:length], kind.value) for length in range(len(kind.key))]
    cut_values = [(kind.key, kind.value[:length]) for length in range(len(kind.value))]

    for key, value in [(None, kind.value), (kind.key, None), *cut_keys, *cut_values]:
        with pytest.raises(kind.error):
            kind.decode(key, value)


@pytest.mark.parametrize(
    ("kind", "key", "value", "reason"),
    [
        (CHECKPOINT, b"\xff\xff" + CHECKPOINT.key, CHECKPOINT.value, "a text is cut short"),
        (CHECKPOINT, b"\x00\x01\xff" + CHECKPOINT.key[4:], CHECKPOINT.value, "a text is not UTF-8"),
        # CheckpointTest.checkpointDeserializeRejectsUnsupportedValueVersion
        (CHECKPOINT, CHECKPOINT.key, b"\x00\x01" + CHECKPOINT.value[2:], "version 1 is not supported"),
        (HEARTBEAT, b"\xff\xff" + HEARTBEAT.key, HEARTBEAT.value, "a text is cut short"),
        (HEARTBEAT, b"\x00\x01\xff" + HEARTBEAT.key[3:], HEARTBEAT.value, "a text is not UTF-8"),
        # MirrorRecordVersionTest.heartbeatDeserializeRejectsUnsupportedValueVersion, even cut short
        (HEARTBEAT, HEARTBEAT.key, b"\x00\x01" + HEARTBEAT.value[2:], "version"),
        (HEARTBEAT, HEARTBEAT.key, b"\xff\xff", "version"),
        (SYNC, None, SYNC.value, "it has no key"),
        (SYNC, SYNC.key, None, "it has no value"),
        (SYNC, SYNC.key, SYNC.value[:-1], "its value is cut short"),
        (SYNC, SYNC.key[:-1], SYNC.value, "its key is cut short"),
        (SYNC, b"\xff\xff" + SYNC.key[2:], SYNC.value, "a text is cut short"),
        (SYNC, b"\x00\x01\xff" + SYNC.key[-4:], SYNC.value, "a text is not UTF-8"),
    ],
)
def test_a_malformed_record_has_its_reason(kind: Kind, key: bytes | None, value: bytes | None, reason: str) -> None:
    """Lengths that are negative, what is not UTF-8, and versions that are not known yet."""
    with pytest.raises(kind.error, match=reason):
        kind.decode(key, value)


@pytest.mark.parametrize(
    ("kind", "record"),
    [
        (CHECKPOINT, Checkpoint("g" * 32_768, TopicPartition("t", 1), 1, 1)),
        (HEARTBEAT, Heartbeat("a" * 32_768, "b", 0)),
        (SYNC, OffsetSync(TopicPartition("t" * 32_768, 0), 0, 0)),
    ],
)
def test_a_text_that_is_too_long_is_not_written(kind: Kind, record: object) -> None:
    """A length of two bytes goes up to 32 767."""
    with pytest.raises(kind.error, match="does not fit"):
        kind.encode(record)
