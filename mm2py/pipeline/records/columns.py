"""
Records as columns: what a transform sees, and what it must give back.

The columns are those of Spark's own Kafka connector, with the headers as an array and timestamps in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from mm2py.pipeline.records.row import Row
from mm2py.wire.record_columns import Headers, RecordColumns


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
_MICROS: Final = 1000


def to_arrow(topic: str, partition: int, columns: RecordColumns) -> pa.RecordBatch:
    """Give records of one partition as an Arrow batch."""
    count = len(columns.offsets)
    millis = pa.array([None if at < 0 else at * _MICROS for at in columns.timestamps], pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(topic), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            pa.array(columns.offsets, pa.int64()),
            millis.cast(_TIMESTAMP),
            pa.array(columns.timestamp_types, pa.int32()),
            pa.array(columns.keys, pa.binary()),
            pa.array(columns.values, pa.binary()),
            _headers_array(columns.headers),
        ],
        schema=ARROW,
    )


def _headers_array(all_headers: Sequence[Headers]) -> pa.Array:
    lengths = [len(headers) for headers in all_headers]
    offsets, at = [0], 0
    for length in lengths:
        at += length
        offsets.append(at)
    flat = [header for headers in all_headers for header in headers] if at else []
    entries = pa.StructArray.from_arrays(
        [pa.array([key for key, _ in flat], pa.string()), pa.array([value for _, value in flat], pa.binary())],
        fields=list(_HEADER),
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=_HEADERS)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Give the rows of a batch that has the canonical columns, in order."""
    topics, partitions, offsets = (batch.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    headers = _headers_lists(batch.column("headers"))
    for topic, partition, offset, stamp, key, value, own in zip(
        topics, partitions, offsets, stamps, keys, values, headers, strict=True
    ):
        yield Row(topic, partition, offset, -1 if stamp is None else stamp // _MICROS, key, value, own)


def _headers_lists(column: Any) -> list[Headers]:
    count = len(column)
    flat = column.flatten()
    if not len(flat):
        return [()] * count
    pairs = list(zip(flat.field(0).to_pylist(), flat.field(1).to_pylist(), strict=True))
    found: list[Headers] = []
    at = 0
    for told in column.value_lengths().to_pylist():
        length = told or 0
        found.append(tuple(pairs[at : at + length]))
        at += length
    return found
