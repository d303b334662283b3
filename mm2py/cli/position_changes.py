"""
``mm2py offsets import`` and ``reset``: change the positions of a flow that no node runs.

Both clusters are asked first, and every line is checked. What would change is shown; then the flow's group is joined,
so that no node starts the flow meanwhile, and all positions are written at once.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
from yarl import URL

from mm2py.cli import command
from mm2py.cli.command import ArgumentsError, even_if_unread, read_flow, run
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.positions import Choice, NothingChosenError, add_arguments, chosen_flow, offsets_of, read_settings
from mm2py.cli.rest_client import Address, connected
from mm2py.cli.sheets import Note, Part, Sheet, clean, show, show_json, text
from mm2py.clock import Clock, SystemClock
from mm2py.config.problem import ConfigError
from mm2py.config.rest import Listener
from mm2py.config.settings import FlowSettings, MirrorSettings
from mm2py.core.herder.connector_offsets import PartitionOffsets, altered_positions
from mm2py.core.herder.offset_lines import OffsetLine, OffsetLines, asked_of, judge_lines, of_mirus, read_lines
from mm2py.errors import Mm2Error, OverrideRejectedError
from mm2py.herder.connect_worker import worker_group
from mm2py.herder.connector_offsets import Survey
from mm2py.herder.idle_flow import FlowRunsError, find_runner, kept_idle
from mm2py.herder.mirus_offsets import read_mirus_offsets
from mm2py.model.connector_offset import SOURCE, ConnectorOffset
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.mirus_offset import LineFormat, format_of
from mm2py.model.timestamp import timestamp_ms


_ASK_S = 3.0
_EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104
#: States of a flow in which a node leaves its positions alone, and reads them before it continues.
_IDLE = {"standby", "failed", "drained"}
_BY = "mm2py offsets"
_IMPORT = """\
OFFSETS has the lines of mm2py offsets export, or of Mirus's offset tool: connectorId,topic,partition,offset as CSV or
JSON, where the offset is the next one to read; without an offset the position is removed. All lines are checked; if one
is wrong, nothing is written. The flow must not run.

examples:
  mm2py offsets import mm2.properties 'A->B' positions.csv --dry-run
  mm2py offsets import worker.properties 'mirus-source->target' --from-mirus mirus-offsets
  mm2py offsets import mm2.properties 'A->B' mirus.csv --connector-id mirus-source --taken-over
"""
_RESET = """\
Records that are copied again are appended to the remote topic. The flow must not run.

examples:
  mm2py offsets reset mm2.properties 'A->B' --topics orders --to-datetime 2026-11-01T00:00:00Z --dry-run
  mm2py offsets reset mm2.properties 'A->B' --topics orders --partition 3 --remove
"""


@attrs.define(eq=False)
class NoLinesError(Mm2Error):
    """There is nothing to import."""

    hint: ClassVar[str] = "--connector-id names the connector whose offsets they are"

    where: str
    connector: str
    others: int

    def __str__(self) -> str:
        others = f", but {self.others} of others" if self.others else ""
        return f"{self.where} has no offsets of connector {self.connector}{others}"


def make_parser(action: str) -> argparse.ArgumentParser:
    parser = Parser(
        prog=f"mm2py offsets {action}",
        description="Set positions of a stopped flow from a file, or take over those of Mirus."
        if action == "import"
        else "Set positions of a stopped flow, or remove them, so that it starts where its settings say.",
        epilog=_IMPORT if action == "import" else _RESET,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser, has_flow=action == "reset")
    if action == "import":
        _add_import(parser)
    else:
        to = parser.add_mutually_exclusive_group(required=True)
        to.add_argument("--to-earliest", action="store_true", help="to the first record that the source has")
        to.add_argument("--to-latest", action="store_true", help="to the source's end")
        to.add_argument("--to-datetime", metavar="TIME", help="to the first record from 2026-11-01T00:00:00Z on")
        to.add_argument("--remove", action="store_true", help="remove the positions")
        parser.add_argument("--all-topics", action="store_true", help="of all topics, instead of --topics")
        parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
    add_json(parser)
    return parser


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="[A->B] OFFSETS", help="the flow, unless the file has only one; and the file with "
        "the offsets, - for standard input, unless there is --from-mirus",
    )  # fmt: skip
    parser.add_argument(
        "--from-mirus", metavar="TOPIC", help="take over what Mirus stored in this topic of the target: "
        "offset.storage.topic of its worker's file",
    )  # fmt: skip
    parser.add_argument(
        "--connector-id", metavar="NAME", help="the connector whose lines are meant; default: the flow's source"
    )
    parser.add_argument(
        "--taken-over", action="store_true", help="another mirror copied up to these offsets or further: what it "
        "copied is found at the target, and not repeated",
    )  # fmt: skip
    parser.add_argument(
        "--allow-expired", action="store_true", help="begin at the source's start where an offset is before it"
    )
    parser.add_argument("--format", choices=["csv", "json"], help="of the file; default: as it looks")


def main(action: str, arguments: Sequence[str]) -> int:
    """Run ``mm2py offsets import`` or ``reset`` with *arguments* and return the exit code."""
    options = make_parser(action).parse_intermixed_args(arguments)
    clock = SystemClock()
    cut_short = ExitCode.OK if options.dry_run else ExitCode.FAILED
    return run(lambda: _import(options, clock) if action == "import" else _reset(options, clock), cut_short=cut_short)


# import


async def _import(options: argparse.Namespace, clock: Clock) -> None:
    choice = Choice.of(options)
    flow, file = _words(options)
    mirror = await read_settings(options, clock)
    settings = chosen_flow(mirror, flow)
    found = await _brought(options, settings, file, clock)
    lines = [line for line in found.lines if choice.takes(line.source)]
    wanted = {line.source for line in lines}
    survey = await offsets_of(settings, clock).survey(wanted.__contains__)
    if options.from_mirus:
        lines = list(_without_strangers(lines, survey))
    judged = judge_lines(settings.flow, lines, survey.remote_of, survey.places, takes_expired=options.allow_expired)
    if problems := (*found.problems, *judged):
        raise ConfigError(problems)
    if not lines:
        connector = options.connector_id or settings.flow.source
        raise NoLinesError(options.from_mirus or str(file), connector, found.of_others)
    change = _Change(settings, survey, asked_of(settings.flow, lines), bool(options.taken_over or options.from_mirus))
    await _apply(change, options, mirror, clock)


def _words(options: argparse.Namespace) -> tuple[Flow | None, str | None]:
    """Return the flow and the file of an import's arguments."""
    flow: Flow | None = None
    files: list[str] = []
    for word in options.words:
        try:
            flow = read_flow(word)
        except argparse.ArgumentTypeError:
            files.append(word)
    if bool(files) == bool(options.from_mirus) or len(files) > 1:
        raise ArgumentsError("name one file with offsets, or the topic of --from-mirus")
    return flow, files[0] if files else None


async def _brought(options: argparse.Namespace, settings: FlowSettings, file: str | None, clock: Clock) -> OffsetLines:
    """Return the lines of the file, or what Mirus stored."""
    connector = options.connector_id or settings.flow.source
    if file is None:
        stored = await read_mirus_offsets(settings, options.from_mirus, clock)
        for record in stored.unreadable:
            _say(f"a record cannot be read: {record}")
        return of_mirus(options.from_mirus, stored.offsets, connector)
    content = _content(file)
    form = LineFormat(options.format) if options.format else format_of(content)
    name = "standard input" if file == "-" else file
    return read_lines(name, content, form, connector, skips_others=options.connector_id is not None)


def _content(file: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return raw.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentsError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _without_strangers(lines: Sequence[OffsetLine], survey: Survey) -> Iterator[OffsetLine]:
    """Leave out topics that Mirus copied once: it never forgets one."""
    for line in lines:
        if line.source.topic in survey.remote_of:
            yield line
        else:
            _say(f"{line.source} is left out: the flow mirrors no such topic")


# reset


async def _reset(options: argparse.Namespace, clock: Clock) -> None:
    choice = Choice.of(options)
    if (choice.topics is None) != options.all_topics:
        raise ArgumentsError("name topics with --topics, or take --all-topics")
    at_ms = None
    if options.to_datetime is not None:
        try:
            at_ms = timestamp_ms(options.to_datetime)
        except ValueError as error:
            raise ArgumentsError(f"--to-datetime: {error}") from error
    mirror = await read_settings(options, clock)
    settings = chosen_flow(mirror, options.flow)
    survey = await offsets_of(settings, clock).survey(choice.takes, at_ms)
    if options.remove:
        lines = [OffsetLine("", source, None) for source in sorted(filter(choice.takes, survey.positions))]
    else:
        lines = list(_moved(survey, _target_of(options)))
    if not lines:
        raise NothingChosenError(str(settings.flow), "has no position" if options.remove else "mirrors none")
    await _apply(_Change(settings, survey, asked_of(settings.flow, lines)), options, mirror, clock)


def _target_of(options: argparse.Namespace) -> Callable[[PartitionOffsets], int | None]:
    if options.to_earliest:
        return lambda place: place.start
    return (lambda place: place.end) if options.to_latest else (lambda place: place.since)


def _moved(survey: Survey, to: Callable[[PartitionOffsets], int | None]) -> Iterator[OffsetLine]:
    """Yield the new position of each partition that the flow mirrors. Raise with those whose place is unknown."""
    problems: list[str] = []
    for source, place in sorted(survey.places.items()):
        if source.topic not in survey.remote_of:
            continue
        if isinstance(place, PartitionOffsets) and (offset := to(place)) is not None:
            yield OffsetLine("", source, offset)
        else:
            problems.append(f"{source}: {place}")
    if problems:
        raise OverrideRejectedError(tuple(problems))


# Both


@attrs.frozen
class _Row:
    """A position that changes. None is none; what is copied again or skipped is None if the position is removed."""

    source: TopicPartition
    before: int | None
    after: int | None
    repeated: int | None = None
    skipped: int | None = None


@attrs.frozen
class _Change:
    """What is asked of a flow, as of the moment when both clusters were asked."""

    settings: FlowSettings
    survey: Survey
    asked: tuple[ConnectorOffset, ...]
    is_taken_over: bool = False

    def rows(self) -> list[_Row]:
        """Return what changes."""
        positions = self.survey.positions
        before = {source: position.next_upstream for source, position in positions.items()}
        kept = [one for one in self.asked if one.offset is not None]
        altered = altered_positions(kept, positions, self.survey.places, is_taken_over=self.is_taken_over)
        rows = [
            _Row(one.source, before[one.source], None)
            for one in self.asked
            if one.offset is None and one.source in before
        ]
        rows += [
            _Row(
                source := one.position.source, before.get(source), one.position.next_upstream, one.repeated, one.skipped
            )
            for one in altered
        ]
        return sorted(rows, key=lambda row: row.source)

    def page(self, rows: Sequence[_Row]) -> Sequence[Part]:
        """Return *rows* for a user."""
        cells = tuple(
            (
                row.source.topic,
                *map(text, (row.source.partition, row.before)),
                "none" if row.after is None else str(row.after),
                *map(text, (row.repeated, row.skipped)),
            )
            for row in rows
        )
        columns = ("topic", ">partition", ">from", ">to", ">copied again", ">skipped")
        removed = sum(row.after is None for row in rows)
        same = len(self.asked) - len(rows)
        total = f"flow {self.settings.flow}: {len(rows) - removed} positions set, {removed} removed, {same} as they are"
        return Sheet(columns, cells, empty="nothing changes"), Note(total)

    def as_json(self, rows: Sequence[_Row], *, is_written: bool, refusal: str | None) -> dict[str, Any]:
        """Return *rows* as JSON values, with why this would be refused without --dry-run."""
        return {
            "flow": str(self.settings.flow),
            "is_written": is_written,
            "refusal": refusal,
            "unchanged": len(self.asked) - len(rows),
            "positions": [
                {
                    "topic": row.source.topic,
                    "partition": row.source.partition,
                    "from": row.before,
                    "to": row.after,
                    "copied_again": row.repeated,
                    "skipped": row.skipped,
                }
                for row in rows
            ],
        }


async def _apply(change: _Change, options: argparse.Namespace, mirror: MirrorSettings, clock: Clock) -> None:
    """Show the change; unless it is a dry run, have it confirmed where that is asked for, and write it."""
    settings, rows = change.settings, change.rows()
    runner = await _runner(options, settings, clock) or await answering_node(mirror, settings.flow)
    if runner is not None and not options.dry_run:
        raise runner
    writes = bool(rows) and not options.dry_run
    if not options.json:
        with even_if_unread():
            show(change.page(rows))
    if runner is not None:
        _say(f"{runner}; without --dry-run this is refused")
    if writes:
        if not getattr(options, "yes", True):
            confirm(is_json=options.json)
        async with kept_idle(settings, clock):
            await offsets_of(settings, clock).alter(SOURCE, change.asked, by=_BY, is_taken_over=change.is_taken_over)
    with even_if_unread():
        if options.json:
            refusal = None if runner is None else str(runner)
            show_json(change.as_json(rows, is_written=writes, refusal=refusal))
        elif writes or options.dry_run:
            print("written" if writes else "dry run: nothing was written")


async def _runner(options: argparse.Namespace, settings: FlowSettings, clock: Clock) -> FlowRunsError | None:
    """Return who runs the flow: a member of its group, or one of Java's workers in the group of its worker."""
    if (runner := await find_runner(settings, clock)) is not None:
        return runner
    group = None if options.connector else worker_group(options.file)
    if group is None:
        return None
    of_worker = attrs.evolve(settings, worker=attrs.evolve(settings.worker, group_id=group))
    return await find_runner(of_worker, clock, of_java=True)


def _say(text: str) -> None:
    """Print a line to standard error; names in it may be made up by other writers of a topic."""
    print(f"mm2py: {clean(text)}", file=sys.stderr)


def confirm(*, is_json: bool = False) -> None:
    """Ask on the terminal. Raise `NotConfirmedError` unless the answer is yes."""
    if is_json:
        raise ArgumentsError("--json asks nothing: confirm with --yes, or look with --dry-run")
    if not command.has_terminal():
        raise ArgumentsError("this is no terminal: confirm with --yes, or look with --dry-run")
    command.confirm("Write this?")


async def answering_node(mirror: MirrorSettings, flow: Flow) -> FlowRunsError | None:
    """Return the node that answers where the file has one listen, if it runs the flow: without the right to join the
    flow's group a node runs nevertheless.
    """
    for listener in mirror.rest.listeners:
        if listener.port:
            url = _url(listener)
            try:
                tls = _any_certificate() if listener.scheme == "https" else None
                async with asyncio.timeout(_ASK_S), connected(Address(url, tls=tls)) as rest:
                    answer = await rest.ask("GET", flow.url_path("status"))
            except (Mm2Error, TimeoutError):
                continue
            if isinstance(answer, dict) and answer.get("state", "standby") not in _IDLE:
                return FlowRunsError(str(flow), "a node", "", str(url))
    return None


def _url(listener: Listener) -> URL:
    host = "127.0.0.1" if listener.host in _EVERYWHERE else listener.host
    return URL.build(scheme=listener.scheme, host=host, port=listener.port)


def _any_certificate() -> ssl.SSLContext:
    """No secret is sent, and a false answer only refuses."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
