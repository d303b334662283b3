"""
Spark's classes as Java has them once they are loaded, in a file that later starts map into memory (JEP 310, JEP 350).

``python -m mm2py.pipeline.spark.class_archive`` makes it, once for an installation of pyspark; Spark starts in about
half the time then. Java looks for itself whether the file fits its version and the jars; where it does not, or there is
none, it starts as ever.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from shlex import quote

from mm2py.clock import SystemClock
from mm2py.errors import Mm2Error
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits, EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import SparkHost, SparkSession
from mm2py.pipeline.spark.settings import CLASSES
from mm2py.pipeline.transform.jobs import TransformJobs
from mm2py.pipeline.transform.sql.query import Query, Sql
from mm2py.telemetry.journal import EventLog


#: What most statements do.
_STATEMENT = (
    "SELECT * EXCEPT (key, value, headers), upper(CAST(key AS STRING)) AS key, "
    "concat(get_json_object(string(value), '$.name'), regexp_replace(CAST(value AS STRING), 'a+', 'b')) AS value, "
    "array_append(headers, named_struct('key', 'seen', 'value', CAST('yes' AS BINARY))) AS headers "
    "FROM records WHERE topic LIKE 'a%' OR partition > 3"
)
_EPOCH_MS = 10_000
_WRITE_LIMIT_S = 120.0
_STOP_WITHIN_S = 30.0


async def make_class_archive(folder: Path) -> None:
    """Start Spark, have it do what a daemon has it do, and let it leave its classes in *folder*, for the next start."""
    _empty(folder)
    unfinished = folder / "spark-unfinished"
    await _run(f"-XX:ArchiveClassesAtExit={quote(str(unfinished))}", is_recorded=True)
    await _run(f"-XX:SharedArchiveFile={quote(str(unfinished))}")  # it must not be the daemon that finds out
    unfinished.rename(folder / f"spark-{unfinished.stat().st_size}.jsa")


def _empty(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("spark-*"):
        old.unlink()


async def _run(option: str, *, is_recorded: bool = False) -> None:
    clock = SystemClock()
    options = {"spark.driver.extraJavaOptions": f"{option} -Xlog:disable"}
    host = SparkHost(options, copy_tasks=1, clock=clock, events=EventLog(clock))
    try:
        session = await host.session()
        if is_recorded:
            await _transform_nothing(host, session)
        await asyncio.to_thread(_leave, session)
    finally:
        await host.stop(within_s=_STOP_WITHIN_S)


async def _transform_nothing(host: SparkHost, session: SparkSession) -> None:
    """Run a micro-batch of a range without records, as flows with a statement do; neither cluster is asked."""
    nowhere = ClusterEndpoint("nowhere", ("127.0.0.1:1",))
    empty = PartitionPlan(TopicPartition("nothing", 0), "nothing", 0, None, is_unsure=False, until=0)
    plan = EpochPlan(Flow("A", "B"), 0, 0, nowhere, nowhere, (empty,), CopyLimits(), _EPOCH_MS, _EPOCH_MS)
    transform = Transform("nothing", sql=_STATEMENT)
    jobs = TransformJobs(session, transform, Query(Sql(session), transform), host.secrets_key_file, "class archive")
    await session.begin(jobs.prepare)
    await jobs.run(plan, SystemClock())


def _leave(session: SparkSession) -> None:
    """End the JVM by its own way out, on which it writes; what stops Spark otherwise does not wait that long."""
    session.context.stop()
    if session.process.stdin is not None:
        session.process.stdin.close()
    try:
        session.process.wait(_WRITE_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        session.process.kill()
        session.process.wait()
        raise TimeoutError(f"writing them takes longer than {_WRITE_LIMIT_S:g} s") from error


def main() -> int:
    """Make the archive of this Python's pyspark."""
    try:
        asyncio.run(make_class_archive(CLASSES))
    except (Mm2Error, OSError) as error:
        sys.stderr.write(f"Spark starts as ever, without an archive of its classes: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
