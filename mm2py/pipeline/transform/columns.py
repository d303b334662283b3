"""
Records as columns: what a transform sees, and what it must give back.

The columns are those of Spark's own Kafka connector, with the headers as an array and timestamps in UTC. Where Spark
has no part in it, timestamps are in milliseconds, as they come: some producers write microseconds or nanoseconds
there, which may be more than Spark can hold.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.record import Chunk, Row
from mm2py.wire.batches.packed_records import Area, PackedBytes, PackedRecords
from mm2py.wire.batches.record_columns import Headers, RecordColumns


#: The columns and their types, as Spark writes them.
SCHEMA_TYPES: Final = {
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "timestamp_type": "INT",
    "key": "BINARY",
    "value": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in SCHEMA_TYPES.items())
NAMES: Final = tuple(SCHEMA_TYPES)

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_IN_MILLIS: Final = pa.timestamp("ms", tz="UTC")
ARROW: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", _TIMESTAMP),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", _HEADERS),
    ]
)
#: What is written of a record.
_WRITTEN: Final = ("offset", "timestamp", "key", "value", "headers")
_MICROS: Final = 1000
#: As Arrow has them: each time it is given a number of Python's, it looks for dateutil on the whole path.
_TIMES_MICROS: Final = pa.scalar(_MICROS, pa.int64())
#: The most milliseconds that are not too many microseconds.
_MOST_MILLIS: Final = pa.scalar((2**63 - 1) // _MICROS, pa.int64())
_ZERO: Final = pa.scalar(0, pa.int64())
_NO_TIMESTAMP: Final = -1


class TimestampTooLargeError(ValueError):
    """The timestamp of the record at `offset` is more than Spark's TIMESTAMP holds, which counts microseconds."""

    def __init__(self, offset: int, millis: int) -> None:
        self.offset = offset
        super().__init__(f"its timestamp, {millis} ms, is too large for Spark: are these microseconds or nanoseconds?")


def to_arrow(
    source: TopicPartition,
    records: RecordColumns | PackedRecords,
    names: Sequence[str] = NAMES,
    *,
    is_for_spark: bool = True,
) -> pa.RecordBatch:
    """
    Return records of *source* as an Arrow batch; of their columns those of *names*, in that order.

    Raise `TimestampTooLargeError` of the first one that Spark cannot hold if it *is_for_spark*.
    """
    arrays = _packed_arrays(records) if isinstance(records, PackedRecords) else _arrays(records)
    columns = dict(zip(NAMES[2:], arrays, strict=True))
    schema = _schema_of(tuple(names), _TIMESTAMP if is_for_spark else _IN_MILLIS)
    if "timestamp" in names:
        columns["timestamp"] = _timestamps(columns["offset"], columns["timestamp"], schema.field("timestamp").type)
    for name, place in (("topic", source.topic), ("partition", source.partition)):
        if name in names:
            columns[name] = pa.repeat(pa.scalar(place, schema.field(name).type), len(records))
    return pa.RecordBatch.from_arrays([columns[name] for name in names], schema=schema)


def as_spark_takes(records: pa.Table, *, has_timestamps: bool) -> pa.Table:
    """
    Return *records*, whose timestamps are in milliseconds, for Spark; without timestamps if it is not to have them.

    Raise `TimestampTooLargeError` of the first one that it cannot hold.
    """
    stamps = pa.nulls(len(records), _TIMESTAMP)
    if has_timestamps:
        offsets, millis = (records.column(name).combine_chunks() for name in ("offset", "timestamp"))
        stamps = _timestamps(offsets, millis.cast(pa.int64()), _TIMESTAMP)
    return records.set_column(NAMES.index("timestamp"), ARROW.field("timestamp"), stamps)


@functools.cache
def _schema_of(names: tuple[str, ...], timestamps: pa.DataType) -> pa.Schema:
    fields = (ARROW.field(name) for name in names)
    return pa.schema([field.with_type(timestamps) if field.name == "timestamp" else field for field in fields])


#: All columns, with timestamps as they come.
ARROW_IN_MILLIS: Final = _schema_of(NAMES, _IN_MILLIS)


def _timestamps(offsets: pa.Array, millis: pa.Array, kind: pa.DataType) -> pa.Array:
    least = pc.min(millis).as_py()
    if least is not None and least < 0:
        millis = pc.if_else(pc.less(millis, _ZERO), pa.scalar(None, pa.int64()), millis)
    if kind == _IN_MILLIS:
        return millis.cast(kind)
    try:
        return pc.multiply_checked(millis, _TIMES_MICROS).cast(kind)
    except pa.ArrowInvalid:
        at = pc.index(pc.greater(millis, _MOST_MILLIS), value=True).as_py()
        raise TimestampTooLargeError(offsets[at].as_py(), millis[at].as_py()) from None


def _arrays(columns: RecordColumns) -> list[pa.Array]:
    """Return the columns from the offset on; timestamps in milliseconds, negative ones are none."""
    return [
        pa.array(columns.offsets, pa.int64()),
        pa.array(columns.timestamps, pa.int64()),
        pa.array(columns.timestamp_types, pa.int32()),
        pa.array(columns.keys, pa.binary()),
        pa.array(columns.values, pa.binary()),
        _headers_array(columns.headers),
    ]


def _packed_arrays(records: PackedRecords) -> list[pa.Array]:
    """Return the same of packed records, whose memory the arrays share."""

    def numbers(kind: pa.DataType, area: Area) -> pa.Array:
        return pa.Array.from_buffers(kind, records.count, [None, pa.py_buffer(area.owner)])

    def entries(kind: pa.DataType, column: PackedBytes, count: int) -> pa.Array:
        buffers = [pa.py_buffer(area.owner) for area in (column.valid, column.ends, column.data)]
        return pa.Array.from_buffers(kind, count, buffers, column.null_count)

    headers = pa.StructArray.from_arrays(
        [
            entries(pa.string(), records.header_keys, records.header_count),
            entries(pa.binary(), records.header_values, records.header_count),
        ],
        fields=list(_HEADER),
    )
    ends = pa.py_buffer(records.header_ends.owner)
    return [
        numbers(pa.int64(), records.offsets),
        numbers(pa.int64(), records.timestamps),
        numbers(pa.int32(), records.timestamp_types),
        entries(pa.binary(), records.keys, records.count),
        entries(pa.binary(), records.values, records.count),
        pa.Array.from_buffers(_HEADERS, records.count, [None, ends], children=[headers]),
    ]


def pack_arrow(batches: Sequence[pa.RecordBatch]) -> PackedRecords | None:
    """
    Return the rows of *batches*, which are records to be written, as compiled code takes them.

    None if they have nulls where records have none, or their offsets do not ascend.
    """
    columns = {name: _joined([batch.column(name) for batch in batches]) for name in _WRITTEN}
    offsets, headers = columns["offset"], columns["headers"]
    entries = headers.values
    if offsets.null_count or entries.null_count or entries.field(0).null_count:
        return None
    if not pc.all(pc.less(offsets.slice(0, len(offsets) - 1), offsets.slice(1)), min_count=0).as_py():
        return None
    stamps = columns["timestamp"]
    return PackedRecords(
        len(offsets),
        len(entries),
        _area(offsets, 1),
        _area(stamps, 1),
        Area(),
        _packed_bytes(columns["key"]),
        _packed_bytes(columns["value"]),
        _area(headers, 1),
        _packed_bytes(entries.field(0)),
        _packed_bytes(entries.field(1)),
        unit=_in_a_millisecond(stamps),
        has_timestamp=_validity(stamps),
        has_headers=_validity(headers),
    )


def _in_a_millisecond(stamps: pa.Array) -> int:
    return 1 if stamps.type == _IN_MILLIS else _MICROS


def _joined(chunks: list[pa.Array]) -> pa.Array:
    """Return *chunks* as one array that begins at the beginning of its memory."""
    # What is concatenated is copied, unless it is alone.
    is_copied = len(chunks) > 1 or chunks[0].offset
    return pa.concat_arrays([*chunks, chunks[0].slice(0, 0)]) if is_copied else chunks[0]


def _area(array: pa.Array, number: int) -> Area:
    buffer = array.buffers()[number]
    return Area() if buffer is None else Area(buffer.address, buffer)


def _validity(array: pa.Array) -> Area:
    return _area(array, 0) if array.null_count else Area()


def _packed_bytes(array: pa.Array) -> PackedBytes:
    data = _area(array, 2)
    size_bytes = len(data.owner) if data.owner is not None else 0
    return PackedBytes(_area(array, 1), data, _validity(array), size_bytes, array.null_count)


def _headers_array(all_headers: Sequence[Headers]) -> pa.Array:
    flat = list(chain.from_iterable(all_headers))
    offsets = [0, *accumulate(map(len, all_headers))] if flat else [0] * (len(all_headers) + 1)
    entries = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(_HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=_HEADERS)


def chunk_of(batch: pa.RecordBatch, source: TopicPartition) -> Chunk:
    """
    Return the rows of a batch, in order.

    They should be records of *source*; they are where the batch has no such columns.
    """
    return Chunk(
        batch.column("offset").to_pylist(),
        _millis(batch),
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        _headers_lists(batch.column("headers")),
        stray(batch, source),
    )


def stray(batch: pa.RecordBatch, source: TopicPartition) -> tuple[int, str] | None:
    """Find the first row whose topic or partition is not that of *source*."""
    found: list[tuple[int, str]] = []
    for name, wanted in (("topic", source.topic), ("partition", source.partition)):
        if name not in batch.schema.names:
            continue
        column = batch.column(name)
        same = pc.equal(column, pa.scalar(wanted, column.type)).fill_null(False)  # noqa: FBT003 - Arrow's own form
        at = pc.index(same, False).as_py()
        if at >= 0:
            found.append((at, name))
    return min(found, key=lambda one: one[0], default=None)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Return the rows of a batch that has the canonical columns, in order."""
    names = ("topic", "partition", "offset", "key", "value")
    topics, partitions, offsets, keys, values = (batch.column(name).to_pylist() for name in names)
    return map(Row, topics, partitions, offsets, _millis(batch), keys, values, _headers_lists(batch.column("headers")))


def _millis(batch: pa.RecordBatch) -> list[int]:
    stamps = batch.column("timestamp")
    unit = _in_a_millisecond(stamps)
    return [_NO_TIMESTAMP if stamp is None else stamp // unit for stamp in stamps.cast(pa.int64()).to_pylist()]


def _headers_lists(column: Any) -> list[Headers]:
    count = len(column)
    flat = column.flatten()
    if not len(flat):
        return [()] * count
    pairs = list(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    if len(pairs) == count and column.null_count == 0 and pc.all(pc.equal(column.value_lengths(), 1)).as_py():
        return [(pair,) for pair in pairs]
    found: list[Headers] = []
    at = 0
    for known in column.value_lengths().to_pylist():
        length = known or 0
        found.append(tuple(pairs[at : at + length]))
        at += length
    return found
