"""A writer of small transactions and its coordinator: when it goes on, and when another one has to be opened."""

from __future__ import annotations

import pytest

from mm2py.errors import BrokerAnsweredError, Verdict
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError, fence
from mm2py.wire.transactions import TransactionalProducer
from tests.support.fake_brokers import INIT, FakeBrokers, FakePartition, FakeTopic


ID = "connect-cluster-A-mm2"
PLACES = [TopicPartition("t", 0)]


class Rig:
    """A writer, its coordinator, which writes got so far as to be sent, and what it told of a fence."""

    def __init__(self, brokers: FakeBrokers, cluster: Cluster) -> None:
        self.brokers, self.cluster = brokers, cluster
        brokers.topics = {PLACES[0].topic: FakeTopic([FakePartition()])}
        self.sent: list[bool] = []
        self.told: list[str] = []
        self.writer = FencedWriter(ID, self.told.append)

    async def write(self, *answers: int, error: Exception | None = None) -> list[str]:
        """Write once while the coordinator answers so; return what it was asked."""
        self.brokers.requests.clear()
        self.brokers.answers = list(answers)

        async def append(transaction: TransactionalProducer | None) -> None:
            self.sent.append(transaction is not None)
            if error is not None:
                raise error

        try:
            await self.writer.write(self.cluster, PLACES, append)
        finally:
            self.asked = self.brokers.asked
        return self.asked

    @property
    def opened(self) -> list[tuple[int, int]]:
        """The epoch of the producer, and the timeout, with which ids were opened or renewed."""
        return [(it.producer_epoch, it.transaction_timeout_ms) for _, it in self.brokers.requests_of(INIT)]


@pytest.fixture
def closed(brokers: FakeBrokers, cluster: Cluster) -> Rig:
    """A writer that is not open."""
    return Rig(brokers, cluster)


@pytest.fixture
async def rig(closed: Rig) -> Rig:
    """A writer that is open."""
    await closed.writer.open(closed.cluster)
    return closed


async def test_each_write_is_a_transaction(rig: Rig) -> None:
    """Three requests, and the records between the first two."""
    assert await rig.write() == await rig.write() == ["AddPartitionsToTxn", "EndTxn"]
    assert rig.sent == [True, True]


async def test_a_writer_that_is_not_open_writes_plainly(closed: Rig) -> None:
    """So a cluster that lets nobody open an id is served as before."""
    asked = await closed.write()

    assert (asked, closed.sent) == ([], [False])


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        pytest.param([ErrorCode.PRODUCER_FENCED], None, id="as it begins"),
        pytest.param([0], error_of(ErrorCode.INVALID_PRODUCER_EPOCH, "B", "Produce", "t-0"), id="by a leader"),
        pytest.param([0, ErrorCode.INVALID_PRODUCER_EPOCH], None, id="as it commits"),
    ],
)
async def test_a_fence_is_final_and_told_once(rig: Rig, answers: list[int], error: Exception | None) -> None:
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
    failed, epochs = rig.asked, [epoch for epoch, _ in rig.opened]

    assert failed == ["AddPartitionsToTxn", "EndTxn", "InitTransactions"]
    assert await rig.write() == ["AddPartitionsToTxn", "EndTxn"]
    assert epochs == [0]


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
    rig.brokers.versions = rig.brokers.versions | {INIT: (0, 1)}
    rig.brokers.break_connections()
    with pytest.raises(BrokerAnsweredError):
        await rig.write(error=error_of(ErrorCode.MESSAGE_TOO_LARGE, "B", "Produce", "t-0"))
    with pytest.raises(TakenOverError):
        await rig.write()

    assert rig.told == [ID]


async def test_a_time_that_brokers_allow_is_found(closed: Rig) -> None:
    """Their transaction.max.timeout.ms is lower than ours; where it is absurd, their error is raised."""
    too_long = int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    closed.brokers.answers = [too_long] * 2
    await closed.writer.open(closed.cluster)
    timeouts_ms = [timeout_ms for _, timeout_ms in closed.opened]
    closed.brokers.answers = [too_long] * 9
    with pytest.raises(BrokerAnsweredError, match="INVALID_TRANSACTION_TIMEOUT"):
        await fence(closed.cluster, ID)

    assert timeouts_ms == [15_000, 7_500, 3_750]
    assert closed.writer.is_open
