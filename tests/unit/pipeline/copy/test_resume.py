"""Finding out what has arrived: by count, by content, after compaction, and where nothing proves anything."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.epoch import Ended, PartitionPlan, Run
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.log_walk import LogWalker
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import (
    GZIP,
    LOG_APPEND_TIME,
    START_MS,
    TRANSACTIONAL,
    Content,
    build_batch,
    control_batch,
    flipped,
    legacy_messages,
    named_batch,
)
from tests.support.copy_rig import NEW_ID, OLD_ID, known
from tests.support.fake_brokers import FETCH
from tests.support.resuming import REMOTE, TOPIC, ResumeRig, assert_resumed, known_pairs, record, rig_of


@pytest.fixture
def rig() -> ResumeRig:
    return rig_of()


async def test_old_formats_are_counted(rig: ResumeRig) -> None:
    """Messages of magic 0 and 1 count as what they hold, from the position on."""
    rig.upstream.load(legacy_messages(1, [record(n, delta=n) for n in range(5)], codec=GZIP))
    rig.upstream.load(legacy_messages(1, [record(5)], base_offset=5))
    rig.downstream.load(build_batch([Content(n, START_MS + n, b"k%d" % n, b"%d" % n) for n in range(5)]))
    copy = await rig.resume(2, 1)

    assert_resumed(rig, copy, position=5, downstream=4, records=3)


async def test_aborted_transactions_count_only_where_they_were_copied(rig: ResumeRig) -> None:
    """With committed reading aborted records are not among what arrived; without it they are."""
    for first, producer in ((0, 1), (3, 2), (6, 1)):
        records = [record(first + delta, delta=delta) for delta in range(3)]
        rig.upstream.load(build_batch(records, base_offset=first, producer=(producer, 0, 0), attributes=TRANSACTIONAL))
    rig.upstream.load(control_batch(9, 1, commits=False), control_batch(10, 2, commits=True))
    rig.write_target([3, 4])
    committed = await rig.resume(0, -1, reads_committed=True)

    assert (committed.position, committed.resumed_records) == (5, 2)
    other = rig_of()
    other.upstream.load(*(batch.raw for batch in rig.upstream.batches))
    other.write_target([0, 1, 2, 3])
    uncommitted = await other.resume(0, -1)

    assert (uncommitted.position, uncommitted.resumed_records) == (4, 4)


@pytest.mark.parametrize("downstream", [0, None])
async def test_names_of_headers_that_are_no_text_are_compared(rig: ResumeRig, downstream: int | None) -> None:
    """A header's name need not be UTF-8: what was copied with such a name is found, and not another one's."""
    names = [b"h", b"caf\xe9", b"caf\xe8", b"\xff"]
    for offset, name in enumerate(names):
        rig.upstream.load(named_batch(name, base_offset=offset))
        rig.downstream.load(named_batch(name, base_offset=offset))
    rig.write_source(range(5))
    copy = await rig.resume(1, downstream)

    assert_resumed(rig, copy, position=4, downstream=3, records=3)


@pytest.mark.parametrize("records", [2, 5])
async def test_foreign_record_is_not_explained_away(rig: ResumeRig, records: int) -> None:
    """With another producer's record in the remote topic the last records differ, so the resume is unproven."""
    rig.write_source(range(20))
    rig.write_target([*range(10), 999, *range(10, 10 + records)])
    copy = await rig.resume(8, 7)

    assert not rig.resolved
    assert (copy.ended, copy.is_unsure, copy.position) == (Ended.UNPROVEN, True, 8)
    assert "should hold the same record" in known(copy.failure).message
    assert "another writer" in known(copy.failure).hint


async def test_target_that_holds_more_than_the_source_is_unproven(rig: ResumeRig) -> None:
    """More records at the target than the source has past the position cannot be copies of these."""
    rig.write_source(range(10))
    rig.write_target(range(30))
    copy = await rig.resume(5, 4)

    assert copy.ended is Ended.UNPROVEN
    assert "holds 25 records" in known(copy.failure).message
    assert "the source 5" in known(copy.failure).message


@pytest.mark.parametrize("end", [0, 5, 9])
async def test_shorter_target_is_never_silent(rig: ResumeRig, end: int) -> None:
    """A target that ends before the position's record was truncated or re-created."""
    rig.write_source(range(20))
    rig.write_target(range(end))
    copy = await rig.resume(10, 9)

    assert not rig.resolved
    assert copy.ended is Ended.TARGET_REWOUND
    assert f"ends at {end}" in known(copy.failure).message
    assert "re-created" in known(copy.failure).hint


async def test_target_that_may_not_be_read_is_unproven(rig: ResumeRig) -> None:
    """Without READ on the remote topic the copy goes on, at least once, and reports which right is missing."""
    rig.write_source(range(20))
    rig.write_target(range(12))
    rig.target.fetch_fault = lambda _tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    copy = await rig.resume(10, 9)

    assert copy.ended is Ended.UNPROVEN
    assert "READ" in known(copy.failure).message
    assert known(copy.failure).hint.startswith("grant User:ANONYMOUS READ on topic ")


async def test_a_target_that_may_not_be_described_either_is_waited_for(rig: ResumeRig) -> None:
    """The mirror loses all rights on the remote topic right before it compares: nothing can be written meanwhile."""
    rig.write_source(range(20))
    rig.write_target(range(12))

    def deny(_tp: TopicPartition) -> int:
        rig.target.simulated.denied_until[REMOTE] = math.inf
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    rig.target.fetch_fault = deny
    copy = await rig.resume(10, 9)

    assert copy.ended is not Ended.UNPROVEN
    assert not rig.resolved
    assert "DESCRIBE on topic A.orders of cluster B" in known(copy.retried_failure).hint


# Positions that Java wrote.


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_transaction_s_end_at_the_target_hides_no_record(rig: ResumeRig, *, is_committed: bool) -> None:
    """Java's exactly-once mode leaves markers between and after the records, and what it had not committed."""
    rig.write_source(range(20))
    rig.write_target(range(4))
    rig.downstream.load(control_batch(4, 9, commits=True))
    rig.write_target(range(4, 8))
    if not is_committed:
        aborted = [record(8 + delta, delta=delta) for delta in range(300)]
        rig.downstream.load(build_batch(aborted, base_offset=9, producer=(9, 0, 0), attributes=TRANSACTIONAL))
    end = rig.downstream.end
    rig.downstream.load(control_batch(end, 9, commits=is_committed))
    copy = await rig.resume(8, None)

    assert_resumed(rig, copy, position=8, downstream=end, records=0)
    assert known_pairs(copy) == [(number, number + number // 4) for number in range(8)]


async def test_records_before_a_large_aborted_transaction_are_not_all_held(rig: ResumeRig) -> None:
    """The last ones are compared, and no more fit into memory, where a thousand of them may be a gigabyte."""
    content = bytes(100_000)
    for number in range(500):
        batch = build_batch([Content(0, START_MS + number, b"%d" % number, content, ())], base_offset=number)
        rig.upstream.load(batch)
        rig.downstream.load(batch)
    aborted = [record(500 + delta, delta=delta) for delta in range(40)]
    rig.downstream.load(build_batch(aborted, base_offset=500, producer=(9, 0, 0), attributes=TRANSACTIONAL))
    rig.downstream.load(control_batch(540, 9, commits=False))
    tracemalloc.start()
    try:
        copy = await rig.resume(500, None)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert_resumed(rig, copy, position=500, downstream=540, records=0)
    assert most < 40_000_000


@pytest.mark.parametrize("more", [0, 5])
async def test_what_transactions_leave_behind_the_last_record_is_nothing(rig: ResumeRig, more: int) -> None:
    """A transform wrote in exactly-once mode, and is no longer there: its markers are not records of another writer."""
    rig.write_source(range(8 + more))
    rig.write_target(range(8))
    rig.downstream.load(control_batch(8, 9, commits=True))
    rig.downstream.load(build_batch([record(8)], base_offset=9, producer=(9, 0, 0), attributes=TRANSACTIONAL))
    rig.downstream.load(control_batch(10, 9, commits=False))
    copy = await rig.resume(8, 7)
    before = await rig.resume(6, 5)
    rig.downstream.keep([batch for batch in rig.downstream.batches if batch.base != 9])
    compacted = await rig.resume(8, 7)

    assert (copy.ended, copy.position, copy.downstream, copy.resumed_records) == (Ended.OK, 8, 10, 0)
    # Records are not passed over, nor what may have been some.
    assert {before.ended, compacted.ended} == {Ended.UNPROVEN}


async def test_an_empty_target_lacks_what_java_s_position_is_about(rig: ResumeRig) -> None:
    """It was created again, or has another name since: what the source still has of that is not skipped in silence."""
    rig.write_source(range(20))
    copy = await rig.resume(7, None)

    assert (rig.resolved, copy.ended, copy.position, copy.downstream) == ([], Ended.TARGET_REWOUND, 7, None)
    assert "records were written to it" in known(copy.failure).message


async def test_an_empty_target_lacks_nothing_that_the_source_has(rig: ResumeRig) -> None:
    """All that Java's position is about has been removed at the source: the copy begins there."""
    rig.write_source(range(20))
    rig.upstream.start = 7
    copy = await rig.resume(7, None)

    assert_resumed(rig, copy, position=7, downstream=-1, records=0)


@pytest.mark.parametrize("arrived", [10, 26])
async def test_match_is_not_found_before_the_position(rig: ResumeRig, arrived: int) -> None:
    """What equals the target's end only before the position is no match: that was copied longer ago."""
    rig.write_source(range(40))
    rig.write_target(range(arrived))
    copy = await rig.resume(30, None)

    assert copy.ended is Ended.UNPROVEN
    assert "is not in the source from offset 30 on" in known(copy.failure).message


@pytest.mark.parametrize(("log_start", "is_removed"), [(30, True), (20, False)])
async def test_a_record_that_the_source_has_removed_is_no_other_writer_s(
    rig: ResumeRig, log_start: int, *, is_removed: bool
) -> None:
    """The copy begins with all that is left after a DeleteRecords: the hint does not send operators after a writer."""
    rig.write_source(range(40))
    rig.upstream.start = log_start
    rig.write_target(range(10))
    copy = await rig.resume(30, None)

    assert copy.ended is Ended.UNPROVEN
    assert ("nothing is repeated" in known(copy.failure).hint) is is_removed
    assert copy.known_from == (log_start if is_removed else None)


async def test_equal_last_records_are_told_apart_by_those_before(rig: ResumeRig) -> None:
    """A value that repeats does not match too early: the records before it are compared as well."""
    numbers = [1, 2, 7, 3, 4, 7, 5, 6, 7, 8, 9]
    rig.write_source(numbers, batch=2)
    rig.write_target(numbers[:9])
    copy = await rig.resume(3, None)

    assert_resumed(rig, copy, position=9, downstream=8, records=6)
    assert (list(copy.runs), copy.known_from) == ([Run(0, 0, 9)], 0)


#: Of each batch, its records, the offsets of nothing after them, and what follows without data.
logs = st.lists(
    st.tuples(st.integers(1, 4), st.integers(0, 3), st.sampled_from(["", "marker", "emptied"])), min_size=1, max_size=12
)


@settings(deadline=None, max_examples=60)
@given(logs, st.data())
async def test_any_prefix_that_arrived_is_found(log: list[tuple[int, int, str]], data: st.DataObject) -> None:
    """
    Wherever a copy stopped, and whatever lies between the source's records, resuming finds exactly that place.

    Java's positions have no downstream offset; other records may be before these, and the target may stamp them itself.
    """
    rig, codec = rig_of(), data.draw(st.sampled_from([0, GZIP]))
    offsets: list[int] = []
    for count, gap, after in log:
        base = rig.upstream.end
        numbers = range(len(offsets), len(offsets) + count)
        rig.write_source(numbers, batch=count, gap=gap, codec=codec)
        offsets += [base + delta for delta in range(count)]
        if after == "marker":
            rig.upstream.load(control_batch(rig.upstream.end, 3, commits=True))
        elif after == "emptied":
            rig.upstream.load(build_batch(0, base_offset=rig.upstream.end, last_offset_delta=3))
    known = data.draw(st.integers(0, len(offsets)))
    arrived = data.draw(st.integers(known, len(offsets)))
    before = data.draw(st.integers(0, 3)) if arrived else 0
    rig.write_target(range(500, 500 + before))
    stamp = data.draw(st.sampled_from([0, LOG_APPEND_TIME]))
    rig.write_target(range(arrived), batch=data.draw(st.integers(1, 5)), attributes=stamp)
    position = offsets[known - 1] + 1 if known else 0
    downstream = data.draw(st.sampled_from([before + known - 1, None]))
    copy = await rig.resume(position, downstream)

    assert rig.resolved == [copy]
    assert copy.position == (
        offsets[arrived - 1] + 1 if arrived > known or (downstream is None and arrived) else position
    )
    assert copy.downstream == before + arrived - 1

    assert not (rig.source.sent and downstream is not None and arrived == known)
    # A match begins at the record of that time: what it passes over is counted by offsets.
    most = arrived - known if downstream is not None else copy.position - position
    assert arrived - known <= copy.resumed_records <= most
    pairs = known_pairs(copy)
    assert pairs == [(offsets[n], before + n) for n in range(arrived - len(pairs), arrived)]
    if downstream is not None:
        assert len(pairs) == arrived - known
    elif arrived:
        compared = range(offsets[arrived - 1] + 1 - min(arrived, 32), offsets[arrived - 1] + 1)
        assert len(pairs) >= sum(offset in compared for offset in offsets)
    assert copy.known_from is None or copy.known_from == pairs[0][0]


@pytest.mark.parametrize("fetch_versions", [(4, 12), (4, 18)])
@pytest.mark.parametrize(("side", "ended"), [("source", Ended.RECREATED), ("target", Ended.TARGET_REWOUND)])
async def test_another_topic_of_the_name_proves_nothing(
    rig: ResumeRig, side: str, ended: Ended, fetch_versions: tuple[int, int]
) -> None:
    """What another topic of the name holds is not compared: its partition ends as one of a re-created topic."""
    rig.source.versions[FETCH] = rig.target.versions[FETCH] = fetch_versions
    if side == "source":
        rig.source.create(TOPIC, 1, NEW_ID)
    else:
        rig.target.create(REMOTE, 1, NEW_ID)
    rig.write_source(range(20))
    rig.write_target(range(10))
    plan = PartitionPlan(
        TopicPartition(TOPIC, 0), REMOTE, 4, 3, is_unsure=True, topic_id=OLD_ID, remote_topic_id=OLD_ID
    )
    copy = PartitionCopy.of(plan)
    await rig.resolve([copy])

    assert (copy.ended, copy.position, rig.resolved) == (ended, 4, [])


# Where compaction or retention removed records since, or a broker moved them.


@pytest.mark.parametrize("downstream", [9, None])
async def test_what_remote_storage_does_not_bring_in_time_is_not_gone(rig: ResumeRig, downstream: int | None) -> None:
    """
    The target's last records are in remote storage only: nothing is judged before they come.

    A broker waits for them for half a second, and then answers without records.
    """
    rig.write_source(range(20))
    rig.write_target(range(12))
    rig.downstream.local_start = 12
    waiting = await rig.resume(10, downstream)
    seen = (waiting.is_unsure, waiting.ended, known(waiting.retried_failure).message)
    rig.downstream.local_start = 0
    copy = await rig.resume(10, downstream)

    which = 11 if downstream is not None else 0
    why = f"remote storage did not bring offset {which} of A.orders-0 within the brokers' remote.fetch.max.wait.ms"
    assert seen == (True, Ended.OK, f"cluster B answered Fetch with OFFSET_NOT_AVAILABLE [78] ({why})")
    assert_resumed(rig, copy, position=12, downstream=11, records=2)


async def test_last_record_that_is_gone_is_unproven(rig: ResumeRig) -> None:
    """If retention has emptied the target there is nothing to compare, and the failure reports that."""
    rig.write_source(range(20))
    rig.write_target(range(12))
    rig.downstream.delete_before(12)
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
    rig.source.far_s = rig.target.far_s = 0.05
    first = await rig.resume(10, 9, within_s=2.2)
    for log, passed in ((rig.upstream, 8), (rig.downstream, 10)):
        for at in range(passed):
            log.damage(at, flipped(log.batches[at].raw))
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
    rig.downstream.delete_before(rig.downstream.batches[-1].base)
    rig.upstream.damage(5, build_batch([record(2_500)], base_offset=2_500, last_offset_delta=499))
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=4_990, downstream=4_989, records=4_980)
    assert len(rig.target.sent) < 10


async def test_source_that_begins_behind_the_comparison_is_read_from_its_start(
    rig: ResumeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention may remove the records before the position that a match would like to see, also while it begins."""
    rig.write_source(range(40))
    rig.write_target(range(33))
    search_bounds = LogWalker.search_bounds

    async def late(logs: LogWalker, source: TopicPartition, timestamp: int) -> tuple[int, int | None]:
        found = await search_bounds(logs, source, timestamp)
        rig.upstream.delete_before(30)
        return found

    monkeypatch.setattr(LogWalker, "search_bounds", late)
    copy = await rig.resume(30, None)

    assert_resumed(rig, copy, position=33, downstream=32, records=3)


async def test_source_that_has_lost_the_position_is_out_of_range(rig: ResumeRig) -> None:
    """Retention that overtook the position is reported as such."""
    rig.write_source(range(40))
    rig.upstream.start = 20
    rig.write_target(range(15))
    copy = await rig.resume(10, 9, within_s=3)

    assert copy.ended is Ended.OUT_OF_RANGE
