"""``mm2py offsets …``: a flow's positions, shown and changed while it is stopped; and offsets of groups, translated."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from mm2py.cli.parsers import Parser


#: Each action's purpose and module.
ACTIONS = {
    "describe": ("positions", "show how far each topic-partition of a flow was copied"),
    "export": ("positions", "write a flow's positions to a file, in the form of Mirus's offset tool"),
    "import": ("position_changes", "set positions from such a file, or take over those of Mirus"),
    "reset": ("position_changes", "set positions to the earliest or latest offset or a time, or remove them"),
    "translate": ("offset_translation", "translate offsets between a cluster and its mirror"),
}


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py offsets`` with *arguments* and return the exit code."""
    parser = Parser(prog="mm2py offsets", description=__doc__.partition(": ")[2].capitalize())
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=Parser)
    for name, (_, purpose) in ACTIONS.items():
        actions.add_parser(name, help=purpose, add_help=False)
    options, rest = parser.parse_known_args(arguments)
    module = importlib.import_module(f"mm2py.cli.{ACTIONS[options.action][0]}")
    if options.action == "translate":
        return int(module.main(rest))
    return int(module.main(options.action, rest))
