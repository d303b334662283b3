"""Events of the nodes that run a flow together."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class NodeSilent(Event):
    """Another node of the flow has not reported for `silent_s`; its tasks move to others once its session is over."""

    level = Level.WARN

    flow: Flow
    node: str
    rest: str
    silent_s: float
    hint: str = "check that node: its process, its machine, and its connection to the target"


@attrs.frozen
class NodeAnswersAgain(Event):
    """A node that did not report for a while does so again."""

    flow: Flow
    node: str


@attrs.frozen
class NodeDrained(Event):
    """An operator drained this node: other nodes take its tasks, until it is resumed or restarted."""

    by: str


@attrs.frozen
class NodeResumed(Event):
    """An operator has this node take tasks again."""

    by: str
