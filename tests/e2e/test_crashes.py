"""A copy that is cut off in the middle of a running stream: nothing is lost, nothing comes twice, order is kept."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import psutil
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import cluster_factory
from tests.support.daemon import Daemon, Event, daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import NumberedStream, numbered_stream
from tests.support.topics import create_topic, end_offsets


_PARTITIONS = 4
_RATE = 2_000
_AT_LEAST = 10_000


@asynccontextmanager
async def _running_stream(cluster: KafkaCluster, topic: str) -> AsyncIterator[NumberedStream]:
    """Create a topic and write to it in the background, each record exactly once, until the test ends the stream."""
    await create_topic(cluster.bootstrap_servers, topic, partitions=_PARTITIONS)
    async with numbered_stream(
        cluster.bootstrap_servers,
        topic,
        count=_AT_LEAST,
        partitions=_PARTITIONS,
        rate=_RATE,
        codec="lz4",
        open_ended=True,
    ) as stream:
        yield stream


def _settings(source: KafkaCluster, target: KafkaCluster, topic: str, **keys: object) -> str:
    return mm2_properties(
        source.bootstrap_servers,
        target.bootstrap_servers,
        **{"A->B.topics": topic, "tasks.max": 2, "copy.epoch.ms": 1000, **keys},
    )


@pytest.mark.soak(only="the next one is killed three times")
async def test_daemon_killed_twice(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A daemon that is killed twice goes on exactly after what has arrived; its child processes end by themselves."""
    # Epochs of full length: what Spark still runs for the dead daemon would go on for seconds.
    settings = _settings(primary, backup, prefix, **{"copy.epoch.ms": 5000})
    remote_topic = f"A.{prefix}"
    async with _running_stream(primary, prefix) as stream, AsyncExitStack() as runs:
        first = await runs.enter_async_context(daemon(tmp_path, settings))
        await await_arrived(backup.bootstrap_servers, remote_topic, 1)
        await _moving_on(backup, remote_topic, 500)
        at_work = first.spark_workers()
        await first.kill()

        second = await runs.enter_async_context(daemon(tmp_path, settings))
        await eventually(lambda: not first.orphans(), within_s=15, what="nothing of the first daemon runs any more")
        await _moving_on(backup, remote_topic, 500)
        await second.kill()

        third = await runs.enter_async_context(daemon(tmp_path, settings))
        await eventually(lambda: _resumed(third) == set(range(_PARTITIONS)), within_s=30, what="all have resumed")
        count = await stream.done()
        await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, remote_topic, count)

        assert len(at_work) == 2
        assert not [event for run in (first, second, third) for event in run.events("resume_unproven")]


async def test_daemon_killed_in_its_first_seconds(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A daemon that is killed before and after the first record it copies leaves nothing that the next cannot use.

    What it had started ends by itself.
    """
    settings = _settings(primary, backup, prefix)
    remote_topic = f"A.{prefix}"
    async with _running_stream(primary, prefix) as stream, AsyncExitStack() as runs:
        for moment in ("topic_created", "first records"):
            life = await runs.enter_async_context(daemon(tmp_path, settings))
            if moment == "first records":
                await await_arrived(backup.bootstrap_servers, remote_topic, 1)
            else:
                await life.wait_for_event(moment)
            await life.kill()

        last = await runs.enter_async_context(daemon(tmp_path, settings))
        await eventually(lambda: not life.orphans(), within_s=15, what="nothing of the daemon before runs any more")
        count = await stream.done()
        await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, remote_topic, count)

        assert not list(last.events("resume_unproven"))


async def test_worker_killed(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """The copy task whose Python worker is killed is reported and planned again alone; the other one goes on."""
    settings = _settings(primary, backup, prefix, **{"copy.drain.ms": 3000, "log.level": "debug"})
    async with _running_stream(primary, prefix) as stream, daemon(tmp_path, settings) as running:
        await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 3_000)
        looking = asyncio.create_task(_backing_off(running))
        lost, other = await _kill_a_worker(running)
        backing_off = await looking
        recovered = await running.wait_for_event("copy_task_recovered", task=lost["task"])
        count = await stream.done()
        await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, f"A.{prefix}", count)

        events = list(running.events())
        meanwhile = events[events.index(lost) : events.index(recovered)]
        ended = [event for event in meanwhile if event["event"] == "epoch_ended" and event["task"] != lost["task"]]
        assert psutil.pid_exists(other)
        assert sum(event["records"] for event in ended) > 0
        # If the kernel killed any process of this machine meanwhile because memory was short, it says so, too.
        assert lost["cause"].startswith("its Python worker was killed")
        assert backing_off["last_error"] == lost["cause"]
        assert backing_off["lost_epochs"] == recovered["lost_epochs"] == 1
        assert [event["task"] for event in running.events("copy_task_lost")] == [lost["task"]]
        assert not list(running.events("resume_unproven"))


@attrs.frozen
class _Absences:
    """What came of two absences of a target: at first it came back, then the daemon was stopped meanwhile."""

    #: How often a daemon had logged an event, by its name, when the target was back.
    logged: dict[str, int]
    exit_code: int
    drained: Event
    unproven: list[Event]


@pytest.fixture(scope="module")
def absences(primary: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Absences]:
    """Kill the only broker of a target twice; each record of a stream is there once, in order, in the end."""
    with cluster_factory() as make:
        yield asyncio.run(_kill_twice(primary, make("doomed", is_killed=True), tmp_path_factory.mktemp("absences")))


async def _kill_twice(source: KafkaCluster, target: KafkaCluster, folder: Path) -> _Absences:
    topic = f"killed-twice-{secrets.token_hex(3)}"
    settings, remote = _settings(source, target, topic), f"A.{topic}"
    async with _running_stream(source, topic) as stream:
        async with daemon(folder, settings) as first:
            await await_arrived(target.bootstrap_servers, remote, 3_000)
            await asyncio.to_thread(target.kill, 0)
            await first.wait_for_event("cluster_unreachable", cluster="B")
            await asyncio.to_thread(target.start, 0)
            await first.wait_for_event("cluster_recovered", cluster="B")
            await _moving_on(target, remote, 500)
            names = ("cluster_unreachable", "cluster_recovered", "copy_task_lost", "resume_unproven")
            logged = {name: len(list(first.events(name))) for name in names}
            await asyncio.to_thread(target.kill, 0)
            await eventually(
                lambda: len(list(first.events("cluster_unreachable"))) > 1, within_s=30, what="it is away again"
            )
            exit_code = await first.sigterm(within_s=20)
            drained = await first.wait_for_event("flow_drained")
        await asyncio.to_thread(target.start, 0)
        async with daemon(folder, settings) as second:
            await _moving_on(target, remote, 500)
            count = await stream.done()
            await assert_mirrored(source.bootstrap_servers, topic, target.bootstrap_servers, remote, count)
            return _Absences(logged, exit_code, drained, list(second.events("resume_unproven")))


def test_broker_killed(absences: _Absences) -> None:
    """A broker that is killed and started again costs no record and repeats none, and its absence is logged once."""
    expected = {"cluster_unreachable": 1, "cluster_recovered": 1, "copy_task_lost": 0, "resume_unproven": 0}

    assert absences.logged == expected


def test_stopped_while_target_is_away(absences: _Absences) -> None:
    """A daemon that is stopped while its target is down ends in bounded time; the next one goes on exactly."""
    assert absences.exit_code == 0
    assert not absences.drained["positions_written"]
    assert absences.unproven == []


def _resumed(run: Daemon) -> set[int]:
    return {event["partition"] for event in run.events("resumed_exactly")}


async def _moving_on(cluster: KafkaCluster, remote_topic: str, more: int) -> None:
    """Wait until each partition of a remote topic has that many more records than now."""
    # A broker that was just started may not lead them yet.
    before = await eventually(
        lambda: end_offsets(cluster.bootstrap_servers, remote_topic), within_s=30, what=f"{remote_topic} has ends"
    )

    async def have_more() -> bool:
        now = await end_offsets(cluster.bootstrap_servers, remote_topic)
        assert all(now.get(number, 0) >= end + more for number, end in before.items()), f"{before} became {now}"
        return True

    await eventually(have_more, within_s=60, what=f"{more} more records in each partition of {remote_topic}")


async def _workers(running: Daemon) -> tuple[int, int]:
    """Return the process ids of the Python workers of both copy tasks."""

    def both() -> tuple[int, int] | None:
        found = [int(task["worker"].rpartition(":")[2] or 0) for task in running.flow_view().get("tasks", ())]
        return (found[0], found[1]) if len(set(found)) == 2 and all(found) else None

    return await eventually(both, within_s=30, what="both copy tasks have shown their workers")


async def _kill_a_worker(running: Daemon) -> tuple[Event, int]:
    """
    Kill a copy task's Python worker; return the event of its loss, and the other task's worker.

    A worker that is shown may have ended its epoch meanwhile: then its loss is not an event, and the next is tried.
    """

    async def told() -> tuple[Event, int] | None:
        victim, other = await _workers(running)
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        with suppress(AssertionError):
            return await running.wait_for_event("copy_task_lost", within_s=5, flow="A->B"), other
        return None

    return await eventually(told, within_s=60, what="a worker was killed in the middle of an epoch")


async def _backing_off(running: Daemon) -> dict[str, Any]:
    """Wait until the status shows a copy task that backs off, which it does for some seconds."""

    def found() -> dict[str, Any] | None:
        views = running.flow_view().get("tasks", ())
        return next((view for view in views if view["state"] == "backing_off"), None)

    return await eventually(found, within_s=90, what="a copy task backs off")
