"""Compiled code and Python read the same records, and build the same batches; neither reads beyond what there is."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.columns import chunk_of, pack_arrow, to_arrow
from mm2py.wire.batches import native
from mm2py.wire.batches.batch import HEADER_BYTES, batches
from mm2py.wire.batches.native import Rebuilt
from mm2py.wire.batches.packed_records import pack, unpack
from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.batches.record_columns import RecordColumns, build
from tests.support.batches import LZ4, NONE, START_MS, Content, build_batch, contents, legacy_messages, resigned
from tests.support.contents import decode
from tests.support.record_sets import Headers, in_python, record_sets


pytestmark = pytest.mark.skipif(native.library() is None, reason="there is no C compiler")

_ORDERS = TopicPartition("orders", 0)
_slow = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
_LIMIT = 1 << 20


def _data(record_set: bytes) -> list[bytes]:
    return [bytes(batch.view) for batch in batches(memoryview(record_set)) if not batch.is_control]


def _columns(parts: list[bytes], from_offset: int, before: int) -> RecordColumns:
    columns = RecordColumns()
    for part in parts:
        columns.add(part, from_offset=from_offset, before=before)
    return columns


def _facts(built: list[Rebuilt] | None) -> list[tuple[object, ...]]:
    assert built is not None
    return [(bytes(it.batch), it.runs, it.record_count, it.max_timestamp) for it in built]


@_slow
@given(record_sets(), st.integers(0, 20), st.integers(0, 40))
def test_both_ways_read_the_same_records(record_set: bytes, skipped: int, count: int) -> None:
    """Compressed, stamped, with holes or headers, from any offset to any."""
    parts = _data(record_set)
    start = int.from_bytes(record_set[:8]) + skipped
    packed = unpack(parts, from_offset=start, before=start + count)
    assert packed is not None
    found = to_arrow(_ORDERS, packed)
    found.validate(full=True)

    assert found.equals(to_arrow(_ORDERS, _columns(parts, start, start + count)))


@_slow
@given(record_sets(), st.sampled_from((NONE, LZ4)), st.sampled_from((100, 200, 500, _LIMIT)), Headers)
def test_both_ways_write_the_same_records(
    record_set: bytes, codec: int, limit: int, added: tuple[tuple[str, bytes | None], ...]
) -> None:
    """With headers added, or none; the very same batches where nothing is compressed or near the limit."""
    columns = _columns(_data(record_set), 0, 1 << 60)
    if not len(columns):
        return
    rows = to_arrow(_ORDERS, columns)
    packed = pack_arrow([rows.slice(0, 1), rows.slice(1)])
    assert packed is not None
    compiled = pack(packed, codec=codec, limit_bytes=limit, headers=added)
    headers = [(*its, *added) for its in columns.headers]
    records = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, headers, strict=True)
    python = build(records, codec=codec, limit_bytes=limit)

    assert compiled is not None
    assert all(len(it.batch) <= limit or it.record_count == 1 for it in compiled)
    if limit == _LIMIT and codec == NONE:
        assert _facts(compiled) == _facts(python)
    assert _contents(compiled) == _contents(python)


def _contents(built: list[Rebuilt]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for it in built:
        upstream = [first + n for first, _, length in it.runs for n in range(length)]
        found += [
            (offset, record.timestamp, record.key, record.value, record.headers)
            for offset, record in zip(upstream, decode(bytes(it.batch)), strict=True)
        ]
    return found


@_slow
@given(record_set=record_sets(), data=st.data())
def test_what_is_damaged_is_left_to_python(record_set: bytes, data: st.DataObject) -> None:
    """Which says what is wrong; where both read it, they read the same."""
    parts = _data(record_set)
    if not parts:
        return
    number = data.draw(st.integers(0, len(parts) - 1))
    raw = bytearray(parts[number])
    raw[data.draw(st.integers(HEADER_BYTES, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    parts[number] = resigned(bytes(raw)) if data.draw(st.booleans()) else bytes(raw)
    packed = unpack(parts, from_offset=0, before=1 << 60)
    try:
        columns = _columns(parts, 0, 1 << 60)
    except UnreadableBatchError:
        assert packed is None
        return

    if packed is not None:
        assert to_arrow(_ORDERS, packed).equals(to_arrow(_ORDERS, columns))


@pytest.mark.parametrize("name", ["key", "ключ"])
def test_names_of_headers_in_another_script_are_left_to_python(name: str) -> None:
    """It says where they are no text; and all is left to it where there is no compiled code."""
    batch = build_batch([Content(n, headers=((name, b"1"),)) for n in range(3)])

    assert (unpack([batch], from_offset=0, before=3) is not None) == name.isascii()
    with in_python():
        assert unpack([batch], from_offset=0, before=3) is None


@pytest.mark.parametrize("codec", [NONE, 1, 2, LZ4, 4, 5])
def test_every_codec_that_kafka_has(codec: int) -> None:
    """What has none of them is left to Python, and so is a message of the format before magic 2."""
    batch = build_batch(contents(20), codec=codec if codec < 5 else NONE)
    if codec == 5:
        batch = resigned(batch[:22] + bytes([codec]) + batch[23:])
    packed = unpack([batch], from_offset=0, before=20)

    assert (packed is None) == (codec == 5)
    assert packed is None or len(packed) == 20
    assert unpack([legacy_messages(1, contents(1))], from_offset=0, before=1) is None


def test_timestamps_are_rounded_down() -> None:
    """A statement may give microseconds, and times before 1970, as in Python."""
    columns = _columns([build_batch([Content(n, START_MS, None, b"x") for n in range(3)])], 0, 3)
    rows = to_arrow(_ORDERS, columns)
    stamps = pa.array([1_999, -1_001, None], pa.int64()).cast(rows.schema.field("timestamp").type)
    changed = rows.set_column(3, "timestamp", stamps)
    packed = pack_arrow([changed])
    assert packed is not None

    written = pack(packed, codec=NONE, limit_bytes=_LIMIT)
    assert written is not None
    assert [record[1] for record in _contents(written)] == chunk_of(changed, _ORDERS).timestamps == [1, -2, -1]
