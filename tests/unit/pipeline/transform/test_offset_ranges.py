"""How much of a partition a record task takes at once."""

from __future__ import annotations

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.offset_ranges import MICRO_BATCH_BYTES, RANGE_BYTES, Pace


_SOURCE = TopicPartition("t", 0)


def _plan(partition: int, position: int = 0) -> PartitionPlan:
    return PartitionPlan(TopicPartition("t", partition), "A.t", position, None, is_unsure=False)


def _length(pace: Pace, end: int = 10**9) -> int:
    """Return how much is taken at once of a partition that ends there."""
    (one,) = pace.cut([_plan(0)], {_SOURCE: end}, {})
    return one.until or 0


def test_a_range_ends_with_the_source_or_before_a_bad_record() -> None:
    """Partitions with nothing to read are left out; a bound cuts a range."""
    plans = [_plan(0, 5), _plan(1, 5), _plan(2, 5)]
    ends = {TopicPartition("t", 0): 9, TopicPartition("t", 1): 5, TopicPartition("t", 2): 9}

    cut = Pace().cut(plans, ends, {TopicPartition("t", 2): 7})

    assert [(one.source.partition, one.position, one.until) for one in cut] == [(0, 5, 9), (2, 5, 7)]


def test_heavy_records_make_short_ranges() -> None:
    """What records weighed before bounds how many are held in memory; at least one is taken."""
    pace = Pace()
    pace.learn(_SOURCE, offsets=10, size_bytes=10 * RANGE_BYTES)

    assert _length(pace, 1_000) == 1


def test_many_partitions_share_what_a_round_may_hold() -> None:
    """All ranges of a round together stay within its memory."""
    pace = Pace()
    sources = [TopicPartition("t", number) for number in range(64)]
    for source in sources:
        pace.learn(source, offsets=1, size_bytes=1_000)

    cut = pace.cut([_plan(number) for number in range(64)], dict.fromkeys(sources, 10**6), {})

    assert sum((one.until or 0) * 1_000 for one in cut) <= MICRO_BATCH_BYTES


def test_what_took_too_long_is_cut_smaller_and_grows_again() -> None:
    """A range is a quarter as long after each transaction that lasted too long, and never empty."""
    pace = Pace()
    whole = _length(pace)
    pace.ease()
    eased = _length(pace)
    for _ in range(20):
        pace.ease()
    least = _length(pace)
    for _ in range(50):
        pace.press_on(1, 60)

    assert eased == whole // 4
    assert least >= 1
    assert _length(pace) == whole


def test_less_is_taken_than_what_took_too_long() -> None:
    """All that there was to read was far less than could have been taken: the next range is shorter all the same."""
    pace = Pace()
    before = _length(pace, 100)
    pace.ease()

    assert (before, _length(pace, 100)) == (100, 25)


def test_what_took_nearly_all_of_its_time_does_not_grow() -> None:
    """Half as much again would be too late, and all of it for nothing."""
    pace = Pace()
    pace.ease()
    before = _length(pace)
    pace.press_on(took_s=21, within_s=60)

    assert _length(pace) == before
