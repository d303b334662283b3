"""Offset translations as they are stored on the target, in the positions topic. They are written right before the
positions that depend on them, or with them. So after a crash everything before a position is known, and the resume
finds the records after it, one by one. Translations beyond the position do no harm: the resume finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mm2py.flow.offsets.translations import Change
from mm2py.model.flow import Flow
from mm2py.model.run_chunk import chunk_key, encode_chunk
from mm2py.wire.topic_log import LogRecord


def steps(flow: Flow, changes: Sequence[Change]) -> list[list[LogRecord]]:
    """Return what is to be written in order for *changes*: removals go first, so that they remove no newer chunks."""
    removed = records(flow, [change for change in changes if change.chunk is None])
    return [removed, records(flow, [change for change in changes if change.chunk is not None])]


def records(flow: Flow, changes: Iterable[Change]) -> list[LogRecord]:
    """Return the records for *changes*."""
    return [_record(flow, change) for change in changes]


def _record(flow: Flow, change: Change) -> LogRecord:
    key = chunk_key(flow.source, change.source, change.number)
    return LogRecord(key, None if change.chunk is None else encode_chunk(change.chunk, change.topic_id))
