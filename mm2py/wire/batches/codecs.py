"""
Batches with and without compression.

Records are read and written without it, by compiled code or by aiokafka's, and limits count their bytes without it.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Callable
from typing import Any, Final

import attrs
import cramjam
from aiokafka.codec import (
    gzip_decode,
    gzip_encode,
    lz4_decode,
    lz4_encode,
    snappy_decode,
    snappy_encode,
    zstd_decode,
    zstd_encode,
)
from crc32c import crc32c

from mm2py.wire.batches.batch import CODEC_MASK, HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatchView
from mm2py.wire.batches.native import Rebuilt


BAD_CHECKSUM: Final = "its checksum does not match its content"

_DECODERS: Final[dict[int, Callable[[Any], bytes]]] = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
#: A topic's producers may write batches of which no memory holds the records. So many bytes may be in any batch, and in
#: a larger one as many times its own size: more than a producer that means well puts into one.
_MOST_BYTES: Final = 256 * 1024 * 1024
_MOST_TIMES: Final = 64
#: How many times smaller codecs make what they are best at; Snappy's is below `_MOST_TIMES`.
_BEST: Final = {1: 1_040, 3: 256, 4: 33_000}
_ENCODERS: Final = {1: gzip_encode, 2: snappy_encode, 3: lz4_encode, 4: zstd_encode}
GZIP, SNAPPY, LZ4 = 1, 2, 3
#: How many times what is compressed there is room for, at first and then; cramjam's word for a room that is full.
_ROOMS: Final = (16, 256, _MOST_BYTES)
_IS_FULL: Final = "whole buffer"
#: How the blocks of xerial's Java library begin; two versions follow.
_XERIAL: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_SIGNED_FROM: Final = 21
_CODEC_AT: Final = 22


class OverfullError(ValueError):
    """A batch holds more, once it is decompressed, than is decompressed of any."""


def decompressed(codec: int, body: bytes | memoryview) -> bytes:
    """Return *body* without compression. Raise `OverfullError` or another `ValueError`, or what a codec raises."""
    # Compaction leaves the codec to a batch without records.
    if not codec or not body:
        return bytes(body)
    decode = _DECODERS.get(codec)
    if decode is None:
        raise ValueError(f"its codec, {codec}, is none that is known")
    if codec == SNAPPY:
        _check_blocks(body)
    most = max(_MOST_BYTES, _MOST_TIMES * len(body))
    if len(body) * _BEST.get(codec, 0) > most:
        return _up_to(most, codec, body)
    return decode(body)


def _up_to(most: int, codec: int, body: bytes | memoryview) -> bytes:
    """Return *body* without compression if that is no more than *most* bytes; raise `OverfullError` if it is."""
    if codec == GZIP:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as stream:
            found = stream.read(most + 1)
        if len(found) <= most:
            return found
    else:
        into = cramjam.lz4.decompress_into if codec == LZ4 else cramjam.zstd.decompress_into
        for times in _ROOMS:
            room = bytearray(min(most, times * len(body)))
            try:
                return bytes(memoryview(room)[: into(body, room)])
            except cramjam.DecompressionError as error:
                if _IS_FULL not in str(error):
                    raise
    raise OverfullError(f"its records take more than {most} bytes without compression")


def _check_blocks(body: bytes | memoryview) -> None:
    """Raise `ValueError` for a size that aiokafka's decoder, which takes them as they are, would go back by."""
    if bytes(body[: len(_XERIAL)]) != _XERIAL:
        return
    at = _XERIAL_HEADER_BYTES
    while at < len(body):
        (size,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size + size
        if size <= 0 or at > len(body):
            raise ValueError(f"it has a block of {size} bytes, which does not fit")


def body_of(batch: RecordBatchView) -> bytes:
    """Return the records of a batch without compression. Raise `ValueError`, or what a codec raises."""
    return decompressed(batch.codec, batch.view[HEADER_BYTES:])


def plain(batch: RecordBatchView) -> bytearray | memoryview:
    """Return a batch without compression. Raise `ValueError`, or what a codec raises."""
    codec = batch.attributes & CODEC_MASK
    if not codec:
        return batch.view
    if not batch.matches_crc():
        raise ValueError(BAD_CHECKSUM)
    return _with_body(batch.view, decompressed(codec, batch.view[HEADER_BYTES:]), 0)


def compressed(built: Rebuilt, codec: int) -> Rebuilt:
    """Return *built*, a batch without compression, with its records compressed if that makes them smaller."""
    if not codec:
        return built
    body = built.batch[HEADER_BYTES:]
    smaller = _ENCODERS[codec](bytes(body))
    if len(smaller) >= len(body):
        return built
    return attrs.evolve(built, batch=memoryview(_with_body(built.batch, smaller, codec)))


def _with_body(batch: memoryview, body: bytes, codec: int) -> bytearray:
    """Return *batch* with other bytes of the same records."""
    made = bytearray(batch[:HEADER_BYTES])
    made[_CODEC_AT] = made[_CODEC_AT] & ~CODEC_MASK | codec
    _CRC.pack_into(made, _CRC_AT, crc32c(body, crc32c(made[_SIGNED_FROM:])))
    _LENGTH.pack_into(made, _LENGTH_AT, HEADER_BYTES + len(body) - LOG_OVERHEAD_BYTES)
    made += body
    return made
