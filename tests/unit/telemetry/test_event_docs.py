"""The page of events: generated from the classes, each in its chapter."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attrs

from mm2py.telemetry import events
from mm2py.telemetry.event_docs import render
from mm2py.telemetry.events import Event, Level


DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "events.md").read_text()
KINDS = [
    kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, Event) and kind is not Event
]


def test_the_documentation_is_up_to_date() -> None:
    """docs/events.md has what the classes say: ``python -m mm2py.telemetry.event_docs docs/events.md``."""
    assert render(PAGE) == PAGE


def test_every_event_is_explained() -> None:
    """Each event has exactly one row, with its level; an error says what to do."""
    levels = {kind.log_name(): kind.level.name.lower() for kind in KINDS}

    found = re.findall(r"^\| `(\w+)`(?: \((\w+)\))? \| .+ \| (.*) \|$", PAGE, re.MULTILINE)

    assert sorted((name, level or "info") for name, level, _ in found) == sorted(levels.items())
    assert [name for name, level, remedy in found if level == Level.ERROR.name.lower() and not remedy] == []


def test_what_is_seen_of_a_fault_can_be_seen() -> None:
    """Each event or field that the page of faults says one sees is one that there is."""
    rows = re.findall(r"^\| (.*?) \| ", (DOCS / "faults.md").read_text(), re.MULTILINE)
    seen = {word for row in rows for word in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", row)}
    known = {kind.log_name() for kind in KINDS} | {field.name for kind in KINDS for field in attrs.fields(kind)}

    assert len(seen) > 20
    assert seen <= known
