"""Whether the nodes that share a flow have the same settings of it: those of its owner count."""

from __future__ import annotations

from collections.abc import Mapping

from mm2py.errors import Mm2Error
from mm2py.herder.node_context import NodeContext
from mm2py.model.flow import Flow
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.model.herder.share import SharedFlow
from mm2py.telemetry.events import SettingsDiffer
from mm2py.telemetry.journal import EventLog


_HINT = "give all nodes of the flow the same file"


class SettingsAgreement:
    """Compares this node's settings of a flow with those of its owner, and has this node take the owner's."""

    def __init__(self, flow: Flow, events: EventLog, node: NodeContext) -> None:
        self._flow = flow
        self._events = events
        self._node = node
        self._told = NodeSettings()
        #: What the owner has, where it cannot be used here, and why.
        self._refused: tuple[Mapping[str, str | None], Mm2Error] | None = None
        self._reported: tuple[str, ...] = ()

    def succeed(self, before: SettingsAgreement) -> None:
        """Report no difference again that the flow's former life on this node has reported."""
        self._reported = before._reported

    @property
    def takes_part(self) -> bool:
        """Whether this node can use the owner's settings, as far as it knows them."""
        return self._refused is None

    def told(self) -> NodeSettings:
        """Return this node's settings, which the group's leader is to know."""
        self._told = self._node.settings()
        return self._told

    @property
    def is_outdated(self) -> bool:
        """Whether the group's leader knows former settings of this node."""
        return self._told != self._node.settings()

    async def agree(self, shared: SharedFlow, member_id: str) -> bool:
        """
        Whether this node may work by an assignment now; if not, the flow restarts here with its owner's settings.

        Raise the error if these cannot be used here; the next one to join with does not take part.
        """
        different, keeps_out = shared.differences.get(member_id, ()), shared.conflicts.get(member_id, ())
        if different != self._reported:
            self._reported = different
            if different:
                self._events.emit(SettingsDiffer(self._flow, str(shared.owner or ""), different, keeps_out))
        values = {} if keeps_out else {key: shared.settings[key] for key in different if key in shared.settings}
        if self._refused is not None and self._refused[0] == values:
            return True  # without a share
        try:
            is_in_use = await self._node.follow_owner(values)
        except Mm2Error as error:
            self._refused = values, error
            raise
        self._refused = None
        return is_in_use

    def why_not(self, shared: SharedFlow, member_id: str) -> tuple[str, str]:
        """Return why this node gets no share, and a hint; nothing if it has no such reason."""
        if self._refused is not None:
            return str(self._refused[1]), self._refused[1].hint
        if keys := shared.conflicts.get(member_id, ()):
            return f"this node has other settings than {shared.owner}: {', '.join(keys)}", _HINT
        return "", ""
