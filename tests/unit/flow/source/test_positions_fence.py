"""Which producer positions name before anything is sent."""

from __future__ import annotations

from typing import Any, cast

import attrs
import pytest

from mm2py.core.source.progress import PartitionState
from mm2py.errors import ClusterUnreachableError
from mm2py.flow.source import positions as flow_positions
from mm2py.flow.source.positions import Positions
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS


class Target:
    """Stands for the positions topic, which may refuse, and for who gives producer ids."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ids = 0
        self.written: list[Position] = []
        self.is_away = False
        self.positions = Positions(SETTINGS, cast("Any", None), cast("Any", None), EventLog(LoopClock()))
        patch.setattr(flow_positions, "init_producer_id", self._give)
        patch.setattr(self.positions, "write", self._write)

    async def _give(self, _cluster: object) -> ProducerMark:
        self.ids += 1
        return ProducerMark(self.ids, 0, 0)

    async def _write(self, positions: list[Position]) -> None:
        if self.is_away:
            raise ClusterUnreachableError("B", "b:1", "away")
        self.written += positions


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target that takes all."""
    return Target(monkeypatch)


def state(number: int, **changes: object) -> PartitionState:
    return attrs.evolve(PartitionState(TopicPartition("t", number), "A.t", 100, 99), **changes)


async def test_one_producer_id_serves_all_that_wait(target: Target) -> None:
    """However many partitions wait, one id is asked for; the next ones get another, and a transform none."""
    fenced = await target.positions.fence([state(0), state(1), state(2, is_transformed=True)])
    again = await target.positions.fence([state(1)])
    await target.positions.fence([state(2, is_transformed=True)])

    assert [it.producer and it.producer.producer_id for it in fenced] == [1, 1, None]
    assert [it.producer and it.producer.producer_id for it in again] == [2]
    assert target.ids == 2
    assert len(target.written) == 5


async def test_an_id_that_could_not_be_written_is_used_by_the_next_attempt(target: Target) -> None:
    """A write without an answer may arrive yet, and must not name another producer than the one that counts."""
    target.is_away = True
    with pytest.raises(ClusterUnreachableError):
        await target.positions.fence([state(0)])
    target.is_away = False
    fenced = await target.positions.fence([state(0)])

    assert [it.producer for it in fenced] == [ProducerMark(1, 0, 0)]
