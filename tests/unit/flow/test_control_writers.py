"""Under which transactional id a flow's owner writes, and what happens where it may not open it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mm2py.errors import BrokerAnsweredError
from mm2py.flow.control_writers import ControlWriters
from mm2py.telemetry.events import ControlWritesUnguarded, FlowFenced
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError
from mm2py.wire.transactions import TransactionalProducer
from tests.support.clocks import LoopClock
from tests.support.coordinators import Coordinators
from tests.support.flow_rig import FLOW, flow_context


OWNER = "connect-cluster-A-mm2"


class Rig:
    """A flow's writers at a coordinator that answers as said, then accepts everything."""

    def __init__(self, *answers: Any) -> None:
        self.coordinators = Coordinators(list(answers))
        self.target = cast("Cluster", self.coordinators)
        self.events = EventLog(LoopClock())
        self.writers: ControlWriters = flow_context(LoopClock(), self.events).writers
        self.doubts = 0
        self.writers.on_fenced = self.doubt

    def doubt(self) -> None:
        self.doubts += 1

    async def write(self, writer: FencedWriter, *answers: Any) -> None:
        self.coordinators.answers = list(answers)

        async def append(_: TransactionalProducer | None) -> None:
            return

        await writer.write(self.target, (), append)


async def test_a_fenced_owner_is_reported_once_and_begins_with_another_writer() -> None:
    """The id is that of Java's leader. What an earlier life still tries to write is refused without a word."""
    rig = Rig()
    first = await rig.writers.for_owner(rig.target)
    for answers in ([ErrorCode.PRODUCER_FENCED], []):
        with pytest.raises(TakenOverError):
            await rig.write(first, *answers)
    second = await rig.writers.for_owner(rig.target)
    await rig.write(second)
    with pytest.raises(TakenOverError):
        await rig.write(first)

    assert [(it.transactional_id, it.flow) for it in rig.events.of(FlowFenced)] == [(OWNER, FLOW)]
    assert rig.doubts == 1


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"WRITE on transactional id {OWNER} of cluster B"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "transaction.state.log.replication.factor"),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, "kafka-transactions.sh"),
        (ErrorCode.UNSUPPORTED_VERSION, ""),
    ],
)
async def test_where_no_id_can_be_opened_a_flow_writes_unguarded(code: ErrorCode, hint: str) -> None:
    """That is reported once, with what is missing; the next life tries again, and reports it again after a success."""
    rig = Rig(*[code] * 10_000)
    for _ in range(2):
        writer = await rig.writers.for_owner(rig.target)
        rig.coordinators.answers = [code] * 10_000
    await rig.write(writer)
    unguarded = rig.events.of(ControlWritesUnguarded)
    rig.coordinators.answers.clear()
    guarded = await rig.writers.for_owner(rig.target)

    assert (writer.is_open, guarded.is_open) == (False, True)
    assert [it.transactional_id for it in unguarded] == [OWNER]
    assert hint in unguarded[0].hint
    assert code.name in unguarded[0].error


async def test_other_errors_are_not_taken_for_a_refusal() -> None:
    """A coordinator that only moves must not leave a flow unguarded."""
    rig = Rig(*[ErrorCode.NOT_COORDINATOR] * 10_000)
    with pytest.raises(BrokerAnsweredError, match="NOT_COORDINATOR"):
        await rig.writers.for_owner(rig.target)

    assert not rig.events.of(ControlWritesUnguarded)


async def test_nodes_that_copy_side_by_side_do_not_fence_each_other() -> None:
    """With copy.on.second.node = warn, or without the group, two nodes may run the flow, and both write."""
    rig = Rig()
    rig.writers.is_guarding = False
    writer = await rig.writers.for_owner(rig.target)
    await rig.write(writer)

    assert not writer.is_open
    assert rig.coordinators.asked == []
