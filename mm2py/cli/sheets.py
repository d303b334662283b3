"""Output of commands: tables, facts and notes, drawn on a terminal, as plain aligned text elsewhere."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence

import attrs
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text


#: Styles of states on a terminal; other words have no style.
_STYLES = {
    "running": "green",
    "owner": "green",
    "ready": "green",
    "yes": "green",
    "copying": "green",
    "reachable": "green",
    "exact": "green",
    "equal": "green",
    "starting": "cyan",
    "draining": "cyan",
    "drained": "cyan",
    "waiting for slot": "cyan",
    "paused": "yellow",
    "standby": "yellow",
    "stopped": "bold red",
    "restarting": "yellow",
    "backing off": "yellow",
    "late": "bold red",
    "missing at the target": "bold red",
    "silent": "bold red",
    "gone": "yellow",
    "not ready": "yellow",
    "unassigned": "yellow",
    "failed": "bold red",
    "no": "bold red",
    "unreachable": "bold red",
    "has failures": "bold red",
    "different": "bold red",
    "could not tell": "yellow",
    "warning": "yellow",
    "error": "bold red",
}
_NONE = "-"
#: The narrowest column in which text is readable.
_LEAST_TEXT = 12


@attrs.frozen
class Sheet:
    """A table. Columns whose title starts with ``>`` are right-aligned numbers. `empty` is shown instead of a table
    without rows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    empty: str = "none"


@attrs.frozen
class Facts:
    """Names with a value each, one per line. Empty values are omitted."""

    rows: tuple[tuple[str, str], ...]
    title: str = ""


@attrs.frozen
class Note:
    """A sentence."""

    text: str


Part = Sheet | Facts | Note


def show(parts: Sequence[Part]) -> None:
    """Print to standard output in the form that suits it."""
    console = Console()
    if console.is_terminal:
        console.print(draw(parts))
    else:
        for line in plain_lines(parts):
            print(line)
    sys.stdout.flush()


def show_json(answer: object) -> None:
    """Print *answer* as JSON to standard output, with its letters as they are."""
    print(json.dumps(answer, indent=2, ensure_ascii=False))


def plain_lines(parts: Sequence[Part]) -> Iterator[str]:
    """Return the lines of plain text, without colours, truncation or wrapping."""
    for number, part in enumerate(parts):
        if number:
            yield ""
        if isinstance(part, Note):
            yield clean(part.text)
            continue
        if part.title:
            yield clean(part.title)
        if isinstance(part, Facts):
            rows = [row for row in part.rows if row[1]]
            width = max((len(name) for name, _ in rows), default=0)
            yield from (f"{clean(name):<{width}}  {clean(value)}" for name, value in rows)
        elif not part.rows:
            yield clean(part.empty)
        else:
            yield from _aligned(part)


def _aligned(sheet: Sheet) -> Iterator[str]:
    cells = [tuple(title.removeprefix(">").upper() for title in sheet.columns)]
    cells += [tuple(map(clean, row)) for row in sheet.rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = [">" if title.startswith(">") else "<" for title in sheet.columns]
    for row in cells:
        places = zip(row, sides, widths, strict=True)
        yield "  ".join(f"{cell:{side}{width}}" for cell, side, width in places).rstrip()


def draw(parts: Sequence[Part]) -> RenderableType:
    """Draw for a terminal."""
    drawn: list[RenderableType] = []
    for number, part in enumerate(parts):
        if number:
            drawn.append(Text())
        if isinstance(part, Note):
            drawn.append(Text(clean(part.text)))
            continue
        if part.title:
            drawn.append(Text(clean(part.title), "bold"))
        if isinstance(part, Facts):
            drawn.append(_facts(part))
        else:
            drawn.append(_Fitting(part) if part.rows else Text(clean(part.empty), "dim"))
    return Group(*drawn)


def _facts(facts: Facts) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.rows:
        if value:
            table.add_row(clean(name), _styled(value))
    return table


@attrs.frozen
class _Fitting:
    """A table as wide as the terminal allows; if that is too narrow for its columns, a block for each row."""

    sheet: Sheet

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        sheet = self.sheet
        least = [_least_width(sheet, at) for at in range(len(sheet.columns))]
        for gap in (2, 1):
            if sum(least) + gap * (len(least) - 1) <= options.max_width:
                yield _table(sheet, least, gap)
                return
        for number, row in enumerate(sheet.rows):
            if number:
                yield Text()
            titles = (title.removeprefix(">") for title in sheet.columns)
            yield _facts(Facts(tuple(zip(titles, row, strict=True))))


def _least_width(sheet: Sheet, at: int) -> int:
    """Return the minimum width of a column: numbers are never wrapped, long text is."""
    title = sheet.columns[at]
    widest = max(len(title.removeprefix(">")), *(len(row[at]) for row in sheet.rows))
    return widest if title.startswith(">") else min(widest, _LEAST_TEXT)


def _table(sheet: Sheet, least: Sequence[int], gap: int) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
    for title, width in zip(sheet.columns, least, strict=True):
        is_number = title.startswith(">")
        table.add_column(
            title.removeprefix(">"),
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
            min_width=width,
        )
    for row in sheet.rows:
        table.add_row(*map(_styled, row))
    return table


def _styled(text: str) -> Text:
    return Text(clean(text), _STYLES.get(text.lower(), ""))


def clean(text: str) -> str:
    """Remove terminal control characters: names and messages come from clusters that others may write to. Spaces of
    all kinds, as in numbers, and line ends are one space each.
    """
    return "".join(
        letter if letter.isprintable() else " " if letter.isspace() else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


# Numbers for display.


def at_least(shown: str, is_least: bool) -> str:  # noqa: FBT001 - as the daemon says it
    """Return a figure as *shown*, marked if it may be more."""
    return f"\N{GREATER-THAN OR EQUAL TO} {shown}" if is_least else shown


def count(value: float | None) -> str:
    """Return a whole number with thousands separators."""
    return _NONE if _is_nothing(value) else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a number per second in three digits or more."""
    if value is None or _is_nothing(value):
        return _NONE
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.1f}"  # noqa: PLR2004


def size(value: float | None) -> str:
    """Return bytes in the largest decimal unit that leaves a digit before the point."""
    if value is None or _is_nothing(value):
        return _NONE
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or unit == "T":  # noqa: PLR2004
            return f"{value:.1f} {unit}B" if unit else f"{value:.0f} B"
        value /= 1000
    raise AssertionError


def millis(value: float | None) -> str:
    """Return milliseconds."""
    return _NONE if _is_nothing(value) else f"{value:,.1f}"


def span(seconds: float | None) -> str:
    """Return a span of time in its two largest units."""
    if seconds is None or _is_nothing(seconds):
        return _NONE
    if seconds < 60:  # noqa: PLR2004
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if hours < 1:
        return f"{int(minutes)} min {int(seconds % 60)} s"
    if days < 2:  # noqa: PLR2004
        return f"{int(hours)} h {int(minutes % 60)} min"
    return f"{int(days)} d {int(hours % 24)} h"


def text(value: object) -> str:
    """Return a word, or a dash if there is none."""
    return _NONE if value is None or value == "" else str(value)


def _is_nothing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)
