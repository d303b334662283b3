"""``mm2py topics``: what the arguments mean, how records are printed, how errors are reported."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli import record_printing
from mm2py.cli.asking import MirrorFile
from mm2py.cli.exit_code import ExitCode
from mm2py.client.records import KeptRuns, Malformed, MirrorRecord, RecordKind, Removed, SourcePosition
from mm2py.model.checkpoint import Checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.heartbeat import Heartbeat
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk, RunChunk
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy
from tests.support.mm2_file import mm2_properties


NOBODY = "127.0.0.1:1"
_WHEN_MS = 1_700_000_000_123


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read is named."""
    code = command.main(
        ["topics", "dump", "--bootstrap-servers", NOBODY, "--command-config", "/nowhere/client.properties"]
    )

    assert code == ExitCode.FAILED
    assert "/nowhere/client.properties: cannot be read" in capsys.readouterr().err


def test_the_naming_comes_from_the_flow(file: Path) -> None:
    """Topics are named as the flow from --source names them; without it an enabled flow to the cluster decides."""
    file.write_text(
        mm2_properties(
            NOBODY,
            NOBODY,
            **{"clusters": "A, B, C", "C.bootstrap.servers": NOBODY, "C->B.enabled": "true"},
            **{"A->B.replication.policy.separator": "_", "C->B.replication.policy.class": "identity"},
            **{"A->B.offset.storage.topic": "kept"},
        )
    )
    mirror = MirrorFile.read(str(file))

    assert mirror.client_config("B", source="A").policy == DefaultReplicationPolicy("_")
    assert mirror.client_config("B", source="C").policy == IdentityReplicationPolicy("C")
    assert mirror.client_config("B").policy == DefaultReplicationPolicy("_")
    assert mirror.client_config("B").name == "B"
    assert mirror.only_target() == "B"


# Printing.


def _record(content: object, offset: int = 7) -> MirrorRecord:
    return MirrorRecord("topic", 0, offset, _WHEN_MS, b"key", content)  # type: ignore[arg-type]


RECORDS = {
    RecordKind.HEARTBEAT: Heartbeat("A", "B", 1_700_000_000_000),
    RecordKind.CHECKPOINT: Checkpoint("g1", TopicPartition("A.foo", 3), 100, 57),
    RecordKind.OFFSET_SYNC: OffsetSync(TopicPartition("foo", 3), 100, 57),
    RecordKind.POSITION: SourcePosition("A", Position(TopicPartition("foo", 3), 101, 57)),
}


_COLUMN = array("q", [0, 1])
RUNS = KeptRuns("A", KeptChunk(TopicPartition("foo", 3), 0, "id", RunChunk(10, 40, 5, 25, False, *[_COLUMN] * 4)))


def test_a_part_of_our_index_is_told_in_short() -> None:
    """Thousands of runs are one line: of what, from where to where, and how many."""
    assert str(RUNS) == (
        "Runs{sourceClusterAlias=A, topicPartition=foo-3, chunk=0, upstreamOffsets=10..40, "
        "downstreamOffsets=5..25, runs=2}"
    )


def test_text_is_what_kafka_s_formatters_print(capsys: pytest.CaptureFixture[str]) -> None:
    """The lines are those of the three formatters of KIP-597, letter by letter."""
    record_printing.java_text(_record(content) for content in RECORDS.values())

    assert capsys.readouterr().out.splitlines() == [
        "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}",
        "Checkpoint{consumerGroupId=g1, topicPartition=A.foo-3, upstreamOffset=100, downstreamOffset=57, metadata=}",
        "OffsetSync{topicPartition=foo-3, upstreamOffset=100, downstreamOffset=57}",
        "Position{sourceClusterAlias=A, topicPartition=foo-3, upstreamOffset=100, downstreamOffset=57}",
    ]


def test_scripts_never_meet_lines_they_do_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    """As text, malformed and removed records go to stderr, with their place."""
    record_printing.java_text([_record(Malformed("not a checkpoint: it has no key")), _record(Removed("g"), 8)])

    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "topic-0 offset 7: Malformed{reason=not a checkpoint: it has no key}",
        "topic-0 offset 8: Removed{key=g}",
    ]


_REMOTE = '{"topic": "A.foo", "partition": 3}'
_SOURCE = '"source_alias": "A", "source": {"topic": "foo", "partition": 3}'


@pytest.mark.parametrize(
    ("content", "kind", "record"),
    [
        (
            RECORDS[RecordKind.HEARTBEAT],
            "heartbeat",
            '{"source_alias": "A", "target_alias": "B", "timestamp_ms": 1700000000000}',
        ),
        (
            RECORDS[RecordKind.CHECKPOINT],
            "checkpoint",
            f'{{"group": "g1", "remote": {_REMOTE}, "upstream": 100, "downstream": 57, "metadata": ""}}',
        ),
        (
            RECORDS[RecordKind.POSITION],
            "position",
            f'{{{_SOURCE}, "next_upstream": 101, "downstream": 57, "topic_id": null}}',
        ),
        (
            KeptRuns("A", KeptChunk(TopicPartition("foo", 3), 2)),
            "runs",
            f'{{{_SOURCE}, "number": 2, "topic_id": null}}',
        ),
        (
            RUNS,
            "runs",
            f'{{{_SOURCE}, "number": 0, "topic_id": "id", "upstream": [10, 40], "downstream": [5, 25], "runs": 2}}',
        ),
        (Malformed("because"), "malformed", '{"reason": "because"}'),
        (Removed("g"), "removed", '{"key": "g"}'),
    ],
    ids=["heartbeat", "checkpoint", "position", "no runs", "runs", "malformed", "removed"],
)
def test_json_lines(content: object, kind: str, record: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each record is one line of JSON with its place, its kind and its fields, malformed ones too."""
    record_printing.json_lines([_record(content)])

    line = json.loads(capsys.readouterr().out)
    shown = line.pop("record")
    assert line == {"topic": "topic", "partition": 0, "offset": 7, "timestamp_ms": _WHEN_MS, "kind": kind}
    assert shown == {**shown, **json.loads(record)}


@pytest.mark.parametrize("kind", list(RecordKind), ids=lambda kind: kind.value)
def test_a_table_has_a_heading_once(kind: RecordKind, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows that come later stand under the same columns, and a malformed record is a row with its place."""
    print_rows = record_printing.table(kind)
    print_rows([_record(RECORDS[kind])])
    print_rows([_record(Malformed("because"), 1_000_000)])

    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.startswith("AT   WRITTEN")
    assert first.startswith("0:7  2023-11-14 22:13:20.123Z  ")
    assert second.startswith("0:1000000  2023-11-14 22:13:20.123Z  Malformed{reason=because}")
    assert heading.index(heading.split()[2]) == first.index("Z") + 3


def test_times_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    """A timestamp beyond all calendars is printed as the number that it is."""
    record_printing.table(RecordKind.HEARTBEAT)([_record(Heartbeat("A", "B", 2**62))])

    assert str(2**62) in capsys.readouterr().out
