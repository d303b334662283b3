"""``--explain [A->B] [--changed]``: every effective key, with its value and where it comes from, or those that differ
from their default; secrets are masked. Keys that this version does not act on are shown if the file sets them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mm2py.cli.command import read_flow
from mm2py.config.explain import Effective
from mm2py.config.render import explain
from mm2py.config.settings import MirrorSettings
from mm2py.model.flow import Flow


_READS = ("source.", "consumer.")
_WRITES = ("target.", "producer.")
_LOOKS = ("admin.",)
_WIDEST = 44


def find_flows(settings: MirrorSettings, name: str) -> Sequence[Flow] | None:
    """Return the flow called *name*, or the enabled ones if it is empty; None if there is no such flow."""
    if not name:
        return [flow.flow for flow in settings.flows if flow.reads_source]
    try:
        wanted = read_flow(name)
    except argparse.ArgumentTypeError:
        return None
    return [wanted] if any(flow.flow == wanted for flow in settings.flows) else None


def explained(settings: MirrorSettings, flows: Sequence[Flow], *, only_changed: bool = False) -> Iterator[str]:
    """Return the lines of the view: the process, then flow by flow with what its clients use."""

    yield from _section("This process", _rows(settings, None, only_changed=only_changed))
    for flow in flows:
        rows = _rows(settings, flow, only_changed=only_changed)
        clients = (*_READS, *_WRITES, *_LOOKS)
        yield from _section(f"{flow}", [row for row in rows if not row.key.startswith(clients)])
        yield from _section(f"{flow}: the client that reads {flow.source}", _starting(rows, _READS))
        yield from _section(f"{flow}: the client that writes {flow.target}", _starting(rows, _WRITES))
        yield from _section(f"{flow}: administration", _starting(rows, _LOOKS))


def explained_json(
    settings: MirrorSettings, flows: Sequence[Flow], *, only_changed: bool = False
) -> list[dict[str, Any]]:
    """Return the view as JSON values; a setting of the process has no flow."""
    return [
        {
            "flow": row.owner or None,
            "key": row.key,
            "value": row.value,
            "origin": row.origin,
            "has_effect": row.acts,
            "is_changed": row.is_changed,
        }
        for flow in (None, *flows)
        for row in _rows(settings, flow, only_changed=only_changed)
    ]


def _rows(settings: MirrorSettings, flow: Flow | None, *, only_changed: bool) -> list[Effective]:
    rows = [row for row in explain(settings, flow) if row.acts or row.origin != "default"]
    return [row for row in rows if row.is_changed or not only_changed]


def _starting(rows: Iterable[Effective], stems: tuple[str, ...]) -> list[Effective]:
    return [row for row in rows if row.key.startswith(stems)]


def _section(title: str, rows: Sequence[Effective]) -> Iterator[str]:
    if not rows:
        return
    yield title
    widths = [
        min(_WIDEST, max(map(len, texts), default=0)) for texts in zip(*(_cells(row) for row in rows), strict=True)
    ]
    for row in rows:
        key, value = _cells(row)
        effect = "" if row.acts else ", without effect"
        yield f"  {key:<{widths[0]}} = {value:<{widths[1]}}  [{row.origin}{effect}]"
    yield ""


def _cells(row: Effective) -> tuple[str, str]:
    # A value of several lines, for example a certificate, is shown on one.
    return row.key, row.value.replace("\r", "\\r").replace("\n", "\\n")
