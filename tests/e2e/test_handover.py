"""mm2py and Java MirrorMaker 2 take over from each other, in both directions, after a clean stop and after SIGKILL; one
node of mm2py, or two that share the flow.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState
from mm2py.telemetry.events import FlowRunsElsewhere, FlowTakenOver, ResumeUnproven
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.groups import describe
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.mirrored import arrived, assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node
from tests.support.producing import NumberedStream, numbered_stream
from tests.support.reading import read_numbers, read_topic
from tests.support.records import assert_same_records
from tests.support.topics import create_topic, end_offsets, list_topics


_PARTITIONS = 4
_COUNT = 30_000
_RATE = 3_000
#: What the first of the two has copied at least when it is stopped.
_FIRST = 8_000
_FLUSH_MS = 1_000
_JAVA_STOPPED = 143  # what Java says after SIGTERM
_SMALL = JvmOptions(heap_mb=256)

_SOURCE_KEY = re.compile(rb'\["MirrorSourceConnector",\{"cluster":"\w+","partition":(\d+),"topic":"[^"]+"\}\]')
_VALUE = re.compile(rb'\{"offset":(-1|\d+)\}')

#: Values of the offsets topic by partition and key.
Stored = dict[tuple[int, bytes], bytes]


@attrs.frozen
class Handover:
    """
    One flow of one topic, which both read from the same file.

    The source alias is the test's own, so that each test has its own offsets topic and Connect group.
    """

    alias: str
    topic: str
    source: str
    target: str
    work_dir: Path
    tasks: int = 1
    partitions: int = _PARTITIONS

    @property
    def flow(self) -> Flow:
        return Flow(self.alias, "B")

    @property
    def remote_topic(self) -> str:
        return f"{self.alias}.{self.topic}"

    @property
    def properties(self) -> str:
        quiet = {"emit.heartbeats.enabled": "false", "emit.checkpoints.enabled": "false"}
        flush = {"B.offset.flush.interval.ms": _FLUSH_MS, "tasks.max": self.tasks}
        aliases = (self.alias, "B")
        return mm2_properties(self.source, self.target, aliases=aliases, topics=self.topic, **quiet, **flush)

    def mm2py(self) -> AbstractAsyncContextManager[Daemon]:
        return daemon(self.work_dir, self.properties)

    @asynccontextmanager
    async def java(self, name: str = "java") -> AsyncIterator[JavaMirrorMaker2]:
        """Run a Java MirrorMaker 2 until the end of the block, by SIGKILL if it still runs then; it has tasks first."""
        file = self.work_dir / f"{name}.properties"
        file.write_text(self.properties)
        java = JavaMirrorMaker2(file, log_file=self.work_dir / f"{name}.log", jvm=_SMALL)
        try:
            await asyncio.to_thread(java.start)
            await asyncio.to_thread(java.await_replicating, self.alias, "B")
            yield java
        finally:
            await asyncio.to_thread(java.kill)

    @asynccontextmanager
    async def stream(self, *, open_ended: bool = False, rate: int = _RATE) -> AsyncIterator[NumberedStream]:
        """Write numbered records with keys and headers, at a rate that outlasts the first of the two."""
        async with numbered_stream(
            self.source,
            self.topic,
            count=_COUNT,
            partitions=self.partitions,
            rate=rate,
            codec="lz4",
            with_keys=True,
            open_ended=open_ended,
        ) as stream:
            yield stream

    async def is_free(self) -> bool:
        """Whether the flow's Connect group has no members: Kafka does not let Java join one that mm2py is in."""
        return (await describe(self.target, f"{self.alias}-mm2")).is_idle

    async def await_first_part(self) -> None:
        await await_arrived(self.target, self.remote_topic, _FIRST)

    async def await_more(self) -> None:
        """Wait until the mirror has gone on by some seconds' records."""
        await await_arrived(self.target, self.remote_topic, await arrived(self.target, self.remote_topic) + _RATE)

    async def await_shared(self, *nodes: RunningNode) -> None:
        """Wait until each of these nodes has part of the tasks, and all of them have all."""

        def are_shared() -> bool:
            tasks = [[task.task for task in node.view(self.flow).tasks] for node in nodes]
            assert all(tasks), tasks
            assert sorted(itertools.chain(*tasks)) == list(range(self.tasks)), tasks
            return True

        await eventually(are_shared, within_s=40, what=f"{len(nodes)} nodes share the tasks")

    async def assert_equal(self, count: int = _COUNT) -> None:
        """Wait for the last record; check that everything is there, once, in order, and like the source's."""
        await assert_mirrored(self.source, self.topic, self.target, self.remote_topic, count)
        remote = await read_topic(self.target, self.remote_topic)
        assert_same_records(await read_topic(self.source, self.topic), remote)
        assert {record.headers[1] for records in remote.values() for record in records} == {("empty", None)}

    async def remote_topics(self) -> set[str]:
        return {topic for topic in await list_topics(self.target) if self.topic in topic}

    async def has_flushed(self) -> bool:
        """Whether every partition has a position."""
        return len(positions(await self.stored())) == self.partitions

    async def stored(self, *, reads_committed: bool = False) -> Stored:
        """Read the offsets topic: the last value of every key of Java's, and in which partition it lies."""
        topic = f"mm2-offsets.{self.alias}.internal"
        contents = await read_topic(self.target, topic, reads_committed=reads_committed)
        return {
            (partition, record.key or b""): record.value or b""
            for partition, records in contents.items()
            for record in records
            if not (record.key or b"").startswith(b'["mm2py"')  # where records went, which Java passes over
        }


def positions(stored: Stored) -> dict[int, int]:
    """Return each partition's offset of the last replicated record, written as Java writes it to the byte."""
    found = {}
    for (_, key), value in stored.items():
        owner, offset = _SOURCE_KEY.fullmatch(key), _VALUE.fullmatch(value)
        assert owner is not None, key
        assert offset is not None, value
        found[int(owner[1])] = int(offset[1])
    return found


async def test_mm2py_goes_on_where_java_stopped(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Java MirrorMaker 2 is stopped in the middle of a stream and mm2py copies the rest: no gap and no repeat.

    It takes the same remote topic, and writes its positions under Java's own keys into Java's own partitions.
    """
    flow = await _flow("west", primary, backup, prefix, tmp_path)
    async with flow.java() as java, flow.stream(open_ended=True) as stream:
        await flow.await_first_part()
        await eventually(flow.has_flushed, within_s=30, what="Java has written positions")
        exit_code = await asyncio.to_thread(java.stop)
        by_java = await flow.stored()
        copied_by_java = await arrived(flow.target, flow.remote_topic)
        topics = await flow.remote_topics()
        async with flow.mm2py() as mm2py:
            await await_arrived(flow.target, flow.remote_topic, copied_by_java + 1)
            await flow.assert_equal(await stream.done())
            assert await mm2py.sigterm() == 0
    by_mm2py = await flow.stored()
    ends = await end_offsets(flow.source, flow.topic)

    assert exit_code == _JAVA_STOPPED
    assert copied_by_java >= _FIRST
    assert await flow.remote_topics() == topics == {flow.remote_topic}
    assert not list(mm2py.events("topic_created"))
    assert [(event["found"], event["fresh"]) for event in mm2py.events("positions_read")] == [(_PARTITIONS, 0)]
    assert not list(mm2py.events("resume_unproven"))
    # On a busy machine Java ends before it has written the last positions; mm2py finds what was copied after them.
    assert 0 < sum(position + 1 for position in positions(by_java).values()) <= copied_by_java
    assert set(by_mm2py) == set(by_java)
    assert positions(by_mm2py) == {partition: end - 1 for partition, end in ends.items()}


@pytest.mark.soak(only="Java takes over from an mm2py that was killed, too")
async def test_java_goes_on_where_mm2py_stopped(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    mm2py is stopped in the middle of a stream and Java MirrorMaker 2 copies the rest: no gap and no repeat.

    Java reads the positions that mm2py wrote and writes its own under the same keys into the same partitions.
    """
    flow = await _flow("east", primary, backup, prefix, tmp_path)
    async with flow.mm2py() as mm2py:
        await mm2py.wait_for_event("flow_started")
        await mm2py.wait_for_event("spark_started")  # else the stream may be over before the first record arrives
        async with flow.stream() as stream:
            await flow.await_first_part()
            exit_code = await mm2py.sigterm()
            by_mm2py = await flow.stored()
            copied_by_mm2py = await arrived(flow.target, flow.remote_topic)
            topics = await flow.remote_topics()
            async with flow.java() as java:
                await stream.done()
                await flow.assert_equal()
                await asyncio.to_thread(java.stop)
    by_java = await flow.stored()
    ends = await end_offsets(flow.source, flow.topic)

    assert exit_code == 0
    assert _FIRST <= copied_by_mm2py < _COUNT
    assert await flow.remote_topics() == topics == {flow.remote_topic}
    assert sum(position + 1 for position in positions(by_mm2py).values()) == copied_by_mm2py
    assert set(by_java) == set(by_mm2py)
    assert positions(by_java) == {partition: end - 1 for partition, end in ends.items()}


@pytest.mark.soak(only="mm2py goes on where Java stopped, too")
async def test_mm2py_takes_over_from_a_java_that_was_killed(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    After SIGKILL of Java MirrorMaker 2, mm2py finds the target's last records in the source and repeats none.

    Java keeps upstream offsets only, and of its last flush: what it copied since is found by its content alone.
    """
    flow = await _flow("north", primary, backup, prefix, tmp_path)
    async with flow.java() as java, flow.stream() as stream:
        await flow.await_first_part()
        await eventually(flow.has_flushed, within_s=30, what="Java has written positions", every_s=0.05)
        await asyncio.sleep(_FLUSH_MS / 2_000)  # so that the last flush is not the last thing it did
        await asyncio.to_thread(java.kill)
        known = sum(position + 1 for position in positions(await flow.stored()).values())
        copied_by_java = await arrived(flow.target, flow.remote_topic)
        async with flow.mm2py() as mm2py:
            await stream.done()
            await flow.assert_equal()
            assert await mm2py.sigterm() == 0
    recognised = sum(event["records"] for event in mm2py.events("resumed_exactly"))

    assert known < copied_by_java < _COUNT
    assert recognised == copied_by_java - known
    assert not list(mm2py.events("resume_unproven"))


async def test_java_takes_over_from_an_mm2py_that_was_killed(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    After SIGKILL of mm2py, Java MirrorMaker 2 misses nothing and repeats no more than was copied since a position.

    Java is at-least-once: it takes the position as it is and does not look at what arrived after it.
    """
    flow = await _flow("south", primary, backup, prefix, tmp_path)
    async with flow.mm2py() as mm2py:
        await mm2py.wait_for_event("flow_started")
        async with flow.stream() as stream:
            await flow.await_first_part()
            await mm2py.kill()
            # Whether what it wrote last was committed shows later.
            known, written = positions(await flow.stored(reads_committed=True)), positions(await flow.stored())
            await eventually(flow.is_free, within_s=30, what="the killed one's place in the group is free", every_s=0.5)
            async with flow.java():
                await stream.done()
                await await_arrived(flow.target, flow.remote_topic, _COUNT)
                found = await eventually(
                    lambda: _complete(flow), within_s=60, what=f"all numbers are in {flow.remote_topic}", every_s=0.5
                )

    for partition, numbers in found.items():
        ((at, first),) = _steps_back(numbers) or [(len(numbers), -1)]
        assert numbers[:at] == sorted(set(numbers[:at]))
        assert numbers[at:] == sorted(set(numbers[at:]))
        assert at == len(numbers) or first in {numbers[some[partition] + 1] for some in (known, written)}


def _steps_back(numbers: list[int]) -> list[tuple[int, int]]:
    """Return the places where a number is not larger than the one before it, with the number there."""
    return [(at + 1, after) for at, (before, after) in enumerate(itertools.pairwise(numbers)) if after <= before]


async def _complete(flow: Handover) -> dict[int, list[int]]:
    found = await read_numbers(flow.target, flow.remote_topic)
    missing = set(range(_COUNT)).difference(*found.values())
    assert not missing, f"{len(missing)} records are missing"
    return found


@pytest.mark.soak(only="four starts of Java and two minutes")
@pytest.mark.parametrize(("alias", "is_killed"), [("inland", False), ("offshore", True)])
async def test_two_nodes_and_java_take_over_from_each_other(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, alias: str, *, is_killed: bool
) -> None:
    """
    Two nodes start beside two workers of Java MirrorMaker 2: both stand by, and share the flow once both have ended.

    A Java that starts beside them copies nothing; one that starts after both were stopped copies the rest. No record is
    lost or repeated.
    """
    flow = await _flow(alias, primary, backup, prefix, tmp_path, tasks=2)
    async with flow.stream(open_ended=True, rate=_RATE // 3) as stream, AsyncExitStack() as runs:
        async with flow.java() as java, flow.java("second") as second_java:
            await flow.await_first_part()
            nodes = [
                await runs.enter_async_context(running_node(flow.properties, tmp_path, it)) for it in ("one", "two")
            ]
            for node in nodes:
                await eventually(lambda it=node: it.events.of(FlowRunsElsewhere), within_s=30, what="Java is known")
            await flow.await_more()
            await asyncio.to_thread(java.kill if is_killed else java.stop)
            await flow.await_more()
            beside = [node.view(flow.flow) for node in nodes]
            await asyncio.to_thread(second_java.kill if is_killed else second_java.stop)
        await flow.await_shared(*nodes)
        await flow.await_more()
        refused = JavaMirrorMaker2(tmp_path / "java.properties", log_file=tmp_path / "refused.log", jvm=_SMALL)
        try:
            await asyncio.to_thread(refused.launch)
            await asyncio.to_thread(refused.await_log, re.compile("InconsistentGroupProtocolException"))
            await flow.await_more()
        finally:
            await asyncio.to_thread(refused.kill)
        first, second = nodes
        await first.stop()
        await flow.await_shared(second)
        await flow.await_more()
        await second.stop()
        async with flow.java() as java:
            await flow.await_more()
            await flow.assert_equal(await stream.done())
            await asyncio.to_thread(java.stop)

    assert [(view.state, view.records) for view in beside] == [(FlowState.STANDBY, 0)] * 2
    assert "replicating" not in refused.log_text()
    assert [len(node.events.of(FlowTakenOver)) for node in nodes] == [1, 1]
    assert not [event for node in nodes for event in node.events.of(ResumeUnproven)]


async def _flow(
    alias: str, primary: KafkaCluster, backup: KafkaCluster, topic: str, work_dir: Path, *, tasks: int = 1
) -> Handover:
    """Make the topic; with several tasks it has so many partitions that each node gets some by their names alone."""
    partitions = _PARTITIONS if tasks == 1 else 8 * tasks
    await create_topic(primary.bootstrap_servers, topic, partitions=partitions)
    return Handover(alias, topic, primary.bootstrap_servers, backup.bootstrap_servers, work_dir, tasks, partitions)
