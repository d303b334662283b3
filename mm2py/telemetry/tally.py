"""Counts of events: by name and flow, for some also by one more field, or by amount: an event about a hundred
positions counts as a hundred positions. `telemetry.metrics` maps counts to metrics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from mm2py.model.flow import Flow
from mm2py.telemetry.events import Event
from mm2py.telemetry.journal import EventLog


#: The field by which an event's counts are separated.
_DETAILS: Mapping[str, str] = {
    "authentication_failed": "cluster",
    "cluster_unreachable": "cluster",
    "group_sync_skipped": "state",
    "record_left_out": "source",
    "topic_sync_failed": "step",
}
#: The field with an event's amount.
_AMOUNTS: Mapping[str, str] = {
    "checkpoints_written": "checkpoints",
    "group_offsets_synced": "partitions",
    "offset_syncs_written": "partitions",
    "positions_written": "partitions",
    "remote_topic_recreated": "lost",
    "remote_topic_rewound": "lost",
    "source_records_expired": "lost",
    "source_topic_recreated": "lost",
    "source_truncated": "lost",
    "topic_sync_failed": "count",
}
#: Tasks are named ``A->B/source/…``.
_TASK = re.compile(r"(.+->.+)/(?:source|checkpoints|heartbeats|nodes|membership)(?:/.*)?", re.DOTALL)


class EventTally:
    """Counts the events of a daemon, including those that were emitted before and are still kept."""

    def __init__(self, events: EventLog) -> None:
        #: By name and flow; None stands for the daemon itself.
        self.counts: Counter[tuple[str, Flow | None]] = Counter()
        self._details: Counter[tuple[str, Flow | None, str]] = Counter()
        self._amounts: Counter[tuple[str, Flow | None]] = Counter()
        for entry in events:
            self.record(entry.event)
        events.attach(self.record)

    def record(self, event: Event) -> None:
        """Count *event*."""
        name, flow = event.name, _flow_of(event)
        self.counts[name, flow] += 1
        if name in _DETAILS:
            self._details[name, flow, str(getattr(event, _DETAILS[name]))] += 1
        if name in _AMOUNTS:
            self._amounts[name, flow] += getattr(event, _AMOUNTS[name]) or 0

    def count(self, name: str, flow: Flow) -> int:
        """Return how many events of that name a flow had."""
        return self.counts[name, flow]

    def details(self, name: str, flow: Flow) -> Mapping[str, int]:
        """Return how many of them were about each detail."""
        return {detail: count for (event, of, detail), count in self._details.items() if (event, of) == (name, flow)}

    def amount(self, name: str, flow: Flow) -> int:
        """Return the total amount of a flow's events of that name."""
        return self._amounts[name, flow]


def _flow_of(event: Event) -> Flow | None:
    flow = getattr(event, "flow", None)
    if isinstance(flow, Flow):
        return flow
    task = getattr(event, "task", None)
    named = _TASK.fullmatch(task) if isinstance(task, str) else None
    return Flow.parse(named[1]) if named is not None else None
