"""What nodes that run the same flow know of each other, over brokers that keep their records."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.core.herder.overrides import SOURCE
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.node_status import NodeStatus, encode_status, node_id_of
from mm2py.model.herder.share import slot_of, whole_share
from mm2py.model.state import (
    FlowState,
    GroupView,
    NodeView,
    TaskState,
)
from mm2py.telemetry.events import InternalTopicExpires, NodeAnswersAgain, NodeSilent, RecordPassedOver, StepFailed
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import TopicLog
from tests.support.clocks import LoopClock, now
from tests.support.fake_brokers import CREATE_TOPICS, FETCH, PRODUCE, FakeBrokers, FakePartition, FakeTopic
from tests.support.flow_nodes import BUSY, ONE, OTHER, TOPIC, flow_view, plant, running, shared, together, use_brokers
from tests.support.flow_rig import FLOW, HopelessError


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    """Return the target of all nodes of a test."""
    return use_brokers(monkeypatch)


async def test_a_single_node_sends_nothing(brokers: FakeBrokers) -> None:
    """Alone in the group, or without one, no connection is opened and no topic created."""
    async with running(ONE) as (one,):
        await asyncio.sleep(60)
        one.its.know(shared(ONE))
        await asyncio.sleep(60)

    assert not brokers.requests
    assert not brokers.connections


async def test_a_node_is_shown_with_the_others(brokers: FakeBrokers) -> None:
    """Alone, nothing is shown unless it is asked for; a member that has just joined has some seconds to report."""
    async with running(ONE) as (one,):
        alone, asked = one.its.views(flow_view()), one.its.all_views(flow_view())
        one.its.know(shared(ONE, OTHER))
        (this, joining) = one.its.views(flow_view())
        await asyncio.sleep(35)
        (_, missing) = one.its.views(flow_view())
        one.its.know(None)
        standing_by = one.its.all_views(attrs.evolve(flow_view(), state=FlowState.STANDBY))

    assert alone == ()
    assert [(it.is_this, it.is_owner, it.assigned) for it in asked] == [(True, True, (0,))]
    assert (this.is_this, this.is_owner, this.assigned, this.tasks[0].task) == (True, True, (0,), 0)
    assert (joining.worker_id, joining.answers, joining.assigned, joining.heard_ms) == ("other:8083", True, (1,), None)
    assert not missing.answers
    assert not standing_by[0].is_owner
    assert brokers.requests


async def test_a_topic_in_which_statuses_would_expire_is_reported(brokers: FakeBrokers) -> None:
    """Somebody created it without compaction, which Connect refuses."""
    brokers.topics[TOPIC] = FakeTopic([FakePartition()], configs={"cleanup.policy": "delete"})
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)

    assert [(it.topic, it.policy) for it in one.events.of(InternalTopicExpires)] == [(TOPIC, "delete")]


async def test_each_node_knows_what_the_others_run(brokers: FakeBrokers) -> None:
    """The topic is created, and after one interval each has the other's share, tasks, differing settings and rates."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        seen, loads = one.its.known.others, one.its.loads()
        back = other.its.known.others[ONE.id]

    (status,) = seen.values()
    assert (status.node, status.share.tasks, status.generation) == (OTHER, frozenset({1}), 3)
    assert (status.state, status.partitions, status.differs) == (FlowState.RUNNING, 1, ("tasks.max",))
    assert [(task.task, task.state) for task in status.tasks] == [(0, TaskState.RUNNING)]
    assert back.share.is_owner
    assert loads == {slot_of(BUSY): 14_000.0}
    assert len(brokers.topics[TOPIC].partitions) == 5


async def test_each_node_knows_since_when_the_others_have_what_they_run(brokers: FakeBrokers) -> None:
    """It begins again with other tasks, not with another assignment; what is reported late is as old as it is."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        await asyncio.sleep(60)
        (_, first) = other.its.views(flow_view())
        for node in (one, other):
            node.its.know(shared(ONE, OTHER, generation=4))
        await asyncio.sleep(60)
        (mine, second) = other.its.views(flow_view())
        for node in (one, other):
            node.its.know(shared(OTHER, ONE, owner=OTHER, generation=5))
        (_, unreported) = other.its.views(flow_view())
        await asyncio.sleep(30)
        (owner, third) = other.its.views(flow_view())

    def in_s(view: NodeView) -> tuple[int | None, ...]:
        return tuple(None if it is None else round(it / 1000) for it in (view.tasks_for_ms, view.owner_for_ms))

    since = in_s(first)[0]
    assert since is not None
    assert in_s(second) == (since + 60, since + 60)
    assert in_s(mine) == (since + 60, None)
    assert in_s(unreported) == (None, None)
    assert (in_s(third), in_s(owner)) == ((30, None), (30, 30))


async def test_following_costs_two_requests_in_an_interval(brokers: FakeBrokers) -> None:
    """A round writes once and fetches once, and asks for nothing else; if nothing changes there are half as many."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        await asyncio.sleep(20)
        sent = []
        for is_busy in (False, True):
            before = len(brokers.requests)
            for turn in range(10):
                one.revision = turn * is_busy
                await asyncio.sleep(5)
            sent.append([request.API_KEY for _, request in brokers.requests[before:]])

    idle, busy = sent
    assert (idle.count(PRODUCE), idle.count(FETCH), len(idle)) == (10, 10, 20)
    assert 36 <= len(busy) <= 42
    assert set(busy) == {PRODUCE, FETCH}


async def test_a_change_is_written_at_once(brokers: FakeBrokers) -> None:
    """A new assignment reaches the others before the interval is over."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        written = len(brokers.requests_of(PRODUCE))
        one.its.know(attrs.evolve(shared(ONE, OTHER), generation=4))
        await asyncio.sleep(1.1)
        assert len(brokers.requests_of(PRODUCE)) > written
        await asyncio.sleep(5)

        assert other.its.known.others[ONE.id].generation == 4


async def test_a_node_that_vanishes_is_reported_and_stays_known_for_an_hour(brokers: FakeBrokers) -> None:
    """It no longer answers after three intervals; its record is removed after an hour, and then nothing is sent."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        other.its.hand_over()  # as if it were killed: nothing is removed
        await other.stop()
        one.its.know(shared(ONE))
        assert one.its.known.answers(OTHER.id, now())
        await asyncio.sleep(45)
        silent, heard_s = one.its.known.others, one.its.known.last_heard_s(OTHER.id, now())
        assert not one.its.known.answers(OTHER.id, now())
        assert one.its.loads() == {slot_of(BUSY): 7_000.0}
        await asyncio.sleep(3_600)
        sent = len(brokers.requests)
        await asyncio.sleep(60)

        assert list(silent) == [OTHER.id]
        assert heard_s is not None
        assert 30 < heard_s < 60
        assert [(event.node, event.rest) for event in one.events.of(NodeSilent)] == [(str(OTHER), OTHER.rest)]
        assert not one.its.known.others
        assert len(brokers.requests) == sent
    assert await _kept(brokers) == {}


async def test_a_node_that_stops_removes_its_record(brokers: FakeBrokers) -> None:
    """The others forget it at the next read, without an event; a node that is alone then removes its own."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        await other.stop()
        one.its.know(shared(ONE))
        await asyncio.sleep(12)

        assert not one.its.known.others
        assert not one.events.of(NodeSilent)
        assert await _kept(brokers) == {}


@pytest.mark.parametrize("known_by", [{"rest": "http://other:8083"}, {"rest": "", "instance": "node-2"}])
async def test_a_successor_replaces_a_killed_node(brokers: FakeBrokers, known_by: dict[str, str]) -> None:
    """At the same address, or with its `group.instance.id`: the record of the process before is removed as soon as the
    new one reports.
    """
    former = attrs.evolve(OTHER, **known_by)  # type: ignore[arg-type]
    successor = attrs.evolve(former, pid=3, started_ms=2_000)
    async with running(ONE, former, successor) as (one, other, later):
        await together(one, other)
        other.its.hand_over()
        await other.stop()
        for it in (one, later):
            it.its.know(shared(ONE, successor))
        await asyncio.sleep(14)

        assert list(one.its.known.others) == [successor.id]
        assert set(await _kept(brokers)) == {ONE.id, successor.id}


async def test_a_lost_node_does_not_hide_behind_one_with_its_address(brokers: FakeBrokers) -> None:
    """Machines with the default `listeners`, or with one host name: each is shown, and the lost one is reported."""
    one, other = (attrs.evolve(it, rest="localhost:8080") for it in (ONE, OTHER))
    twin = attrs.evolve(other, machine="m3", started_ms=LoopClock().wall_ms() - 60_000)
    async with running(one, other, twin) as (here, lost, there):
        for it in (here, lost, there):
            it.its.know(shared(one, other, twin))
        await asyncio.sleep(7)
        together = here.its.views(flow_view())
        lost.its.hand_over()
        await lost.stop()
        for it in (here, there):
            it.its.know(shared(one, twin))
        await asyncio.sleep(45)
        left = here.its.views(flow_view())

    assert {it.id: it.worker_id for it in together} == {
        one.id: "localhost:8080 on one",
        other.id: other.id,
        twin.id: twin.id,
    }
    assert {it.id: (it.answers, it.is_member) for it in left} == {
        one.id: (True, True),
        other.id: (False, False),
        twin.id: (True, True),
    }
    assert here.events.of(NodeSilent)


async def test_a_node_answers_again(brokers: FakeBrokers) -> None:
    """A node that was frozen is reported once as silent, and once as back."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        other.its.hand_over()
        await other.stop()
        await asyncio.sleep(45)
        await plant(brokers, OTHER.id, encode_status(FLOW, NodeStatus(OTHER, 1)))
        await asyncio.sleep(11)

        assert one.its.known.answers(OTHER.id, now())
        assert (len(one.events.of(NodeSilent)), len(one.events.of(NodeAnswersAgain))) == (1, 1)


async def test_the_owner_s_topics_and_later_overrides_are_followed(brokers: FakeBrokers) -> None:
    """A node that knows other topics than the owner is asked to look again, and to read overrides that it misses."""
    async with running(ONE, OTHER) as (one, other):
        one.mirrored, one.revision = (BUSY,), 4
        await together(one, other)
        mark = one.its.own.topics_mark
        followed = list(other.asked)
        other.mirrored, other.revision = one.mirrored, one.revision
        await asyncio.sleep(120)

        assert followed == ["topics", "overrides"]
        assert other.its.own.topics_mark == one.its.own.topics_mark == mark
        assert other.asked == followed
        assert not one.asked


async def test_the_owner_looks_once_for_each_change_that_another_node_finds(brokers: FakeBrokers) -> None:
    """
    A remote topic of which the owner copies nothing is deleted at the target; only the owner creates it again.

    It looks within ten seconds, and not again while the two see different topics; but for the next deletion it does.
    """
    everything, left = (BUSY, TopicPartition("t", 0)), (BUSY,)
    found = []
    async with running(ONE, OTHER) as (one, other):
        one.mirrored = other.mirrored = everything
        await together(one, other)
        for seen_s in (15, 1_000):
            other.mirrored = left
            await asyncio.sleep(seen_s)
            found.append(list(one.asked))
            other.mirrored = everything
            await asyncio.sleep(15)

    assert found == [["topics"], ["topics", "topics"]]
    assert one.asked == found[-1]


async def test_a_failure_of_what_is_asked_ends_nothing(brokers: FakeBrokers) -> None:
    """Even an error that would stop a flow is only reported, and the node goes on reporting."""

    async with running(ONE, OTHER) as (one, other):
        one.revision, other.failure = 4, HopelessError()
        await together(one, other)
        await asyncio.sleep(60)

        refused = [step.error for step in other.its._context.reach.steps() if step.error]
        other.revision = 4  # read in another way, as at a restart of the flow
        await asyncio.sleep(60)

        assert refused == [event.error for event in other.events.of(StepFailed)] == ["no"]
        assert not any(step.error for step in other.its._context.reach.steps())
        assert one.its.known.answers(OTHER.id, now())
        assert brokers.requests


async def test_what_the_owner_has_is_asked_for_again_while_it_is_missing(brokers: FakeBrokers) -> None:
    """A refresh that came too early is repeated, but not in each interval."""
    async with running(ONE, OTHER) as (one, other):
        one.mirrored = (BUSY,)
        await together(one, other)
        await asyncio.sleep(120)

        assert other.asked == ["topics"] * len(other.asked)
        assert 2 <= len(other.asked) <= 3


async def test_a_topic_that_cannot_be_created_is_reported_once_and_tried_again(brokers: FakeBrokers) -> None:
    """Without the permission there is one event with the grant; once it is there, all goes on."""

    def refuse(_node: int, request: object) -> object:
        return request.RESPONSE_TYPE(0, [(TOPIC, 29, None)])  # type: ignore[attr-defined]

    brokers.script(CREATE_TOPICS, *[refuse] * 4)
    async with running(ONE) as (one,):
        one.its.know(shared(ONE, OTHER))
        await asyncio.sleep(200)
        (failed,) = one.events.of(StepFailed)
        await asyncio.sleep(60)

        assert "CREATE" in failed.hint
        assert set(await _kept(brokers)) == {ONE.id}


async def test_a_topic_that_brokers_learn_of_late_is_no_event(brokers: FakeBrokers) -> None:
    """All nodes create it at once; the brokers say that it is there, and for seconds do not know it."""

    def exists(_node: int, request: object) -> object:
        return request.RESPONSE_TYPE(0, [(TOPIC, 36, None)])  # type: ignore[attr-defined]

    brokers.script(CREATE_TOPICS, exists, exists)
    async with running(ONE) as (one,):
        one.its.know(shared(ONE, OTHER))
        await asyncio.sleep(40)

        assert not one.events.of(StepFailed)
        assert set(await _kept(brokers)) == {ONE.id}


async def test_a_topic_that_vanishes_is_created_again(brokers: FakeBrokers) -> None:
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        del brokers.topics[TOPIC]
        await asyncio.sleep(120)

        assert set(await _kept(brokers)) == {ONE.id, OTHER.id}
        assert one.its.known.answers(OTHER.id, now())


async def test_a_record_that_is_no_status_is_reported_once(brokers: FakeBrokers) -> None:
    """A newer version writes every few seconds what this one cannot read; the others are read."""
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        for _ in range(3):
            await plant(brokers, "newer", b'{"version":2}')
            await plant(brokers, OTHER.id, encode_status(FLOW, NodeStatus(OTHER, 1, share=whole_share(2))))
            await asyncio.sleep(5)

        assert [event.problem for event in one.events.of(RecordPassedOver)] == [
            "its version is 2, this program knows 1"
        ]
        assert list(one.its.known.others) == [OTHER.id]


async def _kept(brokers: FakeBrokers) -> dict[str, bytes]:
    """Return the records that compaction would keep, by node."""
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:  # type: ignore[arg-type]
        records = await TopicLog(cluster, TOPIC).read_all()
    last = {node_id_of(FLOW, record.key) or "": record.value for record in records}
    return {node_id: value for node_id, value in last.items() if value is not None}


# Whether all of them have stopped a connector.


async def test_nodes_that_have_not_reported_a_stop_are_named(brokers: FakeBrokers) -> None:
    """
    A report counts if it was written after the stop, under the overrides of that stop.

    a. Other nodes run the connector. b. One reports a stop of earlier overrides, and may be about to resume. c. It
    reports this one. d. The connector was resumed and stopped again meanwhile: the report is too old.
    """
    async with running(ONE, OTHER) as (one, other):
        await together(one, other)
        begun = now()
        running_there = one.its.not_stopped(SOURCE, 0, begun)
        stopped = attrs.evolve(flow_view(), groups=(GroupView(SOURCE, FlowState.STOPPED),))
        other.its.own._view = lambda: stopped
        await asyncio.sleep(21)
        of_earlier = one.its.not_stopped(SOURCE, 1, begun)
        other.revision = 1
        await asyncio.sleep(21)
        later = now()
        found = one.its.not_stopped(SOURCE, 1, begun), one.its.not_stopped(SOURCE, 1, later)
        one.its.know(shared(ONE))
        left = one.its.not_stopped(SOURCE, 2, later)

    assert running_there == of_earlier == ("other:8083",)
    assert found == ((), ("other:8083",))
    assert left == ()
