"""A statement or function as a plan of Spark's: it reads, transforms and writes an offset range in one Spark task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark import RDD
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import SparkSession as SqlSession

from mm2py.model.epoch import PartitionPlan
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.internals import is_deterministic, make_current
from mm2py.pipeline.spark.session import SparkSession
from mm2py.pipeline.transform.offset_ranges import MICRO_BATCH_BYTES, RANGE_BYTES
from mm2py.pipeline.transform.sql import dataframe as frames
from mm2py.pipeline.transform.sql.column_pruning import Crossing, crossing_of
from mm2py.pipeline.transform.sql.spark_task import OUTCOME
from mm2py.pipeline.transform.validation import end_of


_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # Any other limit is compared with the batch's size after each row, which takes a third of the JVM's time for
    # records. A batch is never larger than a range, which has a limit of its own.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.adaptive.enabled": "false",
}


#: A micro-batch with more ranges than this has few jobs, each with several: a job costs as much as many records, and
#: so does a column more for each record if there are few ranges, all of them long.
_ALONE_MOST: Final = 8
#: Each of them has its share of a micro-batch's bytes, which is what a Spark task may hold.
_JOBS_OF_MANY: Final = MICRO_BATCH_BYTES // RANGE_BYTES
#: Where a job with several ranges costs nothing more, so many records are worth another one that runs beside it.
_RECORDS_OF_JOB: Final = 10_000


class Sql:
    """The SQL session of one life of Spark, in which views have one name each."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._sql: SqlSession | None = None
        self._one_by_one = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[SqlSession]:
        """Have the session alone, for as long as the names in it matter; blocks."""
        with self._one_by_one:
            if self._sql is None:
                self._sql = self._made()
            make_current(self._sql)
            yield self._sql

    def _made(self) -> SqlSession:
        sql = SqlSession(self.session.context)
        for key, value in _CONF.items():
            sql.conf.set(key, value)
        frames.silence_loggers()
        return sql


class Query:
    """A statement or function in one life of Spark: `TransformRows`."""

    writes_last = True

    def __init__(self, sql: Sql, transform: Transform) -> None:
        self._sql = sql
        self._transform = transform
        self.crossing = Crossing()
        self._outcomes: DataFrame | None = None
        #: For jobs with several ranges.
        self._outcomes_of_many: DataFrame | None = None
        #: Whether the transform can have such jobs.
        self.takes_many = False

    @property
    def reads_timestamps(self) -> bool:
        return self.crossing.reads_timestamps

    def prepare(self) -> None:
        with self._sql.use() as sql:
            analysed = frames.analysed(sql, self._transform)
            self.crossing = crossing_of(analysed)
            made = self._made(sql, self.crossing)
            self._outcomes = made if is_deterministic(made) else None
            self.takes_many = bool(self._outcomes) and self.crossing.keeps_places and analysed.is_row_by_row

    def jobs(self, ranges: Sequence[PartitionPlan]) -> int:
        if self.takes_many and self.crossing.has_row_ids:
            records = sum(end_of(one) - one.position for one in ranges)
            return min(len(ranges), _JOBS_OF_MANY, 1 + records // _RECORDS_OF_JOB)
        return _JOBS_OF_MANY if self._has_places(len(ranges)) else len(ranges)

    def _has_places(self, ranges: int) -> bool:
        """Whether the records of so many ranges travel with topic and partition."""
        return self.takes_many and not self.crossing.has_row_ids and ranges > _ALONE_MOST

    def rows(self, ranges: int) -> Callable[[], RDD[Any]]:
        """
        Plan what was analysed again for each micro-batch: the current time is a constant in a plan.

        Random values (``rand``, ``uuid``) are analysed again for each range: their seeds are constants of the analysis.
        """
        if self._outcomes is None:
            return self._with_new_seeds
        outcomes = self._of_many() if self._has_places(ranges) else self._outcomes
        rows = self._planned(outcomes.select(OUTCOME))
        return lambda: rows

    def _of_many(self) -> DataFrame:
        if self._outcomes_of_many is None:
            with self._sql.use() as sql:
                self._outcomes_of_many = self._made(sql, self.crossing.with_places())
        return self._outcomes_of_many

    def _with_new_seeds(self) -> RDD[Any]:
        with self._sql.use() as sql:
            return self._planned(self._made(sql, self.crossing))

    def _planned(self, outcomes: DataFrame) -> RDD[Any]:
        try:
            return outcomes.rdd
        except AnalysisException as error:
            raise frames.TransformRefusedError(self._transform.name, frames.words_of(error)) from error

    def dry_run(self, records: pa.Table) -> None:
        with self._sql.use() as sql:
            # One Spark task, as in a micro-batch: several would take the slots of others.
            made = frames.transformed(sql, self._transform, frames.held(sql, records).coalesce(1))
        made.write.format("noop").mode("overwrite").save()

    def _made(self, sql: SqlSession, crossing: Crossing) -> DataFrame:
        has_row_ids = crossing.has_row_ids
        records = frames.records_of_job(sql, crossing.reads, crossing.carried, has_row_ids=has_row_ids)
        made = frames.transformed(sql, self._transform, records).select(*crossing.gives)
        return frames.written(made, crossing.carried, has_row_ids=has_row_ids)
