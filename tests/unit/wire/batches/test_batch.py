"""A batch's header, its checksum, and what signing changes."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import example, given
from hypothesis import strategies as st

from mm2py.wire.batches.batch import (
    MAX_SEQUENCE,
    MalformedRecordSetError,
    RecordBatchView,
    batches,
    next_sequence,
    sign,
)
from tests.support.batches import (
    CODECS,
    CONTROL,
    DELETE_HORIZON,
    GZIP,
    LOG_APPEND_TIME,
    START_MS,
    TRANSACTIONAL,
    Content,
    build_batch,
    contents,
    control_batch,
    legacy_messages,
    view_of,
)


#: One record ("key" -> "value", header "h" -> b"1") of producer 4660, epoch 5, sequence 6, field by field.
GOLDEN = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000044"  # length
    "ffffffff"  # leader epoch
    "02"  # magic
    "77979a31"  # crc
    "0000"  # attributes
    "00000000"  # last offset delta
    "0000018cc251f400"  # base timestamp
    "0000018cc251f400"  # max timestamp
    "0000000000001234"  # producer id
    "0005"  # producer epoch
    "00000006"  # base sequence
    "00000001"  # record count
    "24000000066b65790a76616c75650202680231"  # the record
)  # fmt: skip


def test_golden_bytes_are_what_the_builder_writes() -> None:
    """The golden batch is what aiokafka builds, so that both sides of these tests stand on the same format."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, 0x1234, 5, 6, 1000)
    builder.append(0, START_MS, b"key", b"value", [("h", b"1")])

    assert bytes(builder.build()) == GOLDEN


def test_view_reads_every_field() -> None:
    """A view gives each field of the header and covers exactly the batch's bytes."""
    raw = struct.pack(">q", 1 << 40) + GOLDEN[8:]
    batch = view_of(raw)

    assert (batch.base_offset, batch.last_offset, batch.offset_count) == (1 << 40, 1 << 40, 1)
    assert (batch.magic, batch.attributes, batch.codec, batch.record_count) == (2, 0, 0, 1)
    assert (batch.base_timestamp, batch.max_timestamp) == (START_MS, START_MS)
    assert (batch.producer_id, batch.producer_epoch) == (0x1234, 5)
    assert batch.crc == 0x77979A31
    assert bytes(batch.view) == raw
    assert batch.size_bytes == len(raw)
    assert batch.matches_crc()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(build_batch(3), set(), id="plain"),
        pytest.param(build_batch(3, attributes=TRANSACTIONAL), {"is_transactional"}, id="transactional"),
        pytest.param(control_batch(0, 7, commits=True), {"is_transactional", "is_control"}, id="control"),
        pytest.param(build_batch(1, attributes=CONTROL), {"is_control"}, id="control alone"),
        pytest.param(build_batch([Content(0), Content(2)]), {"has_holes"}, id="hole inside"),
        pytest.param(build_batch(2, last_offset_delta=5), {"has_holes"}, id="hole at the end"),
        pytest.param(build_batch(0, last_offset_delta=5), {"has_holes"}, id="emptied"),
    ],
)
def test_view_tells_kinds_apart(raw: bytes, expected: set[str]) -> None:
    """Transactional batches, control batches and those with holes are told by their header alone."""
    batch = view_of(raw)
    seen = {name for name in ("is_transactional", "is_control", "has_holes") if getattr(batch, name)}

    assert expected == seen


@pytest.mark.parametrize("codec", CODECS)
def test_codec_is_read_with_other_bits_set(codec: int) -> None:
    """The codec is the attributes' lowest three bits, whatever else is set."""
    batch = view_of(build_batch(200, codec=codec, attributes=LOG_APPEND_TIME | TRANSACTIONAL | DELETE_HORIZON))

    assert batch.codec == codec


def test_each_flipped_bit_behind_the_checksum_is_noticed() -> None:
    """No single bit from the attributes to the last record can change without the checksum telling."""
    raw = build_batch(2)
    for at in range(21, len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[at] ^= 1 << bit
            batch = RecordBatchView(memoryview(damaged), 0, 2)
            (batch.crc,) = struct.unpack_from(">I", damaged, 17)

            assert not batch.matches_crc()


def test_record_set_is_walked_batch_by_batch() -> None:
    """Batches of a record set come in order, each with its own place, and legacy messages among them."""
    parts = [
        build_batch(3, base_offset=10),
        legacy_messages(1, contents(1), base_offset=13),
        build_batch(5, base_offset=14, codec=GZIP),
        legacy_messages(0, contents(1), base_offset=19),
    ]
    found = list(batches(memoryview(b"".join(parts))))

    assert [(b.base_offset, b.magic) for b in found] == [(10, 2), (13, 1), (14, 2), (19, 0)]
    assert [bytes(b.view) for b in found] == parts


@pytest.mark.parametrize("length", [-1, 0, 13, 48, -(1 << 31)])
def test_impossible_length_is_an_error_at_its_offset(length: int) -> None:
    """A length too small for a header stops the walk with the offset of that batch, after the ones before it."""
    good = build_batch(2, base_offset=5)
    bad = bytearray(build_batch(2, base_offset=7))
    struct.pack_into(">i", bad, 8, length)
    walk = batches(memoryview(good + bytes(bad)))

    assert next(walk).base_offset == 5
    with pytest.raises(MalformedRecordSetError) as caught:
        next(walk)
    assert caught.value.offset == 7
    assert str(length) in caught.value.detail


def test_signing_changes_the_header_alone() -> None:
    """Signing sets base offset, leader epoch, producer, sequence and checksum; records and the rest stay."""
    raw = build_batch(
        50, base_offset=1234, codec=GZIP, producer=(99, 3, 17), attributes=TRANSACTIONAL, max_timestamp=START_MS + 9999
    )
    signed = bytearray(raw)
    sign(memoryview(signed), 0x1234, 5, 42)
    before, after = view_of(raw), view_of(bytes(signed))

    assert after.matches_crc()
    assert (after.base_offset, signed[12:16]) == (0, b"\xff\xff\xff\xff")
    assert (after.producer_id, after.producer_epoch, signed[53:57]) == (0x1234, 5, struct.pack(">i", 42))
    assert after.attributes == before.attributes & ~TRANSACTIONAL
    assert signed[8:12] + signed[23:43] + signed[57:] == raw[8:12] + raw[23:43] + raw[57:]


def test_our_own_transaction_shows_in_the_batch() -> None:
    """A batch of a transaction of ours has the transactional bit, whether the source's had it or not."""
    plain, foreign = (bytearray(build_batch(5, attributes=bit)) for bit in (0, TRANSACTIONAL))
    for batch in (plain, foreign):
        sign(memoryview(batch), 7, 1, 20, is_transactional=True)

    assert plain == foreign
    assert view_of(bytes(plain)).is_transactional
    assert view_of(bytes(plain)).matches_crc()


def test_signed_batch_is_what_the_builder_would_have_written() -> None:
    """A foreign batch signed as ours is, to the byte, the batch that we would have produced ourselves."""
    signed = bytearray(build_batch(20, base_offset=77, producer=(99, 3, 17), attributes=TRANSACTIONAL))
    sign(memoryview(signed), 7, 1, 20)

    assert bytes(signed) == build_batch(20, producer=(7, 1, 20))
    assert DefaultRecordBatch(bytes(signed)).validate_crc()


def test_signing_works_inside_a_larger_buffer() -> None:
    """A batch is signed where it was received; its neighbours are not touched."""
    parts = [build_batch(2), build_batch(3, base_offset=2), build_batch(2, base_offset=5)]
    record_set = bytearray(b"".join(parts))
    middle = list(batches(memoryview(record_set)))[1]
    sign(middle.view, 1, 0, 0)

    assert record_set.startswith(parts[0])
    assert record_set.endswith(parts[2])
    assert view_of(bytes(middle.view)).matches_crc()


@given(st.integers(0, MAX_SEQUENCE), st.integers(1, MAX_SEQUENCE))
@example(MAX_SEQUENCE - 1, 1)
@example(MAX_SEQUENCE, 1)
@example(MAX_SEQUENCE, MAX_SEQUENCE)
def test_sequences_wrap_to_zero(sequence: int, count: int) -> None:
    """Sequences wrap as Java's ``DefaultRecordBatch.incrementSequence`` has it."""
    after = next_sequence(sequence, count)

    assert 0 <= after <= MAX_SEQUENCE
    assert (after - sequence) % (MAX_SEQUENCE + 1) == count % (MAX_SEQUENCE + 1)


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(0, 400))
def test_every_cut_gives_a_prefix(counts: list[int], cut: int) -> None:
    """However a fetch's size limit cuts a record set, the walk gives its first batches and nothing else."""
    parts, offset = [], 0
    for count in counts:
        parts.append(build_batch(count, base_offset=offset))
        offset += count
    whole = b"".join(parts)
    found = [bytes(batch.view) for batch in batches(memoryview(whole[:cut]))]

    assert found == parts[: len(found)]
    assert cut - sum(map(len, found)) < max(map(len, parts), default=1) or found == parts
