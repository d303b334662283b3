"""``mm2py docs``: the documents that hints name, printed on a host that has no checkout."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from mm2py.cli.command import printed
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.parsers import Parser
from mm2py.cli.sheets import Note, Sheet, show
from mm2py.rest.page.documents import documents


_EXAMPLES = """\
examples:
  mm2py docs
  mm2py docs security | less
  mm2py docs security#what-to-grant
"""
_HEADING = re.compile(r"(#+) (.+)")
_FENCE = "```"


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py docs",
        description="List the documents, or print one, or a section of it, as Markdown.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("page", nargs="?", metavar="PAGE[#SECTION]", help="as in a link: security#what-to-grant")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run ``mm2py docs`` with *arguments* and return the exit code."""
    options = make_parser().parse_args(arguments)
    return printed(lambda: _list() if options.page is None else _print(options.page))


def _list() -> int:
    pages = documents()
    rows = tuple((name.removesuffix(".md"), _title(file.read_text(encoding="utf-8"))) for name, file in pages.items())
    folders = sorted({str(Path(str(file)).resolve().parent) for file in pages.values()})
    show([Sheet(("page", "what it is about"), rows), *(Note(f"They are in {folder}.") for folder in folders)])
    return ExitCode.OK


def _print(wanted: str) -> int:
    name, _, anchor = wanted.removeprefix("docs/").partition("#")
    page = documents().get(f"{name.removesuffix('.md')}.md")
    if page is None:
        print(f"mm2py docs: there is no page {name}; for a list: mm2py docs", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS
    text = page.read_text(encoding="utf-8")
    lines = section(text, anchor) if anchor else text.splitlines()
    if not lines:
        print(f"mm2py docs: {name} has no section {anchor}", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS
    for line in lines:
        print(line)
    return ExitCode.OK


def _title(text: str) -> str:
    return next((title for _, _, title in _headings(text.splitlines())), "")


def section(text: str, anchor: str) -> list[str]:
    """Return the lines of the section that *anchor* names, with those below it; empty if there is none."""
    lines = text.splitlines()
    headings = list(_headings(lines))
    for number, level, title in headings:
        if _anchor(title) == anchor:
            after = (at for at, of_level, _ in headings if at > number and of_level <= level)
            return lines[number : next(after, len(lines))]
    return []


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Return each heading: its line, its level and its title."""
    is_code = False
    for number, line in enumerate(lines):
        is_code ^= line.startswith(_FENCE)
        if not is_code and (found := _HEADING.fullmatch(line)) is not None:
            yield number, len(found[1]), found[2]


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
