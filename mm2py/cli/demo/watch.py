"""Watching a mirror from outside. Written and mirrored records are counted on the two clusters themselves; the
mirror's status file and log add what only it can know.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from mm2py.cli.demo.snapshot import FlowSnapshot, Said, Snapshot, TopicSnapshot
from mm2py.cli.demo.stage import SOURCE, TARGET, Stage
from mm2py.cli.demo.stream import SampleTopic
from mm2py.clock import Clock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.topic import NewTopic
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import LATEST
from mm2py.wire.topics.admin import Admin


#: The window of rates.
_RATE_OVER_S = 3.0
#: The window of latency: epochs that ended in it count.
_LATENCY_OVER_S = 10.0
#: The mirror has caught up with its initial backlog when less than this share is left.
_LEVEL_SHARE = 0.01
_HISTORY = 48
_SAID = 5
#: Not among the few lines shown, because they repeat.
_NOT_SHOWN = frozenset({"epoch_ended", "positions_written", "topics_refreshed", "flow_summary"})


@attrs.frozen
class _Epoch:
    at: float
    p50_ms: float
    p99_ms: float


class Watch:
    """Observes both clusters and the mirror's own output."""

    def __init__(self, stage: Stage, topics: Sequence[SampleTopic], clock: Clock) -> None:
        self._stage = stage
        self._topics = topics
        self._clock = clock
        self._source, self._target = (
            Cluster(ClusterEndpoint(alias, (cluster.bootstrap_servers,), client_id="mm2py-demo"), clock)
            for alias, cluster in ((SOURCE, stage.source), (TARGET, stage.target))
        )
        self._open = AsyncExitStack()
        self._log = _Log(stage.log_file)
        self._seen: deque[tuple[float, int]] = deque()
        self._epochs: deque[_Epoch] = deque()
        self._said: deque[Said] = deque(maxlen=_SAID)
        self._history: deque[float] = deque(maxlen=_HISTORY)
        self._spark_ui = ""
        self._started = clock.monotonic()
        self._first: float | None = None
        self._level_at: float | None = None

    async def __aenter__(self) -> Self:
        for cluster in (self._source, self._target):
            await self._open.enter_async_context(cluster)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def create_topics(self) -> None:
        """Create the source's topics."""
        wanted = [NewTopic(topic.name, topic.partitions, 1) for topic in self._topics]
        for error in (await Admin(self._source).create_topics(wanted)).values():
            if error is not None:
                raise error

    def mirror_started(self) -> None:
        """Record that the mirror's process has just been started."""
        self._started = self._clock.monotonic()

    async def look(self) -> Snapshot:
        """Take a snapshot."""
        # By the default replication policy.
        remote_of = {topic.name: f"{SOURCE}.{topic.name}" for topic in self._topics}
        async with asyncio.TaskGroup() as both:
            source = both.create_task(_ends(self._source, {name: name for name in remote_of}), name="source ends")
            target = both.create_task(_ends(self._target, remote_of), name="target ends")
        written, mirrored = source.result(), target.result()
        lag = max(0, sum(written.values()) - sum(mirrored.values()))
        now = self._clock.monotonic()
        rate = self._rate(now, sum(mirrored.values()), lag)
        self._listen(now)
        topics = tuple(
            TopicSnapshot(
                topic=topic.name,
                remote_topic=remote_of[topic.name],
                codec=topic.codec,
                partitions=topic.partitions,
                written=written[topic.name],
                mirrored=mirrored[topic.name],
            )
            for topic in self._topics
        )
        return Snapshot(
            flow=self._flow(rate, lag),
            topics=topics,
            said=tuple(self._said),
            history=tuple(self._history),
            spark_ui=self._spark_ui,
            since_first_s=None if self._first is None else now - self._first,
            first_after_s=None if self._first is None else self._first - self._started,
        )

    def _rate(self, now: float, mirrored: int, lag: int) -> float:
        if mirrored and self._first is None:
            self._first = now
        if mirrored and self._level_at is None and lag < mirrored * _LEVEL_SHARE:
            self._level_at = now
        self._seen.append((now, mirrored))
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        then, before = self._seen[0]
        rate = (mirrored - before) / (now - then) if now > then else 0.0
        self._history.append(rate)
        return rate

    def _flow(self, records_per_s: float, lag: int) -> FlowSnapshot:
        flow = str(Flow(SOURCE, TARGET))
        status = _status(self._stage.status_file).get(flow, {})
        is_copying = self._first is not None and status.get("bytes")
        return FlowSnapshot(
            flow=flow,
            state=str(status.get("state", "starting")),
            records_per_s=records_per_s,
            bytes_per_s=status.get("bytes_per_s") if is_copying else None,
            lag=lag,
            latency_p50_ms=statistics.median(epoch.p50_ms for epoch in self._epochs) if self._epochs else None,
            latency_p99_ms=max((epoch.p99_ms for epoch in self._epochs), default=None),
        )

    def _listen(self, now: float) -> None:
        for event in self._log.new():
            if event["event"] == "spark_started":
                self._spark_ui = event.get("ui", "")
            if event["event"] == "epoch_ended":
                self._note_epoch(now, event)
            if event["event"] not in _NOT_SHOWN:
                self._said.append(_said(event))
        while self._epochs and now - self._epochs[0].at > _LATENCY_OVER_S:
            self._epochs.popleft()

    def _note_epoch(self, now: float, event: Mapping[str, Any]) -> None:
        """Record an epoch's latency, unless it copied a backlog from before the mirror was started."""
        is_level = self._level_at is not None and now - event["elapsed_s"] > self._level_at
        if is_level and event.get("latency_p50_ms") is not None:
            self._epochs.append(_Epoch(now, event["latency_p50_ms"], event["latency_p99_ms"]))


class _Log:
    """The mirror's log, read as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_bytes = 0

    def new(self) -> Iterator[dict[str, Any]]:
        """Return the events logged since the last call; a half-written line is left for the next."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._read_bytes)
            fresh = log.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                yield json.loads(line)


async def _ends(cluster: Cluster, names: Mapping[str, str]) -> dict[str, int]:
    """Return the sum of the end offsets of all partitions of each topic; 0 for a topic that does not exist yet."""
    if not all(cluster.partitions_of(name) for name in names.values()):
        await cluster.refresh_metadata(set(names.values()))
    partitions = [TopicPartition(name, number) for name in names.values() for number in cluster.partitions_of(name)]
    ends = await cluster.list_offsets(partitions, LATEST)
    counted = dict.fromkeys(names.values(), 0)
    for partition, end in ends.items():
        counted[partition.topic] += end if isinstance(end, int) else 0
    return {topic: counted[name] for topic, name in names.items()}


def _status(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    return {flow["flow"]: flow for flow in json.loads(path.read_text(encoding="utf-8"))["flows"]}


def _said(event: dict[str, Any]) -> Said:
    known = {"timestamp", "level", "event", "flow"}
    facts = " ".join(f"{key}={value}" for key, value in event.items() if key not in known)
    return Said(str(event["timestamp"])[11:19], event["level"], event["event"], facts)
