"""
What a flow writes at the target beside records, while consumer groups read along at the source: does any of it go back?

The internal topics are created before the flow starts, so that brokers compact nothing of them: all that was ever
written can be read afterwards. Of ``__consumer_offsets`` nothing is compacted before its first segment is full.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import attrs

from mm2py.model.checkpoint import decode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.positions import Position
from mm2py.model.positions_topic import decode_stored
from tests.support.eventually import eventually
from tests.support.groups import committed, groups_of
from tests.support.reading import read_topic
from tests.support.records import Contents
from tests.support.topics import create_topic, ends_of, looking_at


#: The offsets of a remote topic's records, by partition: transactions leave gaps. None: those of the source.
Offsets: TypeAlias = Mapping[int, Sequence[int]] | None
#: A log of values by key, in the order in which they were written.
History: TypeAlias = dict[tuple[object, ...], list[tuple[int, ...]]]
#: Upstream and downstream offset by group and remote partition.
Checkpoints: TypeAlias = dict[tuple[str, TopicPartition], list[tuple[int, ...]]]

_KEEPS_ALL: Final = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
_GROUP_OFFSETS: Final = "__consumer_offsets"
_COMMITS_EVERY_S: Final = 0.5
#: What part of the source's topic each of the groups has read.
_PARTS: Final = {"newest": 1.0, "late": 0.8, "far": 0.3}
#: Versions of keys in `__consumer_offsets` that are offsets; others are the groups themselves.
_OFFSET_KEYS: Final = (0, 1)


@attrs.frozen
class ControlTopics:
    """Checkpoints, group offsets and positions that a flow writes for *topic* of the cluster *alias*."""

    source: str
    target: str
    topic: str
    alias: str
    remote_topic: str

    @property
    def groups(self) -> dict[str, float]:
        return {f"{self.topic}-{name}": part for name, part in _PARTS.items()}

    async def create(self, replication: int) -> None:
        """Create the topics as the flow expects them, so that nothing of them is compacted."""
        for topic, partitions in ((self._checkpoints, 1), (self._positions, 5)):
            await create_topic(self.target, topic, partitions=partitions, replication=replication, configs=_KEEPS_ALL)

    @property
    def _checkpoints(self) -> str:
        return f"{self.alias}.checkpoints.internal"

    @property
    def _positions(self) -> str:
        return f"mm2-offsets.{self.alias}.internal"

    @asynccontextmanager
    async def groups_read_along(self) -> AsyncIterator[None]:
        """Have groups without members at the source commit what they have read, always more than before."""
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._commit_forever())
            try:
                yield
            finally:
                reading.cancel()

    async def _commit_forever(self) -> None:
        async with looking_at(self.source) as cluster, groups_of(self.source, self.alias) as groups:
            while True:
                ends = await ends_of(cluster, self.topic)
                for group, part in self.groups.items():
                    read = {it: CommittedOffset(int(end * part)) for it, end in ends.items()}
                    await groups.commit(group, {TopicPartition(self.topic, it): to for it, to in read.items()})
                await asyncio.sleep(_COMMITS_EVERY_S)

    async def assert_up_to_date(self, offsets: Offsets = None) -> None:
        """
        Check that the groups' offsets arrive at the target: as many records are before them as at the source.

        *offsets* are those of the remote topic's records, which with transactions are others than at the source. What a
        killed node translated last is unknown there, so only a group that has read all is certain to arrive.
        """
        for group, part in self.groups.items():
            wanted = {it.partition: offset for it, offset in (await committed(self.source, group)).items()}

            async def are_there(group: str = group, part: float = part, wanted: dict[int, int] = wanted) -> bool:
                at = {it.partition: offset for it, offset in (await committed(self.target, group)).items()}
                found = {it: _passed(offsets, it, offset) for it, offset in at.items()}
                message = f"{group} is at {found}, at the source at {wanted}"
                if offsets is None or part == 1.0:
                    assert found == wanted, message
                assert found.keys() == wanted.keys(), message
                assert all(found[it] <= wanted[it] for it in wanted), message
                return True

            await eventually(are_there, within_s=120, what=f"the offsets of {group} are at the target", every_s=0.5)

    async def assert_never_back(self, offsets: Offsets = None) -> None:
        """
        Check all that was ever written: no checkpoint, group offset or position has gone back.

        Nor is any checkpoint further than its group. *offsets* are as above.
        """
        checkpoints, found = await self.steps_back()
        assert not found, "; ".join(found)
        far = {
            (group, remote): it
            for (group, remote), values in checkpoints.items()
            for it in values
            if _passed(offsets, remote.partition, it[1]) > it[0]
        }
        assert not far, f"checkpoints point behind what their groups have read: {far}"

    async def steps_back(self) -> tuple[Checkpoints, list[str]]:
        """Return the checkpoints that were ever written, and what of them, of group offsets and positions went back."""
        checkpoints = _checkpoints_in(await read_topic(self.target, self._checkpoints, reads_committed=True))
        commits = _commits_in(await read_topic(self.target, _GROUP_OFFSETS, reads_committed=True), self.groups)
        kept = _positions_in(await read_topic(self.target, self._positions, reads_committed=True))
        found = []
        for what, history in (("checkpoints", checkpoints), ("commits", commits), ("positions", kept)):
            assert history, f"no {what} were written"
            written, back = sum(map(len, history.values())), list(steps_back(history))
            logging.getLogger(__name__).info("%d %s, %d of them went back: %s", written, what, len(back), back[:5])
            assert written > 2 * len(history), f"only {written} {what} of {len(history)} keys"
            if back:
                found.append(f"{len(back)} of {written} {what} went back, the first are {back[:5]}")
        return checkpoints, found


def steps_back(
    history: Mapping[Any, Sequence[tuple[int, ...]]],
) -> Iterator[tuple[tuple[object, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yield each value of a log that is less, in any of its numbers, than the one before it."""
    for key, values in history.items():
        for before, after in itertools.pairwise(values):
            if any(new < old for old, new in zip(before, after, strict=True)):
                yield key, before, after


def _passed(offsets: Offsets, partition: int, offset: int) -> int:
    """Return how many records of a remote partition are before an offset."""
    return offset if offsets is None else bisect_left(offsets[partition], offset)


def _checkpoints_in(contents: Contents) -> Checkpoints:
    found: Checkpoints = defaultdict(list)
    for record in itertools.chain.from_iterable(contents.values()):
        it = decode_checkpoint(record.key, record.value)
        found[it.group, it.remote].append((it.upstream, it.downstream))
    return found


def _positions_in(contents: Contents) -> History:
    found: History = defaultdict(list)
    for record in itertools.chain.from_iterable(contents.values()):
        match decode_stored(record):
            case (str(), Position() as position):
                found[(position.source,)].append((position.next_upstream,))
    return found


def _commits_in(contents: Contents, groups: Iterable[str]) -> History:
    """Return the offsets that were ever committed for *groups*, of ``__consumer_offsets``."""
    found: History = defaultdict(list)
    for record in itertools.chain.from_iterable(contents.values()):
        key = record.key or b""
        (version,) = struct.unpack_from(">h", key)
        if version not in _OFFSET_KEYS:
            continue
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        (partition,) = struct.unpack_from(">i", key, at)
        if group in groups:
            assert record.value is not None, f"the offset of {group} in {topic}-{partition} was removed"
            found[group, topic, partition].append(struct.unpack_from(">q", record.value, 2))
    return found


def _text(raw: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", raw, at)
    begin = at + 2
    return raw[begin : begin + size].decode(), begin + size
