"""Own moves of groups in topics that came from the target: none is missed, whatever a round could not read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import attrs
import pytest

from mm2py.connectors.checkpoint.own_moves import OwnMoves
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.consumer_groups import Groups
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers


ABROAD = TopicPartition("B.bar", 0)
KEY = ("g", ABROAD)


@attrs.define(eq=False)
class OwnMovesRig:
    """The moves of the group `g`, which has members at first."""

    brokers: FakeBrokers
    groups: Groups
    moves: OwnMoves = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.moves = OwnMoves(self.groups)
        self.brokers.group("g", {ABROAD: 20}, members=1)

    def commit(self, offset: int) -> None:
        self.brokers.commit("g", {ABROAD: offset})

    def leave(self) -> None:
        self.brokers.group("g")

    async def round(self, *, is_translated: bool = True) -> None:
        await self.moves.describe()
        await self.read(is_translated=is_translated)

    async def read(self, *, is_translated: bool = True) -> None:
        """Do the rest of a round, once groups are described."""
        committed_by = await self.groups.committed(["g"])
        offsets = committed_by["g"]
        back = {}
        if is_translated and not isinstance(offsets, BrokerAnsweredError):
            back = {("g", tp): committed.offset for tp, committed in offsets.items()}
        await self.moves.take(back, committed_by)


@pytest.fixture
async def rig() -> AsyncIterator[OwnMovesRig]:
    clock, brokers = LoopClock(), FakeBrokers()
    async with Cluster(attrs.evolve(brokers.endpoint, alias="A"), clock, opener=brokers.open) as cluster:
        yield OwnMovesRig(brokers, Groups(cluster))


@pytest.mark.parametrize("why", ["its offsets", "nothing of it"])
async def test_a_move_outlasts_a_round_that_cannot_read(rig: OwnMovesRig, why: str) -> None:
    """The group has left by then and will not move again."""
    await rig.round()
    rig.leave()
    if why == "its offsets":
        await rig.moves.describe()
    rig.brokers.errors = {"g": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    await (rig.read() if why == "its offsets" else rig.round())
    rig.brokers.errors = {}
    await rig.round()

    assert KEY in rig.moves


async def test_a_move_outlasts_a_round_that_does_not_know_the_topic(rig: OwnMovesRig) -> None:
    """The flow that brought it is started again, and has not read yet how a router renames topics."""
    await rig.round()
    rig.leave()
    await rig.round(is_translated=False)
    await rig.round()

    assert KEY in rig.moves


async def test_a_group_that_could_not_be_described_is_judged_later(rig: OwnMovesRig) -> None:
    """What it has read since the last description is its own move, although it has left by the next one."""
    await rig.round()
    rig.moves.settle("g", {ABROAD: 20})
    rig.commit(30)
    committed_by = await rig.groups.committed(["g"])
    rig.brokers.errors = {"g": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    await rig.moves.describe()
    await rig.moves.take({KEY: 30}, committed_by)
    is_judged = KEY in rig.moves
    rig.brokers.errors = {}
    rig.leave()
    await rig.round()

    assert not is_judged
    assert KEY in rig.moves


async def test_what_was_set_while_a_move_waited_settles_it(rig: OwnMovesRig) -> None:
    """The target gets where the group is in the end, once."""
    await rig.round()
    rig.leave()
    rig.commit(10)
    await rig.round()
    await rig.round()
    rig.moves.settle("g", {ABROAD: 10})
    rig.commit(5)
    await rig.round()

    assert KEY not in rig.moves


async def test_offsets_that_are_gone_are_forgotten(rig: OwnMovesRig) -> None:
    """The group's offset expired, or was deleted with its topic; later another one is set."""
    await rig.round()
    rig.leave()
    rig.brokers.group("g").offsets.clear()
    await rig.round()
    is_there = KEY in rig.moves
    rig.commit(30)
    await rig.round()

    assert not is_there
    assert KEY not in rig.moves
