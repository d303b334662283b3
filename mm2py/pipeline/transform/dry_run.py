"""
A transform tried on a few records of a topic: what it makes of them, and nothing is written.

Everything but the sink is what a flow runs: the same reader, the same checks, the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

import attrs
import pyarrow as pa

from mm2py.clock import Clock
from mm2py.config.connector import MirrorSourceConfig
from mm2py.core.transform.steps import StepChain, StepFailedError, StepRecord
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import JOB_FAILED, SparkHost
from mm2py.pipeline.transform.columns import TimestampTooLargeError, as_spark_takes, rows_of
from mm2py.pipeline.transform.failures import TransformFailedError, raised_in, unreadable_in
from mm2py.pipeline.transform.find_bad_record import table_of
from mm2py.pipeline.transform.jobs import MICRO_BATCH_SLACK_S
from mm2py.pipeline.transform.read import RangeReader
from mm2py.pipeline.transform.record import Row
from mm2py.pipeline.transform.sql import dataframe as frames
from mm2py.pipeline.transform.sql.column_pruning import crossing_of
from mm2py.pipeline.transform.sql.query import Sql
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.requests import EARLIEST, LATEST


_READ_WITHIN_S: Final = 30.0
#: What a flow gives a micro-batch beyond its epoch, too.
TRIED_WITHIN_S: Final = MICRO_BATCH_SLACK_S

P = ParamSpec("P")
T = TypeVar("T")


@attrs.define(eq=False)
class TriedTooLongError(Mm2Error):
    """A transform, or Spark, did not come to an end."""

    hint: ClassVar[str] = (
        "look for a loop or a call without a time limit in its function, with --sample 1: a flow gives it up, too, and "
        "tries it again for ever. If there is none, a Python worker of Spark hung: look at the memory of this host"
    )

    what: str
    within_s: float

    def __str__(self) -> str:
        return f"{self.what} was not done within {self.within_s:g} s, and was ended"


@attrs.define(eq=False)
class SampleUnreadableError(Mm2Error):
    """The source does not return the newest records of a topic, or not intact."""

    message: str
    advice: str

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


@attrs.frozen
class Tried:
    """A record before and after its transform; `after` is None where it is dropped, or fails for the reason `error`."""

    before: Row
    after: Row | None
    error: str = ""


async def newest(config: MirrorSourceConfig, topic: str, count: int, clock: Clock) -> pa.Table:
    """
    Read the newest *count* records or so of *topic* at the flow's source, all of its partitions alike.

    Timestamps are as they are there, in milliseconds.
    """
    async with Cluster(config.source, clock) as source:
        await source.ensure_metadata([topic])
        places = [TopicPartition(topic, number) for number in source.partitions_of(topic)]
        if not places:
            known = source.metadata.topics.get(topic)
            code = (known.error_code if known else 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise error_of(code, source.alias, "Metadata", topic)
        starts = await source.list_offsets(places, EARLIEST)
        ends = await source.list_offsets(places, LATEST, reads_committed=config.limits.reads_committed)
        each = -(-count // len(places))
        reader = RangeReader(source, config.limits, clock, within_s=_READ_WITHIN_S)
        found = []
        for place in places:
            start, end = starts[place], ends[place]
            if isinstance(start, BrokerAnsweredError):
                raise start
            if isinstance(end, BrokerAnsweredError):
                raise end
            found.append(await _newest_of(reader, place, range(start, end), each))
        return pa.concat_tables(found).slice(0, count)


async def _newest_of(reader: RangeReader, place: TopicPartition, offsets: range, count: int) -> pa.Table:
    """Read the newest *count* records of a partition: the last offsets may be those of markers, or of no record."""
    last = count
    while True:
        some = offsets[-last:]
        table = await _sample_of(
            reader, PartitionPlan(place, place.topic, some.start, None, is_unsure=False, until=some.stop)
        )
        if len(table) >= count or len(some) == len(offsets):
            return table.slice(max(0, len(table) - count))
        last *= 4


async def _sample_of(reader: RangeReader, offset_range: PartitionPlan) -> pa.Table:
    try:
        return await table_of(reader, offset_range)
    except TransformFailedError as error:
        if (unreadable := unreadable_in(str(error))) is None:
            raise
        raise SampleUnreadableError(unreadable.failure.message, unreadable.failure.hint) from error


async def try_out(host: SparkHost, transform: Transform, records: pa.Table, topic: str = "") -> list[Tried]:
    """Return what *transform* makes of *records*, of which Connect's transforms see *topic* as their topic. Raise
    `TransformRefusedError`, or `SparkHungError`.
    """
    before = _rows(records)
    changed: dict[tuple[int, int], Row] = {(row.partition, row.offset): row for row in before}
    errors: dict[tuple[int, int], str] = {}
    if transform.uses_spark:
        sql = Sql(await host.session())
        what = f"transform {transform.name} on {len(before)} records"
        changed, errors = await _asked(host, sql, what, _transformed, sql, transform, records)
    chain = StepChain(transform.steps)
    return [_stepped(chain, row, changed.get(_place(row)), errors.get(_place(row), ""), topic) for row in before]


async def _asked(host: SparkHost, sql: Sql, what: str, question: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Ask Spark. Raise `TriedTooLongError` where that is not done in the time that a flow gives it, and end Spark."""
    answer = sql.session.begin(question, *args, **named)
    if not await host.finished(sql.session, answer, TRIED_WITHIN_S):
        await host.end_hung(sql.session, f"{what} was not done within {TRIED_WITHIN_S:g} s")
        raise TriedTooLongError(what, TRIED_WITHIN_S)
    return answer.result()


def _transformed(
    sql: Sql, transform: Transform, records: pa.Table
) -> tuple[dict[tuple[int, int], Row], dict[tuple[int, int], str]]:
    with sql.use() as session:
        has_timestamps = crossing_of(frames.analysed(session, transform)).reads_timestamps
        if not len(records):  # of which Spark makes no data set
            return {}, {}
        try:
            return _made(session, transform, as_spark_takes(records, has_timestamps=has_timestamps)), {}
        except (*JOB_FAILED, TimestampTooLargeError):
            return _one_by_one(session, transform, records, has_timestamps=has_timestamps)


def _made(session: Any, transform: Transform, records: pa.Table) -> dict[tuple[int, int], Row]:
    rows = _rows(frames.transformed(session, transform, frames.held(session, records)).toArrow())
    return {_place(row): row for row in rows}


def _one_by_one(
    session: Any, transform: Transform, records: pa.Table, *, has_timestamps: bool
) -> tuple[dict[tuple[int, int], Row], dict[tuple[int, int], str]]:
    """Transform each record alone, because one of them fails."""
    changed: dict[tuple[int, int], Row] = {}
    errors: dict[tuple[int, int], str] = {}
    for at, before in enumerate(_rows(records)):
        try:
            made = _made(session, transform, as_spark_takes(records.slice(at, 1), has_timestamps=has_timestamps))
            changed |= {_place(before): row for row in made.values()}
        except TimestampTooLargeError as error:
            errors[_place(before)] = f"{type(error).__name__}: {error}"
        except JOB_FAILED as error:
            errors[_place(before)] = ": ".join(raised_in(str(error)))
    return changed, errors


def _stepped(chain: StepChain, before: Row, row: Row | None, error: str, topic: str) -> Tried:
    if row is None or not chain:
        return Tried(before, row, error)
    record = StepRecord(*row._replace(topic=topic or row.topic))
    try:
        if chain.apply(record):
            return Tried(before, None)
    except StepFailedError as failed:
        return Tried(before, None, f"{failed.stage}: {failed.error}: {failed}")
    after = row._replace(timestamp=record.timestamp, key=record.key, value=record.value, headers=record.headers)
    return Tried(before, after)


def _rows(records: pa.Table) -> list[Row]:
    return [row for batch in records.to_batches() for row in rows_of(batch)]


def _place(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


async def refusals(host: SparkHost, transforms: Sequence[Transform]) -> dict[str, str]:
    """Return why Spark refuses some of *transforms*, by name; found without a record."""
    found: dict[str, str] = {}
    concerned = [transform for transform in transforms if transform.uses_spark]
    if concerned:
        sql = Sql(await host.session())
        for transform in concerned:
            problem = await _asked(host, sql, f"the look at transform {transform.name}", _refusal, sql, transform)
            if problem:
                found[transform.name] = problem
    return found


def _refusal(sql: Sql, transform: Transform) -> str:
    with sql.use() as session:
        try:
            frames.analysed(session, transform)
        except frames.TransformRefusedError as error:
            return error.problem
    return ""
