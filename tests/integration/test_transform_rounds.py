"""What a statement gives from one round to the next, on real brokers and real Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import SparkSession, collected
from mm2py.pipeline.transform import jobs as module
from mm2py.pipeline.transform.columns import ARROW
from mm2py.pipeline.transform.jobs import StepRows, TransformJobs
from mm2py.pipeline.transform.sql.query import Query, Sql
from mm2py.telemetry.events import PartitionStopped, RecordLeftOut, ResumeUnproven
from tests.support.epochs import Spark, idle_plan
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.topics import await_stable, create_topic
from tests.support.transforms import first_range_fails


pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

#: Spark and its workers come up first.
_LONG_S = 150.0
_NOW = "CAST(current_timestamp() AS STRING) AS value"
_TOLD = f"SELECT * EXCEPT (value), {_NOW} FROM records"
_DRAWN = f"SELECT * EXCEPT (key, value), uuid() AS key, {_NOW} FROM records"
#: What is true of one record, the last of its partition.
_BY_OFFSET = "partition = 7 AND offset = 200"
_BY_VALUE = "CAST(substring(CAST(value AS STRING), 1, 12) AS INT) = 2007"


@pytest.mark.parametrize("statement", [_DRAWN, _TOLD])
async def test_each_round_has_a_time_and_lots_of_its_own(
    primary: KafkaCluster, backup: KafkaCluster, spark: Spark, prefix: str, *, tmp_path: Path, statement: str
) -> None:
    """A plan that is kept between rounds would give all of them the time and the random numbers of the first."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=2)
    keys = {"tasks.max": 1, "TR->B.topics": prefix, "TR->B.transform.sql": statement}
    settings = flow_settings(source, target, alias="TR", **keys)
    async with running_flow(settings, tmp_path, spark=spark) as flow:
        view = flow.runner.view
        for count in (20, 40, 60):
            await produce_numbers(source, prefix, count=20, partitions=2)
            await eventually(lambda wanted=count: view().records == wanted, within_s=_LONG_S, what="it is mirrored")
        await flow.drain()

    found = [record for records in (await read_topic(target, f"TR.{prefix}")).values() for record in records]
    assert len(found) == 60
    assert len({record.value for record in found}) >= 3
    assert statement != _DRAWN or len({record.key for record in found}) == 60


async def test_a_function_that_looks_at_its_records_stops_its_topic(
    primary: KafkaCluster, backup: KafkaCluster, spark: Spark, prefix: str, tmp_path: Path
) -> None:
    """A function is called without records to learn its columns; if it looks at records, the message explains that."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=1)
    await produce_numbers(source, prefix, count=10, partitions=1)
    keys = {"TL->B.topics": prefix, "TL->B.transform.function": "tests.support.transforms:looking"}
    settings = flow_settings(source, target, alias="TL", **keys)
    async with running_flow(settings, tmp_path, spark=spark) as flow:
        await eventually(lambda: flow.events.of(PartitionStopped), within_s=_LONG_S, what="it is stopped")
        await flow.drain()

    assert "there are no records outside of a micro-batch" in flow.events.of(PartitionStopped)[0].message


@pytest.mark.parametrize(
    "support", [pytest.param("disabled", marks=pytest.mark.soak(only="exactly-once has the same jobs")), "enabled"]
)
async def test_many_ranges_have_few_jobs_and_a_bad_one_fails_alone(
    primary: KafkaCluster, backup: KafkaCluster, spark: Spark, prefix: str, *, tmp_path: Path, support: str
) -> None:
    """
    Of two topics with twenty partitions each every record arrives once, but for a bad one that is left out.

    A statement that looks at offsets has topic and partition beside them, the other one has row ids in their place.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    topics = {f"{prefix}-offsets": _BY_OFFSET, f"{prefix}-row-ids": _BY_VALUE}
    statements = {
        f"TM->B.transform.{topic}.sql": "SELECT * EXCEPT (value), "
        f"CAST(IF({bad}, raise_error('no good'), value) AS BINARY) AS value FROM records"
        for topic, bad in topics.items()
    }
    keys = {
        "tasks.max": 1,
        "TM->B.topics": f"{prefix}-.*",
        **statements,
        "TM->B.errors.tolerance": "all",
        "TM.consumer.isolation.level": "read_committed",
        "B.exactly.once.source.support": support,
    }
    settings = flow_settings(source, target, alias="TM", **keys)

    async def produced(count: int) -> None:
        for topic in topics:
            await produce_numbers(source, topic, count=count, partitions=20)

    for topic in topics:
        await create_topic(source, topic, partitions=20)
    await produced(2_000)
    async with running_flow(settings, tmp_path, spark=spark) as flow:
        view = flow.runner.view
        with jobs_counted() as jobs:
            await eventually(lambda: view().records == 4_000, within_s=_LONG_S, what="it is mirrored")
        await produced(2_020)
        await eventually(lambda: view().records == 8_038, within_s=_LONG_S, what="the rest is mirrored")
        await flow.drain()

    for topic in topics:
        await await_stable(target, f"TM.{topic}")
    wanted = {topic: await read_numbers(source, topic) for topic in topics}
    for topic in topics:
        del wanted[topic][7][200]
    found = {it: await read_numbers(target, f"TM.{it}", reads_committed=True) for it in topics}
    assert not flow.events.of(ResumeUnproven)
    assert found == wanted
    left_out = {(it.source, it.offset) for it in flow.events.of(RecordLeftOut)}
    assert left_out == {(TopicPartition(topic, 7), 200) for topic in topics}
    assert len(flow.events.of(RecordLeftOut)) == len(topics)
    assert 0 < len(jobs) < 20


async def test_a_job_that_fails_takes_no_other_job_of_its_plan_with_it(spark: Spark) -> None:
    """Jobs run the same plan of Spark's: one that fails meanwhile does not lose the outcomes of the others."""
    ranges = tuple(
        PartitionPlan(TopicPartition("t", number), "A.t", 0, None, is_unsure=False, until=10) for number in range(4)
    )
    session = await spark.host.session()
    transform = Transform("bad range")
    jobs = TransformJobs(session, transform, OneFails(session), spark.host.secrets_key_file, "A->B bad range")
    done = await jobs.run(attrs.evolve(idle_plan(epoch_ms=5_000), partitions=ranges), SystemClock())

    assert sorted(it.partition.source.partition for it in done.outcomes) == [1, 2, 3]
    assert list(done.failed) == [TopicPartition("t", 0)]


async def test_a_dry_run_has_one_slot(spark: Spark) -> None:
    """As many as there are records for would keep all others from running, if it hangs for ever."""
    session = await spark.host.session()
    transform = Transform("dry run", sql=_TOLD)
    query = Query(Sql(session), transform)
    jobs = TransformJobs(session, transform, query, spark.host.secrets_key_file, "A->B dry run")
    record = {"topic": "t", "partition": 0, "timestamp_type": 0, "value": b"v", "headers": []}
    records = pa.Table.from_pylist([{**record, "offset": offset} for offset in range(100)], schema=ARROW)
    assert await jobs.tried(records, SystemClock()) is None

    tracker = session.context.statusTracker()
    (job,) = tracker.getJobIdsForGroup(jobs._group)
    stages = (tracker.getStageInfo(stage) for stage in tracker.getJobInfo(job).stageIds)
    assert [stage.numTasks for stage in stages] == [1]


class OneFails(StepRows):
    """Jobs with one range each, which take long, but for one that soon fails."""

    def __init__(self, session: SparkSession) -> None:
        self._rows = session.one_row.mapPartitions(first_range_fails)
        self._rows.id()  # else threads that use it first at the same time make one of their own each

    def jobs(self, ranges: Sequence[PartitionPlan]) -> int:
        return len(ranges)


@contextmanager
def jobs_counted() -> Iterator[list[Any]]:
    """Note each job of a transform that runs meanwhile."""
    jobs: list[Any] = []
    run = collected

    def counted(rows: Any) -> list[Any]:
        jobs.append(rows)
        return run(rows)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "collected", counted)
        yield jobs
