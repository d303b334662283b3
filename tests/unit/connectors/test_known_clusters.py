"""What the flows of a node know of a cluster that several of them use."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from mm2py.connectors.known_clusters import KnownClusters
from mm2py.connectors.reach import Reach
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.flow import Flow
from mm2py.model.state import ClusterView
from mm2py.telemetry.events import ClusterRecovered, ClusterUnreachable
from mm2py.telemetry.journal import EventLog
from mm2py.wire.security.access import ClusterAccessError
from tests.support.clocks import ManualClock


FlowMaker = Callable[..., Reach]

_AWAY = ClusterUnreachableError("B", "b:9092", "connection refused")
_KEPT_OUT = ClusterAccessError("B", "b:9092", "the broker refused the password", "User:ann", "correct the password")
_COMING_AND_GOING: tuple[type[ClusterUnreachable], type[ClusterRecovered]] = (ClusterUnreachable, ClusterRecovered)
_AS_ANN = Security("SASL_SSL", (("sasl.username", "ann"),))
_AS_BOB = Security("SASL_SSL", (("sasl.username", "bob"),))


@pytest.fixture
def flow_to_b(clock: ManualClock, events: EventLog) -> FlowMaker:
    """Return what makes flows of one node to cluster B, each from a cluster of its own."""
    known = KnownClusters()

    def make(source: str, security: Security = _AS_ANN, *, servers: str = "b:9092") -> Reach:
        ends = (ClusterEndpoint(source, (f"{source}:9092",)), ClusterEndpoint("B", (servers,), security=security))
        return Reach(Flow(source, "B"), clock, events, lambda: 0.5, known=known.known_to(ends))

    return make


async def ask(flow: Reach, clock: ManualClock, error: Mm2Error | None = None) -> ClusterView:
    """Have the flow ask B, which takes a second; return what it shows then."""

    async def attempt() -> None:
        clock.advance(1)
        if error is not None:
            raise error

    await flow.once("look", ["B"], attempt)
    return flow.view()[1]


async def test_what_one_flow_learns_all_of_them_show(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    """Both ways: that a cluster is away, and that it is back; none waits until it has asked itself."""
    one, other = flow_to_b("A"), flow_to_b("C")
    for flow in (one, other):
        await ask(flow, clock)
    away = await ask(one, clock, _AWAY)
    told = other.view()[1]
    is_away = other.is_away("B")
    await ask(other, clock)

    assert (away.is_reachable, told, is_away) == (False, away, True)
    assert one.view()[1] == other.view()[1] == ClusterView("B", is_reachable=True)


async def test_each_flow_reports_what_it_has_noticed_itself(
    flow_to_b: FlowMaker, clock: ManualClock, events: EventLog
) -> None:
    """The log has one absence, and its end, of each flow that was kept from something."""
    one, other, third = (flow_to_b(source) for source in "ACD")
    await ask(third, clock)
    for error in (_AWAY, None):
        for flow in (one, other):
            await ask(flow, clock, error)

    assert [event.flow for event in events.of(ClusterUnreachable)] == [Flow("A", "B"), Flow("C", "B")]
    assert [event.flow for event in events.of(ClusterRecovered)] == [Flow("A", "B"), Flow("C", "B")]


async def test_a_refused_login_is_about_those_that_log_in_so(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    """A flow with overrides of its own is let in; that the cluster does not answer any more is about all."""
    ann, too, bob = flow_to_b("A"), flow_to_b("C"), flow_to_b("D", _AS_BOB)
    for flow in (too, bob):
        await ask(flow, clock)
    await ask(ann, clock, _KEPT_OUT)
    refused = [flow.view()[1].is_reachable for flow in (ann, too, bob)]
    await ask(bob, clock)
    still = [flow.view()[1].error for flow in (ann, too, bob)]
    await ask(bob, clock, _AWAY)
    away = [flow.view()[1].error for flow in (ann, too, bob)]

    assert refused == [False, False, True]
    assert still == [str(_KEPT_OUT), str(_KEPT_OUT), ""]
    assert away == [str(_AWAY)] * 3


async def test_a_login_that_is_refused_is_an_answer(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    ann, bob = flow_to_b("A"), flow_to_b("C", _AS_BOB)
    await ask(bob, clock, _AWAY)
    await ask(ann, clock, _KEPT_OUT)

    assert [flow.view()[1].error for flow in (ann, bob)] == [str(_KEPT_OUT), ""]


async def test_other_addresses_are_another_matter(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    one, other = flow_to_b("A"), flow_to_b("C", servers="elsewhere:9092")
    await ask(other, clock)
    await ask(one, clock, _AWAY)

    assert [flow.view()[1].is_reachable for flow in (one, other)] == [False, True]


async def test_a_flow_without_answers_is_away_alone_while_others_have_some(
    flow_to_b: FlowMaker, clock: ManualClock
) -> None:
    """
    The brokers take no more connections: a flow that has one works, another one gets none, time after time.

    It is not shown as well by the answers of the other flow, nor the other flow as away, which it is not.
    """
    full, working = flow_to_b("A"), flow_to_b("C")
    await ask(full, clock, _AWAY)
    await ask(working, clock)
    shown = []
    for _ in range(3):
        await ask(full, clock, _AWAY)
        shown.append([flow.view()[1].is_reachable for flow in (full, working)])
        await ask(working, clock)
        shown.append([flow.view()[1].is_reachable for flow in (full, working)])
    await ask(full, clock)

    assert shown == [[False, True]] * 6
    assert full.is_complete
    assert full.view()[1].is_reachable


async def test_what_waited_in_vain_is_no_absence_for_others(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    """An attempt begins while the cluster is away, and ends without an answer after another flow has got one."""
    one, other = flow_to_b("A"), flow_to_b("C")
    await ask(one, clock, _AWAY)

    async def wait_in_vain() -> None:
        await ask(one, clock)
        clock.advance(1)
        raise _AWAY

    await other.once("connect", ["B"], wait_in_vain)

    assert [flow.view()[1].is_reachable for flow in (one, other)] == [True, True]


async def test_a_flow_that_waits_in_vain_again_and_again_is_away(
    flow_to_b: FlowMaker, clock: ManualClock, events: EventLog
) -> None:
    """
    Each attempt of one flow takes half a minute, in which another one loses the cluster and finds it again.

    The first failure may be of what was away then. The second in a row is the flow's own, and lasts until its answer.
    """
    slow, quick = flow_to_b("A"), flow_to_b("C")
    for flow in (slow, quick):
        await ask(flow, clock)

    async def wait_in_vain() -> None:
        clock.advance(10)
        await ask(quick, clock, _AWAY)
        clock.advance(10)
        await ask(quick, clock)
        clock.advance(10)
        raise _AWAY

    shown = []
    for _ in range(3):
        await slow.once("connect", ["B"], wait_in_vain)
        shown.append([flow.view()[1].is_reachable for flow in (slow, quick)])
    await ask(slow, clock)
    shown.append([flow.view()[1].is_reachable for flow in (slow, quick)])
    of_slow = [len([it for it in events.of(kind) if it.flow == Flow("A", "B")]) for kind in _COMING_AND_GOING]

    assert shown == [[True, True], [False, True], [False, True], [True, True]]
    assert of_slow == [1, 1]


async def test_all_that_waited_for_one_absence_waited_in_vain(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    """Several steps of a flow are under way while its cluster is away, and time out after it is back."""
    one, other = flow_to_b("A"), flow_to_b("C")
    for flow in (one, other):
        await ask(flow, clock)

    async def wait_in_vain(steps: int) -> None:
        if steps:
            await one.once(f"step {steps}", ["B"], lambda: wait_in_vain(steps - 1))
        else:
            await ask(other, clock, _AWAY)
            await ask(other, clock)
        clock.advance(1)
        raise _AWAY

    await one.once("connect", ["B"], lambda: wait_in_vain(3))

    assert one.is_complete


async def test_a_flow_shows_only_clusters_that_it_needs(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    """One that emits heartbeats alone never asks its source; and nothing is known of what was never asked."""
    one, idle = flow_to_b("A"), flow_to_b("C")
    await ask(one, clock, _AWAY)

    assert one.view()[0] == ClusterView("A", is_reachable=True, is_asked=False)
    assert idle.view()[1] == ClusterView("B", is_reachable=True, is_asked=False)
    assert idle.is_complete


async def test_what_a_flow_knew_goes_with_it(flow_to_b: FlowMaker, clock: ManualClock) -> None:
    """No flow shows for ever what one has found that asks no more."""
    one, other = flow_to_b("A"), flow_to_b("C")
    await ask(other, clock)
    await ask(one, clock, attrs.evolve(_AWAY))
    one.close()

    assert not other.is_away("B")
