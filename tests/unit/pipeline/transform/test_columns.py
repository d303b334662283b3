"""Records as Arrow batches, and back as chunks."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pytest

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.columns import ARROW, TimestampTooLargeError, chunk_of, pack_arrow, rows_of, to_arrow
from mm2py.wire.batches import native
from mm2py.wire.batches.packed_records import pack, unpack
from mm2py.wire.batches.record_columns import Headers, RecordColumns


ORDERS = TopicPartition("orders", 3)


def columns_of(*headers: Headers) -> RecordColumns:
    count = len(headers)
    return RecordColumns(
        offsets=list(range(10, 10 + count)),
        timestamps=[-1, *range(1_700_000_000_001, 1_700_000_000_000 + count)],
        timestamp_types=[0] * count,
        keys=[None, *(b"key-%d" % number for number in range(1, count))],
        values=[*(b"value-%d" % number for number in range(1, count)), None],
        headers=list(headers),
    )


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([(), (), ()], id="none"),
        pytest.param([(("a", b"1"),), (("b", None),), (("", b""),)], id="one each"),
        pytest.param([(), (("a", b"1"), ("a", b"2")), (("b", None),)], id="as many as it happens"),
    ],
)
def test_there_and_back(headers: list[Headers]) -> None:
    """What goes into an Arrow batch comes out of it: nulls, no timestamp, headers in order and twice."""
    columns = columns_of(*headers)
    batch = to_arrow(ORDERS, columns)
    chunk = chunk_of(batch, ORDERS)

    assert batch.schema == ARROW
    assert (chunk.offsets, chunk.timestamps) == (columns.offsets, columns.timestamps)
    assert (chunk.keys, chunk.values, chunk.headers) == (columns.keys, columns.values, columns.headers)
    assert chunk.stray is None
    assert [row[2:] for row in rows_of(batch)] == list(
        zip(chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers, strict=True)
    )


@pytest.mark.parametrize(
    ("topics", "partitions", "stray"),
    [
        pytest.param(["orders", "orders", "sales"], [3, 3, 3], (2, "topic"), id="topic"),
        pytest.param(["orders", None, "orders"], [3, 3, 3], (1, "topic"), id="no topic"),
        pytest.param(["orders", "orders", "orders"], [3, 3, None], (2, "partition"), id="no partition"),
        pytest.param(["orders", "orders", "sales"], [3, 4, 3], (1, "partition"), id="the first counts"),
        pytest.param(["sales", "orders", "orders"], [4, 3, 3], (0, "topic"), id="the topic first"),
    ],
)
def test_strays_are_found(
    topics: list[str | None], partitions: list[int | None], stray: tuple[int, str] | None
) -> None:
    """The first row that belongs elsewhere is named, with the column that says so."""
    whole = to_arrow(ORDERS, columns_of((), (), ()))
    changed = whole.set_column(0, "topic", pa.array(topics, pa.string()))
    changed = changed.set_column(1, "partition", pa.array(partitions, pa.int32()))

    assert chunk_of(changed, ORDERS).stray == stray


def test_timestamps_are_cut_to_milliseconds() -> None:
    """A transform may give microseconds; what is smaller than a millisecond is dropped, downwards."""
    whole = to_arrow(ORDERS, columns_of((), (), ()))
    stamps = pa.array([1_999, -1_001, None], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    changed = whole.set_column(3, "timestamp", stamps)

    assert chunk_of(changed, ORDERS).timestamps == [1, -2, -1]


#: As some producers write them: in nanoseconds, and the most that microseconds can be counted of.
_STAMPS = [1_750_000_000_123_456_789, (2**63 - 1) // 1_000, 1_700_000_000_123, -1]


@pytest.mark.skipif(native.library() is None, reason="there is no C compiler")
def test_timestamps_stay_as_they_came_without_spark() -> None:
    """However large: row by row, and packed."""
    columns = attrs.evolve(columns_of((), (), (), ()), timestamps=list(_STAMPS))
    batch = to_arrow(ORDERS, columns, is_for_spark=False)
    packed = pack_arrow([batch])
    assert packed is not None
    (built,) = pack(packed, codec=0, limit_bytes=100_000, headers=())
    again = unpack([bytes(built.batch)], from_offset=0, before=100)
    assert again is not None

    assert chunk_of(batch, ORDERS).timestamps == _STAMPS
    assert chunk_of(to_arrow(ORDERS, again, is_for_spark=False), ORDERS).timestamps == _STAMPS


def test_a_timestamp_that_spark_cannot_hold_is_an_error() -> None:
    """It was another one afterwards: the product of milliseconds and 1000 had run over."""
    fits = attrs.evolve(columns_of((), (), ()), timestamps=_STAMPS[1:])

    assert chunk_of(to_arrow(ORDERS, fits), ORDERS).timestamps == _STAMPS[1:]
    with pytest.raises(TimestampTooLargeError, match="1750000000123456789 ms") as caught:
        to_arrow(ORDERS, attrs.evolve(columns_of((), (), (), ()), timestamps=_STAMPS[::-1]))
    assert caught.value.offset == 13
