"""
A transform tried on a few records of a topic: what it makes of them, and nothing is written.

Everything but the sink is what a flow runs: the same reader, the same checks, the same steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
import pyarrow as pa

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.core.steps import StepChain, StepFailedError, StepRecord
from mm2py.errors import BrokerAnsweredError
from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.records import frames
from mm2py.pipeline.records.columns import ARROW, rows_of
from mm2py.pipeline.records.isolating import raised_in, table_of
from mm2py.pipeline.records.query import Sql
from mm2py.pipeline.records.reading import StretchReader
from mm2py.pipeline.records.row import Row
from mm2py.pipeline.session import JOB_FAILED, SparkHost
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import EARLIEST, LATEST


_READ_WITHIN_S: Final = 30.0


@attrs.frozen
class Tried:
    """
    A record before and after its transform; `after` is None where it is dropped, or fails for the reason `error`.

    `routed` is what routers make of its topic's name, empty where it is dropped or fails.
    """

    before: Row
    after: Row | None
    error: str = ""
    routed: str = ""


async def newest(settings: FlowSettings, topic: str, count: int, clock: Clock) -> pa.Table:
    """Read the newest *count* records or so of *topic* at the flow's source, all of its partitions alike."""
    async with Cluster(settings.source, clock) as source:
        await source.ensure_metadata([topic])
        places = [TopicPartition(topic, number) for number in source.partitions_of(topic)]
        starts = await source.list_offsets(places, EARLIEST)
        ends = await source.list_offsets(places, LATEST, reads_committed=settings.limits.reads_committed)
        each = -(-count // max(1, len(places)))
        reader = StretchReader(source, settings.limits, clock, within_s=_READ_WITHIN_S)
        found = []
        for place in places:
            start, end = starts[place], ends[place]
            if isinstance(start, BrokerAnsweredError):
                raise start
            if isinstance(end, BrokerAnsweredError):
                raise end
            stretch = PartitionPlan(place, topic, max(start, end - each), None, is_unsure=False, until=end)
            found.append(await table_of(reader, stretch))
        return pa.concat_tables(found).slice(0, count) if found else ARROW.empty_table()


async def try_out(host: SparkHost, transform: Transform, records: pa.Table) -> list[Tried]:
    """Say what *transform* makes of *records*. Raise `TransformRefusedError`."""
    before = _rows(records)
    changed: dict[tuple[int, int], Row] = {(row.partition, row.offset): row for row in before}
    errors: dict[tuple[int, int], str] = {}
    if transform.uses_spark:
        sql = Sql(await host.session())
        changed, errors = await sql.session.begin(_transformed, sql, transform, records)
    chain = StepChain(transform.steps)
    return [_stepped(chain, row, changed.get(_place(row)), errors.get(_place(row), "")) for row in before]


def _transformed(
    sql: Sql, transform: Transform, records: pa.Table
) -> tuple[dict[tuple[int, int], Row], dict[tuple[int, int], str]]:
    with sql.use() as session:
        frames.check(session, transform)
        if transform.routes:
            # Whose row it is shows in columns that it may change.
            return _one_by_one(session, transform, records)
        try:
            rows = _rows(frames.transformed(session, transform, frames.held(session, records)).toArrow())
            return {_place(row): row for row in rows}, {}
        except JOB_FAILED:
            return _one_by_one(session, transform, records)


def _one_by_one(
    session: Any, transform: Transform, records: pa.Table
) -> tuple[dict[tuple[int, int], Row], dict[tuple[int, int], str]]:
    """Transform each record alone, because one of them fails."""
    changed: dict[tuple[int, int], Row] = {}
    errors: dict[tuple[int, int], str] = {}
    for at, before in enumerate(_rows(records)):
        try:
            made = frames.transformed(session, transform, frames.held(session, records.slice(at, 1))).toArrow()
            changed |= {_place(before): row for row in _rows(made)}
        except JOB_FAILED as error:
            errors[_place(before)] = ": ".join(raised_in(str(error)))
    return changed, errors


def _stepped(chain: StepChain, before: Row, row: Row | None, error: str) -> Tried:
    if row is None or not chain:
        return Tried(before, row, error, routed=row.topic if row is not None else "")
    record = StepRecord(*row)
    try:
        if chain.apply(record):
            return Tried(before, None)
    except StepFailedError as failed:
        return Tried(before, None, f"{failed.stage}: {failed.error}: {failed}")
    after = row._replace(timestamp=record.timestamp, key=record.key, value=record.value, headers=record.headers)
    return Tried(before, after, routed=record.topic)


def _rows(records: pa.Table) -> list[Row]:
    return [row for batch in records.to_batches() for row in rows_of(batch)]


def _place(row: Row) -> tuple[int, int]:
    return row.partition, row.offset


async def refusals(host: SparkHost, transforms: Sequence[Transform]) -> dict[str, str]:
    """Say of those of *transforms* that Spark would not run why, without a record; by their names."""
    found: dict[str, str] = {}
    concerned = [transform for transform in transforms if transform.uses_spark]
    if concerned:
        sql = Sql(await host.session())
        for transform in concerned:
            problem = await sql.session.begin(_refusal, sql, transform)
            if problem:
                found[transform.name] = problem
    return found


def _refusal(sql: Sql, transform: Transform) -> str:
    with sql.use() as session:
        try:
            frames.check(session, transform)
        except frames.TransformRefusedError as error:
            return error.problem
    return ""
