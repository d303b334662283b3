"""A target slower than its source: fetching stops, memory stays bounded, nothing is lost or repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.ports import HOST, free_ports
from tests.support.brokers import MakeCluster
from tests.support.daemon import Daemon, daemon
from tests.support.mirrored import arrived, assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.slow_link import slow_link
from tests.support.topics import create_topic, throttle_producers


_PARTITIONS = 4
_MIB = 1024 * 1024
_BUFFER_BYTES = 8 * _MIB
#: What a Python worker may take besides its buffer: answers being received, requests being sent, the allocator's slack.
_MARGIN_BYTES = 24 * _MIB


class _Peak:
    """The most memory that the daemon's Python workers were seen to take, each by itself."""

    def __init__(self, mirror: Daemon) -> None:
        self._mirror = mirror
        self.bytes = 0

    def look(self) -> int:
        """Return what the largest worker takes now."""
        now = max(psutil.Process(pid).memory_info().rss for pid in self._mirror.spark_workers())
        self.bytes = max(self.bytes, now)
        return now

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async def watch() -> None:
            while True:
                self.look()
                await asyncio.sleep(0.05)

        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watch())
            try:
                yield
            finally:
                watching.cancel()


def _behind_a_line(make_cluster: MakeCluster) -> tuple[KafkaCluster, int]:
    """Start a cluster that sends its clients to another port, and return that port."""
    (port,) = free_ports(1)
    return make_cluster("slow", properties={"advertised.listeners": f"PLAINTEXT://{HOST}:{port}"}), port


@pytest.mark.soak(only="a frozen target shows the bounds, too")
async def test_memory_stays_bounded_behind_a_slow_line(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """With 56 MB waiting and a line of 2.5 MB/s, a worker grows by little more than its buffer; all arrives once."""
    count = 56_000
    target, port = _behind_a_line(make_cluster)
    servers = f"{HOST}:{port}"
    await create_topic(primary.bootstrap_servers, prefix, partitions=_PARTITIONS)
    # Each partition alone might fill the worker's buffer, so that only the buffer's own bound holds.
    buffers = {"copy.buffer.bytes": _BUFFER_BYTES, "copy.partition.buffer.bytes": _BUFFER_BYTES}
    settings = mm2_properties(
        primary.bootstrap_servers, servers, **{"A->B.topics": prefix, "copy.epoch.ms": 2000, **buffers}
    )
    async with slow_link(port, target.nodes[0].port, bytes_per_s=2_500_000), daemon(tmp_path, settings) as mirror:
        await mirror.wait_for_event("spark_started")
        peak = _Peak(mirror)
        before = peak.look()
        async with peak.watched():
            await produce_numbers(primary.bootstrap_servers, prefix, count=count, partitions=_PARTITIONS, size=1_000)
            waiting = count - await arrived(servers, f"A.{prefix}")
            await await_arrived(servers, f"A.{prefix}", count)
        await assert_mirrored(primary.bootstrap_servers, prefix, servers, f"A.{prefix}", count)
        assert await mirror.sigterm() == 0

    assert waiting * 1_000 > _BUFFER_BYTES + _MARGIN_BYTES
    assert peak.bytes - before <= _BUFFER_BYTES + _MARGIN_BYTES
    assert not list(mirror.events("resume_unproven"))


async def test_a_quota_of_the_target_is_honoured(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """Under a target's producer quota of 4 MB/s the copy waits as long as it is throttled; all arrives once."""
    count = 30_000
    target = make_cluster("quota", properties={"quota.window.num": "3"})
    await asyncio.to_thread(throttle_producers, target.bootstrap_servers, 4_000_000)
    await create_topic(primary.bootstrap_servers, prefix, partitions=_PARTITIONS)
    await produce_numbers(primary.bootstrap_servers, prefix, count=count, partitions=_PARTITIONS, size=1_000)
    settings = mm2_properties(
        primary.bootstrap_servers,
        target.bootstrap_servers,
        **{"A->B.topics": prefix, "copy.epoch.ms": 2000, "log.level": "debug"},
    )
    async with daemon(tmp_path, settings) as mirror:
        await await_arrived(target.bootstrap_servers, f"A.{prefix}", count)
        await assert_mirrored(primary.bootstrap_servers, prefix, target.bootstrap_servers, f"A.{prefix}", count)
        assert await mirror.sigterm() == 0
    throttled_ms = sum(event["throttled_ms"] for event in mirror.events("epoch_ended"))

    assert throttled_ms > 1_000
    assert not list(mirror.events("resume_unproven"))
    assert not list(mirror.events("copy_task_lost"))


@pytest.mark.soak(only="batches arrive late in a process, too")
async def test_batches_that_arrive_late(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Batches that are delivered after their epoch was given up, and their records sent again, are not appended.

    The epoch ends with requests unanswered and closes its connection, but they stay on their way, in buffers of the
    network or of a broker whose quota holds the connection. The next epoch finds that they have not arrived and
    copies on. Then they arrive.
    """
    count = 28_000
    target, port = _behind_a_line(make_cluster)
    servers, remote_topic = f"{HOST}:{port}", f"A.{prefix}"
    await create_topic(primary.bootstrap_servers, prefix, partitions=_PARTITIONS)
    settings = mm2_properties(
        primary.bootstrap_servers,
        servers,
        **{"A->B.topics": prefix, "copy.epoch.ms": 1000, "copy.drain.ms": 500, "log.level": "debug"},
    )
    async with slow_link(port, target.nodes[0].port) as link, daemon(tmp_path, settings) as mirror:
        await mirror.wait_for_event("spark_started")
        async with numbered_stream(
            primary.bootstrap_servers, prefix, count=count, partitions=_PARTITIONS, rate=4_000, size=1_000
        ) as stream:
            await await_arrived(servers, remote_topic, 4_000)
            held = link.hold_writers()
            await mirror.wait_for_event("partition_interrupted")
            await await_arrived(servers, remote_topic, await arrived(servers, remote_topic) + 2_000)
            link.release()
            await stream.done()
        await await_arrived(servers, remote_topic, count)
        await assert_mirrored(primary.bootstrap_servers, prefix, servers, remote_topic, count)
        assert await mirror.sigterm() == 0

    assert held > 0
