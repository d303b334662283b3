"""The record path: whatever goes in comes out with the same records, in batches that a broker takes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mm2py.wire.batches import native, payloads
from mm2py.wire.batches.batch import MalformedRecordSetError, batches
from mm2py.wire.batches.codecs import compressed
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.rebuild import Rebuilder, UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns
from tests.support.batches import (
    CODECS,
    DELETE_HORIZON,
    GZIP,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    START_MS,
    ZSTD,
    Content,
    build_batch,
    contents,
    control_batch,
    flipped,
    legacy_messages,
    resigned,
)
from tests.support.contents import RecordContent, decode


NO_LIMIT = 1 << 20


@pytest.fixture(params=["compiled", "python"], autouse=True, scope="module")
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways of the record path do the same."""
    if request.param == "compiled" and native.library() is None:
        pytest.skip("there is no C compiler")
    before, native._library = native.library(), native.library() if request.param == "compiled" else None
    yield
    native._library = before


def rebuilt_from(*parts: bytes, limit: int = NO_LIMIT, from_offset: int = 0) -> list[Rebuilt]:
    rebuilder = Rebuilder(limit)
    rebuilder.add(b"".join(parts), from_offset=from_offset)
    return rebuilder.finish()


def upstream_offsets(rebuilt: Rebuilt) -> list[int]:
    """Return the upstream offset of each record, as the runs tell it."""
    return [upstream + n for upstream, _, length in rebuilt.runs for n in range(length)]


def assert_sound(built: list[Rebuilt]) -> None:
    """
    Check what is true of every rebuilt batch.

    (a) It is one whole batch without holes whose checksum fits, at offset 0 and without a producer until it is signed;
    (b) its runs follow each other, number every record once, and do not join; (c) its facts are those of its records.
    """
    for rebuilt in built:
        (view,) = batches(rebuilt.batch)
        records = decode(bytes(rebuilt.batch))

        assert view.matches_crc()
        assert not view.has_holes
        assert (view.base_offset, view.producer_id, view.producer_epoch) == (0, -1, -1)
        assert view.record_count == rebuilt.record_count == len(records)
        assert [index for _, index, _ in rebuilt.runs] == [
            sum(length for _, _, length in rebuilt.runs[:number]) for number in range(len(rebuilt.runs))
        ]
        assert all(
            before + length < after
            for (before, _, length), (after, _, _) in zip(rebuilt.runs, rebuilt.runs[1:], strict=False)
        )
        assert sum(length for _, _, length in rebuilt.runs) == rebuilt.record_count
        assert (rebuilt.first_upstream, rebuilt.last_upstream) == (
            upstream_offsets(rebuilt)[0],
            upstream_offsets(rebuilt)[-1],
        )
        assert rebuilt.max_timestamp == view.max_timestamp == max(record.timestamp for record in records)


def seen(built: list[Rebuilt]) -> list[tuple[object, ...]]:
    """Return every record with its upstream offset and without its place in the batch."""
    return [
        (upstream, record.timestamp, record.key, record.value, record.headers)
        for rebuilt in built
        for upstream, record in zip(upstream_offsets(rebuilt), decode(bytes(rebuilt.batch)), strict=True)
    ]


def written(records: list[Content], base_offset: int = 0) -> list[tuple[object, ...]]:
    return [(base_offset + r.delta, r.timestamp, r.key, r.value, r.headers) for r in records]


STRANGE = [
    Content(0, START_MS, None, None),
    Content(1, START_MS - 10_000_000_000, b"", b"", (("a", b"1"), ("a", None), ("", b""))),
    Content(2, 0, b"k", None, (("größe", "ß".encode()),)),
    Content(3, START_MS + 5, None, bytes(range(256))),
]


@pytest.mark.parametrize("codec", CODECS)
def test_records_survive_in_every_codec(codec: int) -> None:
    """Nulls, empties, headers and timestamps come out as they went in, in the codec they came in."""
    records = [*STRANGE, *[Content(4 + n, START_MS, b"k", b"x" * 200) for n in range(20)]]
    built = rebuilt_from(build_batch(records, base_offset=100, codec=codec, producer=(9, 1, 5)))

    assert_sound(built)
    assert seen(built) == written(records, 100)
    assert [next(batches(b.batch)).codec for b in built] == [codec]


def test_batches_are_put_together() -> None:
    """Many small batches become one; where they follow each other there is one run."""
    parts = [build_batch([Content(0, START_MS + n)], base_offset=n) for n in range(100)]
    (rebuilt,) = built = rebuilt_from(b"".join(parts))

    assert_sound(built)
    assert rebuilt.runs == ((0, 0, 100),)


def test_each_codec_gets_a_batch_of_its_own() -> None:
    """Batches of different codecs are not put together, and their order stays."""
    big = [Content(n, START_MS, b"k", b"x" * 300) for n in range(5)]
    codecs = (GZIP, GZIP, NONE, ZSTD, GZIP)
    built = rebuilt_from(*[build_batch(big, base_offset=n * 5, codec=codec) for n, codec in enumerate(codecs)])

    assert_sound(built)
    assert [next(batches(b.batch)).codec for b in built] == [GZIP, NONE, ZSTD, GZIP]
    assert [offset for b in built for offset in upstream_offsets(b)] == list(range(25))


def test_log_append_time_becomes_what_a_consumer_saw() -> None:
    """Records of a LogAppendTime batch get that time as their own, and the batch is CreateTime."""
    stamped = START_MS + 777
    records = contents(5)
    raw = build_batch(records, attributes=LOG_APPEND_TIME, max_timestamp=stamped)
    (rebuilt,) = built = rebuilt_from(raw)

    assert_sound(built)
    assert seen(built) == [(r.delta, stamped, r.key, r.value, ()) for r in records]
    assert not next(batches(rebuilt.batch)).attributes & LOG_APPEND_TIME


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_timestamp_stay_without_before_others(codec: int) -> None:
    """A batch may begin with them: -1 is a timestamp like any other."""
    timestamps = [-1, -1, START_MS, -1, START_MS + 1]
    parts = [build_batch([Content(0, it)], base_offset=n, codec=codec) for n, it in enumerate(timestamps)]
    built = rebuilt_from(*parts)

    assert_sound(built)
    assert [record[:2] for record in seen(built)] == list(enumerate(timestamps))


def test_delete_horizon_goes_and_timestamps_stay() -> None:
    """KIP-534 keeps a compaction's horizon where the base timestamp was; it is not copied, the timestamps are."""
    records = [Content(0, START_MS, b"k", None), Content(2, START_MS + 40, b"j", None)]
    raw = bytearray(build_batch([Content(0, START_MS + 5), *records]))
    built = rebuilt_from(resigned(raw[:21] + struct.pack(">h", DELETE_HORIZON) + raw[23:]))

    assert [record[1] for record in seen(built)] == [START_MS + 5, START_MS, START_MS + 40]
    assert next(batches(built[0].batch)).attributes == 0


@pytest.mark.parametrize("codec", CODECS)
def test_batches_larger_than_the_limit_are_split(codec: int) -> None:
    """No rebuilt batch is larger than the limit, also when its records do not compress; nothing is lost between."""
    chance = bytes((n * 7919 + (n >> 3) * 104729) % 256 for n in range(5000))
    records = [Content(n, START_MS + n, b"k", chance[n : n + 900]) for n in range(100)]
    built = rebuilt_from(build_batch(records, codec=codec), limit=10_000)

    assert_sound(built)
    assert len(built) >= 9
    assert max(len(rebuilt.batch) for rebuilt in built) <= 10_000
    assert seen(built) == written(records)


@pytest.mark.parametrize("codec", CODECS)
def test_what_compression_would_make_larger_is_not_compressed(codec: int) -> None:
    """No codec makes a value of chance smaller: a batch near the limit without one would exceed it."""
    records = [Content(0, START_MS, None, random.Random(codec).randbytes(30_000))]
    (rebuilt,) = built = rebuilt_from(build_batch(records, codec=codec))

    assert_sound(built)
    assert len(rebuilt.batch) == len(build_batch(records))


def test_a_single_record_may_be_larger_than_the_limit() -> None:
    """A record that fits into no batch comes out alone, for the caller to refuse; its neighbours are not with it."""
    records = [Content(0), Content(1, START_MS, b"k", b"x" * 5000), Content(2)]
    built = rebuilt_from(build_batch(records), limit=1000)

    assert_sound(built)
    assert [rebuilt.record_count for rebuilt in built] == [1, 1, 1]
    assert [len(rebuilt.batch) > 1000 for rebuilt in built] == [False, True, False]


def test_finish_starts_over() -> None:
    """After its result was taken a rebuilder is as new."""
    rebuilder = Rebuilder(NO_LIMIT)
    rebuilder.add(build_batch(2))
    first = rebuilder.finish()
    rebuilder.add(build_batch(3, base_offset=2))
    second = rebuilder.finish()

    assert [b.runs for b in first + second] == [((0, 0, 2),), ((2, 0, 3),)]
    assert rebuilder.finish() == []


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_formats_before_011_become_batches(magic: int, codec: int) -> None:
    """Messages of magic 0 and 1 become a magic 2 batch in their codec; magic 0 has no timestamps."""
    if (magic, codec) == (0, LZ4):
        pytest.skip("KAFKA-3160: no client reads magic 0 in lz4")
    records = [Content(n, START_MS + n, None if n == 2 else b"k", None if n == 3 else b"x" * 100) for n in range(5)]
    built = rebuilt_from(legacy_messages(magic, records, base_offset=40, codec=codec))
    expected = [r._replace(timestamp=START_MS + r.delta if magic else -1) for r in records]

    assert_sound(built)
    assert seen(built) == written(expected, 40)
    assert [next(batches(b.batch)).codec for b in built] == [codec]


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_log_append_time_of_magic_1_is_kept(codec: int) -> None:
    """The broker's time on a message of magic 1 is its records' time, as a consumer sees it."""
    raw = legacy_messages(1, contents(1), codec=codec, log_append_time=START_MS + 99)
    built = rebuilt_from(raw)

    assert [record[1] for record in seen(built)] == [START_MS + 99]


@pytest.mark.parametrize(("magic", "codec"), [(0, NONE), (1, NONE), (1, GZIP)])
def test_no_flipped_bit_of_a_legacy_message_gets_through(magic: int, codec: int) -> None:
    """Whatever bit of a message changes behind its length, it is unreadable, and nothing else is raised."""
    raw = legacy_messages(magic, contents(1, size=60), codec=codec)
    for at in range(12, len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            with pytest.raises(UnreadableBatchError):
                rebuilt_from(bytes(damaged))


def test_damage_names_its_batch_and_keeps_what_was_before() -> None:
    """A batch whose checksum does not fit stops the rebuilder at its offset; earlier batches can still be taken."""
    rebuilder = Rebuilder(NO_LIMIT)
    record_set = build_batch(3) + flipped(build_batch(2, base_offset=3)) + build_batch(2, base_offset=5)

    with pytest.raises(UnreadableBatchError) as caught:
        rebuilder.add(record_set)
    assert caught.value.offset == 3
    assert "checksum" in caught.value.detail
    assert [b.runs for b in rebuilder.finish()] == [((0, 0, 3),)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("damage", ["garbage", "short", "empty", "zeros"])
def test_records_that_cannot_be_decoded_are_an_error_of_ours(codec: int, damage: str) -> None:
    """Whatever lies behind a header with a good checksum, only `UnreadableBatchError` comes out."""
    batch = build_batch([Content(n, START_MS, b"k", b"v" * 100) for n in range(50)], base_offset=7, codec=codec)
    records = batch[HEADER_BYTES:]
    behind = {
        "garbage": bytes((n * 7 + 3) % 256 for n in range(len(records))),
        "short": records[:-5],
        "empty": b"",
        "zeros": bytes(len(records)),
    }[damage]
    damaged = resigned(batch[:HEADER_BYTES] + behind)

    with pytest.raises(UnreadableBatchError) as caught:
        rebuilt_from(damaged)
    assert caught.value.offset == 7
    with pytest.raises(UnreadableBatchError):
        decode(damaged)


@pytest.mark.parametrize("codec", CODECS)
def test_a_length_that_no_memory_has_is_an_error_of_ours(codec: int) -> None:
    """A key that claims nearly 2 to the power of 63 bytes ends its partition alone."""
    key = b"\xf4\xfe" + b"\xff" * 7 + b"\x01"
    record = b"\0\0\2" + key + b"\1\0"
    good = bytearray(build_batch([Content(0, START_MS, None, b"v" * 200)]))
    good[57:61] = struct.pack(">i", 2)
    plain = resigned(good + bytes([len(record) << 1]) + record)
    hostile = bytes(compressed(Rebuilt(memoryview(bytearray(plain)), (), 2, 0), codec).batch)

    for read_all in (decode, rebuilt_from, _columns_of):
        with pytest.raises(UnreadableBatchError):
            read_all(hostile)


@given(
    codec=st.sampled_from(CODECS),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 8)),
    instead=st.binary(max_size=8),
    count=st.sampled_from([3, 0, 1, -1, 2**31 - 1]),
)
@example(codec=SNAPPY, cut=(200, 0), instead=b"\x00\x01", count=3)
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
def test_a_hostile_batch_is_records_or_an_error_of_ours(
    codec: int, cut: tuple[int, int], instead: bytes, count: int
) -> None:
    """A producer that signs garbage ends its own partition's epoch at most: readers raise only our errors."""
    batch = build_batch([Content(n, START_MS, b"k", b"v" * 9, (("h", b"x"),)) for n in range(3)], codec=codec)
    at, length = min(cut[0], len(batch) - HEADER_BYTES), cut[1]
    records = batch[HEADER_BYTES:]
    hostile = bytearray(batch[:HEADER_BYTES] + records[:at] + instead + records[at + length :])
    hostile[57:61] = struct.pack(">i", count)
    signed = resigned(bytes(hostile))

    for read_all in (decode, rebuilt_from, _columns_of, _payloads_of):
        with suppress(UnreadableBatchError, MalformedRecordSetError):
            read_all(signed)


def _columns_of(raw: bytes) -> None:
    RecordColumns().add(raw, from_offset=0, before=1 << 62)


def _payloads_of(raw: bytes) -> None:
    for batch in batches(memoryview(raw)):
        for _, payload in payloads.read(batch).contents:
            with suppress(ValueError):
                payloads.split(payload)


def test_unknown_codec_is_an_error_of_ours() -> None:
    """An unknown codec is an error of ours, which ends its partition alone."""
    raw = bytearray(build_batch(3))
    struct.pack_into(">h", raw, 21, 6)

    with pytest.raises(UnreadableBatchError):
        rebuilt_from(resigned(raw))


def test_decode_gives_records_as_consumers_see_them() -> None:
    """Decoding gives offsets, timestamps and content of the data batches; control batches hold nothing to compare."""
    record_set = (
        build_batch(STRANGE, base_offset=10, codec=GZIP)
        + control_batch(14, 3, commits=True)
        + build_batch([Content(0, START_MS, b"k", b"v")], base_offset=15, attributes=LOG_APPEND_TIME, max_timestamp=9)
    )
    old = legacy_messages(0, [Content(0, START_MS, b"old", None)], base_offset=16)

    assert decode(record_set) == [
        *[RecordContent(10 + r.delta, r.timestamp, r.key, r.value, r.headers) for r in STRANGE],
        RecordContent(15, 9, b"k", b"v", ()),
    ]
    assert decode(old) == [RecordContent(16, -1, b"old", None, ())]


layouts = st.lists(
    st.tuples(
        st.integers(0, 3),  # offsets left out before the batch
        st.lists(st.integers(0, 2), min_size=1, max_size=6),  # offsets left out before each record
        st.sampled_from([NONE, NONE, GZIP, LZ4]),
        st.integers(1, 300),  # value size
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(layouts, st.integers(0, 40), st.sampled_from([150, 500, NO_LIMIT]))
def test_any_layout_keeps_records_order_and_offsets(
    layout: list[tuple[int, list[int], int, int]], start: int, limit: int
) -> None:
    """However records lie in batches, those from the start on come out once, in order, with their offsets in runs."""
    parts, expected, at = [], [], 0
    for gap, skips, codec, size in layout:
        at += gap
        deltas, delta = [], -1
        for skip in skips:
            delta += 1 + skip
            deltas.append(delta)
        records = [Content(d, START_MS + at + d, b"%d" % (at + d), b"v" * size) for d in deltas]
        parts.append(build_batch(records, base_offset=at, codec=codec))
        expected += [record for record in written(records, at) if int(str(record[0])) >= start]
        at += deltas[-1] + 1
    built = rebuilt_from(b"".join(parts), limit=limit, from_offset=start)

    assert_sound(built)
    assert seen(built) == expected
    assert all(len(b.batch) <= limit or b.record_count == 1 for b in built)
