"""
The record path: batches that cannot travel unopened are decoded and rebuilt.

That is a batch with holes (compaction), one stamped with LogAppendTime (its records get the timestamp that a consumer
of the source sees, as CreateTime), magic 0 and 1, a start inside a batch, a batch larger than the target takes, and
small batches waiting in a backlog, which are merged. That is the work of `merging`, which makes no objects of records;
what it does not take, aiokafka's codec decodes and builds. A built batch keeps the codec of the batches it was made
from and carries no producer id yet; `batch.sign` gives it one.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, Final

import attrs
import cramjam
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mm2py.wire.batches import merging, native
from mm2py.wire.batches.batch import CODEC_MASK, MAGIC_V2, batches
from mm2py.wire.batches.codecs import BAD_CHECKSUM, OverfullError, compressed, plain
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.readers import Readers


NO_TIMESTAMP: Final = -1

_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22
_UNCOMPRESSED: Final = 0
MALFORMED: Final = "its records are not what its header says"
#: How many bytes without compression are put together at a time.
_MOST_TOGETHER: Final = 64 * 1024 * 1024

#: What aiokafka's codec and the libraries below it raise at records that are not what their header says. aiokafka's
#: own errors are `RuntimeError`s; `SystemError` comes from its reader of magic 0 and 1, before a checksum is verified;
#: `MemoryError` from a length that no memory has.
UNDECODABLE: Final = (
    ValueError,
    IndexError,
    RuntimeError,
    OSError,
    EOFError,
    AssertionError,
    SystemError,
    MemoryError,
    OverflowError,
    struct.error,
    zlib.error,
    cramjam.DecompressionError,
)


class UnreadableBatchError(ValueError):
    """A batch whose records cannot be decoded, although or because of its checksum."""

    def __init__(self, offset: int, detail: str) -> None:
        super().__init__(offset, detail)
        self.offset = offset
        self.detail = detail


class UnreadableNameError(UnreadableBatchError):
    """A batch with a header whose name is not UTF-8: brokers take those, aiokafka's reader does not."""


class TooLargeTogetherError(Exception):
    """Batches that are small only while they are compressed; what was made of them so far is to be dropped."""


def unreadable(offset: int, error: BaseException) -> UnreadableBatchError:
    """Return *error*, one of `UNDECODABLE`, as one of ours."""
    if isinstance(error, UnicodeDecodeError):
        return UnreadableNameError(offset, f"the name of a header is not UTF-8: {error}")
    return UnreadableBatchError(offset, str(error) or MALFORMED)


@attrs.define
class _Open:
    """The batch being filled: its builder's `append`, and what is known of its records."""

    builder: Any
    append: Any
    codec: int
    run_start: int
    run_index: int
    max_timestamp: int
    count: int = 1
    runs: list[tuple[int, int, int]] = attrs.field(factory=list)

    def break_run(self, offset: int, count: int) -> None:
        """Note that the record at index *count* has an upstream offset that does not follow."""
        self.runs.append((self.run_start, self.run_index, count - self.run_index))
        self.run_start, self.run_index = offset, count

    def close(self) -> Rebuilt:
        self.runs.append((self.run_start, self.run_index, self.count - self.run_index))
        built = Rebuilt(memoryview(self.builder.build()), tuple(self.runs), self.count, self.max_timestamp)
        return compressed(built, self.codec)


class Rebuilder:
    """
    Puts records into new batches of at most *limit_bytes* before compression; a single record may be larger.

    They have the codec of what they are made from, or *codec*. Give it whole data batches in log order with `add`, take
    the result with `finish`. Messages of magic 0 and 1 are given one by one: aiokafka's reader does not take a mixed
    record set apart.
    """

    def __init__(self, limit_bytes: int, codec: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        self._wanted_codec = codec
        self._built: list[Rebuilt] = []
        self._codec = -1
        self._open: _Open | None = None
        self._expected = -1

    def add(self, record_set: bytes | memoryview, *, from_offset: int = 0) -> None:
        """
        Decode *record_set* and append its records from upstream offset *from_offset* on.

        Raises `UnreadableBatchError`; what was added before stays. Raises `TooLargeTogetherError` for several batches
        that had better stay as they are.
        """
        if self._open is None and self._merge(record_set, from_offset):
            return
        readers = Readers(record_set, from_offset)
        try:
            for reader, codec in readers:
                self._append_all(reader, codec, from_offset)
        except UNDECODABLE as error:
            _leave_alone(record_set, error)
            raise unreadable(readers.offset, error) from error

    def _merge(self, record_set: bytes | memoryview, from_offset: int) -> bool:
        """Whether compiled code has put the records into batches."""
        if native.library() is None or record_set[_MAGIC_AT] != MAGIC_V2:
            return False
        codec, failure = record_set[_ATTRIBUTES_AT] & CODEC_MASK, None
        if codec:
            opened = _decompressed(memoryview(record_set), codec)
            if opened is None:
                return False
            record_set, failure = opened
        merged = merging.merge(record_set, from_offset, self._limit_bytes)
        if merged is None:
            return False
        wanted = codec if self._wanted_codec is None else self._wanted_codec
        self._built += [compressed(built, wanted) for built in merged.batches]
        if merged.unreadable_at is not None:
            detail = BAD_CHECKSUM if merged.is_checksum_wrong else MALFORMED
            raise UnreadableBatchError(merged.unreadable_at, detail)
        if failure is not None:
            raise failure
        return True

    def _append_all(self, batch: Any, codec: int, from_offset: int) -> None:
        # This runs for every record of a backlog of one-record batches: hence the plain comparisons and few calls.
        filling = self._open
        if self._wanted_codec is not None:
            codec = self._wanted_codec
        if codec != self._codec:
            self._close_batch()
            self._codec, filling = codec, None
        expected = self._expected
        for record in batch:
            offset = record.offset
            if offset < from_offset:
                continue
            timestamp = record.timestamp
            if timestamp is None:
                timestamp = NO_TIMESTAMP
            # aiokafka's builder takes the timestamp after ones of -1 for the first.
            if filling is None or filling.max_timestamp == NO_TIMESTAMP != timestamp:
                filling = self._start_batch(offset, timestamp, record)
            else:
                count = filling.count
                if filling.append(count, timestamp, record.key, record.value, record.headers) is None:
                    filling = self._start_batch(offset, timestamp, record)
                else:
                    if offset != expected:
                        filling.break_run(offset, count)
                    if timestamp > filling.max_timestamp:  # noqa: PLR1730 - max() costs a call per record
                        filling.max_timestamp = timestamp
                    filling.count = count + 1
            expected = offset + 1
        self._expected = expected

    def _start_batch(self, offset: int, timestamp: int, record: Any) -> _Open:
        self._close_batch()
        # aiokafka's builder keeps records compressed even where that makes them larger, and more than the limit.
        builder = DefaultRecordBatchBuilder(MAGIC_V2, _UNCOMPRESSED, 0, -1, -1, -1, self._limit_bytes)
        builder.append(0, timestamp, record.key, record.value, record.headers)
        self._open = _Open(builder, builder.append, self._codec, offset, 0, timestamp)
        return self._open

    def _close_batch(self) -> None:
        if self._open is not None:
            self._built.append(self._open.close())
            self._open = None

    def finish(self) -> list[Rebuilt]:
        """Return the batches built, in order, and start over."""
        self._close_batch()
        built, self._built = self._built, []
        return built


def _leave_alone(record_set: bytes | memoryview, error: BaseException) -> None:
    """Raise `TooLargeTogetherError` if *error* is of one of several batches that need not be opened."""
    if isinstance(error, OverfullError) and next(batches(memoryview(record_set))).size_bytes < len(record_set):
        raise TooLargeTogetherError from error


def _decompressed(record_set: memoryview, codec: int) -> tuple[bytes | memoryview, UnreadableBatchError | None] | None:
    """
    Return the batches of a record set without compression, up to one that cannot be read, and what is wrong with that.

    None if not all have *codec*. Raises `TooLargeTogetherError`.
    """
    parts: list[bytearray | memoryview] = []
    failure, size = None, 0
    for batch in batches(record_set):
        if batch.magic != MAGIC_V2 or batch.codec != codec:
            return None
        try:
            parts.append(opened := plain(batch))
            size += len(opened)
        except UNDECODABLE as error:
            _leave_alone(record_set, error)
            failure = unreadable(batch.base_offset, error)
            break
        if size > _MOST_TOGETHER and len(parts) > 1:
            raise TooLargeTogetherError
    # A single batch, which may be large without compression, is not copied once more.
    return memoryview(parts[0]) if len(parts) == 1 else b"".join(parts), failure
