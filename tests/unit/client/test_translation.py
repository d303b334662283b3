"""Offsets there and back, by positions of ours and by MirrorMaker's offset syncs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.client.translation import KnownPartitions, OffsetTranslation
from mm2py.connectors.offsets.translations import Translations
from mm2py.core.offsets.translation import Precision, RunIndex, Translated, Translation, Untranslated, cut_chunk
from mm2py.model.epoch import Run
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync, encode_offset_sync, offset_sync_headers
from mm2py.model.positions import Position, encode_position
from mm2py.model.run_chunk import KeptChunk, chunk_key, encode_chunk
from mm2py.wire.topic_log import LogRecord


ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("A.orders", 0)
EXACT, END, SYNCS = Precision.EXACT, Precision.END, Precision.OFFSET_SYNCS


def sync(upstream: int, downstream: int, *, at_ms: int = 0) -> LogRecord:
    key, value = encode_offset_sync(OffsetSync(ORDERS, upstream, downstream))
    return LogRecord(key, value, partition=0, offset=0, timestamp_ms=at_ms)


def position(next_upstream: int, downstream: int | None, *, cluster: str = "A") -> LogRecord:
    key, value, headers = encode_position(cluster, Position(ORDERS, next_upstream, downstream))
    return LogRecord(key, value, tuple(headers), 0, 0, 0)


def runs(*kept: Run, number: int = 0, topic_id: str | None = None) -> LogRecord:
    """Make a record of our index that knows *kept*, nothing before it and nothing behind."""
    index = RunIndex(kept[0].upstream, kept[0].downstream)
    index.take(kept[0].upstream, kept, kept[-1].upstream + kept[-1].length, None)
    key, value = chunk_key("A", ORDERS, number), encode_chunk(cut_chunk(index, 0), topic_id)
    return LogRecord(key, value, partition=0, offset=0, timestamp_ms=0)


def removed(record: LogRecord) -> LogRecord:
    return LogRecord(record.key, None, partition=0, offset=0, timestamp_ms=0)


def translation(
    *positions: LogRecord, syncs: tuple[list[LogRecord], ...] = (), end: int | None = None
) -> OffsetTranslation:
    gathered = KnownPartitions("A")
    for record in positions:
        gathered.take_position(record)
    for topic in syncs:
        gathered.begin_syncs()
        for record in topic:
            gathered.take_sync(record)
    return OffsetTranslation(gathered, "A.{}".format, {} if end is None else {REMOTE: end})


def test_our_own_position_is_an_exact_place() -> None:
    """At the end of our copy both offsets are known exactly; past it the answer is the end, never more."""
    known = translation(position(101, 57), syncs=([sync(90, 50)],))

    assert known.downstream(ORDERS, 101) == Translated(58, EXACT)
    assert known.downstream(ORDERS, 150) == Translated(58, END)
    assert known.downstream(ORDERS, 95) == Translated(51, SYNCS)


def test_the_way_back_from_the_end_is_exact() -> None:
    """A group that has read all that was copied goes on at the record that was not."""
    known = translation(position(101, 57))

    assert known.upstream(REMOTE, 58) == Translated(101, EXACT)
    assert known.upstream(REMOTE, 10) == Untranslated.TOO_OLD


def test_syncs_of_a_remote_topic_that_is_copied_again_are_void() -> None:
    """
    The remote topic was created again, and the source begins at 300 by now; what is copied is not written down yet.

    Offset syncs are of the former copy until the first record of the new one has its own.
    """
    former = [sync(at, at) for at in (0, 200, 499, 999)]
    again = [*former, sync(399, 99)]

    assert translation(position(300, -1), syncs=(former,), end=500).downstream(ORDERS, 500) == Translated(0, END)
    assert translation(position(300, -1), syncs=(again,), end=500).downstream(ORDERS, 500) == Translated(100, SYNCS)


def test_a_position_that_java_wrote_knows_no_offset_at_the_target() -> None:
    """Java's position takes the place of ours, and says nothing about the target; syncs remain."""
    known = translation(position(50, 30), position(101, None), syncs=([sync(40, 20)],))

    assert known.downstream(ORDERS, 50) == Translated(21, SYNCS)


INDEX = (Run(0, 0, 50), Run(102, 50, 50))


@pytest.mark.parametrize(
    ("upstream", "downstream", "precision"),
    [(0, 0, EXACT), (49, 49, EXACT), (60, 50, EXACT), (110, 58, EXACT), (152, 100, EXACT), (170, 100, END)],
)
def test_our_index_is_exact(upstream: int, downstream: int, precision: Precision) -> None:
    """Between and inside runs the next record is known, from the index that mm2py keeps beside the positions."""
    known = translation(position(152, 99), runs(*INDEX), syncs=([sync(40, 40)],))

    assert known.downstream(ORDERS, upstream) == Translated(downstream, precision)


def test_an_index_in_several_parts() -> None:
    """The parts of a long index are put together, whatever the order in which they were written."""
    known = translation(position(152, 99), runs(INDEX[1], number=1), runs(INDEX[0]))

    assert known.downstream(ORDERS, 20) == Translated(20, EXACT)
    assert known.downstream(ORDERS, 110) == Translated(58, EXACT)


def test_a_position_behind_the_index() -> None:
    """What was copied since the index was written lies between: its end is known, and syncs may know more."""
    known = translation(runs(*INDEX), position(202, 149), syncs=([sync(180, 128)],))

    assert known.downstream(ORDERS, 110) == Translated(58, EXACT)
    assert known.downstream(ORDERS, 190) == Translated(129, SYNCS)
    assert known.downstream(ORDERS, 202) == Translated(150, EXACT)


def test_a_target_that_lost_records() -> None:
    """A position that ends before our index did was written after the target had lost records: the index is void."""
    known = translation(runs(*INDEX), position(152, 79))

    assert known.downstream(ORDERS, 110) == Untranslated.TOO_OLD
    assert known.downstream(ORDERS, 152) == Translated(80, EXACT)


def test_what_was_removed_is_forgotten() -> None:
    """A position and a part of the index without a value are no more."""
    at, index = position(152, 99), runs(*INDEX)

    assert translation(index, at, removed(index)).downstream(ORDERS, 110) == Untranslated.TOO_OLD
    assert translation(index, at, removed(at)).downstream(ORDERS, 152) == Untranslated.NOT_MIRRORED


SAME = "1gp1R00ESh-1y9yvSBsR9g"


@pytest.mark.parametrize(("present", "is_known"), [(SAME, True), ("other", False), (None, True)])
def test_a_topic_that_was_created_again(present: str | None, is_known: bool) -> None:
    """What was kept of a topic that is gone says nothing about its successor of the same name."""
    gathered = KnownPartitions("A")
    key, value, headers = encode_position("A", Position(ORDERS, 152, 99, SAME))
    gathered.take_position(LogRecord(key, value, tuple(headers), 0, 0, 0))
    gathered.take_position(runs(*INDEX, topic_id=SAME))
    gathered.forget_other_topics({"orders": present})
    known = OffsetTranslation(gathered, "A.{}".format, {})

    answer = known.downstream(ORDERS, 110)
    assert answer == (Translated(58, EXACT) if is_known else Untranslated.NOT_MIRRORED)


@pytest.mark.parametrize(("present", "is_known"), [(SAME, True), ("other", False), (None, True)])
def test_a_remote_topic_that_was_created_again(present: str | None, is_known: bool) -> None:
    """What was copied to one that is gone is not in its successor, until the flow has stored where it is now."""
    gathered = KnownPartitions("A")
    key, value, headers = encode_position("A", Position(ORDERS, 152, 99, remote_topic_id=SAME))
    gathered.take_position(LogRecord(key, value, tuple(headers), 0, 0, 0))
    gathered.take_position(runs(*INDEX))
    gathered.begin_syncs()
    gathered.take_sync(sync(40, 40))
    gathered.forget_other_remotes("A.{}".format, {REMOTE.topic: present})
    known = OffsetTranslation(gathered, "A.{}".format, {})

    answer = known.downstream(ORDERS, 110)
    assert answer == (Translated(58, EXACT) if is_known else Untranslated.NOT_MIRRORED)


@pytest.mark.parametrize(("present", "is_known"), [(SAME, True), ("other", False), (None, True)])
def test_syncs_of_a_remote_topic_that_was_created_again(present: str | None, is_known: bool) -> None:
    """Syncs that say of which remote topic they are, and no position beside them."""
    one = OffsetSync(ORDERS, 100, 57, SAME)
    gathered = KnownPartitions("A")
    gathered.begin_syncs()
    gathered.take_sync(LogRecord(*encode_offset_sync(one), offset_sync_headers(one), partition=0, offset=0))
    gathered.forget_other_remotes("A.{}".format, dict.fromkeys({f"A.{it.topic}" for it in gathered.stored}, present))

    assert (ORDERS in gathered.known()) is is_known


def test_remote_topics_may_be_named_otherwise() -> None:
    """A router names a topic before the replication policy does."""
    gathered = KnownPartitions("A")
    gathered.take_position(position(101, 57))
    gathered.take_position(runs(*INDEX))
    known = OffsetTranslation(gathered, "A.{}-routed".format, {TopicPartition("A.orders-routed", 0): 40})

    assert known.remote_of(ORDERS) == TopicPartition("A.orders-routed", 0)
    assert known.downstream(ORDERS, 101) == Translated(40, Precision.END)
    assert known.upstream(REMOTE, 30) == Untranslated.NOT_MIRRORED
    assert isinstance(known.upstream(TopicPartition("A.orders-routed", 0), 30), Translated)


def test_positions_of_other_clusters_are_left_out() -> None:
    """A topic of positions that several flows share is read for this one only."""
    known = translation(position(101, 57, cluster="C"))

    assert known.downstream(ORDERS, 101) == Untranslated.NOT_MIRRORED
    assert known.partitions == {}


def test_what_is_not_mirrored() -> None:
    """A partition that nothing is known of has no translation in either direction, and says why."""
    known = translation(position(101, 57))
    other = TopicPartition("bills", 0)

    assert known.downstream(other, 5) is Untranslated.NOT_MIRRORED
    assert known.upstream(TopicPartition("A.bills", 0), 5) is Untranslated.NOT_MIRRORED
    assert (known.remote_of(other), known.source_of(ORDERS)) == (None, None)
    assert known.partitions == {ORDERS: REMOTE}


def test_nothing_beyond_the_remote_partition_s_end() -> None:
    """When the target lost records since the last sync, its present end is the answer (no negative lag)."""
    known = translation(syncs=([sync(100, 200)],), end=120)

    assert known.downstream(ORDERS, 150) == Translated(120, END)


def test_the_newer_of_two_sync_topics_counts() -> None:
    """When the location of offset syncs was changed, what was written last is right for its partition."""
    old, new = [sync(100, 200, at_ms=1)], [sync(90, 10, at_ms=2)]

    for topics in ((old, new), (new, old)):
        assert translation(syncs=topics).downstream(ORDERS, 95) == Translated(11, SYNCS)


def test_negative_offsets_are_refused() -> None:
    """An offset that no group can have committed is the caller's mistake."""
    known = translation(position(101, 57))

    for translate, partition in ((known.downstream, ORDERS), (known.upstream, REMOTE)):
        with pytest.raises(ValueError, match="must not be negative"):
            translate(partition, -1)


@st.composite
def _mirrored(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, int, list[int]]:
    """Draw records with their offsets on both sides, from which to which the index knows them, and which have syncs."""
    steps = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=12))
    records, at = [], (draw(st.integers(0, 3)), draw(st.integers(0, 3)))
    for up, down in steps:
        records.append(at)
        at = at[0] + up, at[1] + down
    first = draw(st.integers(0, len(records) - 1))
    behind = draw(st.integers(first, len(records)))
    return records, first, behind, sorted(draw(st.sets(st.integers(0, len(records) - 1))))


@given(mirrored=_mirrored(), is_java_s=st.booleans())
def test_the_library_answers_as_the_flow_does(
    *, mirrored: tuple[list[tuple[int, int]], int, int, list[int]], is_java_s: bool
) -> None:
    """From the same records in the same topics both tell the same offsets, there and back, and which are exact."""
    records, first, behind, synced = mirrored
    next_upstream, end = records[-1][0] + 1, records[-1][1] + 1
    index = RunIndex(*records[first])
    if behind > first:
        index.take(records[first][0], [Run(up, down, 1) for up, down in records[first:behind]], 0, None)
    at = Position(ORDERS, next_upstream, None if is_java_s else end - 1)
    chunk = KeptChunk(ORDERS, 0, None, cut_chunk(index, 0))
    theirs = translation(
        position(at.next_upstream, at.downstream),
        LogRecord(chunk_key("A", ORDERS, 0), encode_chunk(cut_chunk(index, 0), None)),
        syncs=([sync(*records[one]) for one in synced],),
        end=index.end if is_java_s else end,
    )
    ours = Translations(flow_runs=1000, partition_runs=1000)
    ours.load([chunk])
    ours.adopt({ORDERS: at}, {ORDERS: REMOTE.topic})
    for one in synced:
        ours.learn(OffsetSync(ORDERS, *records[one]))

    for offset in range(next_upstream + 2):
        assert _told(theirs.downstream(ORDERS, offset)) == _told(ours.downstream(ORDERS, offset))
    for offset in range((index.end if is_java_s else end) + 1):
        assert _told(theirs.upstream(REMOTE, offset)) == _told(ours.upstream(REMOTE, offset))


def _told(answer: Translation) -> object:
    return (answer.offset, answer.is_exact) if isinstance(answer, Translated) else answer
