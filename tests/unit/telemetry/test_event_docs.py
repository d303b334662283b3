"""The page of events: generated from the classes, each in its chapter."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from mm2py.telemetry import events
from mm2py.telemetry.event_docs import render
from mm2py.telemetry.events import Event, Level


PAGE = (Path(__file__).parents[3] / "docs/events.md").read_text()


def test_the_documentation_is_up_to_date() -> None:
    """docs/events.md has what the classes say: ``python -m mm2py.telemetry.event_docs docs/events.md``."""
    assert render(PAGE) == PAGE


def test_every_event_is_explained() -> None:
    """Each event has exactly one row, with its level; an error says what to do."""
    kinds = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, Event)]
    levels = {kind.log_name(): kind.level.name.lower() for kind in kinds if kind is not Event}

    found = re.findall(r"^\| `(\w+)`(?: \((\w+)\))? \| .+ \| (.*) \|$", PAGE, re.MULTILINE)

    assert sorted((name, level or "info") for name, level, _ in found) == sorted(levels.items())
    assert [name for name, level, remedy in found if level == Level.ERROR.name.lower() and not remedy] == []
