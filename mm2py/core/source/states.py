"""The states of very many partitions, of which few need anything but copying: those are found without a look at all."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mm2py.core.source import due
from mm2py.core.source.progress import PartitionState
from mm2py.model.epoch import Ended
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage


def _is_notable(state: PartitionState) -> bool:
    """Whether a position may be due before the interval is over, a check, or a report that the partition is blocked."""
    return (
        not state.is_fenced
        or state.is_questioned
        or state.is_transformed
        or state.stage is not PartitionStage.COPYING
        or state.ended is Ended.INTERRUPTED
        or state.unwritten_bytes >= due.WRITE_AHEAD_BYTES
        or state.log.last_stable == state.position < state.log.high_watermark
    )


class PartitionStates(dict[TopicPartition, PartitionState]):
    """The states by partition. They are set and dropped, and changed in no other way."""

    def __init__(self) -> None:
        super().__init__()
        self._notable: dict[TopicPartition, None] = {}
        #: Those that do not rest: see `PartitionState.is_at_rest`.
        self.moving: dict[TopicPartition, None] = {}
        #: What was set or dropped since each of those who ask for it took it.
        self._changes: list[dict[TopicPartition, None]] = []

    def changes(self) -> dict[TopicPartition, None]:
        """Return where partitions are noted that are set or dropped from now on; who asks for it empties it."""
        self._changes.append(dict.fromkeys(self))
        return self._changes[-1]

    def __setitem__(self, source: TopicPartition, state: PartitionState) -> None:
        super().__setitem__(source, state)
        _keep(self._notable, source, is_kept=_is_notable(state))
        _keep(self.moving, source, is_kept=not state.is_at_rest)
        for changes in self._changes:
            changes[source] = None

    def drop(self, source: TopicPartition) -> PartitionState | None:
        """Forget a partition, and return its state if it was there."""
        self._notable.pop(source, None)
        self.moving.pop(source, None)
        for changes in self._changes:
            changes[source] = None
        return self.pop(source, None)

    @property
    def notable(self) -> Collection[TopicPartition]:
        """
        The partitions that may need more than to be copied.

        Among them are all that are not fenced, in question, transformed, pausing, stopped, interrupted, blocked by an
        open transaction, or far ahead of their written position.
        """
        return self._notable

    def of_notable(self) -> Iterator[PartitionState]:
        """Return the states of these."""
        return map(self.__getitem__, self._notable)


def _keep(some: dict[TopicPartition, None], source: TopicPartition, *, is_kept: bool) -> None:
    """Have *some*, whose order is that in which they came, contain a partition or not."""
    if is_kept:
        some[source] = None
    else:
        some.pop(source, None)
