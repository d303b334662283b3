"""Storing offset translations on the target, in the positions topic. They are written right before the positions that
depend on them. So after a crash everything before a position is known, and the resume finds the records after it, one
by one. Translations beyond the position do no harm: the resume finds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.flow.offsets.translations import Change
from mm2py.model.run_chunk import chunk_key, encode_chunk
from mm2py.telemetry.events import TranslationsWritten
from mm2py.telemetry.journal import EventLog
from mm2py.wire.topic_log import LogRecord, TopicLog


class TranslationKeeper:
    """Writes the chunks of a flow's indexes to *log*, the positions topic."""

    def __init__(self, settings: FlowSettings, log: TopicLog, *, clock: Clock, events: EventLog) -> None:
        self._flow = settings.flow
        self._clock = clock
        self._events = events
        self._log = log

    async def write(self, changes: Sequence[Change]) -> None:
        """Write *changes* and wait until they are safe; removals go first, so that they do not remove newer chunks."""
        if not changes:
            return
        begun = self._clock.monotonic()
        removed = self.records([change for change in changes if change.chunk is None])
        kept = self.records([change for change in changes if change.chunk is not None])
        await self._log.append(removed)
        await self._log.append(kept)
        written_bytes = sum(len(record.value or b"") for record in kept)
        took_ms = (self._clock.monotonic() - begun) * 1000
        self._events.emit(TranslationsWritten(self._flow, len(changes), written_bytes, took_ms))

    def records(self, changes: Iterable[Change]) -> list[LogRecord]:
        """Return the records for *changes*."""
        return [self._record(change) for change in changes]

    def _record(self, change: Change) -> LogRecord:
        key = chunk_key(self._flow.source, change.source, change.number)
        return LogRecord(key, None if change.chunk is None else encode_chunk(change.chunk, change.topic_id))
