"""
Live updates for the status page: server-sent events, produced once a second for all viewers, only while there are any.

A *viewer* is one open stream. It first gets a snapshot, then changes. Unread messages wait in a queue of a few seconds;
a viewer that falls further behind is disconnected, and reconnects for a new snapshot. The format is that of the HTML
standard, chapter 9.2.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

import attrs

from mm2py.clock import Clock
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides
from mm2py.model.state import FlowView, MirrorView
from mm2py.rest.page.history import COLUMNS, SAMPLE_EVERY_S, History, sample
from mm2py.rest.page.view import (
    PARTITION_COLUMNS,
    changes,
    details,
    find_flow,
    group_rows,
    missing_rows,
    ordered,
    overview,
    partition_changes,
    partition_rows,
)
from mm2py.telemetry.recent import RecentEvents, ShownEvent


#: Interval of snapshots while there are viewers.
TICK_S = 1.0
#: Seconds of messages that may be queued for a viewer before it is disconnected.
QUEUED_TICKS = 8
#: Most simultaneous viewers; each holds a connection.
MOST_VIEWERS = 64

#: A comment, which shows that the daemon is alive although nothing changed.
_HEARTBEAT = b": still here\n\n"
_END = b"event: end\ndata: {}\n\n"


@attrs.define(eq=False)
class Viewer:
    """One open stream: of all flows, and of `flow` in detail if it is set, or of events only. `is_over` means that
    there is nothing more once `waiting` is empty, `is_slow` that it was disconnected.
    """

    flow: Flow | None
    only_events: bool
    last_event: int
    waiting: deque[bytes] = attrs.field(factory=deque)
    is_over: bool = False
    is_slow: bool = False
    _news: asyncio.Event = attrs.field(factory=asyncio.Event)

    def push(self, message: bytes) -> None:
        """Queue *message*, or disconnect the viewer if its queue is full."""
        if self.is_over:
            return
        if len(self.waiting) >= QUEUED_TICKS:
            self.is_slow = True
            self.waiting.clear()
            self.end()
            return
        self.waiting.append(message)
        self._news.set()

    def end(self, last: bytes = b"") -> None:
        """End the stream after the queued messages and *last*."""
        if last and not self.is_over:
            self.waiting.append(last)
        self.is_over = True
        self._news.set()

    async def next(self) -> bytes | None:
        """Return the next message as soon as there is one; None at the end."""
        while not self.waiting:
            if self.is_over:
                return None
            self._news.clear()
            await self._news.wait()
        message = b"".join(self.waiting)
        self.waiting.clear()
        return message


class FlowChannel:
    """The last state that viewers of one flow have; the next message is the difference to it."""

    def __init__(self, flow: FlowView, overrides: Overrides | None, elsewhere: Mapping[str, Any]) -> None:
        self._details = _all_details(flow, overrides)
        self._partitions = partition_rows(flow)
        self._tables = _tables(flow, elsewhere)

    def snapshot(self) -> bytes:
        """Return the whole state, for a new viewer."""
        rows = {"partitions": [row for _, row in self._partitions.values()]}
        rows |= {name: list(table.values()) for name, table in self._tables.items()}
        tables = {name: {"all": True, "set": some, "gone": []} for name, some in rows.items()}
        return _encode("flow", {**self._details, "partition_columns": PARTITION_COLUMNS, **tables})

    def advance(self, flow: FlowView, overrides: Overrides | None, elsewhere: Mapping[str, Any]) -> bytes:
        """Adopt the current state; return the changes, if any."""
        about, tables = _all_details(flow, overrides), _tables(flow, elsewhere)
        partitions = partition_rows(flow, self._partitions)
        message = about if about != self._details else {"flow": about["flow"]}
        found = {"partitions": partition_changes(self._partitions, partitions)}
        found |= {name: changes(self._tables[name], rows) for name, rows in tables.items()}
        for name, (changed, gone) in found.items():
            if changed or gone:
                message = {**message, name: {"all": False, "set": changed, "gone": gone}}
        self._details, self._partitions, self._tables = about, partitions, tables
        return _encode("flow", message) if len(message) > 1 else b""


class LiveStream:
    """Takes a snapshot each second while there are viewers, and sends the changes to all of them."""

    def __init__(
        self,
        look: Callable[[], MirrorView],
        overrides: Callable[[Flow], Overrides | None],
        *,
        recent: RecentEvents,
        history: History,
        clock: Clock,
    ) -> None:
        self._look = look
        #: This node's name, which is known once it listens.
        self.worker_id = ""
        self._overrides = overrides
        self._recent = recent
        self._history = history
        self._clock = clock
        #: Rows of the topics of which other nodes copy partitions, by flow; see `elsewhere_rows`.
        self.elsewhere: Mapping[Flow, Mapping[str, Any]] = {}
        self._viewers: set[Viewer] = set()
        self._channels: dict[Flow, FlowChannel] = {}
        self._overview: dict[str, Any] = {}
        self._has_viewers = asyncio.Event()
        self._is_closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    @property
    def flows(self) -> Collection[Flow]:
        """The flows that are looked at in detail."""
        return tuple(self._channels)

    @property
    def is_full(self) -> bool:
        """Whether no more viewers are admitted."""
        return len(self._viewers) >= MOST_VIEWERS

    def join(self, flow: Flow | None = None, *, only_events: bool = False, after: str = "") -> Viewer:
        """Add a viewer, starting with events *after* that mark. Raise LookupError if this node does not run *flow*."""
        viewer = Viewer(flow, only_events, self._recent.id_of(after))
        first = b""
        if not only_events:
            first = self._snapshot(flow)
        viewer.push(first + self._events(viewer) or _HEARTBEAT)
        if self._is_closed:
            viewer.end(_END)
            return viewer
        self._viewers.add(viewer)
        self._has_viewers.set()
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer, with the state that only it needed."""
        self._viewers.discard(viewer)
        self._forget()

    def close(self) -> None:
        """End all streams; later viewers are ended at once."""
        self._is_closed = True
        for viewer in self._viewers:
            viewer.end(_END)

    async def run(self) -> None:
        """Tick forever."""
        while True:
            await self._has_viewers.wait()
            await self._clock.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Take one snapshot, and send the changes to all viewers."""
        if not self._viewers:
            return
        view = self._look() if any(not viewer.only_events for viewer in self._viewers) else None
        shared, by_flow = self._advance(view) if view is not None else (b"", {})
        for viewer in tuple(self._viewers):
            message = b"" if viewer.only_events else shared
            if viewer.flow is not None:
                message += by_flow.get(viewer.flow, b"")
            viewer.push(message + self._events(viewer) or _HEARTBEAT)
            if viewer.is_over:
                self._viewers.discard(viewer)
        self._forget()

    def _snapshot(self, flow: Flow | None) -> bytes:
        view = self._look()
        current = overview(view, self._history, self._recent.spark, self.worker_id)
        message = _encode("overview", {**current, "wall_ms": view.wall_ms})
        if flow is None:
            return message
        found = find_flow(view, flow)
        if found is None:
            raise LookupError(str(flow))
        channel = self._channels.get(flow)
        if channel is None:
            channel = self._channels[flow] = FlowChannel(found, self._overrides(flow), self.elsewhere.get(flow, {}))
        past = {"flow": str(flow), "every_s": SAMPLE_EVERY_S, **self._history.of(flow)}
        return message + channel.snapshot() + _encode("history", past)

    def _advance(self, view: MirrorView) -> tuple[bytes, dict[Flow, bytes]]:
        """Return the message for all viewers, and those for viewers of single flows."""
        current = overview(view, self._history, self._recent.spark, self.worker_id)
        shared = b""
        if current != self._overview:
            self._overview = current
            shared = _encode("overview", {**current, "wall_ms": view.wall_ms})
        by_flow: dict[Flow, bytes] = {}
        for flow, channel in tuple(self._channels.items()):
            found = find_flow(view, flow)
            if found is None:  # the overview shows that; if it comes back, the changes since then follow
                continue
            point = dict(zip(COLUMNS, sample(found, view.wall_ms), strict=True))
            changed = channel.advance(found, self._overrides(flow), self.elsewhere.get(flow, {}))
            by_flow[flow] = changed + _encode("point", {"flow": str(flow), **point})
        return shared, by_flow

    def _events(self, viewer: Viewer) -> bytes:
        events = self._recent.since(viewer.last_event)
        viewer.last_event = self._recent.last_id
        if viewer.only_events and viewer.flow is not None:
            events = tuple(one for one in events if one.flow == str(viewer.flow))
        return b"".join(_encode_event(one) for one in events)

    def _forget(self) -> None:
        looked_at = {viewer.flow for viewer in self._viewers}
        self._channels = {flow: channel for flow, channel in self._channels.items() if flow in looked_at}
        if not self._viewers:
            self._has_viewers.clear()
            self._overview = {}


def _all_details(flow: FlowView, overrides: Overrides | None) -> dict[str, Any]:
    return {**details(flow), "overrides": None if overrides is None else ordered(overrides)}


def _tables(flow: FlowView, elsewhere: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {"groups": group_rows(flow), "elsewhere": elsewhere, "missing": missing_rows(flow)}


def _encode_event(event: ShownEvent) -> bytes:
    return f"id: {event.mark}\n".encode() + _encode("event", attrs.asdict(event))


def _encode(kind: str, value: object) -> bytes:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()
