"""
Whether a source topic that was created again holds what is at the target: a primary that was rebuilt from its backup.

All of both logs is put beside each other, record by record with their timestamps, because nothing else is known of the
new topic. It is proven where each of the source's records, from its first one on, is found at the target in order, and
the last of these is the target's last record. Then copying goes on after it: nothing before it is missing at the
target, and nothing after it is there. What was written to the new topic before, or between, is not at the target, so
that nothing is proven then.

The target's cleanup may have removed records since. What it would have removed of a whole copy by now is not missing:
the source's first records, up to the target's first one, if all of them are older than the target's `retention.ms`; and
on a compacted target, records of a key that a later record has which is there. A new record among them would not be
there any more either, had it been copied at once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Final

import attrs

from mm2py.model.epoch import Runs
from mm2py.pipeline.copy.log_walk import LogWalker, WalkedRecord, records_of
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.wire.batches.batch import LOG_APPEND_TIME
from mm2py.wire.batches.payloads import split


#: So many runs are kept to translate offsets by, in 24 bytes each; of more, the last ones.
_RUNS: Final = 100_000
#: By a shorter retention, topics are emptied, and records expire that have just been written.
_SHORTEST_MS: Final = 3_600_000
#: Of a compacted target so many different records are kept in memory, in some 200 bytes each.
_COMPACTED_MOST: Final = 1_000_000


@attrs.frozen
class _Cleanup:
    """What the target may have removed: records with an older timestamp, and those that a later one replaces."""

    expired_before: int = 0
    is_compacted: bool = False

    @classmethod
    def of(cls, configs: Mapping[str, str | None], wall_ms: int) -> _Cleanup:
        """Return it by the remote topic's configs; where they may not be read, nothing is known to be removed."""
        policies, kept_ms = (configs.get("cleanup.policy") or "").split(","), int(configs.get("retention.ms") or -1)
        is_expiring = "delete" in policies and kept_ms >= _SHORTEST_MS
        return cls(max(0, wall_ms - kept_ms) if is_expiring else 0, "compact" in policies)


@attrs.define
class Rebuilding:
    """The comparison of one partition, as far as the last epoch came. The target ends at `target_end`."""

    target_end: int
    #: What the target may have removed, and where its log began.
    cleanup: _Cleanup = _Cleanup()
    target_start: int | None = None
    #: The first record at the target, while the source is read from `upstream` on up to it.
    first: WalkedRecord | None = None
    #: The last record at the target, and where the search for it in the source goes on until it is found.
    last: WalkedRecord | None = None
    searched_to: int | None = None
    is_there: bool = False
    #: The next offsets to be compared, once it is there.
    upstream: int = 0
    downstream: int = 0
    records: int = 0
    #: Where the last record that both have is, in both.
    met: tuple[int, int] | None = None
    runs: Runs = attrs.field(factory=Runs)
    #: Of a compacted target: the offsets of records by their digests, as far as they were read, and the first record of
    #: each key that is not there while no later one of the key was found.
    held: dict[int, list[int]] = attrs.field(factory=dict)
    superseded: dict[bytes, int] = attrs.field(factory=dict)
    #: Why nothing is proven, once that is known.
    why: str = ""

    def meet(self, upstream: int, downstream: int) -> None:
        """Record that both have a record."""
        if len(self.runs) >= _RUNS:
            self.runs = Runs(self.runs[_RUNS // 2 :])
        self.runs.add(upstream, downstream, 1)
        self.met = upstream, downstream
        self.records += 1

    def has_met_last(self, record: WalkedRecord) -> bool:
        """Whether a source's *record* is the target's last one."""
        return self.last is not None and self.met == (record.offset, self.last.offset)

    def finds(self, record: WalkedRecord) -> bool:
        """Whether a compacted target has a record of the source after those that were found, or may have removed it."""
        key, known = split(record.payload)[0], -1 if self.met is None else self.met[1]
        at = next((it for it in self.held.get(record.digest(), ()) if it > known), None)
        self.upstream = record.offset + 1
        if at is not None:
            self.meet(record.offset, at)
            if key is not None:
                self.superseded.pop(key, None)
        elif key is not None:
            self.superseded.setdefault(key, record.offset)
        return at is not None or key is not None


async def compare(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> str | None:
    """Compare both logs, from where *state* came to; return why nothing is proven, empty if it is. None if the target
    has removed its first records meanwhile: then that may be why, and both are to be compared again.
    """
    state.why = state.why or await _compare(logs, copy, state)
    return None if state.why and await logs.target_start(copy.remote) != state.target_start else state.why


async def _compare(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> str:
    """Compare both logs as they are."""
    if not state.is_there and (why := await _look_for_ends(logs, copy, state)):
        return why
    if state.cleanup.is_compacted:
        return await _compare_compacted(logs, copy, state)
    target = _of_target(logs, copy, state)
    async with aclosing(target), aclosing(_of_source(logs, copy, state.upstream)) as source:
        async for record in source:
            if not await _meets(record, target, state):
                return _absent(copy, state, record.offset)
            if state.has_met_last(record):
                return ""
    return f"{copy.remote} at the target holds more than {copy.plan.source}"


async def _compare_compacted(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> str:
    """Compare both logs as `_compare` does. Of a compacted target, records that others replace may be missing."""
    async with aclosing(_of_target(logs, copy, state)) as target:
        async for held in target:
            if len(state.held) >= _COMPACTED_MOST:
                return f"{copy.remote} is compacted, and has too many records to find out what that removed"
            state.held.setdefault(held.digest(), []).append(held.offset)
    async with aclosing(_of_source(logs, copy, state.upstream)) as source:
        async for record in source:
            if not state.finds(record):
                return _absent(copy, state, record.offset)
            if len(state.superseded) > len(state.held):
                return f"{copy.plan.source} has records of more keys than {copy.remote} has records"
            if state.has_met_last(record):
                first = min(state.superseded.values(), default=None)
                return "" if first is None else _absent(copy, state, first)
    return f"{copy.remote} at the target holds more than {copy.plan.source}"


def _absent(copy: PartitionCopy, state: Rebuilding, offset: int) -> str:
    """Say that the target does not have a record, and what of that cannot be told."""
    more = ""
    if state.cleanup.is_compacted:
        more = ", nor is a later record of its key"
    elif state.target_start and state.met is None:
        more = f", which begins at offset {state.target_start}: whether it had what was removed there is not known"
    return f"upstream offset {offset} of {copy.plan.source} is not in {copy.remote}{more}"


async def _meets(record: WalkedRecord, target: AsyncIterator[WalkedRecord], state: Rebuilding) -> bool:
    """Whether the *target* has a record of the source, after those that are compared already."""
    async for held in target:
        if record.matches(held):
            state.meet(record.offset, held.offset)
            state.upstream = record.offset + 1
            return True
    return False


async def _look_for_ends(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> str:
    """
    Look for each log's end in the other one; return what is missing.

    Timestamps tell at once that a new topic has nothing of the former one, or not all of it yet.
    """
    source, remote = copy.plan.source, copy.remote
    nowhere = f"the last record of {remote} at the target is not in {source}"
    if state.last is None:
        if why := await _begin(logs, copy, state):
            return why
        state.last = await _last(logs, copy, state.target_end)
    if state.last is None:
        return f"{remote} has LogAppendTime, or no record near its end: there are no timestamps of its source's"
    if state.searched_to is None:
        _, state.searched_to = await logs.search_bounds(source, state.last.timestamp)
    if state.searched_to is None:
        return nowhere
    async with aclosing(logs.walk(copy, state.searched_to)) as walk:
        async for batch, after in walk:
            if any(record.matches(state.last) for record in records_of(batch)):
                state.is_there = True
                return ""
            state.searched_to = after
    return nowhere


async def _begin(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> str:
    """Find out where both logs begin that are compared; return why nothing can be."""
    source, remote = copy.plan.source, copy.remote
    configs, wall_ms = await logs.target_cleanup(remote.topic)
    state.cleanup = _Cleanup.of(configs, wall_ms)
    if state.target_start is None:
        state.target_start = await logs.target_start(remote)
    if await _begins_later(logs, copy, state):
        return ""
    async with aclosing(logs.walk(copy, copy.position)) as walk:
        async for batch, _ in walk:
            for first in (record for record in records_of(batch) if record.offset >= copy.position):
                if batch.attributes & LOG_APPEND_TIME:
                    return f"{source} has LogAppendTime: the timestamps of its records are not those at the target"
                begins = await logs.target_from(remote, first.timestamp)
                if state.cleanup.is_compacted:
                    begins = state.target_start
                if begins is None:
                    return _absent(copy, state, first.offset)
                state.upstream, state.downstream = first.offset, begins
                return ""
    return f"{source} has no record"


async def _begins_later(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> bool:
    """Whether all of the source that is before the target's first record is older than what the target keeps."""
    if not state.target_start or not state.cleanup.expired_before:
        return False
    if state.first is None:
        state.upstream, state.downstream = copy.position, state.target_start
        async with aclosing(_of_target(logs, copy, state)) as target:
            state.first = await anext(target, None)
    if state.first is None:
        return False
    async with aclosing(_of_source(logs, copy, state.upstream)) as source:
        async for record in source:
            if record.matches(state.first):
                state.upstream, state.downstream = record.offset, state.first.offset
                return True
            if not 0 <= record.timestamp < state.cleanup.expired_before:
                return False
            state.upstream = record.offset + 1
    return False


async def _last(logs: LogWalker, copy: PartitionCopy, end: int) -> WalkedRecord | None:
    """Return the target's last record; None if it is not near its end, or was stamped by the target."""
    for count in (1, 100, 10_000):
        found = None
        async for batch, contents in logs.target_batches(copy, max(0, end - count), end - 1):
            if contents:
                found = None if batch.attributes & LOG_APPEND_TIME else contents[-1]
        if found is not None:
            return found
    return None


async def _of_source(logs: LogWalker, copy: PartitionCopy, start: int) -> AsyncGenerator[WalkedRecord, None]:
    """Yield the source's records from *start* on."""
    async with aclosing(logs.walk(copy, start)) as walk:
        async for batch, _ in walk:
            for record in records_of(batch):
                if record.offset >= start:
                    yield record


async def _of_target(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> AsyncGenerator[WalkedRecord, None]:
    """Yield the target's records from where *state* came to."""
    async for _, contents in logs.target_batches(copy, state.downstream, state.target_end - 1):
        for record in contents or ():
            if record.offset >= state.downstream:
                state.downstream = record.offset + 1
                yield record
