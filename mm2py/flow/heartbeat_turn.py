"""Which node of a shared flow emits its heartbeats: one, as Java's only task does, so that there are as many."""

from __future__ import annotations

from mm2py.flow.task_group import FlowGroup
from mm2py.model.share import NO_SHARE, Share, SharedFlow


class HeartbeatTurn:
    """
    Has heartbeats emitted while it is this node's turn.

    Two nodes that do so harm nothing, and monitoring relies on heartbeats. So they continue while the flow's group
    cannot be reached, and after all else of the flow has failed on this node; no one waits for their end.
    """

    def __init__(self) -> None:
        self._group: FlowGroup | None = None

    def begin(self, group: FlowGroup | None, *, is_held: bool) -> None:
        """Rule over the *group* that emits heartbeats, None if the flow has none; hold it back until its turn if it
        *is_held*.
        """
        self._group = group
        if is_held:
            self.leave()

    def follow(self, shared: SharedFlow, member_id: str, share: Share) -> None:
        """Emit as the owner by an assignment; if it names none, because all nodes are drained, as its first member."""
        owner = next((it for it in sorted(shared.nodes) if shared.share_of(it).is_owner), min(shared.nodes, default=""))
        if share.is_owner or owner == member_id:
            self.take()
        else:
            self.leave(f"{shared.nodes[owner]} emits heartbeats" if owner else "no node runs it")

    def take(self) -> None:
        """Emit."""
        if self._group is not None:
            self._group.requests.give(Share(is_owner=True))

    def leave(self, why: str = "", hint: str = "") -> None:
        """Leave it to another node: *why*."""
        if self._group is not None:
            self._group.requests.give(NO_SHARE, why, hint)
