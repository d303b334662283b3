"""From a fetched record set to buffered batches: what goes unopened, is rebuilt, is left out, or stops."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.epoch import CopyLimits, Ended, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.ingest import ingest
from mm2py.pipeline.copy.partition import BufferedBatch, PartitionCopy
from mm2py.wire.batches import codecs, native
from mm2py.wire.fetch_forms import PartitionAnswer
from tests.support.batches import (
    CODECS,
    DELETE_HORIZON,
    GZIP,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    START_MS,
    TRANSACTIONAL,
    ZSTD,
    Content,
    build_batch,
    contents,
    control_batch,
    flipped,
    legacy_messages,
    named_batch,
    resigned,
)
from tests.support.contents import decode
from tests.support.copy_rig import known
from tests.support.record_sets import in_python


#: Batches of these sizes are not small, so that what is tested is one batch's own way.
LIMITS = CopyLimits(coalesce_below_bytes=0)
COALESCING = CopyLimits(coalesce_below_bytes=2048, coalesce_batch_bytes=4096)

PLAN = PartitionPlan(TopicPartition("orders", 3), "A.orders", 100, -1, is_unsure=False)


def copy_from(position: int, *, max_message_bytes: int = 1_048_588) -> PartitionCopy:
    return PartitionCopy.of(attrs.evolve(PLAN, position=position, max_message_bytes=max_message_bytes))


def feed(
    copy: PartitionCopy, *parts: bytes, limits: CopyLimits = LIMITS, aborted: tuple[tuple[int, int], ...] = ()
) -> None:
    record_set = memoryview(bytearray(b"".join(parts)))
    ingest(copy, PartitionAnswer(copy.fetching.position, 0, 1000, 1000, 0, aborted, record_set), limits)


def upstream_offsets(buffered: BufferedBatch) -> list[int]:
    if buffered.runs is None:
        return list(range(buffered.first_upstream, buffered.first_upstream + buffered.record_count))
    return [upstream + n for upstream, _, length in buffered.runs for n in range(length)]


def copied(copy: PartitionCopy) -> list[int]:
    """Return the upstream offsets of everything that is queued."""
    return [offset for buffered in copy.buffer.queue for offset in upstream_offsets(buffered)]


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL], ids=["plain", "transactional"])
@pytest.mark.parametrize("codec", [NONE, GZIP, LZ4])
def test_ordinary_batches_travel_unopened(codec: int, attributes: int) -> None:
    """A whole data batch is queued as it lies in the answer, not a byte of it read or copied."""
    raw = build_batch(50, base_offset=100, codec=codec, attributes=attributes, producer=(5, 0, 3))
    copy = copy_from(100)
    feed(copy, raw)
    (buffered,) = copy.buffer.queue

    assert bytes(buffered.batch) == raw
    assert (buffered.first_upstream, buffered.next_upstream, buffered.record_count) == (100, 150, 50)
    assert (buffered.runs, buffered.is_rebuilt, buffered.max_timestamp) == (None, False, START_MS + 49)
    assert (copy.fetching.position.offset, copy.position, copy.buffer.size_bytes) == (150, 100, len(raw))


HOLED = [Content(n) for n in (0, 2, 3, 9)]

ONE_BATCH = {
    "hole inside": (build_batch(HOLED, base_offset=100, last_offset_delta=9), [100, 102, 103, 109], 110),
    "hole at the end": (build_batch(3, base_offset=100, last_offset_delta=7), [100, 101, 102], 108),
    "log append time": (build_batch(3, base_offset=100, attributes=LOG_APPEND_TIME), [100, 101, 102], 103),
    "delete horizon": (build_batch(3, base_offset=100, attributes=DELETE_HORIZON), [100, 101, 102], 103),
    "start inside": (build_batch(10, base_offset=95), [100, 101, 102, 103, 104], 105),
    "start inside, only holes left": (build_batch(3, base_offset=95, last_offset_delta=8), [], 104),
    "magic 0": (legacy_messages(0, contents(1), base_offset=100), [100], 101),
    "magic 1": (legacy_messages(1, contents(1), base_offset=100), [100], 101),
    "magic 1 compressed": (legacy_messages(1, contents(5), base_offset=98, codec=GZIP), [100, 101, 102], 103),
}


@pytest.mark.parametrize(("raw", "expected", "after"), ONE_BATCH.values(), ids=ONE_BATCH.keys())
def test_some_batches_take_the_record_path(raw: bytes, expected: list[int], after: int) -> None:
    """What cannot go unopened is rebuilt from the position on, and the fetch goes on behind the whole batch."""
    copy = copy_from(100)
    feed(copy, raw)

    assert copied(copy) == expected
    assert all(buffered.is_rebuilt for buffered in copy.buffer.queue)
    assert copy.fetching.position.offset == after
    assert [p.next_upstream for p in copy.buffer.queue][-1:] == ([after] if expected else [])
    assert copy.position == (100 if expected else after)
    assert copy.ended is Ended.OK


LEFT_OUT = {
    "commit marker": (control_batch(100, 7, commits=True), 101),
    "abort marker": (control_batch(100, 7, commits=False), 101),
    "emptied by compaction": (build_batch(0, base_offset=100, last_offset_delta=4), 105),
    "control record compacted away": (
        build_batch(0, base_offset=100, last_offset_delta=0, attributes=0x30, producer=(7, 0, -1)),
        101,
    ),
}


@pytest.mark.parametrize(("raw", "after"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_what_holds_no_data_is_passed_over(raw: bytes, after: int) -> None:
    """Control batches and empty ones are counted and stepped over."""
    copy = copy_from(100)
    feed(copy, raw)

    assert not copy.buffer.queue
    assert (copy.batches_dropped, copy.position, copy.fetching.position.offset) == (1, after, after)


def test_what_lies_before_the_position_is_skipped_silently() -> None:
    """Batches that end before the position are not counted, not checked, and move nothing."""
    copy = copy_from(100)
    feed(copy, flipped(build_batch(10, base_offset=90)))

    assert (copied(copy), copy.fetching.position.offset, copy.batches_dropped, copy.ended) == ([], 100, 0, Ended.OK)


def test_marker_between_batches_moves_with_the_batch_before_it() -> None:
    """A control batch's offset is acknowledged with the data before it, and the next batch follows as it is."""
    copy = copy_from(100)
    feed(copy, build_batch(2, base_offset=100), control_batch(102, 7, commits=True), build_batch(1, base_offset=103))

    assert [(p.first_upstream, p.next_upstream) for p in copy.buffer.queue] == [(100, 103), (103, 104)]


CORRUPT = {
    "flipped bit": (flipped(build_batch(3, base_offset=102)), "checksum"),
    "flipped bit in a batch with holes": (flipped(build_batch(HOLED, base_offset=102)), "checksum"),
    "flipped bit in a control batch": (flipped(control_batch(102, 7, commits=True)), "checksum"),
    "flipped bit in an emptied batch": (
        flipped(build_batch(0, base_offset=102, last_offset_delta=3), at=30),
        "checksum",
    ),
    "flipped bit in magic 1": (flipped(legacy_messages(1, contents(1), base_offset=102)), "checksum"),
    "length zero": (build_batch(3, base_offset=102)[:8] + bytes(4) + build_batch(3)[12:], "length"),
    "records that are none": (resigned(build_batch(HOLED, base_offset=102)[:HEADER_BYTES] + b"\x7f" * 40), ""),
    "compressed records that are none": (
        resigned(build_batch([*contents(60), Content(70)], base_offset=102, codec=LZ4)[:HEADER_BYTES] + b"\x7f" * 40),
        "",
    ),
}


@pytest.mark.parametrize("limits", [LIMITS, COALESCING], ids=["one by one", "coalescing"])
@pytest.mark.parametrize(("raw", "word"), CORRUPT.values(), ids=CORRUPT.keys())
def test_corrupt_batches_stop_the_partition(raw: bytes, word: str, limits: CopyLimits) -> None:
    """A batch that is not what its producer made is never queued: the partition ends there, what was before goes."""
    copy = copy_from(100)
    feed(copy, build_batch(2, base_offset=100), raw, build_batch(30, base_offset=200), limits=limits)

    assert copied(copy) == [100, 101]
    assert (copy.ended, copy.fetching.position.offset) == (Ended.FAILED, 102)
    failure = known(copy.failure)
    assert (failure.error, failure.offset) == ("CorruptBatchError", 102)
    assert word in failure.message
    assert "orders-3" in failure.message
    assert "disk" in failure.hint


@pytest.mark.parametrize("at", range(21, 75, 6))
def test_no_flipped_bit_is_forwarded_in_a_backlog(at: int) -> None:
    """In a backlog of one-record batches, one flipped bit stops exactly there."""
    parts = [build_batch(1, base_offset=100 + n) for n in range(40)]
    parts[17] = flipped(parts[17], at=at)
    copy = copy_from(100)
    feed(copy, *parts, limits=COALESCING)

    assert copied(copy) == list(range(100, 117))
    assert copy.ended is Ended.FAILED


def test_record_too_large_for_the_target_stops_the_partition() -> None:
    """A single record larger than the target takes ends the partition with the setting to raise; others before go."""
    big = [Content(0), Content(1, START_MS, b"k", b"x" * 5000), Content(2)]
    copy = copy_from(100, max_message_bytes=2000)
    feed(copy, build_batch(big, base_offset=100), build_batch(1, base_offset=103))

    assert copied(copy) == [100]
    assert copy.ended is Ended.FAILED
    assert (known(copy.failure).error, known(copy.failure).offset) == ("RecordTooLargeError", 101)
    assert "max.message.bytes" in known(copy.failure).hint
    assert copy.fetching.position.offset == 101


def test_compressed_batch_within_the_limit_is_not_split() -> None:
    """What counts is the batch's size as it is, not that of its records."""
    records = [Content(n, START_MS, b"k", b"x" * 1000) for n in range(40)]
    copy = copy_from(100, max_message_bytes=2000)
    feed(copy, build_batch(records, base_offset=100, codec=GZIP))

    assert [(p.record_count, p.is_rebuilt) for p in copy.buffer.queue] == [(40, False)]


# Small batches.


@pytest.mark.parametrize(("target_takes", "limit"), [(1_048_588, 4096), (700, 700)], ids=["ours", "the target's"])
def test_backlog_of_small_batches_is_put_together(target_takes: int, limit: int) -> None:
    """One-record batches that wait together become few batches below the smaller limit, in order."""
    copy = copy_from(100, max_message_bytes=target_takes)
    feed(copy, *[build_batch(1, base_offset=100 + n, producer=(9, 0, n)) for n in range(500)], limits=COALESCING)

    assert copied(copy) == list(range(100, 600))
    assert len(copy.buffer.queue) < 40_000 / limit
    assert max(buffered.size_bytes for buffered in copy.buffer.queue) <= limit
    assert all(buffered.is_rebuilt for buffered in copy.buffer.queue)
    assert copy.fetching.position.offset == 600


@pytest.mark.skipif(native.library() is None, reason="there is no C compiler")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME], ids=["backlog", "log append time"])
def test_names_of_headers_that_are_no_text_stop_nothing(codec: int, attributes: int) -> None:
    """Brokers take them, and so must the record path, which a batch takes or not as a backlog comes and goes."""
    copy = copy_from(100)
    parts = [named_batch(b"caf\xe9", base_offset=100 + n, codec=codec, attributes=attributes) for n in range(10)]
    feed(copy, *parts, limits=COALESCING)

    assert copy.ended is Ended.OK
    assert copied(copy) == list(range(100, 110))
    assert all(buffered.is_rebuilt for buffered in copy.buffer.queue)


def test_a_name_that_python_cannot_read_is_not_called_damage() -> None:
    """Without compiled code such a batch stops its partition, and operators are not sent to the broker's disk."""
    copy = copy_from(100)
    with in_python():
        feed(copy, named_batch(b"caf\xe9", base_offset=100, codec=LZ4, attributes=LOG_APPEND_TIME))
    failure = known(copy.failure)

    assert (failure.error, failure.offset, copied(copy)) == ("HeaderNameError", 100, [])
    assert "not UTF-8" in failure.message
    assert "nothing is damaged" in failure.hint


def test_few_small_batches_travel_unopened() -> None:
    """If nothing waits, a small batch is sent as it is: opening it would only cost."""
    copy = copy_from(100)
    feed(copy, build_batch(1, base_offset=100), build_batch(1, base_offset=101), limits=COALESCING)

    assert [buffered.is_rebuilt for buffered in copy.buffer.queue] == [False, False]


@pytest.mark.skipif(native.library() is None, reason="there is no C compiler")
def test_small_batches_of_large_records_travel_unopened() -> None:
    """A megabyte of such batches would take gigabytes of memory, and its worker away from all other partitions."""
    copy = copy_from(100)
    large = [Content(0, START_MS, None, bytes(3_000_000))]
    feed(copy, *[build_batch(large, base_offset=100 + n, codec=ZSTD) for n in range(30)], limits=COALESCING)

    assert copied(copy) == list(range(100, 130))
    assert not any(buffered.is_rebuilt for buffered in copy.buffer.queue)
    assert copy.fetching.position.offset == 130


@pytest.mark.parametrize("way", [nullcontext, in_python])
def test_one_that_nothing_opens_keeps_no_backlog(
    way: Callable[[], AbstractContextManager[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One small batch among many holds more than is ever decompressed: they all travel unopened, and nothing stops."""
    monkeypatch.setattr(codecs, "_MOST_BYTES", 1 << 20)
    parts = [
        build_batch([Content(0, START_MS, None, bytes(size))], base_offset=100 + n, codec=ZSTD)
        for n, size in enumerate((99, 99, 99, 2 << 20, 99))
    ]
    copy = copy_from(100)
    with way():
        feed(copy, *parts, limits=COALESCING)

    assert copy.ended is Ended.OK
    assert copied(copy) == list(range(100, 105))
    assert not any(buffered.is_rebuilt for buffered in copy.buffer.queue)


@pytest.mark.parametrize("producers", [4, 9])
def test_backlog_of_emptied_batches_is_stepped_over(producers: int) -> None:
    """Compaction leaves each producer's last batch, empty: a record set of nothing else must not be read for ever."""
    parts = [build_batch(0, base_offset=100 + 3 * n, last_offset_delta=2, producer=(n, 0, 5)) for n in range(producers)]
    copy = copy_from(100)
    feed(copy, *parts, limits=COALESCING)

    assert copied(copy) == []
    assert copy.fetching.position.offset == copy.position == 100 + 3 * producers


def test_emptied_batches_at_the_end_of_a_backlog_move_with_it() -> None:
    """What compaction left empty behind small batches is passed with them, not fetched again."""
    parts = [build_batch(1, base_offset=100 + n) for n in range(6)]
    parts += [build_batch(0, base_offset=106 + 2 * n, last_offset_delta=1, producer=(n, 0, 5)) for n in range(3)]
    copy = copy_from(100)
    feed(copy, *parts, limits=COALESCING)

    assert copied(copy) == list(range(100, 106))
    assert (copy.fetching.position.offset, copy.buffer.queue[-1].next_upstream) == (112, 112)


# Transactions.


def transaction(first: int, count: int, producer_id: int) -> bytes:
    return build_batch(count, base_offset=first, producer=(producer_id, 0, 0), attributes=TRANSACTIONAL)


def test_aborted_transactions_are_left_out() -> None:
    """Of interleaved transactions the aborted ones' batches are dropped, up to each one's own marker."""
    copy = copy_from(100)
    feed(
        copy,
        transaction(100, 2, 1),  # aborted
        transaction(102, 2, 2),  # committed
        build_batch(2, base_offset=104, producer=(1, 0, 0)),  # producer 1 outside any transaction
        transaction(106, 2, 1),  # aborted
        control_batch(108, 1, commits=False),
        transaction(109, 2, 1),  # the next one, committed
        control_batch(111, 2, commits=True),
        transaction(112, 2, 3),  # aborted
        control_batch(114, 1, commits=True),
        transaction(115, 1, 3),
        control_batch(116, 3, commits=False),
        build_batch(1, base_offset=117),
        transaction(118, 2, 1),  # the next one of producer 1, aborted again
        aborted=((3, 112), (1, 118), (1, 100)),
    )

    assert copied(copy) == [102, 103, 104, 105, 109, 110, 117]
    assert (copy.fetching.position.offset, copy.batches_dropped) == (120, 9)


def test_without_a_list_of_aborted_transactions_everything_is_data() -> None:
    """Uncommitted reading copies what was written, markers apart."""
    copy = copy_from(100)
    feed(copy, transaction(100, 2, 1), control_batch(102, 1, commits=False), transaction(103, 1, 2))

    assert copied(copy) == [100, 101, 103]


def test_aborted_small_batches_in_a_backlog_are_left_out() -> None:
    """A backlog of small batches with aborted ones among them is filtered, not put together."""
    parts = [transaction(100 + n, 1, n % 2) for n in range(20)]
    copy = copy_from(100)
    feed(copy, *parts, limits=COALESCING, aborted=((1, 100),))

    assert copied(copy) == list(range(100, 120, 2))
    assert copy.fetching.position.offset == 120


def test_transaction_aborted_before_the_position_still_counts() -> None:
    """A transaction whose first offset lies before the position is dropped from the position on."""
    copy = copy_from(105)
    feed(copy, transaction(104, 3, 1), control_batch(107, 1, commits=False), aborted=((1, 90),))

    assert (copied(copy), copy.fetching.position.offset) == ([], 108)


def test_transaction_that_ends_before_the_position_ends_there() -> None:
    """An answer may begin earlier, if another fetcher has copied its first part meanwhile."""
    copy = copy_from(103)
    parts = transaction(100, 2, 1), control_batch(102, 1, commits=False), transaction(103, 2, 1)
    feed(copy, *parts, aborted=((1, 100),))

    assert (copied(copy), copy.fetching.position.offset) == ([103, 104], 105)


# Any layout.


KINDS = ["small", "small", "small", "large", "holes", "stamped", "empty", "control", "legacy"]


@st.composite
def record_sets(draw: st.DrawFn) -> tuple[list[bytes], list[int], int]:
    """Draw a log from offset 100 on: its batches, the offsets of its data, and its end."""
    parts: list[bytes] = []
    data: list[int] = []
    at = 100
    for _ in range(draw(st.integers(1, 12))):
        at += draw(st.integers(0, 2))
        kind = draw(st.sampled_from(KINDS))
        codec = draw(st.sampled_from([NONE, NONE, GZIP]))
        if kind == "control":
            parts.append(control_batch(at, 1, commits=True))
            offsets, end = [], at + 1
        elif kind == "empty":
            parts.append(build_batch(0, base_offset=at, last_offset_delta=2))
            offsets, end = [], at + 3
        elif kind == "legacy":
            count = draw(st.integers(1, 3)) if codec else 1
            parts.append(legacy_messages(1, contents(count), base_offset=at, codec=codec))
            offsets, end = list(range(at, at + count)), at + count
        else:
            deltas = sorted(draw(st.sets(st.integers(0, 6), min_size=1))) if kind == "holes" else [0, 1, 2]
            size = 900 if kind == "large" else 10
            records = [Content(d, START_MS, b"k", b"x" * size) for d in deltas]
            last = deltas[-1] + (draw(st.integers(0, 2)) if kind == "holes" else 0)
            attributes = LOG_APPEND_TIME if kind == "stamped" else 0
            parts.append(
                build_batch(records, base_offset=at, codec=codec, last_offset_delta=last, attributes=attributes)
            )
            offsets, end = [at + d for d in deltas], at + last + 1
        data += offsets
        at = end
    return parts, data, at


@settings(deadline=None, max_examples=150)
@given(record_sets(), st.integers(0, 30), st.integers(0, 3000), st.sampled_from([LIMITS, COALESCING]))
def test_any_log_is_ingested_completely_and_once(
    log: tuple[list[bytes], list[int], int], start: int, cut: int, limits: CopyLimits
) -> None:
    """
    However batches lie and wherever fetches cut them, two fetches bring all data from the start on, once, in order.

    The second one begins where the first one's fetch position says, as a broker would: with the batch that holds it.
    """
    parts, data, end = log
    whole = b"".join(parts)
    copy = copy_from(100 + start)
    feed(copy, whole[:cut], limits=limits)
    feed(copy, whole, limits=limits)

    assert copy.ended is Ended.OK
    assert copied(copy) == [offset for offset in data if offset >= 100 + start]
    assert copy.fetching.position.offset == max(end, 100 + start)
    assert all(
        len(decode(bytes(rebuilt.batch))) == rebuilt.record_count for rebuilt in copy.buffer.queue if rebuilt.is_rebuilt
    )
    behind = [buffered.next_upstream for buffered in copy.buffer.queue] or [copy.position]

    assert behind == sorted(behind)
    assert behind[-1] == copy.fetching.position.offset
