"""The client and ``mm2py topics`` over what Java MirrorMaker 2 wrote, beside Java's own client and formatters."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mm2py.client import (
    MirrorClient,
    MirrorClientConfig,
    MirrorRecord,
    Precision,
    RecordKind,
    SourcePosition,
    Translated,
)
from mm2py.client.records import KeptRuns
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.heartbeat import Heartbeat, encode_heartbeat
from tests.support.eventually import eventually, scaled
from tests.support.flows import flow_settings, running_flow
from tests.support.java_mirror import PARTITIONS, RECORDS, JavaMirror
from tests.support.java_programs import java_program
from tests.support.mirrored import await_arrived
from tests.support.producing import produce_transactions, producer
from tests.support.records import plain_records, spread
from tests.support.topics import create_topic


_LIMIT_S = 60


@pytest.fixture
def mirror(mirror_by_java: JavaMirror) -> JavaMirror:
    return mirror_by_java


def command(*arguments: str, name: str = "topics") -> subprocess.CompletedProcess[str]:
    """Run ``mm2py topics``, or another of its commands, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "mm2py", name, *arguments],
        check=False, capture_output=True, text=True, timeout=scaled(_LIMIT_S),
    )  # fmt: skip


def dump(mirror: JavaMirror, *arguments: str) -> list[str]:
    """Return the lines that ``mm2py topics dump`` prints for the mirror's target."""
    done = command("dump", str(mirror.file), "--cluster", mirror.target_alias, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_names_tell_the_same_as_java_s_client(mirror: JavaMirror) -> None:
    """Hops, heartbeats, checkpoints topics, upstream clusters and remote topics are those that Java's client gives."""
    alias = mirror.source_alias
    questions = ["heartbeat-topics", "checkpoint-topics", "upstream-clusters", "remote-topics"]
    questions += [f"remote-topics:{alias}", f"hops:{alias}", "hops:nowhere"]
    lines = await java_program("RemoteClusters").ask(mirror.target, "--", *questions)
    java: dict[str, set[str]] = {question: set() for question in questions}
    for line in lines:
        question, answer = line.split("\t")
        java[question].add(answer)
    async with MirrorClient(mirror.target) as client:
        ours = {
            "heartbeat-topics": await client.heartbeat_topics(),
            "checkpoint-topics": await client.checkpoint_topics(),
            "upstream-clusters": await client.upstream_clusters(),
            "remote-topics": await client.remote_topics(),
            f"remote-topics:{alias}": await client.remote_topics(alias),
            f"hops:{alias}": {str(await client.replication_hops(alias))},
            "hops:nowhere": {str(await client.replication_hops("nowhere"))},
        }

    assert ours == java
    assert java[f"hops:{alias}"] == {"1"}
    assert mirror.remote_topic in java[f"remote-topics:{alias}"]


async def test_groups_are_translated_as_by_java_s_client(mirror: JavaMirror) -> None:
    """One group's offsets, and those of all that match a pattern, are RemoteClusterUtils.translateOffsets' own."""
    alias, pattern = mirror.source_alias, f"{mirror.topic}-.*"
    questions = [f"offsets:{alias}:{mirror.halfway}", f"offsets:{alias}:nobody", f"matching:{alias}:{pattern}"]
    lines = await java_program("RemoteClusters").ask(mirror.target, "--", *questions)
    java: dict[str, dict[str, dict[TopicPartition, CommittedOffset]]] = {question: {} for question in questions}
    for line in lines:
        question, group, place, offset, metadata = line.split("\t")
        topic, _, partition = place.rpartition("-")
        at = TopicPartition(topic, int(partition))
        java[question].setdefault(group, {})[at] = CommittedOffset(int(offset), metadata)
    async with MirrorClient(mirror.target) as client:
        halfway = await client.remote_consumer_offsets(mirror.halfway, alias)
        nobody = await client.remote_consumer_offsets("nobody", alias)
        matching = await client.remote_consumer_offsets(re.compile(pattern), alias)

    assert ({mirror.halfway: halfway}, {}, matching) == tuple(java.values())
    assert nobody == {}
    each = RECORDS // PARTITIONS
    assert matching[mirror.at_end] == {
        TopicPartition(mirror.remote_topic, number): CommittedOffset(each) for number in range(PARTITIONS)
    }


async def _read(client: MirrorClient, topic: str, kind: RecordKind) -> list[MirrorRecord]:
    return [record async for chunk in client.records(topic, kind) for record in chunk if record.partition == 0]


@pytest.mark.parametrize(
    ("java_kind", "kind", "topic"),
    [
        ("Heartbeat", RecordKind.HEARTBEAT, "{0.source_alias}.heartbeats"),
        ("Checkpoint", RecordKind.CHECKPOINT, "{0.checkpoints_topic}"),
        ("OffsetSync", RecordKind.OFFSET_SYNC, "{0.offset_syncs_topic}"),
    ],
    ids=["heartbeats", "checkpoints", "offset-syncs"],
)
async def test_records_print_as_by_kafka_s_formatters(
    mirror: JavaMirror, java_kind: str, kind: RecordKind, topic: str
) -> None:
    """Each record that Java wrote prints as Java's own formatter prints it, from the library and from the command."""
    name = topic.format(mirror)
    java = await java_program("MirrorRecords").ask(mirror.target, f"{java_kind}:{name}")
    async with MirrorClient(mirror.target) as client:
        records = await _read(client, name, kind)
    printed = await asyncio.to_thread(dump, mirror, kind.value, "--source", mirror.source_alias, "--text")

    assert [f"{name}\t{record.offset}\t{record.content}" for record in records] == java
    assert printed == [line.split("\t")[2] for line in java]
    assert len(java) >= PARTITIONS


async def test_positions_of_java_are_shown(mirror: JavaMirror) -> None:
    """The latest positions are where Java's copy ended, one line for each partition."""
    lines = [json.loads(line) for line in await asyncio.to_thread(dump, mirror, "positions", "--latest", "--json")]
    ours = [line["record"] for line in lines if line["topic"] == mirror.positions_topic and line["kind"] == "position"]

    each = RECORDS // PARTITIONS
    assert sorted(
        (record["source"]["partition"], record["next_upstream"])
        for record in ours
        if record["source"]["topic"] == mirror.topic
    ) == [(number, each) for number in range(PARTITIONS)]


async def test_a_table_of_everything(mirror: JavaMirror) -> None:
    """Without a kind, every topic of the mirror comes with a title; --source leaves out those of other mirrors."""
    lines = await asyncio.to_thread(dump, mirror, "--source", mirror.source_alias, "--latest")
    titles = [line for line in lines if line.endswith(")") and "(" in line]

    assert titles == [
        f"{mirror.source_alias}.checkpoints.internal (checkpoints)",
        f"{mirror.source_alias}.heartbeats (heartbeats)",
        f"mm2-offset-syncs.{mirror.source_alias}.internal (offset-syncs)",
        f"mm2-offsets.{mirror.source_alias}.internal (positions)",
    ]
    assert any(re.search(rf"{mirror.halfway} +{mirror.remote_topic}-0 +150 +\d+", line) for line in lines)


async def test_a_topic_by_name_from_bootstrap_servers(mirror: JavaMirror) -> None:
    """Without a properties file a topic is named in full, and its name decides how it is read."""
    done = await asyncio.to_thread(
        command, "dump", "--bootstrap-servers", mirror.target, mirror.checkpoints_topic, "--latest", "--text"
    )

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == PARTITIONS + 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["checkpoints", "--source", "nowhere"], "has no topic nowhere.checkpoints.internal"),
        (["no-such.checkpoints.internal"], "has no topic no-such.checkpoints.internal"),
    ],
    ids=["by alias", "by name"],
)
async def test_topics_that_are_missing(mirror: JavaMirror, arguments: list[str], said: str) -> None:
    """A topic that is not there is named in one line, and the command fails."""
    done = await asyncio.to_thread(command, "dump", "--bootstrap-servers", mirror.target, *arguments)

    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert said in line


async def test_a_cluster_that_is_not_there() -> None:
    """A cluster that does not answer is named in one line, and the command fails."""
    done = await asyncio.to_thread(command, "dump", "--bootstrap-servers", "127.0.0.1:1", "heartbeats")

    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "127.0.0.1:1 does not answer" in line


#: A shell's background jobs, and all that they start, are born ignoring Ctrl-C.
_HEEDING_CTRL_C = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_module('mm2py', run_name='__main__')"
)


@contextmanager
def following(*arguments: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``mm2py topics dump … --follow`` for the length of the block."""
    with output.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _HEEDING_CTRL_C, "topics", "dump", *arguments, "--follow"], stdout=out, stderr=out
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def test_following_shows_what_comes(primary: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """--follow goes on with new records, malformed ones in their place, until Ctrl-C, which is a good end."""
    await create_topic(primary.bootstrap_servers, prefix)
    output = tmp_path / "out"
    where = ("--bootstrap-servers", primary.bootstrap_servers)

    async def shows(count: int) -> list[str] | None:
        lines = output.read_text().splitlines()
        return lines if len(lines) == count else None

    async with producer(primary.bootstrap_servers) as connected:

        async def beat(timestamp_ms: int) -> None:
            key, value = encode_heartbeat(Heartbeat("A", "B", timestamp_ms))
            await connected.send_and_wait(prefix, key=key, value=value)

        await beat(1)
        with following(*where, prefix, "--as", "heartbeats", "--json", output=output) as process:
            await eventually(lambda: shows(1), within_s=30, what="the first heartbeat is printed")
            await connected.send_and_wait(prefix, key=b"\x00", value=b"\x00")
            await beat(2)
            lines = await eventually(lambda: shows(3), within_s=30, what="what came is printed")
            os.kill(process.pid, signal.SIGINT)
            code = await asyncio.to_thread(process.wait, 30)

    shown = [json.loads(line) for line in lines]
    assert [(line["offset"], line["kind"]) for line in shown] == [(0, "heartbeat"), (1, "malformed"), (2, "heartbeat")]
    assert shown[1]["record"] == {"reason": "not a heartbeat: a text is cut short"}
    assert code == 0


async def test_a_reader_that_has_seen_enough(mirror: JavaMirror) -> None:
    """When the reader of its output ends, as head does, the command ends without an error."""
    line = f"{sys.executable} -m mm2py topics dump {mirror.file} --cluster {mirror.target_alias} offset-syncs --text"
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", f"{line} | head -n 1; exit ${{PIPESTATUS[0]}}"],
        check=False, capture_output=True, text=True, timeout=scaled(_LIMIT_S),
    )  # fmt: skip

    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


async def test_names_that_stay(primary: KafkaCluster, prefix: str) -> None:
    """Under the identity policy every topic is the configured source's, as in Java."""
    topic = f"{prefix}-orders"
    await create_topic(primary.bootstrap_servers, topic)
    policy = {
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "source.cluster.alias": prefix,
    }
    settings = [f"{key}={value}" for key, value in policy.items()]
    java = await java_program("RemoteClusters").ask(
        primary.bootstrap_servers, *settings, "--", f"remote-topics:{prefix}"
    )
    config = MirrorClientConfig.from_mapping({"bootstrap.servers": primary.bootstrap_servers, **policy})
    async with MirrorClient(config) as client:
        ours = await client.remote_topics(prefix)

    assert topic in ours
    assert {line.split("\t")[1] for line in java} == ours


# Translating.


async def test_groups_are_translated_by_the_offset_syncs_of_java(mirror: JavaMirror) -> None:
    """A group at the end goes on at the remote end, one in the middle never ahead of it."""
    flow = f"{mirror.source_alias}->{mirror.target_alias}"
    arguments = ("translate", str(mirror.file), flow, mirror.at_end, mirror.halfway, "--json")
    done = await asyncio.to_thread(command, *arguments, name="offsets")
    rows = [json.loads(line) for line in done.stdout.splitlines()]

    each = RECORDS // PARTITIONS
    assert done.returncode == 0, done.stderr
    assert [(row["offset"], row["there_offset"]) for row in rows[:PARTITIONS]] == [(each, each)] * PARTITIONS
    assert rows[-1]["there"] == {"topic": mirror.remote_topic, "partition": 0}
    assert 0 < rows[-1]["there_offset"] <= rows[-1]["offset"] == each // 2


async def test_the_way_back_by_the_offset_syncs_of_java(mirror: JavaMirror) -> None:
    """A remote partition's end translates to the source's end; what cannot be translated is reported as unknown."""
    flow = f"{mirror.source_alias}->{mirror.target_alias}"
    each = RECORDS // PARTITIONS
    places = (f"{mirror.remote_topic}:1:{each}", "elsewhere:0:5")
    done = await asyncio.to_thread(command, "translate", str(mirror.file), flow, *places, "--back", name="offsets")
    title, known, unknown = done.stdout.splitlines()

    assert title.split() == ["PARTITION", "OFFSET", "THERE", "OFFSET"]
    assert known.split()[:4] == [f"{mirror.remote_topic}-1", str(each), f"{mirror.topic}-1", str(each)]
    assert unknown.split()[:4] == ["elsewhere-0", "5", "-", "-"]
    assert done.returncode == 2
    assert "1 of 2 offsets could not be translated" in done.stderr


async def test_a_source_that_is_gone_is_done_without(mirror: JavaMirror, tmp_path: Path) -> None:
    """Without the source, single offsets translate by what the target holds; a group's offsets are at the source."""
    file, flow = tmp_path / "mm2.properties", f"{mirror.source_alias}->{mirror.target_alias}"
    file.write_text(mirror.file.read_text().replace(mirror.source, "127.0.0.1:1"))
    arguments = ("translate", str(file), flow)
    place = await asyncio.to_thread(command, *arguments, f"{mirror.topic}:0:300", name="offsets")
    group = await asyncio.to_thread(command, *arguments, mirror.at_end, name="offsets")

    assert (place.returncode, place.stdout.splitlines()[1].split()[3]) == (0, "300")
    assert f"cluster {mirror.source_alias} does not answer" in place.stderr
    assert (group.returncode, group.stdout) == (2, "")
    assert f"cluster {mirror.source_alias} does not answer" in group.stderr


async def test_a_group_that_committed_nothing(mirror: JavaMirror) -> None:
    """A group without offsets is named, with the cluster that was asked."""
    flow = f"{mirror.source_alias}->{mirror.target_alias}"
    done = await asyncio.to_thread(command, "translate", str(mirror.file), flow, "nobody", name="offsets")

    assert done.returncode == 2
    assert f"group nobody has committed no offsets on cluster {mirror.source_alias}" in done.stderr


async def test_what_we_copied_is_translated_exactly(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """After mm2py has copied a transactional topic and ended, each offset translates to the record, there and back."""
    source, target, topic = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-orders"
    await create_topic(source, topic)
    rounds = [(commits, spread(plain_records(50), 1)) for commits in (True, False, True)]
    await produce_transactions(source, topic, rounds, transactional_id=prefix)
    keys = {"A.consumer.isolation.level": "read_committed", "offset.storage.topic": f"{prefix}-positions"}
    async with running_flow(flow_settings(source, target, topics=topic, **keys), tmp_path) as flow:
        await await_arrived(target, f"A.{topic}", 100)
        await flow.drain()
    async with MirrorClient(target) as client:
        translation = await client.offset_translation("A", positions_topic=f"{prefix}-positions")
        reading = client.records(f"{prefix}-positions", RecordKind.POSITION)
        contents = [record.content async for chunk in reading for record in chunk]
    at, remote = TopicPartition(topic, 0), TopicPartition(f"A.{topic}", 0)
    # 50 records, a marker, 50 aborted ones, a marker, 50 records, a marker.
    places = {0: 0, 49: 49, 50: 50, 60: 50, 102: 50, 110: 58, 152: 100, 153: 100}
    there = {upstream: translation.downstream(at, upstream) for upstream in places}
    back = {downstream: translation.upstream(remote, downstream) for downstream in (0, 49, 50, 58, 99)}

    assert {type(content) for content in contents} == {SourcePosition, KeptRuns}
    assert there == {upstream: Translated(downstream) for upstream, downstream in places.items()}
    assert back == {down: Translated(up) for down, up in {0: 0, 49: 49, 50: 102, 58: 110, 99: 151}.items()}
    assert translation.upstream(remote, 100) == Translated(153, Precision.EXACT)
