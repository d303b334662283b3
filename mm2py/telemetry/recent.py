"""Recent events, in words: for the status page and for following a daemon from a terminal. `EventLog` keeps each
event, and on a busy node that is mostly epochs. Here only events worth reading are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from mm2py.clock import Clock
from mm2py.errors import shortened
from mm2py.telemetry.events import Event, FlowSummary, Level, SparkEnded, SparkStarted
from mm2py.telemetry.events.base import paragraphs
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.wording import worded


#: Number of events kept.
RECENT_EVENTS = 500
#: Events of one name and flow that follow each other within so many seconds are a *run*; of each run only the last ones
#: are kept, so that 1500 new topics do not displace everything else.
_RUN_WITHIN_MS = 60_000
_KEPT_OF_RUN = 20
#: Tracebacks can be long; the log has all of them.
_LONGEST_TEXT = 4_000
_LEAST = Level.INFO


@attrs.frozen
class ShownEvent:
    """One event for display. `id` counts since the daemon started; `flow` is empty if it concerns none. `mark`
    identifies it across restarts: marks of an earlier daemon are not recognised. `about` explains events of that name,
    `text` has the facts of this one. It is the `nth` of its `run`, which is named after its first event, at `since_ms`.
    """

    id: int
    mark: str
    wall_ms: int
    name: str
    level: str
    flow: str
    text: str
    about: str
    run: str
    nth: int
    since_ms: int


@attrs.define
class _Run:
    """Events of one name and flow that follow each other closely; `ids` are those of the last ones."""

    mark: str
    since_ms: int
    last_ms: int
    length: int = 0
    ids: deque[int] = attrs.field(factory=deque)


class RecentEvents:
    """
    A ring of the last events at INFO or above, oldest first, fed by an `EventLog`. Used from the event loop's thread.

    `spark` is the last event of Spark's life, None before it first started.
    """

    def __init__(self, events: EventLog, clock: Clock, *, keep: int = RECENT_EVENTS) -> None:
        self.spark: SparkStarted | SparkEnded | None = None
        self._clock = clock
        self._ring: deque[ShownEvent] = deque(maxlen=keep)
        self._runs: dict[tuple[str, str], _Run] = {}
        self._last_id = 0
        self._life = f"{clock.wall_ms():x}"
        for entry in events:
            self._keep(entry.event, entry.wall_ms)
        events.attach(self.record)

    @property
    def last_id(self) -> int:
        """The newest event's id, 0 before the first."""
        return self._last_id

    def id_of(self, mark: str) -> int:
        """Return the id of the event with that *mark*, 0 if it is not one of this daemon's."""
        life, _, number = mark.partition(".")
        is_ours = life == self._life and number.isascii() and number.isdigit()
        return min(int(number), self._last_id) if is_ours else 0

    def record(self, event: Event) -> None:
        """Keep *event* as having happened now."""
        self._keep(event, self._clock.wall_ms())

    def since(self, last_id: int) -> tuple[ShownEvent, ...]:
        """Return the events after *last_id*; all for 0."""
        if last_id >= self._last_id:
            return ()
        return tuple(event for event in self._ring if event.id > last_id)

    def __iter__(self) -> Iterator[ShownEvent]:
        return iter(tuple(self._ring))

    def _keep(self, event: Event, wall_ms: int) -> None:
        if isinstance(event, SparkStarted | SparkEnded):
            self.spark = event
        # Regular summaries of all flows would displace everything else, and their figures are in every view.
        if event.severity.value < _LEAST.value or isinstance(event, FlowSummary):
            return
        self._last_id += 1
        facts = event.fields()
        flow = _flow_of(facts)
        facts.pop("flow", None)
        run = self._run(event.name, flow, wall_ms)
        self._ring.append(
            ShownEvent(
                id=self._last_id,
                mark=f"{self._life}.{self._last_id}",
                wall_ms=wall_ms,
                name=event.name,
                level=event.severity.name.lower(),
                flow=flow,
                text=shortened(worded(facts), _LONGEST_TEXT),
                run=run.mark,
                nth=run.length,
                since_ms=run.since_ms,
                about=paragraphs(type(event))[0],
            )
        )

    def _run(self, name: str, flow: str, wall_ms: int) -> _Run:
        """Add the newest event to its run, and forget the oldest one of a long run."""
        run = self._runs.get((name, flow))
        if run is None or wall_ms - run.last_ms > _RUN_WITHIN_MS:
            # Names and flows are few, but flows come and go with the file.
            self._runs = {key: one for key, one in self._runs.items() if wall_ms - one.last_ms <= _RUN_WITHIN_MS}
            run = self._runs[name, flow] = _Run(f"{self._life}.{self._last_id}", wall_ms, wall_ms)
        run.length, run.last_ms = run.length + 1, wall_ms
        run.ids.append(self._last_id)
        if len(run.ids) > _KEPT_OF_RUN:
            first = run.ids.popleft()
            self._ring = deque((one for one in self._ring if one.id != first), maxlen=self._ring.maxlen)
        return run


def _flow_of(facts: dict[str, object]) -> str:
    """Return the flow of an event: loops are named after theirs, ``A->B/source/3``."""
    flow = facts.get("flow")
    if flow is None and isinstance(task := facts.get("task"), str) and "->" in task:
        flow = task.split("/", 1)[0]
    return str(flow or "")
