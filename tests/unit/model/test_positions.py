"""Positions in Java MirrorMaker 2's own bytes. The key vectors were written by Connect 4.3.1's JsonConverter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.epoch import LeaderMark, ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.positions import (
    DOWNSTREAM_HEADER,
    LEADER_HEADER,
    PRODUCER_HEADER,
    REMOTE_TOPIC_HEADER,
    REMOTE_TOPIC_ID_HEADER,
    SEARCH_HEADER,
    TOPIC_ID_HEADER,
    Position,
    decode_position,
    encode_position,
    position_key,
)


FOO = TopicPartition("foo", 0)
FOO_KEY = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}]'

JAVA_KEYS = {
    "plain": ("A", FOO, FOO_KEY),
    "punctuation": (
        "west-1",
        TopicPartition("orders.v1_x", 24),
        b'["MirrorSourceConnector",{"cluster":"west-1","partition":24,"topic":"orders.v1_x"}]',
    ),
    "short escapes": (
        'q"\\\b\f\n\r\t/',
        TopicPartition("t", 1),
        rb'["MirrorSourceConnector",{"cluster":"q\"\\\b\f\n\r\t/","partition":1,"topic":"t"}]',
    ),
    "control characters": (
        "\x00\x01\x0b\x1b\x1f\x7f",
        TopicPartition("t", 2),
        b'["MirrorSourceConnector",{"cluster":"\\u0000\\u0001\\u000B\\u001B\\u001F\x7f","partition":2,"topic":"t"}]',
    ),
    "raw non-ASCII": (
        "\x80\u2028\u00e9\u4e16",
        TopicPartition("t", 2),
        b'["MirrorSourceConnector",{"cluster":"\xc2\x80\xe2\x80\xa8\xc3\xa9\xe4\xb8\x96","partition":2,"topic":"t"}]',
    ),
    "beyond the BMP": (
        "\U0001f600z",
        TopicPartition("t", 3),
        rb'["MirrorSourceConnector",{"cluster":"\uD83D\uDE00z","partition":3,"topic":"t"}]',
    ),
    "an escape in the text itself": (
        "x\\u00ab",
        TopicPartition("t", 3),
        rb'["MirrorSourceConnector",{"cluster":"x\\u00ab","partition":3,"topic":"t"}]',
    ),
}


@pytest.mark.parametrize(("cluster", "source", "java"), JAVA_KEYS.values(), ids=JAVA_KEYS)
def test_key_is_java_s(cluster: str, source: TopicPartition, java: bytes) -> None:
    """The key has the bytes that Connect's JsonConverter writes."""
    key = position_key(cluster, source)

    assert java == key


def test_value_is_java_s_last_replicated_offset() -> None:
    """The value holds the last replicated offset, one less than the next to read, and no header without need."""
    encoded = encode_position("A", Position(FOO, 124))

    assert encoded == (FOO_KEY, b'{"offset":123}', ())


def test_a_remote_topic_without_an_id_has_its_name_in_a_header() -> None:
    """Brokers from before 2.8 give none; a name that no topic can have is ignored."""
    position = Position(FOO, 124, 77).at("A.foo")
    key, value, headers = encode_position("A", position)

    assert decode_position(key, value, headers) == ("A", position)
    assert headers[-1] == (REMOTE_TOPIC_HEADER, b"A.foo")
    assert decode_position(key, value, ((REMOTE_TOPIC_HEADER, b"A/foo"),)) == ("A", Position(FOO, 124))
    assert Position(FOO, 124, 77, remote_topic_id="A" * 22).at("A.foo").remote_topic is None


def test_headers_carry_what_java_does_not_keep() -> None:
    """The downstream offset, both topics' ids, the producer and the source's leader epoch travel in plain headers."""
    ids = "1gp1R00ESh-1y9yvSBsR9g", "Zq1R00ESh-1y9yvSBsR9gA"
    position = Position(FOO, 124, 77, ids[0], ProducerMark(4000, 2, 31), ids[1], LeaderMark(12, 700))
    _, _, headers = encode_position("A", position)

    assert headers == (
        (DOWNSTREAM_HEADER, b"77"),
        (TOPIC_ID_HEADER, b"1gp1R00ESh-1y9yvSBsR9g"),
        (PRODUCER_HEADER, b"4000:2:31"),
        (REMOTE_TOPIC_ID_HEADER, b"Zq1R00ESh-1y9yvSBsR9gA"),
        (LEADER_HEADER, b"12:700"),
    )


def test_a_start_that_does_not_count_yet_is_read_as_such() -> None:
    """From where on the target's last record is searched for travels in a header, as long as it is."""
    position = Position(FOO, 124, search_from=20)
    key, value, headers = encode_position("A", position)

    assert headers == ((SEARCH_HEADER, b"20"),)
    assert decode_position(key, value, headers) == ("A", position)


def test_a_key_is_parsed_once() -> None:
    """A log has millions of positions of a thousand partitions, and all of it is read before anything is copied."""
    key = position_key("A", TopicPartition("foo", 0))
    found = [decode_position(key, b'{"offset":%d}' % offset) for offset in (-1, 0, 17, 10**18 - 1, 10**18)]
    positions = [it[1] for it in found if isinstance(it, tuple) and isinstance(it[1], Position)]

    assert [it.next_upstream for it in positions] == [0, 1, 18, 10**18, 10**18 + 1]
    assert len({id(it.source) for it in positions}) == 1


def test_nothing_replicated_yet_is_minus_one() -> None:
    """A position at the very start is stored as -1, which Java takes for no offset, and read back as 0."""
    key, value, headers = encode_position("A", Position(FOO, 0))

    assert (b'{"offset":-1}', ("A", Position(FOO, 0))) == (value, decode_position(key, value, headers))


READABLE = {
    "java's own": (FOO_KEY, b'{"offset":123}', (), ("A", Position(FOO, 124))),
    "spaces and another order": (
        b'[ "MirrorSourceConnector", {"topic": "foo", "partition": 0, "cluster": "A"} ]',
        b'{ "offset": 5 }',
        (),
        ("A", Position(FOO, 6)),
    ),
    "removed": (FOO_KEY, None, (), ("A", FOO)),
    "removed by a JSON null": (FOO_KEY, b"null", (), ("A", FOO)),
    "foreign headers": (FOO_KEY, b'{"offset":1}', (("x", None), ("y", b"\xff")), ("A", Position(FOO, 2))),
    "the last of repeated headers": (
        FOO_KEY,
        b'{"offset":1}',
        ((DOWNSTREAM_HEADER, b"3"), (DOWNSTREAM_HEADER, b"4")),
        ("A", Position(FOO, 2, downstream=4)),
    ),
    "a header that is no number": (
        FOO_KEY,
        b'{"offset":1}',
        ((DOWNSTREAM_HEADER, b"x"), (TOPIC_ID_HEADER, b""), (PRODUCER_HEADER, b"4000:2")),
        ("A", Position(FOO, 2)),
    ),
    "headers whose numbers cannot be": (
        FOO_KEY,
        b'{"offset":1}',
        (
            (DOWNSTREAM_HEADER, b"9223372036854775808"),
            (TOPIC_ID_HEADER, b"\xff" * 22),
            (PRODUCER_HEADER, b"1:99999:1"),
            (LEADER_HEADER, b"9999999999:1"),
        ),
        ("A", Position(FOO, 2)),
    ),
    "any negative offset": (FOO_KEY, b'{"offset":-7}', (), ("A", Position(FOO, 0))),
}


@pytest.mark.parametrize(("key", "value", "headers", "expected"), READABLE.values(), ids=READABLE)
def test_reads_by_content(key: bytes, value: bytes | None, headers: tuple, expected: object) -> None:
    """What a record means does not depend on how its JSON is spelt."""
    decoded = decode_position(key, value, headers)

    assert expected == decoded


OTHERS = {
    "checkpoint connector": (
        b'["MirrorCheckpointConnector",{"partition":0,"topic":"A.foo","group":"g"}]',
        b'{"offset":0}',
    ),
    "heartbeat connector": (
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        b'{"offset":0}',
    ),
}


@pytest.mark.parametrize(("key", "value"), OTHERS.values(), ids=OTHERS)
def test_ignores_what_is_another_connector_s(key: bytes, value: bytes) -> None:
    """Records of other connectors are not positions."""
    assert decode_position(key, value) is None


UNREADABLE = {
    "no key": (None, b'{"offset":0}'),
    "not valid JSON": (b"foo", b'{"offset":0}'),
    "no UTF-8": (b"\xff\xfe\x00", b'{"offset":0}'),
    "no list": (b'{"cluster":"A"}', b'{"offset":0}'),
    "partition is no number": (
        b'["MirrorSourceConnector",{"cluster":"A","partition":true,"topic":"foo"}]',
        b'{"offset":0}',
    ),
    "no offset": (FOO_KEY, b"{}"),
    "offset is no number": (FOO_KEY, b'{"offset":"1"}'),
    "value is not valid JSON": (FOO_KEY, b"\x00"),
    "brackets without end": (b"[" * 100_000, b'{"offset":0}'),
    "an offset past 64 bits": (FOO_KEY, b'{"offset":9223372036854775808}'),
    "an offset that no log reaches": (FOO_KEY, b'{"offset":4611686018427387904}'),
    "the offset behind the last": (FOO_KEY, b'{"offset":9223372036854775807}'),
    "an offset of a million digits": (FOO_KEY, b'{"offset":' + b"9" * 1_000_000 + b"}"),
    "half an offset": (FOO_KEY, b'{"offset":1.5}'),
    "two offsets": (FOO_KEY, b'{"offset":1,"offset":2}'),
    "a negative partition": (
        b'["MirrorSourceConnector",{"cluster":"A","partition":-1,"topic":"foo"}]',
        b'{"offset":0}',
    ),
    "half a character": (
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"\\ud800"}]',
        b'{"offset":0}',
    ),
    "a name that is no topic's": (
        b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"' + b"x" * 250 + b'"}]',
        b'{"offset":0}',
    ),
}


@pytest.mark.parametrize(("key", "value"), UNREADABLE.values(), ids=UNREADABLE)
def test_refuses_what_cannot_be_a_position(key: bytes | None, value: bytes) -> None:
    """A record that cannot be parsed, or has impossible numbers, is refused with the reason."""
    assert isinstance(decode_position(key, value), UnreadableRecord)


POSITIONS = st.builds(
    Position,
    source=st.builds(TopicPartition, st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 2**31 - 1)),
    next_upstream=st.integers(0, 2**62),
    downstream=st.none() | st.integers(-1, 2**62 - 1),
    topic_id=st.none() | st.text("ABCabc019-_", min_size=22, max_size=22),
    producer=st.none()
    | st.builds(
        ProducerMark,
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
        st.integers(0, 2**31 - 1),
        st.just(value=False),
    ),
    remote_topic_id=st.none() | st.text("ABCabc019-_", min_size=22, max_size=22),
    leader=st.none() | st.builds(LeaderMark, st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
)


@given(cluster=st.text(st.characters(exclude_categories=["Cs"])), position=POSITIONS)
def test_round_trip(cluster: str, position: Position) -> None:
    """Every position is read back as it was written, and its key is plain JSON."""
    key, value, headers = encode_position(cluster, position)
    decoded = decode_position(key, value, headers)

    assert ((cluster, position), cluster) == (decoded, json.loads(key)[1]["cluster"])
