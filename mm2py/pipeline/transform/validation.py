"""
The rows of a range that may be written, one by one: those that are what they should be, after the steps.

The first row that will not do ends the range before it; Spark's input is read to its end all the same, or its worker
is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt
from typing import Any, Final

from mm2py.core.transform.steps import StepChain, StepFailedError, StepRecord
from mm2py.model.epoch import EpochPlan, PartitionFailure, PartitionPlan
from mm2py.model.transform import Errors
from mm2py.pipeline.transform.record import Chunk
from mm2py.pipeline.transform.results import HINT_FAILED, BadRecord
from mm2py.wire.batches.record_columns import NewRecord


_HINT_SHAPE: Final = "a transform may drop and change records, one by one; see mm2py docs transforms"
_HINT_PLACE: Final = (
    "leave topic and partition as they are: a source partition has one remote partition; see mm2py docs transforms for "
    "what to use instead"
)


def end_of(one: PartitionPlan) -> int:
    """Return the upstream offset after the range of *one*."""
    return one.until if one.until is not None else one.position


class Rows:
    """Takes the rows of one range. It reports the rows left out once all are taken."""

    def __init__(self, plan: EpochPlan, partition: PartitionPlan) -> None:
        self._plan = plan
        self._partition = partition
        self._end = end_of(partition)
        self._last_offset = partition.position - 1
        transform = plan.transform
        self._steps = StepChain(transform.steps if transform is not None else ())
        self._errors = transform.errors if transform is not None else Errors()
        #: Why the range ends early, None where it does not.
        self.failure: PartitionFailure | None = None
        #: The position once all that was given is acknowledged.
        self.done_until = self._end
        #: Records that steps do not take, where that is tolerated.
        self.left_out: list[BadRecord] = []

    def records(self, chunks: Iterable[Chunk]) -> Iterator[NewRecord]:
        """Return what is to be written of *chunks*."""
        for rows in self._sound(chunks):
            yield from self._stepped(rows) if self._steps else rows

    def _sound(self, chunks: Iterable[Chunk]) -> Iterator[Iterator[Any]]:
        for chunk in chunks:
            if self.failure is not None:
                continue
            sound = first_unsound(chunk, after=self._last_offset, before=self._end)
            columns = (chunk.offsets, chunk.timestamps, chunk.keys, chunk.values, chunk.headers)
            if sound:
                self._last_offset = chunk.offsets[sound - 1] or 0
            yield islice(zip(*columns, strict=True), sound)
            if sound < len(chunk) and self.failure is None:
                self._refuse(chunk, sound)

    def _stepped(self, rows: Iterable[NewRecord]) -> Iterator[NewRecord]:
        """Send records through the steps, as far as these take them; what they drop is left out."""
        source, apply = self._partition.source, self._steps.apply
        topic = self._plan.names_by_policy.get(source.topic, source.topic)
        for offset, timestamp, key, value, headers in rows:
            record = StepRecord(topic, source.partition, offset, timestamp, key, value, headers)
            try:
                if not apply(record):
                    yield offset, record.timestamp, record.key, record.value, record.headers
            except StepFailedError as failed:
                if not self._tolerates(offset, failed):
                    return

    def _tolerates(self, offset: int, failed: StepFailedError) -> bool:
        """Leave a record out that a step cannot take, or end the range before it."""
        if self._errors.are_tolerated:
            self.left_out.append(BadRecord(offset, failed.stage, failed.error, str(failed)))
            return True
        where = f"{self._plan.flow}, {self._partition.source}, offset {offset}, column {failed.column}"
        message = f"{where}: {failed.stage} fails: {failed.error}: {failed}"
        self.failure = PartitionFailure(message, HINT_FAILED, "TransformFailed", offset)
        self.done_until = offset
        return False

    def _refuse(self, chunk: Chunk, at: int) -> None:
        """End the range before the row *at*."""
        offset, column = chunk.offsets[at], "offset"
        what, hint = "the transform changes the column offset, or the order of the records", _HINT_SHAPE
        if chunk.stray is not None and chunk.stray[0] == at and self._is_next(offset):
            column = chunk.stray[1]
            what, hint = f"the transform changes the column {column}", _HINT_PLACE
        where = f"{self._plan.flow}, {self._partition.source}, offset {offset}, column {column}: {what}"
        self.failure = PartitionFailure(where, hint, "TransformRefused", offset)
        self.done_until = self._last_offset + 1

    def _is_next(self, offset: int | None) -> bool:
        return offset is not None and self._last_offset < offset < self._end


def first_unsound(chunk: Chunk, *, after: int, before: int) -> int:
    """
    Return how many of the first rows are what they should be.

    These are of the range's topic and partition, and their offsets ascend between *after* and *before*.
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
