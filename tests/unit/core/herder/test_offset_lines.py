"""Positions from a file or from Mirus: every line is checked, and every problem names its line."""

from __future__ import annotations

from mm2py.core.herder.connector_offsets import PartitionOffsets
from mm2py.core.herder.offset_lines import OffsetLine, asked_of, judge_lines, of_mirus, read_lines
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.mirus_offset import LineFormat, MirusOffset


FLOW = Flow("A", "B")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PLACE = PartitionOffsets(start=100, end=1000, topic_id="up", remote_end=700, remote_topic_id="down", remote_topic="A.t")


def test_each_wrong_line_is_named() -> None:
    """Malformed lines, other connectors' and repeated ones; the rest is read all the same."""
    text = "A,t,0,5\n\nA,t,1\nB,t,1,7\nA,t,0,6\r\nA,u,0,\n"
    found = read_lines("f.csv", text, LineFormat.CSV, "A", skips_others=False)

    assert [(line.where, line.source, line.offset) for line in found.lines] == [
        ("f.csv:1", T0, 5),
        ("f.csv:6", TopicPartition("u", 0), None),
    ]
    assert [(problem.where, problem.key) for problem in found.problems] == [
        ("f.csv:3", ""),
        ("f.csv:4", "t-1"),
        ("f.csv:5", "t-0"),
    ]
    assert "belongs to connector B" in found.problems[1].message
    assert "f.csv:1 already" in found.problems[2].message


def test_only_line_ends_end_lines() -> None:
    """A connector's name may have characters that end lines elsewhere."""
    found = read_lines(
        "f.csv", "a\u2028b\x85,t,0,5\r\na\u2028b\x85,t,1,6", LineFormat.CSV, "a\u2028b\x85", skips_others=False
    )

    assert ([line.offset for line in found.lines], found.problems) == ([5, 6], ())


def test_a_named_connector_s_lines_are_taken_alone() -> None:
    """Mirus's tool prints the offsets of all connectors: the others' are counted, not refused."""
    found = read_lines("f.csv", "A,t,0,5\nB,t,0,7\n", LineFormat.CSV, "B", skips_others=True)

    assert ([line.offset for line in found.lines], found.problems, found.of_others) == ([7], (), 1)


def test_what_mirus_stored_of_one_connector() -> None:
    """Removed offsets are no positions: the partition starts as if it had never been copied."""
    stored = [MirusOffset("m", T1, 5), MirusOffset("m", T0, None), MirusOffset("other", T0, 9)]

    assert of_mirus("mirus-offsets", stored, "m").lines == (OffsetLine("mirus-offsets", T1, 5),)


def _problems(*lines: OffsetLine, takes_expired: bool = False) -> list[str]:
    places = {T0: PLACE, T1: "the broker is away"}
    return [str(one) for one in judge_lines(FLOW, lines, {"t"}, places, takes_expired=takes_expired)]


def test_an_offset_that_the_source_has_may_be_a_position() -> None:
    """From its start up to its end, where the next record comes."""
    assert _problems(OffsetLine("f:1", T0, 100), OffsetLine("f:2", T0, 1000)) == []


def test_what_cannot_be_a_position_is_refused() -> None:
    """One problem for each line, with the line, the partition and what the source has."""
    problems = _problems(
        OffsetLine("f:1", T0, 1001),
        OffsetLine("f:2", T0, 99),
        OffsetLine("f:3", T1, 5),
        OffsetLine("f:4", TopicPartition("t", 9), 5),
        OffsetLine("f:5", TopicPartition("u", 0), 5),
    )

    assert [problem.partition(": ")[0] for problem in problems] == ["f:1", "f:2", "f:3", "f:4", "f:5"]
    for problem, text in zip(
        problems,
        ("ends at 1000", "begins at 100", "the broker is away", "has no partition 9", "does not mirror topic u"),
        strict=True,
    ):
        assert text in problem


def test_an_expired_offset_is_taken_where_that_is_asked_for() -> None:
    """What is beyond the end stays wrong."""
    problems = _problems(OffsetLine("f:1", T0, 99), OffsetLine("f:2", T0, 1001), takes_expired=True)

    assert [problem.partition(": ")[0] for problem in problems] == ["f:2"]


def test_any_position_may_be_removed() -> None:
    """Also that of a topic that is gone."""
    assert _problems(OffsetLine("f:1", TopicPartition("gone", 7), None)) == []


def test_lines_have_the_next_offset_and_connect_the_last_one() -> None:
    """So a line's offset becomes one less, and that of the first record -1."""
    lines = [OffsetLine("f:1", T0, 5), OffsetLine("f:2", T1, 0), OffsetLine("f:3", T1, None)]
    t0, t1 = ({"cluster": "A", "partition": number, "topic": "t"} for number in (0, 1))

    assert asked_of(FLOW, lines) == (
        ConnectorOffset(t0, {"offset": 4}),
        ConnectorOffset(t1, {"offset": -1}),
        ConnectorOffset(t1, None),
    )
