"""Output of a comparison: a progress bar, then a table or JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from typing import Any

import attrs
from rich import progress as bars
from rich.console import Console
from rich.text import Text

from mm2py.cli.sheets import Sheet, count, show
from mm2py.verify.run import Progress
from mm2py.verify.values import Counts, Difference, DifferenceKind, Equality, PartitionReport, VerifyReport


_STYLES = {Equality.EQUAL: "green", Equality.DIFFERENT: "bold red", Equality.CANNOT_TELL: "yellow"}
#: More equal partitions of one topic than this are shown in one row.
_ROWS = 40
#: Columns that are left out where no partition has any.
_DIFFERENCES: Mapping[str, Callable[[Counts], int]] = {
    ">missing": lambda counts: counts.missing,
    ">repeated": lambda counts: counts.repeated,
    ">foreign": lambda counts: counts.foreign,
    ">changed": lambda counts: counts.changed + counts.damaged,
    ">out of order": lambda counts: counts.out_of_order,
    ">not yet": lambda counts: counts.pending,
}


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


def print_report(report: VerifyReport) -> None:
    """Print the result."""
    show([_sheet(report)])
    console = Console(highlight=False, soft_wrap=True)
    console.print()
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
    found = f"{counts.equal:,} records equal, {counts.differing:,} different"
    if not counts.source and not counts.target:
        found = "nothing was compared"
    return (
        f"{report.flow}: {report.verdict.words}. {found}, "
        f"{len(report.partitions)} partitions{part}; {size_mb:,.1f} MB read on both sides in {report.elapsed_s:.1f} s"
        f"{unopened}"
    )


def _sheet(report: VerifyReport) -> Sheet:
    rows = list(_rows(report))
    titles = [title for title in _DIFFERENCES if any(_DIFFERENCES[title](counts) for _, _, counts in rows)]
    lines = []
    for name, verdict, counts in rows:
        numbers = (counts.source, counts.target, counts.equal, *(_DIFFERENCES[title](counts) for title in titles))
        lines.append((name, verdict.words, *map(count, numbers)))
    return Sheet(("partition", "verdict", ">source", ">target", ">equal", *titles), tuple(lines))


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
        counts = reduce(Counts.plus, (partition.counts for partition in some), Counts())
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
