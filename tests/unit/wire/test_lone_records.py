"""A batch of one record, taken apart without the codec, gives what the codec gives."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mm2py.wire.batch import RecordBatchView, batches
from mm2py.wire.lone_records import is_lone, lone_record
from mm2py.wire.rebuild import UnreadableBatchError
from mm2py.wire.record_columns import RecordColumns
from tests.support.batches import (
    CODECS,
    DELETE_HORIZON,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NONE,
    START_MS,
    Content,
    build_batch,
    flipped,
    resigned,
)


OFFSET = 77
#: Lengths of one, two and three bytes.
SIZES = (0, 1, 63, 64, 8_191, 8_192, 70_000)

_texts = st.none() | st.binary(max_size=200)
_headers = st.lists(st.tuples(st.text(max_size=80), _texts), max_size=70).map(tuple)
_contents = st.builds(Content, st.just(0), st.integers(-1, 1 << 50), _texts, _texts, _headers)


def view_of(batch: bytes) -> RecordBatchView:
    (view,) = batches(memoryview(batch))
    return view


def by_the_codec(batch: bytes) -> tuple[object, ...]:
    columns = RecordColumns()
    columns.add(batch, from_offset=0, before=OFFSET + 1)
    (row,) = zip(columns.timestamps, columns.keys, columns.values, columns.headers, strict=True)
    return row


@given(_contents)
@example(Content(0, START_MS, None, None))
@example(Content(0, START_MS, b"", b"", (("", None), ("", b""))))
def test_it_is_what_the_codec_gives(content: Content) -> None:
    """Key, value, headers and timestamp, whatever is in them."""
    batch = build_batch([content], base_offset=OFFSET)

    assert is_lone(view_of(batch))
    assert lone_record(view_of(batch)) == by_the_codec(batch)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("field", ["key", "value", "header"])
def test_lengths_of_several_bytes(field: str, size: int) -> None:
    """A length takes more bytes the longer what follows is."""
    text = bytes(range(256)) * (size // 256) + bytes(size % 256)
    content = Content(0, START_MS, None, b"v", (("h", text),)) if field == "header" else Content(0, START_MS, b"", b"")
    if field != "header":
        content = content._replace(**{field: text})
    batch = build_batch([content], base_offset=OFFSET)

    assert lone_record(view_of(batch)) == by_the_codec(batch)


def test_a_record_away_from_its_batch_s_timestamp() -> None:
    """Compaction leaves the base timestamp of a batch that had more records."""
    batch = bytearray(build_batch([Content(0, START_MS, b"k", b"v")]))
    batch[27:35] = (START_MS - 50).to_bytes(8, "big")
    batch[HEADER_BYTES + 2] = 50 << 1

    assert lone_record(view_of(resigned(batch)))[0] == START_MS == by_the_codec(resigned(batch))[0]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != NONE])
def test_compressed_ones_are_the_codec_s(codec: int) -> None:
    """Their bytes are no record yet."""
    assert not is_lone(view_of(build_batch(1, codec=codec)))


@pytest.mark.parametrize("attributes", [LOG_APPEND_TIME, DELETE_HORIZON])
def test_other_timestamps_are_the_codec_s(attributes: int) -> None:
    """They are not where the record says."""
    assert not is_lone(view_of(build_batch(1, attributes=attributes)))
    assert not is_lone(view_of(build_batch(2)))


def test_each_flipped_bit_is_noticed() -> None:
    """By the checksum."""
    batch = build_batch([Content(0, START_MS, b"key", b"value", (("h", b"1"),))], base_offset=OFFSET)
    for at in range(21, len(batch)):
        damaged = view_of(flipped(batch, at))
        with pytest.raises(UnreadableBatchError) as raised:
            lone_record(damaged)
        assert raised.value.offset == OFFSET


@given(st.data())
def test_bytes_that_make_no_sense_are_an_unreadable_batch(data: st.DataObject) -> None:
    """A right checksum over nonsense raises nothing else, and what it gives then is a record."""
    sound = bytearray(build_batch([Content(0, START_MS, b"key", b"value", (("h", b"1"),))], base_offset=OFFSET))
    for _ in range(data.draw(st.integers(1, 4))):
        sound[data.draw(st.integers(HEADER_BYTES, len(sound) - 1))] = data.draw(st.integers(0, 255))
    try:
        timestamp, key, value, headers = lone_record(view_of(resigned(sound)))
    except UnreadableBatchError as error:
        assert error.offset == OFFSET  # noqa: PT017 - either is right
    else:
        assert isinstance(timestamp, int)
        assert all(isinstance(text, bytes | None) for text in (key, value, *(text for _, text in headers)))


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_record_that_is_cut_off(cut: int) -> None:
    """Nothing is made up where bytes are lacking."""
    batch = build_batch([Content(0, START_MS, b"key", b"value", (("h", b"1"),))], base_offset=OFFSET)
    with pytest.raises(UnreadableBatchError):
        lone_record(view_of(resigned(batch[:-cut])))


def test_bytes_behind_the_record() -> None:
    """A batch that holds more than its header says is damaged."""
    with pytest.raises(UnreadableBatchError, match="3 bytes follow"):
        lone_record(view_of(resigned(build_batch(1) + b"abc")))
