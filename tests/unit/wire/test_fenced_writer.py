"""A writer of small transactions and its coordinator: when it goes on, and when another one has to be opened."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mm2py.errors import BrokerAnsweredError, Verdict
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError, fence
from mm2py.wire.transactions import TransactionalProducer
from tests.support.coordinators import Coordinators


ID = "connect-cluster-A-mm2"
PLACES = [TopicPartition("t", 0)]
OLD = error_of(ErrorCode.UNSUPPORTED_VERSION, "B", "InitTransactions", "too old")


class Rig:
    """A writer, its coordinator, which writes got so far as to be sent, and what it told of a fence."""

    def __init__(self, *answers: Any) -> None:
        self.coordinators = Coordinators(list(answers))
        self.cluster = cast("Cluster", self.coordinators)
        self.sent: list[bool] = []
        self.told: list[str] = []
        self.writer = FencedWriter(ID, self.told.append)

    async def write(self, *answers: Any, error: Exception | None = None) -> list[str]:
        """Write once while the coordinator answers so; return what it was asked."""
        self.coordinators.asked.clear()
        self.coordinators.answers = list(answers)

        async def append(transaction: TransactionalProducer | None) -> None:
            self.sent.append(transaction is not None)
            if error is not None:
                raise error

        try:
            await self.writer.write(self.cluster, PLACES, append)
        finally:
            self.asked = self.coordinators.names
        return self.asked


@pytest.fixture
async def rig() -> Rig:
    """A writer that is open."""
    rig = Rig()
    await rig.writer.open(rig.cluster)
    return rig


async def test_each_write_is_a_transaction(rig: Rig) -> None:
    """Three requests, and the records between the first two."""
    assert await rig.write() == await rig.write() == ["AddPartitionsToTxn", "EndTxn"]
    assert rig.sent == [True, True]


async def test_a_writer_that_is_not_open_writes_plainly() -> None:
    """So a cluster that lets nobody open an id is served as before."""
    rig = Rig()
    asked = await rig.write()

    assert (asked, rig.sent) == ([], [False])


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        pytest.param([ErrorCode.PRODUCER_FENCED], None, id="as it begins"),
        pytest.param([0], error_of(ErrorCode.INVALID_PRODUCER_EPOCH, "B", "Produce", "t-0"), id="by a leader"),
        pytest.param([0, ErrorCode.INVALID_PRODUCER_EPOCH], None, id="as it commits"),
    ],
)
async def test_a_fence_is_final_and_told_once(rig: Rig, answers: list[Any], error: Exception | None) -> None:
    """Whoever refuses, and however often it is tried: nothing more is asked, and who asks for another writer knows."""
    with pytest.raises(TakenOverError) as caught:
        await rig.write(*answers, *[ErrorCode.PRODUCER_FENCED] * 5, error=error)
    for _ in range(2):
        with pytest.raises(TakenOverError):
            await rig.write()

    assert rig.asked == []
    assert rig.told == [ID]
    assert caught.value.verdict is Verdict.STAND_BY


async def test_a_failed_write_is_undone_at_once(rig: Rig) -> None:
    """The next one goes on with a higher epoch; nothing was left open meanwhile, for readers to wait for."""
    full = error_of(ErrorCode.MESSAGE_TOO_LARGE, "B", "Produce", "t-0")
    with pytest.raises(BrokerAnsweredError, match="MESSAGE_TOO_LARGE"):
        await rig.write(error=full)
    failed = rig.asked

    assert failed == ["AddPartitionsToTxn", "EndTxn", "InitTransactions"]
    assert await rig.write() == ["AddPartitionsToTxn", "EndTxn"]
    assert len(rig.coordinators.renewed) == 1


async def test_what_could_not_be_undone_is_before_the_next_write(rig: Rig) -> None:
    """The coordinator is away too, and the writer tries again later."""
    with pytest.raises(BrokerAnsweredError, match="REQUEST_TIMED_OUT"):
        await rig.write(*[ErrorCode.REQUEST_TIMED_OUT] * 1_000)
    await rig.write()

    assert rig.asked == ["EndTxn", "InitTransactions", "AddPartitionsToTxn", "EndTxn"]


async def test_an_id_that_brokers_forgot_is_renewed(rig: Rig) -> None:
    """Nothing was written for a week: the same write goes through, unless another producer has opened the id."""
    forgotten = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    asked = await rig.write(forgotten, forgotten)
    with pytest.raises(TakenOverError):
        await rig.write(forgotten, forgotten, ErrorCode.PRODUCER_FENCED)

    assert asked == ["AddPartitionsToTxn", "EndTxn", "InitTransactions", "AddPartitionsToTxn", "EndTxn"]
    assert rig.sent == [True]


async def test_with_old_brokers_a_doubt_ends_the_writer(rig: Rig) -> None:
    """They cannot renew without taking the id from another producer, so all is read again first."""
    with pytest.raises(BrokerAnsweredError):
        await rig.write(0, 0, OLD, error=error_of(ErrorCode.MESSAGE_TOO_LARGE, "B", "Produce", "t-0"))
    with pytest.raises(TakenOverError):
        await rig.write(0, OLD)

    assert rig.told == [ID]


async def test_a_time_that_brokers_allow_is_found() -> None:
    """Their transaction.max.timeout.ms is lower than ours; where it is absurd, their error is raised."""
    too_long = ErrorCode.INVALID_TRANSACTION_TIMEOUT
    low, absurd = Rig(too_long, too_long), Rig(*[too_long] * 9)
    await low.writer.open(low.cluster)
    with pytest.raises(BrokerAnsweredError, match="INVALID_TRANSACTION_TIMEOUT"):
        await fence(absurd.cluster, ID)

    assert low.coordinators.timeouts_ms == [15_000, 7_500, 3_750]
    assert low.writer.is_open
