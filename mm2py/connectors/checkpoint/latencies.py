"""How long checkpoints took lately, group by group."""

from __future__ import annotations

from collections.abc import Collection

from mm2py.clock import Clock
from mm2py.core.windows import Window
from mm2py.model.epoch import MeasuredTime
from mm2py.model.flow import TopicPartition
from mm2py.model.state import TimesView


class CheckpointLatencies:
    """Times from reading a group until its checkpoint was written. It outlives restarts of its connector."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: dict[tuple[str, TopicPartition], Window] = {}

    def note(self, group: str, remote: TopicPartition, took_ms: int) -> None:
        """Record how long a checkpoint took."""
        window = self._windows.setdefault((group, remote), Window())
        took = MeasuredTime(1, took_ms, took_ms, took_ms, took_ms)
        window.note(self._clock.monotonic(), 1, 0, age=None, latency=took)

    def follow(self, groups: Collection[str]) -> None:
        """Forget all groups but these: many programs read under a new name each time they are started."""
        followed = frozenset(groups)
        self._windows = {key: window for key, window in self._windows.items() if key[0] in followed}

    def of(self, group: str, remote: TopicPartition) -> TimesView | None:
        """Return how long the checkpoints of a group took; None if there are none."""
        window = self._windows.get((group, remote))
        return None if window is None else window.read(self._clock.monotonic()).latency
