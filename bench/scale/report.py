"""The figures of one part, a column for each candidate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from bench.scale.order import Order


#: What was measured, and the figures.
Row: TypeAlias = tuple[str, str]


def seconds(value: float | None) -> str:
    """Return a time for people; what did not come within the limit has none."""
    return "not in time" if value is None else f"{value:.1f} s"


def milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def print_report(console: Console, order: Order, found: Mapping[str, Sequence[Row]]) -> None:
    """Print the rows of each candidate side by side."""
    busy = sum(order.busy.values())
    title = (
        f"{order.part.value}: {order.partitions} partitions, {busy} of them busy with {order.rate} records/s, "
        f"tasks.max = {order.tasks_max}"
    )
    table = Table("what", *found, title=title)
    labels = list(dict.fromkeys(label for rows in found.values() for label, _ in rows))
    by_candidate = [dict(rows) for rows in found.values()]
    for label in labels:
        table.add_row(label, *(rows.get(label, "-") for rows in by_candidate))
    console.print(table)
