"""Offset translation on real clusters: every offset against what the topics hold, before and after restarts."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from pathlib import Path
from typing import Any

import attrs
import pytest

from mm2py.core.offsets.translation import Translated
from mm2py.core.source import due
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions, run_tool
from mm2py.model.flow import TopicPartition
from mm2py.telemetry.events import OffsetSyncsRead, OffsetSyncsWritten, PositionsWritten, StepFailed
from tests.support.brokers import GUARDED, MakeCluster
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.java_programs import java_program
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import (
    COMPACTED_CONFIGS,
    produce,
    produce_compacted,
    produce_transactions,
)
from tests.support.reading import read_batches, read_topic
from tests.support.records import plain_records, spread
from tests.support.topics import alter_topic, create_topic, end_offsets


ACL_TOOL = "org.apache.kafka.tools.AclCommand"


@attrs.frozen
class Truth:
    """Where each record of a partition is on both sides, as consumers of both read it."""

    upstream: list[int]
    downstream: list[int]
    upstream_end: int
    end: int

    def downstream_of(self, upstream: int) -> int:
        """Return the offset of the next record that a group at *upstream* has to read."""
        at = bisect_left(self.upstream, upstream)
        return self.downstream[at] if at < len(self.downstream) else self.end

    def upstream_of(self, downstream: int) -> int:
        at = bisect_left(self.downstream, downstream)
        return self.upstream[at] if at < len(self.upstream) else self.upstream_end


@attrs.frozen
class Mirror:
    """One topic between the shared clusters."""

    source: str
    target: str
    topic: str
    tmp_path: Path
    reads_committed: bool = False
    alias: str = "A"

    @property
    def remote_topic(self) -> str:
        return f"{self.alias}.{self.topic}"

    def flow(self, **keys: Any) -> Any:
        """Run a flow for the topic."""
        return running_flow(
            flow_settings(self.source, self.target, alias=self.alias, **self.keys(**keys)), self.tmp_path
        )

    def keys(self, **more: Any) -> dict[str, Any]:
        """Return the keys that are the topic's own."""
        level = "read_committed" if self.reads_committed else "read_uncommitted"
        return {f"{self.alias}->B.topics": self.topic, f"{self.alias}.consumer.isolation.level": level, **more}

    async def truth(self, partition: int) -> Truth:
        """Read both sides."""
        source = (await read_topic(self.source, self.topic, reads_committed=self.reads_committed))[partition]
        remote = (await read_topic(self.target, self.remote_topic))[partition]
        assert [record.value for record in source] == [record.value for record in remote]
        ends = await end_offsets(self.source, self.topic), await end_offsets(self.target, self.remote_topic)
        return Truth([r.offset for r in source], [r.offset for r in remote], ends[0][partition], ends[1][partition])

    async def copied(self, flow: RunningFlow) -> None:
        """Wait until the flow has copied all there is, and knows it."""
        ends = await end_offsets(self.source, self.topic)

        def positions() -> dict[int, int]:
            return {view.source.partition: view.position for view in flow.runner.view().partitions}

        await eventually(lambda: positions() == ends, within_s=60, what="everything is copied and accounted for")

    async def assert_exact(self, flow: RunningFlow, partitions: int) -> None:
        """Compare the translation of every offset, both ways, with what the topics hold."""
        translations = flow.runner._translations
        for number in range(partitions):
            truth = await self.truth(number)
            source, remote = TopicPartition(self.topic, number), TopicPartition(self.remote_topic, number)
            for upstream in range(truth.upstream_end + 1):
                expected = Translated(truth.downstream_of(upstream))
                assert translations.downstream(source, upstream) == expected, upstream
            for downstream in range(truth.end + 1):
                assert translations.upstream(remote, downstream) == Translated(truth.upstream_of(downstream)), (
                    downstream
                )


def mirror(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, **more: Any) -> Mirror:
    return Mirror(primary.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path, **more)


async def write_transactions(over: Mirror, *, start: int, rounds: int = 9) -> None:
    """Write transactions to two partitions, every third one aborted."""
    some = [(n % 3 != 1, spread(plain_records(40, start=start + n * 40), 2)) for n in range(rounds)]
    await produce_transactions(over.source, over.topic, some, transactional_id=f"{over.topic}-{start}", batch_records=7)


async def test_compacted_topic_translates_record_by_record(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Each offset of what compaction left has its exact counterpart, those that it removed included."""
    over = mirror(primary, backup, prefix, tmp_path)
    await create_topic(over.source, over.topic, configs=COMPACTED_CONFIGS)
    await produce_compacted(over.source, over.topic, partitions=1)

    async def is_compacted() -> bool:
        return any(batch.has_holes and batch.count for batch in await read_batches(over.source, over.topic, 0))

    await eventually(is_compacted, within_s=60, what="there are batches with holes", every_s=0.3)
    await alter_topic(over.source, over.topic, {"cleanup.policy": "delete", "retention.ms": "-1"})
    async with over.flow(**{"sync.topic.configs.enabled": "false"}) as flow:
        await over.copied(flow)

        await over.assert_exact(flow, 1)


async def test_what_a_position_rests_on_is_written_before_it(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A position that is written ahead of its interval leaves no gap in what is known before it.

    1. Positions are written once much was copied, long before the interval is over.
    2. The flow ends on the spot.
    3. The next one begins after that position, and walks over none of the records before it.
    """
    monkeypatch.setattr(due, "WRITE_AHEAD_BYTES", 1)
    over = mirror(primary, backup, prefix, tmp_path, reads_committed=True)
    await create_topic(over.source, over.topic, partitions=2)
    await write_transactions(over, start=0)
    async with over.flow() as flow:
        await over.copied(flow)
        await eventually(lambda: any(flow.events.of(PositionsWritten)), within_s=30, what="positions are written")
        await write_transactions(over, start=10_000)
        await over.copied(flow)
        await flow.crash()
    async with over.flow() as flow:
        await over.copied(flow)

        await over.assert_exact(flow, 2)


async def test_java_in_between_is_told_from_what_is_known(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    What we copied stays exact although a Java MirrorMaker copied next; what it copied is never translated ahead.

    Java reads the positions topic, in which our records are beside the positions, without a warning.
    """
    over = mirror(primary, backup, prefix, tmp_path, reads_committed=True, alias="between")
    await create_topic(over.source, over.topic, partitions=2)
    await write_transactions(over, start=0)
    async with over.flow() as flow:
        await over.copied(flow)
        await flow.drain()
    ours = await end_offsets(over.source, over.topic)
    await write_transactions(over, start=10_000)
    log = await java_copies(over)
    theirs = await end_offsets(over.source, over.topic)
    await write_transactions(over, start=20_000)
    async with over.flow() as flow:
        await over.copied(flow)
        await eventually(lambda: any(flow.events.of(OffsetSyncsRead)), within_s=30, what="syncs were read")
        translations = flow.runner._translations
        for number in range(2):
            truth, source = await over.truth(number), TopicPartition(over.topic, number)
            remote = TopicPartition(over.remote_topic, number)
            for upstream in range(truth.upstream_end + 1):
                answer = translations.downstream(source, upstream)
                assert isinstance(answer, Translated), upstream
                assert answer.offset <= truth.downstream_of(upstream), upstream
                if upstream < ours[number] or upstream >= theirs[number]:
                    assert answer.offset == truth.downstream_of(upstream), upstream
            for downstream in range(truth.end + 1):
                back = translations.upstream(remote, downstream)
                assert isinstance(back, Translated), downstream
                assert back.offset <= truth.upstream_of(downstream), downstream

    assert "Ignoring offset partition" not in log


async def java_copies(over: Mirror) -> str:
    """Have Java MirrorMaker 2 copy all there is, and give what it printed."""
    file = over.tmp_path / "java.properties"
    keys = over.keys(**{"emit.checkpoints.enabled": "false", "B.offset.flush.interval.ms": "1000"})
    file.write_text(mm2_properties(over.source, over.target, aliases=(over.alias, "B"), **keys))
    java = JavaMirrorMaker2(file, log_file=over.tmp_path / "java.log", jvm=JvmOptions(heap_mb=256))
    try:
        await asyncio.to_thread(java.start)
        source = await read_topic(over.source, over.topic, reads_committed=True)
        await await_arrived(over.target, over.remote_topic, sum(map(len, source.values())))
        await asyncio.to_thread(java.stop)
    finally:
        await asyncio.to_thread(java.kill)
    return (over.tmp_path / "java.log").read_text(errors="replace")


# Offset syncs.


async def syncs(bootstrap: str, syncs_topic: str, topic: str) -> dict[int, tuple[int, int]]:
    """Return the newest sync of each partition of *topic*, as Java's own formatter reads it."""
    newest: dict[int, tuple[int, int]] = {}
    for line in await java_program("MirrorRecords").ask(bootstrap, f"OffsetSync:{syncs_topic}"):
        text = line.split("\t")[2]
        words = dict(word.split("=") for word in text.removeprefix("OffsetSync{").removesuffix("}").split(", "))
        name, _, number = words["topicPartition"].rpartition("-")
        if name == topic:
            newest[int(number)] = int(words["upstreamOffset"]), int(words["downstreamOffset"])
    return newest


async def test_offset_syncs_at_either_cluster_are_java_s(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Java reads the last record's place of each partition, at the source or at the target."""
    over = mirror(primary, backup, prefix, tmp_path)
    await create_topic(over.source, over.topic, partitions=2)
    await produce(over.source, over.topic, spread(plain_records(500), 2))
    for location, bootstrap, name in (
        ("source", over.source, "mm2-offset-syncs.B.internal"),
        ("target", over.target, "mm2-offset-syncs.A.internal"),
    ):
        async with over.flow(**{"offset-syncs.topic.location": location}) as flow:
            await over.copied(flow)
            await eventually(lambda: any(flow.events.of(OffsetSyncsRead)), within_s=30, what="syncs were read")
            await flow.drain()

        assert await syncs(bootstrap, name, over.topic) == {0: (249, 249), 1: (249, 249)}


async def test_java_s_store_is_never_ahead_on_our_syncs(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Java's OffsetSyncStore, fed by our topic, translates no offset past the record that a group has to read."""
    over = mirror(primary, backup, prefix, tmp_path, reads_committed=True)
    await create_topic(over.source, over.topic)
    async with over.flow(**{"copy.epoch.ms": "500"}) as flow:
        for start in range(3):
            some = [(n % 3 != 1, [plain_records(40, start=(start * 9 + n) * 40)]) for n in range(9)]
            await produce_transactions(
                over.source, over.topic, some, transactional_id=f"{over.topic}-{start}", batch_records=7
            )
            await over.copied(flow)
        await flow.drain()
    truth = await over.truth(0)
    asked = range(0, truth.upstream_end + 1, 7)
    answers = await java_program("SyncStore").ask(over.source, "source", over.topic, "0", *map(str, asked))

    assert len(answers) == len(asked)
    translated = {at: int(answer) for at, answer in zip(asked, answers, strict=True) if answer != "none"}
    assert all(answer <= truth.downstream_of(at) for at, answer in translated.items())
    assert any(answer > 0 for answer in translated.values())


async def test_a_source_without_write_rights_says_so_once_and_copies(
    backup: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """Without write rights on the syncs topic copying goes on, with one event that names the setting to change."""
    guarded = make_cluster("read-only", properties=GUARDED)
    over = Mirror(guarded.bootstrap_servers, backup.bootstrap_servers, prefix, tmp_path, alias="guarded")
    await create_topic(over.source, over.topic)
    await produce(over.source, over.topic, [plain_records(100)])
    where = ("--bootstrap-server", over.source, "--force", "--topic", "mm2-offset-syncs.B.internal")
    no_writes = ("--deny-principal", "User:ANONYMOUS", "--operation", "Write")
    await asyncio.to_thread(run_tool, ACL_TOOL, "--add", *where, *no_writes)
    refused = []
    for location in ("source", "target"):
        async with over.flow(**{"offset-syncs.topic.location": location}) as flow:
            await over.copied(flow)
            if location == "source":
                await eventually(lambda: any(flow.events.of(StepFailed)), within_s=60, what="it is told")
                await asyncio.sleep(3)
            else:
                await eventually(lambda: any(flow.events.of(OffsetSyncsWritten)), within_s=60, what="syncs are written")
            refused.append([event for event in flow.events.of(StepFailed) if event.step == "write offset syncs"])
            await over.assert_exact(flow, 1)
            await flow.drain()

    assert [[str(event) for event in events[1:]] for events in refused] == [[], []]
    assert "offset-syncs.topic.location = target" in refused[0][0].hint
    assert "mm2-offset-syncs.B.internal on cluster guarded" in refused[0][0].error
    assert await syncs(over.target, "mm2-offset-syncs.guarded.internal", over.topic) == {0: (99, 99)}
