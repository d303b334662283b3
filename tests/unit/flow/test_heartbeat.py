"""The heartbeat group: what it shows while the target refuses heartbeats."""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.flow.heartbeat import HeartbeatGroup
from mm2py.telemetry.events import StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.flow_rig import flow_context


class RefusingLog:
    """A heartbeats topic that the mirror may not write."""

    async def append(self, _records: Sequence[LogRecord]) -> None:
        raise NotAuthorizedError(
            "B", "Produce", 29, "TOPIC_AUTHORIZATION_FAILED", "heartbeats-0", "WRITE on topic heartbeats"
        )


async def test_what_to_grant_is_shown_as_it_is_logged() -> None:
    """The state of the group has the hint of the event: to whom what is missing is to be granted."""
    clock = LoopClock()
    events = EventLog(clock)
    group = HeartbeatGroup(flow_context(clock, events))
    is_written = await group._beat(RefusingLog(), is_topic_sure=True)  # type: ignore[arg-type]

    (told,) = events.of(StepFailed)
    assert not is_written
    assert "grant the mirror's principal WRITE on topic heartbeats of cluster B" in told.hint
    assert group.view().hint == told.hint
