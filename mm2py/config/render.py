"""
The key table as documentation, and the effective configuration.

``python -m mm2py.config.render docs/config.md`` writes the tables of that page again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mm2py.config.explain import Effective
from mm2py.config.keys.ignored import IGNORED
from mm2py.config.keys.row import Key, Kind, Section
from mm2py.config.keys.table import SECTIONS
from mm2py.config.settings import MirrorSettings
from mm2py.model.flow import Flow


_IGNORED: Final = (
    "mm2py accepts these settings of Java's, which change nothing, and notes each line that sets one. Their types are "
    "checked as in Java."
)
_NOTHING_TO_CHANGE: Final = "it concerns what mm2py does not have"


def explain(settings: MirrorSettings, flow: Flow | None = None) -> tuple[Effective, ...]:
    """Return the keys that count for *flow*, or for the whole process, with their values and origins."""
    owner = "" if flow is None else str(flow)
    return tuple(row for row in settings.effective if row.owner == owner)


def render_reference(page: str) -> str:
    """Return *page*, Markdown, with its sections from the first one of keys on as the table has them."""
    introduction, _, _ = page.partition(f"## {SECTIONS[0].title}\n")
    lines = (*(line for section in SECTIONS for line in _render_section(section)), *_render_ignored())
    return introduction + "\n".join(lines)


def _render_section(section: Section) -> Iterator[str]:
    yield f"## {section.title}\n"
    if section.text:
        yield f"{section.text}\n"
    yield "| key | type | default | where | what it does |"
    yield "|---|---|---|---|---|"
    yield from (_render_row(key) for key in section.keys if key.acts)
    yield ""


def _render_ignored() -> Iterator[str]:
    yield "## Settings without effect\n"
    yield f"{_IGNORED}\n"
    yield "| settings | where | instead, or why not |"
    yield "|---|---|---|"
    for group in IGNORED:
        names = ", ".join(f"`{key.full_name}`" for key in group.keys)
        yield f"| {names} | {group.place.value} | {group.why or _NOTHING_TO_CHANGE} |"
    for key in (key for section in SECTIONS for key in section.keys if not key.acts):
        yield f"| `{key.full_name}` | {key.place.value} | {key.doc} |"
    yield ""


def _render_row(key: Key) -> str:
    was = f" Also {', '.join(f'`{alias}`' for alias in key.aliases)}." if key.aliases else ""
    text = key.doc + was
    kind = "any" if key.stem is not None and key.kind is Kind.STRING else key.kind.value
    cells = (f"`{key.full_name}`", kind, _render_default(key), key.place.value, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _render_default(key: Key) -> str:
    if key.default is None:
        return ""
    return f"`{key.default}`" if key.default else "empty"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(render_reference(path.read_text()))
