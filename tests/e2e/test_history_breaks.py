"""Topics that are created again under the command as a user runs it: what the policies say, and the others go on."""

from __future__ import annotations

from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import daemon
from tests.support.damage import delete_records, recreate_topic
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic, delete_topic, end_offsets


async def test_topics_made_anew_and_records_that_expired(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    One source topic is created again, one remote topic deleted, and of one topic records expire while no daemon runs.

    The first is stopped as `fail` says, then copied behind the old one's records after a restart with `earliest`.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    recreated, deleted, expired, fine = (f"{prefix}-{word}" for word in ("recreated", "deleted", "expired", "fine"))
    keys = {
        "A->B.topics": f"{prefix}.*",
        "copy.epoch.ms": 1000,
        "B.offset.storage.topic": f"{prefix}-offsets",
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",
    }
    for topic in (recreated, deleted, expired, fine):
        await create_topic(source, topic)
        await produce_numbers(source, topic, count=100, partitions=1)
    async with daemon(tmp_path, mm2_properties(source, target, **keys)) as first:
        for topic in (recreated, deleted, expired, fine):
            await await_arrived(target, f"A.{topic}", 100)
        await recreate_topic(source, recreated)
        await produce_numbers(source, recreated, count=150, partitions=1)
        await delete_topic(target, f"A.{deleted}")
        await first.wait_for_event("partition_stopped", topic=recreated, ended="recreated")
        await first.wait_for_event("remote_topic_recreated", topic=deleted, records=100, lost=0)
        for topic in (deleted, fine):
            await produce_numbers(source, topic, count=50, partitions=1)
            await await_arrived(target, f"A.{topic}", 150)
        stopped = [event["topic"] for event in first.events("partition_stopped")]
        assert await first.sigterm() == 0
    await produce_numbers(source, expired, count=100, partitions=1)
    await delete_records(source, expired, 150)
    again = mm2_properties(source, target, **keys, **{"A->B.copy.on.source.recreated": "earliest"})
    async with daemon(tmp_path, again) as second:
        await second.wait_for_event("source_topic_recreated", topic=recreated, goes_on_at=0, policy="earliest")
        await second.wait_for_event("source_records_expired", topic=expired, lost=50, goes_on_at=150)
        await await_arrived(target, f"A.{recreated}", 250)
        await await_arrived(target, f"A.{expired}", 150)

        assert not list(second.events("partition_stopped"))

    ends = [(await end_offsets(target, f"A.{topic}"))[0] for topic in (recreated, deleted, expired, fine)]
    assert (stopped, ends) == ([recreated], [250, 150, 150, 150])
