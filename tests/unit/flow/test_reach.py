"""Which of a flow's clusters answers."""

from __future__ import annotations

from typing import ClassVar

import pytest

from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError, Mm2Error, Verdict
from mm2py.flow.reach import Reach
from mm2py.model.flow import Flow
from mm2py.telemetry.events import ClusterRecovered, ClusterUnreachable, StepFailed
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import ManualClock


FLOW = Flow("A", "B")


class HopelessError(Mm2Error):
    """An error nobody can do anything about."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW


AWAY = ClusterUnreachableError("B", "b:9092", "connection refused")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def events(clock: ManualClock) -> EventLog:
    return EventLog(clock)


@pytest.fixture
def reach(clock: ManualClock, events: EventLog) -> Reach:
    return Reach(FLOW, clock, events, lambda: 0.5)


def test_a_cluster_goes_away_once(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """A cluster that stays away is reported once, and once when it is back, with how long and how often."""
    for _ in range(4):
        reach.failed("look", AWAY)
        clock.advance(10)
    away = reach.view()
    reach.answered(["B"])
    reach.answered(["B"])

    assert [view.is_reachable for view in away] == [True, False]
    assert len(events.of(ClusterUnreachable)) == 1
    assert events.of(ClusterRecovered) == (ClusterRecovered(FLOW, "B", 40.0, 4),)
    assert reach.is_complete


def test_a_refusal_is_told_once_until_it_changes(reach: Reach, events: EventLog) -> None:
    """The same refusal of a step is not repeated; another one is told, and the same one after a success."""
    denied = BrokerAnsweredError("B", "CreateTopics", 29, "TOPIC_AUTHORIZATION_FAILED")
    full = BrokerAnsweredError("B", "CreateTopics", 44, "POLICY_VIOLATION")
    for error in (denied, denied, full):
        reach.failed("create", error)
    reach.answered((), "create")
    reach.failed("create", full)

    assert [event.error for event in events.of(StepFailed)] == [str(denied), str(full), str(full)]


async def test_it_insists(reach: Reach, clock: ManualClock) -> None:
    """A step is tried until it succeeds, with pauses that grow."""
    answers: list[Mm2Error | str] = [AWAY, AWAY, AWAY, "done"]

    async def attempt() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Mm2Error):
            raise answer
        return answer

    assert await reach.insist("look", ["B"], attempt) == "done"
    assert clock.monotonic() == pytest.approx(0.5 + 1 + 2)
    assert reach.is_complete


async def test_it_gives_up_where_it_must(reach: Reach) -> None:
    """An error that says the flow must stop is raised."""

    async def attempt() -> None:
        raise HopelessError

    with pytest.raises(HopelessError):
        await reach.insist("read positions", ["B"], attempt)
