"""A flow's groups and loops for unit tests: settings, what a flow hands to them, and some seconds of their life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.connector import PolicySettings
from mm2py.config.flow_settings import FlowSettings
from mm2py.config.heartbeat import HeartbeatSettings
from mm2py.config.source import CopySettings, TopicSettings
from mm2py.config.worker import StorageSettings
from mm2py.connectors.context import BackgroundLoop, FlowContext
from mm2py.connectors.reach import Reach
from mm2py.errors import ClusterUnreachableError, Mm2Error, Verdict
from mm2py.model.acl import TopicAcl
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.synced import ForgottenAcl, ForgottenConfig, Synced, SyncedAcl, SyncedConfig
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


FLOW = Flow("A", "B")
EPOCH_S = 5.0
DRAIN_S = 2.0
SETTINGS = FlowSettings(
    flow=FLOW,
    is_enabled=True,
    source=ClusterEndpoint("A", ("a:1",)),
    target=ClusterEndpoint("B", ("b:1",)),
    topics=TopicSettings(
        names=(".*",),
        exclude=(),
        filter_class="default",
        heartbeats_enabled=True,
        refresh_enabled=True,
        refresh_interval_s=600.0,
        look_interval_s=30.0,
        replication_factor=1,
    ),
    policy=PolicySettings("default", ".", internal_separator_enabled=True),
    heartbeats=HeartbeatSettings(is_emitted=False, interval_s=1.0, topic_replication_factor=1),
    offset_storage=StorageSettings("mm2-offsets.A.internal", replication_factor=1, partitions=25),
    copying=CopySettings(
        tasks_max=2,
        auto_offset_reset="earliest",
        offset_flush_interval_ms=60_000,
        shutdown_ms=5_000,
        epoch_ms=round(EPOCH_S * 1000),
        drain_ms=round(DRAIN_S * 1000),
        restart_backoff_ms=1_000,
        restart_backoff_max_ms=60_000,
    ),
    limits=CopyLimits(),
    admin_timeout_ms=60_000,
)


@attrs.define(eq=False)
class HopelessError(Mm2Error):
    """An error without a remedy."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "give up"

    what: str = "no"


def flow_context(clock: Clock, events: EventLog, settings: FlowSettings = SETTINGS) -> FlowContext:
    """Return what a flow of these settings hands to each of its groups; all jitter is in the middle."""
    reach = Reach(settings.flow, clock, events, lambda: 0.5)
    return FlowContext(settings, reach, clock, events, lambda: 0.5)


class LoopRig:
    """What surrounds a background loop of a flow: virtual time, its events, which clusters answer, its topics."""

    loop: BackgroundLoop

    def __init__(self, settings: FlowSettings = SETTINGS) -> None:
        self.clock = LoopClock()
        self.events = EventLog(self.clock)
        self.context = flow_context(self.clock, self.events, settings)
        self.reach = self.context.reach
        self.mirror: Callable[[Mapping[str, str]], None] = lambda _: None

    def watch_topics(self, watcher: Callable[[Mapping[str, str]], None]) -> None:
        self.mirror = watcher

    async def live(self, seconds: float) -> None:
        """Run the loop for so long, then cancel it as a failing flow does."""
        task = asyncio.create_task(self.loop.run())
        await asyncio.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@attrs.define
class SyncedMemoryDouble:
    """Remembers what was put on remote topics, as `mm2py.connectors.topics.ownership.SyncedMemory` does, or is away."""

    is_away: bool = False
    written: list[Synced] = attrs.field(factory=list)
    known: dict[str, dict[str, tuple[str, ...]]] = attrs.field(factory=dict)
    acls: set[TopicAcl] = attrs.field(factory=set)

    async def load(self) -> None:
        if self.is_away:
            raise ClusterUnreachableError("B", "b:1", "refused")

    @property
    def configured(self) -> frozenset[str]:
        return frozenset(topic for topic, configs in self.known.items() if configs)

    def configs_of(self, remote_topic: str) -> Mapping[str, tuple[str, ...]]:
        return self.known.get(remote_topic, {})

    async def write(self, entries: Sequence[Synced]) -> None:
        self.written += entries
        for entry in entries:
            if isinstance(entry, SyncedConfig):
                self.known.setdefault(entry.topic, {})[entry.key] = entry.values
            elif isinstance(entry, ForgottenConfig):
                self.known.get(entry.topic, {}).pop(entry.key, None)
            elif isinstance(entry, SyncedAcl):
                self.acls.add(entry.acl)
            elif isinstance(entry, ForgottenAcl):
                self.acls.discard(entry.acl)
