"""Several nodes run one flow: they share its tasks and take over from each other; no record is lost or repeated."""

from __future__ import annotations

import itertools
from pathlib import Path

from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.state import FlowState
from mm2py.telemetry.events import FlowShared, FlowStarted, TopicCreated
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.producing import numbered_stream
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic


PARTITIONS = 16


def _settings(source: KafkaCluster, target: KafkaCluster, prefix: str, **keys: object) -> FlowSettings:
    alias = prefix[-6:]
    ours = {f"{alias}->B.topics": f"{prefix}.*", "B.heartbeat.interval.ms": 300, "tasks.max": 4}
    return flow_settings(source.bootstrap_servers, target.bootstrap_servers, alias=alias, **{**ours, **keys})


def _tasks(*flows: RunningFlow) -> list[list[int]]:
    return [[task.task for task in flow.runner.view().tasks] for flow in flows]


def _records(*flows: RunningFlow) -> int:
    return sum(flow.runner.view().records for flow in flows)


async def _sharing(*flows: RunningFlow) -> None:
    """Wait until the flows' tasks are spread over all nodes, and each copies."""

    def is_so() -> bool:
        tasks = _tasks(*flows)
        states = {flow.runner.view().state for flow in flows}
        return (
            sorted(itertools.chain.from_iterable(tasks)) == [0, 1, 2, 3]
            and all(tasks)
            and states == {FlowState.RUNNING}
        )

    await eventually(is_so, within_s=20, what=f"{len(flows)} nodes share the tasks")


async def test_nodes_share_the_tasks_of_a_flow(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A second node gets half of the tasks while the first copies, and all of them once the first has left."""
    settings = _settings(primary, backup, prefix)
    servers = primary.bootstrap_servers
    await create_topic(servers, prefix, partitions=PARTITIONS)
    async with (
        numbered_stream(servers, prefix, count=1, partitions=PARTITIONS, rate=2_000, open_ended=True) as stream,
        running_flow(settings, tmp_path) as one,
    ):
        await eventually(lambda: _records(one) > 1_000, within_s=20, what="the first copies")
        async with running_flow(settings, tmp_path) as other:
            await _sharing(one, other)
            shared = other.events.of(FlowShared)[-1]
            before = _records(one), _records(other)
            await eventually(
                lambda: _records(one) > before[0] + 1_000 and _records(other) > before[1] + 1_000,
                within_s=20,
                what="both copy",
            )
            partitions = [len(flow.runner.view().partitions) for flow in (one, other)]
            await one.drain()
            await eventually(lambda: _tasks(other) == [[0, 1, 2, 3]], within_s=20, what="the second has all tasks")
            written = await stream.done()
            await eventually(lambda: _records(one, other) >= written, within_s=20, what="everything is copied")
            await other.drain()

    assert_numbers(await read_numbers(backup.bootstrap_servers, f"{settings.flow.source}.{prefix}"), written)
    assert shared.nodes == 2
    assert sum(partitions) == PARTITIONS
    assert [len(flow.events.of(FlowStarted)) for flow in (one, other)] == [1, 1]
    assert not other.events.of(TopicCreated)
