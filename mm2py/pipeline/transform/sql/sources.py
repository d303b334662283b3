"""
Spark's side of the record pipeline: a source that reads stretches of partitions, and a sink that writes them.

One micro-batch is one epoch of a record task. Its offset is nothing but the number of the plan in the mailbox: where a
partition stands is known by the daemon alone, so that Spark's own checkpoint may be lost with the query. Each
topic-partition of the plan is one Spark partition, from the source to the sink.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error, Verdict
from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.spark.worker import refuse_repetition, this_worker, uncollected
from mm2py.pipeline.transform.columns import SCHEMA_TYPES, chunk_of, to_arrow
from mm2py.pipeline.transform.mailbox import Mailbox
from mm2py.pipeline.transform.read import READ_WITHIN_S, RangeReader
from mm2py.pipeline.transform.record import Chunk
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.sql.arrow_end import InputCutOffError, inputs
from mm2py.pipeline.transform.write import RangeWriter


SOURCE: Final = "mm2py-records"
SINK: Final = "mm2py-target"
FOLDER: Final = "folder"
COLUMNS: Final = "columns"
_EPOCH: Final = "epoch"
_POLL_S: Final = 0.01


@attrs.define(eq=False)
class PlanMissingError(Mm2Error):
    """Spark asked for a plan that the daemon has not made, or not any more."""

    verdict = Verdict.RESTART_TASK

    number: int

    def __str__(self) -> str:
        return f"there is no plan {self.number} of records"


class _Stretch(InputPartition):
    """One topic-partition's part of a plan, sealed as a plan of its own."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(None)
        self.payload = payload


def _offset_ranges(folder: str, number: int) -> list[InputPartition]:
    found = Mailbox(folder).plan()
    if found is None or found[0] != number:
        raise PlanMissingError(number)
    count, payloads = unpack_payloads(found[1])
    return [_Stretch(payload) for payload in payloads[:count]]


def pack_payloads(payloads: Sequence[bytes]) -> bytes:
    """Put the sealed plans of single partitions one behind the other."""
    head = len(payloads).to_bytes(4, "big")
    return head + b"".join(len(payload).to_bytes(4, "big") + payload for payload in payloads)


def unpack_payloads(packed: bytes) -> tuple[int, list[bytes]]:
    """Return them back."""
    count = int.from_bytes(packed[:4], "big")
    payloads, at = [], 4
    for _ in range(count):
        size = int.from_bytes(packed[at : at + 4], "big")
        payloads.append(packed[at + 4 : at + 4 + size])
        at += 4 + size
    return count, payloads


def _read(partition: InputPartition, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Stretch)  # noqa: S101 - we made it
    plan = unseal(partition.payload)
    here, clock = this_worker(), SystemClock()
    (one,) = plan.partitions
    cluster = here.state.cluster(plan.source, clock)
    reader = RangeReader(cluster, plan.limits, clock, within_s=READ_WITHIN_S)
    offset_range = reader.read(one)
    while (columns := here.run(anext(offset_range, None))) is not None:
        yield to_arrow(one.source.topic, one.source.partition, columns, names)


class RecordSource(DataSource):
    """Records of the partitions in a plan, of which it reads the columns that it is asked for."""

    @classmethod
    def name(cls) -> str:
        return SOURCE

    @property
    def _names(self) -> list[str]:
        return str(self.options[COLUMNS]).split(",")

    def schema(self) -> str:
        return ", ".join(f"{name} {SCHEMA_TYPES[name]}" for name in self._names)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return _StreamReader(str(self.options[FOLDER]), self._names)


class _StreamReader(DataSourceStreamReader):
    def __init__(self, folder: str, names: list[str]) -> None:
        self._folder = folder
        self._names = names

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {_EPOCH: 0}

    def latestOffset(self) -> dict[str, int]:  # noqa: N802
        """Wait for a plan; Spark ends this process where the query is stopped, unless Spark itself was killed."""
        mailbox, clock, spark = Mailbox(self._folder), SystemClock(), os.getppid()
        seen = getattr(self, "_seen", 0)
        with asyncio.Runner() as runner:
            while (number := mailbox.number()) <= seen:
                if os.getppid() != spark:
                    sys.exit("Spark is gone")
                runner.run(clock.sleep(_POLL_S))
        self._seen = number
        return {_EPOCH: number}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _offset_ranges(self._folder, end[_EPOCH])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._names)


class RecordSink(DataSource):
    """The remote topics of the partitions in a plan."""

    @classmethod
    def name(cls) -> str:
        return SINK

    def streamWriter(self, schema: Any, overwrite: bool) -> _StreamWriter:  # noqa: N802, FBT001 - Spark's form
        folder = str(self.options[FOLDER])
        found = Mailbox(folder).plan()
        if found is None:
            raise PlanMissingError(0)
        return _StreamWriter(folder, found[0], unpack_payloads(found[1])[1])


@attrs.frozen
class _Message(WriterCommitMessage):
    outcome: RangeOutcome


async def _write(
    plan: EpochPlan, one: PartitionPlan, batches: Iterator[pa.RecordBatch], state: WorkerState
) -> RangeOutcome:
    return await RangeWriter(plan, one, state, SystemClock()).write(_chunks(batches, one))


def _chunks(batches: Iterator[pa.RecordBatch], one: PartitionPlan) -> Iterator[Chunk]:
    """Return all rows. Raise `InputCutOffError` where it is not certain that these are all."""
    whole_before = inputs.count
    for batch in batches:
        yield chunk_of(batch, one.source)
    if inputs.count == whole_before:
        raise InputCutOffError


class _StreamWriter(DataSourceStreamArrowWriter):
    """Made again for each micro-batch, where the plan is; then sent to its tasks."""

    def __init__(self, folder: str, number: int, payloads: list[bytes]) -> None:
        self._folder = folder
        self._number = number
        self._payloads = payloads

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Spark unpickles this in the worker before it opens the task's input.
        self.__dict__.update(state)
        inputs.watch()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        place = context.partitionId() if context is not None else 0
        plan: EpochPlan = unseal(self._payloads[place])
        refuse_repetition(plan, context)
        (one,) = plan.partitions
        here = this_worker()
        with uncollected():
            outcome = here.run(_write(plan, one, iterator, here.state))
        Mailbox(self._folder).note(self._number, one.source, outcome)
        return _Message(outcome)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self._tell(messages, is_whole=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._tell(messages, is_whole=False)

    def _tell(self, messages: list[WriterCommitMessage | None], *, is_whole: bool) -> None:
        told = [message.outcome for message in messages if isinstance(message, _Message)]
        Mailbox(self._folder).answer(self._number, told, is_whole=is_whole)
