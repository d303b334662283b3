"""``mm2py topics dump …``: the mirrors' internal records on a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing

import attrs

from mm2py.cli.asking import MirrorFile, add_arguments, config_from_servers
from mm2py.cli.command import ArgumentsError, run
from mm2py.cli.parsers import Parser, add_json
from mm2py.cli.record_printing import Print, java_text, json_lines, table
from mm2py.client.config import MirrorClientConfig
from mm2py.client.mirror_client import MirrorClient
from mm2py.client.records import MirrorRecord, RecordKind, kind_of, latest, mirror_topics, topic_of
from mm2py.clock import Clock, SystemClock
from mm2py.errors import Mm2Error


_KINDS = {kind.value: kind for kind in RecordKind}
_FOLLOW_EVERY_S = 0.5
_EXAMPLES = """\
examples:
  mm2py topics dump mm2.properties --cluster B checkpoints --source A
  mm2py topics dump mm2.properties --cluster B heartbeats --latest --follow
  mm2py topics dump --bootstrap-servers b:9092 mm2-offset-syncs.A.internal --text
"""


@attrs.define(eq=False)
class NoSuchTopicsError(Mm2Error):
    """A cluster has none of the requested topics."""

    cluster: str
    what: str

    def __str__(self) -> str:
        return f"cluster {self.cluster} has no {self.what}"


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py topics",
        description="Print heartbeats, checkpoints, offset syncs and positions of a cluster.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["dump"])
    parser.add_argument(
        "words", nargs="*", metavar="[FILE] [WHAT]",
        help=f"MirrorMaker 2's properties file, unless there are --bootstrap-servers; then {', '.join(_KINDS)}, or a "
        "topic; without it all of them",
    )  # fmt: skip
    parser.add_argument(
        "--cluster", metavar="ALIAS", help="the cluster to read; default: the only target, if there is one"
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--source", metavar="ALIAS", help="of the mirror from this cluster")
    other.add_argument(
        "--target", metavar="ALIAS", help="for offset syncs at the source: of the mirror to this cluster"
    )
    parser.add_argument("--as", dest="kind", choices=list(_KINDS), help="parse a topic with another name as this kind")
    parser.add_argument("--latest", action="store_true", help="only the last record of each key")
    parser.add_argument("--follow", action="store_true", help="print new records until Ctrl-C")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="print in the format of Kafka's own formatters (KIP-597)")
    add_json(form, "a line of JSON for each record")
    add_arguments(parser)
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py topics`` with *arguments* and return the exit code."""
    options = make_parser().parse_intermixed_args(arguments)
    return run(lambda: _dump(options, SystemClock()))


async def _dump(options: argparse.Namespace, clock: Clock) -> None:
    config, what, positions_topics = _asked(options)
    async with MirrorClient(config, clock=clock) as client:
        topics = await _chosen(client, options, what, positions_topics)
        dump = _Dump(client, topics, options)
        await dump.print_all()
        while options.follow:
            await clock.sleep(_FOLLOW_EVERY_S)
            await dump.print_news()


def _asked(options: argparse.Namespace) -> tuple[MirrorClientConfig, str | None, frozenset[str]]:
    """Interpret the arguments: the cluster to read, what to print, and the file's positions topics."""
    words = list(options.words)
    if options.target and options.source is None and words[-1:] != [RecordKind.OFFSET_SYNC.value]:
        raise ArgumentsError("--target is for offset-syncs at the source")
    if options.bootstrap_servers is not None:
        if options.cluster:
            raise ArgumentsError("--cluster names a cluster of a properties file, --bootstrap-servers another one")
        config = config_from_servers(options.bootstrap_servers, options.command_config)
        return config, _only(words), frozenset()
    if not words:
        raise ArgumentsError("name MirrorMaker 2's properties file, or give --bootstrap-servers")
    mirror = MirrorFile.read(words.pop(0))
    alias = mirror.known(options.cluster, "--cluster") if options.cluster else mirror.only_target()
    for option, other in (("--source", options.source), ("--target", options.target)):
        if other is not None:
            mirror.known(other, option)
    return mirror.client_config(alias, source=options.source), _only(words), mirror.positions_topics(alias)


def _only(words: Sequence[str]) -> str | None:
    if len(words) > 1:
        raise ArgumentsError(f"one topic or kind at a time, not {' '.join(words)}")
    return words[0] if words else None


async def _chosen(
    client: MirrorClient, options: argparse.Namespace, what: str | None, positions_topics: frozenset[str]
) -> dict[str, RecordKind]:
    """Return the topics to print, with their kinds. Whether a named topic exists is not checked here."""
    policy = client.replication_policy
    kind = _KINDS.get(what or "")
    if what is not None and kind is None:
        named = _KINDS.get(options.kind or "") or kind_of(what, policy)
        named = RecordKind.POSITION if named is None and what in positions_topics else named
        if named is None:
            raise ArgumentsError(f"the name {what} does not reveal the kind of the topic; use --as")
        return {what: named}
    alias = options.source or options.target
    if kind is not None and alias is not None:
        return {topic_of(kind, alias, policy): kind}
    there = await client.topics()
    found = mirror_topics(there, policy) | dict.fromkeys(positions_topics & there, RecordKind.POSITION)
    if alias is not None:
        found = {topic: each for topic, each in found.items() if topic == topic_of(each, alias, policy)}
    if kind is not None:
        found = {topic: each for topic, each in found.items() if each is kind}
    if not found:
        raise NoSuchTopicsError(client.config.endpoint.alias, f"topic with {what}" if what else "topic of a mirror")
    return found


class _Dump:
    """The topics of one command, and how far each has been printed."""

    def __init__(self, client: MirrorClient, topics: Mapping[str, RecordKind], options: argparse.Namespace) -> None:
        self._client = client
        self._topics = topics
        self._is_latest = options.latest
        self._has_titles = len(topics) > 1 and not (options.text or options.json)
        self._positions: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        self._printers: dict[str, Print] = {
            topic: java_text if options.text else json_lines if options.json else table(kind)
            for topic, kind in topics.items()
        }
        self._titled = ""

    async def print_all(self) -> None:
        """Print the current records of the topics."""
        for topic in self._topics:
            self._title(topic)
            if self._is_latest:
                self._printers[topic](latest([record async for record in self._records(topic)]))
            else:
                await self._print_on(topic)
            sys.stdout.flush()

    async def print_news(self) -> None:
        """Print new records."""
        for topic in self._topics:
            await self._print_on(topic)

    async def _print_on(self, topic: str) -> None:
        async with aclosing(self._chunks(topic)) as chunks:
            async for chunk in chunks:
                self._title(topic)
                self._printers[topic](chunk)
                sys.stdout.flush()

    async def _records(self, topic: str) -> AsyncIterator[MirrorRecord]:
        async with aclosing(self._chunks(topic)) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    yield record

    async def _chunks(self, topic: str) -> AsyncGenerator[list[MirrorRecord], None]:
        positions = self._positions[topic]
        async with aclosing(self._client.records(topic, self._topics[topic], dict(positions))) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    positions[record.partition] = record.offset + 1
                yield chunk

    def _title(self, topic: str) -> None:
        """Print which topic the following lines belong to, if there are several."""
        if self._has_titles and self._titled != topic:
            print(f"{chr(10) if self._titled else ''}{topic} ({self._topics[topic].value})")
            self._titled = topic
