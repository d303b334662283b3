"""A source topic that was created again is compared with its copy, which the target may have cleaned since."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import pytest

from mm2py.model.epoch import Ended, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.log_walk import LogWalker
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.wire.batches.batch import RecordBatchView
from tests.support.batches import START_MS, Content, build_batch
from tests.support.in_process import InProcessPartition
from tests.support.resuming import REMOTE, TOPIC, ResumeRig, record, rig_of


#: Records up to this number are older than what the target keeps.
_EXPIRED = 50


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Return the remote topic's configs, for a test to change."""
    found: dict[str, str | None] = {"cleanup.policy": "delete", "retention.ms": "3600000"}

    async def target_cleanup(_self: LogWalker, _topic: str) -> tuple[Mapping[str, str | None], int]:
        return found, START_MS + _EXPIRED + 3_600_000

    monkeypatch.setattr(LogWalker, "target_cleanup", target_cleanup)
    return found


async def _compared(rig: ResumeRig) -> PartitionCopy:
    plan = PartitionPlan(TopicPartition(TOPIC, 0), REMOTE, 0, None, is_unsure=True, is_rebuilt=True)
    copy = PartitionCopy.of(plan)
    await rig.resolve([copy])
    return copy


def _load(partition: InProcessPartition, *records: Content) -> None:
    for one in records:
        partition.load(build_batch([one], base_offset=partition.end))


@pytest.mark.usefixtures("configs")
async def test_a_long_expired_front_is_read_in_several_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that ends while the source's expired records are read is followed by one that goes on there."""
    rig, asked = rig_of(), list[int]()
    rig.write_source(range(60), batch=1)
    rig.write_target(range(60), batch=1)
    rig.downstream.delete_before(40)
    walk = LogWalker.walk

    async def cut(self: LogWalker, copy: PartitionCopy, start: int) -> AsyncIterator[tuple[RecordBatchView, int]]:
        asked.append(start)
        async for batch, after in walk(self, copy, start):
            if len(asked) < 3 and after > start + 15:
                raise TimeoutError
            yield batch, after

    monkeypatch.setattr(LogWalker, "walk", cut)
    for _ in range(2):
        with pytest.raises(ExceptionGroup):
            await _compared(rig)
    copy = await _compared(rig)

    assert asked[:3] == [0, 15, 30]
    assert (copy.ended, copy.position, copy.downstream) == (Ended.OK, 60, 59)


@pytest.mark.usefixtures("configs")
async def test_retention_that_goes_on_meanwhile_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target's first records go after its start was read: both are compared again, and nothing is decided."""
    rig = rig_of()
    rig.write_source(range(60), batch=1)
    rig.write_target(range(60), batch=1)
    target_from = LogWalker.target_from

    async def late(self: LogWalker, remote: TopicPartition, timestamp: int) -> int | None:
        found = await target_from(self, remote, timestamp)
        rig.downstream.delete_before(40)
        return found

    monkeypatch.setattr(LogWalker, "target_from", late)
    copy = await _compared(rig)

    assert (copy.ended, copy.position, copy.downstream) == (Ended.OK, 60, 59)


async def test_a_record_without_a_key_replaces_none_with_an_empty_one(configs: dict[str, str | None]) -> None:
    """A new record whose key is empty would be lost if the later one without a key counted as one of its key."""
    configs["cleanup.policy"] = "compact"
    rig = rig_of()
    first, new, last = record(1), Content(0, START_MS + 2, b"", b"new"), Content(0, START_MS + 3, None, b"3")
    _load(rig.upstream, first, new, last)
    _load(rig.downstream, first, last)
    copy = await _compared(rig)

    assert copy.ended is Ended.UNPROVEN
    assert copy.failure is not None
    assert "upstream offset 1 of" in copy.failure.message


async def test_more_keys_than_the_target_has_are_not_collected(configs: dict[str, str | None]) -> None:
    """Each key that is missing needs a record at the target: reading on could not find one for all of them."""
    configs["cleanup.policy"] = "compact"
    rig = rig_of()
    rig.write_source([*range(10, 30), 1], batch=1)
    rig.write_target([1])
    copy = await _compared(rig)

    assert copy.failure is not None
    assert copy.failure.message == f"{TOPIC}-0 has records of more keys than {REMOTE}-0 has records"
