"""What was measured, as tables on the terminal and as JSON."""

from __future__ import annotations

import enum
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import attrs
from rich import box
from rich.console import Console
from rich.table import Table

import mm2py
from bench.candidates import Candidate
from bench.copying import CopyRun
from bench.latency import Latencies, LatencyRun, Load
from bench.load import LoadedTopic
from bench.shapes import Codec
from mm2py.devkit.jars import KAFKA_VERSION, java_command


NOTHING = "-"
COPY_COLUMNS = (
    "shape",
    "candidate",
    "records",
    "records/s",
    "source MB/s",
    "CPU-s/GB",
    "workers' CPU-s/GB",
    "peak PSS MiB",
    "start to first s",
    "CPU-s to first",
    "strangers' cores",
)
LATENCY_COLUMNS = (
    "candidate",
    "seconds",
    "records",
    "missing",
    "repeated",
    "p50 ms",
    "p99 ms",
    "p99.9 ms",
    "max ms",
    "cores used",
    "strangers' cores",
)


@attrs.frozen
class Machine:
    """What the figures were taken on, without which they say little."""

    cpus: int
    cpu_model: str
    memory_bytes: int
    system: str
    python: str
    java: str
    kafka: str
    mm2py: str
    load_before: float

    @classmethod
    def look(cls) -> Machine:
        """This machine now."""
        java = subprocess.run([java_command(), "-version"], check=True, capture_output=True, text=True)
        return cls(
            cpus=len(os.sched_getaffinity(0)),
            cpu_model=_cpu_model(),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            java=(java.stderr or java.stdout).splitlines()[0],
            kafka=KAFKA_VERSION,
            mm2py=mm2py.__version__,
            load_before=os.getloadavg()[0],
        )


@attrs.frozen
class Failure:
    """A run that does not count, and why."""

    candidate: Candidate
    what: str
    reason: str
    log_tail: str


@attrs.define
class Results:
    """Everything measured so far in this call of the benchmark."""

    machine: Machine
    loaded: list[LoadedTopic] = attrs.Factory(list)
    copies: list[CopyRun] = attrs.Factory(list)
    latencies: list[LatencyRun] = attrs.Factory(list)
    latency_load: Load = attrs.Factory(Load)
    #: Without a mirror.
    alone: list[Latencies] = attrs.Factory(list)
    failures: list[Failure] = attrs.Factory(list)

    def as_json(self) -> dict[str, Any]:
        """Return every single run, so that calls can be compared."""
        return attrs.asdict(self, value_serializer=_plain)


class _Run(Protocol):
    @property
    def candidate(self) -> Candidate: ...


_AnyRun = TypeVar("_AnyRun", bound=_Run)


def _plain(_owner: object, _field: object, value: object) -> object:
    match value:
        case Codec():
            return value.setting
        case enum.Enum():
            return value.value
    return value


def print_report(console: Console, results: Results) -> None:
    """Print all tables."""
    machine = results.machine
    console.print(
        f"\n{machine.cpus} CPUs ({machine.cpu_model}), {machine.memory_bytes / 2**30:.0f} GiB, {machine.system}, "
        f"Python {machine.python}, {machine.java}; Kafka and Java MirrorMaker 2 {machine.kafka}, "
        f"mm2py {machine.mm2py}; load average before the first run {machine.load_before:.1f}",
        highlight=False,
    )
    if results.copies:
        console.print(_copies(results))
    if results.latencies:
        console.print(_latencies(results))
    for failure in results.failures:
        console.print(f"failed: {failure.candidate.value}, {failure.what}: {failure.reason}", markup=False)
        console.print(failure.log_tail, markup=False, highlight=False)


def _copies(results: Results) -> Table:
    bases = _bases(results.copies)
    table = _table(
        "Copying (medians; MB and GB are record batches as stored at the source)",
        (*COPY_COLUMNS, *(f"x {base.value}" for base in bases)),
    )
    for loaded in results.loaded:
        runs = [run for run in results.copies if run.shape == loaded.shape.name]
        rates = {candidate: _median(mine, lambda run: run.records_per_s) for candidate, mine in _grouped(runs)}
        for candidate, mine in _grouped(runs):
            workers = _median(mine, lambda run: run.workers_cpu_s_per_gb)
            table.add_row(
                loaded.shape.name,
                candidate.value,
                f"{loaded.records:,}",
                f"{rates[candidate]:,.0f}",
                f"{_median(mine, lambda run: run.source_mb_per_s):,.1f}",
                f"{_median(mine, lambda run: run.cpu_s_per_gb):.2f}",
                f"{workers:.2f}" if candidate.is_ours else NOTHING,
                f"{_median(mine, lambda run: run.peak_pss_bytes) / 2**20:,.0f}",
                f"{_median(mine, lambda run: run.start_to_first_s):.1f}",
                f"{_median(mine, lambda run: run.start_cpu_s):.1f}",
                f"{_median(mine, lambda run: run.strangers_cores):.2f}",
                *(_ratio(rates, candidate, base) for base in bases),
            )
        table.add_section()
    return table


def _latencies(results: Results) -> Table:
    bases = _bases(results.latencies)
    table = _table(
        f"Latency at {results.latency_load}, producer to consumer (medians)",
        (*LATENCY_COLUMNS, *(f"p99 / {base.value}" for base in bases)),
    )
    groups = _grouped(results.latencies)
    p99 = {candidate: _median(mine, lambda run: run.latencies.p99_ms) for candidate, mine in groups}
    for candidate, mine in groups:
        table.add_row(
            candidate.value,
            f"{sum(run.seconds for run in mine):g}",
            f"{sum(run.latencies.records for run in mine):,}",
            f"{sum(run.latencies.missing for run in mine):,}",
            f"{sum(run.latencies.repeated for run in mine):,}",
            f"{_median(mine, lambda run: run.latencies.p50_ms):.2f}",
            f"{p99[candidate]:.2f}",
            f"{_median(mine, lambda run: run.latencies.p999_ms):.1f}",
            f"{_median(mine, lambda run: run.latencies.max_ms):.1f}",
            f"{_median(mine, lambda run: run.cpu_cores):.3f}",
            f"{_median(mine, lambda run: run.strangers_cores):.2f}",
            *(_ratio(p99, candidate, base) for base in bases),
        )
    if results.alone:
        counts = [f"{sum(getattr(it, name) for it in results.alone):,}" for name in ("records", "missing", "repeated")]
        names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
        figures = [f"{statistics.median(getattr(it, name) for it in results.alone):.2f}" for name in names]
        table.add_row("no mirror", NOTHING, *counts, *figures)
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        is_name = column in {"shape", "candidate"}
        table.add_column(column, justify="left" if is_name else "right", no_wrap=is_name)
    return table


def _grouped(runs: Iterable[_AnyRun]) -> list[tuple[Candidate, list[_AnyRun]]]:
    """The runs of each candidate that has any, in the candidates' order."""
    listed = list(runs)
    groups = [(candidate, [run for run in listed if run.candidate is candidate]) for candidate in Candidate]
    return [(candidate, mine) for candidate, mine in groups if mine]


def _bases(runs: Iterable[_AnyRun]) -> list[Candidate]:
    """Return those that the others are compared with: all but mm2py itself."""
    return [candidate for candidate, _ in _grouped(runs) if candidate is not Candidate.MM2PY]


def _median(runs: Iterable[_AnyRun], figure: Callable[[_AnyRun], float]) -> float:
    return statistics.median(figure(run) for run in runs)


def _ratio(figures: dict[Candidate, float], candidate: Candidate, base: Candidate) -> str:
    if base not in figures or candidate is base:
        return NOTHING
    return f"{figures[candidate] / figures[base]:.2f}"


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as info:  # noqa: PTH123  # a kernel file, read line by line
        for line in info:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
