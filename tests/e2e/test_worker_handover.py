"""A connector of a Connect worker moves from Java to mm2py and back, and each of them is killed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.positions import Position, decode_position
from tests.support.connect_workers import from_java, java_worker, mm2_connector, worker_file
from tests.support.daemon import command
from tests.support.eventually import eventually
from tests.support.flow_rest import WorkerRest
from tests.support.groups import describe
from tests.support.mirrored import arrived, await_arrived
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.topics import create_topic


_PARTITIONS, _RATE = 2, 1_000
#: What each of them has copied at least when it is killed.
_PART = 2_500
_ASIDE = 50
_QUIET = {
    "replication.factor": 1,
    "emit.offset-syncs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "heartbeats.replication.enabled": "false",
    "tasks.max": _PARTITIONS,
}


async def test_a_connector_moves_to_mm2py_and_back_after_sigkill(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Workers run a connector one after the other: of Kafka Connect, of mm2py, of Kafka Connect; each stands in the middle
    of a stream when it is killed.

    mm2py repeats and loses nothing of what Java copied. Java goes on at what mm2py stored under the connector's name.
    Another connector of the pair, which stands still when they are killed, runs beside it.
    """
    source, target, name = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-mirror"
    remote, aside = f"west.{prefix}", f"{prefix}-aside"
    file = worker_file(tmp_path, target, prefix, **{"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000})
    config = mm2_connector("MirrorSourceConnector", "west", source, topics=prefix, **_QUIET)
    config["target.cluster.bootstrap.servers"] = target
    await create_topic(source, prefix, partitions=_PARTITIONS)
    await create_topic(source, aside)
    more_aside = partial(_copied, source, target, aside)
    has_flushed = partial(_has_stored, target, f"{prefix}-offsets", {name: _PARTITIONS, aside: 1})
    is_free = partial(_is_free, target, f"{prefix}-connect")
    async with numbered_stream(
        source, prefix, count=_PART, partitions=_PARTITIONS, rate=_RATE, open_ended=True
    ) as stream:
        with java_worker(tmp_path, file) as (url, java):
            configs = {name: config, aside: {**config, "topics": aside}}
            await from_java(WorkerRest(url), "Kafka Connect takes the connectors", partial(_create, url, configs))
            await await_arrived(target, remote, _PART)
            await more_aside(_ASIDE)
            await eventually(has_flushed, within_s=30, what="Java has stored all positions", every_s=0.5)
            await asyncio.to_thread(java.kill)
        by_java = await arrived(target, remote)
        async with command(tmp_path, "mm2py.cli.distributed", file, "--override", "rest.port=0") as mm2py:
            await await_arrived(target, remote, by_java + _PART)
            await more_aside(2 * _ASIDE)
            await mm2py.kill()
            unproven = list(mm2py.events("resume_unproven"))
        by_mm2py, aside_by_mm2py = await read_numbers(target, remote), await read_numbers(target, f"west.{aside}")
        await eventually(is_free, within_s=30, what="the killed one's place in the group is free", every_s=0.5)
        stored = await _stored(target, f"{prefix}-offsets", name)
        with java_worker(tmp_path, file):
            await await_arrived(target, remote, sum(map(len, by_mm2py.values())) + 1)
            await more_aside(3 * _ASIDE)
            count = await stream.done()

            async def all_there() -> dict[int, list[int]]:
                there = await read_numbers(target, remote)
                missing = set(range(count)).difference(*there.values())
                assert not missing, f"{len(missing)} records are missing"
                return there

            found = await eventually(all_there, within_s=60, what=f"all records are in {remote}", every_s=0.5)

    assert not unproven
    assert aside_by_mm2py == {0: [*range(_ASIDE)] * 2}
    for partition, numbers in by_mm2py.items():
        assert numbers == list(range(partition, count, _PARTITIONS))[: len(numbers)]
        assert _steps_back(found[partition]) in ([], [(len(numbers), stored[partition] * _PARTITIONS + partition)])


async def _create(url: str, configs: Mapping[str, Mapping[str, object]]) -> None:
    for name, config in configs.items():
        await WorkerRest(url).ask("PUT", f"/connectors/{name}/config", config)


async def _has_stored(bootstrap: str, topic: str, partitions: Mapping[str, int]) -> bool:
    """Whether a worker's topic has positions of so many partitions, by the connectors' names."""
    return all([len(await _stored(bootstrap, topic, name)) == count for name, count in partitions.items()])


async def _is_free(bootstrap: str, group: str) -> bool:
    return (await describe(bootstrap, group)).is_idle


async def _copied(source: str, target: str, topic: str, count: int) -> None:
    """Produce more numbers into a topic, and wait until so many of them have been copied."""
    await produce_numbers(source, topic, count=_ASIDE, partitions=1)
    await await_arrived(target, f"west.{topic}", count)


async def _stored(bootstrap: str, topic: str, connector: str) -> dict[int, int]:
    """Return the offset of the next record by partition, as the worker's topic has it under a connector's name."""
    records = itertools.chain.from_iterable((await read_topic(bootstrap, topic, reads_committed=True)).values())
    found = [decode_position(record.key, record.value, connector=connector) for record in records]
    positions = [it[1] for it in found if isinstance(it, tuple)]
    return {it.source.partition: it.next_upstream for it in positions if isinstance(it, Position)}


def _steps_back(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the places where a number is not larger than the one before it, with the number there."""
    return [(at + 1, after) for at, (before, after) in enumerate(itertools.pairwise(numbers)) if after <= before]
