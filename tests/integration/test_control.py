"""Rate limits of a running flow on real clusters, and a restart of what failed. Epochs run in the process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import attrs
import pytest

from mm2py.core.herder import overrides as verbs
from mm2py.core.herder.overrides import CHECKPOINT, SOURCE
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.herder.overrides import NO_OVERRIDES, RateLimit
from mm2py.model.herder.restart import Restart
from mm2py.model.state import FlowState
from mm2py.telemetry.events import GroupFailed
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import create_topic, end_offsets


_SECONDS = 10.0


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


async def test_a_failed_group_is_restarted_once_its_cause_is_gone(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that cannot be loaded fails the checkpoint group alone; once it exists, a restart succeeds."""
    source, module = primary.bootstrap_servers, f"filter_{tmp_path.name.replace('-', '_')}"
    monkeypatch.syspath_prepend(str(tmp_path))
    await create_topic(source, prefix, partitions=1)
    settings = flow_settings(source, backup.bootstrap_servers, **{"A->B.topics": prefix, "tasks.max": 1})
    chosen = attrs.evolve(settings.checkpoint_connector, group_filter_class=f"{module}.EveryGroup")
    async with running_flow(attrs.evolve(settings, checkpoint_connector=chosen), tmp_path) as flow:
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
