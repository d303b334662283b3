"""The jobs of a round: which range each is about, how many run at a time, and what is reported of those that fail."""

from __future__ import annotations

import asyncio
import base64
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import attrs
import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits, EpochPlan, PartitionOutcome, PartitionPlan, Transactions
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.sealing import unseal
from mm2py.pipeline.transform import jobs as module
from mm2py.pipeline.transform.failures import is_lost
from mm2py.pipeline.transform.jobs import MicroBatchLateError, TransformJobs
from mm2py.pipeline.transform.results import MicroBatchResult, RangeOutcome
from mm2py.pipeline.transform.spark_task import PLAN


_NOWHERE = ClusterEndpoint("B", ("nowhere:1",))


@attrs.define
class PretendedSpark:
    """A context whose local properties are each thread's own, as Spark's are, and the rows that its jobs ask for."""

    work: Callable[[TopicPartition], None]
    local: threading.local = attrs.field(factory=threading.local)
    groups: set[str] = attrs.field(factory=set)
    cancelled: list[str] = attrs.field(factory=list)
    rounds: int = 0
    jobs_max: int | None = None
    writes_last: bool = False
    on_cancel: Callable[[], object] = lambda: None
    threads: ThreadPoolExecutor | None = None
    #: How many ranges each job had.
    sizes: list[int] = attrs.field(factory=list)
    is_stopped: bool = False

    @property
    def _jsc(self) -> PretendedSpark:
        return self

    def sc(self) -> PretendedSpark:
        return self

    def isStopped(self) -> bool:  # noqa: N802
        return self.is_stopped

    @property
    def context(self) -> PretendedSpark:
        return self

    def begin(self, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self.threads, work, *args)

    def setJobGroup(self, group: str, _what: str, *, interruptOnCancel: bool) -> None:  # noqa: ARG002, N802, N803 - Spark's
        self.groups.add(group)
        self.local.group = group

    def setLocalProperty(self, name: str, value: str | None) -> None:  # noqa: N802
        setattr(self.local, name, value)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)
        self.on_cancel()

    def prepare(self) -> None:
        return

    def jobs(self, ranges: Sequence[PartitionPlan]) -> int:
        return min(len(ranges), self.jobs_max or len(ranges))

    def rows(self, _ranges: int) -> Callable[[], PretendedSpark]:
        self.rounds += 1
        return lambda: self

    def dry_run(self, records: Callable[[str], object]) -> None:
        records(getattr(self.local, "group", ""))

    def coalesce(self, _partitions: int) -> PretendedSpark:
        return self

    def collect(self) -> list[tuple[bytes]]:
        outcomes = []
        for one in unseal(base64.b64decode(getattr(self.local, PLAN))).partitions:
            self.work(one.source)
            outcomes.append(RangeOutcome(PartitionOutcome(one.source, one.position + 10, None, is_unsure=False)))
        self.sizes.append(len(outcomes))
        return [(pickle.dumps(outcomes),)]


@pytest.fixture(autouse=True)
def collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "collected", PretendedSpark.collect)


def _plan(partitions: int, *, allowed_ms: int = 30_000) -> EpochPlan:
    plans = tuple(
        PartitionPlan(TopicPartition("t", number), "A.t", 100 * number, None, is_unsure=False, until=100 * number + 10)
        for number in range(partitions)
    )
    terms = Transactions("id", "positions", allowed_ms)
    return EpochPlan(Flow("A", "B"), 0, 0, _NOWHERE, _NOWHERE, plans, CopyLimits(), 0, 0, transactions=terms)


def _jobs(spark: PretendedSpark) -> TransformJobs:
    return TransformJobs(cast("Any", spark), Transform("x", sql="SELECT 1"), cast("Any", spark), None, "A->B x")


async def _run(spark: PretendedSpark, plan: EpochPlan) -> MicroBatchResult:
    return await _jobs(spark).run(plan, SystemClock())


async def test_each_stretch_has_a_job_and_few_run_at_a_time() -> None:
    """All are done, by one plan of Spark's; those that run at the same time are told apart by their property."""
    running, most, lock = 0, 0, threading.Lock()

    def work(_source: TopicPartition) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1

    spark = PretendedSpark(work)
    done = await _run(spark, _plan(20))

    assert sorted(it.partition.position for it in done.outcomes) == [100 * number + 10 for number in range(20)]
    assert (done.failed, done.is_late) == ({}, False)
    assert (spark.rounds, len(spark.groups)) == (1, 1)
    assert most <= 4


async def test_a_few_jobs_do_for_many_ranges_where_that_is_possible() -> None:
    """Each job has as many as the others, and each range is done once."""
    spark = PretendedSpark(lambda _source: None, jobs_max=4)
    done = await _run(spark, _plan(10))

    assert sorted(it.partition.source.partition for it in done.outcomes) == list(range(10))
    assert sorted(spark.sizes) == [2, 2, 3, 3]


async def test_a_job_that_fails_takes_no_other_one_with_it() -> None:
    """Spark's message is that of the range that failed."""

    def work(source: TopicPartition) -> None:
        if source.partition == 1:
            raise Py4JNetworkError

    done = await _run(PretendedSpark(work), _plan(3))

    assert sorted(it.partition.source.partition for it in done.outcomes) == [0, 2]
    assert done.failed == {TopicPartition("t", 1): "Spark is gone (Py4JNetworkError)"}


@attrs.define
class OneBad:
    """Fails of one range, with these words, and counts how often it had each."""

    words: str
    had: Counter[int] = attrs.field(factory=Counter)

    def __call__(self, source: TopicPartition) -> None:
        self.had[source.partition] += 1
        if source.partition == 5:
            raise PySparkException(self.words)


_RAISED = "[USER_RAISED_EXCEPTION] no good SQLSTATE: P0001"
_LOST = "Job aborted: Python worker exited unexpectedly (crashed)"


async def test_a_range_that_fails_is_found_among_those_of_its_job() -> None:
    """What its job had not written is run again in halves, until the bad range is alone; other jobs have their own."""
    work = OneBad(_RAISED)
    done = await _run(PretendedSpark(work, jobs_max=4, writes_last=True), _plan(40))

    assert sorted(it.partition.source.partition for it in done.outcomes) == [it for it in range(40) if it != 5]
    assert done.failed == {TopicPartition("t", 5): _RAISED}
    assert all(work.had[number] == 1 for number in range(40) if number % 4 != 1)
    # Ten ranges, then five, three or two, two or one, one.
    assert work.had[5] <= 5


@pytest.mark.parametrize(("words", "writes_last"), [(_LOST, True), (_RAISED, False)])
async def test_what_may_have_been_written_is_not_run_again(words: str, writes_last: bool) -> None:
    """It is looked for at the target first: all ranges of the job failed, as far as is known."""
    work = OneBad(words)
    done = await _run(PretendedSpark(work, jobs_max=4, writes_last=writes_last), _plan(40))

    assert done.failed == {TopicPartition("t", number): words for number in range(40) if number % 4 == 1}
    assert max(work.had.values()) == 1


async def test_what_failed_with_others_is_alone_the_next_time() -> None:
    """A record that takes a worker down fails its own range only; the rest has few jobs as before."""
    spark = PretendedSpark(OneBad(_LOST), jobs_max=4, writes_last=True)
    alone = {TopicPartition("t", number) for number in (1, 5, 9)}
    done = await _jobs(spark).run(_plan(40), SystemClock(), alone)

    assert done.failed == {TopicPartition("t", 5): _LOST}
    assert sorted(spark.sizes) == [1, 1, 9, 9, 9, 10]


async def test_what_is_late_is_given_up_and_nothing_more_is_begun() -> None:
    """What was done by then counts; of the rest, begun or not, it is said that it was late."""
    begun: list[int] = []
    released = threading.Event()

    def work(source: TopicPartition) -> None:
        begun.append(source.partition)
        if source.partition:
            released.wait()

    spark, late = PretendedSpark(work), []
    jobs = _jobs(spark)
    jobs.on_late = lambda *told: late.append(told)
    done = await jobs.run(_plan(10, allowed_ms=2_000), SystemClock())
    await jobs.stop(SystemClock())
    released.set()

    assert done.is_late
    assert len(late) == 1
    assert [it.partition.source.partition for it in done.outcomes] == [0]
    assert {source.partition for source in done.failed} == set(range(1, 10))
    assert sorted(begun) == [0, 1, 2, 3, 4]
    assert spark.cancelled == list(spark.groups)


async def test_a_dry_run_is_ended_with_its_own_transform_only() -> None:
    """
    The thread of a dry run may have run a job of another transform before.

    If it were still in that one's group, it would be cancelled when a micro-batch of the other one fails.
    """
    groups: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        spark = PretendedSpark(lambda _source: None, threads=threads)
        other, own = _jobs(spark), _jobs(spark)
        await other.run(_plan(1), SystemClock())
        found = await own.tried(groups.append, SystemClock())
        await own.stop(SystemClock())

    assert found is None
    assert spark.cancelled == groups
    assert groups != [""]


@pytest.mark.parametrize(
    ("error", "words"),
    [(PySparkException(_RAISED), _RAISED), (Py4JNetworkError(), "Spark is gone (Py4JNetworkError)")],
)
async def test_what_a_dry_run_failed_of_is_reported(error: Exception, words: str) -> None:
    """That Spark was lost meanwhile, too: nothing is known of the records then."""

    def fail(_group: str) -> None:
        raise error

    assert await _jobs(PretendedSpark(lambda _source: None)).tried(fail, SystemClock()) == words


@pytest.mark.parametrize("complies", [True, False])
async def test_a_dry_run_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, *, complies: bool) -> None:
    """No other than the one that began it knows of it; if Spark does not end it, Spark itself is ended."""
    monkeypatch.setattr(module, "MICRO_BATCH_SLACK_S", 0.2)
    monkeypatch.setattr(module, "_STOP_WITHIN_S", 0.2)
    ended = threading.Event()
    spark, killed = PretendedSpark(lambda _source: None), []
    spark.on_cancel = ended.set if complies else lambda: None
    jobs = _jobs(spark)

    async def end_hung(reason: str) -> None:
        killed.append(reason)
        ended.set()

    jobs.end_hung = end_hung
    with pytest.raises(MicroBatchLateError):
        await jobs.tried(lambda _group: ended.wait(), SystemClock())

    assert spark.cancelled == list(spark.groups)
    assert killed == ([] if complies else ["it does not end a trial of x"])


async def test_what_fails_in_a_stopped_context_is_lost() -> None:
    """Whatever Spark says then, in a job or in a try: its words would blame a record that is good."""

    def fail(_what: object) -> None:
        raise PySparkException("[INTERNAL_ERROR] Executed command failed. SQLSTATE: XX000")

    spark = PretendedSpark(fail, is_stopped=True)
    done = await _jobs(spark).run(_plan(1), SystemClock())
    tried = await _jobs(spark).tried(fail, SystemClock())

    assert tried is not None
    assert all(is_lost(words) for words in (*done.failed.values(), tried))
