"""What aiokafka's readers would follow out of a batch is refused before they begin."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from aiokafka.codec import gzip_encode

from mm2py.wire.batches import codecs, payloads
from mm2py.wire.batches.batch import HEADER_BYTES
from mm2py.wire.batches.rebuild import Rebuilder, UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns
from tests.support.batches import (
    GZIP,
    LZ4,
    SNAPPY,
    START_MS,
    ZSTD,
    Content,
    build_batch,
    contents,
    legacy_messages,
    resign_legacy,
    resigned,
    view_of,
)
from tests.support.contents import decode
from tests.support.record_sets import in_python


WAYS: list[Callable[[bytes], object]] = [
    lambda raw: Rebuilder(1 << 20).add(raw),
    decode,
    lambda raw: RecordColumns().add(raw, from_offset=0, before=1 << 62),
    lambda raw: payloads.read(view_of(raw)),
]


def _around(magic: int, messages: bytes) -> bytes:
    """Return a compressed message with a good checksum around *messages*."""
    outer = bytearray(legacy_messages(magic, [Content(0, START_MS, None, gzip_encode(messages))]))
    outer[17] = GZIP
    resign_legacy(outer)
    return bytes(outer)


@pytest.mark.parametrize("read_all", WAYS)
@pytest.mark.parametrize("length", [-(2**31), -60, -12, -11, 0, 13, 10_000])
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_inside_another_end_where_they_say(
    magic: int, length: int, read_all: Callable[[bytes], object]
) -> None:
    """A length that leads back, or out of what was decompressed, would have ended or hung the whole process."""
    messages = bytearray(legacy_messages(magic, contents(3, size=100)))
    assert decode(_around(magic, messages))
    for at in (0, len(messages) // 3):
        hostile = bytearray(messages)
        hostile[at + 8 : at + 12] = struct.pack(">i", length)

        with pytest.raises(UnreadableBatchError):
            read_all(_around(magic, bytes(hostile)))


@pytest.mark.parametrize("read_all", WAYS)
@pytest.mark.parametrize("size", [-(2**31), -5, -2, 10_000])
@pytest.mark.parametrize("magic", [0, 1])
def test_keys_and_values_lie_inside_their_message(magic: int, size: int, read_all: Callable[[bytes], object]) -> None:
    """The same of their sizes."""
    message = bytearray(legacy_messages(magic, contents(1)))
    key_at = 26 if magic else 18
    message[key_at : key_at + 4] = struct.pack(">i", size)

    with pytest.raises(UnreadableBatchError):
        read_all(_around(magic, bytes(message)))


@pytest.mark.parametrize("read_all", WAYS)
@pytest.mark.parametrize("messages", [b"", b"\0" * 11])
def test_a_message_around_none_is_refused(messages: bytes, read_all: Callable[[bytes], object]) -> None:
    """It has no last message, which the offsets are counted from."""
    with pytest.raises(UnreadableBatchError):
        read_all(_around(1, messages))


@pytest.mark.parametrize("read_all", WAYS)
@pytest.mark.parametrize("size", [-(2**31), -4, 0, 1 << 20])
def test_no_block_of_snappy_leads_back(size: int, read_all: Callable[[bytes], object]) -> None:
    """aiokafka takes its size as it is: such blocks could be read again and again until the memory was full."""
    raw = bytearray(build_batch(contents(9), base_offset=7, codec=SNAPPY))
    raw[HEADER_BYTES + 16 : HEADER_BYTES + 20] = struct.pack(">i", size)

    with pytest.raises(UnreadableBatchError, match=f"a block of {size} bytes") as caught:
        read_all(resigned(raw))
    assert caught.value.offset == 7


@pytest.mark.parametrize("read_all", WAYS)
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_what_no_memory_holds_is_refused(
    codec: int, read_all: Callable[[bytes], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka's codec has no limit; without compiled code a batch of gigabytes would take all memory."""
    monkeypatch.setattr(codecs, "_MOST_BYTES", 1 << 20)
    raw = build_batch([Content(0, START_MS, None, bytes(2 << 20))], base_offset=7, codec=codec)

    with pytest.raises(UnreadableBatchError, match="more than 1048576 bytes without") as caught, in_python():
        read_all(raw)
    assert caught.value.offset == 7
