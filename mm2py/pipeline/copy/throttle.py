"""
Rate limits inside an epoch: when, and how much, may be fetched.

Fetching is limited, by its results: records that may not be copied yet stay at the source. Each limit is a
bucket of tokens. A fetch goes out when no bucket that it falls under is in debt, and asks for about what the bucket
holds; as a broker gives at least one whole batch (KIP-74), and batches are not cut, it may bring more, which is a debt
then. So rates hold on average however small they are, and a stream below its limit never waits.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

import attrs

from mm2py.core.rates import refilled
from mm2py.model.flow import TopicPartition
from mm2py.model.rates import RateShare, RateUse, Unit
from mm2py.pipeline.copy.catch_up import SLICE_S, CatchUp
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.wire.fetch_forms import FetchSizes


#: A fetch under a limit requests the amount for this time: so the rate is even, and few fetches are needed.
_RATE_SLICE_S: Final = 0.1
#: Until it was seen how large records are.
_RECORD_BYTES: Final = 100.0
#: Timers are not exact.
_SHORTEST_WAIT_S: Final = 0.001
#: base offset, length; what a batch takes beside its length
_LENGTH: Final = struct.Struct(">8xi")


class Bucket:
    """One limit being counted down; times are the event loop's."""

    def __init__(self, share: RateShare, now: float) -> None:
        self.of = share.of
        self.per_s = share.per_s
        self._level = share.level
        self._at = now
        self._used = 0.0
        self._waited_s = 0.0
        self._held_since: float | None = None

    def level(self, now: float) -> float:
        """Return how much may be taken, or, below zero, how much is owed."""
        if self._held_since is not None and self._level + self.per_s * (now - self._at) >= 0:
            self._waited_s += max(0.0, self._at - self._level / self.per_s - self._held_since)
            self._held_since = None
        self._level, self._at = refilled(self._level, self.per_s, now - self._at), now
        return self._level

    def take(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount
        self._used += amount

    def hold(self, now: float) -> float:
        """Return how long a fetch has to wait, and record the wait; 0 if there is no debt."""
        level = self.level(now)
        if level >= 0:
            return 0.0
        if self._held_since is None:
            self._held_since = now
        return max(_SHORTEST_WAIT_S, -level / self.per_s)

    def use(self, now: float) -> RateUse:
        """Return what was made of it in this epoch."""
        level = self.level(now)
        waiting_s = 0.0 if self._held_since is None else now - self._held_since
        return RateUse(self.of, self._used, level, self._waited_s + waiting_s)


class Throttle:
    """All limits of an epoch."""

    def __init__(
        self,
        shares: Iterable[RateShare],
        copies: Collection[PartitionCopy],
        cut: dict[TopicPartition, int] | None = None,
        catch_up: CatchUp | None = None,
    ) -> None:
        """Make one for an epoch; *cut* is what the last one in this worker knew of batches that did not fit."""
        self._catch_up = catch_up
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        buckets = [Bucket(share, now) for share in shares]
        self._flow = [bucket for bucket in buckets if not bucket.of.topic]
        self._topics: dict[str, list[Bucket]] = {}
        for bucket in buckets:
            if bucket.of.topic:
                self._topics.setdefault(bucket.of.topic, []).append(bucket)
        self._partitions = Counter(copy.plan.source.topic for copy in copies) if self._topics else Counter[str]()
        self._record_bytes = _RECORD_BYTES
        #: The largest batch that did not fit into an answer.
        self._widest_bytes = 0
        #: How large a partition's next batch is that did not fit; whatever limits it, it must get that one whole.
        self._cut = cut if cut is not None else {}
        self._is_over = asyncio.Event()

    @property
    def is_limiting(self) -> bool:
        return bool(self._flow or self._topics or self._catch_up)

    def stop(self) -> None:
        """End all waits: the epoch is over."""
        self._is_over.set()
        if self._catch_up is not None:
            self._catch_up.end()

    # Waiting.

    async def pause(self, seconds: float, deadline: float) -> None:
        """Wait, but not beyond the epoch's end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(seconds, deadline - self._loop.time()))):
                await self._is_over.wait()

    async def turn(self, deadline: float) -> None:
        """Wait until the flow's own limit allows a fetch."""
        while self._flow and not self._is_over.is_set() and (now := self._loop.time()) < deadline:
            pause_s = max(bucket.hold(now) for bucket in self._flow)
            if not pause_s:
                return
            await self.pause(pause_s, deadline)

    def hold_s(self, copy: PartitionCopy) -> float:
        """Return how long *copy* may not be fetched, because of its topic's limit or because it is behind."""
        return max(self._topic_hold_s(copy.plan.source.topic), self._behind_hold_s(copy))

    def _behind_hold_s(self, copy: PartitionCopy) -> float:
        catch_up = self._catch_up
        if catch_up is None or copy not in catch_up.behind:
            return 0.0
        return max(SLICE_S if catch_up.waits(copy) else 0.0, catch_up.hold_s())

    def _topic_hold_s(self, topic: str) -> float:
        buckets = self._topics.get(topic)
        if not buckets:
            return 0.0
        now = self._loop.time()
        return max(bucket.hold(now) for bucket in buckets)

    def held(self, copies: Iterable[PartitionCopy]) -> list[PartitionCopy]:
        """Return those of *copies* of which nothing may be fetched now."""
        topics = {topic for topic in self._topics if self._topic_hold_s(topic)}
        behind = self._catch_up.held() if self._catch_up is not None and self._catch_up.behind else ()
        if not topics and not behind:
            return []
        return [copy for copy in copies if copy in behind or copy.plan.source.topic in topics]

    def release_s(self, copies: Iterable[PartitionCopy]) -> float:
        """Return when the first of *copies* may be fetched again."""
        return min(map(self.hold_s, copies), default=0.0)

    # Turns of what is behind.

    def waits_for_turn(self, copy: PartitionCopy) -> bool:
        """Whether *copy* is behind, and others have their turn."""
        return self._catch_up is not None and self._catch_up.waits(copy)

    def turns(self) -> Collection[PartitionCopy]:
        """Return the partitions that are behind and have their turn now."""
        return self._catch_up.turns() if self._catch_up is not None and self._catch_up.behind else ()

    def learns(self, copy: PartitionCopy) -> bool:
        """Whether an answer without records has shown if *copy*, of which that was unknown, is behind."""
        if self._catch_up is None or not self._catch_up.is_unknown(copy):
            return False
        self._catch_up.note(copy, 0, 0)
        return True

    # How much.

    def sizes(self, sizes: FetchSizes, fetchers: int) -> FetchSizes:
        """Return the size of a fetch when this many fetchers share the flow's limit."""
        if not self._flow:
            return sizes
        room = min(self._slice_bytes(bucket) for bucket in self._flow) / max(1, fetchers)
        return attrs.evolve(sizes, max_bytes=min(sizes.max_bytes, int(room) + self._widest_bytes + 1))

    def partition_bytes(self, copy: PartitionCopy, most: int) -> int | None:
        """Return what a fetch may bring of *copy*; None where nothing limits it but the flow's own limit."""
        if not (self._cut or self._topics or self._catch_up):
            return None
        cut, topic = self._cut.get(copy.plan.source), copy.plan.source.topic
        buckets = self._topics.get(topic)
        if cut is not None and self.is_limiting:
            return cut
        rooms = [self._slice_bytes(bucket) / self._partitions[topic] for bucket in buckets or ()]
        if self._catch_up is not None and (part := self._catch_up.slice_bytes(copy)) is not None:
            rooms.append(part)
        return max(_LENGTH.size, min(most, int(min(rooms)))) if rooms else None

    def _slice_bytes(self, bucket: Bucket) -> float:
        amount = max(bucket.level(self._loop.time()), bucket.per_s * _RATE_SLICE_S)
        return amount if bucket.of.unit is Unit.BYTES else amount * self._record_bytes

    def charge(self, copy: PartitionCopy, record_set: memoryview, records: int) -> None:
        """Count what an answer brought of *copy*: whole batches, as the source has them."""
        taken, cut = _measured(record_set)
        self._widest_bytes = max(self._widest_bytes, cut)
        if not taken:
            self._cut[copy.plan.source] = max(cut, _LENGTH.size)
            return
        self._cut.pop(copy.plan.source, None)
        if records:
            self._record_bytes += (taken / records - self._record_bytes) / 2
        if self._catch_up is not None:
            self._catch_up.note(copy, records, taken)
        now = self._loop.time()
        for bucket in (*self._flow, *self._topics.get(copy.plan.source.topic, ())):
            bucket.take(taken if bucket.of.unit is Unit.BYTES else records, now)

    @property
    def paced_ms(self) -> int:
        """How long partitions that are behind were held back."""
        return int(self._catch_up.held_s * 1000) if self._catch_up is not None else 0

    def uses(self) -> tuple[RateUse, ...]:
        """Return what was made of each limit."""
        now = self._loop.time()
        return tuple(bucket.use(now) for bucket in (*self._flow, *(b for some in self._topics.values() for b in some)))


def _measured(record_set: memoryview) -> tuple[int, int]:
    """Return the size of all whole batches in *record_set*, and that of one that is cut off at its end."""
    at, size = 0, len(record_set)
    while at + _LENGTH.size <= size:
        (length,) = _LENGTH.unpack_from(record_set, at)
        after = at + length + _LENGTH.size
        if length < 0 or after > size:
            return at, max(0, after - at)
        at = after
    return at, 0
