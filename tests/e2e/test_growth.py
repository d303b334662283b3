"""What changes at the source while the daemon copies: topics that come and go, partitions added, records too large."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import Daemon, shared_daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce, produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.records import MIDDLE_MS, NewRecord, assert_same_records, plain_records
from tests.support.topics import (
    alter_topic,
    create_topic,
    delete_topic,
    end_offsets,
    grow_topic,
    leaders,
    list_topics,
)


_REFRESH_S = 1
#: The interval, a look at two clusters, and the creation of what is missing.
_PICKED_UP_S = _REFRESH_S + 5.0


@attrs.frozen
class _Mirror:
    """A daemon that copies every topic whose name begins with `tag`, with two copy tasks."""

    running: Daemon
    tag: str

    def topic(self, name: str) -> str:
        return f"{self.tag}-{name}"


@pytest.fixture(scope="module")
def mirror(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Mirror]:
    """Run one daemon for all tests here whose topics do not get in each other's way."""
    tag = f"growth-{secrets.token_hex(3)}"
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **{
            "A->B.topics": f"{tag}-.*",
            "tasks.max": 2,
            "copy.epoch.ms": 1000,
            "refresh.topics.interval.seconds": _REFRESH_S,
        },
    )
    with shared_daemon(tmp_path_factory.mktemp("growth"), settings) as running:
        yield _Mirror(running, tag)


async def test_topic_created(primary: KafkaCluster, backup: KafkaCluster, mirror: _Mirror) -> None:
    """A topic created during the copy has a remote topic of its size within the interval, and nothing is left out."""
    topic = mirror.topic("new")
    await mirror.running.wait_for_event("spark_started")
    await create_topic(primary.bootstrap_servers, topic, partitions=3)
    await produce_numbers(primary.bootstrap_servers, topic, count=3_000, partitions=3)

    await eventually(lambda: _is_listed(backup, f"A.{topic}"), within_s=_PICKED_UP_S, what="the remote topic is there")

    await assert_mirrored(primary.bootstrap_servers, topic, backup.bootstrap_servers, f"A.{topic}", 3_000)
    assert len(await leaders(backup.bootstrap_servers, f"A.{topic}")) == 3


async def test_partitions_added(primary: KafkaCluster, backup: KafkaCluster, mirror: _Mirror) -> None:
    """Partitions added during the copy are copied from their first record within the interval; the others go on."""
    topic = mirror.topic("grown")
    await create_topic(primary.bootstrap_servers, topic, partitions=2)
    stream_of = numbered_stream(
        primary.bootstrap_servers, topic, count=8_000, partitions=2, rate=2_000, open_ended=True
    )
    async with stream_of as stream:
        await await_arrived(backup.bootstrap_servers, f"A.{topic}", 2_000)
        await grow_topic(primary.bootstrap_servers, topic, 5)
        fresh = [list(plain_records(100, start=100 * partition)) for partition in range(5)]
        await produce(primary.bootstrap_servers, topic, [[], [], *fresh[2:]])

        async def has_fresh() -> bool:
            ends = await end_offsets(backup.bootstrap_servers, f"A.{topic}")
            return [ends.get(partition) for partition in (2, 3, 4)] == [100, 100, 100]

        await eventually(has_fresh, within_s=_PICKED_UP_S, what="the new partitions are copied")
        count = await stream.done()
    await await_arrived(backup.bootstrap_servers, f"A.{topic}", count + 300)
    grown = [event for event in mirror.running.events("partitions_grown") if event["remote_topic"] == f"A.{topic}"]

    assert await read_numbers(primary.bootstrap_servers, topic) == await read_numbers(
        backup.bootstrap_servers, f"A.{topic}"
    )
    assert [(event["before"], event["after"]) for event in grown] == [(2, 5)]


async def test_topic_deleted(primary: KafkaCluster, backup: KafkaCluster, mirror: _Mirror) -> None:
    """A topic deleted at the source leaves its remote topic as it is, and the copy of the others goes on."""
    topic, other = mirror.topic("deleted"), mirror.topic("kept")
    for name in (topic, other):
        await create_topic(primary.bootstrap_servers, name, partitions=2)
        await produce_numbers(primary.bootstrap_servers, name, count=2_000, partitions=2)
        await await_arrived(backup.bootstrap_servers, f"A.{name}", 2_000)
    await delete_topic(primary.bootstrap_servers, topic)
    await mirror.running.wait_for_event("topic_removed", within_s=_PICKED_UP_S, topic=topic)
    await produce(primary.bootstrap_servers, other, [plain_records(500, start=2_000), plain_records(500, start=3_000)])
    await await_arrived(backup.bootstrap_servers, f"A.{other}", 3_000)

    assert sum((await end_offsets(backup.bootstrap_servers, f"A.{topic}")).values()) == 2_000
    assert not [event for event in mirror.running.events("partition_stopped") if event["topic"] == topic]
    await eventually(lambda: not mirror.running.partition_views(topic), within_s=5, what="it is no longer shown")


async def test_topic_created_again(primary: KafkaCluster, backup: KafkaCluster, mirror: _Mirror) -> None:
    """A topic deleted and created again is not mixed into the old remote topic: it stops, and says what to do."""
    topic = mirror.topic("again")
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=1_000, partitions=1)
    await await_arrived(backup.bootstrap_servers, f"A.{topic}", 1_000)
    await delete_topic(primary.bootstrap_servers, topic)
    await mirror.running.wait_for_event("topic_removed", topic=topic)
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=5_000, partitions=1)
    stopped = await mirror.running.wait_for_event("partition_stopped", within_s=_PICKED_UP_S, topic=topic)

    assert "created again" in stopped["message"]
    assert "offsets topic" in stopped["hint"]
    assert sum((await end_offsets(backup.bootstrap_servers, f"A.{topic}")).values()) == 1_000


async def test_record_too_large(primary: KafkaCluster, backup: KafkaCluster, mirror: _Mirror) -> None:
    """
    A record too large for the remote topic stops its partition alone and names the setting to raise.

    Once that is raised, the partition goes on by itself and nothing is missing.
    """
    topic = mirror.topic("large")
    remote_topic = f"A.{topic}"
    await create_topic(backup.bootstrap_servers, remote_topic, partitions=2, configs={"max.message.bytes": "100000"})
    await create_topic(primary.bootstrap_servers, topic, partitions=2)
    large = NewRecord(b"large", b"x" * 200_000, (), MIDDLE_MS)
    written = [list(plain_records(100)), [*plain_records(50), large, *plain_records(50, start=50)]]
    await produce(primary.bootstrap_servers, topic, written, batch_bytes=400_000)
    stopped = await mirror.running.wait_for_event("partition_stopped", topic=topic, partition=1)
    await produce(primary.bootstrap_servers, topic, [plain_records(100, start=100)])
    await _await_ends(backup, remote_topic, {0: 200, 1: 50})

    def shown() -> bool:
        views = mirror.running.partition_views(topic)
        return [views[partition]["stage"] for partition in (0, 1)] == ["copying", "stopped"]

    await eventually(shown, within_s=5, what="the status shows which partition is stopped")
    assert "max.message.bytes" in stopped["hint"]
    assert stopped["offset"] == 50
    assert "max.message.bytes" in mirror.running.partition_views(topic)[1]["failure"]["hint"]

    await alter_topic(backup.bootstrap_servers, remote_topic, {"max.message.bytes": "1000000"})
    await mirror.running.wait_for_event("partition_recovered", within_s=30, topic=topic, partition=1)
    await _await_ends(backup, remote_topic, {0: 200, 1: 101})

    assert_same_records(
        await read_topic(primary.bootstrap_servers, topic), await read_topic(backup.bootstrap_servers, remote_topic)
    )


async def _is_listed(cluster: KafkaCluster, topic: str) -> bool:
    return topic in await list_topics(cluster.bootstrap_servers)


async def _await_ends(cluster: KafkaCluster, topic: str, wanted: dict[int, int]) -> None:
    async def reached() -> bool:
        ends = await end_offsets(cluster.bootstrap_servers, topic)
        assert ends == wanted, str(ends)
        return True

    await eventually(reached, within_s=30, what=f"{topic} ends at {wanted}")
