"""Groups that read, at the source, topics that came from the target: where they moved by themselves; see `is_own_move`.

Only such an offset is written back to the target, and only until the target has it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mm2py.core.checkpoint.checkpoints import is_own_move
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.wire.groups.consumer_groups import Groups, Offsets


#: A group, and a topic-partition by its name at the source: its name at the target may not be known all the time.
GroupPartition = tuple[str, TopicPartition]


class OwnMoves:
    """
    The own moves that the target does not have yet.

    A group that cannot be described, or whose offsets cannot be read, is judged by the next round that can, by what was
    known of it before.
    """

    def __init__(self, source: Groups) -> None:
        self._source = source
        self._moved: dict[GroupPartition, int] = {}
        self._offsets: dict[GroupPartition, int] = {}
        #: Whether each group had members in this round, and when it was last described before.
        self._is_active: dict[str, bool] = {}
        self._was_active: dict[str, bool] = {}

    def __contains__(self, key: GroupPartition) -> bool:
        return key in self._moved

    async def describe(self) -> None:
        """Describe the known groups. This comes before their offsets are read: a group that commits and leaves in
        between had members.
        """
        self._is_active = await self._described({group for group, _ in self._offsets})

    async def take(
        self, offsets: Mapping[GroupPartition, int], committed_by: Mapping[str, Offsets | BrokerAnsweredError]
    ) -> None:
        """Judge the *offsets* of a round. What is no longer in *committed_by* is forgotten."""
        self._is_active |= await self._described({group for group, _ in offsets} - self._is_active.keys())
        for key, offset in offsets.items():
            is_active = self._is_active.get(key[0])
            if is_active is None:
                continue
            was_active = self._was_active.get(key[0], False)
            is_own = is_own_move(offset, self._offsets.get(key), is_active=is_active, was_active=was_active)
            if is_own or key in self._moved:
                self._moved[key] = offset
            self._offsets[key] = offset
        for group, source in tuple(self._offsets):
            committed = committed_by.get(group, {})
            if not isinstance(committed, BrokerAnsweredError) and source not in committed:
                del self._offsets[group, source]
                self._moved.pop((group, source), None)
        known = {group for group, _ in self._offsets}
        active = self._was_active | self._is_active
        self._was_active = {group: was_active for group, was_active in active.items() if group in known}

    def settle(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Forget the moves of *group* to *offsets*, which the target has; it may have read on since."""
        for source, offset in offsets.items():
            if self._moved.get((group, source)) == offset:
                del self._moved[group, source]

    async def _described(self, groups: Collection[str]) -> dict[str, bool]:
        answers = (await self._source.describe(groups)).items() if groups else ()
        return {group: not answer.is_idle for group, answer in answers if not isinstance(answer, BrokerAnsweredError)}
