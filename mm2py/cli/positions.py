"""``mm2py offsets describe`` and ``export``: a flow's positions, with what both clusters hold."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import attrs

from mm2py.cli.command import ArgumentsError, read_flow, run, whole_number
from mm2py.cli.parsers import Parser
from mm2py.cli.sheets import Note, Part, Sheet, clean, show, text
from mm2py.clock import Clock, SystemClock
from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import FlowSettings, MirrorSettings, load_settings
from mm2py.connectors.plugins import remote_names_of
from mm2py.core.herder.connector_offsets import PartitionOffsets
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.herder.connect_worker import read_worker_settings, worker_group
from mm2py.herder.connector_offsets import ConnectorOffsets, Survey
from mm2py.herder.idle_flow import find_runner
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.mirus_offset import LineFormat, MirusOffset, write_line
from mm2py.model.patterns import PatternError, split_patterns
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.telemetry.journal import EventLog


_COLUMNS = ("topic", "partition", "position", "source_start", "source_end", "lag", "remote_topic", "remote_end")
_DESCRIBE = """\
examples:
  mm2py offsets describe mm2.properties 'A->B' --topics 'orders,payments-.*'
  mm2py offsets describe worker.properties --connector mirus-source.json --format json
"""
_EXPORT = """\
Each line is connectorId,topic,partition,offset, where the offset is the next one to read. mm2py offsets import and
Mirus's offset tool read it.

examples:
  mm2py offsets export mm2.properties 'A->B' -o positions.csv
  mm2py offsets export mm2.properties 'A->B' --connector-id mirus-source --format json
"""


def add_arguments(parser: argparse.ArgumentParser, *, has_flow: bool = True) -> None:
    """Declare the arguments that name a flow and its topic-partitions."""
    parser.add_argument("file", type=Path, metavar="mm2.properties", help="MirrorMaker 2's properties file; or a "
                        "Connect worker's, with connectors in its config topic or named by --connector")  # fmt: skip
    if has_flow:
        parser.add_argument(
            "flow", nargs="?", type=read_flow, metavar="A->B", help="the flow; default: the only one of the file"
        )
    parser.add_argument(
        "--connector", action="append", default=[], type=Path, metavar="FILE",
        help="a connector's file or JSON, as connect-standalone runs it; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--topics", default="", metavar="NAMES", help="only these: names or regular expressions, with commas between"
    )
    parser.add_argument(
        "--partition", action="append", type=whole_number(0), default=[], metavar="N",
        help="only this partition; may be given several times",
    )  # fmt: skip


def make_parser(action: str) -> argparse.ArgumentParser:
    is_export = action == "export"
    parser = Parser(
        prog=f"mm2py offsets {action}",
        description="Write a flow's positions as the lines of Mirus's offset tool."
        if is_export
        else "Show each topic-partition's position, what the source holds, and where the remote partition ends.",
        epilog=_EXPORT if is_export else _DESCRIBE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    if not is_export:
        parser.add_argument("--format", choices=["table", "csv", "json"], default="table", help="default: table")
        _add_json(parser)
        return parser
    parser.add_argument("--format", choices=["csv", "json"], default="csv", help="default: csv")
    _add_json(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE instead of standard output")
    parser.add_argument("--connector-id", metavar="NAME", help="the first column; default: the flow's source")
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")


def main(action: str, arguments: Sequence[str]) -> int:
    """Run ``mm2py offsets describe`` or ``export`` with *arguments* and return the exit code."""
    options = make_parser(action).parse_intermixed_args(arguments)
    clock = SystemClock()
    return run(lambda: _export(options, clock) if action == "export" else _describe(options, clock))


# What the arguments mean.


@attrs.define(eq=False)
class NothingChosenError(Mm2Error):
    """The options choose no topic-partition."""

    hint: ClassVar[str] = "mm2py offsets describe shows what there is"

    flow: str
    what: str

    def __str__(self) -> str:
        return f"flow {self.flow} {self.what} of the topics and partitions that are named"


@attrs.frozen
class Choice:
    """The topic-partitions that the options choose."""

    topics: DefaultTopicFilter | None
    partitions: frozenset[int]

    @classmethod
    def of(cls, options: argparse.Namespace) -> Choice:
        try:
            topics = DefaultTopicFilter.of(split_patterns(options.topics)) if options.topics.strip() else None
        except PatternError as error:
            raise ArgumentsError(f"--topics: {error}") from error
        return cls(topics, frozenset(options.partition))

    @property
    def is_everything(self) -> bool:
        """Whether no option restricts it."""
        return self.topics is None and not self.partitions

    def takes(self, source: TopicPartition) -> bool:
        return (self.topics is None or self.topics.takes_topic(source.topic)) and (
            not self.partitions or source.partition in self.partitions
        )


async def read_settings(
    options: argparse.Namespace,
    clock: Clock,
    *,
    targets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
) -> MirrorSettings:
    """Read the file, a worker's and its connectors' files, or a worker's and the connectors in its config topic. Raise
    `ConfigError` with all problems. See `load_settings` for *targets* and *overrides*.
    """
    if options.connector:
        return standalone_settings(options.file, options.connector, overrides=overrides)
    # A pipe, as of <(sops -d mm2.properties), can be read only once.
    if not options.file.is_file() or worker_group(options.file) is None:
        return load_settings(options.file, targets=targets, overrides=overrides)
    composition = await read_worker_settings(options.file, clock)
    for name, idle in composition.idle.items():
        print(clean(f"mm2py: connector {name} has no flow: {idle}"), file=sys.stderr)
    return composition.settings


def chosen_flow(settings: MirrorSettings, flow: Flow | None) -> FlowSettings:
    """Return the settings of *flow*; without it, those of the only flow that there is."""
    enabled = [found for found in settings.flows if found.is_enabled]
    found = [one for one in enabled if flow in (None, one.flow)]
    if len(found) != 1:
        known = ", ".join(str(one.flow) for one in enabled) or "none"
        problem = (
            f"has no flow {flow}" if flow is not None else "has several flows: name one" if enabled else "has no flow"
        )
        raise ArgumentsError(f"{settings.path.name} {problem}; its flows: {known}")
    return found[0]


def offsets_of(settings: FlowSettings, clock: Clock) -> ConnectorOffsets:
    return ConnectorOffsets(settings, clock=clock, events=EventLog(clock))


# describe


@attrs.frozen
class _Row:
    """A topic-partition. What is unknown is None."""

    source: TopicPartition
    position: int | None
    remote_topic: str
    place: PartitionOffsets | None

    @property
    def lag(self) -> int | None:
        if self.position is None or self.place is None:
            return None
        return max(0, self.place.end - max(self.position, self.place.start))

    @property
    def values(self) -> tuple[str | int | None, ...]:
        """The values of `_COLUMNS`."""
        place = self.place
        start, end, remote_end = (place.start, place.end, place.remote_end) if place else (None, None, None)
        topic, partition = self.source.topic, self.source.partition
        return topic, partition, self.position, start, end, self.lag, self.remote_topic, remote_end


async def _describe(options: argparse.Namespace, clock: Clock) -> None:
    choice = Choice.of(options)
    settings = chosen_flow(await read_settings(options, clock), options.flow)
    survey = await _survey(settings, choice, clock)
    name_remote = remote_names_of(settings.source_connector)
    rows = [
        _Row(
            source,
            position.next_upstream if (position := survey.positions.get(source)) is not None else None,
            survey.remote_of.get(source.topic) or name_remote(source.topic),
            place if isinstance(place := survey.places.get(source), PartitionOffsets) else None,
        )
        for source in sorted(filter(choice.takes, survey.positions.keys() | survey.places.keys()))
    ]
    if not rows and not choice.is_everything:
        raise NothingChosenError(str(settings.flow), "mirrors none")
    if options.format == "table":
        show(list(_page(settings.flow, rows, await _runner(settings, clock))))
    elif options.format == "json":
        for row in rows:
            print(json.dumps(dict(zip(_COLUMNS, row.values, strict=True)), ensure_ascii=False))
    else:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(row.values for row in rows)


async def _survey(settings: FlowSettings, choice: Choice, clock: Clock) -> Survey:
    """Ask both clusters; without the source, only positions are known."""
    offsets = offsets_of(settings, clock)
    try:
        return await offsets.survey(choice.takes)
    except ClusterUnreachableError as error:
        if error.cluster != settings.flow.source:
            raise
        print(f"mm2py: {error}; showing only what the target knows", file=sys.stderr)
        return Survey(await offsets.positions(), {}, {})


async def _runner(settings: FlowSettings, clock: Clock) -> str:
    """Return who runs the flow, as far as we may know it."""
    with suppress(Mm2Error):
        runner = await find_runner(settings, clock)
        return f"{runner}; positions are as of their last write" if runner is not None else ""
    return ""


def _page(flow: Flow, rows: Sequence[_Row], runner: str) -> Iterator[Part]:
    if runner:
        yield Note(runner)
    columns = ("topic", ">partition", ">position", ">start", ">end", ">lag", "remote topic", ">remote end")
    yield Sheet(
        columns,
        tuple(tuple(map(text, row.values)) for row in rows),
        empty=f"flow {flow} has no positions and mirrors no topics of these",
    )


# export


async def _export(options: argparse.Namespace, clock: Clock) -> None:
    choice = Choice.of(options)
    settings = chosen_flow(await read_settings(options, clock), options.flow)
    positions = await offsets_of(settings, clock).positions()
    connector, form = options.connector_id or settings.flow.source, LineFormat(options.format)
    lines = [
        write_line(MirusOffset(connector, source, positions[source].next_upstream), form) + "\n"
        for source in sorted(filter(choice.takes, positions))
    ]
    if not lines:
        if not choice.is_everything:
            raise NothingChosenError(str(settings.flow), "has no position")
        print(f"mm2py: flow {settings.flow} has no positions", file=sys.stderr)
    if options.output is None:
        sys.stdout.writelines(lines)
        return
    try:
        options.output.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise ArgumentsError(f"{options.output} cannot be written: {error.strerror or error}") from error
    print(f"{len(lines)} positions of flow {settings.flow} written to {options.output}", file=sys.stderr)
