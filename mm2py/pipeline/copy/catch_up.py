"""
The pace of partitions that are far behind, inside a Python worker: what `core.pace` decides, applied and measured.

It outlives epochs, so that a new one does not begin from scratch. A broker gives a batch that is larger than what was
asked for only of the first partition of an answer, of others nothing. So what the pace allows is not divided among all
that is behind: some partitions have their turn, with slices that batches fit into, and the others are not in the fetch
session until then, so that the broker reads nothing of them. Those that have little left go first: after a pause they
are the live ones, and their new records would wait until all of a backlog has had its turn.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import attrs

from mm2py.core.pace import Answer, Interval, Pace
from mm2py.core.rates import refilled
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.partition import PartitionCopy


#: How often the pace is adapted.
_INTERVAL_S: Final = 0.25
#: The slices of one round of fetches are the amount for this time, so that the target gets it evenly.
SLICE_S: Final = 0.02
_SHORTEST_WAIT_S: Final = 0.001
#: A smaller slice may be less than a batch.
_LEAST_SLICE_BYTES: Final = 64 * 1024
#: How many partitions have their turn at most, and how long: until so much has come, or for so long.
_MOST_TURNS: Final = 16
_TURN_BYTES: Final = 256 * 1024
_TURN_S: Final = 1.0
#: Of the pace: if a round of fetches brings less, the next ones bring more; if it brings more, less is enough.
_LITTLE_USED: Final = 0.6
_WELL_USED: Final = 0.8
#: How many are considered for a turn at once.
_CONSIDERED: Final = 64
#: How long what is not far behind goes first, lest a limit or a broker that is away lets it keep the turns of others.
_FIRST_FOR_S: Final = 10.0
#: What was not watched for so long may be behind by now.
_KNOWN_FOR_S: Final = 5.0


@attrs.define
class _Turn:
    """When a partition's turn began, and what it has brought."""

    began: float
    size_bytes: int = 0


class CatchUp:
    """The pace towards one target, of one copy task. Times are the event loop's."""

    def __init__(self, more_ms: float) -> None:
        """Let answers of the target take *more_ms* longer than those it gives when there is little to do."""
        self.more_ms = more_ms
        self.pace = Pace()
        #: The partitions that are behind, in the order of their turns, and those that are known not to be.
        self.behind: dict[PartitionCopy, None] = {}
        self.live: set[PartitionCopy] = set()
        #: Those of `behind` that go first, because they are not far behind, and since when they are behind.
        self._first: dict[PartitionCopy, float] = {}
        #: How long any of the epoch's partitions was held back.
        self.held_s = 0.0
        self._turns: dict[PartitionCopy, _Turn] = {}
        self._unknown = 0
        #: How many turns there are while a round of fetches takes longer than it brings.
        self._width = 1
        self._loop = asyncio.get_running_loop()
        self._began = self._refilled_at = self._watched_at = self._loop.time()
        self._level = 0.0
        self._answers: list[Answer] = []
        self._used_bytes = 0
        #: What was buffered when the interval began, and all the time since.
        self._buffered_bytes, self._queued_bytes = 0, math.inf
        #: What was allowed and not fetched.
        self._unused_bytes = 0.0
        self._was_held = False

    def begin(self, copies: Collection[PartitionCopy]) -> None:
        """Begin an epoch with *copies*. What is known of their partitions still holds, if it is not old."""
        now = self._loop.time()
        if now - self._watched_at > _KNOWN_FOR_S:
            self.behind, self.live, self._first = {}, set(), {}
        here = set(copies)
        others = {copy.plan.source: copy for copy in here if self.is_unknown(copy)}
        self.behind = {copy: None for _, copy in _again(self.behind, here, others)}
        self.live = {copy for _, copy in _again(self.live, here, others)}
        self._first = {copy: self._first[before] for before, copy in _again(self._first, here, others)}
        self._unknown = len(copies) - len(self.behind) - len(self.live)
        self._turns, self.held_s, self._buffered_bytes = {}, 0.0, 0
        self._start_interval(now)

    def end(self) -> None:
        """End the epoch."""
        self._watched_at = self._loop.time()

    def _start_interval(self, now: float) -> None:
        self._began, self._answers, self._used_bytes, self._was_held = now, [], 0, False
        self._unused_bytes, self._queued_bytes = 0.0, math.inf

    def answered(self, took_s: float, served_s: float, buffered_bytes: int) -> None:
        """
        Note how long the target took to answer a request, *served_s* of it since its answer to the one before, and how
        much is not answered yet.
        """
        self._answers.append(Answer(took_s * 1000, served_s * 1000))
        self._queued_bytes = min(self._queued_bytes, buffered_bytes)
        now = self._loop.time()
        passed_s = now - self._began
        if passed_s < _INTERVAL_S:
            return
        self.held_s += passed_s if self._was_held else 0.0
        seen = Interval(
            self._answers,
            self._used_bytes / passed_s,
            (self._used_bytes + self._buffered_bytes - buffered_bytes) / passed_s,
            self._queued_bytes,
            self._was_held,
        )
        self.pace = self.pace.after(seen, more_ms=self.more_ms, now=now)
        self._refill()
        self._widen(1 - self._unused_bytes / (self.pace.bytes_per_s * passed_s))
        self._buffered_bytes = buffered_bytes
        self._start_interval(now)

    def _widen(self, used: float) -> None:
        """Let a round of fetches bring more if too little of the pace is *used*: its brokers may be far away."""
        if used < _LITTLE_USED and len(self.behind) > len(self._turns):
            self._width = min(_MOST_TURNS, self._width * 2)
        elif used > _WELL_USED:
            self._width = max(1, self._width - 1)

    def note(self, copy: PartitionCopy, records: int, size_bytes: int) -> None:
        """
        Count what a fetch brought of *copy*, and see whether as much is left: then it is behind.

        `FarBehind` has noted before whether it is far behind.
        """
        fetching = copy.fetching
        end = fetching.last_stable_offset if fetching.last_stable_offset >= 0 else fetching.high_watermark
        left = end - fetching.position.offset
        if self.is_unknown(copy):
            self._unknown -= 1
        if left <= (0 if copy in self.behind else records):
            self.behind.pop(copy, None)
            self._turns.pop(copy, None)
            self._first.pop(copy, None)
            self.live.add(copy)
            return
        if copy not in self.behind:
            self.behind[copy] = None
            if not fetching.is_behind:
                self._first[copy] = self._loop.time()
        if copy in self.live:
            # It has just fallen behind, and may have little to catch up with.
            self.live.remove(copy)
            self._give_turns([copy], _MOST_TURNS, self._loop.time())
        self._used_bytes += size_bytes
        self._level = self._refill() - size_bytes
        if copy in self._turns:
            self._turns[copy].size_bytes += size_bytes

    def is_unknown(self, copy: PartitionCopy) -> bool:
        """Whether no fetch has shown yet whether *copy* is behind."""
        return copy not in self.live and copy not in self.behind

    def hold_s(self) -> float:
        """Return how long nothing of what is behind may be fetched."""
        level = self._refill()
        if level >= 0:
            return 0.0
        self._was_held = True
        return max(_SHORTEST_WAIT_S, -level / self.pace.bytes_per_s)

    def _refill(self) -> float:
        now = self._loop.time()
        level = refilled(self._level, self.pace.bytes_per_s, now - self._refilled_at)
        # No burst: what was not used is not made up for.
        self._unused_bytes += max(0.0, level)
        self._level = min(0.0, level)
        self._refilled_at = now
        return self._level

    # Turns.

    def waits(self, copy: PartitionCopy) -> bool:
        """Whether *copy* is behind, and others have their turn."""
        return copy in self.behind and copy not in self._turns

    def held(self) -> Collection[PartitionCopy]:
        """Return those that are behind of which nothing may be fetched now."""
        turns = self.turns()
        return self.behind.keys() if self.hold_s() else self.behind.keys() - turns

    def turns(self) -> Collection[PartitionCopy]:
        """Return the partitions that have their turn now."""
        if self.hold_s():
            return self._turns.keys()
        now = self._loop.time()
        for copy, turn in list(self._turns.items()):
            is_over = turn.size_bytes >= _TURN_BYTES or now - turn.began >= _TURN_S
            if is_over or not _can_be_fetched(copy):
                self._end_turn(copy)
        most = min(_MOST_TURNS, max(self._width, int(self._round_bytes / _LEAST_SLICE_BYTES)))
        if len(self._turns) < min(most, len(self.behind)):
            self._give_turns([*islice(self._first, _CONSIDERED), *islice(self.behind, _CONSIDERED)], most, now)
        return self._turns.keys()

    def _give_turns(self, candidates: Iterable[PartitionCopy], most: int, now: float) -> None:
        for copy in candidates:
            if copy in self._turns:
                continue
            if len(self._turns) >= most:
                return
            if _can_be_fetched(copy):
                self._turns[copy] = _Turn(now)
            else:
                self._end_turn(copy)

    def _end_turn(self, copy: PartitionCopy) -> None:
        """Let all others that are behind have their turn first, or all others that go first."""
        self._turns.pop(copy, None)
        del self.behind[copy]
        self.behind[copy] = None
        since = self._first.pop(copy, -math.inf)
        if self._loop.time() - since < _FIRST_FOR_S:
            self._first[copy] = since

    @property
    def _round_bytes(self) -> float:
        return self.pace.bytes_per_s * SLICE_S

    def slice_bytes(self, copy: PartitionCopy) -> float | None:
        """Return what a fetch may request of *copy*; None if it is known not to be behind."""
        if copy in self.live:
            return None
        if copy in self.behind:
            return max(_LEAST_SLICE_BYTES, self._round_bytes / max(1, len(self._turns)))
        # All that are unknown are in the same fetches, which find out. Most have little to bring.
        return self._round_bytes / max(1, self._unknown)


def _again(
    before: Iterable[PartitionCopy], here: Collection[PartitionCopy], others: Mapping[TopicPartition, PartitionCopy]
) -> Iterator[tuple[PartitionCopy, PartitionCopy]]:
    """Return those of *before* that are *here*, with themselves or with *others* that were made of their partitions."""
    for copy in before:
        again = copy if copy in here else others.get(copy.plan.source)
        if again is not None:
            yield copy, again


def _can_be_fetched(copy: PartitionCopy) -> bool:
    return copy.fetching.node is not None and not copy.has_ended
