"""A forced split brain: two daemons both copy a flow, and are frozen and killed at random; the target stays exact."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.control_topics import ControlTopics
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.mm2_file import marking_exactly_once, mm2_properties
from tests.support.producing import COMPACTED_CONFIGS, NumberedStream, numbered_stream
from tests.support.reading import read_numbers, read_topic
from tests.support.records import assert_numbers, assert_same_records
from tests.support.soaking import IS_SOAK, rounds
from tests.support.topics import await_stable, create_topic


_PARTITIONS = 2
_ACTS = rounds(2, soak=24)
_RECORDS = rounds(0, soak=200_000)
_LASTS_S = rounds(0, soak=120)
#: Longer than an epoch with its drain, and than a session: the other node is the only one then.
_LONGEST_FREEZE_S = 9 if IS_SOAK else 2


@attrs.frozen
class Kind:
    """A topic and its live producer."""

    rate: int
    stream: Mapping[str, Any] = attrs.field(factory=dict)
    configs: Mapping[str, str] = attrs.field(factory=dict)


_KINDS = {
    "lz4": Kind(900, {"codec": "lz4"}),
    "zstd": Kind(300, {"codec": "zstd", "size": 2_000, "batch_records": 7}),
    # Merged where they wait, at other records on each node.
    "single": Kind(250, {"size": 40, "batch_records": 1}),
    "stamped": Kind(150, {"codec": "gzip", "size": 60}, {"message.timestamp.type": "LogAppendTime"}),
    "compacted": Kind(150, {"with_keys": True, "batch_records": 10}, COMPACTED_CONFIGS),
}
#: Each record goes through a transform, in transactions.
_TRANSFORMED = {name: _KINDS[name] for name in ("lz4", "single")}


@attrs.define
class SplitBrain:
    """Both nodes, and what became of them."""

    work_dir: Path
    properties: str
    runs: list[Daemon] = attrs.field(factory=list)
    acts: list[str] = attrs.field(factory=list)
    chance: random.Random = attrs.field(factory=lambda: random.Random(time.time_ns()))

    async def keep_apart(self, running: AsyncExitStack, streams: Mapping[str, NumberedStream]) -> None:
        """Freeze and kill nodes at random moments, and start those that were killed again."""
        nodes = [await self._start(running, name) for name in ("one", "other")]
        for node in nodes:
            await node.wait_for_event("spark_started")
            await node.wait_for_event("flow_started")  # neither stands by
        begun = time.monotonic()

        def is_over() -> bool:
            sent = sum(stream.sent for stream in streams.values())
            return len(self.acts) >= _ACTS and sent >= _RECORDS and time.monotonic() - begun >= _LASTS_S

        while not is_over():
            at = self.chance.randrange(2)
            first = ("freeze", "kill")[len(self.acts) : len(self.acts) + 1]
            act = self.chance.choice(first or ("freeze", "freeze", "freeze workers", "kill"))
            if act == "kill":
                await nodes[at].kill()
                nodes[at] = await self._start(running, ("one", "other")[at])
            else:
                await self._freeze(nodes[at], only_workers=act == "freeze workers")
            self.acts.append(f"{act} {at}")
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))

    async def _start(self, running: AsyncExitStack, name: str) -> Daemon:
        node = await running.enter_async_context(daemon(self.work_dir, self.properties, name=name))
        self.runs.append(node)
        return node

    async def _freeze(self, node: Daemon, *, only_workers: bool) -> None:
        frozen = node.spark_workers() if only_workers else [process.pid for process in node.tree()]
        try:
            for pid in frozen:
                _signal(pid, signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(0.05, _LONGEST_FREEZE_S))
        finally:
            for pid in reversed(frozen):
                _signal(pid, signal.SIGCONT)

    async def copied(self, topic: str, flow: str, ends: list[int]) -> None:
        """Wait until either node stands at the ends of a topic's partitions."""

        def is_there() -> bool:
            views = [run.partition_views(topic, flow) for run in self.runs if run.is_running]
            found = [[view["position"] for view in view.values()] for view in views]
            assert ends in found, f"after {self.acts} positions are {found}"
            return True

        await eventually(is_there, within_s=60, what=f"{topic} is copied to {ends}")

    def told(self, event: str) -> list[object]:
        """Return how often any node logged an event."""
        return [found for run in self.runs for found in run.events(event)]


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@asynccontextmanager
async def _streams(bootstrap: str, prefix: str, kinds: Mapping[str, Kind]) -> AsyncIterator[dict[str, NumberedStream]]:
    """Create the topics and write to all of them as long as the block lasts."""
    async with AsyncExitStack() as writing:
        streams = {}
        for name, kind in kinds.items():
            topic = f"{prefix}.{name}"
            await create_topic(bootstrap, topic, partitions=_PARTITIONS, configs=kind.configs)
            stream = numbered_stream(
                bootstrap, topic, count=1, partitions=_PARTITIONS, rate=kind.rate, open_ended=True, **kind.stream
            )
            streams[name] = await writing.enter_async_context(stream)
        yield streams


async def _split(
    source: str, target: str, prefix: str, work_dir: Path, kinds: Mapping[str, Kind], **keys: object
) -> dict[str, int]:
    """Run the split brain until all has arrived; return how many records each stream has."""
    alias = prefix[-6:]
    properties = mm2_properties(
        source,
        target,
        aliases=(alias, "B"),
        **{
            f"{alias}->B.topics": f"{prefix}.*",
            "copy.on.second.node": "warn",
            "tasks.max": 2,
            "copy.epoch.ms": 2_000,
            "copy.drain.ms": 2_000,
            "B.session.timeout.ms": 6_000,
            "offset.flush.interval.ms": 3_000,
            "sync.topic.configs.enabled": "false",
            "emit.checkpoints.interval.seconds": 1,
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            **keys,
        },
    )
    brain = SplitBrain(work_dir, properties)
    control = ControlTopics(source, target, f"{prefix}.lz4", alias, f"{alias}.{prefix}.lz4")
    await control.create(1)
    async with _streams(source, prefix, kinds) as streams, AsyncExitStack() as running:
        async with control.groups_read_along() if IS_SOAK else nullcontext():
            await brain.keep_apart(running, streams)
        counts = {name: await stream.done() for name, stream in streams.items()}
        for name, count in counts.items():
            await brain.copied(f"{prefix}.{name}", f"{alias}->B", [(count + 1) // 2, count // 2])
    assert not brain.told("foreign_records_found")
    assert not brain.told("resume_unproven")
    if IS_SOAK:  # nothing but records is protected in this mode: what went back is logged
        await control.steps_back()
    return counts


@pytest.mark.soak
async def test_two_nodes_that_copy_all(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Nothing is missing, twice or out of order, whichever node copied it: topics of all kinds, with live producers."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    alias = prefix[-6:]
    # What the source's compaction leaves is compared with a copy that keeps everything.
    await create_topic(target, f"{alias}.{prefix}.compacted", partitions=_PARTITIONS)
    counts = await _split(source, target, prefix, tmp_path, _KINDS)

    for name, count in counts.items():
        topic, remote = f"{prefix}.{name}", f"{alias}.{prefix}.{name}"
        copied = await read_numbers(target, remote)
        if name != "compacted":
            assert_numbers(copied, count)
            wanted, found = await read_topic(source, topic), await read_topic(target, remote)
            assert_same_records(wanted, found, with_timestamp_types=name != "stamped")
            continue
        for partition, numbers in (await read_numbers(source, topic)).items():
            assert all(before < after for before, after in itertools.pairwise(copied[partition]))
            assert set(numbers) <= set(copied[partition])


@pytest.mark.soak(only="two more daemons")
async def test_two_nodes_that_transform_all(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """In exactly-once mode a consumer of committed records sees each once, in order, although both nodes write."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    alias = prefix[-6:]
    counts = await _split(source, target, prefix, tmp_path, _TRANSFORMED, **marking_exactly_once(alias))

    for name, count in counts.items():
        await await_stable(target, f"{alias}.{prefix}.{name}")
        found = await read_numbers(target, f"{alias}.{prefix}.{name}", reads_committed=True)
        assert_numbers(found, count)
        assert found == await read_numbers(source, f"{prefix}.{name}")
