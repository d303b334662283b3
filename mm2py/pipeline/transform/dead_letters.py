"""
Records that a transform could not take: an event each, and kept on the target cluster as they came from the source.

Connect has such a topic for its sinks alone (KIP-298); the names of settings and headers are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.model.epoch import EpochPlan, PartitionFailure, PartitionPlan
from mm2py.model.transform import Errors
from mm2py.pipeline.copy.refusals import failure_of
from mm2py.pipeline.transform.read import RangeReader
from mm2py.pipeline.transform.results import BadRecord
from mm2py.telemetry.events import RecordLeftOut
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog


_PREFIX: Final = "__connect.errors."
_CONNECTOR: Final = "MirrorSourceConnector"
_READ_WITHIN_S: Final = 10.0
_HINT: Final = "check that topic, its max.message.bytes for example; it is tried again by itself"


class DeadLetters:
    """The records of one flow that are left out, and their topic if there is one."""

    def __init__(self, source: Cluster, target: Cluster, errors: Errors, clock: Clock, events: EventLog) -> None:
        self._source = source
        self.log = TopicLog(target, errors.dead_letters)
        self._errors = errors
        self._clock = clock
        self._events = events

    @property
    def are_kept(self) -> bool:
        """Whether there is a topic for them."""
        return bool(self._errors.dead_letters)

    def report(self, plan: EpochPlan, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> None:
        """Emit an event for each of *bad_records*."""
        for bad in bad_records:
            reason = f"{bad.error}: {bad.message}"
            topic = self._errors.dead_letters
            self._events.emit(RecordLeftOut(plan.flow, one.source, bad.offset, bad.stage, reason, topic))

    def failure(self, plan: EpochPlan, error: Mm2Error) -> PartitionFailure:
        """Return why they cannot be written, in words for the operator."""
        found = failure_of(error, (plan.source, plan.target))
        message = f"dead letters cannot be written to {self.log.topic}: {found.message}"
        return attrs.evolve(found, message=message, hint=found.hint or _HINT)

    async def write(self, plan: EpochPlan, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> None:
        """Write *bad_records* of a partition, at least once, and wait until they are safe."""
        await self.log.append(await self.collect(plan, one, bad_records))

    async def collect(self, plan: EpochPlan, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> list[LogRecord]:
        """Return what is to be written of *bad_records* to the topic, which is there then."""
        await self.ensure()
        return [letter for bad in bad_records for letter in await self._letters(plan, one, bad)]

    async def ensure(self) -> None:
        """Create the topic if it is missing. Raise `TooFewBrokersError`."""
        await self.log.create(
            1,
            self._errors.dead_letters_factor,
            setting="errors.deadletterqueue.topic.replication.factor",
            configs={"cleanup.policy": "delete"},
        )

    async def _letters(self, plan: EpochPlan, one: PartitionPlan, bad: BadRecord) -> list[LogRecord]:
        reader = RangeReader(self._source, plan.limits, self._clock, within_s=_READ_WITHIN_S)
        found: list[LogRecord] = []
        async for columns in reader.read(attrs.evolve(one, position=bad.offset, until=bad.offset + 1)):
            context = self._context(plan, one, bad) if self._errors.with_context else ()
            for at in range(len(columns)):
                stamp = columns.timestamps[at]
                found.append(
                    LogRecord(
                        columns.keys[at],
                        columns.values[at],
                        (*columns.headers[at], *context),
                        partition=0,
                        timestamp_ms=stamp if stamp >= 0 else None,
                    )
                )
        return found

    @staticmethod
    def _context(plan: EpochPlan, one: PartitionPlan, bad: BadRecord) -> tuple[tuple[str, bytes | None], ...]:
        """Return Connect's headers (DeadLetterQueueReporter) about a record."""
        facts = {
            "topic": one.source.topic,
            "partition": str(one.source.partition),
            "offset": str(bad.offset),
            "connector.name": f"{plan.flow} {_CONNECTOR}",
            "task.id": str(plan.task),
            "stage": "TRANSFORMATION",
            "class.name": bad.stage,
            "exception.class.name": bad.error,
            "exception.message": bad.message,
        }
        return tuple((_PREFIX + name, fact.encode()) for name, fact in facts.items())
