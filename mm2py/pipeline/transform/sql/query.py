"""A statement or function as a plan of Spark's: it reads, transforms and writes an offset range in one Spark task."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from pyspark import RDD
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import SparkSession as SqlSession

from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import SparkSession
from mm2py.pipeline.transform.sql import dataframe as frames
from mm2py.pipeline.transform.sql.column_pruning import Crossing, crossing_of
from mm2py.pipeline.transform.sql.spark_internals import is_deterministic, make_current
from mm2py.pipeline.transform.sql.spark_task import OUTCOME


_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # Any other limit is compared with the batch's size after each row, which takes a third of the JVM's time for
    # records. A batch is never larger than a range, which has a limit of its own.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.adaptive.enabled": "false",
}


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

    #: Rows do not say which range they are of.
    jobs_max: int | None = None

    def __init__(self, sql: Sql, transform: Transform) -> None:
        self._sql = sql
        self._transform = transform
        self._crossing = Crossing()
        self._outcomes: DataFrame | None = None

    def prepare(self) -> None:
        with self._sql.use() as sql:
            frames.check(sql, self._transform)
            self._crossing = crossing_of(sql, self._transform)
            made = self._made(sql)
        self._outcomes = made if is_deterministic(made) else None

    def rows(self) -> Callable[[], RDD[Any]]:
        """
        Plan what was analysed again for each micro-batch: the current time is a constant in a plan.

        Random values (``rand``, ``uuid``) are analysed again for each range: their seeds are constants of the analysis.
        """
        if self._outcomes is None:
            return self._with_new_seeds
        rows = self._planned(self._outcomes.select(OUTCOME))
        return lambda: rows

    def _with_new_seeds(self) -> RDD[Any]:
        with self._sql.use() as sql:
            return self._planned(self._made(sql))

    def _planned(self, outcomes: DataFrame) -> RDD[Any]:
        try:
            return outcomes.rdd
        except AnalysisException as error:
            raise frames.TransformRefusedError(self._transform.name, frames.words_of(error)) from error

    def dry_run(self, records: pa.Table) -> None:
        with self._sql.use() as sql:
            made = frames.transformed(sql, self._transform, frames.held(sql, records))
        made.write.format("noop").mode("overwrite").save()

    def _made(self, sql: SqlSession) -> DataFrame:
        records = frames.records_of_range(sql, self._crossing.reads)
        made = frames.transformed(sql, self._transform, records).select(*self._crossing.gives)
        return frames.written(made)
