"""Records as aiokafka's reader sees them, to hold our own ways of reading against."""

from __future__ import annotations

import attrs

from mm2py.wire.batches.readers import Readers
from mm2py.wire.batches.rebuild import NO_TIMESTAMP, UNDECODABLE, unreadable


@attrs.frozen
class RecordContent:
    """One record as a consumer sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def decode(record_set: bytes) -> list[RecordContent]:
    """Return the records of whole data batches, or of one message of magic 0 or 1. Raises `UnreadableBatchError`."""
    found: list[RecordContent] = []
    readers = Readers(record_set, -1)
    try:
        for reader, _ in readers:
            if reader.is_control_batch:
                continue
            for record in reader:
                timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
                found.append(RecordContent(record.offset, timestamp, record.key, record.value, tuple(record.headers)))
    except UNDECODABLE as error:
        raise unreadable(readers.offset, error) from error
    return found
