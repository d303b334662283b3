"""The metrics of a running daemon are true: what is copied, what is left, how long it took, and how groups fare."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import aiohttp
import attrs
import pytest
from aiokafka import AIOKafkaConsumer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families as plain_families
from prometheus_client.samples import Sample

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from tests.support.daemon import Daemon, shared_daemon
from tests.support.eventually import eventually, scaled
from tests.support.groups import commit_plainly
from tests.support.mirrored import assert_mirrored
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers, producer
from tests.support.topics import create_topic, end_offsets


_ALIASES = ("metA", "metB")
_FLOW = "/from:metA/to:metB"
_SOURCE = "kafka_connect_mirror_source_connector_"
_COUNT, _BYTES = f"{_SOURCE}record_count", f"{_SOURCE}byte_count"
_CHECKPOINT = "kafka_connect_mirror_checkpoint_connector_checkpoint_latency_ms"
_LAG = "mm2py_partition_lag_records"
_ACTIVE = "kafka_connect_source_task_source_record_active_count"
_OPEN = "application/openmetrics-text; version=1.0.0"
_TIMED, _EARLY_MS = 300, 60_000
#: By how much later than a consumer's receipt a busy machine may take note of an acknowledgement.
_BUSY_MS = _EARLY_MS / 10


@attrs.frozen
class _Node:
    """A daemon with REST that copies each topic whose name begins with `tag`."""

    daemon: Daemon
    tag: str

    async def url(self) -> str:
        return str((await self.daemon.wait_for_event("rest_listening"))["url"])

    async def ask(self, method: str, path: str, accept: str = "*/*") -> tuple[str, str]:
        """Send a request; return the answer's text and its content type."""
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(aiohttp.ClientSession(await self.url()))
            answer = await stack.enter_async_context(session.request(method, path, headers={"Accept": accept}))
            text = await answer.text()
            assert answer.status < 300, text
            return text, answer.headers.get("Content-Type", "")

    async def scrape(self) -> list[Sample]:
        text, _ = await self.ask("GET", "/metrics")
        return [sample for family in plain_families(text) for sample in family.samples]

    async def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of a metric's series that have *labels*."""
        return [
            sample.value
            for sample in await self.scrape()
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    async def total(self, name: str, **labels: str) -> float:
        return sum(await self.values(name, **labels))

    async def await_total(self, wanted: float, name: str, **labels: str) -> None:
        async def is_there() -> bool:
            found = await self.total(name, **labels)
            assert found == wanted, f"{name} is {found}"
            return True

        await eventually(is_there, within_s=60, what=f"{name} of {labels} is {wanted}", every_s=0.5)


@pytest.fixture(scope="module")
def node(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Node]:
    """Run one daemon for all tests here."""
    tag = f"met-{secrets.token_hex(3)}"
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=_ALIASES,
        **{
            "topics": f"{tag}-.*",
            "groups": f"{tag}-.*",
            "tasks.max": 2,
            "copy.epoch.ms": 1000,
            "emit.heartbeats.enabled": "true",
            "emit.checkpoints.interval.seconds": 1,
        },
    )
    with shared_daemon(tmp_path_factory.mktemp("metrics"), settings) as running:
        yield _Node(running, tag)


async def _mirrored(primary: KafkaCluster, backup: KafkaCluster, topic: str, count: int, partitions: int) -> str:
    """Create and fill a topic and wait until it is mirrored; return the remote topic."""
    await create_topic(primary.bootstrap_servers, topic, partitions=partitions)
    await produce_numbers(primary.bootstrap_servers, topic, count=count, partitions=partitions)
    await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, f"metA.{topic}", count)
    return f"metA.{topic}"


async def test_a_hundred_thousand_records_are_a_hundred_thousand(
    primary: KafkaCluster, backup: KafkaCluster, node: _Node
) -> None:
    """
    What was copied is counted exactly: by partitions, also after the task group began again, and in both forms.

    The JSON of the flow says the same.
    """
    topic = f"{node.tag}-counted"
    remote = await _mirrored(primary, backup, topic, 100_000, 4)
    await node.await_total(100_000, _COUNT, topic=remote)
    partitions = await node.values(_COUNT, topic=remote)
    await node.ask("POST", f"{_FLOW}/connectors/MirrorSourceConnector/restart?includeTasks=true")
    await produce_numbers(primary.bootstrap_servers, topic, count=1_000, partitions=4)
    await node.await_total(101_000, _COUNT, topic=remote)
    opened, content_type = await node.ask("GET", "/metrics", _OPEN)
    samples = [sample for family in open_families(opened) for sample in family.samples]
    snapshot = json.loads((await node.ask("GET", f"{_FLOW}/metrics"))[0])["flows"]["metA->metB"]
    told = [it["value"] for it in snapshot[_COUNT]["samples"] if it["labels"]["topic"] == remote]

    assert partitions == [25_000] * 4
    assert content_type.startswith("application/openmetrics-text")
    assert sum(it.value for it in samples if it.name == _COUNT and it.labels["topic"] == remote) == 101_000
    assert sum(told) == 101_000
    assert await node.total(_BYTES, topic=remote) > 101_000 * 200
    assert await node.total("mm2py_flow_records_total") >= 101_000


async def test_lag_is_end_offset_minus_position(primary: KafkaCluster, backup: KafkaCluster, node: _Node) -> None:
    """A topic is paused while 500 records come: its lag is 500, and more with time; resumed, it is 0. So is what the
    target has not acknowledged, by Connect's name, of which dashboards ask whether all has arrived.
    """
    topic = f"{node.tag}-lagging"
    remote = await _mirrored(primary, backup, topic, 1_000, 1)
    await node.ask("PUT", f"{_FLOW}/topics/{topic}/pause")
    await eventually(lambda: _is_paused(node, topic), within_s=30, what="the topic is paused")
    await produce_numbers(primary.bootstrap_servers, topic, count=500, partitions=1)
    await node.await_total(500, _LAG, topic=remote)
    await node.await_total(500, _ACTIVE)
    behind = sum((await end_offsets(primary.bootstrap_servers, topic)).values()) - sum(
        (await end_offsets(backup.bootstrap_servers, remote)).values()
    )
    (waited_s,) = await node.values("mm2py_partition_lag_seconds", topic=remote)
    await node.ask("PUT", f"{_FLOW}/topics/{topic}/resume")
    await node.await_total(0, _LAG, topic=remote)
    await node.await_total(0, _ACTIVE)
    await node.await_total(1_500, _COUNT, topic=remote)

    assert behind == 500
    assert 0 < waited_s < scaled(60)
    assert await node.values("mm2py_partition_lag_seconds", topic=remote) == [0]


def _is_paused(node: _Node, topic: str) -> bool:
    views = node.daemon.partition_views(topic, "metA->metB")
    return bool(views) and all(view["stage"] == "paused" for view in views.values())


async def test_latency_agrees_with_a_consumer_s(primary: KafkaCluster, backup: KafkaCluster, node: _Node) -> None:
    """
    From timestamp to arrival the metrics say what a consumer of the remote topic sees.

    Producers stamp records a minute early, so that a busy machine's delays are small beside it.
    """
    topic = f"{node.tag}-timed"
    await create_topic(primary.bootstrap_servers, topic)
    await eventually(
        lambda: node.daemon.partition_views(topic, "metA->metB"), within_s=60, what="the topic is mirrored"
    )
    consumer = AIOKafkaConsumer(
        f"metA.{topic}", bootstrap_servers=backup.bootstrap_servers, auto_offset_reset="earliest"
    )
    took_ms: list[float] = []

    async def consume() -> None:
        while len(took_ms) < _TIMED:
            record = await consumer.getone()
            took_ms.append(time.time() * 1_000 - record.timestamp)

    async with producer(primary.bootstrap_servers) as connected, consumer, asyncio.TaskGroup() as tasks:
        tasks.create_task(consume())
        for _ in range(_TIMED):
            stamp_ms = int(time.time() * 1_000) - _EARLY_MS
            await connected.send_and_wait(topic, b"x" * 100, partition=0, timestamp_ms=stamp_ms)
            await asyncio.sleep(0.01)
    await node.await_total(_TIMED, _COUNT, topic=f"metA.{topic}")
    names = [f"replication_latency_ms{ending}" for ending in ("", "_min", "_avg", "_max")]
    last, least, mean, greatest = [(await node.values(f"{_SOURCE}{name}", topic=f"metA.{topic}"))[0] for name in names]
    (age,) = await node.values(f"{_SOURCE}record_age_ms_avg", topic=f"metA.{topic}")
    outside_ms = sum(took_ms) / len(took_ms)

    assert _EARLY_MS <= least <= min(mean, last) <= max(mean, last) <= greatest <= max(took_ms) + _BUSY_MS
    assert _EARLY_MS <= age <= mean <= outside_ms + _BUSY_MS
    assert outside_ms - mean < _EARLY_MS / 4


async def test_what_the_source_keeps_is_known(primary: KafkaCluster, backup: KafkaCluster, node: _Node) -> None:
    """With nothing left to copy, a topic with a retention of an hour keeps what comes now for an hour."""
    topic = f"{node.tag}-kept"
    await create_topic(primary.bootstrap_servers, topic, partitions=1, configs={"retention.ms": "3600000"})
    await produce_numbers(primary.bootstrap_servers, topic, count=10, partitions=1)
    await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, f"metA.{topic}", 10)

    async def is_known() -> bool:
        found = await node.values("mm2py_partition_retention_loss_seconds", topic=f"metA.{topic}")
        assert found == [3_600], found
        return True

    await eventually(is_known, within_s=60, what="it is known what the source keeps")


async def test_a_group_s_checkpoints_are_measured(primary: KafkaCluster, backup: KafkaCluster, node: _Node) -> None:
    """A group that commits gets a checkpoint, and the time that took is shown for the group."""
    topic, group = f"{node.tag}-read", f"{node.tag}-readers"
    await _mirrored(primary, backup, topic, 100, 1)
    await commit_plainly(primary.bootstrap_servers, group, {TopicPartition(topic, 0): 40})

    async def found() -> list[float]:
        return await node.values(f"{_CHECKPOINT}_max", group=group)

    assert 0 < (await eventually(found, within_s=60, what="a checkpoint's latency is shown"))[0] < scaled(30_000)
    assert await node.total("mm2py_checkpoints_written_total") >= 1

    async def distance() -> bool:
        seen = await node.total("mm2py_consumer_group_distance_records", group=group)
        assert seen == 60, seen
        return True

    await eventually(distance, within_s=30, what="the group's distance is shown")


async def test_the_node_shows_how_it_fares(node: _Node) -> None:
    """Spark's slots, connectors, tasks, clusters, heartbeats and last successes of a flow that runs are shown."""
    await node.daemon.wait_for_event("heartbeats_started")
    await node.daemon.wait_for_event("flow_started")
    await node.daemon.wait_for_event("spark_started")
    now = time.time()

    async def of_flow(name: str, **labels: str) -> list[float]:
        return await node.values(name, source="metA", **labels)

    assert await of_flow("mm2py_flow_state") == [1]
    assert await of_flow("mm2py_cluster_reachable") == [1, 1]
    assert await node.values("mm2py_spark_up") == [1]
    assert await node.values("mm2py_spark_slots") == [3]
    assert await of_flow("mm2py_flow_missing_destination_partitions") == [0]
    assert len(await of_flow("mm2py_connector_state")) == 3
    assert len(await of_flow("kafka_connect_connector_status", connector="MirrorSourceConnector")) in (1, 2)
    assert await of_flow("kafka_connect_worker_rebalance_completed_rebalances_total") >= [1]
    connectors = await node.values("kafka_connect_worker_connector_count")
    assert await node.values("kafka_connect_coordinator_assigned_connectors") == connectors
    assert (await of_flow("mm2py_heartbeat_emit_age_seconds"))[0] < 30
    assert now - (await of_flow("mm2py_last_success_timestamp_seconds", step="refresh topics"))[0] < 30
    assert (await node.values("process_cpu_seconds_total"))[0] > 0
