"""The other ways to run a node, as users of Connect and of the first MirrorMaker run theirs, with their own files."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as Place

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from tests.support.checkpointing import checkpoints_in
from tests.support.daemon import command
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly, committed
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.topics import create_topic, list_topics


_COUNT = 2_000
_COPIED, _COMMITTED = 1_200, 700
_CLASS = "org.apache.kafka.connect.mirror"


def _connector(kind: str, alias: str, source: str, target: str, **keys: object) -> str:
    settings = {
        "name": f"{alias}-{kind}",
        "connector.class": f"{_CLASS}.{kind}",
        "source.cluster.alias": alias,
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source,
        "target.cluster.bootstrap.servers": target,
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        **keys,
    }
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


def _files(topic: str, source: str, target: str, group: str, offsets: Path) -> dict[str, str]:
    """Return a worker's file and one for each of MirrorMaker's connectors; the source's alias is the topic's name."""
    return {
        "worker": f"bootstrap.servers = {target}\noffset.storage.file.filename = {offsets}\n",
        "source": _connector(
            "MirrorSourceConnector", topic, source, target,
            **{"topics": topic, "replication.factor": 1, "offset-syncs.topic.replication.factor": 1, "tasks.max": 2},
        ),
        "checkpoint": _connector(
            "MirrorCheckpointConnector", topic, source, target,
            **{"groups": group, "checkpoints.topic.replication.factor": 1, "emit.checkpoints.interval.seconds": 1},
        ),
        "heartbeat": _connector(
            "MirrorHeartbeatConnector", topic, source, target, **{"heartbeats.topic.replication.factor": 1}
        ),
    }  # fmt: skip


async def test_a_standalone_worker(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    A worker's file and one file for each of MirrorMaker's connectors mirror topics, groups and heartbeats.

    With --watch, a connector's file that is saved takes effect at once.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    group = f"{prefix}-group"
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=_COUNT, partitions=2)
    more = f"{prefix}-more"
    await create_topic(source, more, partitions=1)
    await produce_numbers(source, more, count=_COUNT, partitions=1)
    await commit_plainly(source, group, {TopicPartition(prefix, 0): 300})
    files = _files(prefix, source, target, group, tmp_path / "connect.offsets")
    for name, text in files.items():
        (tmp_path / f"{name}.properties").write_text(text)
    arguments = [str(tmp_path / f"{name}.properties") for name in files]
    async with command(tmp_path, "mm2py.cli.standalone", *arguments, "--watch") as running:
        await assert_mirrored(source, prefix, target, f"{prefix}.{prefix}", _COUNT)

        async def translated() -> bool:
            # A checkpoint from before all records had arrived may be behind, never ahead.
            found = await checkpoints_in(target, f"{prefix}.checkpoints.internal", group)
            return bool(found) and found[-1].downstream == 300

        await eventually(translated, within_s=60, what="a checkpoint at 300")
        await eventually(
            lambda: (running.flow_view(f"{prefix}->B").get("heartbeats") or {}).get("sent", 0) > 0,
            within_s=60,
            what="heartbeats",
        )
        assert f"{prefix}.{more}" not in await list_topics(target)

        (tmp_path / "source.properties").write_text(
            files["source"].replace(f"topics = {prefix}", f"topics = {prefix}.*")
        )
        await running.wait_for_event("settings_reloaded", changed=[f"{prefix}->B"])
        await assert_mirrored(source, more, target, f"{prefix}.{more}", _COUNT)
        assert await running.sigterm() == 0

    noted = [event["note"] for event in running.events("setting_noted")]
    assert [note.partition(" without effect")[0] for note in noted] == [
        "worker.properties:2: offset.storage.file.filename:"
    ]
    started = next(running.events("daemon_started"))
    assert (started["flows"], started["heartbeats_only"]) == ([f"{prefix}->B"], [])
    assert "heartbeats" in await list_topics(target)


async def _copy_as_the_first_mirror_maker(source: str, target: str, topic: str, group: str) -> None:
    """Copy the first records one by one with their timestamps, and stop before all of them are committed."""
    place = Place(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=source, group_id=group, enable_auto_commit=False)
    producer = AIOKafkaProducer(bootstrap_servers=target, acks="all")
    await consumer.start()
    await producer.start()
    try:
        consumer.assign([place])
        consumer.seek(place, 0)
        for _ in range(_COPIED):
            record = await consumer.getone()
            await producer.send(topic, record.value, record.key, 0, record.timestamp, headers=list(record.headers))
        await producer.flush()
        await consumer.commit({place: _COMMITTED})
    finally:
        await producer.stop()
        await consumer.stop()


async def test_the_first_mirror_maker_s_command_line(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    The mirror goes on where MirrorMaker 1 stopped, although that had not committed all that it had copied.

    A topic that the target lacks begins at the group's offset, one that the group does not know at its beginning.
    Nothing but the topics' records and positions comes to be at the target, and the group stays as it was.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    group, known, gone, fresh = f"{prefix}-mirror", f"{prefix}-known", f"{prefix}-gone", f"{prefix}-fresh"
    for topic in (known, gone, fresh):
        await create_topic(source, topic, partitions=1)
        await produce_numbers(source, topic, count=_COUNT, partitions=1)
    await create_topic(target, known, partitions=1)
    await _copy_as_the_first_mirror_maker(source, target, known, group)
    await commit_plainly(source, group, {TopicPartition(gone, 0): _COMMITTED})
    stood = await committed(source, group)
    consumer, producer = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    consumer.write_text(f"bootstrap.servers = {source}\ngroup.id = {group}\nauto.offset.reset = earliest\n")
    producer.write_text(f"bootstrap.servers = {target}\nacks = all\n")
    arguments = ["--consumer.config", str(consumer), "--producer.config", str(producer)]
    arguments += ["--whitelist", f"{known},{gone},{fresh}", "--num.streams", "2", "--abort.on.send.failure", "true"]
    async with command(tmp_path, "mm2py.cli.mirror_maker_1", *arguments) as running:
        await assert_mirrored(source, known, target, known, _COUNT)
        await assert_mirrored(source, fresh, target, fresh, _COUNT)
        await await_arrived(target, gone, _COUNT - _COMMITTED)
        assert await running.sigterm() == 0

    assert await read_topic(target, known) == await read_topic(source, known)
    assert await read_numbers(target, gone) == {0: (await read_numbers(source, gone))[0][_COMMITTED:]}
    assert await committed(source, group) == stood
    ours = {topic for topic in await list_topics(target) if prefix in topic}
    assert ours == {known, gone, fresh, f"mm2-offsets.{group}.internal"}
    assert not {topic for topic in await list_topics(source) if f"mm2-offset-syncs.{group}" in topic}
    assert not list(running.events("resume_unproven"))
