"""Grafana's panels as values, laid out row by row; `dashboard.py` says what they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs


#: Grafana's grid is so many columns wide.
GRID = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

_GOOD, _WATCH, _BAD = "green", "yellow", "red"


@attrs.frozen
class Query:
    """One PromQL expression; `legend` names its series. A table's queries give single moments."""

    expr: str
    legend: str = ""


@attrs.frozen
class Panel:
    """One panel. `limits` are where a value begins to need watching and where it is bad."""

    kind: str
    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    width: int = 8
    height: int = 8
    about: str = ""
    limits: tuple[float, float] | None = None
    options: tuple[tuple[str, Any], ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    stacked: bool = False


def lines(title: str, *queries: Query, unit: str = "short", about: str = "", **more: Any) -> Panel:
    """Lines over time."""
    return Panel("timeseries", title, queries, unit, about=about, **more)


def number(title: str, expr: str, *, unit: str = "short", about: str = "", **more: Any) -> Panel:
    """One number, large."""
    return Panel("stat", title, (Query(expr),), unit, about=about, **{"width": 4, "height": 4, **more})


def table(title: str, *queries: Query, names: Sequence[tuple[str, str]], about: str = "", **more: Any) -> Panel:
    """A table of the present; *names* are the columns to keep, by label, and how they are headed."""
    return Panel("table", title, queries, about=about, names=tuple(names), **{"width": 12, **more})


@attrs.frozen
class Row:
    """A headed row of panels, which may wrap; one that begins folded is loaded only when it is opened."""

    title: str
    panels: tuple[Panel, ...]
    is_folded: bool = False


def lay_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the panels' JSON, each at its place."""
    placed: list[dict[str, Any]] = []
    top, ids = 0, iter(range(1, 10_000))
    for row in rows:
        head: dict[str, Any] = {
            "id": next(ids),
            "type": "row",
            "title": row.title,
            "collapsed": row.is_folded,
            "gridPos": {"x": 0, "y": top, "w": GRID, "h": 1},
            "panels": [],
        }
        placed.append(head)
        top += 1
        inside, left, tallest = [], 0, 0
        for panel in row.panels:
            if left + panel.width > GRID:
                top, left, tallest = top + tallest, 0, 0
            place = {"x": left, "y": top, "w": panel.width, "h": panel.height}
            inside.append({"id": next(ids), "gridPos": place, **_panel(panel)})
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
        # Grafana keeps the panels of a folded row inside it, those of an open one beside it.
        if row.is_folded:
            head["panels"] = inside
        else:
            placed += inside
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": DATASOURCE,
        "targets": [_target(panel, query, number) for number, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        **({"transformations": _columns(panel)} if panel.kind == "table" else {}),
    }


def _target(panel: Panel, query: Query, number: int) -> dict[str, Any]:
    is_table = panel.kind == "table"
    return {
        "refId": chr(ord("A") + number),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": is_table,
        "range": not is_table,
        "format": "table" if is_table else "time_series",
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": _GOOD, "value": None}]
    if panel.limits is not None:
        watch, bad = panel.limits
        # Where less is worse, the colours run the other way.
        colours = (_WATCH, _BAD) if watch <= bad else (_WATCH, _GOOD)
        low, high = sorted(panel.limits)
        steps = [{"color": _GOOD if watch <= bad else _BAD, "value": None}]
        steps += [{"color": colours[0], "value": low}, {"color": colours[1], "value": high}]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "thresholds" if panel.kind == "stat" else "palette-classic"},
    }
    if panel.kind == "timeseries":
        stacking = {"group": "A", "mode": "normal" if panel.stacked else "none"}
        defaults["min"] = 0
        defaults["custom"] = {
            "drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False,
            "stacking": stacking,
        }  # fmt: skip
    return defaults


def _options(panel: Panel) -> dict[str, Any]:
    standard: dict[str, dict[str, Any]] = {
        "timeseries": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "stat": {
            "colorMode": "value",
            "graphMode": "area",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
        "table": {"showHeader": True, "cellHeight": "sm"},
    }
    return {**standard.get(panel.kind, {}), **dict(panel.options)}


def _columns(panel: Panel) -> list[dict[str, Any]]:
    """Join the queries' answers, and keep the named columns in that order."""
    order = {label: place for place, (label, _) in enumerate(panel.names)}
    return [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": list(order)}}},
        {"id": "organize", "options": {"indexByName": order, "renameByName": dict(panel.names)}},
    ]
