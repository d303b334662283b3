"""
The same topics and groups, mirrored by Java MirrorMaker 2 and by mm2py into a target each, and both read by Java.

Java's own client library translates the groups' offsets, Java's own formatters decode what both keep there.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions
from mm2py.model.flow import TopicPartition
from tests.support.brokers import cluster_factory
from tests.support.daemon import daemon
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly, read_rest
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.java_programs import java_program
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import (
    COMPACTED_CONFIGS,
    numbered_stream,
    produce_compacted,
    produce_numbers,
    produce_transactions,
)
from tests.support.reading import read_batches, read_topic
from tests.support.records import plain_records
from tests.support.soaking import rounds
from tests.support.topics import alter_topic, create_topic, end_offsets, list_topics


_ORDERS, _HISTORY = 6_000, rounds(60_000, soak=1_050_000)
_KEY_OF = (
    re.compile(r"Heartbeat\{(sourceClusterAlias=.*, targetClusterAlias=.*), timestamp=\d+\}"),
    re.compile(r"Checkpoint\{(consumerGroupId=.*, topicPartition=.*), upstreamOffset=\d+, downstreamOffset=\d+, .*\}"),
    re.compile(r"OffsetSync\{(topicPartition=.*), upstreamOffset=\d+, downstreamOffset=\d+\}"),
)


@attrs.frozen
class Mirrors:
    """One source and two targets of it; nothing is running any more."""

    alias: str
    source: str
    targets: dict[str, str]
    topics: tuple[str, ...]
    #: What each group has committed at the source.
    groups: dict[str, dict[TopicPartition, int]]
    #: For each topic-partition that is not copied one to one: the offsets of its data records there and at each target.
    offsets: dict[str, dict[TopicPartition, list[int]]]

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"

    def truth(self, target: str, source: TopicPartition, upstream: int) -> int:
        """Return the offset at *target* of the first record that a group at *upstream* has not read."""
        known = self.offsets["source"].get(source)
        if known is None:
            return upstream
        behind = bisect.bisect_left(known, upstream)
        there = self.offsets[target][source]
        return there[behind] if behind < len(there) else there[-1] + 1

    async def translated(self, target: str) -> dict[tuple[str, TopicPartition], int]:
        """Ask Java's RemoteClusterUtils where the groups are at *target*, by the source's topic names."""
        program = java_program("RemoteClusters")
        question = f"matching:{self.alias}:{self.topics[0].rpartition('-')[0]}-.*"
        found = {}
        for line in await program.ask(self.targets[target], "--", question):
            _, group, partition, offset, _ = line.split("\t")
            topic, _, number = partition.removeprefix(f"{self.alias}.").rpartition("-")
            found[group, TopicPartition(topic, int(number))] = int(offset)
        return found


async def _prepare(mirrors: Mirrors) -> None:
    """Write an ordinary topic, a long one, a compacted and a transactional one, and commit for groups."""
    source = mirrors.source
    orders, history, compacted, payments = mirrors.topics
    await create_topic(source, orders, partitions=2)
    await create_topic(source, history)
    await create_topic(source, compacted, configs=COMPACTED_CONFIGS)
    await create_topic(source, payments)
    await produce_numbers(source, orders, count=_ORDERS, partitions=2)
    async with numbered_stream(source, history, count=_HISTORY, partitions=1, size=40) as stream:
        await stream.done()
    rounds = [(number % 3 != 1, [plain_records(200, start=number * 200)]) for number in range(12)]
    await produce_transactions(source, payments, rounds, transactional_id=payments, batch_records=50)
    await produce_compacted(source, compacted, partitions=1)

    async def is_compacted() -> bool:
        return any(batch.has_holes and batch.count for batch in await read_batches(source, compacted, 0))

    await eventually(is_compacted, within_s=60, what=f"{compacted} has batches with holes", every_s=0.3)
    await alter_topic(source, compacted, {"cleanup.policy": "delete", "retention.ms": "-1"})
    for group, offsets in mirrors.groups.items():
        at = {partition: await _at(source, partition, offset) for partition, offset in offsets.items()}
        mirrors.groups[group] = at
        await commit_plainly(source, group, at)


async def _at(source: str, partition: TopicPartition, share: int) -> int:
    """Turn per cent of a topic-partition's records into an offset; a larger number is taken as it is."""
    if share > 100:
        return share
    records = (await read_topic(source, partition.topic, reads_committed=True))[partition.partition]
    return records[len(records) * share // 100].offset if share < 100 else records[-1].offset + 1


async def _read_offsets(mirrors: Mirrors) -> None:
    _, _, *changed = mirrors.topics
    for where, bootstrap in {"source": mirrors.source, **mirrors.targets}.items():
        for topic in changed:
            name = topic if where == "source" else mirrors.remote(topic)
            records = (await read_topic(bootstrap, name, reads_committed=True))[0]
            mirrors.offsets[where][TopicPartition(topic, 0)] = [record.offset for record in records]


async def _await_translated(mirrors: Mirrors, target: str) -> None:
    """Wait until all is copied and Java's client translates the groups' offsets to the same values twice."""
    orders, history, *changed = mirrors.topics
    bootstrap = mirrors.targets[target]
    counts = {orders: _ORDERS, history: _HISTORY}
    for topic in changed:
        counts[topic] = len((await read_topic(mirrors.source, topic, reads_committed=True))[0])
    for topic, count in counts.items():
        await await_arrived(bootstrap, mirrors.remote(topic), count, within_s=120)
    last: dict[tuple[str, TopicPartition], int] = {}

    async def stands_still() -> bool:
        nonlocal last
        before, last = last, await mirrors.translated(target)
        missing = [group for group in mirrors.groups if "end" in group and group not in {key[0] for key in last}]
        assert not missing, f"no checkpoints of {missing}"
        for heartbeats in ("heartbeats", mirrors.remote("heartbeats")):
            assert heartbeats in await list_topics(bootstrap), f"no {heartbeats}"
            (records,) = (await read_topic(bootstrap, heartbeats)).values()
            is_there = any(mirrors.alias.encode() in (record.key or b"") for record in records)
            assert is_there, f"{heartbeats} has none of {mirrors.alias}"
        return bool(last) and last == before

    await eventually(stands_still, within_s=120, what=f"the checkpoints of {target} stand still", every_s=3)


def _properties(mirrors: Mirrors, target: str) -> str:
    settings = {
        "emit.heartbeats.enabled": "true",
        "heartbeats.replication.enabled": "true",
        "offset-syncs.topic.location": "target",
        "emit.checkpoints.interval.seconds": "1",
        f"{mirrors.alias}.consumer.isolation.level": "read_committed",
        "B.offset.flush.interval.ms": "1000",
        "groups": ", ".join(mirrors.groups),
    }
    return mm2_properties(
        mirrors.source,
        mirrors.targets[target],
        aliases=(mirrors.alias, "B"),
        topics=", ".join(mirrors.topics),
        **settings,
    )


async def _mirror_with_java(mirrors: Mirrors, work_dir: Path) -> None:
    file = work_dir / "java.properties"
    file.write_text(_properties(mirrors, "java"))
    java = JavaMirrorMaker2(file, log_file=work_dir / "java.log", jvm=JvmOptions(heap_mb=256))
    try:
        await asyncio.to_thread(java.start)
        await _await_translated(mirrors, "java")
        await asyncio.to_thread(java.stop)
    finally:
        await asyncio.to_thread(java.kill)


async def _mirror_with_mm2py(mirrors: Mirrors, work_dir: Path) -> None:
    every = sum(map(len, mirrors.groups.values()))

    def is_exact() -> bool:
        view = ours.flow_view(f"{mirrors.alias}->B")
        shown = [offset for group in view.get("consumer_groups", ()) for offset in group["offsets"]]
        return view.get("lag") == 0 and len(shown) == every and all(offset["is_exact"] for offset in shown)

    async with daemon(work_dir, _properties(mirrors, "mm2py")) as ours:
        await eventually(is_exact, within_s=180, what="all is copied, and each group's offsets are translated")
        await _await_translated(mirrors, "mm2py")
        assert await ours.sigterm() == 0


@pytest.fixture(scope="module")
def mirrors(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrors]:
    """Let both mirror the same, one after the other, and end both."""
    name = f"oracle{secrets.token_hex(3)}"
    topics = tuple(f"{name}-{kind}" for kind in ("orders", "history", "compacted", "payments"))
    orders, history, compacted, payments = topics
    groups = {
        f"{name}-at-the-end": {TopicPartition(orders, 0): 100, TopicPartition(orders, 1): 100},
        f"{name}-in-the-middle": {TopicPartition(orders, 0): 50, TopicPartition(orders, 1): 33},
        f"{name}-far-behind": {TopicPartition(history, 0): 12_345},
        f"{name}-of-the-compacted": {TopicPartition(compacted, 0): 50},
        f"{name}-of-the-payments": {TopicPartition(payments, 0): 50},
    }
    work_dir = tmp_path_factory.mktemp("oracle")
    with cluster_factory() as make:
        targets = {"mm2py": backup.bootstrap_servers, "java": make("java-target").bootstrap_servers}
        offsets: dict[str, dict[TopicPartition, list[int]]] = {"source": {}, **{target: {} for target in targets}}
        made = Mirrors(name, primary.bootstrap_servers, targets, topics, groups, offsets)
        asyncio.run(_prepare(made))
        asyncio.run(_mirror_with_java(made, work_dir))
        asyncio.run(_mirror_with_mm2py(made, work_dir))
        asyncio.run(_read_offsets(made))
        yield made


def _repeats(mirrors: Mirrors, target: str, translated: dict[tuple[str, TopicPartition], int]) -> dict[str, int]:
    """Return for each group how many records it reads again at *target*; negative where it would miss some."""
    repeats = {}
    for group, offsets in mirrors.groups.items():
        again = 0
        for partition, upstream in offsets.items():
            truth, known = mirrors.truth(target, partition, upstream), mirrors.offsets[target].get(partition)
            start = translated.get((group, partition), 0)
            again += bisect.bisect_left(known, truth) - bisect.bisect_left(known, start) if known else truth - start
        repeats[group.partition("-")[2]] = again
    return repeats


@pytest.mark.soak
async def test_java_translates_our_checkpoints_to_the_record(
    mirrors: Mirrors, record_property: Callable[[str, object], None]
) -> None:
    """
    By RemoteClusterUtils' offsets at our target no group reads a record again, and none misses one.

    That holds for groups at the end, in the middle, and far back (a million records in a soak), and for compacted and
    transactional topics. By Java MirrorMaker 2's own checkpoints none misses one either, but some read records again.
    """
    ours = _repeats(mirrors, "mm2py", await mirrors.translated("mm2py"))
    java = _repeats(mirrors, "java", await mirrors.translated("java"))
    record_property("records read again, mm2py", ours)
    record_property("records read again, Java MirrorMaker 2", java)

    assert ours == dict.fromkeys(java, 0)
    assert all(again >= 0 for again in java.values())
    assert sum(java.values()) > 0  # how many depends on when it wrote offset syncs


async def test_groups_that_move_by_java_s_translation_read_every_record_once(mirrors: Mirrors) -> None:
    """What a group read at the source, and what it reads where Java sends it at the target, is every record once."""
    translated = await mirrors.translated("mm2py")
    bootstrap = mirrors.targets["mm2py"]
    for group, offsets in mirrors.groups.items():
        topic = next(iter(offsets)).topic
        remote = mirrors.remote(topic)
        moved = {TopicPartition(remote, partition.partition): translated[group, partition] for partition in offsets}
        await commit_plainly(bootstrap, group, moved)
        at_target = [value for _, value in await read_rest(bootstrap, group, remote)]
        contents = await read_topic(mirrors.source, topic, reads_committed=True)
        before = [
            record.value
            for partition, upstream in offsets.items()
            for record in contents[partition.partition]
            if record.offset < upstream
        ]
        every = [record.value for records in contents.values() for record in records]

        assert sorted(before + at_target, key=_value) == sorted(every, key=_value), group


def _value(value: bytes | None) -> bytes:
    return value or b""


async def test_java_decodes_what_we_keep_and_finds_the_keys_it_writes(mirrors: Mirrors) -> None:
    """Heartbeats, checkpoints and offset syncs decode with Java's own classes, under the keys that Java writes."""
    program = java_program("MirrorRecords")
    keys: dict[str, dict[str, set[str]]] = {}
    for target, bootstrap in mirrors.targets.items():
        topics = (
            "Heartbeat:heartbeats",
            f"Heartbeat:{mirrors.alias}.heartbeats",
            f"Checkpoint:{mirrors.alias}.checkpoints.internal",
            f"OffsetSync:mm2-offset-syncs.{mirrors.alias}.internal",
        )
        found = keys[target] = {}
        for line in await program.ask(bootstrap, *topics):
            topic, _, text = line.split("\t")
            key = next(match[1] for pattern in _KEY_OF if (match := pattern.fullmatch(text)))
            if mirrors.alias in key:  # others write heartbeats to the same topic
                found.setdefault(topic, set()).add(key)

    ours, java = keys["mm2py"], keys["java"]
    checkpoints = f"{mirrors.alias}.checkpoints.internal"
    every_group = {
        f"consumerGroupId={group}, topicPartition={mirrors.remote(partition.topic)}-{partition.partition}"
        for group, offsets in mirrors.groups.items()
        for partition in offsets
    }

    assert ours["heartbeats"] == {f"sourceClusterAlias={mirrors.alias}, targetClusterAlias=B"}
    # Java writes none for a group that is further back than its offset syncs reach.
    assert java.pop(checkpoints) <= ours.pop(checkpoints) == every_group
    assert ours == java


async def test_positions_lie_under_java_s_keys(mirrors: Mirrors) -> None:
    """Both keep the same positions of the same topic-partitions, in the same partitions of the offsets topic."""
    topic = f"mm2-offsets.{mirrors.alias}.internal"
    stored = {}
    for target, bootstrap in mirrors.targets.items():
        contents = await read_topic(bootstrap, topic)
        stored[target] = {
            (partition, record.key): record.value
            for partition, records in contents.items()
            for record in records
            if (record.key or b"").startswith(b'["MirrorSourceConnector"')
            and b'"heartbeats"' not in (record.key or b"")
        }

    assert set(stored["mm2py"]) == set(stored["java"])
    assert len(stored["mm2py"]) == len(mirrors.topics) + 1


async def test_remote_topics_are_the_same(mirrors: Mirrors) -> None:
    """Both make remote topics of the same names with the same partitions."""

    async def remote_topics(bootstrap: str) -> dict[str, list[int]]:
        names: Sequence[str] = sorted(
            name for name in await list_topics(bootstrap) if name.startswith(f"{mirrors.alias}.") and "-" in name
        )
        return {name: sorted(await end_offsets(bootstrap, name)) for name in names}

    ours, java = await remote_topics(mirrors.targets["mm2py"]), await remote_topics(mirrors.targets["java"])

    assert ours == java
    assert sorted(itertools.chain(ours)) == sorted(mirrors.remote(topic) for topic in mirrors.topics)
