"""All settings at their extremes at once: a flow still makes progress."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.telemetry.events import ResumeUnproven
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.topics import create_topic, end_offsets


_INT, _LONG = 2**31 - 1, 2**63 - 1
_PARTITIONS = 3
_LEAST = {
    "A.consumer.fetch.min.bytes": 0,
    "A.consumer.fetch.max.wait.ms": 0,
    "A.consumer.fetch.max.bytes": 1,
    "A.consumer.max.partition.fetch.bytes": 1,
    "A.consumer.metadata.max.age.ms": 1,
    "A.consumer.reconnect.backoff.ms": 0,
    "A.consumer.reconnect.backoff.max.ms": 0,
    "B.producer.max.request.size": 1,
    "B.producer.max.in.flight.requests.per.connection": 1,
    "B.producer.retry.backoff.ms": 0,
    "B.producer.retry.backoff.max.ms": 0,
    "B.producer.metadata.max.age.ms": 1,
    "B.producer.reconnect.backoff.ms": 0,
    "B.producer.reconnect.backoff.max.ms": 0,
    "B.producer.batch.size": 1,
    "B.offset.flush.interval.ms": 1,
    "B.heartbeat.interval.ms": 1,
    "copy.epoch.ms": 500,
    "copy.drain.ms": 100,
    "copy.buffer.bytes": 65536,
    "copy.partition.buffer.bytes": 65536,
    "copy.coalesce.below.bytes": 0,
    "refresh.topics.interval.seconds": 1,
    "sync.topic.configs.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "tasks.max": 1,
}
_MOST = {
    "A.consumer.fetch.min.bytes": _INT,
    "A.consumer.fetch.max.bytes": _INT,
    "A.consumer.max.partition.fetch.bytes": _INT,
    "A.consumer.metadata.max.age.ms": _LONG,
    "B.producer.max.request.size": _INT,
    "B.producer.metadata.max.age.ms": _LONG,
    "B.offset.flush.interval.ms": 3_600_000,
    "B.heartbeat.interval.ms": _INT,
    "copy.epoch.ms": 3_600_000,
    "copy.drain.ms": 3_600_000,
    "copy.buffer.bytes": 65536,
    "copy.coalesce.below.bytes": _INT,
    "B.producer.batch.size": _INT,
    "refresh.topics.interval.seconds": 86_400,
    "tasks.max": 1000,
}


@pytest.mark.parametrize("extremes", [_LEAST, _MOST], ids=["least", "most"])
async def test_extremes_copy_all_the_same(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, extremes: Mapping[str, object]
) -> None:
    """
    A flow with every setting at an extreme copies, also after a crash, when it has to find out what arrived.

    Epochs that were shorter than it takes to find that out once copied nothing at all; nor did fetches that may not
    wait.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=_PARTITIONS)
    keys = {"A->B.topics": prefix, "B.group.id": prefix, **{key: str(value) for key, value in extremes.items()}}
    settings = flow_settings(source, target, **keys)

    async def arrived(count: int) -> None:
        async def is_there() -> bool:
            return sum((await end_offsets(target, f"A.{prefix}")).values()) >= count

        await eventually(is_there, within_s=30, what=f"{count} records are at the target", every_s=0.3)

    await produce_numbers(source, prefix, count=3_000, partitions=_PARTITIONS)
    async with running_flow(settings, tmp_path) as flow:
        await arrived(3_000)
        await flow.crash()
    await produce_numbers(source, prefix, count=600, partitions=_PARTITIONS)
    async with running_flow(settings, tmp_path) as flow:
        await arrived(3_600)
        await flow.crash()

    assert not flow.events.of(ResumeUnproven)
    assert await read_numbers(target, f"A.{prefix}") == await read_numbers(source, prefix)
