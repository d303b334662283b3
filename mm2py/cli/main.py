"""The ``mm2py`` command and its subcommands."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence

import mm2py
from mm2py.cli import flow, mirror_maker, mirror_maker_1, offsets, rest_user, standalone, status, topics
from mm2py.cli.exit_code import ExitCode


#: Commands that ask a cluster or a running daemon, and end.
_ASKING: Mapping[str, Callable[[Sequence[str]], int]] = {
    "status": status.main,
    "flow": flow.main,
    "topics": topics.main,
    "offsets": offsets.main,
    "rest-user": rest_user.main,
}

#: Commands that bring Spark or brokers with them, which nobody else needs to load.
_LATE: Mapping[str, str] = {
    "verify": "mm2py.cli.verify",
    "transform": "mm2py.cli.transform",
    "demo": "mm2py.cli.demo",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = mirror_maker.Parser(prog="mm2py", description=mm2py.__doc__)
    parser.add_argument("--version", action="version", version=f"mm2py {mm2py.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    mirror = commands.add_parser("mirror", help="run a node (the same as connect-mirror-maker)")
    mirror_maker.add_arguments(mirror)
    commands.add_parser("status", help="what a running daemon does, and what is wrong with it", add_help=False)
    commands.add_parser("flow", help="look at a flow of a running daemon, or steer it", add_help=False)
    commands.add_parser("demo", help="mirror a stream between two real clusters on this machine", add_help=False)
    commands.add_parser("topics", help="print what mirrors keep on a cluster", add_help=False)
    commands.add_parser("offsets", help="translate offsets between a cluster and its mirror", add_help=False)
    commands.add_parser("rest-user", help="make a line for the file with REST's users", add_help=False)
    commands.add_parser("verify", help="compare the topics of a flow with their copies", add_help=False)
    commands.add_parser("transform", help="show what a flow's transform makes of records", add_help=False)
    commands.add_parser("standalone", help="run connectors' files, as connect-standalone does", add_help=False)
    commands.add_parser("legacy-mirror", help="run MirrorMaker 1's command line, as kafka-mirror-maker", add_help=False)
    options, rest = parser.parse_known_args(arguments)
    if options.command in _ASKING:
        return _ASKING[options.command](rest)
    if options.command == "standalone":
        return standalone.main(rest, prog="mm2py standalone")
    if options.command == "legacy-mirror":
        return mirror_maker_1.main(rest, prog="mm2py legacy-mirror")
    if options.command in _LATE:
        return int(importlib.import_module(_LATE[options.command]).main(rest))
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return ExitCode(mirror_maker.execute(options))
