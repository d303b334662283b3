"""How much of a partition a record task takes at once."""

from __future__ import annotations

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.offset_ranges import MICRO_BATCH_BYTES, RANGE_BYTES, Pace


def _plan(partition: int, position: int = 0) -> PartitionPlan:
    return PartitionPlan(TopicPartition("t", partition), "A.t", position, None, is_unsure=False)


def test_a_range_ends_with_the_source_or_before_a_bad_record() -> None:
    """Partitions with nothing to read are left out; a bound cuts a range."""
    plans = [_plan(0, 5), _plan(1, 5), _plan(2, 5)]
    ends = {TopicPartition("t", 0): 9, TopicPartition("t", 1): 5, TopicPartition("t", 2): 9}

    cut = Pace().cut(plans, ends, {TopicPartition("t", 2): 7})

    assert [(one.source.partition, one.position, one.until) for one in cut] == [(0, 5, 9), (2, 5, 7)]


def test_heavy_records_make_short_ranges() -> None:
    """What records weighed before bounds how many are held in memory; at least one is taken."""
    pace, source = Pace(), TopicPartition("t", 0)
    pace.learn(source, offsets=10, size_bytes=10 * RANGE_BYTES)

    (one,) = pace.cut([_plan(0)], {source: 1_000}, {})

    assert one.until == 1


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
    pace, source = Pace(), TopicPartition("t", 0)

    def length(end: int = 10**9) -> int:
        return pace.cut([_plan(0)], {source: end}, {})[0].until or 0

    whole = length()
    pace.ease()
    eased = length()
    for _ in range(20):
        pace.ease()
    least = length()
    for _ in range(50):
        pace.press_on(1, 60)

    assert eased == whole // 4
    assert least >= 1
    assert length() == whole


def test_less_is_taken_than_what_took_too_long() -> None:
    """All that there was to read was far less than could have been taken: the next range is shorter all the same."""
    pace, source = Pace(), TopicPartition("t", 0)
    assert pace.cut([_plan(0)], {source: 100}, {})[0].until == 100

    pace.ease()

    assert pace.cut([_plan(0)], {source: 100}, {})[0].until == 25


def test_what_took_nearly_all_of_its_time_does_not_grow() -> None:
    """Half as much again would be too late, and all of it for nothing."""
    pace, source = Pace(), TopicPartition("t", 0)
    pace.ease()
    before = pace.cut([_plan(0)], {source: 10**9}, {})

    pace.press_on(took_s=21, within_s=60)

    assert pace.cut([_plan(0)], {source: 10**9}, {}) == before
