"""``mm2py flow A->B …``: show or control one flow of a running daemon."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import attrs

from mm2py.cli import flow_pages, looking, rest_client
from mm2py.cli.command import confirm, even_if_unread, filled, has_terminal, read_flow, run, whole_number
from mm2py.cli.events import add_event_arguments, show_events
from mm2py.cli.flow_requests import (
    CONNECTORS,
    Request,
    configuring,
    connectors_of,
    judge_steering,
    limiting,
    restarts,
    reverting,
    steering,
    still_paused,
)
from mm2py.cli.parsers import FreeOrderParser, Parser
from mm2py.cli.rest_client import RestClient, connected, read_address
from mm2py.clock import Clock, SystemClock
from mm2py.errors import OverrideConflictError
from mm2py.model.flow import Flow


#: Sort keys of topics, and the daemon's names for them.
_SORTS = {
    "name": "topic",
    "lag": "lag",
    "behind": "lag_s",
    "level": "seconds_until_level",
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
Quote the flow, or write from:A/to:B: a shell interprets >.
"""


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py flow",
        description="Show or control a flow of a running daemon. Overrides stay in force until reverted, across "
        "restarts of the daemon.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("flow", metavar="A->B", type=read_flow, help="the flow, in quotes; or from:A/to:B")
    rest_client.add_arguments(parser)
    looking.add_arguments(parser)
    inner = FreeOrderParser(add_help=False)
    rest_client.add_arguments(inner, is_inner=True)
    looking.add_arguments(inner, is_inner=True)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs", parser_class=FreeOrderParser)

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text, parents=[inner])
        return made

    verb("show", "its state, clusters, task groups and copy tasks; the default")
    for name, text in _STEERING.items():
        _add_steering(verb(name, text), is_restart=name == "restart")
    verb("refresh", "look for new topics, partitions and consumer groups now")
    _add_limit(verb("limit", "show or set rate limits; changes take effect within seconds"))
    _add_config(verb("config", "show or change settings that override the file's, while it runs"))
    _add_yes(verb("revert", "revert all overrides: pauses, limits and settings"))
    offsets = "its positions, or the offsets of its groups; with --json in KIP-875's form"
    _add_connector(verb("offsets", offsets), default="source")
    _add_topics(verb("topics", "its topics: lag, rate, and what blocks them"))
    partitions = verb("partitions", "the partitions of a topic: positions, lag, and what blocks them")
    partitions.add_argument("topic", type=filled, metavar="TOPIC", help="the topic, by its name at the source")
    groups = verb("groups", "consumer groups with their translated offsets")
    groups.add_argument("--search", default="", metavar="TEXT", help="only those with TEXT in their names")
    add_event_arguments(verb("events", "recent events"))
    return parser


_STEERING = {
    "pause": "pause copying, checkpoints and heartbeats; or one connector, topic or partition",
    "resume": "revert a pause or a stop",
    "stop": "like pause, but release everything, so that offsets may be altered",
    "restart": "restart from where it was",
}


def _add_connector(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    wide = f"; {default} unless said" if default else "; default: all of them"
    parser.add_argument("--connector", choices=list(CONNECTORS), default=default, help=f"which task group{wide}")


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask first on a terminal")


def _add_steering(parser: argparse.ArgumentParser, *, is_restart: bool) -> None:
    _add_connector(parser)
    if is_restart:
        parser.add_argument("--task", type=whole_number(0), metavar="N", help="only this copy task")
        parser.add_argument("--only-failed", action="store_true", help="only failed ones")
        _add_yes(parser)
        return
    parser.add_argument("--topic", type=filled, metavar="TOPIC", help="only this topic, by its name at the source")
    parser.add_argument("--partition", type=whole_number(0), metavar="N", help="only this partition of --topic")


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", type=filled, metavar="TOPIC", help="only for this topic, by its name at the source")
    parser.add_argument(
        "--bytes-per-s", type=filled, metavar="10M", help="bytes of record batches as stored at the source; or none"
    )
    parser.add_argument("--records-per-s", type=filled, metavar="5k", help="records; or none")
    parser.add_argument("--none", action="store_true", help="remove the limit")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--connector",
        choices=list(CONNECTORS),
        help="which task group; default: the one that uses each KEY, else source",
    )  # fmt: skip
    _add_yes(parser)
    parser.add_argument(
        "action", nargs="?", default="get", choices=["get", "set", "unset", "revert"],
        help="get shows the effective settings; unset reverts single keys to the file's values, revert all of them",
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="KEY[=VALUE]", help="keys to set, unset or get")


def _add_topics(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--search", default="", metavar="TEXT", help="only those with TEXT in their names")
    parser.add_argument(
        "--sort", choices=list(_SORTS), default="name", help="default: name; other keys in descending order"
    )
    parser.add_argument("--limit", type=whole_number(1, 10_000), metavar="N", help="only the first N")


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py flow`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return run(lambda: _confirmed(options, SystemClock()))


def _confirmed(options: argparse.Namespace, clock: Clock) -> Coroutine[Any, Any, None]:
    """Ask first on a terminal if that is due, and return what is to be run; Ctrl-C ends the question."""
    if (question := restarts(options)) and not options.yes and has_terminal():
        confirm(question)
    return _run(options, clock)


async def _run(options: argparse.Namespace, clock: Clock) -> None:
    async with connected(read_address(options)) as rest:
        await serve(options, rest, clock)


async def serve(options: argparse.Namespace, rest: RestClient, clock: Clock) -> None:
    """Send the request that the options describe to *rest*, and show the answer."""
    verb = options.verb or "show"
    if verb in {"pause", "resume", "stop", "restart", "refresh"}:
        judge_steering(options)
        listed: list[str] = []
        if verb == "restart" and options.connector is None:
            listed = await rest.ask("GET", options.flow.url_path("connectors"))
        await _change(steering(verb, options, listed), rest, is_json=options.json)
        if verb == "resume":
            await _name_paused(options.flow, rest, is_json=options.json)
    elif verb == "revert":
        await _change([reverting(options)], rest, is_json=options.json)
    elif verb == "limit" and (limit := limiting(options)) is not None:
        await _change([limit], rest, is_json=options.json)
    elif verb == "config" and options.action != "get":
        await _change(configuring(options), rest, is_json=options.json)
    elif verb == "events":
        await show_events(options, rest, clock)
    else:
        shown = _question(verb, options)
        await looking.look(lambda: shown.ask(rest), shown.read, options, clock)


@attrs.frozen
class _Question:
    """A read-only verb: its request, and how to show the answer."""

    ask: Callable[[RestClient], Awaitable[Any]]
    read: looking.Read


def _question(verb: str, options: argparse.Namespace) -> _Question:
    flow: Flow = options.flow
    if verb == "config":
        return _Question(
            lambda rest: _config(rest, flow, options),
            lambda answer: flow_pages.config_page(answer["config"], answer["instead"], options.words),
        )
    if verb == "show":
        return _Question(lambda rest: _flow(rest, flow), flow_pages.flow_page)
    names: Sequence[str] = ("overrides",)
    query: dict[str, str] = {}
    read: looking.Read = flow_pages.limits_page
    if verb == "topics":
        names, read = ("topics",), flow_pages.topics_page
        query = {"search": options.search, "sort": _SORTS[options.sort]}
        if options.limit is not None:
            query["limit"] = str(options.limit)
    elif verb == "partitions":
        names, read = ("topics", options.topic, "partitions"), flow_pages.partitions_page
    elif verb == "groups":
        names, read, query = ("groups",), flow_pages.groups_page, {"search": options.search}
    elif verb == "offsets":
        names, read = ("connectors", CONNECTORS[options.connector], "offsets"), flow_pages.offsets_page
    return _Question(lambda rest: rest.ask("GET", flow.url_path(*names), query=query), read)


async def _flow(rest: RestClient, flow: Flow) -> dict[str, Any]:
    """Get a flow's status and its overrides."""
    status = await rest.ask("GET", flow.url_path("status"))
    return {**status, "overrides": await rest.ask("GET", flow.url_path("overrides"))}


async def _config(rest: RestClient, flow: Flow, options: argparse.Namespace) -> dict[str, Any]:
    """Get the config of the connectors that the keys are for, and which keys of it override the file."""
    names = connectors_of(options.connector, options.words) or {CONNECTORS[options.connector or "source"]: []}
    config: dict[str, str] = {}
    for name, keys in names.items():
        found = await rest.ask("GET", flow.url_path("connectors", name, "config"))
        config |= {key: value for key, value in found.items() if not keys or key in keys}
    settings = await rest.ask("GET", flow.url_path("config"))
    return {"config": config, "instead": [one for one in settings if one["connector"] in names]}


async def _change(requests: Sequence[Request], rest: RestClient, *, is_json: bool) -> None:
    """Request changes one after the other, up to the first that is refused."""
    for request in requests:
        answer = await rest.ask(request.method, request.path, query=request.query, body=request.body)
        if request.path.endswith("/restart") and answer and answer["connector"]["state"] == "STOPPED":
            # Connect's answer is no error.
            raise OverrideConflictError(f"{request.done.rpartition(' restarts')[0]} is stopped", "resume it instead")
        with even_if_unread():
            if is_json:
                # As in Connect, most changes have no response body.
                print(json.dumps({"done": request.done} if answer is None else answer, ensure_ascii=False))
            else:
                looking.said(request.done)


async def _name_paused(flow: Flow, rest: RestClient, *, is_json: bool) -> None:
    """Say what of a resumed flow stays paused: each pause is an override of its own."""
    left = still_paused(await rest.ask("GET", flow.url_path("overrides")))
    with even_if_unread():
        if is_json:
            print(json.dumps({"still_paused": left}, ensure_ascii=False))
        elif left:
            all_of_them = f"mm2py flow '{flow}' revert reverts all overrides"
            looking.said(f"still paused: {', '.join(left)}; resume each by its name, or {all_of_them}")
