"""Which of a flow's clusters answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs
import pytest

from mm2py.connectors.reach import Reach
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError, Mm2Error
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow
from mm2py.model.state import StepView
from mm2py.telemetry.events import AuthenticationFailed, ClusterRecovered, ClusterUnreachable, StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import error_of
from mm2py.wire.fenced_writer import TakenOverError
from mm2py.wire.security.access import ClusterAccessError
from tests.support.clocks import WALL_START_MS, ManualClock
from tests.support.flow_rig import HopelessError


FLOW = Flow("A", "B")


AWAY = ClusterUnreachableError("B", "b:9092", "connection refused")


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
    assert away[1].hint == ClusterUnreachableError.hint
    assert len(events.of(ClusterUnreachable)) == 1
    assert events.of(ClusterRecovered) == (ClusterRecovered(FLOW, "B", 40.0, 4),)
    assert reach.is_complete


async def test_what_waited_in_vain_makes_no_second_absence(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """
    A connection attempt begins while no packet reaches the cluster. Another step succeeds as soon as they do; the
    attempt then ends without an answer. That is no news, but what fails from now on is.
    """

    async def fail() -> None:
        raise AWAY

    async def wait_in_vain() -> None:
        clock.advance(9)
        reach.answered(["B"])
        clock.advance(1)
        raise AWAY

    await reach.once("look", ["B"], fail)
    await reach.once("write", ["B"], wait_in_vain)
    is_back = reach.is_complete
    told = len(events.of(ClusterUnreachable))
    clock.advance(1)
    await reach.once("look", ["B"], fail)

    assert (is_back, told, len(events.of(ClusterUnreachable))) == (True, 1, 2)
    assert len(events.of(ClusterRecovered)) == 1


async def test_an_answer_on_its_way_makes_no_recovery(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """
    A broker dies. One step fails at once; the answer that another one had asked for before still arrives. That is no
    sign of life, but an answer is that takes longer, as retries got it.
    """

    async def get_it_after(pause_s: float) -> None:
        clock.advance(0.1)
        reach.failed("look", AWAY)
        clock.advance(pause_s)

    await reach.once("write", ["B"], lambda: get_it_after(0.01))
    is_back, recovered = reach.is_complete, len(events.of(ClusterRecovered))
    await reach.once("write", ["B"], lambda: get_it_after(2))

    assert (is_back, recovered) == (False, 0)
    assert reach.is_complete
    assert (len(events.of(ClusterUnreachable)), len(events.of(ClusterRecovered))) == (1, 1)


async def test_a_step_for_both_clusters_is_no_sign_of_one_that_is_away(reach: Reach) -> None:
    """A flow without partitions asks neither cluster where they begin; another step waits for the other one alone."""
    reach.failed("look", AWAY)

    await reach.once("look where partitions begin", ["A", "B"], answering("nothing to ask"))

    assert (reach.is_away("A"), reach.is_away("B")) == (False, True)


def test_failing_and_answering_by_turns_makes_no_noise(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """
    A broker takes no more connections (max.connections): what has one works, all else fails after ten seconds.

    It is reported once a minute; an absence that lasts is reported as ever.
    """
    for _ in range(6):
        reach.failed("look", AWAY)
        clock.advance(0.2)
        reach.answered(["B"])
        clock.advance(9.8)

    assert (len(events.of(ClusterUnreachable)), len(events.of(ClusterRecovered))) == (1, 1)
    reach.failed("look", AWAY)
    clock.advance(1)
    reach.failed("look", AWAY)

    assert len(events.of(ClusterUnreachable)) == 2


async def test_a_takeover_is_no_failed_step(reach: Reach, events: EventLog) -> None:
    """Each step that writes is refused from then on, which is reported once, elsewhere."""

    async def write() -> bool:
        raise TakenOverError("B", "connect-cluster-A-mm2")

    written = await reach.once("write positions", ["B"], write)

    assert (written, events.of(StepFailed)) == (None, ())
    assert reach.is_complete


def test_a_refusal_is_told_once_until_it_changes(reach: Reach, events: EventLog) -> None:
    """The same refusal of a step is not repeated; another one is reported, and the same one after a success."""
    denied = BrokerAnsweredError("B", "CreateTopics", 29, "TOPIC_AUTHORIZATION_FAILED")
    full = BrokerAnsweredError("B", "CreateTopics", 44, "POLICY_VIOLATION")
    for error in (denied, denied, full):
        reach.failed("create", error)
    reach.answered((), "create")
    reach.failed("create", full)

    assert [event.error for event in events.of(StepFailed)] == [str(denied), str(full), str(full)]


KEPT_OUT = ClusterAccessError("B", "b:9092", "the broker refused the password", "User:mm2", "correct the password")


def test_being_kept_out_is_told_once_with_what_to_mend(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """One event names flow, cluster, principal and remedy however long it lasts; its end is reported once."""
    for _ in range(500):
        reach.failed("connect", KEPT_OUT)
        clock.advance(1)
    away = reach.view()
    reach.answered(["B"])

    assert events.of(AuthenticationFailed) == (
        AuthenticationFailed(FLOW, "B", "User:mm2", "the broker refused the password", "correct the password"),
    )
    assert [view.is_reachable for view in away] == [True, False]
    assert events.of(ClusterUnreachable) == ()
    assert len(events.of(ClusterRecovered)) == 1


def test_another_cause_is_told_as_well(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """A cluster that is away first, and then does not let us in for one reason after the other, says each."""
    expired = attrs.evolve(KEPT_OUT, cause="certificate has expired", hint="renew it")
    for error in (AWAY, KEPT_OUT, KEPT_OUT, expired):
        reach.failed("connect", error)

    assert len(events.of(ClusterUnreachable)) == 1
    assert [event.error for event in events.of(AuthenticationFailed)] == [KEPT_OUT.cause, expired.cause]


def test_being_let_in_and_out_by_turns_makes_no_noise(reach: Reach, clock: ManualClock, events: EventLog) -> None:
    """
    Old connections still work while new ones are refused: that is reported once a minute at most.

    1. A password is changed at the cluster. A connection breaks, and its successor is refused.
    2. Another connection, which was not closed, is answered.
    3. The first one is refused again.
    """
    for _ in range(100):
        reach.failed("refresh topics", KEPT_OUT)
        reach.answered(["B"])
        clock.advance(1)

    assert len(events.of(AuthenticationFailed)) == len(events.of(ClusterRecovered)) == 2


def test_a_missing_permission_names_its_principal(clock: ManualClock, events: EventLog) -> None:
    """If a permission is missing, the hint names principal, operation, topic and cluster."""
    reach = Reach(FLOW, clock, events, lambda: 0.5, lambda alias: f"User:mm2-at-{alias}")
    reach.failed("create", error_of(29, "B", "CreateTopics", "A.orders: not authorized"))
    (event,) = events.of(StepFailed)

    assert event.hint.startswith("grant User:mm2-at-B CREATE on topic A.orders of cluster B; ")


def test_refused_copy_tasks_are_told_now_and_then(clock: ManualClock, events: EventLog) -> None:
    """An error that blocks copy tasks is reported once, and again as a reminder, not with every epoch."""
    reach = Reach(FLOW, clock, events, lambda: 0.5, lambda alias: f"User:mm2-at-{alias}")
    for _ in range(1200):
        reach.refused(PartitionFailure("cluster A: no", "mend it", "BrokerAccessError", cluster="A"))
        clock.advance(1)

    assert [event.principal for event in events.of(AuthenticationFailed)] == ["User:mm2-at-A"] * 2


def answering(*answers: Mm2Error | str) -> Callable[[], Awaitable[str]]:
    """Return a step that answers, or fails, in this way, time after time."""
    left = iter(answers)

    async def attempt() -> str:
        answer = next(left)
        if isinstance(answer, Mm2Error):
            raise answer
        return answer

    return attempt


async def test_it_insists(reach: Reach, clock: ManualClock) -> None:
    """A step is tried until it succeeds, with pauses that grow."""
    attempt = answering(AWAY, AWAY, AWAY, "done")

    assert await reach.insist("look", ["B"], attempt) == "done"
    assert clock.monotonic() == pytest.approx(0.5 + 1 + 2)
    assert reach.is_complete


async def test_it_gives_up_where_it_must(reach: Reach) -> None:
    """An error that says the flow must stop is raised."""

    async def attempt() -> None:
        raise HopelessError

    with pytest.raises(HopelessError):
        await reach.insist("read positions", ["B"], attempt)


async def test_each_step_remembers_its_last_success_and_its_failures(reach: Reach, clock: ManualClock) -> None:
    """How often a step failed is counted, however often that was told, and when it last succeeded is known."""
    attempt = answering("done", AWAY, AWAY)
    for _ in range(3):
        clock.advance(10)
        await reach.once("write positions", ["B"], attempt)
    reach.succeeded("write checkpoints")  # there was nothing to do

    assert reach.steps() == (
        StepView("write checkpoints", WALL_START_MS + 30_000, 0),
        StepView("write positions", WALL_START_MS + 10_000, 2),
    )


def test_a_step_says_why_it_is_refused_until_it_succeeds(reach: Reach) -> None:
    """What an event said once, hours ago, is seen for as long as it holds; having nothing to do ends it as well."""
    denied = BrokerAnsweredError("B", "Produce", 29, "TOPIC_AUTHORIZATION_FAILED")
    for _ in range(2):
        reach.failed("write positions", denied)
    refused = reach.steps()
    reach.succeeded("write positions")

    assert refused == (StepView("write positions", None, 2, str(denied), denied.hint, ("B",)),)
    assert [step.error for step in reach.steps()] == [""]


def test_what_another_node_does_from_now_on_is_refused_to_that_one(reach: Reach, events: EventLog) -> None:
    """A node that owns its flow no longer shows no refusals of an owner's steps; its own are refused again."""
    denied = BrokerAnsweredError("B", "Produce", 29, "TOPIC_AUTHORIZATION_FAILED")
    reach.failed("sync group offsets", denied)
    reach.forget_refusals()
    forgotten = reach.steps()
    reach.failed("sync group offsets", denied)

    assert [(step.failures, step.error) for step in forgotten] == [(1, "")]
    assert len(events.of(StepFailed)) == 2


async def test_only_the_limit_itself_counts_as_over_time(reach: Reach, events: EventLog) -> None:
    """A step is given up at its limit; a `TimeoutError` of its own, before that, is a bug and passes."""

    async def attempt() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await reach.once("refresh topics", ["A"], attempt, within_ms=5)
    result = await reach.once("refresh topics", ["A"], asyncio.Event().wait, within_ms=5)

    error = "given up after 0.005 s (admin.timeout.ms)"
    assert result is None
    assert [event.error for event in events.of(StepFailed)] == [error]
    assert [(step.failures, step.error) for step in reach.steps()] == [(1, error)]
