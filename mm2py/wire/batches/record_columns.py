"""
Decoded records, column by column.

Reading is aiokafka's compiled codec's work, as in `mm2py.wire.batches.rebuild`; building too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mm2py.wire.batches.batch import MAGIC_V2
from mm2py.wire.batches.codecs import compressed
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.readers import Readers
from mm2py.wire.batches.rebuild import UNDECODABLE, unreadable


Headers = tuple[tuple[str, bytes | None], ...]

_NO_TIMESTAMP: Final = -1
_UNCOMPRESSED: Final = 0
#: Batches of fewer records are taken record by record, others column by column.
_FEW: Final = 8


@attrs.define(repr=False)
class RecordColumns:
    """The records of an offset range of one partition, oldest first; `size_bytes` is the size of keys and values."""

    offsets: list[int] = attrs.field(factory=list)
    timestamps: list[int] = attrs.field(factory=list)
    #: 0 create time, 1 log append time.
    timestamp_types: list[int] = attrs.field(factory=list)
    keys: list[bytes | None] = attrs.field(factory=list)
    values: list[bytes | None] = attrs.field(factory=list)
    headers: list[Headers] = attrs.field(factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, record_set: bytes, *, from_offset: int, before: int) -> None:
        """
        Decode whole data batches and append their records from *from_offset* up to, and without, *before*.

        Raises `UnreadableBatchError`; what was added before stays.
        """
        readers = Readers(record_set, from_offset)
        try:
            for reader, _ in readers:
                self._add_batch(reader, from_offset, before)
        except UNDECODABLE as error:
            raise unreadable(readers.offset, error) from error

    def _add_batch(self, batch: Any, from_offset: int, before: int) -> None:
        kind = int(getattr(batch, "timestamp_type", None) or 0)
        records = list(batch)
        if len(records) < _FEW:
            self._add_few(records, kind, from_offset, before)
            return
        if not from_offset <= records[0].offset <= records[-1].offset < before:
            records = [record for record in records if from_offset <= record.offset < before]
        self.offsets += [record.offset for record in records]
        self.timestamps += [_NO_TIMESTAMP if (at := record.timestamp) is None else at for record in records]
        self.timestamp_types += [kind] * len(records)
        self.keys += [record.key for record in records]
        self.values += [record.value for record in records]
        self.headers += [tuple(headers) if (headers := record.headers) else () for record in records]

    def _add_few(self, records: list[Any], kind: int, from_offset: int, before: int) -> None:
        # Where each batch has one record, six lists made for each took three times as long as decoding it.
        for record in records:
            offset, timestamp, headers = record.offset, record.timestamp, record.headers
            if from_offset <= offset < before:
                self.offsets.append(offset)
                self.timestamps.append(_NO_TIMESTAMP if timestamp is None else timestamp)
                self.timestamp_types.append(kind)
                self.keys.append(record.key)
                self.values.append(record.value)
                self.headers.append(tuple(headers) if headers else ())


NewRecord = tuple[int, int, bytes | None, bytes | None, Headers]


def build(records: Iterable[NewRecord], *, codec: int, limit_bytes: int) -> list[Rebuilt]:
    """
    Put *records*, each (upstream offset, timestamp, key, value, headers), into batches of at most *limit_bytes* before
    compression, which is left out where it makes a batch larger.

    A single record may be larger. A batch is ready to be signed.
    """
    built: list[Rebuilt] = []
    builder: Any = None
    append: Any = None
    none: list[Any] = []
    runs: list[tuple[int, int, int]] = []
    start = index = count = 0
    expected = max_timestamp = -1

    def close() -> None:
        runs.append((start, index, count - index))
        batch = Rebuilt(memoryview(builder.build()), tuple(runs), count, max_timestamp)
        built.append(compressed(batch, codec))

    for upstream, timestamp, key, value, headers in records:
        listed = list(headers) if headers else none
        # aiokafka's builder takes the timestamp after ones of -1 for the first.
        if builder is not None and (
            max_timestamp == _NO_TIMESTAMP != timestamp or append(count, timestamp, key, value, listed) is None
        ):
            close()
            builder = None
        if builder is None:
            builder = DefaultRecordBatchBuilder(MAGIC_V2, _UNCOMPRESSED, 0, -1, -1, -1, limit_bytes)
            append = builder.append
            append(0, timestamp, key, value, listed)
            runs, start, index, count, max_timestamp = [], upstream, 0, 0, timestamp
        elif upstream != expected:
            runs.append((start, index, count - index))
            start, index = upstream, count
        max_timestamp = max(max_timestamp, timestamp)
        count += 1
        expected = upstream + 1
    if builder is not None:
        close()
    return built
