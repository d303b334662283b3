"""Records that cannot be parsed in the mirror's own topics: flows report them once, and go on copying."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import position_key
from mm2py.model.run_chunk import chunk_key
from mm2py.telemetry.events import CheckpointsRead, RecordPassedOver, TaskRestarted
from tests.support.batches import Content, build_batch
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.mirrored import await_arrived
from tests.support.planting import write_batch
from tests.support.producing import produce_numbers, producer
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


ALIAS, COUNT = "G", 2_000
BRACKETS = b"[" * 100_000
#: One more than the last offset that there can be a record behind.
PAST_64_BITS = b'{"offset":9223372036854775807}'


async def plant(bootstrap: str, topic: str, records: Sequence[tuple[bytes, bytes]]) -> None:
    async with producer(bootstrap) as connected:
        for key, value in records:
            await connected.send_and_wait(topic, value, key=key)


async def plant_header(bootstrap: str, topic: str) -> None:
    """Write a record with a header whose name is not UTF-8, which brokers take and Python's clients cannot read."""
    batch = bytearray(build_batch([Content(0, headers=(("name", b"x"),))]))
    at = batch.rindex(b"name")
    batch[at : at + 4] = b"\xff\xfe\xfd\xfc"
    await write_batch(bootstrap, TopicPartition(topic, 0), bytes(batch), 1)


async def checkpoints_read(flow: RunningFlow) -> None:
    await eventually(lambda: bool(flow.events.of(CheckpointsRead)), within_s=30, what="checkpoints are read")


async def test_garbage_in_internal_topics(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A flow is stopped, each topic that it keeps gets absurd records, and it is started again.

    One of them is the newest record for a partition's position. Each is reported once, in a bounded number of events,
    and every record of the source arrives once.
    """
    source, target, topic = primary.bootstrap_servers, backup.bootstrap_servers, prefix
    remote = f"{ALIAS}.{topic}"
    await create_topic(source, topic, partitions=2, configs={"retention.ms": "1000000000"})
    settings = flow_settings(
        source, target, alias=ALIAS, **{f"{ALIAS}->B.topics": topic, "offset-syncs.topic.location": "target"}
    )
    await produce_numbers(source, topic, count=COUNT, partitions=2)
    async with running_flow(settings, tmp_path) as flow:
        await await_arrived(target, remote, COUNT)
        await checkpoints_read(flow)
        await flow.drain()

    strange = TopicPartition(topic, 0)
    positions = f"mm2-offsets.{ALIAS}.internal"
    many = [(b"rubbish-%d" % number, b"{}") for number in range(20)]
    await plant(
        target,
        positions,
        [
            (BRACKETS, b"{}"),
            (position_key(ALIAS, strange), PAST_64_BITS),
            (chunk_key(ALIAS, strange, 7), BRACKETS),
            *many,
        ],
    )
    await plant_header(target, positions)
    await plant(target, f"mm2-synced.{ALIAS}.internal", [(BRACKETS, b"{}")])
    await plant(target, f"{ALIAS}.checkpoints.internal", [(b"x", BRACKETS)])
    await plant(target, f"mm2-offset-syncs.{ALIAS}.internal", [(b"\x7f", BRACKETS)])

    async with running_flow(settings, tmp_path) as flow:
        await checkpoints_read(flow)
        async with producer(source) as connected:
            for number in range(COUNT, COUNT + 100):
                await connected.send_and_wait(topic, b"%012d" % number, partition=number % 2)
        await await_arrived(target, remote, COUNT + 100)
        await eventually(lambda: len(passed_over(flow)) == 4, within_s=30, what="garbage is told of")
        await flow.drain()

    told = passed_over(flow)
    assert {topic: sum(1 + event.others for event in events) for topic, events in told.items()} == {
        positions: 24,
        f"mm2-synced.{ALIAS}.internal": 1,
        f"{ALIAS}.checkpoints.internal": 1,
        f"mm2-offset-syncs.{ALIAS}.internal": 1,
    }
    assert len(told[positions]) == 3
    assert flow.events.of(TaskRestarted) == ()
    assert_numbers(await read_numbers(target, remote), COUNT + 100)


def passed_over(flow: RunningFlow) -> dict[str, list[RecordPassedOver]]:
    """Return the events about garbage, by the topic that it is in."""
    told: dict[str, list[RecordPassedOver]] = {}
    for event in flow.events.of(RecordPassedOver):
        told.setdefault(event.place.topic, []).append(event)
    return told
