"""A transactional producer and its coordinator: what is asked again, of whom, and what is final."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.wire.batches.batch import batches
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.transactions import ProducerFencedError, TransactionalProducer
from tests.support.batches import build_batch
from tests.support.coordinators import Coordinators


ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
LOST = BrokerConnectionError("B", "1", "gone")


async def opened(*answers: Any) -> tuple[TransactionalProducer, Coordinators]:
    """Open a producer whose coordinator says these things from then on."""
    coordinators = Coordinators()
    producer = TransactionalProducer(cast("Cluster", coordinators), "mm2py-A->B-x", 60_000)
    await producer.open()
    coordinators.asked.clear()
    coordinators.answers = list(answers)
    return producer, coordinators


async def test_the_last_transactions_markers_are_waited_for() -> None:
    """While the coordinator writes them it takes no further partition; that takes milliseconds, and so does asking."""
    producer, coordinators = await opened(*[ErrorCode.CONCURRENT_TRANSACTIONS] * 5)
    begun = coordinators.clock.monotonic()
    await producer.add([ONE])

    assert len(coordinators.asked) == 6
    assert coordinators.clock.monotonic() - begun < 0.1


@pytest.mark.parametrize("answer", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, LOST])
async def test_a_coordinator_that_moved_or_is_gone_is_looked_up(answer: Any) -> None:
    """The same is asked of the next one; a commit, too: it answers as if it had been asked once."""
    producer, coordinators = await opened(answer)
    await producer.commit()

    assert coordinators.asked == [(1, "EndTxn"), (2, "EndTxn")]


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_fence_is_final(code: ErrorCode) -> None:
    """Whatever the coordinator calls it, it is not asked again."""
    producer, coordinators = await opened(code)
    with pytest.raises(ProducerFencedError, match="taken over transactional id mm2py-A->B-x"):
        await producer.add([ONE])

    assert len(coordinators.asked) == 1


async def test_renewing_undoes_what_is_open_and_takes_nothing_from_another() -> None:
    """The producer that was is named, so that the coordinator refuses it if another one has opened the id since."""
    producer, coordinators = await opened(ErrorCode.INVALID_TXN_STATE, 0, 0, ErrorCode.INVALID_PRODUCER_EPOCH)
    before = producer.mark(ONE)
    producer.wrote(ONE, 5)
    await producer.renew()
    after = producer.mark(ONE)
    with pytest.raises(ProducerFencedError):
        await producer.renew()

    assert coordinators.names == ["EndTxn", "InitTransactions"] * 2
    assert coordinators.renewed == [(before.producer_id, before.producer_epoch), (7, after.producer_epoch)]
    assert after.sequence == 0


async def test_an_error_is_told_in_its_own_words() -> None:
    """One partition's error tells more than that the others were not attempted, and what to grant on which topic."""
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    producer, _ = await opened([("t", [(0, ErrorCode.OPERATION_NOT_ATTEMPTED), (1, refused)])])
    with pytest.raises(NotAuthorizedError) as caught:
        await producer.add([ONE, TWO])

    assert caught.value.grant == "WRITE on topic t"


async def test_a_timeout_that_brokers_do_not_take_names_the_setting() -> None:
    """It is no use to ask again: the operator has to choose another one."""
    producer, _ = await opened(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    with pytest.raises(BrokerAnsweredError, match=r"lower producer\.transaction\.timeout\.ms"):
        await producer.open()


async def test_what_stays_wrong_is_raised() -> None:
    """Retrying ends with the request's time."""
    producer, coordinators = await opened(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000)
    with pytest.raises(BrokerAnsweredError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await producer.commit()

    assert coordinators.clock.monotonic() >= coordinators.endpoint.request_timeout_ms / 1000


async def test_a_partition_is_added_once_to_each_transaction() -> None:
    """What belongs to it already is not asked for again, but for the next one it is."""
    producer, coordinators = await opened()
    for partitions in ([ONE], [ONE], [ONE, TWO]):
        await producer.add(partitions)
    await producer.commit()
    await producer.add([ONE])

    assert coordinators.names == ["AddPartitionsToTxn", "AddPartitionsToTxn", "EndTxn", "AddPartitionsToTxn"]


async def test_sequences_count_on_until_it_is_opened_again() -> None:
    """Sequences belong to a partition and an epoch, and count batches written here and by workers."""
    producer, _ = await opened()
    epoch = producer.mark(ONE).producer_epoch
    (signed,) = batches(memoryview(producer.signed(ONE, build_batch(5))))
    await producer.commit()
    producer.wrote(TWO, 40)
    marks = producer.mark(ONE), producer.mark(TWO)
    await producer.open()

    assert signed.is_transactional
    assert (signed.producer_id, signed.producer_epoch) == (7, epoch)
    assert marks == (ProducerMark(7, epoch, 5), ProducerMark(7, epoch, 40))
    assert producer.mark(ONE).sequence == producer.mark(TWO).sequence == 0
