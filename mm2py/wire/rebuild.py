"""
The record path: what cannot travel unopened is decoded and built anew.

That is a batch with holes (compaction), one stamped with LogAppendTime (its records get the timestamp that a consumer
of the source sees, as CreateTime), magic 0 and 1, a start inside a batch, a batch larger than the target takes, and
small batches waiting in a backlog, which are put together. Decoding and building is aiokafka's compiled codec's work.
A built batch keeps the codec of the batches it was made from and carries no producer id yet; `batch.sign` gives it one.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords


_NO_TIMESTAMP: Final = -1


class UnreadableBatchError(ValueError):
    """A batch whose records cannot be decoded, although or because of its checksum."""

    def __init__(self, offset: int, detail: str) -> None:
        super().__init__(offset, detail)
        self.offset = offset
        self.detail = detail


@attrs.frozen
class Rebuilt:
    """
    A batch ready to be signed.

    `runs` are (upstream offset of the first record, its index in the batch, number of records) of each stretch of
    consecutive upstream offsets.
    """

    batch: memoryview
    runs: tuple[tuple[int, int, int], ...]
    record_count: int
    max_timestamp: int

    @property
    def first_upstream(self) -> int:
        return self.runs[0][0]

    @property
    def last_upstream(self) -> int:
        upstream, _, length = self.runs[-1]
        return upstream + length - 1


class Rebuilder:
    """
    Puts records into new batches of at most *limit_bytes* before compression; a single record may be larger.

    Give it whole data batches in log order with `add`, take the result with `finish`.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._built: list[Rebuilt] = []
        self._codec = -1
        self._builder: Any = None
        self._add: Any = None
        self._count = 0
        self._runs: list[tuple[int, int, int]] = []
        self._run_start = 0
        self._run_index = 0
        self._expected = -1
        self._max_timestamp = _NO_TIMESTAMP

    def add(self, record_set: bytes, *, from_offset: int = 0) -> None:
        """
        Decode *record_set* and append its records from upstream offset *from_offset* on.

        Raises `UnreadableBatchError`; what was added before stays.
        """
        records = MemoryRecords(record_set)
        base_offset = from_offset
        try:
            while records.has_next():
                batch = records.next_batch()
                _check_crc(batch, from_offset)
                if batch.compression_type != self._codec:
                    self._close_batch()
                    self._codec = batch.compression_type
                base_offset = _base_of(batch, from_offset)
                self._append_all(batch, from_offset)
        except UnreadableBatchError:
            raise
        except (CorruptRecordException, ValueError, IndexError, RuntimeError) as error:
            raise UnreadableBatchError(base_offset, str(error)) from error

    def _append_all(self, batch: Any, from_offset: int) -> None:
        # This runs once per record of a backlog of one-record batches: hence the plain comparisons and few calls.
        for record in batch:
            offset = record.offset
            if offset < from_offset:
                continue
            timestamp = record.timestamp
            if timestamp is None:
                timestamp = _NO_TIMESTAMP
            count = self._count
            if not count or self._add(count, timestamp, record.key, record.value, record.headers) is None:
                self._start_batch(offset, timestamp, record)
                continue
            if offset != self._expected:
                self._runs.append((self._run_start, self._run_index, count - self._run_index))
                self._run_start, self._run_index = offset, count
            if timestamp > self._max_timestamp:  # noqa: PLR1730 - max() costs a call per record
                self._max_timestamp = timestamp
            self._count = count + 1
            self._expected = offset + 1

    def _start_batch(self, offset: int, timestamp: int, record: Any) -> None:
        self._close_batch()
        self._builder = DefaultRecordBatchBuilder(2, self._codec, 0, -1, -1, -1, self._limit_bytes)
        self._add = self._builder.append
        self._add(0, timestamp, record.key, record.value, record.headers)
        self._run_start, self._run_index = offset, 0
        self._max_timestamp = timestamp
        self._count, self._expected = 1, offset + 1

    def _close_batch(self) -> None:
        if self._builder is None:
            return
        self._runs.append((self._run_start, self._run_index, self._count - self._run_index))
        batch = memoryview(self._builder.build())
        self._built.append(Rebuilt(batch, tuple(self._runs), self._count, self._max_timestamp))
        self._builder, self._count, self._runs = None, 0, []

    def finish(self) -> list[Rebuilt]:
        """Give the batches built, in order, and start over."""
        self._close_batch()
        built, self._built = self._built, []
        return built


def _check_crc(batch: Any, offset: int) -> None:
    if not batch.validate_crc():
        raise UnreadableBatchError(_base_of(batch, offset), "its checksum does not match its content")


def _base_of(batch: Any, otherwise: int) -> int:
    """Give the batch's base offset; aiokafka does not tell it for magic 0 and 1."""
    return int(getattr(batch, "base_offset", otherwise))


@attrs.frozen
class RecordContent:
    """One record as a consumer sees it, to compare two sides with."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def matches(self, other: RecordContent, *, ignore_timestamp: bool = False) -> bool:
        """Say whether both hold the same, wherever they lie."""
        if not ignore_timestamp and self.timestamp != other.timestamp:
            return False
        return (self.key, self.value, self.headers) == (other.key, other.value, other.headers)


def decode(record_set: bytes) -> list[RecordContent]:
    """Give the records of whole data batches. Raises `UnreadableBatchError`."""
    found: list[RecordContent] = []
    records = MemoryRecords(record_set)
    while records.has_next():
        batch = records.next_batch()
        _check_crc(batch, -1)
        if batch.is_control_batch:
            continue
        try:
            for record in batch:
                timestamp = _NO_TIMESTAMP if record.timestamp is None else record.timestamp
                found.append(RecordContent(record.offset, timestamp, record.key, record.value, tuple(record.headers)))
        except (CorruptRecordException, ValueError, IndexError, RuntimeError) as error:
            raise UnreadableBatchError(_base_of(batch, -1), str(error)) from error
    return found
