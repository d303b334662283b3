"""How the demo looks: a live view on a terminal, plain lines otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mm2py.cli.demo.snapshot import FlowSnapshot, Said, Snapshot
from mm2py.clock import Clock


_BARS = "▁▂▃▄▅▆▇█"
_LINE_EVERY_S = 2.0
_LOUD = {"warn": "yellow", "error": "bold red"}


@attrs.define
class DemoStep:
    """A step in progress; `result` is the text shown at its end."""

    result: str = ""


class PlainScreen:
    """Plain lines, each with the seconds since the start."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._started = clock.monotonic()
        self._shown_at = self._started

    @contextmanager
    def step(self, doing: str) -> Iterator[DemoStep]:
        """Show a step in progress, and how long it took."""
        self._line(f"{doing} …")
        step = DemoStep()
        yield step
        self._line(step.result or f"{doing}: done")

    @contextmanager
    def watching(self, title: str) -> Iterator[None]:
        """Show snapshots until the end of the block."""
        self._line(title)
        yield

    def show(self, snapshot: Snapshot, phase: str) -> None:
        if self._clock.monotonic() - self._shown_at >= _LINE_EVERY_S:
            self._shown_at = self._clock.monotonic()
            self._line(_in_words(snapshot, phase))

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line that stays."""
        self._print(text, style)

    def _line(self, text: str) -> None:
        self._print(f"{self._clock.monotonic() - self._started:6.1f} s  {text}")

    def _print(self, text: str, style: str = "") -> None:
        # Never wrapped or coloured: the output may go into a file.
        self._console.print(Text(text, style), soft_wrap=True)


class LiveScreen:
    """The same as a live view, redrawn on a terminal."""

    def __init__(self, console: Console, clock: Clock) -> None:
        self._console = console
        self._clock = clock
        self._live: Live | None = None
        self._title = ""

    @contextmanager
    def step(self, doing: str) -> Iterator[DemoStep]:
        step = DemoStep()
        begun = self._clock.monotonic()
        with self._console.status(f"{doing} …"):
            yield step
        took_s = self._clock.monotonic() - begun
        line = Text.assemble((" ✓ ", "green"), step.result or doing, (f"  {took_s:.1f} s", "dim"))
        self._console.print(line, soft_wrap=True)

    @contextmanager
    def watching(self, title: str) -> Iterator[None]:
        self._title = title
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield
        self._live = None

    def show(self, snapshot: Snapshot, phase: str) -> None:
        if self._live is not None:
            self._live.update(draw(snapshot, self._title, phase), refresh=True)

    def say(self, text: str = "", style: str = "") -> None:
        self._console.print(Text(text, style), soft_wrap=True)


Screen = PlainScreen | LiveScreen


def make_screen(console: Console, clock: Clock) -> Screen:
    """Return the screen for *console*."""
    return LiveScreen(console, clock) if console.is_terminal else PlainScreen(console, clock)


def draw(snapshot: Snapshot, title: str, phase: str) -> RenderableType:
    """Draw a snapshot for a terminal of eighty columns or more."""
    head = Text.assemble((title, "bold"), "   ", (phase, "cyan"))
    graph = Text.assemble((_sparkline(snapshot.history), "green"), ("  records/s", "dim"))
    parts: list[RenderableType] = [Text(), head, Text(), _flow_table(snapshot), graph, Text(), _topic_table(snapshot)]
    if snapshot.said:
        parts += [Text(), Text("the mirror's log", style="dim"), *map(_said_line, snapshot.said)]
    return Padding(Group(*parts), (0, 1))


def _flow_table(snapshot: Snapshot) -> Table:
    table = _table("flow", "state", "topics", "parts", "records/s", "MB/s", "lag", "p50 ms", "p99 ms", left=2, gap=1)
    flow = snapshot.flow
    state = Text(flow.state, "green" if flow.state == "running" else "yellow")
    table.add_row(
        Text(flow.flow, "bold"),
        state,
        str(len(snapshot.topics)),
        str(snapshot.partitions),
        f"{flow.records_per_s:,.0f}",
        _megabytes(flow.bytes_per_s),
        f"{flow.lag:,}",
        _ms(flow.latency_p50_ms),
        _ms(flow.latency_p99_ms),
    )
    return table


def _topic_table(snapshot: Snapshot) -> Table:
    table = _table("topic", "remote topic", "codec", "parts", "written", "mirrored", left=3, gap=2)
    for topic in snapshot.topics:
        is_level = topic.mirrored == topic.written
        table.add_row(
            topic.topic,
            topic.remote_topic,
            topic.codec,
            str(topic.partitions),
            f"{topic.written:,}",
            Text(f"{topic.mirrored:,}", "green" if is_level else ""),
        )
    return table


def _table(*columns: str, left: int, gap: int) -> Table:
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right", no_wrap=True)
    return table


def _said_line(said: Said) -> Text:
    style = _LOUD.get(said.level, "")
    line = Text.assemble((said.time, "dim"), "  ", (said.event, style or "bold"), "  ", (said.facts, style or "dim"))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _in_words(snapshot: Snapshot, phase: str) -> str:
    flow = snapshot.flow
    return (
        f"{flow.flow} {flow.state}, {phase}: {len(snapshot.topics)} topics, {snapshot.partitions} partitions, "
        f"{snapshot.mirrored:,} of {snapshot.written:,} records mirrored, {flow.records_per_s:,.0f} records/s, "
        f"{_megabytes(flow.bytes_per_s)} MB/s, lag {flow.lag:,}, {latency_in_words(flow)}"
    )


def latency_in_words(flow: FlowSnapshot) -> str:
    """Return the latency as part of a sentence."""
    return f"latency p50 {_ms(flow.latency_p50_ms)} ms, p99 {_ms(flow.latency_p99_ms)} ms"


def _sparkline(values: tuple[float, ...]) -> str:
    highest = max(values, default=0.0)
    if highest <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[round(max(0.0, value) / highest * (len(_BARS) - 1))] for value in values)


def _megabytes(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else f"{bytes_per_s / 1e6:.2f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
