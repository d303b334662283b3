"""What nodes that run the same flow know of each other, through a topic of a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.flow.nodes import FlowNodes
from mm2py.flow.reach import Reach
from mm2py.flow.task_group import FlowContext
from mm2py.model.all_nodes import flow_of_all_nodes
from mm2py.model.flow import Flow
from mm2py.model.node import Node
from mm2py.model.node_status import PARTITION, node_id_of, status_topic
from mm2py.model.restart import Restart
from mm2py.model.share import Share, SharedFlow
from mm2py.model.state import FlowState, FlowView, TaskState, TaskView
from mm2py.telemetry.events import StepFailed
from mm2py.telemetry.journal import EventLog
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.mirrored import await_arrived
from tests.support.nodes import running_node
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.records import assert_numbers
from tests.support.topics import create_topic, list_topics


ONE = Node("one", 1, "m1", "1", "http://one:8083", 1_000)
OTHER = Node("other", 2, "m2", "2", "http://other:8083", 1_000)


@attrs.define(eq=False)
class Running:
    """A node that runs the flow."""

    its: FlowNodes
    events: EventLog
    task: asyncio.Task[None]

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


@asynccontextmanager
async def running(settings: FlowSettings, *places: Node) -> AsyncIterator[list[Running]]:
    """Have nodes report, each with one copy task."""
    clock = SystemClock()
    async with asyncio.TaskGroup() as tasks:
        found = []
        for number, node in enumerate(places):
            events = EventLog(clock)
            reach = Reach(settings.flow, clock, events, lambda: 0.5)
            view = FlowView(settings.flow, FlowState.RUNNING, tasks=(TaskView(number, TaskState.RUNNING, 1, 4),))
            its = FlowNodes(
                FlowContext(settings, reach, clock, events, lambda: 0.5),
                lambda node=node: node,  # type: ignore[misc]
                lambda view=view: view,  # type: ignore[misc]
            )
            found.append(Running(its, events, tasks.create_task(its.run())))
        yield found
        for one in found:
            one.task.cancel()


def _shared(*places: Node) -> SharedFlow:
    shares = {it.id: Share(number == 0, frozenset({number})) for number, it in enumerate(places)}
    return SharedFlow(1, {it.id: it for it in places}, shares)


async def test_nodes_see_each_other_and_a_single_node_leaves_no_trace(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """The first of two nodes creates the topic; one that stops is forgotten, and at last no record is left."""
    settings = flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, alias=prefix[-6:])
    topic = status_topic(settings.flow.source)
    async with running(settings, ONE, OTHER) as (one, other):
        one.its.know(_shared(ONE))
        await asyncio.sleep(0.5)
        before = await list_topics(backup.bootstrap_servers)
        for it in (one, other):
            it.its.know(_shared(ONE, OTHER))
        seen = await eventually(
            lambda: one.its.known.others and other.its.known.others and one.its.known.others, within_s=20, what="seen"
        )
        await other.stop()
        one.its.know(_shared(ONE))
        await eventually(lambda: not one.its.known.others, within_s=20, what="the node that stopped is forgotten")
        await one.stop()
        events = [*one.events.of(StepFailed), *other.events.of(StepFailed)]
    contents = await read_topic(backup.bootstrap_servers, topic)
    last = {node_id_of(settings.flow, it.key): it.value for it in contents[PARTITION]}

    assert topic not in before
    assert [(it.node, [task.task for task in it.tasks], it.share.tasks) for it in seen.values()] == [
        (OTHER, [1], frozenset({1}))
    ]
    assert not events
    assert last == {ONE.id: None, OTHER.id: None}
    assert not any(records for number, records in contents.items() if number != PARTITION)


async def test_a_topic_of_java_s_with_records_of_its_own_is_shared(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """An existing topic is taken as it is, whatever its partitions are."""
    settings = flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, alias=prefix[-6:])
    topic = status_topic(settings.flow.source)
    await create_topic(backup.bootstrap_servers, topic, partitions=1)
    async with running(settings, ONE, OTHER) as (one, other):
        for it in (one, other):
            it.its.know(_shared(ONE, OTHER))
        await eventually(
            lambda: one.its.known.answers(OTHER.id, asyncio.get_running_loop().time()) and other.its.known.others,
            within_s=20,
            what="they see each other",
        )

    assert not one.events.of(StepFailed)


async def test_each_of_two_nodes_shows_the_whole_flow_and_one_can_be_drained(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Both list all tasks with their nodes and count all records; a topic that the owner finds is copied on the other
    node at once; after a drain the other one has all tasks. Neither restarts a task of the other one as its own.
    """
    servers, alias = primary.bootstrap_servers, prefix[-6:]
    keys = {f"{alias}->B.topics": f"{prefix}.*", "tasks.max": 4, "refresh.topics.interval.seconds": 600}
    settings = flow_settings(servers, backup.bootstrap_servers, alias=alias, **{**keys, "B.heartbeat.interval.ms": 300})
    await create_topic(servers, f"{prefix}-a", partitions=16)
    await produce_numbers(servers, f"{prefix}-a", count=800, partitions=16)
    async with (
        running_flow(settings, tmp_path, us=ONE) as first,
        running_flow(settings, tmp_path, us=OTHER) as second,
    ):

        def whole(flow: RunningFlow) -> FlowView:
            return flow_of_all_nodes(flow.runner.view())

        def is_one_picture() -> bool:
            views = [whole(flow) for flow in (first, second)]
            assert [sorted(task.task for task in view.tasks) for view in views] == [[0, 1, 2, 3]] * 2
            assert [sum(bool(task.node) for task in view.tasks) for view in views] == [2, 2]
            assert [(view.records, view.lag, view.partition_count) for view in views] == [(800, 0, 16)] * 2
            assert all(view.commits.count for view in views)
            return True

        await eventually(is_one_picture, within_s=30, what="both show the whole flow")
        rounds = [it for flow in (first, second) for it in (flow.runner.view().commits, flow.runner.view().rebalances)]
        shown = [flow.runner.view().nodes for flow in (first, second)]
        owner, other = (first, second) if shown[0][0].is_owner else (second, first)
        refused = [
            owner.runner.requests.restart_here(Restart("MirrorSourceConnector", task.task))
            for task in other.runner.view().tasks
        ]
        await create_topic(servers, f"{prefix}-b", partitions=16)
        owner.runner.requests.restart_here(Restart("MirrorSourceConnector"))
        await eventually(
            lambda: any(it.source.topic == f"{prefix}-b" for it in other.runner.view().partitions),
            within_s=40,
            what="the other node has partitions of the new topic",
        )
        owner.runner.sharing.set_drained(is_drained=True)
        await eventually(
            lambda: [task.task for task in other.runner.view().tasks] == [0, 1, 2, 3], within_s=20, what="drained"
        )
        await eventually(lambda: not owner.runner.view().partitions, within_s=10, what="it shows nothing as its own")
        left = await eventually(
            lambda: [it for it in other.runner.view().nodes if it.is_drained], within_s=15, what="it is shown"
        )

    assert [sorted(it.worker_id for it in nodes) for nodes in shown] == [["one:8083", "other:8083"]] * 2
    assert [sum(it.is_owner for it in nodes) for nodes in shown] == [1, 1]
    assert all(it.count and it.avg_ms is not None and it.ended_ms for it in rounds)
    assert [(it.assigned, it.is_this) for it in left] == [((), False)]
    assert refused == [False, False]


async def test_two_nodes_with_the_file_of_a_walkthrough_to_msk(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    One direction, Amazon's policy that keeps names, and Java MirrorMaker's file on two machines, as it was.

    Both nodes start, share the tasks, and are in what `mm2py nodes` prints at either of them.
    """
    c1, c2 = prefix[-6:], "c2"
    flow = Flow(c1, c2)
    lines = f"""
clusters = {c1}, {c2}
{c1}.bootstrap.servers = {primary.bootstrap_servers}
{c2}.bootstrap.servers = {backup.bootstrap_servers}
{flow}.enabled = true
{c2}->{c1}.enabled = false
{flow}.topics = {prefix}.*
{flow}.groups = {prefix}.*
tasks.max = 4
replication.policy.class = com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
sync.topic.acls.enabled = false
emit.heartbeats.interval.seconds = 5
refresh.topics.interval.seconds = 1
sync.group.offsets.enabled = true
listeners = http://127.0.0.1:0
"""
    await create_topic(primary.bootstrap_servers, prefix, partitions=16)
    await produce_numbers(primary.bootstrap_servers, prefix, count=800, partitions=16)
    async with running_node(lines, tmp_path, "vm1") as one, running_node(lines, tmp_path, "vm2") as two:

        def are_sharing() -> bool:
            tasks = [[task.task for task in node.view(flow).tasks] for node in (one, two)]
            assert [len(some) for some in tasks] == [2, 2], tasks
            return True

        await eventually(are_sharing, within_s=30, what="both have two tasks")
        await await_arrived(backup.bootstrap_servers, prefix, 800)

        def are_named() -> bool:
            shown = [one.node.control.nodes(flow), two.node.control.nodes(flow)]
            assert [sorted(len(it.assigned) for it in nodes if it.answers) for nodes in shown] == [[2, 2]] * 2, shown
            assert len({it.worker_id for nodes in shown for it in nodes}) == 2, shown
            return True

        await eventually(are_named, within_s=30, what="each node names both")
        for node in (one, two):
            await node.stop()

    assert_numbers(await read_numbers(backup.bootstrap_servers, prefix), 800)
