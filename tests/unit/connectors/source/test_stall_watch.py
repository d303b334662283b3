"""Telling which topic-partitions have stood still for long, in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from mm2py.connectors.source.partitions import SourceTasks
from mm2py.connectors.source.stall_watch import StallWatch
from mm2py.errors import ClusterUnreachableError
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage
from mm2py.telemetry.events import PartitionsGoOn, PartitionsHeldUp
from tests.support.flow_rig import LoopRig
from tests.support.source_tasks import PretendedEpochs, mirrored, positions


NO_LEADER = PartitionFailure("no broker leads it at the source", "start one")


class StallWatchRig(LoopRig):
    """A `StallWatch` over partitions that stand still."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        places = [TopicPartition("t", number) for number in range(partitions)]
        tasks = SourceTasks(self.context, PretendedEpochs())
        tasks.adopt(look := mirrored(*range(partitions)), positions(look))
        self.states = tasks.ledger.states
        for source in places:
            stands = attrs.evolve(self.states[source], stage=PartitionStage.BACKING_OFF, failure=NO_LEADER)
            self.states[source] = stands
        life: Any = SimpleNamespace(tasks=tasks)
        self.loop = StallWatch(self.context, {}, life)

    def go_on(self) -> None:
        for source, state in list(self.states.items()):
            self.states[source] = attrs.evolve(state, stage=PartitionStage.COPYING, failure=None)


@pytest.fixture
async def rig() -> StallWatchRig:
    return StallWatchRig(25)


async def test_many_partitions_make_one_event(rig: StallWatchRig) -> None:
    """Partitions blocked for one reason are reported in one event, which names ten, and so is the end."""
    await rig.live(70.1)
    rig.go_on()
    await rig.live(70.1)
    (told,), (over,) = rig.events.of(PartitionsHeldUp), rig.events.of(PartitionsGoOn)

    assert (told.count, len(told.partitions), told.partitions[0]) == (25, 10, "t-0")
    assert (told.message, told.hint) == (NO_LEADER.message, NO_LEADER.hint)
    assert told.held_s == pytest.approx(60.0)
    assert over.count == 25


async def test_a_cluster_that_is_away_is_told_alone(rig: StallWatchRig) -> None:
    """Partitions wait for it, which is no news; once it is back, each has its time to go on."""
    await rig.live(30.1)
    rig.reach.failed("copy", ClusterUnreachableError("A", "a:1", "refused"))
    await rig.live(300.1)
    rig.reach.answered(["A"])
    await rig.live(50.1)
    while_back = rig.events.of(PartitionsHeldUp)
    await rig.live(30.1)

    assert while_back == ()
    assert len(rig.events.of(PartitionsHeldUp)) == 1
