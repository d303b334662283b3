"""Events of heartbeats."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event


@attrs.frozen
class HeartbeatsStarted(Event):
    """A flow has written its first heartbeat."""

    flow: Flow
    topic: str
    interval_s: float


@attrs.frozen
class HeartbeatsResumed(Event):
    """A flow writes heartbeats again, after the target was unreachable or refused them."""

    flow: Flow
    silent_s: float
