"""Records taken apart column by column are what was written, however few of them a batch holds."""

from __future__ import annotations

import random

import pytest

from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns, build
from tests.support.batches import CODECS, LOG_APPEND_TIME, LZ4, START_MS, Content, build_batch, contents, flipped
from tests.support.contents import decode


#: Few enough to be taken one by one, and more.
SIZES = (1, 2, 7, 8, 30)


@pytest.mark.parametrize("size", SIZES)
def test_columns_hold_what_was_written(size: int) -> None:
    """Null, empty and present ones, in the order of their offsets."""
    written = [
        Content(
            n, START_MS - n, (None, b"", b"k")[n % 3], (b"v%d" % n, None)[n % 2], (("h", None), ("h", b"1"))[: n % 3]
        )
        for n in range(size)
    ]
    columns = RecordColumns()
    columns.add(build_batch(written, base_offset=5) + build_batch(written, base_offset=500), from_offset=0, before=999)

    assert columns.offsets == [*range(5, 5 + size), *range(500, 500 + size)]
    assert columns.timestamps == [it.timestamp for it in written] * 2
    assert columns.keys == [it.key for it in written] * 2
    assert columns.values == [it.value for it in written] * 2
    assert columns.headers == [it.headers for it in written] * 2
    assert columns.timestamp_types == [0] * 2 * size


@pytest.mark.parametrize("size", SIZES)
def test_what_lies_outside_is_left_out(size: int) -> None:
    """A range may begin and end inside a batch."""
    columns = RecordColumns()
    columns.add(build_batch(contents(size), base_offset=10), from_offset=11, before=10 + size - 1)

    assert columns.offsets == list(range(11, 10 + size - 1))
    assert len({len(columns), len(columns.keys), len(columns.headers), len(columns.timestamp_types)}) == 1


@pytest.mark.parametrize("size", SIZES)
def test_stamped_by_the_broker(size: int) -> None:
    """All records of a batch have its greatest timestamp then."""
    columns = RecordColumns()
    columns.add(
        build_batch(contents(size), attributes=LOG_APPEND_TIME, max_timestamp=START_MS + 99), from_offset=0, before=size
    )

    assert columns.timestamps == [START_MS + 99] * size
    assert columns.timestamp_types == [1] * size


@pytest.mark.parametrize("size", SIZES)
def test_a_damaged_batch_is_named(size: int) -> None:
    """What came before it stays."""
    columns = RecordColumns()
    with pytest.raises(UnreadableBatchError, match="checksum") as raised:
        columns.add(build_batch(size) + flipped(build_batch(size, base_offset=70)), from_offset=0, before=99)

    assert raised.value.offset == 70
    assert len(columns) == size


@pytest.mark.parametrize("codec", CODECS)
def test_what_compression_would_make_larger_is_not_compressed(codec: int) -> None:
    """No codec makes a value of chance smaller: a batch near the limit without one would exceed it."""
    value = random.Random(codec).randbytes(30_000)
    (built,) = build([(0, START_MS, None, value, ())], codec=codec, limit_bytes=1 << 20)

    assert len(built.batch) == len(build_batch([Content(0, START_MS, None, value)]))
    assert [record.value for record in decode(bytes(built.batch))] == [value]


def test_records_without_a_timestamp_stay_without_before_others() -> None:
    """They may be the first of those that are built: -1 is a timestamp like any other."""
    timestamps = [-1, -1, START_MS, -1, START_MS + 1]
    built = build([(n, it, None, b"v", ()) for n, it in enumerate(timestamps)], codec=LZ4, limit_bytes=1 << 20)

    assert [record.timestamp for it in built for record in decode(bytes(it.batch))] == timestamps
    assert [it.runs for it in built] == [((0, 0, 2),), ((2, 0, 3),)]
