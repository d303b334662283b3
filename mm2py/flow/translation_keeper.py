"""
Keeping on the target what is known of where records went.

It is written into the positions topic: what has changed at every flush of positions, and at the end. A crash loses
nothing of it. What was copied after the last write lies behind a position that is no newer, or not much; so the resume
finds those records again one by one, or what lies between counts as unknown.
"""

from __future__ import annotations

from mm2py.flow.group import Surroundings
from mm2py.flow.source_group import SourceLife
from mm2py.flow.translation import Change, Translations
from mm2py.model.run_chunk import chunk_key, encode_chunk
from mm2py.telemetry.events import TranslationsWritten
from mm2py.wire.topic_log import LogRecord, TopicLog


class TranslationKeeper:
    """Writes what is known of where records went into the positions topic, beside copying."""

    name = "translations"

    def __init__(self, around: Surroundings, translations: Translations, life: SourceLife) -> None:
        self._settings = around.settings
        self._reach = around.reach
        self._clock = around.clock
        self._events = around.events
        self._translations = translations
        self._log = TopicLog(life.target, around.settings.offset_storage_topic)

    async def run(self) -> None:
        """Write at every flush of positions what has changed."""
        while True:
            await self._clock.sleep(self._settings.offset_flush_interval_ms / 1000)
            await self._write_once()

    async def finish(self) -> None:
        """Write what the last epochs brought."""
        await self._write_once()

    async def _write_once(self) -> None:
        changes = self._translations.take_changes()
        if not changes:
            return
        begun = self._clock.monotonic()
        records = [self._record(change) for change in changes]
        is_written = False

        async def attempt() -> bool:
            await self._log.append([record for record in records if record.value is None])
            await self._log.append([record for record in records if record.value is not None])
            return True

        try:
            is_written = bool(await self._reach.once("write translations", [self._settings.flow.target], attempt))
        finally:
            if not is_written:
                self._translations.put_back(changes)
        if is_written:
            took_ms = (self._clock.monotonic() - begun) * 1000
            written_bytes = sum(len(record.value or b"") for record in records)
            self._events.emit(
                TranslationsWritten(self._settings.flow, len(changes), written_bytes, self._translations.runs, took_ms)
            )

    def _record(self, change: Change) -> LogRecord:
        key = chunk_key(self._settings.flow.source, change.source, change.number)
        return LogRecord(key, None if change.chunk is None else encode_chunk(change.chunk, change.topic_id))
