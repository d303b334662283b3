"""Overrides of a running flow on real clusters: pauses, stops, restarts, rate limits. Epochs run in the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from mm2py.core.control import overrides as verbs
from mm2py.core.control.overrides import CHECKPOINT, SOURCE
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.overrides import NO_OVERRIDES, Overrides, RateLimit
from mm2py.model.restart import Restart
from mm2py.model.state import FlowState, PartitionStage
from mm2py.telemetry.events import (
    ConnectorPaused,
    CopyTaskLost,
    FlowDrained,
    GroupFailed,
    PositionsRead,
    ResumedExactly,
)
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.mirrored import await_arrived
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic, end_offsets


_PARTITIONS = 3
#: What is still on its way when an order comes is there after this; nothing more may come then.
_QUIET_S = 1.5
_SECONDS = 15.0


async def _there(cluster: KafkaCluster, topic: str) -> int:
    return sum((await end_offsets(cluster.bootstrap_servers, topic)).values())


async def _arrived(cluster: KafkaCluster, topic: str, count: int) -> None:
    async def is_there() -> bool:
        return await _there(cluster, topic) >= count

    await eventually(is_there, within_s=60, what=f"{count} records in {topic}")


async def _state(flow: RunningFlow, state: FlowState, connector: str = SOURCE) -> None:
    def is_so() -> bool:
        return {group.connector: group.state for group in flow.runner.view().groups}[connector] is state

    await eventually(is_so, within_s=15, what=f"{connector} is {state.name}")


def _order(flow: RunningFlow, *changes: Callable[[Overrides], Overrides]) -> None:
    overrides = flow.runner.requests.overrides
    for change in changes:
        overrides = change(overrides)
    flow.runner.requests.apply(overrides)


async def _stands_still(flow: RunningFlow, cluster: KafkaCluster, topic: str) -> int:
    """Return where a remote topic stands while records go on coming at the source."""
    await asyncio.sleep(0.3)
    before = await _there(cluster, topic)
    await asyncio.sleep(_QUIET_S)

    assert await _there(cluster, topic) == before, flow.runner.view().state
    return before


@pytest.mark.parametrize("verb", [verbs.pause_connector, verbs.stop_connector], ids=["paused", "stopped"])
async def test_a_connector_is_held_and_goes_on_exactly(
    primary: KafkaCluster,
    backup: KafkaCluster,
    prefix: str,
    tmp_path: Path,
    *,
    verb: Callable[[Overrides, str], Overrides],
) -> None:
    """Within seconds nothing is copied any more; then it goes on where it was, and no record is lost or repeated."""
    source, remote = primary.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, partitions=_PARTITIONS)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": prefix, "tasks.max": 2})
    async with (
        numbered_stream(source, prefix, count=4_000, partitions=_PARTITIONS, rate=2_000, open_ended=True) as stream,
        running_flow(settings, tmp_path) as flow,
    ):
        await _arrived(backup, remote, 1_000)
        _order(flow, lambda overrides: verb(overrides, SOURCE))
        await _state(flow, FlowState.PAUSED if verb is verbs.pause_connector else FlowState.STOPPED)
        held_at = await _stands_still(flow, backup, remote)
        held = flow.runner.view()
        _order(flow, lambda overrides: verbs.resume_connector(overrides, SOURCE))
        await _arrived(backup, remote, held_at + 1_000)
        await _state(flow, FlowState.RUNNING)
        count = await stream.done()
        await _arrived(backup, remote, count)
        await flow.drain()

    assert sum(view.position for view in held.partitions) == held_at
    assert held.state is held.groups[0].state
    assert {group.state for group in held.groups if group.connector == CHECKPOINT} <= {FlowState.RUNNING}
    assert_numbers(await read_numbers(backup.bootstrap_servers, remote), count)
    assert not flow.events.of(CopyTaskLost)
    lives = 1 if verb is verbs.pause_connector else 2
    assert len(flow.events.of(PositionsRead)) == lives
    assert all(event.positions_written for event in flow.events.of(FlowDrained))
    assert not flow.events.of(ResumedExactly), "a stop in good order leaves nothing to be found out"


async def test_a_flow_is_drained_out_of_a_pause_and_starts_into_one(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The daemon may end while a flow is paused; the next one starts with the override and creates nothing."""
    source, remote = primary.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, partitions=1)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": f"{prefix}.*", "tasks.max": 1})
    paused = verbs.pause_connector(NO_OVERRIDES, SOURCE)
    async with running_flow(settings, tmp_path) as first:
        await produce_numbers(source, prefix, count=500, partitions=1)
        await _arrived(backup, remote, 500)
        first.runner.requests.apply(paused)
        await _state(first, FlowState.PAUSED)
        await first.drain()
    await create_topic(source, f"{prefix}-new", partitions=1)
    await produce_numbers(source, f"{prefix}-new", count=100, partitions=1)
    async with running_flow(settings, tmp_path, overrides=paused) as second:
        await _state(second, FlowState.PAUSED)
        await asyncio.sleep(_QUIET_S)
        topics = await _there(backup, remote), second.runner.view().topics
        second.runner.requests.apply(NO_OVERRIDES)
        await _arrived(backup, f"A.{prefix}-new", 100)
        await second.drain()

    assert topics == (500, 0)
    assert first.runner.view().state is second.runner.view().state is FlowState.DRAINED
    assert len(second.events.of(ConnectorPaused)) == 1
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{prefix}-new"), 100)


def _paused(flow: RunningFlow) -> set[TopicPartition]:
    return {view.source for view in flow.runner.view().partitions if view.stage is PartitionStage.PAUSED}


async def test_a_topic_and_a_partition_are_paused_alone(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A paused topic or partition waits while its copy task copies all else; resumed, it goes on exactly."""
    source, whole, part = primary.bootstrap_servers, f"{prefix}-whole", f"{prefix}-part"
    for topic in (whole, part):
        await create_topic(source, topic, partitions=2)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": f"{prefix}.*", "tasks.max": 1})
    held = TopicPartition(part, 1)
    async with (
        numbered_stream(source, whole, count=4_000, partitions=2, rate=1_000, open_ended=True) as to_whole,
        numbered_stream(source, part, count=4_000, partitions=2, rate=1_000, open_ended=True) as to_part,
        running_flow(settings, tmp_path) as flow,
    ):
        await _arrived(backup, f"A.{whole}", 500)
        await _arrived(backup, f"A.{part}", 500)
        _order(flow, lambda it: verbs.pause_topic(it, whole), lambda it: verbs.pause_partition(it, held))
        are_held = {held, TopicPartition(whole, 0), TopicPartition(whole, 1)}
        await eventually(lambda: _paused(flow) == are_held, within_s=20, what="no epoch reads them")
        before = await end_offsets(backup.bootstrap_servers, f"A.{part}")
        whole_before = await _stands_still(flow, backup, f"A.{whole}")
        await await_arrived(backup.bootstrap_servers, f"A.{part}", sum(before.values()) + 1)
        after = await end_offsets(backup.bootstrap_servers, f"A.{part}")
        views = {view.source: view for view in flow.runner.view().partitions}
        shown = flow.runner.view()
        _order(flow, lambda it: verbs.resume_topic(it, whole), lambda it: verbs.resume_partition(it, held))
        counts = await to_whole.done(), await to_part.done()
        await _arrived(backup, f"A.{whole}", counts[0])
        await _arrived(backup, f"A.{part}", counts[1])
        await flow.drain()

    assert after[1] == before[1] == views[held].position
    assert after[0] > before[0]
    assert {view.source for view in views.values() if view.is_paused} == are_held
    assert sum(views[TopicPartition(whole, number)].position for number in (0, 1)) == whole_before
    assert (shown.paused_topics, shown.paused_partitions) == ((whole,), (held,))
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{whole}"), counts[0])
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{part}"), counts[1])


async def _rate(flow: RunningFlow, cluster: KafkaCluster, topic: str, *, seconds: float) -> tuple[float, float]:
    """Measure records and bytes a second, as the target has them and as they are accounted for."""
    loop = asyncio.get_running_loop()
    begun, records = loop.time(), await _there(cluster, topic)
    await asyncio.sleep(seconds)
    elapsed = loop.time() - begun
    moved = await _there(cluster, topic) - records
    view = flow.runner.view()
    return moved / elapsed, moved / elapsed * view.bytes / view.records


@pytest.mark.parametrize(
    ("limit", "tasks"),
    [
        (RateLimit(bytes_per_s=400_000), 2),
        pytest.param(RateLimit(records_per_s=2_000), 1, marks=pytest.mark.soak(only="a topic has such a limit below")),
        (RateLimit(bytes_per_s=50_000), 2),
    ],
    ids=["bytes, two copy tasks", "records", "few bytes for the size of batches"],
)
async def test_a_flow_keeps_to_its_limit(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, *, limit: RateLimit, tasks: int
) -> None:
    """Over epochs and copy tasks the rate is the limit's within a tenth; once it is lifted, all comes at once."""
    source, remote = primary.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, partitions=4)
    await produce_numbers(source, prefix, count=100_000, partitions=4)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": prefix, "tasks.max": tasks})
    async with running_flow(settings, tmp_path, overrides=verbs.set_limit(NO_OVERRIDES, limit)) as flow:
        await _arrived(backup, remote, 1)
        await asyncio.sleep(4)
        records_per_s, bytes_per_s = await _rate(flow, backup, remote, seconds=_SECONDS)
        flow.runner.requests.apply(NO_OVERRIDES)
        await _arrived(backup, remote, 100_000)
        await flow.drain()

    if limit.bytes_per_s is not None:
        assert bytes_per_s == pytest.approx(limit.bytes_per_s, rel=0.1)
    if limit.records_per_s is not None:
        assert records_per_s == pytest.approx(limit.records_per_s, rel=0.1)
    assert_numbers(await read_numbers(backup.bootstrap_servers, remote), 100_000)


async def test_a_topic_keeps_to_its_limit_and_others_do_not_wait(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The backlog of a limited topic comes at its rate, while records of another topic pass it without delay."""
    source, slow, fast = primary.bootstrap_servers, f"{prefix}-slow", f"{prefix}-fast"
    await create_topic(source, slow, partitions=3)
    await create_topic(source, fast, partitions=1)
    await produce_numbers(source, slow, count=100_000, partitions=3)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": f"{prefix}.*", "tasks.max": 1})
    overrides = verbs.set_topic_limit(NO_OVERRIDES, slow, RateLimit(records_per_s=2_000))
    async with (
        running_flow(settings, tmp_path, overrides=overrides) as flow,
        numbered_stream(source, fast, count=10_000, partitions=1, rate=500, open_ended=True) as stream,
    ):
        await _arrived(backup, f"A.{slow}", 1)
        await asyncio.sleep(2)
        loop, begun = asyncio.get_running_loop(), await _there(backup, f"A.{slow}")
        started = loop.time()
        await asyncio.sleep(_SECONDS)
        rate = (await _there(backup, f"A.{slow}") - begun) / (loop.time() - started)

        async def keeps_up() -> bool:
            return stream.sent - await _there(backup, f"A.{fast}") < 250

        await eventually(keeps_up, within_s=20, what="the other topic is half a second behind at most", every_s=0)
        left = 100_000 - await _there(backup, f"A.{slow}")
        flow.runner.requests.apply(NO_OVERRIDES)
        count = await stream.done()
        await _arrived(backup, f"A.{slow}", 100_000)
        await _arrived(backup, f"A.{fast}", count)
        await flow.drain()

    assert rate == pytest.approx(2_000, rel=0.1)
    assert left > 0, "and that while the backlog was there"
    assert_numbers(await read_numbers(backup.bootstrap_servers, f"A.{slow}"), 100_000)


@pytest.mark.parametrize("include_tasks", [False, True], ids=["alone", "with its tasks"])
async def test_a_restarted_connector_goes_on_exactly(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, *, include_tasks: bool
) -> None:
    """Restarted alone it lists its topics again while copying goes on; with its tasks it drains and reads positions."""
    source, remote = primary.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, partitions=_PARTITIONS)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": f"{prefix}.*", "tasks.max": 2})
    async with (
        numbered_stream(source, prefix, count=2_000, partitions=_PARTITIONS, rate=1_000, open_ended=True) as stream,
        running_flow(settings, tmp_path) as flow,
    ):
        await _arrived(backup, remote, 500)
        flow.runner.requests.restart_here(Restart(SOURCE, include_tasks=include_tasks))
        await eventually(lambda: flow.runner.view().groups[0].restarts == 1, within_s=5, what="the restart")
        await _state(flow, FlowState.RUNNING)
        await _arrived(backup, remote, stream.sent + 500)
        count = await stream.done()
        await _arrived(backup, remote, count)
        await flow.drain()

    assert len(flow.events.of(PositionsRead)) == (2 if include_tasks else 1)
    assert_numbers(await read_numbers(backup.bootstrap_servers, remote), count)


async def test_a_failed_group_is_restarted_once_its_cause_is_gone(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that cannot be loaded fails the checkpoint group alone; once it exists, a restart succeeds."""
    source, module = primary.bootstrap_servers, f"filter_{tmp_path.name.replace('-', '_')}"
    monkeypatch.syspath_prepend(str(tmp_path))
    await create_topic(source, prefix, partitions=1)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": prefix, "tasks.max": 1})
    chosen = attrs.evolve(settings.checkpoints, group_filter_class=f"{module}.EveryGroup")
    async with running_flow(attrs.evolve(settings, checkpoints=chosen), tmp_path) as flow:
        await _state(flow, FlowState.FAILED, CHECKPOINT)
        flow.runner.requests.restart_here(Restart(CHECKPOINT, only_failed=True))
        await eventually(lambda: len(flow.events.of(GroupFailed)) == 2, within_s=15, what="it fails again")
        (tmp_path / f"{module}.py").write_text(
            "class EveryGroup:\n    def takes_group(self, group: str) -> bool:\n        return True\n"
        )
        flow.runner.requests.restart_here(Restart(CHECKPOINT, only_failed=True))
        await _state(flow, FlowState.RUNNING, CHECKPOINT)
        await produce_numbers(source, prefix, count=100, partitions=1)
        await _arrived(backup, f"A.{prefix}", 100)
        groups = {group.connector: group for group in flow.runner.view().groups}
        await flow.drain()

    assert (groups[CHECKPOINT].restarts, groups[CHECKPOINT].last_error) == (2, "")
    assert (groups[SOURCE].state, groups[SOURCE].restarts) == (FlowState.RUNNING, 0)
