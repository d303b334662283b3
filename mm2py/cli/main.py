"""The ``mm2py`` command and its subcommands."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import mm2py
from mm2py.cli.parsers import Parser


#: Each command's purpose and module. Only the requested one is loaded: most need no Spark.
COMMANDS = {
    "mirror": ("mirror_maker", "run a node (the same as connect-mirror-maker)"),
    "check": ("check", "check a file, this machine and the clusters before a mirror starts"),
    "status": ("status", "the state and problems of a running daemon"),
    "flow": ("flow", "show or control a flow of a running daemon"),
    "events": ("events", "recent events of a running daemon"),
    "nodes": ("nodes", "the nodes that run each flow of a running daemon"),
    "node": ("node", "drain a running node of its copy tasks, or undrain it"),
    "demo": ("demo.command", "mirror a stream between two real clusters on this machine"),
    "topics": ("topics", "print the mirrors' internal records on a cluster"),
    "offsets": ("offsets", "show and set the positions of a stopped flow; translate offsets"),
    "docs": ("docs", "print a page of the documentation, as hints name it"),
    "rest-user": ("rest_user", "print a line for the file with REST's users"),
    "completion": ("completion", "print a script by which a shell completes these commands"),
    "verify": ("verify", "compare the topics of a flow with their copies"),
    "transform": ("transform", "show records before and after a flow's transform"),
    "standalone": ("standalone", "run connectors' files, as connect-standalone does"),
    "distributed": ("distributed", "run connectors that are created over REST, as connect-distributed does"),
    "legacy-mirror": ("mirror_maker_1", "run MirrorMaker 1's command line, as kafka-mirror-maker"),
}
#: Those that also have another name.
_ALSO_ALONE = {"mirror", "standalone", "distributed", "legacy-mirror"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="mm2py", description=mm2py.__doc__)
    parser.add_argument("--version", action="version", version=f"mm2py {mm2py.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    options, rest = parser.parse_known_args(arguments)
    asked = importlib.import_module(f"mm2py.cli.{COMMANDS[options.command][0]}")
    if options.command in _ALSO_ALONE:
        return int(asked.main(rest, prog=f"mm2py {options.command}"))
    return int(asked.main(rest))
