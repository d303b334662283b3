"""What arrived at the target, and what it says: latencies of a span of time, losses, repetitions, pauses."""

from __future__ import annotations

import array
import math
from collections.abc import Collection, Iterable
from pathlib import Path

import attrs

from bench.latency import quantile


@attrs.frozen
class Arrival:
    """One record: its number, when it was due to be sent, and when it was received, in nanoseconds of one clock."""

    number: int
    due_ns: int
    at_ns: int

    @property
    def latency_ms(self) -> float:
        return (self.at_ns - self.due_ns) / 1e6


@attrs.frozen
class Window:
    """Latencies of the records that were due in a span of time, in milliseconds."""

    records: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_ms:.1f}, p99 {self.p99_ms:.1f}, p99.9 {self.p999_ms:.1f}, max {self.max_ms:.1f} ms "
            f"of {self.records}"
        )


@attrs.frozen
class Arrivals:
    """Everything that was received of *sent* records; record *n* went to place *n* modulo the places."""

    sent: int
    places: int
    records: tuple[Arrival, ...]

    @property
    def missing(self) -> int:
        return self.sent - len({arrival.number for arrival in self.records})

    @property
    def repeated(self) -> int:
        return len(self.records) - len({arrival.number for arrival in self.records})

    @property
    def first_due_ns(self) -> int:
        return min((arrival.due_ns for arrival in self.records), default=0)

    @property
    def last_due_ns(self) -> int:
        return max((arrival.due_ns for arrival in self.records), default=0)

    def window(self, from_ns: int, until_ns: int, among: Collection[int] | None = None) -> Window:
        """Return the latencies of what was due then; *among* says which places count, by their index."""
        return window(
            arrival.latency_ms
            for arrival in self.records
            if from_ns <= arrival.due_ns < until_ns and (among is None or arrival.number % self.places in among)
        )


def window(latencies_ms: Iterable[float]) -> Window:
    """Return the figures of some latencies."""
    ordered = sorted(latencies_ms)
    if not ordered:
        return Window(0, math.nan, math.nan, math.nan, math.nan)
    p50, p99, p999 = (quantile(ordered, share) for share in (0.5, 0.99, 0.999))
    return Window(len(ordered), p50, p99, p999, ordered[-1])


def write(file: Path, arrivals: Iterable[Arrival]) -> None:
    """Keep *arrivals* in a file that appears when it is complete."""
    numbers = array.array("q")
    for arrival in arrivals:
        numbers.extend((arrival.number, arrival.due_ns, arrival.at_ns))
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(numbers.tobytes())
    unfinished.rename(file)


def read(file: Path, *, sent: int, places: int) -> Arrivals:
    """Return what `write` kept."""
    numbers = array.array("q", file.read_bytes())
    found = (Arrival(*numbers[at : at + 3]) for at in range(0, len(numbers), 3))
    return Arrivals(sent, places, tuple(found))
