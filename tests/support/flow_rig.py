"""A flow's groups and loops for unit tests: settings, what a flow hands to them, and some seconds of their life."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.flow_settings import (
    CopySettings,
    FlowSettings,
    HeartbeatSettings,
    PolicySettings,
    StorageSettings,
    TopicSettings,
)
from mm2py.errors import Mm2Error, Verdict
from mm2py.flow.reach import Reach
from mm2py.flow.task_group import FlowContext
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.telemetry.journal import EventLog


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
    """An error nobody can do anything about."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "give up"

    what: str = "no"


def flow_context(clock: Clock, events: EventLog, settings: FlowSettings = SETTINGS) -> FlowContext:
    """Return what a flow of these settings hands to each of its groups; all jitter is in the middle."""
    reach = Reach(settings.flow, clock, events, lambda: 0.5)
    return FlowContext(settings, reach, clock, events, lambda: 0.5)


async def live(loop: Coroutine[Any, Any, None], seconds: float) -> None:
    """Let a background loop run for so long, then cancel it as a flow does that falls over."""
    task = asyncio.create_task(loop)
    await asyncio.sleep(seconds)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
