"""Two nodes that both copy a flow (`copy.on.second.node = warn`): every record is there once, in order."""

from __future__ import annotations

from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.telemetry.events import ForeignRecordsFound, ResumeUnproven
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import assert_same_records, plain_records, spread
from tests.support.topics import create_topic


_PARTITIONS = 3
_BURST = 300


def _stands_at(flow: RunningFlow, position: int) -> bool:
    views = flow.runner.view().partitions
    return len(views) == _PARTITIONS and all(view.position == position for view in views)


async def test_two_nodes_that_copy_from_the_first_record_on(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Each finds no position and claims a producer, and both copy as the one whose claim came first.

    Records come in bursts, so that neither waits for the other to stand still: they race for every record, with
    batches that begin and end at different records.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    keys = {"topics": prefix, "B.offset.storage.topic": f"{prefix}-offsets", "B.group.id": prefix}
    settings = flow_settings(source, target, **keys, **{"copy.on.second.node": "warn"})
    await create_topic(source, prefix, partitions=_PARTITIONS)
    await create_topic(target, f"A.{prefix}", partitions=_PARTITIONS)
    async with running_flow(settings, tmp_path) as one, running_flow(settings, tmp_path) as other:
        for burst in range(5):
            records = spread(plain_records(_BURST, start=burst * _BURST), _PARTITIONS)
            await produce(source, prefix, records, batch_records=(1, 40)[burst % 2])
            done = (burst + 1) * _BURST // _PARTITIONS
            for flow in (one, other):
                await eventually(lambda f=flow, at=done: _stands_at(f, at), within_s=30, what=f"both stand at {done}")  # type: ignore[misc]
        await one.drain()
        await other.drain()

    assert_same_records(await read_topic(source, prefix), await read_topic(target, f"A.{prefix}"))
    for flow in (one, other):
        assert not flow.events.of(ForeignRecordsFound)
        assert not flow.events.of(ResumeUnproven)
