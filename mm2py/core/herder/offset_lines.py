"""
Positions that an operator brings along: the lines of a file, or what Mirus stored.

All lines are checked, and each problem names its line; one problem refuses all of them. A line has the next offset to
read, as Mirus prints it. An offset that the source does not have yet, or no longer, is a mistake more often than it is
meant: of the wrong cluster, or of a topic that was created again.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from mm2py.config.problem import Problem
from mm2py.core.herder.connector_offsets import PartitionOffsets
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.mirus_offset import LineFormat, MirusOffset, read_line


@attrs.frozen
class OffsetLine:
    """The position of a topic-partition, and where it is written: file and line, or topic."""

    where: str
    source: TopicPartition
    offset: int | None


@attrs.frozen
class OffsetLines:
    """The lines of one connector, the problems of all lines, and how many lines belong to other connectors."""

    lines: tuple[OffsetLine, ...]
    problems: tuple[Problem, ...] = ()
    of_others: int = 0


def read_lines(name: str, text: str, form: LineFormat, connector: str, *, skips_others: bool) -> OffsetLines:
    """
    Parse a file; *name* is its own in messages. Blank lines have no meaning.

    Lines of other connectors than *connector* are left out with *skips_others*, and problems otherwise.
    """
    lines: dict[TopicPartition, OffsetLine] = {}
    problems: list[Problem] = []
    of_others = 0
    # Other characters that end lines in Python may be part of a connector's name.
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        where = f"{name}:{number}"
        if not line.strip():
            continue
        try:
            one = read_line(line.removesuffix("\n"), form)
        except ValueError as error:
            problems.append(Problem(where, "", str(error)))
            continue
        if one.connector != connector:
            of_others += 1
            if not skips_others:
                hint = f"--connector-id {one.connector} takes its lines alone"
                problems.append(Problem(where, str(one.source), f"belongs to connector {one.connector}", hint))
        elif one.source in lines:
            problems.append(Problem(where, str(one.source), f"is in {lines[one.source].where} already"))
        else:
            lines[one.source] = OffsetLine(where, one.source, one.offset)
    return OffsetLines(tuple(lines.values()), tuple(problems), of_others)


def of_mirus(topic: str, stored: Collection[MirusOffset], connector: str) -> OffsetLines:
    """Return what Mirus stored in *topic* for *connector*; a partition whose offset was removed has none."""
    lines = (OffsetLine(topic, one.source, one.offset) for one in stored if one.connector == connector)
    ordered = sorted((line for line in lines if line.offset is not None), key=lambda line: line.source)
    return OffsetLines(tuple(ordered), (), len({one.connector for one in stored} - {connector}))


def judge_lines(
    flow: Flow,
    lines: Sequence[OffsetLine],
    mirrored: Collection[str],
    places: Mapping[TopicPartition, PartitionOffsets | str],
    *,
    takes_expired: bool,
) -> Iterator[Problem]:
    """Yield why lines cannot be positions of *flow*, which mirrors the topics *mirrored*. With *takes_expired* an
    offset that the source no longer has is as good as its first one. A position of any partition may be removed.
    """
    for line in lines:
        place, offset = places.get(line.source), line.offset
        if offset is None:
            continue
        problem = hint = ""
        if line.source.topic not in mirrored:
            problem = f"flow {flow} does not mirror topic {line.source.topic}, or the source has no such topic"
        elif not isinstance(place, PartitionOffsets):
            problem = place or f"topic {line.source.topic} has no partition {line.source.partition}"
        elif offset > place.end:
            problem = f"offset {offset} does not exist yet, the source ends at {place.end}"
            hint = "is it of another cluster, or of a topic that was created again?"
        elif offset < place.start and not takes_expired:
            problem = f"offset {offset} is no longer there, the source begins at {place.start}"
            hint = "--allow-expired begins there"
        if problem:
            yield Problem(line.where, str(line.source), problem, hint)


def asked_of(flow: Flow, lines: Sequence[OffsetLine]) -> tuple[ConnectorOffset, ...]:
    """Return *lines* as offsets of the flow's source connector, which are those of the last record."""
    return tuple(
        ConnectorOffset(
            {"cluster": flow.source, "partition": line.source.partition, "topic": line.source.topic},
            None if line.offset is None else {"offset": line.offset - 1},
        )
        for line in lines
    )
