"""Offset syncs: Java's bytes both ways, and what is refused."""

from __future__ import annotations

import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import MalformedOffsetSyncError, OffsetSync, decode_offset_sync, encode_offset_sync


VECTOR = OffsetSync(TopicPartition("foo", 3), 100, 57)
KEY = bytes.fromhex("0003666f6f00000003")
VALUE = bytes.fromhex("00000000000000640000000000000039")


def test_serde() -> None:
    """An offset sync has the bytes that Java's has, and comes back from them (OffsetSyncTest.testSerde)."""
    assert encode_offset_sync(VECTOR) == (KEY, VALUE)
    assert decode_offset_sync(KEY, VALUE) == VECTOR


@pytest.mark.parametrize(
    "sync",
    [
        OffsetSync(TopicPartition("", 0), 0, 0),
        OffsetSync(TopicPartition("täglich.日本", 2**31 - 1), 2**63 - 1, 2**62),
        OffsetSync(TopicPartition("t" * 249, 1), 1, 1),
    ],
)
def test_every_sync_comes_back(sync: OffsetSync) -> None:
    """Nothing, other alphabets and the longest names survive."""
    assert decode_offset_sync(*encode_offset_sync(sync)) == sync


def test_it_prints_as_java_does() -> None:
    """The text is that of Java's console formatter."""
    assert str(VECTOR) == "OffsetSync{topicPartition=foo-3, upstreamOffset=100, downstreamOffset=57}"


def test_what_follows_is_ignored() -> None:
    """Fields that a later version may append do no harm."""
    assert decode_offset_sync(KEY + b"x", VALUE + b"y") == VECTOR


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, VALUE, "it has no key"),
        (KEY, None, "it has no value"),
        (KEY, VALUE[:-1], "its value is cut short"),
        (b"\x00", VALUE, "a text is cut short"),
        (KEY[:-1], VALUE, "its key is cut short"),
        (b"\xff\xff" + KEY[2:], VALUE, "a text is cut short"),
        (b"\x00\x01\xff" + KEY[-4:], VALUE, "a text is not UTF-8"),
    ],
)
def test_what_is_no_sync_is_refused(key: bytes | None, value: bytes | None, reason: str) -> None:
    """Each way in which a record is no offset sync has its reason."""
    with pytest.raises(MalformedOffsetSyncError, match=reason):
        decode_offset_sync(key, value)


def test_a_name_too_long_is_refused() -> None:
    """A topic's name that no length of two bytes can tell is not written."""
    with pytest.raises(MalformedOffsetSyncError, match="does not fit"):
        encode_offset_sync(OffsetSync(TopicPartition("t" * 32_768, 0), 0, 0))
