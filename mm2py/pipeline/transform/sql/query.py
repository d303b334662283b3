"""
One streaming query: the micro-batches of one record task.

It is started once and fed through its mailbox, plan by plan. A query that failed is over; the next plan starts another.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession as SqlSession

from mm2py.clock import Clock
from mm2py.model.epoch import EpochPlan
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.patience import Patience
from mm2py.pipeline.spark.session import SparkSession
from mm2py.pipeline.transform.backend import TransformBackend, allowed_s
from mm2py.pipeline.transform.results import Answer, Failed
from mm2py.pipeline.transform.sql import dataframe as frames
from mm2py.pipeline.transform.sql.column_pruning import crossing_of
from mm2py.pipeline.transform.sql.sources import FOLDER, SINK, pack_payloads


#: The log files of a query's progress are of no use to us: as cheap as Spark can write them.
_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "2",
    "spark.sql.streaming.pollingDelay": "10ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
    # Any other limit is compared with the batch's size after each row, which takes a third of the JVM's time for
    # records. A batch is never larger than a stretch, which has a limit of its own.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.adaptive.enabled": "false",
}
_RAW_FILES: Final = "org.apache.hadoop.fs.RawLocalFileSystem"
_POLL_S: Final = 0.005
_LOOK_EVERY_S: Final = 0.25

_sequence = itertools.count()


class Sql:
    """The SQL session of one life of Spark: data sources are registered once for all, and views have one name each."""

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
            _make_current(self._sql)
            yield self._sql

    def _made(self) -> SqlSession:
        context: Any = self.session.context
        context._jsc.hadoopConfiguration().set("fs.file.impl", _RAW_FILES)  # noqa: SLF001 - there is no other way
        sql = SqlSession(context)
        for key, value in _CONF.items():
            sql.conf.set(key, value)
        frames.register(sql)
        return sql


def _make_current(session: SqlSession) -> None:
    """Have Spark look for our data sources in *session*: it asks the calling thread's, and threads change here."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - there is no public way
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


class Query(TransformBackend):
    """A query of one transform in one life of Spark."""

    def __init__(self, sql: Sql, transform: Transform, scratch: Path, key_file: str | None) -> None:
        super().__init__(sql.session, transform, scratch / f"records-{next(_sequence)}", key_file)
        self.sql = sql
        self._streaming: Any = None

    def start(self, name: str) -> None:
        self.folder.mkdir()
        with self.sql.use() as sql:
            frames.check(sql, self.transform)
            crossing = crossing_of(sql, self.transform)
            records = frames.stream_of(sql, str(self.folder), crossing.reads)
            made = frames.transformed(sql, self.transform, records).select(*crossing.gives)
        try:
            self._streaming = (
                made.writeStream.format(SINK)
                .option(FOLDER, str(self.folder))
                .option("checkpointLocation", str(self.folder / "spark"))
                .queryName(name)
                .trigger(processingTime="0 seconds")
                .start()
            )
        except AnalysisException as error:
            raise frames.TransformRefusedError(self.transform.name, frames.words_of(error)) from error

    def dry_run(self, records: pa.Table) -> None:
        with self.sql.use() as sql:
            made = frames.transformed(sql, self.transform, frames.held(sql, records))
        made.write.format("noop").mode("overwrite").save()

    async def run(self, plan: EpochPlan, clock: Clock) -> Answer | Failed:
        """Have *plan* done by a micro-batch."""
        number, payloads = self._next_round(plan)
        self.mailbox.post(number, pack_payloads(payloads))
        looked_at, patience = clock.monotonic(), Patience(allowed_s(plan), clock)
        while True:
            await clock.sleep(_POLL_S)
            answer = self.mailbox.take_answer(number)
            if answer is not None and answer.is_whole:
                return answer
            if clock.monotonic() - looked_at > _LOOK_EVERY_S:
                looked_at = clock.monotonic()
                words = await self.session.begin(self._why_over)
                answer = self.mailbox.take_answer(number)
                if words is None and patience.is_over():
                    return self._give_up(plan, number, answer)
                if words is not None:
                    return answer if answer is not None and answer.is_whole else Failed(words, number, answer)

    def _why_over(self) -> str | None:
        """Return why the query has ended; None while it runs."""
        try:
            if self._streaming.isActive:
                return None
            error = self._streaming.exception()
        except (Py4JError, OSError) as gone:
            return f"Spark is gone ({type(gone).__name__})"
        return str(error) if error is not None else "the query was stopped"

    def _end(self) -> None:
        if self._streaming is not None:
            self._streaming.stop()
