"""Any node of a flow is asked for what another one runs: here one that stands by, over REST."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState
from mm2py.telemetry.events import ConnectorRestarted, CopyTaskRestarted, RestartPassedOn
from tests.support.eventually import eventually
from tests.support.flow_rest import SOURCE, FlowRest, offset_body
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node, served
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic


COUNT = 200


@attrs.frozen
class TwoNodes:
    """The node that copies everything, the one that stands by, and that one's REST."""

    flow: Flow
    topic: str
    working: RunningNode
    idle: RunningNode
    rest: FlowRest

    @property
    def worker_id(self) -> str:
        """The name of the node that copies."""
        return next(it.worker_id for it in self.working.node.control.nodes(self.flow) if it.is_this)

    async def until_known(self) -> None:
        """Wait until the idle node has heard of the working one."""

        def is_known() -> bool:
            others = [it for it in self.idle.node.control.nodes(self.flow) if not it.is_this]
            assert [(it.assigned, bool(it.tasks)) for it in others] == [((0,), True)], others
            return True

        await eventually(is_known, within_s=30, what="the idle node knows the other one")

        async def is_shown() -> bool:
            shown = await self.rest.ask("GET", f"{SOURCE}/status")
            assert [it["worker_id"] for it in shown["tasks"]] == [self.worker_id], shown
            return True

        await eventually(is_shown, within_s=10, what="its REST shows the other one's task")


@asynccontextmanager
async def two_nodes(primary: KafkaCluster, backup: KafkaCluster, prefix: str, folder: Path) -> AsyncIterator[TwoNodes]:
    """Run two nodes of a flow with one task, and copy a topic of two partitions."""
    flow, topic = Flow(prefix[-6:], "B"), f"{prefix}-t"
    keys = {
        f"{flow}.topics": f"{prefix}.*",
        "B.heartbeat.interval.ms": 300,
        "tasks.max": 1,
        "copy.epoch.ms": 1000,
        "emit.checkpoints.enabled": "false",
    }
    lines = mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=(flow.source, "B"), **keys)
    await create_topic(primary.bootstrap_servers, topic, partitions=2)
    await produce_numbers(primary.bootstrap_servers, topic, count=COUNT, partitions=2)
    async with running_node(lines, folder, "one") as one, running_node(lines, folder, "two") as two:
        await await_arrived(backup.bootstrap_servers, f"{flow.source}.{topic}", COUNT)

        def roles() -> tuple[RunningNode, ...]:
            working = [node for node in (one, two) if node.view(flow).tasks]
            idle = [node for node in (one, two) if node.view(flow).state is FlowState.STANDBY]
            return (*working, *idle) if (len(working), len(idle)) == (1, 1) else ()

        working, idle = await eventually(roles, within_s=30, what="one has the task, and the other stands by")
        async with served(idle, flow) as rest:
            found = TwoNodes(flow, topic, working, idle, rest)
            await idle.until(flow, "MirrorSourceConnector", FlowState.STANDBY)
            await found.until_known()
            yield found


async def test_a_restart_is_carried_out_by_the_node_that_has_the_task(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The node that stands by answers as the other one would, and reports nothing that it did not do."""
    async with two_nodes(primary, backup, prefix, tmp_path) as nodes:
        await nodes.rest.ask("POST", f"{SOURCE}/tasks/0/restart", wanted=204)
        await eventually(
            lambda: nodes.working.events.of(CopyTaskRestarted), within_s=20, what="the task's node restarts it"
        )
        shown = await nodes.rest.ask("POST", f"{SOURCE}/restart?includeTasks=true", wanted=202)
        await eventually(
            lambda: nodes.working.events.of(ConnectorRestarted), within_s=20, what="the node restarts the connector"
        )
        await nodes.working.running(nodes.flow)
        unknown = await nodes.rest.status("POST", f"{SOURCE}/tasks/1/restart")

        assert [it["worker_id"] for it in shown["tasks"]] == [nodes.worker_id]
        assert [len(nodes.working.events.of(kind)) for kind in (CopyTaskRestarted, ConnectorRestarted)] == [1, 1]
        assert not any(nodes.idle.events.of(kind) for kind in (CopyTaskRestarted, ConnectorRestarted))
        assert [it.nodes for it in nodes.idle.events.of(RestartPassedOn)] == [nodes.worker_id] * 2
        assert unknown == 404


async def test_topics_and_partitions_of_another_node(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """They are shown with their node, and paused, whatever the node that is asked copies."""
    async with two_nodes(primary, backup, prefix, tmp_path) as nodes:
        rest, topic = nodes.rest, nodes.topic
        shown = await rest.ask("GET", "/topics")
        partitions = await rest.ask("GET", f"/topics/{topic}/partitions")
        written = await rest.ask("GET", f"{SOURCE}/topics")
        unknown = await rest.status("PUT", f"/topics/{topic}-other/pause")
        await rest.ask("PUT", f"/topics/{topic}/pause", wanted=202)
        await eventually(
            lambda: nodes.working.view(nodes.flow).paused_topics == (topic,), within_s=20, what="the topic is paused"
        )
        await rest.ask("PUT", f"/topics/{topic}/resume", wanted=202)
        await rest.ask("PUT", f"/topics/{topic}/partitions/1/pause", wanted=202)
        await eventually(
            lambda: [it.partition for it in nodes.working.view(nodes.flow).paused_partitions] == [1],
            within_s=20,
            what="the partition is paused",
        )
        missing = await rest.status("PUT", f"/topics/{topic}/partitions/2/pause")

        assert [(it["topic"], it["partitions"], it["elsewhere"]) for it in shown["topics"]] == [
            (topic, 2, {nodes.worker_id: 2})
        ]
        assert [(it["partition"], it["node"], it["stage"]) for it in partitions] == [
            (0, nodes.worker_id, "elsewhere"),
            (1, nodes.worker_id, "elsewhere"),
        ]
        assert written == {"MirrorSourceConnector": {"topics": [f"{nodes.flow.source}.{topic}"]}}
        assert (unknown, missing) == (404, 404)


async def test_offsets_are_altered_once_all_nodes_have_stopped(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that is asked has stopped at once; the other one, which still copies, is named until it reports that."""
    async with two_nodes(primary, backup, prefix, tmp_path) as nodes:
        body = offset_body(nodes.flow.source, nodes.topic, COUNT // 4 - 1)
        epochs, may_end = nodes.working.node._in_process, asyncio.Event()
        run, epoch = epochs.run, nodes.working.view(nodes.flow).tasks[0].epoch

        async def run_on(plan: EpochPlan) -> EpochOutcome:
            outcome = await run(plan)
            await may_end.wait()
            return outcome

        monkeypatch.setattr(epochs, "run", run_on)
        await eventually(lambda: nodes.working.view(nodes.flow).tasks[0].epoch > epoch, within_s=20, what="it is held")
        await nodes.rest.ask("PUT", f"{SOURCE}/stop", wanted=204)
        await nodes.idle.until(nodes.flow, "MirrorSourceConnector", FlowState.STOPPED)
        refused = await nodes.rest.ask("PATCH", f"{SOURCE}/offsets", body, wanted=409)
        may_end.set()

        async def is_altered() -> bool:
            status = await nodes.rest.status("PATCH", f"{SOURCE}/offsets", body)
            state = nodes.working.view(nodes.flow).groups[0].state
            assert (status, state) == (200, FlowState.STOPPED)
            return True

        await eventually(is_altered, within_s=40, what="the offsets are altered")
        await nodes.rest.ask("PUT", f"{SOURCE}/resume", wanted=202)
        remote = f"{nodes.flow.source}.{nodes.topic}"
        await await_arrived(backup.bootstrap_servers, remote, COUNT + COUNT // 4)

        assert f"has not stopped yet on {nodes.worker_id}" in refused["message"]
