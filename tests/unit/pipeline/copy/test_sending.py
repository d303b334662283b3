"""To the target: order, sequences, how much at a time, when nothing more is sent, and any sequence of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.epoch import CopyLimits, Ended
from mm2py.pipeline.copy import broker_sender
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.wire.error_codes import ErrorCode
from tests.support.clocks import LoopClock, now
from tests.support.sending import LIMITS, REMOTE, Sender, drained, following, sender, settle


@asynccontextmanager
async def acquainted() -> AsyncIterator[Sender]:
    """Return a sender whose target has acknowledged a batch of it, so that several may be under way."""
    async with sender() as s:
        s.put(s.copies[0])
        await drained(s.sender)
        s.target.sent.clear()
        yield s


async def test_first_batch_of_a_partition_is_acknowledged_before_the_second_is_sent() -> None:
    """A broker takes any sequence from a producer that it does not know, so the first batch must be in first."""
    async with sender() as s:
        s.target.is_manual = True
        (copy,) = s.copies
        for _ in range(4):
            s.put(copy)
        await settle()

        assert len(s.line.requests) == 1
        s.answer()

        assert len(s.line.requests) == 2


@pytest.fixture
def all_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests of a few bytes be sent as if they were large."""
    monkeypatch.setattr(broker_sender, "_MUCH_BYTES", 0)


@pytest.mark.usefixtures("all_is_much")
async def test_no_more_requests_than_allowed_are_under_way() -> None:
    """Five requests and no more wait for their answers on one connection: a broker remembers five batches."""
    async with acquainted() as s:
        s.target.is_manual = True
        for _ in range(9):
            s.put(s.copies[0])
        await settle()

        assert len(s.line.requests) == 5
        s.answer()

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


@pytest.mark.parametrize(("first_ms", "then_ms", "held_s"), [(1_000, 3_000, 3.5), (3_000, 500, 3.0)])
async def test_quota_holds_until_the_longest_hold_is_over(first_ms: int, then_ms: int, held_s: float) -> None:
    """After throttled answers nothing is sent until each time that they asked for is over, whichever came last."""
    async with acquainted() as s:
        (copy,) = s.copies
        s.target.is_manual = True
        s.put(copy)
        s.put(copy)
        await settle()
        begun = now()
        for throttle_ms in (first_ms, then_ms):
            s.target.simulated.throttle_ms = throttle_ms
            s.answer()
            await asyncio.sleep(0.5)
        s.target.is_manual, s.target.simulated.throttle_ms = False, 0
        s.put(copy)
        await asyncio.sleep(0.5)

        assert len(s.values()) == 3
        await drained(s.sender)

        assert now() - begun == pytest.approx(held_s, abs=0.1)
        assert s.sender.throttled_ms == first_ms + then_ms


async def test_quota_holds_in_the_next_epoch_too() -> None:
    """
    A throttled answer comes shortly before an epoch ends; the broker reads nothing from the connection for 8 s more.

    What the next epoch sent at once would have no answer before its end, and all of its partitions would be unsure.
    """
    async with acquainted() as s:
        (copy,) = s.copies
        s.target.simulated.throttle_ms = 8_000
        s.put(copy)
        await drained(s.sender)
        begun, s.target.simulated.throttle_ms = now(), 0
        async with asyncio.TaskGroup() as tasks:
            following = attrs.evolve(s, sender=BatchSender(s.sender.target, LIMITS, LoopClock()))
            following.sender.start(tasks)
            following.put(copy)
            await drained(following.sender)
            following.sender.stop()

        assert now() - begun == pytest.approx(8.0, abs=0.1)
        assert len(s.target.connections) == 1


@pytest.mark.usefixtures("all_is_much")
@pytest.mark.parametrize(("throttle_ms", "under_way"), [(500, 3), (8_000, 1)])
async def test_after_a_long_hold_requests_go_one_by_one(throttle_ms: int, under_way: int) -> None:
    """What is sent after a request that exceeds the quota again would wait until the next hold is over."""
    async with acquainted() as s:
        (copy,) = s.copies
        s.target.simulated.throttle_ms = throttle_ms
        s.put(copy)
        await drained(s.sender)
        s.target.is_manual, s.target.simulated.throttle_ms = True, 0
        for _ in range(3):
            s.put(copy)
        await asyncio.sleep(throttle_ms / 1000 + 0.1)

        assert len(s.line.requests) == under_way


@pytest.mark.usefixtures("all_is_much")
@pytest.mark.parametrize("is_stopped", [True, False])
async def test_nothing_more_is_sent_by_a_dispatch_that_is_stopped_or_late(*, is_stopped: bool) -> None:
    """
    Nothing queued is sent then, also not when a pause ends, an answer arrives, or there is more to send.

    A worker may have been stopped itself (SIGSTOP), and go on after its partitions were planned again. Answers wait for
    it, and what it fetched, before its timers have a turn.
    """
    async with acquainted() as s:
        (copy,) = s.copies
        s.target.is_manual = True
        for _ in range(7):
            s.put(copy)
        await settle()
        if is_stopped:
            s.sender.stop()
        else:
            s.sender._last_send_at = now()
        s.answer(5)
        s.put(copy)
        await asyncio.sleep(5)

        assert s.values() == [0, 1, 2, 3, 4, 5]
        assert s.sender.requests == 6
        assert (copy.position, copy.outcome().is_unsure) == (6, False)


async def test_stop_does_not_wait_for_a_connection_being_opened() -> None:
    """A broker that takes ten seconds to refuse a connection does not keep the epoch from ending."""
    started = now()
    async with sender() as s:
        s.target.hanging = {0}
        s.put(s.copies[0])
        await asyncio.sleep(1)

    assert now() - started < 1.5


async def test_discarded_batches_free_the_buffer_and_leave_doubt_only_where_sent() -> None:
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


# Any sequence of events on the way to the target.


REJECTIONS = {
    "reject": (ErrorCode.NOT_ENOUGH_REPLICAS, False),
    "reject after append": (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
}
STEPS = ["put", "put", "process", "process", "deliver", "drop", "move", "wait", *REJECTIONS]


async def take(s: Sender, step: str, number: int, count: int, failing: list[tuple[int, bool]]) -> None:
    """Let one thing happen: to a partition, to a connection, or to the next batch that a broker takes."""
    lines = [c for c in s.target.connections if not c.is_closed]
    if step == "put":
        s.put(s.copies[number], count)
    elif step == "wait":
        await asyncio.sleep(count * 0.05)
    elif step == "move":
        s.target.partition(REMOTE, number).lead(count % 2)
    elif step in REJECTIONS:
        failing.append(REJECTIONS[step])
    elif lines:
        line = lines[number % len(lines)]
        {"process": line.process, "deliver": line.deliver, "drop": line.hang_up}[step]()


@settings(deadline=None, max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(1, 4)), max_size=60))
async def test_log_holds_every_record_once_and_in_order(steps: Sequence[tuple[str, int, int]]) -> None:
    """
    Whatever brokers, leaders and connections do, each record is in the target's log once, in order.

    And at every moment the position is behind records that the log holds: it advances by acknowledgements only.
    """
    async with sender(partitions=3, brokers=2) as s, following(s):
        s.target.is_manual = True
        failing: list[tuple[int, bool]] = []
        s.target.produce_fault = lambda _tp, _raw: failing.pop() if failing else None
        for step in steps:
            await take(s, *step, failing)
            for copy in s.copies:
                assert s.values(copy.remote.partition)[: copy.position] == list(range(copy.position))
        await asyncio.sleep(0.01)
        failing.clear()
        s.target.is_manual = False
        s.target.drop()
        if s.sender.buffered_bytes:
            await drained(s.sender)
        for copy in s.copies:
            wanted = copy.fetching.position.offset

            assert s.values(copy.remote.partition) == list(range(wanted))
            assert (copy.position, copy.outcome().is_unsure, copy.ended) == (wanted, False, Ended.OK)
            assert [(run.upstream, run.downstream, run.length) for run in copy.runs] == [(0, 0, wanted)][: wanted > 0]
