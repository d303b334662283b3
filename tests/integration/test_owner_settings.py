"""Nodes of one flow whose files differ: the owner's counts, and a node that cannot take it has no part."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import Flow
from mm2py.model.state import FlowState
from mm2py.telemetry.events import SettingsDiffer
from tests.support.eventually import eventually
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import MARKING, mm2_properties
from tests.support.nodes import RunningNode, running_node
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic, list_topics


PARTITIONS = 16


class Files:
    """The files of a flow's nodes."""

    def __init__(self, source: KafkaCluster, target: KafkaCluster, prefix: str) -> None:
        self.flow = Flow(prefix[-6:], "B")
        self._ends = source.bootstrap_servers, target.bootstrap_servers

    def text(self, topics: str, **keys: Any) -> str:
        its = {f"{self.flow}.{key}": value for key, value in {"topics": topics, "tasks.max": 4, **keys}.items()}
        return mm2_properties(*self._ends, aliases=(self.flow.source, "B"), **its, **{"B.heartbeat.interval.ms": 300})

    def reload(self, node: RunningNode, text: str) -> None:
        """Have a node read another file, as SIGHUP does."""
        node.file.write_text(text)
        node.node.request_reload()

    async def share(self, *nodes: RunningNode) -> None:
        """Wait until all nodes have copy tasks, none of them two have."""

        def is_so() -> bool:
            tasks = [[task.task for task in node.view(self.flow).tasks] for node in nodes]
            assert sorted(task for some in tasks for task in some) == [0, 1, 2, 3], tasks
            assert all(tasks), tasks
            return True

        await eventually(is_so, within_s=20, what="the nodes share the tasks")


def _settings(node: RunningNode) -> FlowSettings:
    (runner,) = node.node._fleet.runners
    return runner.settings


async def _follow(topics: str, *nodes: RunningNode) -> None:
    def is_so() -> bool:
        found = [_settings(node).source_connector.topics.names for node in nodes]
        assert found == [(topics,)] * len(nodes), found
        return True

    await eventually(is_so, within_s=20, what=f"all nodes copy {topics}")


async def test_all_nodes_copy_what_the_owner_s_file_says(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A change comes with the owner's reload, whole on all nodes; until then the node that has it already waits."""
    files, source, target = Files(primary, backup, prefix), primary.bootstrap_servers, backup.bootstrap_servers
    old, new = f"{prefix}-old", f"{prefix}-new"
    for topic in (old, new):
        await create_topic(source, topic, partitions=PARTITIONS)
        await produce_numbers(source, topic, count=100 * PARTITIONS, partitions=PARTITIONS)
    async with running_node(files.text(old), tmp_path, "one") as one:
        await one.running(files.flow)
        async with running_node(files.text(new), tmp_path, "other") as other:
            await files.share(one, other)
            await _follow(old, one, other)
            await await_arrived(target, f"{files.flow.source}.{old}", 100 * PARTITIONS)
            (differs,) = await eventually(lambda: other.events.of(SettingsDiffer), within_s=20, what="it is told")
            topics = set(await list_topics(target))
            [node] = await eventually(
                lambda: [it for it in one.view(files.flow).nodes if it.differs], within_s=20, what="the owner knows"
            )
            files.reload(one, files.text(new))
            await _follow(new, one, other)
            await files.share(one, other)
            await await_arrived(target, f"{files.flow.source}.{new}", 100 * PARTITIONS)
            files.reload(other, files.text(old))
            await eventually(lambda: len(other.events.of(SettingsDiffer)) > 1, within_s=20, what="they differ again")
            await one.stop()
            await _follow(old, other)

    assert (differs.keys, differs.keeps_out) == (("topics",), ())
    assert f"{files.flow.source}.{new}" not in topics
    assert node.differs == ("topics",)


async def test_a_node_with_other_transforms_has_no_part(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Records of one topic are never copied in two ways; the node takes part once its file is the same."""
    files = Files(primary, backup, prefix)
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    async with (
        running_node(files.text(prefix), tmp_path, "one") as one,
        running_node(files.text(prefix, **MARKING), tmp_path, "other") as other,
    ):
        both = {FlowState.RUNNING, FlowState.STANDBY}
        states: list[FlowState] = []

        def has_settled() -> bool:
            states[:] = [node.view(files.flow).state for node in (one, other)]
            assert set(states) == both, states
            return True

        await eventually(has_settled, within_s=20, what="one stands by")
        waiting, runs = (one, other) if states[0] is FlowState.STANDBY else (other, one)
        view = waiting.view(files.flow)
        await asyncio.sleep(1)
        still = {node.view(files.flow).state for node in (one, other)}
        files.reload(waiting, runs.file.read_text())
        await files.share(one, other) if runs is one else await eventually(
            lambda: waiting.view(files.flow).state is FlowState.RUNNING, within_s=20, what="both run"
        )
        (differs,) = await eventually(lambda: waiting.events.of(SettingsDiffer), within_s=20, what="it is told")

    assert still == both
    assert "has other settings than" in view.last_error
    assert "transforms.mark.header" in view.last_error
    assert "same file" in view.hint
    assert set(differs.keeps_out) == set(MARKING) == set(differs.keys)
