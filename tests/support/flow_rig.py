"""A flow's groups and loops for unit tests: settings, what a flow hands to them, and some seconds of their life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.connector import (
    BrokenHistorySettings,
    ConnectorConfig,
    CopySettings,
    MirrorCheckpointConfig,
    MirrorHeartbeatConfig,
    MirrorSourceConfig,
    OffsetSyncSettings,
    PolicySettings,
    TopicSettings,
    TopicSyncSettings,
)
from mm2py.config.settings import FlowSettings
from mm2py.config.worker import StorageSettings, WorkerConfig
from mm2py.connectors import context
from mm2py.connectors.context import BackgroundLoop, CheckpointContext, HeartbeatContext, HerderContext, SourceContext
from mm2py.connectors.reach import Reach
from mm2py.errors import ClusterUnreachableError, Mm2Error, Verdict
from mm2py.model.acl import TopicAcl
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.synced import ForgottenAcl, ForgottenConfig, Synced, SyncedAcl, SyncedConfig
from mm2py.model.transform import FlowTransforms
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


FLOW = Flow("A", "B")
EPOCH_S = 5.0
DRAIN_S = 2.0
_SHARED = ConnectorConfig(
    flow=FLOW,
    is_enabled=True,
    source=ClusterEndpoint("A", ("a:1",)),
    target=ClusterEndpoint("B", ("b:1",)),
    policy=PolicySettings("default", ".", internal_separator_enabled=True),
    admin_timeout_ms=60_000,
)
_TOPICS = TopicSettings(
    names=(".*",),
    exclude=(),
    filter_class="default",
    heartbeats_enabled=True,
    refresh_enabled=True,
    refresh_interval_s=600.0,
    look_interval_s=30.0,
    replication_factor=1,
)
SETTINGS = FlowSettings(
    flow=FLOW,
    source_connector=MirrorSourceConfig(
        **attrs.asdict(_SHARED, recurse=False),
        topics=_TOPICS,
        offset_storage=StorageSettings("mm2-offsets.A.internal", replication_factor=1, partitions=25),
        copying=CopySettings(
            tasks_max=2,
            auto_offset_reset="earliest",
            offset_flush_interval_ms=60_000,
            shutdown_ms=5_000,
            epoch_ms=round(EPOCH_S * 1000),
            drain_ms=round(DRAIN_S * 1000),
        ),
        limits=CopyLimits(),
        topic_sync=TopicSyncSettings(),
        broken_history=BrokenHistorySettings(),
        offset_syncs=OffsetSyncSettings(),
        transforms=FlowTransforms(),
    ),
    checkpoint_connector=MirrorCheckpointConfig(
        **attrs.asdict(_SHARED, recurse=False), topics=_TOPICS, transforms=FlowTransforms()
    ),
    heartbeat_connector=MirrorHeartbeatConfig(
        **attrs.asdict(_SHARED, recurse=False), is_emitted=False, interval_s=1.0, topic_replication_factor=1
    ),
    worker=WorkerConfig(
        "A-mm2",
        config_storage=StorageSettings("mm2-configs.A.internal"),
        status_storage=StorageSettings("mm2-status.A.internal", partitions=5),
    ),
)


def changed(settings: FlowSettings = SETTINGS, /, **values: Any) -> FlowSettings:
    """Return *settings* with other *values*, each in all configs that have such a field."""
    unknown = set(values)
    for name in ("source_connector", "checkpoint_connector", "heartbeat_connector", "worker"):
        config = getattr(settings, name)
        fields = {field.name for field in attrs.fields(type(config))} & values.keys()
        settings = attrs.evolve(settings, **{name: attrs.evolve(config, **{it: values[it] for it in fields})})
        unknown -= fields
    whole = {it: values[it] for it in unknown | (values.keys() & {"flow"})}
    return attrs.evolve(settings, **whole)


@attrs.define(eq=False)
class HopelessError(Mm2Error):
    """An error without a remedy."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "give up"

    what: str = "no"


def flow_context(clock: Clock, events: EventLog, settings: FlowSettings = SETTINGS) -> HerderContext:
    """Return what the herder of a flow with these settings hands around; all jitter is in the middle."""
    reach = Reach(settings.flow, clock, events, lambda: 0.5)
    return context.flow_context(settings, reach, clock=clock, events=events, jitter=lambda: 0.5)


def source_context(clock: Clock, events: EventLog, settings: FlowSettings = SETTINGS) -> SourceContext:
    """Return what a flow of these settings hands to its source connector."""
    return flow_context(clock, events, settings).of(settings.source_connector)


def checkpoint_context(clock: Clock, events: EventLog, settings: FlowSettings = SETTINGS) -> CheckpointContext:
    """Return what a flow of these settings hands to its checkpoint connector."""
    return flow_context(clock, events, settings).of(settings.checkpoint_connector)


def heartbeat_context(clock: Clock, events: EventLog, settings: FlowSettings = SETTINGS) -> HeartbeatContext:
    """Return what a flow of these settings hands to its heartbeat connector."""
    return flow_context(clock, events, settings).of(settings.heartbeat_connector)


class LoopRig:
    """What surrounds a background loop of a flow: virtual time, its events, which clusters answer, its topics."""

    loop: BackgroundLoop

    def __init__(self, settings: FlowSettings = SETTINGS) -> None:
        self.clock = LoopClock()
        self.events = EventLog(self.clock)
        self.context = source_context(self.clock, self.events, settings)
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
