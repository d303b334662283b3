"""
Where an offset of one topic-partition is on the other side, by all that is known of it.

Runs come first. Offset syncs count where runs say nothing: in what a Java MirrorMaker copied, before the first run, and
past the last one. The flow asks what it learns while it copies, the library what it has read of a flow's topics; both
answer by these rules.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from mm2py.core.offsets.sync_store import SyncSlots
from mm2py.core.offsets.translation import RunIndex, Translated, Translation, Untranslated, put_together
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk
from mm2py.model.topic import is_other_topic


@attrs.define(eq=False)
class KnownOffsets:
    """
    What is known of one source partition; None where no index could be begun, or no sync was read.

    Where the index *is_whole*, nothing was copied past its end, and a sync that leads beyond is of another life of the
    target.
    """

    index: RunIndex | None = None
    syncs: SyncSlots | None = None
    #: Of which topic at the target the syncs say that they are.
    synced_topic_id: str | None = None

    def learn(self, sync: OffsetSync) -> None:
        """Take an offset sync, in the order of the log. Of a remote topic that was created again all are new."""
        if self.syncs is None or is_other_topic(self.synced_topic_id, sync.remote_topic_id):
            self.syncs = SyncSlots(sync)
        else:
            self.syncs.add(sync)
        self.synced_topic_id = sync.remote_topic_id or self.synced_topic_id

    def downstream(
        self, upstream: int, otherwise: Untranslated = Untranslated.NOT_MIRRORED, *, is_whole: bool = False
    ) -> Translation:
        """Translate an offset of the source; *otherwise* is the answer where nothing is known."""
        index, syncs = self.index, self.syncs
        answer = otherwise if index is None else index.downstream(upstream)
        if syncs is None or (index is not None and upstream <= index.covered_to and not index.is_unknown(upstream)):
            return answer
        return _nearer(answer, syncs.downstream(upstream), index.end if index is not None and is_whole else None)

    def upstream(
        self, downstream: int, otherwise: Untranslated = Untranslated.NOT_MIRRORED, *, is_whole: bool = False
    ) -> Translation:
        """Translate an offset of the target."""
        index, syncs = self.index, self.syncs
        answer = otherwise if index is None else index.upstream(downstream)
        if syncs is None or (
            index is not None and downstream <= index.end and not index.is_unknown_at_target(downstream)
        ):
            return answer
        return _nearer(answer, syncs.upstream(downstream), index.covered_to if index is not None and is_whole else None)


def stored_index(kept: Iterable[KeptChunk], position: Position) -> RunIndex | None:
    """
    Make the index of a partition of what was *kept* of it and of its *position*; None where there is nothing to tell.

    What was kept of another topic of the name is of no use, nor what was kept before the target lost records, even if
    they are copied again by now; and what an operator has set a position back before, only up to there. Java's position
    leaves the index as it is: what Java copied lies behind its end.
    """
    index = put_together(one for one in kept if not is_other_topic(one.topic_id, position.topic_id))
    if index is not None:
        index.first_changed = None
    if position.downstream is None:
        return index
    end = position.downstream + 1
    if index is None or is_void(index, position):
        return RunIndex(position.next_upstream, end, is_origin=position.downstream < 0)
    follow_back(index, position)
    index.take(position.next_upstream, (), position.next_upstream, end)
    return index


def follow_back(index: RunIndex, position: Position) -> None:
    """Forget where records went that are copied once more by a *position* that was set back: to groups, where they come
    last would be the place now, and where they came first again after a restart.
    """
    if position.downstream is not None and index.is_set_back(position.next_upstream, position.downstream + 1):
        index.go_back(position.next_upstream, position.downstream + 1)


def is_void(known: RunIndex | SyncSlots, position: Position) -> bool:
    """Whether the target has lost records that are *known*: by *position*, it ends before them."""
    return position.downstream is not None and known.end_before(position.next_upstream) > position.downstream + 1


def _nearer(ours: Translation, by_syncs: Translation, limit: int | None) -> Translation:
    """Return the one that says more: neither is ever ahead, so the greater is nearer."""
    if not isinstance(by_syncs, Translated):
        return by_syncs if ours in (Untranslated.NOT_MIRRORED, Untranslated.NO_SYNC) else ours
    if limit is not None and by_syncs.offset > limit:
        by_syncs = attrs.evolve(by_syncs, offset=limit)
    return ours if isinstance(ours, Translated) and ours.offset >= by_syncs.offset else by_syncs
