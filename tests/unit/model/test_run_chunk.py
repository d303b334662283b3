"""The bytes of chunks: they come back, and what is invalid is passed over."""

from __future__ import annotations

import base64
import json
import zlib
from array import array

import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.positions import decode_position
from mm2py.model.run_chunk import KeptChunk, RunChunk, chunk_key, decode_chunk, encode_chunk


SOURCE = TopicPartition("täglich", 3)
CHUNK = RunChunk(
    covered_from=100,
    covered_to=180,
    end_from=7,
    end=60,
    is_origin=True,
    starts=array("q", [100, 121, 150]),
    downs=array("q", [7, 30, 44]),
    spans=array("q", [20, 9, 30]),
    counts=array("q", [20, 9, 16]),
)
KEY = chunk_key("A", SOURCE, 2)
VALUE = encode_chunk(CHUNK, "an-id")


def test_a_chunk_comes_back() -> None:
    """Key and value hold all of it."""
    assert decode_chunk(KEY, VALUE) == ("A", KeptChunk(SOURCE, 2, "an-id", CHUNK))


def test_a_removed_chunk_is_told_from_none() -> None:
    """Without a value the record says which chunk is gone."""
    assert decode_chunk(KEY, None) == ("A", KeptChunk(SOURCE, 2))


def test_the_key_is_of_another_connector() -> None:
    """The key has the form of Kafka Connect's, a list of a connector's name and a map; it is no position."""
    assert json.loads(KEY)[0] == "mm2py"
    assert isinstance(json.loads(KEY)[1], dict)
    assert decode_position(KEY, VALUE) is None


def changed(**members: object) -> bytes:
    return json.dumps(json.loads(VALUE) | members).encode()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b'["mm2py",{"kind":"runs"}]', VALUE, id="a key without its place"),
        pytest.param(b'["mm2py"', VALUE, id="a key cut short"),
        pytest.param(KEY, VALUE[:-9], id="a value cut short"),
        pytest.param(KEY, changed(runs="AAAA"), id="runs that are not packed"),
        pytest.param(KEY, changed(to=120), id="runs past what is covered"),
        pytest.param(KEY, changed(downstreamTo=9), id="runs past the end"),
        pytest.param(KEY, changed(**{"from": "x"}), id="words for numbers"),
    ],
)
def test_what_is_no_chunk_is_unreadable(key: bytes, value: bytes) -> None:
    """Neither damage nor what others write under its key is taken for one."""
    assert isinstance(decode_chunk(key, value), UnreadableRecord)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(None, VALUE, id="no key"),
        pytest.param(b'["MirrorSourceConnector",{"cluster":"A"}]', VALUE, id="a position"),
        pytest.param(b'["mm2py",{"kind":"later"}]', VALUE, id="another kind"),
        pytest.param(KEY, changed(version=2), id="a later version"),
    ],
)
def test_what_is_another_s_is_passed_over(key: bytes | None, value: bytes) -> None:
    """What others write, or a later version, is none of ours."""
    assert decode_chunk(key, value) is None


def test_a_few_bytes_cannot_fill_the_memory() -> None:
    """A chunk of a kilobyte that zlib blows up to a gigabyte is refused before it is unpacked."""
    bomb = zlib.compressobj(9)
    packed = b"".join([*(bomb.compress(bytes(1 << 20)) for _ in range(64)), bomb.flush()])

    assert decode_chunk(KEY, changed(runs=base64.b64encode(packed).decode())) == UnreadableRecord(
        "its runs are cut short, or more than a chunk holds"
    )


def test_a_transactional_topic_takes_few_bytes() -> None:
    """Four thousand transactions of ten records fit in far less than a kilobyte."""
    count = 4096
    chunk = RunChunk(
        0, count * 11, 0, count * 10, True,
        array("q", range(0, count * 11, 11)), array("q", range(0, count * 10, 10)),
        array("q", [10] * count), array("q", [10] * count),
    )  # fmt: skip

    assert len(encode_chunk(chunk, None)) < 700
