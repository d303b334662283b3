"""
Whether a source topic that was created again holds what is at the target: a primary that was rebuilt from its backup.

All of both logs is put beside each other, record by record with their timestamps, because nothing else is known of the
new topic. It is proven where each of the source's records, from its first one on, is found at the target in order, and
the last of these is the target's last record. Then copying goes on after it: nothing before it is missing at the
target, and nothing after it is there. What was written to the new topic before, or between, is not at the target, so
that nothing is proven then.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

import attrs

from mm2py.model.epoch import Runs
from mm2py.pipeline.copy.log_walk import LogWalker, WalkedRecord, records_of
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.wire.batches.batch import LOG_APPEND_TIME


#: So many runs are kept to translate offsets by, in 24 bytes each; of more, the last ones.
_RUNS: Final = 100_000


@attrs.define
class Rebuilding:
    """The comparison of one partition, as far as the last epoch came. The target ends at `target_end`."""

    target_end: int
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

    def meet(self, upstream: int, downstream: int) -> None:
        """Record that both have a record."""
        if len(self.runs) >= _RUNS:
            self.runs = Runs(self.runs[_RUNS // 2 :])
        self.runs.add(upstream, downstream, 1)
        self.met = upstream, downstream
        self.records += 1


async def compare(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> str:
    """Compare both logs, from where *state* came to; return why nothing is proven, empty if it is."""
    if not state.is_there and (why := await _look_for_ends(logs, copy, state)):
        return why
    target = _of_target(logs, copy, state)
    async with aclosing(target), aclosing(logs.walk(copy, state.upstream)) as walk:
        async for batch, _ in walk:
            for record in records_of(batch):
                if record.offset < state.upstream:
                    continue
                if not await _meets(record, target, state):
                    return f"upstream offset {record.offset} of {copy.plan.source} is not in {copy.remote}"
                if state.last is not None and state.met == (record.offset, state.last.offset):
                    return ""
    return f"{copy.remote} at the target holds more than {copy.plan.source}"


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
        first = await _first(logs, copy)
        begins = None if first is None else await logs.target_from(remote, first.timestamp)
        if first is None or begins is None:
            return f"the first record of {source} is not in {remote} at the target"
        state.upstream, state.downstream = first.offset, begins
        state.last = await _last(logs, copy, state.target_end)
    if state.last is None:
        return f"{remote} has no timestamps of its source's to compare at its end"
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


async def _first(logs: LogWalker, copy: PartitionCopy) -> WalkedRecord | None:
    """Return the source's first record."""
    async with aclosing(logs.walk(copy, copy.position)) as walk:
        async for batch, _ in walk:
            for record in records_of(batch):
                if record.offset >= copy.position:
                    return record
    return None


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


async def _of_target(logs: LogWalker, copy: PartitionCopy, state: Rebuilding) -> AsyncGenerator[WalkedRecord, None]:
    """Yield the target's records from where *state* came to."""
    async for _, contents in logs.target_batches(copy, state.downstream, state.target_end - 1):
        for record in contents or ():
            if record.offset >= state.downstream:
                state.downstream = record.offset + 1
                yield record
