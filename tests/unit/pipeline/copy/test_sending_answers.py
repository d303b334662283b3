"""What each answer of the target means: sent again, followed to another leader, or the partition's end."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.model.epoch import Ended, PartitionFailure, ProducerMark
from mm2py.wire.batches.batch import sign
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import START_MS, Content, build_batch
from tests.support.copy_rig import known
from tests.support.sending import PRODUCER, REMOTE, drained, sender, settle


_FAILURE = PartitionFailure("read no further", "look at the source", offset=1)
RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
]


@pytest.mark.parametrize("appends", [False, True], ids=["not appended", "appended"])
@pytest.mark.parametrize("code", [*RETRIED, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND], ids=lambda code: code.name)
async def test_retried_batches_keep_order_and_sequences(code: ErrorCode, appends: bool) -> None:
    """After a passing error all that is unacknowledged goes again, in order, with its sequences, and lands once."""
    async with sender() as s:
        (copy,) = s.copies
        s.put(copy)
        await drained(s.sender)
        faults = iter([(code, appends)] * 2)
        s.target.produce_fault = lambda _tp, _raw: next(faults, None)
        buffered_batches = [s.put(copy, 2) for _ in range(6)]
        await drained(s.sender)

        assert s.values() == list(range(13))
        assert [buffered.sequence for buffered in buffered_batches] == [1, 3, 5, 7, 9, 11]
        assert (copy.position, copy.is_unsure, copy.retried_failure, copy.ended) == (13, False, None, Ended.OK)
        assert s.target.asked("Metadata") == 1
        assert s.sender.wants_metadata.is_set()
        assert s.sender.retries >= 1


async def test_partition_without_a_leader_waits_and_asks() -> None:
    """Without a leader the partition pauses with growing pauses, and goes on once there is one."""
    async with sender() as s:
        (copy,) = s.copies
        s.target.partition(REMOTE).lead(None)
        await s.target.refresh_metadata([REMOTE])
        s.put(copy)
        await asyncio.sleep(3)

        assert "no broker leads A.orders-0" in known(copy.retried_failure).message
        assert 3 <= copy.sending.retries <= 7
        assert not copy.buffer.may_have_arrived
        s.target.partition(REMOTE).lead(0)
        await s.target.refresh_metadata([REMOTE])
        await drained(s.sender)

        assert s.values() == [0]


async def test_broker_that_refuses_connections_is_tried_again() -> None:
    """A broker that is away pauses its partitions only, and gets their batches once it is back."""
    async with sender(partitions=2, brokers=2) as s:
        s.target.down = {1}
        s.put(s.copies[0])
        s.put(s.copies[1])
        await asyncio.sleep(2)

        assert (s.values(0), s.values(1)) == ([0], [])
        assert "connection refused" in known(s.copies[1].retried_failure).message
        s.target.down = set()
        await drained(s.sender)

        assert s.values(1) == [0]


CONTESTED = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER]
FORGOTTEN = [
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
]
REFUSED = [
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
]


@pytest.mark.parametrize(
    ("code", "ended", "producer"),
    [
        *((code, Ended.INTERRUPTED, ProducerMark(7, 0, 1, is_contested=True)) for code in CONTESTED),
        *((code, Ended.INTERRUPTED, None) for code in FORGOTTEN),
        *((code, Ended.FAILED, ProducerMark(7, 0, 1)) for code in REFUSED),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_fatal_answers_end_the_partition_unsure_and_no_other(
    code: ErrorCode, ended: Ended, producer: ProducerMark | None
) -> None:
    """
    What cannot be retried ends its partition with a hint, unsure; others go on.

    The position keeps the sequence that goes with it, unless the broker has no use for the producer id any more.
    """
    async with sender(partitions=2) as s:
        sick, well = s.copies
        s.put(sick)
        s.put(well)
        await drained(s.sender)
        s.target.produce_fault = lambda tp, _raw: (code, False) if tp == sick.remote else None
        for _ in range(3):
            s.put(sick)
            s.put(well)
        await drained(s.sender)
        s.put(sick)
        outcome = sick.outcome()

        assert (outcome.ended, outcome.is_unsure, outcome.position) == (ended, True, 1)
        failure = known(outcome.failure)
        assert (failure.error, failure.offset) == (code.name, 1)
        assert failure.hint
        assert outcome.producer == producer
        assert (s.values(0), s.values(1)) == ([0], [0, 1, 2, 3])
        assert (well.position, well.is_unsure) == (4, False)
        assert not s.sender.unanswered


async def test_refusal_of_a_partition_that_had_ended_is_not_sent_again() -> None:
    """A partition that met a corrupt source batch and is then refused by the target gives up, for the first reason."""
    async with sender() as s:
        (copy,) = s.copies
        s.put(copy)
        await drained(s.sender)
        s.target.produce_fault = lambda _tp, _raw: (ErrorCode.INVALID_RECORD, False)
        s.put(copy)
        copy.end(Ended.FAILED, attrs.evolve(_FAILURE, error="CorruptBatchError"))
        requests = s.sender.requests
        await drained(s.sender)
        await asyncio.sleep(5)

        assert s.sender.requests == requests
        assert copy.outcome().failure == attrs.evolve(_FAILURE, error="CorruptBatchError")
        assert copy.outcome().is_unsure


@pytest.mark.parametrize("error", ["CORRUPT_MESSAGE", "TOPIC_AUTHORIZATION_FAILED", "OFFSET_OUT_OF_RANGE"])
async def test_partition_that_ended_at_the_source_still_sends_what_it_has(error: str) -> None:
    """A source's refusal has the name of a target's, but what was read before it goes through passing trouble."""
    async with sender() as s:
        (copy,) = s.copies
        faults = iter([(ErrorCode.NOT_ENOUGH_REPLICAS, False)] * 2)
        s.target.produce_fault = lambda _tp, _raw: next(faults, None)
        s.put(copy)
        s.put(copy)
        copy.end(Ended.FAILED, attrs.evolve(_FAILURE, error=error))
        await drained(s.sender)

        assert s.values() == [0, 1]
        assert (copy.position, copy.outcome().is_unsure) == (2, False)


async def test_target_that_became_shorter_ends_the_partition() -> None:
    """A batch that lands at or below the last known downstream offset means a truncated or re-created remote topic."""
    async with sender() as s:
        (copy,) = s.copies
        copy.downstream = 499
        s.put(copy)
        s.put(copy)
        await drained(s.sender)
        outcome = copy.outcome()

        assert (outcome.ended, outcome.position, outcome.downstream) == (Ended.TARGET_REWOUND, 0, 499)
        assert outcome.is_unsure
        assert "re-created" in known(outcome.failure).hint
        assert s.values() == [0]


async def test_answer_that_leaves_a_partition_out_is_a_loss() -> None:
    """A partition that the answer does not mention is tried again."""
    async with sender() as s:
        (copy,) = s.copies
        s.target.is_manual = True
        s.put(copy)
        await settle()
        s.line.answer_with(bytes.fromhex("00000000 00000000"))
        s.line.deliver()

        assert "does not mention" in known(copy.retried_failure).message
        s.target.is_manual = False
        await drained(s.sender)

        assert s.values() == [0]


async def test_an_answer_that_cannot_be_read_is_a_lost_connection() -> None:
    """It is unknown what the broker took, so all of it is sent again; nothing waits for the lost answers."""
    async with sender() as s:
        (copy,) = s.copies
        s.put(copy)
        await drained(s.sender)
        s.target.is_manual = True
        for _ in range(3):
            s.put(copy, 2)
        line = s.line
        line.process()
        line.answer_with(bytes.fromhex("7fffffff fffa"))
        s.target.is_manual = False
        line.deliver()

        assert line.is_closed
        assert copy.buffer.may_have_arrived
        await drained(s.sender)

        assert s.values() == list(range(7))
        assert (copy.position, copy.downstream, copy.is_unsure) == (7, 6, False)


async def test_a_batch_of_another_writer_is_noticed() -> None:
    """
    The broker takes our batch for a repetition of one that this epoch has not sent: the next one compares.

    It may be another node's. It may be our own as well, if a quota held it up until the epoch before was over.
    """
    async with sender() as rig:
        (copy,) = rig.copies
        copy.plan = attrs.evolve(copy.plan, keeps_timestamps=True)
        theirs = bytearray(build_batch([Content(0, START_MS, b"k", b"0")]))
        sign(memoryview(theirs), PRODUCER.producer_id, PRODUCER.producer_epoch, 0)
        rig.target.partition(REMOTE).load(bytes(theirs))
        rig.put(copy, 1)
        await settle()

        assert (copy.ended, copy.is_unsure, copy.position) == (Ended.INTERRUPTED, True, 0)
        assert known(copy.failure).error == "Overtaken"
        assert "sent earlier, or by another node" in known(copy.failure).message
