"""``mm2py offsets translate …``: translate single offsets, or those of a group, to the other cluster."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack

import attrs

from mm2py.cli.asking import MirrorFile
from mm2py.cli.command import filled, read_flow, run
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.sheets import Sheet, plain_lines
from mm2py.client import MirrorClient, MirrorClientConfig, OffsetTranslation, TopicPartition, Translated, Translation
from mm2py.connectors.plugins import remote_names_of
from mm2py.errors import ClusterUnreachableError, Mm2Error


_PLACE = re.compile(r"(.+):(\d{1,9}):(\d{1,18})")
_EXAMPLES = """\
examples:
  mm2py offsets translate mm2.properties 'A->B' orders:0:1500
  mm2py offsets translate mm2.properties 'A->B' billing
  mm2py offsets translate mm2.properties 'A->B' billing --back
"""


@attrs.define(eq=False)
class NotTranslatedError(Mm2Error):
    """Some of the requested offsets have no translation; the reasons are printed with them."""

    count: int
    of: int

    def __str__(self) -> str:
        return f"{self.count} of {self.of} offsets could not be translated"


@attrs.define(eq=False)
class NoOffsetsError(Mm2Error):
    """A group has no committed offsets to translate."""

    group: str
    cluster: str

    def __str__(self) -> str:
        return f"group {self.group} has committed no offsets on cluster {self.cluster}"


@attrs.frozen
class _Row:
    """An offset and its translation. `other` is the partition on the other side, None if unknown."""

    asked: TopicPartition
    offset: int
    other: TopicPartition | None
    answer: Translation


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py offsets translate",
        description="Translate offsets between a cluster and its mirror: those of groups, or single ones.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="mm2.properties", help="MirrorMaker 2's properties file")
    parser.add_argument("flow", type=read_flow, metavar="A->B", help="the flow whose records it is about")
    parser.add_argument(
        "what", nargs="+", type=filled, metavar="GROUP|TOPIC:PARTITION:OFFSET", help="what to translate"
    )
    parser.add_argument("--back", action="store_true", help="from the target's offsets back to the source's")
    add_json(parser, "a line of JSON for each offset")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py offsets translate`` with *arguments* and return the exit code."""
    options = make_parser().parse_intermixed_args(arguments)
    return run(lambda: _translate(options))


async def _translate(options: argparse.Namespace) -> None:
    mirror, flow = MirrorFile.read(options.file), options.flow
    for alias in flow.aliases:
        mirror.known(alias, "flow")
    settings = mirror.flow(flow)
    positions_topic = settings.source_connector.offset_storage.topic if settings else ""
    needs_source = not options.back and any(_PLACE.fullmatch(what) is None for what in options.what)
    async with AsyncExitStack() as clients:
        target = await clients.enter_async_context(MirrorClient(mirror.client_config(flow.target, source=flow.source)))
        source = await _source(clients, mirror.client_config(flow.source, source=flow.target), is_needed=needs_source)
        translation = await target.offset_translation(
            flow.source,
            source=source,
            target_alias=flow.target,
            positions_topic=positions_topic,
            name_remote=remote_names_of(settings.source_connector) if settings else None,
        )
        asked_at = target if options.back or source is None else source
        rows = [row for what in options.what for row in await _rows(what, asked_at, translation, is_back=options.back)]
    for line in _json_lines(rows) if options.json else _lines(rows):
        print(line)
    failed = sum(not isinstance(row.answer, Translated) for row in rows)
    if failed:
        raise NotTranslatedError(failed, len(rows))


async def _source(clients: AsyncExitStack, config: MirrorClientConfig, *, is_needed: bool) -> MirrorClient | None:
    """Connect to the source cluster; do without it if it is unreachable and only the target is needed."""
    try:
        return await clients.enter_async_context(MirrorClient(config))
    except ClusterUnreachableError as error:
        if is_needed:
            raise
        print(f"mm2py: {error}; translating with the target's data only", file=sys.stderr)
        return None


async def _rows(what: str, asked_at: MirrorClient, translation: OffsetTranslation, *, is_back: bool) -> list[_Row]:
    """Translate one offset, or all that a group has committed on the queried cluster, except in unrelated topics."""
    if (place := _PLACE.fullmatch(what)) is not None:
        return [_row(TopicPartition(place[1], int(place[2])), int(place[3]), translation, is_back=is_back)]
    committed = await asked_at.committed_offsets(what)
    if not committed:
        raise NoOffsetsError(what, asked_at.config.name)
    rows = [_row(tp, at.offset, translation, is_back=is_back) for tp, at in sorted(committed.items())]
    mirrored = [row for row in rows if row.other is not None]
    return mirrored or rows


def _row(asked: TopicPartition, offset: int, translation: OffsetTranslation, *, is_back: bool) -> _Row:
    translate: Callable[[TopicPartition, int], Translation]
    translate, other = (
        (translation.upstream, translation.source_of(asked))
        if is_back
        else (translation.downstream, translation.remote_of(asked))
    )
    return _Row(asked, offset, other, translate(asked, offset))


def _lines(rows: Sequence[_Row]) -> Iterator[str]:
    cells = []
    for row in rows:
        if isinstance(row.answer, Translated):
            answer = (str(row.other), str(row.answer.offset), row.answer.precision.value)
        else:
            answer = (str(row.other or "-"), "-", row.answer.value)
        cells.append((str(row.asked), str(row.offset), *answer))
    return plain_lines([Sheet(("partition", "offset", "there", "offset", ""), tuple(cells))])


def _json_lines(rows: Sequence[_Row]) -> Iterator[str]:
    for row in rows:
        answer: dict[str, object] = {"there_offset": None, "precision": None, "reason": None}
        if isinstance(row.answer, Translated):
            answer |= {"there_offset": row.answer.offset, "precision": row.answer.precision.name.lower()}
        else:
            answer |= {"reason": row.answer.name.lower()}
        there = None if row.other is None else row.other._asdict()
        line = {"partition": row.asked._asdict(), "offset": row.offset, "there": there, **answer}
        yield json.dumps(line, ensure_ascii=False)
