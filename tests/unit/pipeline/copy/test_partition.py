"""What a partition's copy knows: what waits, what is under way, and how acknowledgements add up to an outcome."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.epoch import (
    HISTOGRAM_BOUNDS_MS,
    Ended,
    MeasuredTime,
    PartitionFailure,
    PartitionPlan,
    ProducerMark,
    Run,
)
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.partition import BufferedBatch, PartitionCopy, Spread, Tally
from mm2py.wire.batches.batch import MAX_SEQUENCE


PLAN = PartitionPlan(TopicPartition("orders", 3), "A.orders", 100, 49, is_unsure=False)
TROUBLE = PartitionFailure("the target is away")


def copy_of(**changes: object) -> PartitionCopy:
    return PartitionCopy.of(attrs.evolve(PLAN, **changes))


def buffered(first: int, count: int, *, size: int = 10, next_upstream: int | None = None) -> BufferedBatch:
    return BufferedBatch(memoryview(bytearray(size)), count, first, next_upstream or first + count, 1_000)


def send(copy: PartitionCopy, sequence: int = 0) -> BufferedBatch:
    sent = copy.buffer.queue.popleft()
    sent.sequence = sequence
    copy.buffer.in_flight.append(sent)
    return sent


def acknowledge(copy: PartitionCopy, base_offset: int) -> None:
    copy.account(copy.buffer.in_flight.popleft(), base_offset)


def test_a_new_leader_epoch_is_a_new_fetch_position() -> None:
    """The fetch session of the epoch before compares what it has told the broker with it."""
    copy = copy_of()
    told = copy.fetching.position
    told.is_proven = True
    copy.fetching.expect_leader(-1)
    same = copy.fetching.position
    copy.fetching.expect_leader(4)
    now = copy.fetching.position

    assert same is told
    assert (told.leader_epoch, now.leader_epoch) == (-1, 4)
    assert (now.owner, now.offset, now.is_proven) == (copy, 100, False)


def test_rebuilt_batch_accounts_for_each_of_its_runs() -> None:
    """A batch with holes in its upstream offsets becomes a run for each part without holes, and counts as rebuilt."""
    copy = copy_of()
    copy.buffer.put(BufferedBatch(memoryview(bytearray(9)), 4, 101, 110, 7, ((101, 0, 1), (103, 1, 2), (107, 3, 1))))
    send(copy)
    acknowledge(copy, 50)

    assert copy.runs == [Run(101, 50, 1), Run(103, 51, 2), Run(107, 53, 1)]
    assert (copy.position, copy.downstream, copy.batches_rebuilt) == (110, 53, 1)


def test_runs_join_only_where_both_sides_go_on() -> None:
    """A gap upstream or downstream begins a new run."""
    copy = copy_of()
    for first, base in ((100, 50), (102, 52), (105, 54), (107, 60)):
        copy.buffer.put(buffered(first, 2))
        send(copy)
        acknowledge(copy, base)

    assert copy.runs == [Run(100, 50, 4), Run(105, 54, 2), Run(107, 60, 2)]


@pytest.mark.parametrize(
    ("downstream", "base", "expected"), [(49, 50, 0), (49, 53, 3), (-1, 0, 0), (-1, 4, 4), (None, 70, 0)]
)
def test_foreign_records_are_counted(downstream: int | None, base: int, expected: int) -> None:
    """Downstream offsets between ours are another producer's records; without a known last one none are counted."""
    copy = copy_of(downstream=downstream)
    copy.buffer.put(buffered(100, 1))
    send(copy)
    acknowledge(copy, base)

    assert copy.foreign_records == expected


def test_what_is_passed_over_counts_once_all_before_it_arrived() -> None:
    """Offsets with nothing to copy move the position at once, or with the batch before them, and never back."""
    copy = copy_of()
    copy.pass_over(103)
    copy.pass_over(90)

    assert copy.position == 103
    copy.buffer.put(buffered(103, 2))
    copy.pass_over(107)
    copy.buffer.put(buffered(107, 1))
    send(copy)
    send(copy)
    copy.pass_over(109)

    assert copy.position == 103
    acknowledge(copy, 50)

    assert copy.position == 107
    acknowledge(copy, 52)

    assert copy.position == 109


def test_sequence_goes_with_the_position() -> None:
    """The producer's mark names the sequence that the record at the position must carry, and wraps as sequences do."""
    copy = copy_of(producer=ProducerMark(7, 2, MAX_SEQUENCE - 1))
    copy.buffer.put(buffered(100, 5))
    copy.buffer.put(buffered(105, 2))
    send(copy)

    assert copy.sending.producer == ProducerMark(7, 2, MAX_SEQUENCE - 1)
    acknowledge(copy, 50)

    assert copy.sending.producer == ProducerMark(7, 2, 3)
    copy.sending.forget_producer()

    assert copy.outcome().producer is None


@pytest.mark.parametrize(("records", "is_contested"), [(0, True), (4, False)])
def test_what_was_found_at_the_target_used_sequences(records: int, is_contested: bool) -> None:
    """Records found at the target move position and sequence together, and explain why a sequence was refused."""
    copy = copy_of(producer=ProducerMark(7, 2, 10, is_contested=True))
    copy.continue_after(99 + records, 49 + records, records)

    assert copy.position == copy.fetching.position.offset == 100 + records
    assert copy.downstream == 49 + records
    assert copy.sending.producer == ProducerMark(7, 2, 10 + records, is_contested)
    assert copy.sending.next_sequence == 10 + records


def test_first_reason_to_end_is_kept() -> None:
    """A partition ends once; what comes later is a consequence."""
    copy = copy_of()
    copy.end(Ended.FAILED, PartitionFailure("first"))
    copy.end(Ended.INTERRUPTED, PartitionFailure("second"))
    outcome = copy.outcome()

    assert (outcome.ended, outcome.failure) == (Ended.FAILED, PartitionFailure("first"))


def test_outcome_without_news_is_the_plan() -> None:
    """A partition that nothing happened to reports its plan's position."""
    outcome = copy_of().outcome()

    assert (outcome.position, outcome.downstream, outcome.is_unsure, outcome.ended) == (100, 49, False, Ended.OK)
    assert (outcome.runs, outcome.records, outcome.log.high_watermark) == ((), 0, -1)


@pytest.mark.parametrize(
    ("state", "is_unsure"),
    [
        pytest.param("queued", False, id="queued and never sent"),
        pytest.param("in flight", True, id="in flight"),
        pytest.param("back in the queue", True, id="sent once and waiting to be sent again"),
        pytest.param("behind one sent once", True, id="not the first in the queue"),
    ],
)
def test_what_was_sent_and_not_answered_makes_unsure(state: str, is_unsure: bool) -> None:
    """Whatever was sent without an answer may be at the target; what was only queued cannot be."""
    copy = copy_of()
    copy.buffer.put(buffered(100, 1))
    copy.buffer.put(buffered(101, 1))
    if state != "queued":
        send(copy)
    if state in {"back in the queue", "behind one sent once"}:
        copy.buffer.queue.appendleft(copy.buffer.in_flight.popleft())

    assert copy.outcome().is_unsure is is_unsure


@pytest.mark.parametrize(
    ("records", "in_flight", "is_unsure", "expected"),
    [
        pytest.param(False, False, False, Ended.INTERRUPTED, id="nothing copied because of it"),
        pytest.param(True, False, False, Ended.OK, id="copied and overcome"),
        pytest.param(True, True, False, Ended.INTERRUPTED, id="something is still unanswered"),
        pytest.param(True, False, True, Ended.INTERRUPTED, id="still unsure"),
    ],
)
def test_trouble_interrupts_only_where_it_lasted(
    records: bool, in_flight: bool, is_unsure: bool, expected: Ended
) -> None:
    """Trouble that was overcome is not the epoch's result; trouble that kept it from copying is."""
    copy = copy_of(is_unsure=is_unsure)
    copy.buffer.put(buffered(100, 1))
    copy.buffer.put(buffered(101, 1))
    if records:
        send(copy)
        acknowledge(copy, 50)
    if in_flight:
        send(copy)
    copy.retried_failure = TROUBLE
    outcome = copy.outcome()

    assert outcome.ended is expected
    assert outcome.failure == (TROUBLE if expected is Ended.INTERRUPTED else None)


def test_detaching_lets_the_answers_memory_go() -> None:
    """A batch that moves into memory of its own keeps its bytes and no longer holds the answer; it moves once."""
    answer = bytearray(range(200))
    held = BufferedBatch(memoryview(answer)[50:60], 1, 0, 1, -1)
    held.detach()
    own = held.batch.obj
    held.detach()

    assert bytes(held.batch) == bytes(range(50, 60))
    assert held.batch.obj is own is not answer
    assert not held.batch.readonly


@given(st.lists(st.tuples(st.floats(-5, 1e9, allow_nan=False), st.integers(1, 1000)), max_size=30))
def test_tally_counts_each_record_into_its_bucket(values: list[tuple[float, int]]) -> None:
    """Every record is in the first bucket whose bound it does not exceed; sum and extremes are the values' own."""
    tally = Tally()
    for value, count in values:
        tally.add(value, count)
    histogram = tally.histogram()
    clean = [(max(value, 0.0), count) for value, count in values]
    bounds = (*HISTOGRAM_BOUNDS_MS, float("inf"))
    lower = (-1.0, *HISTOGRAM_BOUNDS_MS)

    assert histogram.counts == tuple(
        sum(count for value, count in clean if low < value <= high) for low, high in zip(lower, bounds, strict=True)
    )
    assert histogram.total_ms == pytest.approx(sum(value * count for value, count in clean))
    assert histogram.min_ms == min((value for value, _ in clean), default=None)
    assert histogram.max_ms == max((value for value, _ in clean), default=None)


layout = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2)), min_size=1, max_size=15)


@given(layout, st.data())
def test_runs_are_contiguous_and_positions_follow_acknowledgements(
    layout: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """
    Whatever lies between batches, and whenever they are sent and acknowledged.

    Runs cover each acknowledged record once and in order on both sides, and the position is behind exactly what is
    acknowledged and what follows it without data.
    """
    copy = copy_of()
    at, expected = 100, []
    buffered_batches = []
    for gap, count, behind in layout:
        at += gap
        buffered_batches.append(buffered(at, count, next_upstream=at + count + behind))
        at += count + behind
    waiting = list(buffered_batches)
    base = 50
    while waiting or copy.buffer.queue or copy.buffer.in_flight:
        steps = [
            *(["put"] if waiting else []),
            *(["send"] if copy.buffer.queue else []),
            *(["acknowledge"] if copy.buffer.in_flight else []),
        ]
        step = data.draw(st.sampled_from(steps))
        before = (copy.position, copy.downstream)
        if step == "put":
            copy.buffer.put(waiting.pop(0))
        elif step == "send":
            send(copy)
        else:
            oldest = copy.buffer.in_flight[0]
            acknowledge(copy, base)
            expected += [(oldest.first_upstream + n, base + n) for n in range(oldest.record_count)]
            base += oldest.record_count

            assert copy.position == oldest.next_upstream
            assert copy.downstream == base - 1
            continue

        assert before == (copy.position, copy.downstream)
    covered = [(run.upstream + n, run.downstream + n) for run in copy.runs for n in range(run.length)]

    assert covered == expected
    assert copy.buffer.size_bytes == 0
    assert (copy.records, copy.bytes, copy.last_timestamp_ms) == (len(expected), 10 * len(layout), 1_000)
    assert (copy.batches_unopened, copy.batches_rebuilt) == (len(layout), 0)


def test_a_spread_knows_what_a_partition_s_records_took() -> None:
    """Count, sum, least, greatest and last time of the records of each batch; before the first there is nothing."""
    empty, spread = Spread(), Spread()
    for value_ms, count in ((40, 10), (5, 2), (-30, 1), (8, 1)):
        spread.add(value_ms, count)

    assert empty.measured() is None
    assert spread.measured() == MeasuredTime(count=14, total_ms=418, min_ms=0, max_ms=40, last_ms=8)
    assert copy_of().outcome().latency is None
