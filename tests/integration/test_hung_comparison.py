"""A comparison whose Spark hangs: a Python worker or the JVM is stopped. It only reads, so it goes on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import psutil
import pytest

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.spark import processes, stillness
from mm2py.pipeline.spark import session as session_module
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.spark.settings import with_retries
from mm2py.telemetry.journal import EventLog
from mm2py.verify.job import VerifyRunner
from mm2py.verify.run import Verification, VerifyRequest
from mm2py.verify.values import Equality, Slice, SliceOutcome, VerifyPlan
from tests.support.eventually import eventually, long_enough
from tests.support.flows import flow_settings
from tests.support.planting import copy_with
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic


pytestmark = pytest.mark.timeout(240)

_SLOTS = 2


@pytest.fixture(autouse=True)
def _short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds are made for slow machines; here a process is stopped for good."""
    monkeypatch.setattr(stillness, "STILL_FOR_S", long_enough(3.0))
    monkeypatch.setattr(stillness, "_BEGINS_WITHIN_S", long_enough(1.0))
    monkeypatch.setattr(session_module, "SILENT_FOR_S", long_enough(3.0))


@attrs.frozen
class _Comparing:
    """Spark as ``mm2py verify`` has it, and the reports of what hangs."""

    host: SparkHost
    runner: VerifyRunner
    notices: list[str]

    async def workers(self) -> list[psutil.Process]:
        """Return the Python workers of its Spark."""
        jvm = (await self.host.session()).process.pid
        return [worker for forking in psutil.Process(jvm).children() for worker in forking.children()]


@asynccontextmanager
async def _comparing() -> AsyncIterator[_Comparing]:
    clock, notices = SystemClock(), list[str]()
    host = SparkHost(with_retries({}, slots=_SLOTS, failures=4), copy_tasks=_SLOTS, clock=clock, events=EventLog(clock))
    try:
        yield _Comparing(host, VerifyRunner(host, clock, notices.append), notices)
    finally:
        await host.stop(within_s=10)


@asynccontextmanager
async def _mute_cluster(alias: str, answers_within_ms: int) -> AsyncIterator[ClusterEndpoint]:
    """Run a broker that takes requests and never answers."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield ClusterEndpoint(alias, (f"127.0.0.1:{port}",), request_timeout_ms=answers_within_ms)


async def _compared_with_mute_clusters(
    comparing: _Comparing, stop: Callable[[list[psutil.Process]], object], *, answers_within_ms: int = 3_000
) -> list[SliceOutcome]:
    """Compare two slices that wait for brokers, and *stop* something once they do."""
    async with (
        _mute_cluster("A", answers_within_ms) as source,
        _mute_cluster("B", answers_within_ms) as target,
        asyncio.TaskGroup() as group,
    ):
        plans = [
            VerifyPlan(source, target, (Slice(number, TopicPartition("t", number), "A.t", 0, 10, 0, 10),))
            for number in range(2)
        ]
        asked: list[int] = []
        running = group.create_task(comparing.runner.run("A->B", plans, asked.append))

        async def workers() -> list[psutil.Process]:
            found = await comparing.workers() if asked else []
            return found if len(found) == len(plans) else []

        stop(await eventually(workers, within_s=30, what="both slices have a worker"))
        return await running


def _is_dead(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.mark.soak(only="another stopped worker is below")
async def test_a_comparison_goes_on_behind_a_stopped_worker(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """A worker is stopped before its slices begin: it is killed, and every record is compared once all the same."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=4)
    await create_topic(target, f"A.{prefix}", partitions=4)
    await produce_numbers(source, prefix, count=4_000, partitions=4)
    await copy_with(source, prefix, target, f"A.{prefix}", {})
    settings = flow_settings(source, target, topics=prefix)
    async with _comparing() as comparing:
        await comparing.runner.ready()
        (idle,) = await comparing.workers()
        idle.send_signal(signal.SIGSTOP)
        request = VerifyRequest(slots=_SLOTS)
        report = await Verification(settings, request, comparing.runner, clock=SystemClock()).run()

    assert (report.verdict, report.counts.equal) == (Equality.EQUAL, 4_000)
    assert len(comparing.notices) == 1
    assert f"process {idle.pid} has not moved" in comparing.notices[0]
    assert _is_dead(idle)


async def test_a_worker_that_is_stopped_amid_a_slice_is_killed_and_no_other() -> None:
    """One waits for a broker for longer than it may stand still, the other is stopped: only that one is killed."""
    stopped: list[psutil.Process] = []

    def stop(workers: list[psutil.Process]) -> None:
        stopped.append(workers[0])
        workers[0].send_signal(signal.SIGSTOP)

    async with _comparing() as comparing:
        # Longer than a process may stand still here: one that waits for a broker does not hang.
        ms = round(1_000 * (stillness.STILL_FOR_S + stillness._BEGINS_WITHIN_S)) + 2_000
        outcomes = await _compared_with_mute_clusters(comparing, stop, answers_within_ms=ms)

    assert sorted(outcome.number for outcome in outcomes) == [0, 1]
    assert all(outcome.reason for outcome in outcomes)
    assert len(comparing.notices) == 1
    assert f"process {stopped[0].pid} has not moved" in comparing.notices[0]


@pytest.mark.soak(only="the JVM of a mirror is stopped elsewhere")
async def test_a_comparison_begins_again_where_the_jvm_is_stopped() -> None:
    """JVM and workers are stopped: all of them are killed, which is reported, and a new Spark begins again."""
    stopped: list[psutil.Process] = []

    def stop(workers: list[psutil.Process]) -> None:
        stopped.extend([*workers, psutil.Process(psutil.Process(workers[0].ppid()).ppid())])
        for process in stopped:
            process.send_signal(signal.SIGSTOP)

    async with _comparing() as comparing:
        try:
            outcomes = await _compared_with_mute_clusters(comparing, stop)
        finally:
            processes.kill(stopped)

    assert sorted(outcome.number for outcome in outcomes) == [0, 1]
    assert len(comparing.notices) == 1
    assert "it is started again" in comparing.notices[0]
    assert all(map(_is_dead, stopped))
