"""A node that stands by is asked, over REST, for what another one of its flow runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState
from tests.support.eventually import eventually
from tests.support.flow_rest import SOURCE, offset_body
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import RunningNode, running_node, served
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic


COUNT = 200


@asynccontextmanager
async def two_nodes(
    primary: KafkaCluster, backup: KafkaCluster, flow: Flow, topic: str, folder: Path
) -> AsyncIterator[tuple[RunningNode, RunningNode]]:
    """Run two nodes of a flow with one task, and copy a topic; first is the node that copies, then the idle one."""
    keys = {
        f"{flow}.topics": topic,
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

        def is_known() -> bool:
            others = [it for it in idle.node.control.nodes(flow) if not it.is_this]
            assert [(it.assigned, bool(it.tasks)) for it in others] == [((0,), True)], others
            return True

        await eventually(is_known, within_s=30, what="the idle node knows the other one")
        yield working, idle


async def test_offsets_are_altered_once_all_nodes_have_stopped(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that is asked has stopped at once; the other one, which still copies, is named until it reports that."""
    flow = Flow(prefix[-6:], "B")
    async with two_nodes(primary, backup, flow, prefix, tmp_path) as (working, idle), served(idle, flow) as rest:
        body = offset_body(flow.source, prefix, COUNT // 4 - 1)
        epochs, may_end = working.node._in_process, asyncio.Event()
        run, epoch = epochs.run, working.view(flow).tasks[0].epoch
        name = next(it.worker_id for it in working.node.control.nodes(flow) if it.is_this)

        async def run_on(plan: EpochPlan) -> EpochOutcome:
            outcome = await run(plan)
            await may_end.wait()
            return outcome

        monkeypatch.setattr(epochs, "run", run_on)
        await eventually(lambda: working.view(flow).tasks[0].epoch > epoch, within_s=20, what="it is held")
        await rest.ask("PUT", f"{SOURCE}/stop", wanted=204)
        await idle.until(flow, "MirrorSourceConnector", FlowState.STOPPED)
        refused = await rest.ask("PATCH", f"{SOURCE}/offsets", body, wanted=409)
        may_end.set()

        async def is_altered() -> bool:
            status = await rest.status("PATCH", f"{SOURCE}/offsets", body)
            assert (status, working.view(flow).groups[0].state) == (200, FlowState.STOPPED)
            return True

        await eventually(is_altered, within_s=40, what="the offsets are altered")
        await rest.ask("PUT", f"{SOURCE}/resume", wanted=202)
        await await_arrived(backup.bootstrap_servers, f"{flow.source}.{prefix}", COUNT + COUNT // 4)

    assert f"has not stopped yet on {name}" in refused["message"]
