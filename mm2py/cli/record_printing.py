"""Records of a mirror's topics on a terminal, as the text of Kafka's own formatters, or as JSON lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mm2py.client.records import KeptRuns, Malformed, MirrorRecord, Other, RecordKind, Removed, SourcePosition
from mm2py.model.checkpoint import Checkpoint
from mm2py.model.heartbeat import Heartbeat
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.run_chunk import KeptChunk
from mm2py.model.view_json import to_json


Print = Callable[[Iterable[MirrorRecord]], None]

_PLACE = ("AT", "WRITTEN")
_COLUMNS: Mapping[RecordKind, tuple[str, ...]] = {
    RecordKind.HEARTBEAT: ("SOURCE", "TARGET", "BEAT"),
    RecordKind.CHECKPOINT: ("GROUP", "PARTITION", "UPSTREAM", "DOWNSTREAM", "METADATA"),
    RecordKind.OFFSET_SYNC: ("PARTITION", "UPSTREAM", "DOWNSTREAM"),
    RecordKind.POSITION: ("SOURCE", "PARTITION", "NEXT", "DOWNSTREAM", "TOPIC-ID"),
}


def java_text(records: Iterable[MirrorRecord]) -> None:
    """
    Print what Kafka's formatters print (KIP-597), a line for each record.

    Records that do not parse go to stderr, so that scripts see only valid lines.
    """
    for record in records:
        if isinstance(record.content, Malformed | Removed):
            place = f"{record.topic}-{record.partition} offset {record.offset}"
            print(f"{place}: {record.content}", file=sys.stderr)
        else:
            print(record.content)


def json_lines(records: Iterable[MirrorRecord]) -> None:
    """Print each record as one line of JSON: its partition and offset, its kind, and its fields."""
    for record in records:
        line = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "kind": _KINDS[type(record.content)],
            "record": _fields(record.content),
        }
        print(json.dumps(line, ensure_ascii=False))


def _fields(content: Any) -> dict[str, Any]:
    if isinstance(content, SourcePosition):
        return {"source_alias": content.source, **to_json(content.position)}
    if isinstance(content, KeptRuns):
        return {"source_alias": content.source, **_runs(content.kept)}
    return to_json(content)


def _runs(kept: KeptChunk) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "source": kept.source._asdict(), "number": kept.number, "topic_id": kept.topic_id,
    }  # fmt: skip
    if (chunk := kept.chunk) is None:
        return facts
    upstream, downstream = [chunk.covered_from, chunk.covered_to], [chunk.end_from, chunk.end]
    return facts | {"upstream": upstream, "downstream": downstream, "runs": len(chunk.starts)}


_KINDS: Mapping[type, str] = {
    Heartbeat: "heartbeat",
    Checkpoint: "checkpoint",
    OffsetSync: "offset-sync",
    SourcePosition: "position",
    KeptRuns: "runs",
    Other: "other",
    Removed: "removed",
    Malformed: "malformed",
}


def table(kind: RecordKind) -> Print:
    """Return a printer of a table that grows; its columns only become wider."""
    header = (*_PLACE, *_COLUMNS[kind])
    widths = [len(title) for title in header]
    is_begun = False

    def print_rows(records: Iterable[MirrorRecord]) -> None:
        nonlocal is_begun
        rows = [_row(record) for record in records]
        for row in rows:
            for number, cell in enumerate(row[:-1]):
                widths[number] = max(widths[number], len(cell))
        for row in rows if is_begun else [header, *rows]:
            print(_aligned(row, widths))
        is_begun = True

    return print_rows


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _row(record: MirrorRecord) -> tuple[str, ...]:
    place = (f"{record.partition}:{record.offset}", _time(record.timestamp_ms))
    match record.content:
        case Heartbeat() as beat:
            return (*place, beat.source_alias, beat.target_alias, _time(beat.timestamp_ms))
        case Checkpoint() as at:
            return (*place, at.group, str(at.remote), str(at.upstream), str(at.downstream), at.metadata)
        case OffsetSync() as sync:
            return (*place, str(sync.source), str(sync.upstream), str(sync.downstream))
        case SourcePosition(source, at):
            downstream = "" if at.downstream is None else str(at.downstream)
            return (*place, source, str(at.source), str(at.next_upstream), downstream, at.topic_id or "")
        case unusual:
            return (*place, str(unusual))


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    except (ValueError, OverflowError, OSError):  # its meaning is known only to its writer
        return str(timestamp_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")
