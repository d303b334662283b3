"""Heartbeats: Java's bytes both ways, and what is refused."""

from __future__ import annotations

import pytest

from mm2py.model.heartbeat import Heartbeat, MalformedHeartbeatError, decode_heartbeat, encode_heartbeat


VECTOR = Heartbeat("A", "B", 1_700_000_000_000)
KEY = bytes.fromhex("000141000142")
VALUE = bytes.fromhex("00000000018bcfe56800")


def test_serde() -> None:
    """A heartbeat has the bytes that Java's has, and comes back from them (HeartbeatTest.testSerde)."""
    assert encode_heartbeat(VECTOR) == (KEY, VALUE)
    assert decode_heartbeat(KEY, VALUE) == VECTOR


@pytest.mark.parametrize(
    "heartbeat", [Heartbeat("", "", 0), Heartbeat("zürich", "東京", -1), Heartbeat("a" * 32_767, "b", 2**63 - 1)]
)
def test_every_heartbeat_comes_back(heartbeat: Heartbeat) -> None:
    """Nothing, other alphabets and the longest aliases survive."""
    assert decode_heartbeat(*encode_heartbeat(heartbeat)) == heartbeat


def test_it_prints_as_java_does() -> None:
    """The text is that of Java's console formatter."""
    assert str(VECTOR) == "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}"


def test_bytes_behind_the_last_field_are_ignored() -> None:
    """As Kafka's own readers do, so that a later version may add fields."""
    assert decode_heartbeat(KEY + b"more", VALUE + b"more") == VECTOR


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (KEY, None),
        *((KEY[:length], VALUE) for length in range(len(KEY))),
        *((KEY, VALUE[:length]) for length in range(len(VALUE))),
        (b"\xff\xff" + KEY, VALUE),
        (b"\x00\x01\xff" + KEY[3:], VALUE),
    ],
)
def test_what_is_none_is_refused(key: bytes | None, value: bytes | None) -> None:
    """What is missing, cut short or no text is not taken for a heartbeat."""
    with pytest.raises(MalformedHeartbeatError):
        decode_heartbeat(key, value)


@pytest.mark.parametrize("version", [b"\x00\x01", b"\xff\xff"])
def test_an_unknown_version_is_refused(version: bytes) -> None:
    """As Java does (MirrorRecordVersionTest.heartbeatDeserializeRejectsUnsupportedValueVersion), even cut short."""
    with pytest.raises(MalformedHeartbeatError, match="version"):
        decode_heartbeat(KEY, version + VALUE[2:])
    with pytest.raises(MalformedHeartbeatError, match="version"):
        decode_heartbeat(KEY, version)


def test_an_alias_that_does_not_fit_is_refused() -> None:
    """Java's length has two bytes."""
    with pytest.raises(MalformedHeartbeatError, match="does not fit"):
        encode_heartbeat(Heartbeat("a" * 32_768, "b", 0))
