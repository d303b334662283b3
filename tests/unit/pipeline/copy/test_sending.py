"""To the target: order, sequences, what each answer means, and what a broker's log holds in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest

from mm2py.model.epoch import CopyLimits, Ended, PartitionFailure, ProducerMark
from mm2py.wire.batches.batch import sign
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import START_MS, Content, build_batch
from tests.support.sending import PRODUCER, Sender, drained, sender, settle


_FAILURE = PartitionFailure("read no further", "look at the source", offset=1)


@asynccontextmanager
async def acquainted() -> AsyncIterator[Sender]:
    """Return a sender whose target has acknowledged a batch of it, so that several may be under way."""
    async with sender() as s:
        s.put(s.copies[0])
        await drained(s.sender)
        s.target.sent.clear()
        yield s


async def test_parcels_arrive_in_order_with_running_sequences() -> None:
    """Batches of a partition arrive in order; each takes the sequences after its predecessor's."""
    async with sender() as s:
        (copy,) = s.copies
        for count in (3, 1, 7, 2):
            s.put(copy, count)
        await drained(s.sender)

        assert s.values() == list(range(13))
        assert copy.sending.producer == ProducerMark(7, 0, 13)
        assert (copy.position, copy.downstream, copy.records) == (13, 12, 13)
        assert s.sender.buffered_bytes == copy.buffer.size_bytes == 0


async def test_sequences_go_on_in_the_next_epoch() -> None:
    """A producer mark that comes with the position continues its sequences, and the target knows it."""
    async with sender() as first:
        first.put(first.copies[0], 4)
        await drained(first.sender)
        log = first.target.partitions
        mark = first.copies[0].sending.producer
    assert mark is not None
    async with sender(producer=mark) as second:
        second.target.partitions = log
        (copy,) = second.copies
        copy.fetching.position.offset, copy.downstream = 4, 3
        second.put(copy, 2)
        second.put(copy, 2)
        await drained(second.sender)

        assert second.values() == list(range(8))
        assert copy.sending.producer == ProducerMark(7, 0, 8)


async def test_batch_of_a_lost_epoch_that_arrives_late_is_refused() -> None:
    """The next epoch sends from the same sequence on, so what the lost one had sent cannot be appended after it."""
    async with sender() as lost:
        lost.target.is_manual = True
        lost.put(lost.copies[0], 3)
        await settle()
        late = lost.line.requests[0]
        target = lost.target
    async with sender() as s:
        s.target.partitions = target.partitions
        for count in (2, 5):
            s.put(s.copies[0], count)
        await drained(s.sender)
        late.answer = target.take(target.connections[0], late)

        assert s.values() == list(range(7))


async def test_batch_of_a_lost_epoch_that_arrives_first_is_noticed() -> None:
    """What the lost epoch had sent meets the next one's sequence: the partition looks again before it sends more."""
    async with sender() as lost:
        lost.put(lost.copies[0], 3)
        await drained(lost.sender)
        log = lost.target.partitions
    async with sender() as s:
        s.target.partitions = log
        s.put(s.copies[0], 2)
        await drained(s.sender)
        outcome = s.copies[0].outcome()

        assert s.values() == [0, 1, 2]
        assert (outcome.ended, outcome.is_unsure, outcome.position) == (Ended.INTERRUPTED, True, 0)
        assert outcome.producer == ProducerMark(7, 0, 0, is_contested=True)


async def test_first_batch_of_a_partition_is_acknowledged_before_the_second_is_sent() -> None:
    """A broker takes any sequence from a producer that it does not know, so the first batch must be in first."""
    async with sender() as s:
        s.target.is_manual = True
        (copy,) = s.copies
        for _ in range(4):
            s.put(copy)
        await settle()

        assert len(s.line.requests) == 1
        s.line.process()
        s.line.deliver()

        assert len(s.line.requests) == 3


async def test_no_more_requests_than_allowed_are_under_way() -> None:
    """Five requests and no more wait for their answers on one connection: a broker remembers five batches."""
    async with acquainted() as s:
        s.target.is_manual = True
        for _ in range(9):
            s.put(s.copies[0])
        await settle()

        assert len(s.line.requests) == 5
        s.line.process()
        s.line.deliver()

        assert len(s.line.requests) == 5


async def test_one_request_carries_one_batch_of_each_partition() -> None:
    """Partitions that have something to send share a request, each with one batch, up to the request's size."""
    async with sender(partitions=4, limits=CopyLimits(produce_request_max_bytes=230)) as s:
        s.target.is_manual = True
        for copy in s.copies:
            for _ in range(2):
                s.put(copy, offer=False)
            s.sender.offer(copy)
        s.sender.pump()
        await settle()
        s.line.process()

        assert sorted(len(s.values(number)) for number in range(4)) == [0, 1, 1, 1]


async def test_batch_larger_than_a_request_goes_alone() -> None:
    """The size of a request bounds what is put together, not what is sent."""
    async with sender(partitions=2, limits=CopyLimits(produce_request_max_bytes=100)) as s:
        s.put(s.copies[0], 1)
        s.put(s.copies[1], 200)
        s.put(s.copies[0], 1)
        await drained(s.sender)

        assert (s.values(0), s.values(1)) == ([0, 1], list(range(200)))


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
        assert s.target.refreshes == 0
        assert s.sender.wants_metadata.is_set()
        assert s.sender.retries >= 1


@pytest.mark.parametrize("appended", [0, 1, 2, 3])
async def test_lost_connection_sends_again_what_was_unanswered(appended: int) -> None:
    """Whatever the broker had taken when the connection broke, every record is there once, in order."""
    async with sender() as s:
        (copy,) = s.copies
        s.put(copy)
        await drained(s.sender)
        s.target.is_manual = True
        for _ in range(3):
            s.put(copy, 2)
        line = s.line
        for _ in range(appended):
            line.process()
        s.target.is_manual = False
        line.close("reset by peer")

        assert copy.buffer.may_have_arrived
        await drained(s.sender)

        assert s.values() == list(range(7))
        assert (copy.position, copy.downstream, copy.is_unsure) == (7, 6, False)


async def test_leader_that_moves_is_followed() -> None:
    """A partition whose leader moved goes on at the new one, the others stay."""
    async with sender(partitions=2, brokers=2) as s:
        first, second = s.copies
        s.put(first)
        s.put(second)
        await settle()
        s.target.known_leaders = {copy.remote: number for number, copy in enumerate(s.copies)}
        s.target.partitions[first.remote].leader = 1
        s.put(first)
        s.put(second)
        await settle()

        assert s.sender.wants_metadata.is_set()
        assert first.retried_failure is not None
        await s.target.refresh_metadata([])
        await drained(s.sender)

        assert (s.values(0), s.values(1)) == ([0, 1], [0, 1])


async def test_partition_without_a_leader_waits_and_asks() -> None:
    """Without a leader the partition pauses with growing pauses, and goes on once there is one."""
    async with sender() as s:
        (copy,) = s.copies
        partition = s.target.partitions[copy.remote]
        partition.leader = None
        s.put(copy)
        await asyncio.sleep(3)

        assert copy.retried_failure is not None
        assert "no broker leads A.orders-0" in copy.retried_failure.message
        assert 3 <= copy.sending.retries <= 7
        assert not copy.buffer.may_have_arrived
        partition.leader = 0
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
        assert "connection refused" in (s.copies[1].retried_failure.message if s.copies[1].retried_failure else "")
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
        assert outcome.failure is not None
        assert (outcome.failure.error, outcome.failure.offset) == (code.name, 1)
        assert outcome.failure.hint
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
        assert outcome.failure is not None
        assert "re-created" in outcome.failure.hint
        assert s.values() == [0]


async def test_quota_holds_until_the_last_answer_says() -> None:
    """After throttled answers nothing is sent until the longest of the times that they asked for is over."""
    async with acquainted() as s:
        (copy,) = s.copies
        loop = asyncio.get_running_loop()
        s.target.is_manual = True
        s.put(copy)
        s.put(copy)
        await settle()
        s.target.throttle_ms = 1_000
        s.line.process()
        s.line.deliver()
        await asyncio.sleep(0.5)
        s.target.throttle_ms = 3_000
        s.line.process()
        s.line.deliver()
        until = loop.time() + 3
        s.target.is_manual, s.target.throttle_ms = False, 0
        s.put(copy)
        await asyncio.sleep(1)

        assert len(s.values()) == 3
        await drained(s.sender)

        assert loop.time() == pytest.approx(until, abs=0.1)
        assert s.sender.throttled_ms == 4_000


async def test_longer_hold_is_not_cut_short_by_a_shorter_one() -> None:
    """An answer that asks for less time than is left changes nothing."""
    async with acquainted() as s:
        (copy,) = s.copies
        loop = asyncio.get_running_loop()
        s.target.is_manual = True
        s.put(copy)
        s.put(copy)
        await settle()
        until = loop.time() + 3
        for throttle_ms in (3_000, 500):
            s.target.throttle_ms = throttle_ms
            s.line.process()
            s.line.deliver()
        s.target.is_manual, s.target.throttle_ms = False, 0
        s.put(copy)
        await drained(s.sender)

        assert loop.time() == pytest.approx(until, abs=0.1)


async def test_stopped_dispatch_sends_nothing_more() -> None:
    """Once stopped, nothing queued is sent, also not when a pause ends or an answer arrives."""
    async with acquainted() as s:
        (copy,) = s.copies
        s.target.is_manual = True
        for _ in range(7):
            s.put(copy)
        await settle()
        s.sender.stop()
        for _ in range(5):
            s.line.process()
            s.line.deliver()
        await asyncio.sleep(5)

        assert s.values() == [0, 1, 2, 3, 4, 5]
        assert s.sender.requests == 6
        assert (copy.position, copy.outcome().is_unsure) == (6, False)


async def test_nothing_is_sent_once_the_epochs_time_is_over_even_if_it_was_not_stopped() -> None:
    """
    A worker was stopped (SIGSTOP) with batches to send, and goes on after its partitions were planned again.

    Answers wait for it, and what it fetched, before its timers have a turn: neither makes it send anything.
    """
    async with acquainted() as s:
        (copy,) = s.copies
        s.target.is_manual = True
        for _ in range(7):
            s.put(copy)
        await settle()
        s.sender._last_send_at = asyncio.get_running_loop().time()
        for _ in range(5):
            s.line.process()
            s.line.deliver()
        s.put(copy)
        await asyncio.sleep(5)

        assert s.sender.requests == 6
        assert copy.position == 6


async def test_stop_does_not_wait_for_a_connection_being_opened() -> None:
    """A broker that takes ten seconds to refuse a connection does not keep the epoch from ending."""
    started = asyncio.get_running_loop().time()
    async with sender() as s:
        s.target.hanging = {0}
        s.put(s.copies[0])
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() - started < 1.5


async def test_discarded_parcels_free_the_buffer_and_leave_doubt_only_where_sent() -> None:
    """What an epoch could not send is forgotten; only a partition of which something was sent is unsure."""
    async with sender(partitions=2) as s:
        sent, unsent = s.copies
        s.target.is_frozen = True
        s.put(sent)
        await settle()
        s.put(unsent, offer=False)
        s.sender.stop()
        s.sender.close_unanswered()
        for copy in s.copies:
            s.sender.discard(copy)

        assert (sent.outcome().is_unsure, unsent.outcome().is_unsure) == (True, False)
        assert s.sender.buffered_bytes == 0


async def test_answer_that_leaves_a_partition_out_is_a_loss() -> None:
    """A partition that the answer does not mention is tried again."""
    async with sender() as s:
        (copy,) = s.copies
        s.target.is_manual = True
        s.put(copy)
        await settle()
        s.line.requests[0].answer = bytes.fromhex("00000000 00000000")
        s.line.deliver()

        assert copy.retried_failure is not None
        assert "does not mention" in copy.retried_failure.message
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
        line.requests[0].answer = bytes.fromhex("7fffffff fffa")
        s.target.is_manual = False
        line.deliver()

        assert line.is_closed
        assert copy.buffer.may_have_arrived
        await drained(s.sender)

        assert s.values() == list(range(7))
        assert (copy.position, copy.downstream, copy.is_unsure) == (7, 6, False)


async def test_nothing_is_sent_by_a_plan_that_is_void() -> None:
    """A machine that was suspended does not notice by the loop's time that its plan is hours old."""
    async with sender() as rig:
        rig.sender._void_after_ms = rig.sender.clock.wall_ms() - 1
        rig.put(rig.copies[0], 3)
        await settle()
        assert rig.values() == []

        rig.sender._void_after_ms = rig.sender.clock.wall_ms() + 1_000
        rig.sender.pump()
        await drained(rig.sender)
        assert rig.values() == [0, 1, 2]


async def test_a_batch_of_another_writer_is_noticed() -> None:
    """The broker takes our batch for a repetition of one that we have not sent: the next epoch compares."""
    async with sender() as rig:
        (copy,) = rig.copies
        copy.plan = attrs.evolve(copy.plan, keeps_timestamps=True)
        theirs = bytearray(build_batch([Content(0, START_MS, b"k", b"0")]))
        sign(memoryview(theirs), PRODUCER.producer_id, PRODUCER.producer_epoch, 0)
        rig.target.partitions[copy.remote].append(bytes(theirs))
        rig.put(copy, 1)
        await settle()

        assert (copy.ended, copy.is_unsure, copy.position) == (Ended.INTERRUPTED, True, 0)
        assert copy.failure is not None
        assert copy.failure.error == "Overtaken"
