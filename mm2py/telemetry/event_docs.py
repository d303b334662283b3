"""
The events as documentation.

``python -m mm2py.telemetry.event_docs docs/events.md`` writes the tables of that page again.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

from mm2py.telemetry.events import connectors, control, daemon, epochs, flow, groups, partitions, rest, topics
from mm2py.telemetry.events.base import Event, Level, paragraphs


#: In the order of the page. The title of a chapter is the first paragraph of its module's docstring.
_CHAPTERS: Final = (daemon, flow, topics, groups, epochs, partitions, control, rest, connectors)
_HEAD: Final = "| event | what happened | what to do |\n|---|---|---|"
_REMEDY: Final = "What to do: "


def events_of(chapter: ModuleType) -> tuple[type[Event], ...]:
    """Return the events of one of the modules of `events`, in its order."""
    public = (kind for name, kind in vars(chapter).items() if inspect.isclass(kind) and not name.startswith("_"))
    return tuple(kind for kind in public if issubclass(kind, Event) and kind.__module__ == chapter.__name__)


def render(page: str) -> str:
    """Return *page*, Markdown, with its chapters from the first one of events on as the classes have them."""
    title = paragraphs(_CHAPTERS[0])[0].removesuffix(".")
    introduction, _, _ = page.partition(f"## {title}\n")
    return introduction + "\n\n".join("\n".join(_lines(chapter)) for chapter in _CHAPTERS) + "\n"


def _lines(chapter: ModuleType) -> Iterator[str]:
    title, *introduction = paragraphs(chapter)
    yield f"## {title.removesuffix('.')}\n"
    yield from (f"{text}\n" for text in introduction)
    yield _HEAD
    yield from (_row(kind) for kind in events_of(chapter))


def _row(kind: type[Event]) -> str:
    level = "" if kind.level is Level.INFO else f" ({kind.level.name.lower()})"
    *what, last = paragraphs(kind)
    remedy = last.removeprefix(_REMEDY) if last.startswith(_REMEDY) else ""
    happened = " ".join(what if remedy else (*what, last))
    return f"| `{kind.log_name()}`{level} | {happened} | {remedy[:1].upper()}{remedy[1:]} |"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(render(path.read_text()))
