"""Whatever bytes lie in a topic of the mirror's: each decoder gives a value or its refusal, nothing else happens."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mm2py.cli.record_printing import java_text, json_lines, table
from mm2py.client.records import RecordKind, decoded
from mm2py.client.translation import KnownPartitions, OffsetTranslation
from mm2py.connectors.offsets.translations import Translations
from mm2py.core.offsets.translation import Untranslated
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.checkpoint import Checkpoint, encode_checkpoint
from mm2py.model.connector_offset import read_key, read_value
from mm2py.model.epoch import LeaderMark, ProducerMark
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.foreign import INT64_MOST, read_json
from mm2py.model.heartbeat import Heartbeat, encode_heartbeat
from mm2py.model.herder.stored_overrides import decode_overrides
from mm2py.model.offset_sync import OffsetSync, encode_offset_sync
from mm2py.model.positions import Position, decode_position, encode_position
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.run_chunk import RunChunk, chunk_key, decode_chunk, encode_chunk
from mm2py.model.synced import SyncedAcl, SyncedConfig, decode_synced, encode_synced
from mm2py.wire.topic_log import LogRecord


FLOW, ORDERS = Flow("A", "B"), TopicPartition("orders", 3)
UUID = "1gp1R00ESh-1y9yvSBsR9g"
CHUNK = RunChunk(
    0, 90, 0, 60, is_origin=True,
    starts=array("q", [0, 40]), downs=array("q", [0, 30]), spans=array("q", [30, 50]), counts=array("q", [30, 30]),
)  # fmt: skip

ABSURD = {
    "brackets": b"[" * 100_000,
    "brackets in a key of ours": b'["mm2py",' + b"[" * 100_000,
    "members in members": b'{"a":' * 50_000,
    "as deep as Python takes": b"[" * 900 + b"]" * 900,
    "a million digits": b"9" * 1_000_000,
    "past 64 bits": b"9223372036854775808",
    "a number too large": b"1e999",
    "no number": b"[NaN, -Infinity]",
    "twice": b'{"a": 1, "a": 2}',
    "half a character": b'"\\ud800"',
    "not UTF-8": b"\xff\xfe[\x00]\x00",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "nothing": b"",
}


@pytest.mark.parametrize("raw", ABSURD.values(), ids=ABSURD)
def test_absurd_json_is_refused(raw: bytes) -> None:
    """What could mean anything, or would take for ever, is refused in a few words."""
    with pytest.raises(ValueError, match=r"\w") as refused:
        read_json(raw)

    assert len(str(refused.value)) < 100


_LEAVES = (
    st.none() | st.booleans() | st.integers(-INT64_MOST - 1, INT64_MOST)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(exclude_categories=["Cs"]))
)  # fmt: skip
_JSON = st.recursive(
    _LEAVES,
    lambda deeper: st.lists(deeper, max_size=4) | st.dictionaries(st.text("abc"), deeper, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_sound_json_is_what_it_says(value: object) -> None:
    """Sound JSON is read as the standard library reads it."""
    assert read_json(json.dumps(value).encode()) == value


def _records() -> list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]]:
    """Return one sound record of each kind."""
    position = Position(ORDERS, 90, 59, UUID, ProducerMark(7, 1, 60), UUID, LeaderMark(4, 2))
    acl = TopicAcl("A.t", PatternType.PREFIXED, "User:u", "*", Operation.READ, Permission.ALLOW)
    plain = [
        (chunk_key("A", ORDERS, 0), encode_chunk(CHUNK, UUID)),
        encode_synced(SyncedConfig("A.t", "retention.ms", ("1", "2"))),
        encode_synced(SyncedAcl(acl)),
        encode_checkpoint(Checkpoint("g", TopicPartition("A.t", 1), 5, 4)),
        encode_offset_sync(OffsetSync(ORDERS, 5, 4)),
        encode_heartbeat(Heartbeat("A", "B", 7)),
    ]
    return [encode_position("A", position), *((key, value, []) for key, value in plain)]


def _spoilt(raw: bytes | None) -> st.SearchStrategy[bytes | None]:
    """Take a few bytes away, or put others in their place."""
    if raw is None:
        return st.none()

    def cut(at: int, length: int, instead: bytes) -> bytes:
        return raw[:at] + instead + raw[at + length :]

    places, lengths = st.integers(0, len(raw)), st.integers(0, 12)
    few = st.binary(max_size=4) | st.sampled_from([b"-1", b"9" * 19, b"1.5", b"null", b"[]", b'""', b"true", b"{}"])
    return st.builds(cut, places, lengths, few)


_PARTS = (
    st.none() | st.binary(max_size=80) | _JSON.map(lambda value: json.dumps(value).encode())
    | st.sampled_from(list(ABSURD.values()))
)  # fmt: skip


_RECORDS = _records()
#: The machine may be busy with brokers.
_AT_LEISURE = settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def _garbage(draw: st.DrawFn) -> LogRecord:
    """Make a record of which a part is sound, spoilt, or anything at all."""
    key, value, headers = draw(st.sampled_from(_RECORDS))
    parts = [draw(st.just(part) | _spoilt(part) | _PARTS) for part in (key, value)]
    spoilt = [(name, draw(st.just(content) | _spoilt(content) | st.none())) for name, content in headers]
    offset = draw(st.integers(0, 1000))
    return LogRecord(*parts, tuple(spoilt), 0, offset, draw(st.integers(-1, INT64_MOST)))


def _refuses(decode: Callable[..., object], *parts: object) -> None:
    """Let *decode* refuse with a ValueError."""
    try:
        decode(*parts)
    except ValueError:
        return


@given(_garbage())
@_AT_LEISURE
@example(LogRecord(b"[" * 100_000, b"x", (), 0, 0, 0))
@example(LogRecord(chunk_key("A", ORDERS, 0), b"[" * 100_000, (), 0, 0, 0))
def test_any_record_is_a_value_or_a_refusal(record: LogRecord) -> None:
    """No decoder of a topic of the mirror's raises anything but its own refusal, whatever the record holds."""
    key, value = record.key, record.value
    decode_position(key, value, record.headers)
    decode_chunk(key, value)
    decode_synced(key, value)
    read_key(key)
    read_value(value)
    _refuses(decode_overrides, FLOW, value or b"")
    for kind in RecordKind:
        assert str(decoded(kind, "topic", record).content)


@given(st.lists(_garbage(), max_size=6))
@_AT_LEISURE
def test_whatever_was_understood_can_be_worked_with(records: list[LogRecord]) -> None:
    """What is made of positions, offset syncs and runs that contradict each other are answers, never an accident."""
    gathered, translations = KnownPartitions("A"), Translations(flow_runs=10_000, partition_runs=1_000)
    stored = PositionsTopic("A")
    gathered.begin_syncs()
    for record in records:
        gathered.take_position(record)
        gathered.take_sync(record)
        stored.take(record)
    positions = stored.positions
    translations.load(stored.chunks.values())
    translations.adopt(positions, {source: f"A.{source.topic}" for source in positions})
    known = OffsetTranslation(gathered, "A.{}".format, {})

    for source, remote in known.partitions.items():
        assert known.downstream(source, 50) is not None
        assert known.upstream(remote, 50) is not None
    for source, position in positions.items():
        assert translations.downstream(source, 50) is not None
        key, value, headers = encode_position("A", position)
        assert decode_position(key, value, headers) == ("A", position)
    assert known.downstream(TopicPartition("unheard of", 0), 5) is Untranslated.NOT_MIRRORED


def test_records_print_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """A tool that shows a topic shows absurd records, too, whatever their form."""
    for kind in RecordKind:
        records = [decoded(kind, "topic", LogRecord(raw, raw, (), 0, 0, INT64_MOST)) for raw in ABSURD.values()]
        for show in (java_text, json_lines, table(kind)):
            show(records)

    assert capsys.readouterr().out.count('"malformed"') == len(RecordKind) * len(ABSURD)
