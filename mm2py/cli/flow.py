"""``mm2py flow A->B …``: one flow of a running daemon, looked at and steered."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import attrs

from mm2py.cli import flow_pages, looking, rest_client
from mm2py.cli.command import Parser, run
from mm2py.cli.flow_requests import CONNECTORS, Request, configuring, judge_steering, limiting, steering
from mm2py.cli.rest_client import DaemonNotReachableError, Rest, connected, flow_path, read_address
from mm2py.clock import Clock, SystemClock
from mm2py.model.flow import Flow


_URL_FORM = re.compile(r"/?from:([^/]+)/to:([^/]+)/?")
_FOLLOW_AGAIN_S = 1.0
#: By what topics are sorted, and what the daemon calls it.
_SORTS = {
    "name": "topic",
    "lag": "lag",
    "behind": "lag_s",
    "rate": "record_rate",
    "bytes": "byte_rate",
    "age": "age_ms",
    "latency": "latency_ms",
}
_EXAMPLES = """\
examples:
  mm2py flow 'A->B'
  mm2py flow 'A->B' pause --topic orders
  mm2py flow 'A->B' limit --bytes-per-s 10M
  mm2py flow 'A->B' config set topics='orders.*' refresh.topics.interval.seconds=30
  mm2py flow 'A->B' topics --sort lag --watch
Write the flow in quotes, or as from:A/to:B: a shell takes > for itself.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py flow",
        description="Look at a flow of a running daemon, or steer it. Overrides hold until they are taken back, "
        "restarts of the daemon included.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", metavar="A->B", type=read_flow, help="the flow, in quotes; or from:A/to:B")
    rest_client.add_arguments(parser)
    looking.add_arguments(parser)
    inner = Parser(add_help=False)
    rest_client.add_arguments(inner, is_inner=True)
    looking.add_arguments(inner, is_inner=True)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=Parser)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text, parents=[inner])
        return made

    verb("show", "its state, clusters, task groups and copy tasks; what no verb shows as well")
    for name, text in _STEERING.items():
        _add_steering(verb(name, text), is_restart=name == "restart")
    _add_limit(verb("limit", "show or set how much may be copied in a second; changes count within seconds"))
    _add_config(verb("config", "show or change what counts instead of the file's settings, while it runs"))
    _add_connector(verb("offsets", "the offsets of a connector, as KIP-875 shows them"), default="source")
    _add_topics(verb("topics", "its topics: lag, rate, and what keeps them from being copied"))
    _add_groups(verb("groups", "consumer groups with their translated offsets"))
    _add_events(verb("events", "what happened lately"))
    return parser


_STEERING = {
    "pause": "copy nothing, and keep everything open; of a topic or partition, copy nothing of it",
    "resume": "take a pause or a stop back",
    "stop": "copy nothing and hold nothing, so that offsets may be altered",
    "restart": "start again, from where it was",
}


def _add_connector(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    wide = f"; {default} unless said" if default else "; all of them unless said"
    parser.add_argument("--connector", choices=list(CONNECTORS), default=default, help=f"which task group{wide}")


def _add_steering(parser: argparse.ArgumentParser, *, is_restart: bool) -> None:
    _add_connector(parser)
    if is_restart:
        parser.add_argument("--task", type=int, metavar="N", help="only this copy task")
        parser.add_argument("--only-failed", action="store_true", help="only what has failed")
        return
    parser.add_argument("--topic", metavar="TOPIC", help="only this topic, by its name at the source")
    parser.add_argument("--partition", type=int, metavar="N", help="only this partition of --topic")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="TOPIC", help="for this topic alone, by its name at the source")
    parser.add_argument("--bytes-per-s", metavar="10M", help="bytes of record batches as the source has them; or none")
    parser.add_argument("--records-per-s", metavar="5k", help="records; or none")
    parser.add_argument("--none", action="store_true", help="take the limit away")


def _add_config(parser: argparse.ArgumentParser) -> None:
    _add_connector(parser, default="source")
    parser.add_argument(
        "action", nargs="?", default="get", choices=["get", "set", "unset", "revert"],
        help="get shows what counts; unset takes single keys back to the file's values, revert all of them",
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="KEY[=VALUE]", help="what to set or unset, or to get")


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--search", default="", metavar="TEXT", help="only those whose names hold TEXT")
    parser.add_argument("--sort", choices=list(_SORTS), default="name", help="name unless said; others by the largest")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N")


def _add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--search", default="", metavar="TEXT", help="only those whose names hold TEXT")


def _add_events(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", action="store_true", help="go on with what happens, until Ctrl-C")


def read_flow(text: str) -> Flow:
    """Read ``A->B`` or ``from:A/to:B``. Raise ArgumentTypeError where it is neither."""
    if (found := _URL_FORM.fullmatch(text.strip())) is not None:
        return Flow(unquote(found[1]), unquote(found[2]))
    source, arrow, target = (part.strip() for part in text.partition("->"))
    if arrow and source and target:
        return Flow(source, target)
    if text.endswith("-"):
        # An unquoted A->B: the shell wrote our output into a file called B.
        raise argparse.ArgumentTypeError(f"{text} is half a flow: write it in quotes, '{text}>…', or as from:A/to:B")
    raise argparse.ArgumentTypeError(f"{text} is no flow; write it as 'A->B', in quotes, or as from:A/to:B")


def main(arguments: Sequence[str]) -> int:
    """Do what the *arguments* behind ``mm2py flow`` say, and give the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _run(options, SystemClock()))


async def _run(options: argparse.Namespace, clock: Clock) -> None:
    async with connected(read_address(options)) as rest:
        await serve(options, rest, clock)


async def serve(options: argparse.Namespace, rest: Rest, clock: Clock) -> None:
    """Ask *rest* what the options say, and show the answer."""
    verb = options.verb or "show"
    if verb in {"pause", "resume", "stop", "restart"}:
        judge_steering(options)
        listed: list[str] = []
        if options.connector is None and getattr(options, "topic", None) is None:
            listed = await rest.ask("GET", flow_path(options.flow, "connectors"))
        await _change(steering(verb, options, listed), rest, is_json=options.json)
    elif verb == "limit" and (limit := limiting(options)) is not None:
        await _change([limit], rest, is_json=options.json)
    elif verb == "config" and options.action != "get":
        await _change([configuring(options)], rest, is_json=options.json)
    elif verb == "events":
        await _events(options, rest, clock)
    else:
        question = _question(verb, options)
        await looking.look(lambda: question.ask(rest), question.read, options, clock)


@attrs.frozen
class _Question:
    """What a verb that only looks asks, and what it makes of the answer."""

    ask: Callable[[Rest], Awaitable[Any]]
    read: looking.Read


def _question(verb: str, options: argparse.Namespace) -> _Question:
    flow: Flow = options.flow
    if verb == "topics":
        query = {"search": options.search, "sort": _SORTS[options.sort]}
        if options.limit is not None:
            query["limit"] = str(options.limit)
        return _Question(lambda rest: rest.ask("GET", flow_path(flow, "topics"), query=query), flow_pages.topics_page)
    if verb == "groups":
        of_group = {"search": options.search}
        return _Question(
            lambda rest: rest.ask("GET", flow_path(flow, "groups"), query=of_group), flow_pages.groups_page
        )
    if verb == "offsets":
        path = flow_path(flow, "connectors", CONNECTORS[options.connector], "offsets")
        return _Question(lambda rest: rest.ask("GET", path), flow_pages.offsets_page)
    if verb == "limit":
        return _Question(lambda rest: rest.ask("GET", flow_path(flow, "overrides")), flow_pages.limits_page)
    if verb == "config":
        return _Question(
            lambda rest: _config(rest, flow, CONNECTORS[options.connector]),
            lambda answer: flow_pages.config_page(answer["config"], answer["instead"], options.words),
        )
    return _Question(lambda rest: _flow(rest, flow), flow_pages.flow_page)


async def _flow(rest: Rest, flow: Flow) -> dict[str, Any]:
    """Ask for a flow's status and for what operators asked of it."""
    status = await rest.ask("GET", flow_path(flow, "status"))
    return {**status, "overrides": await rest.ask("GET", flow_path(flow, "overrides"))}


async def _config(rest: Rest, flow: Flow, connector: str) -> dict[str, Any]:
    """Ask for a connector's config, and for what of it counts instead of the file's lines."""
    config = await rest.ask("GET", flow_path(flow, "connectors", connector, "config"))
    settings = await rest.ask("GET", flow_path(flow, "config"))
    return {"config": config, "instead": [one for one in settings if one["connector"] == connector]}


async def _change(requests: Sequence[Request], rest: Rest, *, is_json: bool) -> None:
    """Ask for changes, one after the other; the first that is refused ends it."""
    for request in requests:
        answer = await rest.ask(request.method, request.path, query=request.query, body=request.body)
        if is_json:
            # Like Connect's, most changes are answered without a word.
            print(json.dumps({"done": request.done} if answer is None else answer, ensure_ascii=False))
        else:
            looking.said(request.done)
        sys.stdout.flush()


async def _events(options: argparse.Namespace, rest: Rest, clock: Clock) -> None:
    """Show what happened lately, and with --follow what happens, until Ctrl-C or the daemon's end."""
    of_flow = {"flow": str(options.flow)}
    told = (await rest.ask("GET", "/events", query=of_flow))["events"]
    _tell(told, is_json=options.json)
    last = str(told[-1]["id"]) if told else ""
    is_away = False
    while options.follow:
        query = {**of_flow, "only": "events", "after": last}
        try:
            async for event in rest.follow("/stream", query=query):
                is_away = False
                if event.kind == "event":
                    _tell([json.loads(event.data)], is_json=options.json)
                    last = event.id
        except DaemonNotReachableError as error:
            # Whoever follows wants to see the daemon come back.
            if not is_away:
                print(f"mm2py: {error}; waiting for it", file=sys.stderr)
            is_away = True
        await clock.sleep(_FOLLOW_AGAIN_S)


def _tell(events: Sequence[Mapping[str, Any]], *, is_json: bool) -> None:
    for event in events:
        print(json.dumps(event, ensure_ascii=False) if is_json else flow_pages.event_line(event))
    sys.stdout.flush()
