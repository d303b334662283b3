"""A transactional producer and its coordinator: what is asked again, of whom, and what is final."""

from __future__ import annotations

import attrs
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
from tests.support.fake_brokers import (
    ADD_PARTITIONS,
    FIND_COORDINATOR,
    INIT,
    FakeBrokers,
    FakePartition,
    FakeTopic,
    says,
)


ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
LOST = BrokerConnectionError("B", "1", "gone")


@attrs.define
class Rig:
    """A producer that was opened, and its coordinator."""

    brokers: FakeBrokers
    cluster: Cluster
    producer: TransactionalProducer

    def answer(self, *answers: int | Exception) -> TransactionalProducer:
        """Have the coordinator say these things from now on, and forget what it was asked."""
        self.brokers.answers = list(answers)
        self.brokers.requests.clear()
        return self.producer


@pytest.fixture
async def rig(brokers: FakeBrokers, cluster: Cluster) -> Rig:
    brokers.topics = {"t": FakeTopic([FakePartition(), FakePartition()])}
    producer = TransactionalProducer(cluster, "mm2py-A->B-x", 60_000)
    await producer.open()
    return Rig(brokers, cluster, producer)


async def test_the_last_transactions_markers_are_waited_for(rig: Rig) -> None:
    """While the coordinator writes them it takes no further partition; that takes milliseconds, and so does asking."""
    rig.brokers.latency_s, begun = 0.0, rig.cluster.clock.monotonic()
    await rig.answer(*[ErrorCode.CONCURRENT_TRANSACTIONS] * 5).add([ONE])

    assert len(rig.brokers.asked) == 6
    assert rig.cluster.clock.monotonic() - begun < 0.1


@pytest.mark.parametrize("answer", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, LOST])
async def test_a_coordinator_that_moved_or_is_gone_is_looked_up(rig: Rig, answer: int | Exception) -> None:
    """The same is asked of the next one; a commit, too: it answers as if it had been asked once."""
    await rig.producer.add([ONE])
    await rig.answer(answer).commit()

    assert rig.brokers.asked == ["EndTxn", "EndTxn"]
    assert len(rig.brokers.requests_of(FIND_COORDINATOR)) == 1


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
async def test_a_fence_is_final(rig: Rig, code: ErrorCode) -> None:
    """Whatever the coordinator calls it, it is not asked again."""
    with pytest.raises(ProducerFencedError, match="taken over transactional id mm2py-A->B-x"):
        await rig.answer(code).add([ONE])

    assert len(rig.brokers.asked) == 1


async def test_renewing_undoes_what_is_open_and_takes_nothing_from_another(rig: Rig) -> None:
    """The producer that was is named, so that the coordinator refuses it if another one has opened the id since."""
    producer = rig.answer()
    before = producer.mark(ONE)
    producer.wrote(ONE, 5)
    await producer.renew()
    after = producer.mark(ONE)
    await TransactionalProducer(rig.cluster, producer.transactional_id, 60_000).open()
    with pytest.raises(ProducerFencedError):
        await producer.renew()

    opened = [(it.producer_id, it.producer_epoch) for _, it in rig.brokers.requests_of(INIT)]
    assert opened[:1] == [(before.producer_id, before.producer_epoch)]
    assert rig.brokers.asked == ["EndTxn", "InitTransactions", "InitTransactions", "EndTxn"]
    assert after.producer_epoch > before.producer_epoch
    assert after.sequence == 0


async def test_an_error_is_told_in_its_own_words(rig: Rig) -> None:
    """One partition's error tells more than that the others were not attempted, and what to grant on which topic."""
    refused = [(0, ErrorCode.OPERATION_NOT_ATTEMPTED), (1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    rig.brokers.script(ADD_PARTITIONS, says(0, [("t", refused)]))
    with pytest.raises(NotAuthorizedError) as caught:
        await rig.producer.add([ONE, TWO])

    assert caught.value.grant == "WRITE on topic t"


async def test_a_timeout_that_brokers_do_not_take_names_the_setting(rig: Rig) -> None:
    """It is no use to ask again: the operator has to choose another one."""
    too_long = TransactionalProducer(rig.cluster, "x", 1_000_000)
    with pytest.raises(BrokerAnsweredError, match=r"lower producer\.transaction\.timeout\.ms"):
        await too_long.open()


async def test_what_stays_wrong_is_raised(rig: Rig) -> None:
    """Retrying ends with the request's time."""
    begun = rig.cluster.clock.monotonic()
    with pytest.raises(BrokerAnsweredError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await rig.answer(*[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000).commit()

    assert rig.cluster.clock.monotonic() - begun >= rig.cluster.endpoint.request_timeout_ms / 1000


async def test_a_partition_is_added_once_to_each_transaction(rig: Rig) -> None:
    """What belongs to it already is not asked for again, but for the next one it is."""
    producer = rig.answer()
    for partitions in ([ONE], [ONE], [ONE, TWO]):
        await producer.add(partitions)
    await producer.commit()
    await producer.add([ONE])

    assert rig.brokers.asked == ["AddPartitionsToTxn", "AddPartitionsToTxn", "EndTxn", "AddPartitionsToTxn"]


async def test_sequences_count_on_until_it_is_opened_again(rig: Rig) -> None:
    """Sequences belong to a partition and an epoch, and count batches written here and by workers."""
    producer = rig.producer
    first = producer.mark(ONE)
    await producer.add([ONE, TWO])
    (signed,) = batches(memoryview(producer.signed(ONE, build_batch(5))))
    await producer.commit()
    producer.wrote(TWO, 40)
    marks = producer.mark(ONE), producer.mark(TWO)
    await producer.open()

    assert signed.is_transactional
    assert ProducerMark(signed.producer_id, signed.producer_epoch, 0) == first
    assert marks == (attrs.evolve(first, sequence=5), attrs.evolve(first, sequence=40))
    assert producer.mark(ONE).sequence == producer.mark(TWO).sequence == 0
