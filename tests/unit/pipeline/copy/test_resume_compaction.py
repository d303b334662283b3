"""Finding out what has arrived where compaction or retention removed records since."""

from __future__ import annotations

import pytest

from mm2py.model.epoch import Ended
from tests.support.batches import LOG_APPEND_TIME, build_batch, flipped
from tests.support.copy_rig import known
from tests.support.resuming import ResumeRig, assert_resumed, known_pairs, record, rig_of


@pytest.fixture
def rig() -> ResumeRig:
    return rig_of()


async def test_last_record_that_is_gone_is_unproven(rig: ResumeRig) -> None:
    """If retention has emptied the target there is nothing to compare, and the failure reports that."""
    rig.write_source(range(20))
    rig.write_target(range(12))
    rig.downstream.batches.clear()
    rig.downstream.start = 12
    copy = await rig.resume(10, 9)

    assert copy.ended is Ended.UNPROVEN
    assert "is gone" in known(copy.failure).message


@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME])
async def test_compaction_since_the_crash_repeats_nothing(rig: ResumeRig, attributes: int) -> None:
    """
    The source no longer has all that arrived: how many there are proves nothing, what is in them does.

    40 records arrive past the position, the mirror is killed, and compaction leaves a few of them at the source.
    """
    rig.write_source(range(100))
    rig.write_target(range(50), attributes=attributes)
    rig.compact_source([3, 12, 20, 44, 60, 61, 99])
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=45, downstream=49, records=40)
    assert known_pairs(copy) == [(12, 12), (20, 20), (44, 44)]


async def test_more_at_the_target_than_compaction_left_at_the_source(rig: ResumeRig) -> None:
    """The source ends before as many records were counted as the target holds."""
    rig.write_source(range(50))
    rig.write_target(range(50))
    rig.compact_source([30, 49])
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=50, downstream=49, records=40)


async def test_javas_position_is_matched_although_the_source_was_compacted(rig: ResumeRig) -> None:
    """Of the target's last records the source still has some, in the same order, and the last of them."""
    rig.write_source(range(100))
    rig.write_target([500, 501, *range(50)])
    rig.compact_source([12, 20, 44, 49, 60, 61, 99])
    copy = await rig.resume(10, None)

    assert (copy.position, copy.downstream, copy.ended) == (50, 51, Ended.OK)
    assert known_pairs(copy) == [(20, 22), (44, 46), (49, 51)]


async def test_a_comparison_goes_on_where_the_last_epoch_left_it(
    rig: ResumeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one epoch has put beside each other is read no more by the next, on either side."""
    monkeypatch.setattr("mm2py.pipeline.copy.log_walk._WALK_BYTES", 1)
    rig.write_source(range(100))
    rig.write_target(range(50))
    rig.compact_source([*range(10, 40, 3), 44, 60])
    first = await rig.resume(10, 9, within_s=0.32)
    for log, passed in ((rig.upstream, 8), (rig.downstream, 10)):
        log.batches[:passed] = [(base, last, flipped(raw)) for base, last, raw in log.batches[:passed]]
    copy = await rig.resume(10, 9)

    assert (first.ended, first.is_unsure) == (Ended.OK, True)
    assert_resumed(rig, copy, position=45, downstream=49, records=40)
    assert not rig.walks


@pytest.mark.parametrize("downstream", [9, None])
async def test_what_was_there_before_is_not_counted_as_foreign(rig: ResumeRig, downstream: int | None) -> None:
    """After an unproven resume, records of other producers are counted from the target's end on."""
    rig.write_source(range(20))
    rig.write_target([*range(10), 999, 998])
    copy = await rig.resume(10, downstream)

    assert copy.ended is Ended.UNPROVEN
    assert (copy.outcome().position, copy.outcome().downstream) == (10, 11)


async def test_records_deleted_at_the_target_are_passed_over_at_once(rig: ResumeRig) -> None:
    """A target whose log begins far after the position is not asked for each offset that it has no more."""
    rig.write_source(range(5_000), batch=500)
    rig.write_target(range(4_990), batch=499)
    rig.downstream.batches = rig.downstream.batches[-1:]
    rig.downstream.start = rig.downstream.batches[0][0]
    rig.upstream.batches[5] = (2_500, 2_999, build_batch([record(2_500)], base_offset=2_500, last_offset_delta=499))
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=4_990, downstream=4_989, records=4_980)
    assert len(rig.target.sent) < 10


async def test_source_that_begins_behind_the_comparison_is_read_from_its_start(rig: ResumeRig) -> None:
    """Retention may have removed the records before the position that a match would like to see."""
    rig.write_source(range(40))
    rig.upstream.start = 30
    rig.upstream.batches = [b for b in rig.upstream.batches if b[0] >= 30]
    rig.write_target(range(33))
    copy = await rig.resume(30, None)

    assert_resumed(rig, copy, position=33, downstream=32, records=3)


async def test_source_that_has_lost_the_position_is_out_of_range(rig: ResumeRig) -> None:
    """Retention that overtook the position is reported as such."""
    rig.write_source(range(40))
    rig.upstream.start = 20
    rig.write_target(range(15))
    copy = await rig.resume(10, 9, within_s=3)

    assert copy.ended is Ended.OUT_OF_RANGE
