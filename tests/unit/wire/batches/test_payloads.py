"""Records by their payloads are those that aiokafka's codec reads, and their payloads tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.wire.batches.batch import MalformedRecordSetError, RecordBatchView, batches
from mm2py.wire.batches.payloads import Payloads, Singles, pieces, read, split
from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns
from tests.support.batches import (
    CODECS,
    GZIP,
    LOG_APPEND_TIME,
    NONE,
    START_MS,
    TRANSACTIONAL,
    Content,
    build_batch,
    contents,
    flipped,
    legacy_messages,
    resigned,
    view_of,
)


PARTS = st.none() | st.binary(max_size=200) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 20_000])
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
TIMES = st.integers(START_MS - 9_000_000_000, START_MS + 70) | st.integers(-1, 1)
RECORDS = st.lists(st.tuples(TIMES, PARTS, PARTS, HEADERS), min_size=1, max_size=150)


def _taken_apart(found: Payloads) -> list[tuple[object, ...]]:
    return [
        (offset, timestamp, *split(payload))
        for offset, (timestamp, payload) in zip(found.offsets, found.contents, strict=True)
    ]


def _by_codec(record_set: bytes) -> list[tuple[object, ...]]:
    """Have aiokafka read them."""
    columns = RecordColumns()
    columns.add(record_set, from_offset=0, before=1 << 60)
    headers = [tuple((name.encode(), value) for name, value in each) for each in columns.headers]
    return list(zip(columns.offsets, columns.timestamps, columns.keys, columns.values, headers, strict=True))


def _singles(records: Sequence[Content], *, first: int = 0, **wishes: int) -> bytes:
    return b"".join(
        build_batch([it._replace(delta=0)], base_offset=first + it.delta, **wishes)  # type: ignore[arg-type]
        for it in records
    )


@given(RECORDS, st.sampled_from(CODECS), st.data())
def test_a_batch_s_records(records: list[tuple], codec: int, data: st.DataObject) -> None:
    """Nulls, headers, any size and timestamp, stamped by the broker or not, with and without holes."""
    gaps = data.draw(st.lists(st.sampled_from([1, 1, 1, 3, 9_000]), min_size=len(records), max_size=len(records)))
    is_whole = data.draw(st.booleans())
    deltas = range(len(records)) if is_whole else [sum(gaps[: n + 1]) for n in range(len(records))]
    contents = [Content(delta, *rest) for delta, rest in zip(deltas, records, strict=True)]
    stamped = {"attributes": LOG_APPEND_TIME, "max_timestamp": START_MS + 99} if data.draw(st.booleans()) else {}
    batch = build_batch(contents, base_offset=77, codec=codec, **stamped)

    assert _taken_apart(read(view_of(batch))) == _by_codec(batch)


def test_a_large_batch_s_records() -> None:
    """The offsets of records take one byte, two, and three of it."""
    batch = build_batch(20_000, base_offset=5)
    found = read(view_of(batch))

    assert found.offsets == list(range(5, 20_005))
    assert _taken_apart(found) == _by_codec(batch)


@given(RECORDS, st.integers(0, 1 << 40))
def test_one_record_batches_come_together(records: list[tuple], first: int) -> None:
    """What is read of them is the same; large ones stay batches."""
    written = [Content(n * 3, *record) for n, record in enumerate(records)]
    record_set = _singles(written, first=first)
    rows, size = [], 0
    for piece in pieces(memoryview(record_set)):
        size += piece.size_bytes
        assert piece.size_bytes >= 4096 or isinstance(piece, Singles)
        rows += _taken_apart(piece if isinstance(piece, Singles) else read(piece))

    assert rows == _by_codec(record_set)
    assert size == len(record_set)


def test_what_lies_between_them_stays_a_batch() -> None:
    """Compressed, stamped, transactional, damaged ones and those of several records, in their places."""
    few = contents(4)
    others = [
        build_batch(1, base_offset=10, codec=GZIP),
        build_batch(1, base_offset=11, attributes=LOG_APPEND_TIME),
        build_batch(1, base_offset=12, attributes=TRANSACTIONAL),
        flipped(build_batch(1, base_offset=13)),
        build_batch(2, base_offset=14),
        build_batch([], base_offset=16, last_offset_delta=3),
    ]
    record_set = b"".join(_singles(few, first=100 * n) + other for n, other in enumerate(others))
    found = list(pieces(memoryview(record_set + _singles(few, first=900)[:-1])))

    assert [len(it.offsets) if isinstance(it, Singles) else bytes(it.view) for it in found] == [
        *(part for other in others for part in (4, other)),
        3,
    ]
    assert not list(pieces(memoryview(b"")))
    with pytest.raises(MalformedRecordSetError):
        list(pieces(memoryview(record_set + bytes(100))))


@pytest.mark.parametrize("length", [-12, -1, 0, 20])
def test_lengths_that_lead_nowhere(length: int) -> None:
    """A batch that claims to be empty, or to lie before itself, has a right checksum even: that of no bytes."""
    few = contents(2)
    broken = bytearray(build_batch(1, base_offset=2))
    broken[8:12] = length.to_bytes(4, "big", signed=True)
    broken[17:21] = bytes(4)
    found = pieces(memoryview(_singles(few) + bytes(broken)))
    first = next(found)

    assert isinstance(first, Singles)
    assert first.offsets == [0, 1]
    with pytest.raises(MalformedRecordSetError):
        next(found)


def test_a_part_of_them() -> None:
    """A comparison may begin and end inside a batch."""
    record_set = _singles(contents(10), first=20)
    before, behind, *_ = pieces(memoryview(record_set), 24)
    assert isinstance(before, Singles)
    assert (before.offsets, before.size_bytes) == ([20, 21, 22, 23], len(record_set) * 4 // 10)
    assert isinstance(behind, RecordBatchView)
    (found,) = pieces(memoryview(record_set))

    assert isinstance(found, Singles)
    assert found.between(0, 99) is found
    assert found.between(23, 26).offsets == [23, 24, 25]
    assert found.between(23, 26).contents == found.contents[3:6]
    assert not found.between(30, 40).offsets
    assert (found.base_offset, found.last_offset) == (20, 29)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_records_from_before_kafka_0_11(magic: int, codec: int) -> None:
    """Their payload is what it would be in a batch of today."""
    written = [Content(0, START_MS, None, b"v" * 100), Content(1, START_MS + 1, b"k", None)]
    rows = [
        row
        for batch in batches(memoryview(legacy_messages(magic, written, base_offset=7, codec=codec)))
        for row in _taken_apart(read(batch))
    ]

    times = (START_MS, START_MS + 1) if magic else (-1, -1)
    assert rows == [(7, times[0], None, b"v" * 100, ()), (8, times[1], b"k", None, ())]


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_batch_is_named(codec: int) -> None:
    """By its checksum, or by records that do not fill it."""
    batch = build_batch(3, base_offset=40, codec=codec)
    for damaged in (flipped(batch), resigned(batch[:-1]), resigned(batch + b"\1" * 9)):
        with pytest.raises(UnreadableBatchError) as caught:
            read(view_of(damaged))
        assert caught.value.offset == 40
        assert caught.value.detail


@pytest.mark.parametrize("payload", [b"", b"\1", b"\1\1", b"\1\1\0\0", b"\1\1\2", b"\6ab"])
def test_no_payload(payload: bytes) -> None:
    """It must be a key, a value and headers, and nothing else."""
    with pytest.raises(ValueError, match="record"):
        split(payload)
