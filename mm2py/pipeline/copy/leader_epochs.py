"""
Whether the source still holds what was copied from it.

After an unclean leader election, or with a log restored from a backup, a source partition may lack records that were
copied, and hold others at their offsets. A reader is not notified: the new leader answers fetches at the old position
as soon as its log has grown past it. But each batch names the leader epoch under which it was written, and a leader
knows where each epoch ends in its log (KIP-101, KIP-320). So before anything is fetched under a leader epoch that is
not the one of the last record read, its leader is asked; if that epoch ends before the position, history has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import attrs

from mm2py.errors import BrokerAnsweredError
from mm2py.model.epoch import Ended, LeaderMark, PartitionFailure
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.refusals import SILENT_S, silent
from mm2py.wire.cluster import Cluster
from mm2py.wire.log_end import EpochEnd, epoch_ends
from mm2py.wire.metadata import UNKNOWN_EPOCH


#: Verified histories, by cluster, topic id, topic and partition: the epoch queried and that of the leader. It stays in
#: the Python worker, so that an idle partition is not queried in each epoch.
Checked = dict[tuple[str, str | None, str, int], tuple[int, int]]

HINT_TRUNCATED = "an unclean leader election, or a restored log; copy.on.source.truncated defines what to do"


@attrs.define(eq=False)
class _Leader:
    """What a leader is asked about, since when, and what it is asked about next."""

    asked: list[PartitionCopy] = attrs.field(factory=list)
    asked_at: float = 0.0
    waiting: list[PartitionCopy] = attrs.field(factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def is_asked(self) -> bool:
        return self.task is not None and not self.task.done()


class HistoryCheck:
    """Asks each of the source's leaders about its partitions, all that are waiting at once."""

    def __init__(
        self,
        source: Cluster,
        checked: Checked,
        *,
        assign: Callable[[PartitionCopy], None],
        retry: Callable[[PartitionCopy, str], None],
    ) -> None:
        """Create a check; *assign* is called for a partition with an intact history, *retry* if that is unknown."""
        self._source = source
        self._checked = checked
        self._assign = assign
        self._retry = retry
        self._leaders: dict[int, _Leader] = {}

    @property
    def is_asking(self) -> bool:
        """Whether a leader has not answered yet."""
        return any(leader.is_asked for leader in self._leaders.values())

    def is_due(self, copy: PartitionCopy) -> bool:
        """Whether *copy* must be checked before it is fetched under its current leader."""
        mark = _mark_of(copy)
        own = self._source.leader_epoch(copy.plan.source)
        if mark is None or own in (UNKNOWN_EPOCH, mark.epoch):
            return False
        return self._checked.get(self._key(copy)) != (mark.epoch, own)

    def ask(self, copy: PartitionCopy, node: int, tasks: asyncio.TaskGroup) -> None:
        """
        Check *copy* at its leader *node*, together with others of the same turn of the event loop.

        Each leader is asked by itself: one that does not answer holds up no partition of the others.
        """
        leader = self._leaders.setdefault(node, _Leader())
        leader.waiting.append(copy)
        if not leader.is_asked:
            leader.task = tasks.create_task(self._ask(leader), name=f"compare the history at broker {node}")

    def give_up(self) -> None:
        """Ask no more, the epoch being over; report a leader that has answered nothing for a while."""
        now = asyncio.get_running_loop().time()
        for node, leader in self._leaders.items():
            if not leader.is_asked or leader.task is None:
                continue
            leader.task.cancel()
            if now - leader.asked_at >= SILENT_S:
                for copy in (*leader.asked, *leader.waiting):
                    copy.retried_failure = copy.retried_failure or silent(node, self._source.alias)

    async def _ask(self, leader: _Leader) -> None:
        while leader.waiting:
            leader.asked, leader.waiting = leader.waiting, []
            leader.asked_at = asyncio.get_running_loop().time()
            marks = {copy: mark for copy in leader.asked if (mark := _mark_of(copy)) is not None}
            asked_of = {copy: self._source.leader_epoch(copy.plan.source) for copy in marks}
            ends = await epoch_ends(self._source, {copy.plan.source: mark.epoch for copy, mark in marks.items()})
            for copy, mark in marks.items():
                self._judge(copy, mark, asked_of[copy], ends.get(copy.plan.source))

    def _judge(
        self, copy: PartitionCopy, mark: LeaderMark, own: int, end: EpochEnd | BrokerAnsweredError | None
    ) -> None:
        source, position = copy.plan.source, copy.fetching.position.offset
        if not isinstance(end, EpochEnd):
            self._retry(copy, str(end or f"the leader of {source} does not say whether it holds what was copied"))
        elif end.end < position:
            where = f"ends at {end.end}" if end.end >= 0 else "is unknown"
            message = (
                f"{source} was copied up to upstream offset {position}, the last of it written under leader epoch "
                f"{mark.epoch}, which {where} at the source now"
            )
            copy.end(Ended.TRUNCATED, PartitionFailure(message, HINT_TRUNCATED, "SourceTruncated", max(0, end.end)))
        else:
            self._checked[self._key(copy)] = (mark.epoch, own)
            self._assign(copy)

    def _key(self, copy: PartitionCopy) -> tuple[str, str | None, str, int]:
        source = copy.plan.source
        return self._source.alias, copy.plan.topic_id, source.topic, source.partition


def _mark_of(copy: PartitionCopy) -> LeaderMark | None:
    """Return the leader epoch of the last record before what is fetched next."""
    return copy.fetching.leader_before(copy.fetching.position.offset)
