"""
When positions are written: before a partition is copied for the first time, when they are due, and at the end.

With them goes what is known of where records went, never later than the position that rests on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from mm2py.connectors.context import SourceContext
from mm2py.connectors.offsets.translations import Translations, chunk_record
from mm2py.connectors.rounds import Rounds
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.connectors.source.positions import Positions
from mm2py.connectors.supervise import until_set
from mm2py.errors import Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk
from mm2py.model.state import WRITE_POSITIONS
from mm2py.pipeline.copy.refusals import failure_of
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.telemetry.events import PositionsWritten, TranslationsWritten
from mm2py.wire.topic_log import LogRecord


#: How often positions that are due are looked for.
_TICK_S = 1.0
#: The longest interval if other nodes copy a part of the flow: its owner translates groups' offsets by what they write.
_SHARED_INTERVAL_S = 10.0


class PositionWriter:
    """Writes the positions of one life of the source group; *logs* are the topics that have to be there meanwhile."""

    def __init__(
        self,
        context: SourceContext,
        tasks: SourceTasks,
        positions: Positions,
        translations: Translations,
        *,
        logs: Sequence[CompactedTopic],
        commits: Rounds | None = None,
    ) -> None:
        self._context = context
        self._clock = context.clock
        self._reach = context.reach
        self._target = [context.flow.target]
        self._positions = positions
        self._tasks = tasks
        self._translations = translations
        self._logs = logs
        self._commits = commits or Rounds(context.clock)
        #: What was decided of a broken history while something older is being written comes after that in the log.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Write what is due until cancelled."""
        interval_s = self._context.config.copying.offset_flush_interval_ms / 1000
        # Flows of a node start together. Each writes at a time of its own, or they would hold up all else together.
        written_at = self._clock.monotonic() - interval_s * self._context.jitter()
        while True:
            await until_set(self._tasks.ledger.has_unfenced, min(interval_s, _TICK_S))
            self._tasks.ledger.has_unfenced.clear()
            await self.fence()
            await self._look_at_logs()
            longest_s = interval_s if self._tasks.holders.is_alone else min(interval_s, _SHARED_INTERVAL_S)
            is_over = self._clock.monotonic() - written_at >= longest_s
            if await self.write(is_interval_over=is_over) and is_over:
                written_at = self._clock.monotonic()

    async def _look_at_logs(self) -> None:
        """Recreate and refill deleted topics, even if there is nothing to write."""
        for log in self._logs:
            if log.is_look_due:
                await self._reach.done(f"look at {log.topic}", self._target, log.look)

    async def fence(self) -> None:
        """Have partitions that cannot be planned before written down as they stand, each with a producer of its own."""
        async with self._turn:
            await self._fence()

    async def _fence(self) -> None:
        waiting = self._tasks.ledger.unfenced()
        if not waiting:
            return

        async def fence() -> Sequence[Position]:
            await self._positions.ready()
            try:
                return await self._positions.fence(waiting)
            except Mm2Error as error:
                self._tasks.ledger.note_unfenced(waiting, failure_of(error))
                raise

        fenced = await self._reach.once("begin positions", self._target, fence)
        for position in self._tasks.ledger.take_over(waiting, fenced or ()):
            # What another node has copied meanwhile, it has stored: this node would write over it what it knew before.
            remote_topic = self._tasks.ledger.states[position.source].remote_topic
            runs = self._positions.runs_of(position.source)
            self._translations.renew(position.source, runs, position, remote_topic)
        self._tasks.note_fenced(fenced or ())

    async def write(self, *, is_interval_over: bool) -> bool:
        """Write the positions that are due; say whether all of them are safe now."""
        async with self._turn:
            return await self._write(is_interval_over=is_interval_over)

    async def _write(self, *, is_interval_over: bool) -> bool:
        self._tasks.outcomes.measure()
        due = self._tasks.ledger.due_positions(is_interval_over=is_interval_over)
        # Translations are never older than the position: a resume finds the records after it.
        moved = {*(position.source for position in due), *self._tasks.ledger.take_committed()}
        changes = self._translations.take_changes(None if is_interval_over else sorted(moved))
        # What another node copies, that node writes; it may do so of what begins here and has no position yet.
        new = {change.source for change in changes if self._tasks.ledger.is_new(change.source)}
        self._translations.put_back(change for change in changes if change.source in new)
        changes = [it for it in changes if it.source not in new and self._positions.keeps(it.source)]
        if not due and not changes:
            self._reach.succeeded(WRITE_POSITIONS)
            if is_interval_over:
                self._commits.done(0.0)
            return True
        begun, is_written = self._clock.monotonic(), False
        before = self._records(changes)
        write = partial(self._positions.write, due, before)
        try:
            is_written = await self._reach.done(WRITE_POSITIONS, self._target, write)
        finally:
            if not is_written:
                self._translations.put_back(changes)
        if is_written:
            took_s = self._clock.monotonic() - begun
            self._commits.done(took_s)
            self._note(due, changes, before, took_s * 1000)
        else:
            self._commits.failed()
        return is_written

    async def start_over(
        self, positions: Collection[Position], broken: Collection[TopicPartition], cut: Collection[Position] = ()
    ) -> None:
        """
        Write *positions*, after removing what is kept of where records of *broken* ones went, and of *cut* ones from
        their positions on.

        Left beside the new position, it would translate offsets of the new copy to those of the former one.
        """
        async with self._turn:
            await self._start_over(positions, broken, cut)

    async def _start_over(
        self, positions: Collection[Position], broken: Collection[TopicPartition], cut: Collection[Position]
    ) -> None:
        for source in broken:
            self._translations.forget(source)
        for position in cut:
            self._translations.go_back(position)
        removed = self._translations.take_changes([*broken, *(position.source for position in cut)])
        try:
            await self._positions.write(positions, self._records(removed))
        except BaseException:
            self._translations.put_back(removed)
            raise

    def _records(self, changes: Iterable[KeptChunk]) -> list[list[LogRecord]]:
        """Return the records of *changes*, step by step: removals go first, so that they remove no newer chunks."""
        steps: list[list[LogRecord]] = [[], []]
        for change in changes:
            steps[change.chunk is not None].append(chunk_record(self._context.flow, change, self._context.config.name))
        return steps

    def _note(
        self,
        written: Sequence[Position],
        changes: Sequence[KeptChunk],
        before: Sequence[Sequence[LogRecord]],
        took_ms: float,
    ) -> None:
        flow, emit = self._context.flow, self._context.events.emit
        if changes:
            written_bytes = sum(len(record.value or b"") for step in before for record in step)
            emit(TranslationsWritten(flow, len(changes), written_bytes, took_ms))
        if written:
            self._tasks.ledger.note_written(written)
            emit(PositionsWritten(flow, len(written), took_ms))
