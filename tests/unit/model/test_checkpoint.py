"""Checkpoints: Java's bytes both ways, and what is refused."""

from __future__ import annotations

import pytest

from mm2py.model.checkpoint import Checkpoint, MalformedCheckpointError, decode_checkpoint, encode_checkpoint
from mm2py.model.flow import TopicPartition


VECTOR = Checkpoint("g1", TopicPartition("A.foo", 3), 100, 57)
KEY = bytes.fromhex("000267310005412e666f6f00000003")
VALUE = bytes.fromhex("0000000000000000006400000000000000390000")


def test_serde() -> None:
    """A checkpoint has the bytes that Java's has, and comes back from them (CheckpointTest.testSerde)."""
    assert encode_checkpoint(VECTOR) == (KEY, VALUE)
    assert decode_checkpoint(KEY, VALUE) == VECTOR


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint("", TopicPartition("", 0), 0, 0),
        Checkpoint("gruppe-ä", TopicPartition("A.B.foo", 2**31 - 1), 2**63 - 1, 2**62, "owner=日本"),
        Checkpoint("g" * 32_767, TopicPartition("t", 1), 1, 1, "m" * 32_767),
    ],
)
def test_every_checkpoint_comes_back(checkpoint: Checkpoint) -> None:
    """Nothing, other alphabets and the longest texts survive."""
    assert decode_checkpoint(*encode_checkpoint(checkpoint)) == checkpoint


def test_it_prints_as_java_does() -> None:
    """The text is that of Java's console formatter."""
    expected = (
        "Checkpoint{consumerGroupId=g1, topicPartition=A.foo-3, upstreamOffset=100, downstreamOffset=57, metadata=}"
    )

    assert str(VECTOR) == expected


def test_bytes_behind_the_last_field_are_ignored() -> None:
    """As Kafka's own readers do, so that a later version may add fields."""
    assert decode_checkpoint(KEY + b"more", VALUE + b"more") == VECTOR


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (KEY, None),
        (b"", VALUE),
        *((KEY[:length], VALUE) for length in range(len(KEY))),
        *((KEY, VALUE[:length]) for length in range(len(VALUE))),
        (b"\xff\xff" + KEY, VALUE),
        (b"\x00\x01\xff" + KEY[4:], VALUE),
    ],
)
def test_malformed_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    """What is missing, cut short at any byte, of negative length or not UTF-8 is no checkpoint."""
    with pytest.raises(MalformedCheckpointError):
        decode_checkpoint(key, value)


def test_an_unknown_version_is_refused() -> None:
    """checkpointDeserializeRejectsUnsupportedValueVersion: a newer version is not guessed at."""
    with pytest.raises(MalformedCheckpointError, match="version 1 is not supported"):
        decode_checkpoint(KEY, b"\x00\x01" + VALUE[2:])


def test_too_long_a_text_is_refused() -> None:
    """A length of two bytes says no more than 32 767."""
    with pytest.raises(MalformedCheckpointError):
        encode_checkpoint(Checkpoint("g" * 32_768, TopicPartition("t", 1), 1, 1))
