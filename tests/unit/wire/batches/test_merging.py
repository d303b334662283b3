"""Compiled code and Python do the same with whatever record sets there are; neither reads beyond them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mm2py.pipeline.copy import ingest
from mm2py.wire.batches import merging, native
from mm2py.wire.batches.batch import HEADER_BYTES, batches
from mm2py.wire.batches.codecs import plain
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.rebuild import Rebuilder, UnreadableBatchError
from tests.support.batches import (
    CODECS,
    LOG_APPEND_TIME,
    START_MS,
    Content,
    build_batch,
    flipped,
    named_batch,
    resigned,
    view_of,
)
from tests.support.contents import RecordContent, decode
from tests.support.record_sets import in_python, record_sets


pytestmark = pytest.mark.skipif(native.library() is None, reason="there is no C compiler")


def _rebuilt(record_set: bytes, from_offset: int = 0) -> tuple[list[Rebuilt], int | None]:
    rebuilder, unreadable = Rebuilder(1 << 20), None
    try:
        rebuilder.add(record_set, from_offset=from_offset)
    except UnreadableBatchError as error:
        unreadable = error.offset
    return rebuilder.finish(), unreadable


def _both(record_set: bytes, from_offset: int) -> list[tuple[list[Rebuilt], int | None]]:
    """Rebuild them by compiled code and by Python; with each, the offset of an unreadable batch."""
    compiled = _rebuilt(record_set, from_offset)
    with in_python():
        return [compiled, _rebuilt(record_set, from_offset)]


def _seen(built: list[Rebuilt]) -> list[tuple[object, object, list[object]]]:
    found: list[tuple[object, object, list[object]]] = []
    for it in built:
        upstream = [first + n for first, _, length in it.runs for n in range(length)]
        records: list[RecordContent] = decode(bytes(it.batch))
        found.append((it.runs, it.max_timestamp, [_facts(r) for r in zip(upstream, records, strict=True)]))
    return found


def _facts(record: tuple[int, RecordContent]) -> tuple[object, ...]:
    upstream, content = record
    return upstream, content.timestamp, content.key, content.value, content.headers


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(record_sets(), st.integers(0, 20))
def test_both_ways_build_the_same_batches(record_set: bytes, skipped: int) -> None:
    """The same bytes, with the same runs, from any offset on."""
    from_offset = int.from_bytes(record_set[:8]) + skipped
    (compiled, unreadable), (python, _) = _both(record_set, from_offset)

    assert unreadable is None
    assert _seen(compiled) == _seen(python)
    assert [view_of(it.batch).codec for it in compiled] == [view_of(it.batch).codec for it in python]
    # The codec gzip writes the time.
    assert [bytes(plain(view_of(it.batch))) for it in compiled] == [bytes(plain(view_of(it.batch))) for it in python]


@pytest.mark.parametrize("codec", CODECS)
def test_names_of_headers_need_not_be_text(codec: int) -> None:
    """They stay as they are, byte for byte."""
    raw = b"".join(named_batch(b"caf\xe9", base_offset=n, codec=codec, attributes=LOG_APPEND_TIME) for n in range(3))
    (built,), unreadable = _rebuilt(raw)
    view = view_of(built.batch)

    assert (unreadable, view.codec, built.runs) == (None, codec, ((0, 0, 3),))
    assert bytes(plain(view)).count(b"caf\xe9") == 3


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_batch_is_named_in_any_codec(codec: int) -> None:
    """What was before it stays."""
    raw = (
        build_batch(3, codec=codec)
        + flipped(build_batch(3, base_offset=3, codec=codec))
        + build_batch(1, base_offset=6)
    )
    (built,), unreadable = _rebuilt(raw)

    assert (built.runs, unreadable) == (((0, 0, 3),), 3)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(record_set=record_sets(st.just(())), data=st.data())
def test_what_is_damaged_is_refused_alike(record_set: bytes, data: st.DataObject) -> None:
    """A batch that was damaged, signed again or not, is named by both; what was before it stays."""
    found = [batch for batch in batches(memoryview(record_set)) if not batch.codec and len(batch.view) > HEADER_BYTES]
    if not found:
        return
    damaged, raw = data.draw(st.sampled_from(found)), bytearray(record_set)
    start = record_set.index(bytes(damaged.view))
    at = data.draw(st.integers(HEADER_BYTES, len(damaged.view) - 1))
    raw[start + at] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        raw[start : start + len(damaged.view)] = resigned(bytes(raw[start : start + len(damaged.view)]))
    compiled, python = _both(bytes(raw), 0)

    if python[1] is not None:
        assert compiled[1] == python[1]
    if compiled[1] is None:
        assert _seen(compiled[0]) == _seen(python[0])
    else:
        assert compiled[1] == damaged.base_offset


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(record_set=record_sets(), cut=st.integers(0, 100), below=st.sampled_from((80, 150, 2048)))
@example(record_set=b"", cut=0, below=2048)
def test_both_ways_find_the_same_ranges(record_set: bytes, cut: int, below: int) -> None:
    """Of a record set that may be cut off too."""
    view = memoryview(record_set[: len(record_set) - cut])
    compiled = list(ingest._offset_ranges(view, below))
    with in_python():
        python = list(ingest._offset_ranges(view, below))

    assert compiled == python
    assert b"".join(part for part, _ in compiled) == view


@given(content=st.binary(max_size=5000))
def test_the_checksum_is_castagnoli_s(content: bytes) -> None:
    """With the processor's instruction, and without."""
    library = native.library()
    assert library is not None
    found = []
    for is_fast in (0, 1):
        library.mm2py_begin(is_fast)
        found.append(library.mm2py_crc32c(content, len(content)))

    assert found == [crc32c(content)] * 2


def test_a_record_that_grows_beyond_the_room_is_left_to_python() -> None:
    """A timestamp far from the first one, and an offset, take more digits in each of many tiny records."""
    records = [Content(n, START_MS * (n % 2), None, None) for n in range(200)]
    raw = b"".join(build_batch(1, base_offset=n) for n in range(3)) + build_batch(records, base_offset=3)
    built, unreadable = _rebuilt(raw)

    assert unreadable is None
    assert sum(it.record_count for it in built) == 203


def test_a_library_of_another_version_is_not_used(tmp_path: Path) -> None:
    """Nor is a file that is no library: Python does the same."""
    (tmp_path / "libbatches.so.1").write_bytes(b"no library")

    assert native.load(tmp_path / "libbatches.so.1") is None
    assert native.load(tmp_path / "missing.so") is None


def test_a_length_beyond_the_record_set_is_not_for_compiled_code() -> None:
    raw = bytearray(build_batch(1))
    raw[8:12] = struct.pack(">i", 1 << 30)

    assert merging.merge(bytes(raw), 0, 1 << 20) is None
