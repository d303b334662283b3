"""
The rows of a stretch that may be written, one by one: those that are what they should be, behind the steps.

The first row that will not do ends the stretch before it; Spark's input is read to its end all the same, or its worker
is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat
from operator import lt
from typing import Any, Final

from mm2py.core.steps import StepChain, StepError, StepFailedError, StepRecord
from mm2py.model.epoch import EpochPlan, PartitionFailure, PartitionPlan
from mm2py.model.topic import is_topic_name
from mm2py.model.transform import Errors
from mm2py.pipeline.records.outcome import HINT_FAILED, BadRecord
from mm2py.pipeline.records.row import Chunk
from mm2py.wire.record_columns import NewRecord


_HINT_SHAPE: Final = "a transform may drop and change records, one by one; see docs/transforms.md"

#: Where a record goes: the name that routers make of its topic's, and a partition where that is not its own.
Way = tuple[str, int | None]


class Rows:
    """Takes the rows of one stretch. What became of those it did not give is told once all are taken."""

    def __init__(self, plan: EpochPlan, partition: PartitionPlan) -> None:
        self._plan = plan
        self._partition = partition
        self._end = partition.until if partition.until is not None else partition.position
        self._last_offset = partition.position - 1
        self._here = partition.source.topic, partition.source.partition
        self._transform = transform = plan.transform
        self._steps = StepChain(transform.steps if transform is not None else ())
        self._errors = transform.errors if transform is not None else Errors()
        #: Why the stretch ends early, None where it does not.
        self.failure: PartitionFailure | None = None
        #: The position once all that was given is acknowledged.
        self.done_until = self._end
        #: Records that steps do not take, where that is tolerated.
        self.left_out: list[BadRecord] = []

    def records(self, chunks: Iterable[Chunk]) -> Iterator[NewRecord]:
        """Give what is to be written of *chunks*."""
        for rows, _ in self._sound(chunks):
            yield from self._stepped(rows) if self._steps else rows

    def routed(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Way, NewRecord]]:
        """Give what is to be written of *chunks*, each record with where it goes."""
        for rows, places in self._sound(chunks):
            yield from self._sent(rows, repeat(self._here) if places is None else places)

    def _sound(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Iterator[Any], Sequence[tuple[str, int]] | None]]:
        for chunk in chunks:
            if self.failure is not None:
                continue
            sound = first_unsound(chunk, after=self._last_offset, before=self._end)
            columns = (chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers)
            if sound:
                self._last_offset = chunk.offsets[sound - 1] or 0
            yield islice(zip(*columns, strict=True), sound), chunk.places
            if sound < len(chunk) and self.failure is None:
                self._refuse(chunk, sound)

    def _stepped(self, rows: Iterable[NewRecord]) -> Iterator[NewRecord]:
        """Send records through the steps, as far as these take them; what they drop is left out."""
        source, apply = self._partition.source, self._steps.apply
        for offset, timestamp, key, value, headers in rows:
            record = StepRecord(source.topic, source.partition, offset, timestamp, key, value, headers)
            try:
                if not apply(record):
                    yield offset, record.timestamp, record.key, record.value, record.headers
            except StepFailedError as failed:
                if not self._tolerates(offset, failed):
                    return

    def _sent(self, rows: Iterable[NewRecord], places: Iterable[tuple[str, int]]) -> Iterator[tuple[Way, NewRecord]]:
        """Do so, and say where they go; a place that there cannot be is one that no step could take."""
        own, apply = self._partition.source.partition, self._steps.apply
        good: set[tuple[str, int]] = set()
        for (offset, timestamp, key, value, headers), (topic, number) in zip(rows, places, strict=False):
            record = StepRecord(topic, number, offset, timestamp, key, value, headers)
            try:
                if apply(record):
                    continue
                if (record.topic, number) not in good:
                    self._check_place(record.topic, number)
                    good.add((record.topic, number))
                way = record.topic, None if number == own else number
                yield way, (offset, record.timestamp, record.key, record.value, record.headers)
            except StepFailedError as failed:
                if not self._tolerates(offset, failed):
                    return

    def _check_place(self, topic: str, number: int) -> None:
        """Raise `StepFailedError` where no record can go there."""
        stage = self._transform.name if self._transform is not None and self._transform.routes else "transforms"
        if not is_topic_name(topic):
            column = "topic" if stage != "transforms" else "timestamp"
            raise StepFailedError(stage, StepError(f"no topic can be called {topic!r}", column))
        # Two stretches may not write to one partition with the transaction's one producer.
        if self._plan.transactions is not None and number != self._partition.source.partition:
            why = f"{number} is not the record's own: in exactly-once mode it keeps its partition"
            raise StepFailedError(stage, StepError(why, "partition"))

    def _tolerates(self, offset: int, failed: StepFailedError) -> bool:
        """Leave a record out that a step cannot take, or end the stretch before it."""
        if self._errors.are_tolerated:
            self.left_out.append(BadRecord(offset, failed.stage, failed.error, str(failed)))
            return True
        where = f"{self._plan.flow}, {self._partition.source}, offset {offset}, column {failed.column}"
        message = f"{where}: {failed.stage} fails: {failed.error}: {failed}"
        self.failure = PartitionFailure(message, HINT_FAILED, "TransformFailed", offset)
        self.done_until = offset
        return False

    def _refuse(self, chunk: Chunk, at: int) -> None:
        """End the stretch before the row *at*."""
        offset, column = chunk.offsets[at], "offset"
        what = "the transform changes the column offset, or the order of the records"
        if chunk.stray is not None and chunk.stray[0] == at and self._is_next(offset):
            column = chunk.stray[1]
            what = f"the transform changes the column {column}"
            if chunk.places is not None:
                what = f"the transform leaves no {column} to send the record to"
        where = f"{self._plan.flow}, {self._partition.source}, offset {offset}, column {column}: {what}"
        self.failure = PartitionFailure(where, _HINT_SHAPE, "TransformRefused", offset)
        self.done_until = self._last_offset + 1

    def _is_next(self, offset: int | None) -> bool:
        return offset is not None and self._last_offset < offset < self._end


def first_unsound(chunk: Chunk, *, after: int, before: int) -> int:
    """
    Say how many of the first rows are what they should be.

    These are of the stretch's topic and partition, and their offsets ascend between *after* and *before*.
    """
    offsets: Any = chunk.offsets
    sound = len(offsets) if chunk.stray is None else chunk.stray[0]
    if not sound:
        return 0
    # Row by row this took longer than all else that is done with a record here.
    if None not in offsets and after < offsets[0] and offsets[-1] < before and all(map(lt, offsets, offsets[1:])):
        return sound
    for at, offset in enumerate(offsets[:sound]):
        if offset is None or not after < offset < before:
            return at
        after = offset
    return sound
