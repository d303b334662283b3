"""
Who may write what only a flow's owner writes: its checkpoints.

They are written under a transactional id, which the owner opens before it reads them. So when another node becomes the
owner, what it reads is final: brokers refuse the writes of a node that was replaced and does not know it yet. The id is
that of the leader in Java MirrorMaker's exactly-once mode, which is kept out in the same way.

Overrides are written by any node. Their revisions keep two writers apart (`OverrideStore`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.telemetry.events import ControlWritesUnguarded, FlowFenced
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fenced_writer import FencedWriter
from mm2py.wire.security.access import NotAuthorizedError


#: Errors that a retry does not fix, or not soon: the flow writes without transactions.
_HOPELESS: Final = (
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_THEN: Final = "writes no more checkpoints, and asks again who owns the flow"
_HINTS: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "check that __transaction_state of that cluster has its partitions online; it "
    "cannot be created with fewer brokers than transaction.state.log.replication.factor",
    ErrorCode.CONCURRENT_TRANSACTIONS: "a transaction under that id does not end: kafka-transactions.sh describe shows "
    "it, and a restart of the broker that coordinates it ends it",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "raise the brokers' transaction.max.timeout.ms to 1000 or more",
}


def owner_id(settings: FlowSettings) -> str:
    """Return the transactional id of the flow's owner; Java's leader uses it."""
    return f"connect-cluster-{settings.group_id}"


class ControlWriters:
    """The writer of a flow's owner, on this node."""

    def __init__(self, settings: FlowSettings, events: EventLog, hint_for: Callable[[Mm2Error], str]) -> None:
        #: Called when another node has opened the id, once until this node opens it again.
        self.on_fenced: Callable[[], None] = lambda: None
        #: Whether it is opened. Nodes that copy side by side would take it from each other without end.
        self.is_guarding = settings.membership.refuses
        self._settings = settings
        self._events = events
        self._hint_for = hint_for
        self._unguarded = ""

    async def for_owner(self, target: Cluster) -> FencedWriter:
        """Return a new writer for what only the owner writes, which keeps all former ones from writing."""
        transactional_id = owner_id(self._settings)
        writer = FencedWriter(transactional_id, self._fenced)
        if not self.is_guarding:
            return writer
        try:
            await writer.open(target)
        except BrokerAnsweredError as error:
            if not isinstance(error, NotAuthorizedError) and error.code not in _HOPELESS:
                raise
            self._tell_unguarded(transactional_id, error)
        else:
            self._unguarded = ""
        return writer

    def _fenced(self, transactional_id: str) -> None:
        self._events.emit(FlowFenced(self._settings.flow, transactional_id, _THEN))
        self.on_fenced()

    def _tell_unguarded(self, transactional_id: str, error: BrokerAnsweredError) -> None:
        if self._unguarded != str(error):
            self._unguarded = str(error)
            hint = _HINTS.get(ErrorCode(error.code)) or self._hint_for(error)
            self._events.emit(ControlWritesUnguarded(self._settings.flow, transactional_id, str(error), hint))
