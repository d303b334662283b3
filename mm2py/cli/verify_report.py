"""Output of a comparison: a progress bar, then a table or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
from rich import box
from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mm2py.verify.run import Progress
from mm2py.verify.values import Counts, Difference, DifferenceKind, Equality, PartitionReport, VerifyReport


_STYLES = {Equality.EQUAL: "green", Equality.DIFFERENT: "bold red", Equality.CANNOT_TELL: "yellow"}
#: More equal partitions of one topic than this are shown in one row.
_ROWS = 40
_COLUMNS = ("missing", "repeated", "foreign", "changed", "out of order")


@contextmanager
def shown(console: Console) -> Iterator[Callable[[Progress], None]]:
    """Show progress: a bar on a terminal, elsewhere a line for each step."""
    if not console.is_terminal:
        said: set[str] = set()

        def say(progress: Progress) -> None:
            if progress.doing not in said:
                said.add(progress.doing)
                console.print(f"{progress.doing} …")

        yield say
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=console, transient=True) as drawn:
        task = drawn.add_task("")

        def draw(progress: Progress) -> None:
            drawn.update(task, description=progress.doing, completed=progress.tasks_done, total=progress.tasks or None)

        yield draw


def print_report(console: Console, report: VerifyReport) -> None:
    """Print the result."""
    console.print(_table(report))
    for partition in report.partitions:
        for text in (*partition.reasons, *partition.notes):
            console.print(Text.assemble((str(partition.source), "bold"), f": {text}"))
        for difference in partition.differences:
            console.print(Text.assemble((str(partition.source), "bold"), f": {in_words(difference)}"))
    console.print(summary(report), style=_STYLES[report.verdict])


def in_words(difference: Difference) -> str:
    """Return what is wrong with a record, and where."""
    upstream = "the end" if difference.upstream is None else f"upstream offset {difference.upstream}"
    downstream = "the end" if difference.downstream is None else f"downstream offset {difference.downstream}"
    match difference.kind:
        case DifferenceKind.MISSING:
            return f"{upstream} is missing at {downstream}"
        case DifferenceKind.REPEATED:
            return f"{downstream} repeats a record of the source, before {upstream}"
        case DifferenceKind.FOREIGN:
            return f"{downstream} is not a record of the source, before {upstream}: who else writes there?"
        case DifferenceKind.CHANGED:
            return f"{upstream} and {downstream} differ in {', '.join(difference.parts)}"
        case DifferenceKind.OUT_OF_ORDER:
            return f"{upstream} and {downstream} are out of order"
        case DifferenceKind.DAMAGED:
            where = downstream if difference.upstream is None else upstream
            return f"the batch at {where} is damaged: its checksum does not match its content"


def summary(report: VerifyReport) -> str:
    """Return the verdict in one line."""
    counts = report.counts
    size_mb = (report.source_bytes + report.target_bytes) / 1e6
    part = "" if report.share == 1 else f", {report.share:.1%} of the requested records"
    if report.left_out:
        part += f" (nothing of {report.left_out} more partitions)"
    batches = report.batches_unopened + report.batches_opened
    unopened = f", {report.batches_unopened / batches:.0%} of the batches unopened" if batches else ""
    return (
        f"{report.flow}: {report.verdict.words}. {counts.equal:,} records equal, {counts.differing:,} different, "
        f"{len(report.partitions)} partitions{part}; {size_mb:,.1f} MB read on both sides in {report.elapsed_s:.1f} s"
        f"{unopened}"
    )


def _table(report: VerifyReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("partition", "verdict"):
        table.add_column(name, no_wrap=True)
    for name in ("source", "target", "equal", *_COLUMNS, "not yet"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, verdict, counts in _rows(report):
        numbers = (
            counts.missing,
            counts.repeated,
            counts.foreign,
            counts.changed + counts.damaged,
            counts.out_of_order,
        )
        table.add_row(
            name,
            Text(verdict.words, _STYLES[verdict]),
            *(f"{number:,}" for number in (counts.source, counts.target, counts.equal)),
            *(Text(f"{number:,}", "bold red" if number else "dim") for number in numbers),
            f"{counts.pending:,}",
        )
    return table


def _rows(report: VerifyReport) -> Iterator[tuple[str, Equality, Counts]]:
    """Return a row for each partition; if there are many, one for all equal partitions of a topic."""
    are_many = len(report.partitions) > _ROWS
    equal: dict[str, list[PartitionReport]] = {}
    for partition in report.partitions:
        if are_many and partition.verdict is Equality.EQUAL:
            equal.setdefault(partition.source.topic, []).append(partition)
        else:
            yield str(partition.source), partition.verdict, partition.counts
    for topic, some in equal.items():
        counts = Counts()
        for partition in some:
            counts = counts.plus(partition.counts)
        yield f"{topic} ({len(some)} partitions)", Equality.EQUAL, counts


def as_json(report: VerifyReport) -> dict[str, Any]:
    """Return the whole result as plain values."""
    return {
        "flow": report.flow,
        "verdict": report.verdict.words,
        "exit_code": int(report.verdict),
        "counts": attrs.asdict(report.counts),
        "source_bytes": report.source_bytes,
        "target_bytes": report.target_bytes,
        "batches_unopened": report.batches_unopened,
        "batches_opened": report.batches_opened,
        "slices": report.slices,
        "share": round(report.share, 6),
        "partitions_left_out": report.left_out,
        "elapsed_s": round(report.elapsed_s, 3),
        "comparing_s": round(report.comparing_s, 3),
        "partitions": [_partition(partition) for partition in report.partitions],
    }


def _partition(report: PartitionReport) -> dict[str, Any]:
    first = report.differences[0] if report.differences else None
    return {
        "source": report.source._asdict(),
        "remote": report.remote._asdict(),
        "verdict": report.verdict.words,
        "upstream_offsets": report.upstream,
        "downstream_offsets": report.downstream,
        "share": round(report.share, 6),
        "counts": attrs.asdict(report.counts),
        "first_difference": None if first is None else _difference(first),
        "differences": [_difference(difference) for difference in report.differences],
        "reasons": list(report.reasons),
        "notes": list(report.notes),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "kind": difference.kind.value,
        "upstream": difference.upstream,
        "downstream": difference.downstream,
        "parts": list(difference.parts),
    }
