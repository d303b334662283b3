"""
Restarts of what other nodes of a flow run. The node that is asked restarts what it runs itself, and passes the request
on through the topic of the nodes' statuses, which each of them reads every few seconds.

A request is carried out by nodes that were reading the topic when it was written. One that comes later skips it: what
it runs has just started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from mm2py.connectors.context import HerderContext
from mm2py.core.herder.overrides import SOURCE
from mm2py.core.herder.sharing import flow_tasks
from mm2py.errors import (
    Mm2Error,
    OverrideConflictError,
    RestartNotPassedOnError,
    UnknownConnectorError,
    UnknownTaskError,
)
from mm2py.herder.nodes import FlowNodes
from mm2py.model.herder.restart import Restart, decode_restart, encode_restart, is_restart_of, restart_key
from mm2py.model.state import FlowState
from mm2py.telemetry.events import RestartPassedOn
from mm2py.wire.topic_log import LogRecord


#: States of a connector on a node that has nothing of it to restart.
_NOTHING = (FlowState.STANDBY, FlowState.STOPPED, FlowState.DRAINED)


class SharedRestarts:
    """The restarts of one flow, on whichever of its nodes."""

    def __init__(
        self,
        context: HerderContext,
        nodes: FlowNodes,
        check: Callable[[str], object],
        here: Callable[[Restart], bool],
    ) -> None:
        """Create them. *check* raises if a connector cannot be restarted; *here* restarts what this node runs of one,
        and returns whether it runs any of it.
        """
        self._context = context
        self._flow = context.flow
        self._nodes = nodes
        self._check = check
        self._here = here
        #: Where the log ended when it was opened last, and up to where it has been read.
        self._opened_at = -1
        self._read_to: int | None = None
        nodes.listen(self._obey)

    async def ask(self, restart: Restart) -> None:
        """
        Restart a connector or a task where it runs.

        Raise UnknownConnectorError, UnknownTaskError, OverrideConflictError if it is stopped or no node that can be
        reached runs it, and RestartNotPassedOnError.
        """
        self._check(restart.connector)
        if restart.connector == SOURCE and restart.task is not None:
            holder = self._holder(restart.task)
            others = [] if holder is None else [self._reached(holder, restart.task)]
        else:
            others = self._working_on(restart.connector)
        is_one_task = restart.task is not None and bool(others)
        is_here = not is_one_task and self._here(restart)
        if others:
            await self._pass_on(restart, others)
        elif not is_here:
            raise self._unfound(restart)

    def _holder(self, task: int) -> str | None:
        """Return the other node that has a copy task by the flow's assignment; None if it has none, or is this one."""
        known = self._nodes.known
        holder = next((node_id for node_id, share in known.members.items() if task in share.tasks), None)
        return None if holder == known.own_id else holder

    def _reached(self, node_id: str, task: int) -> str:
        """Return a node's name. Raise OverrideConflictError if it does not read what is passed on to it."""
        known = self._nodes.known
        name = known.name_of(node_id)
        if node_id not in known.others:
            what = f"task {task} of flow {self._flow} is on node {name}, which has just come and has not reported yet"
            raise OverrideConflictError(what, "try again in some seconds, or ask that node")
        if not known.answers(node_id, self._context.clock.monotonic()):
            what = f"task {task} of flow {self._flow} is on node {name}, which does not answer"
            raise OverrideConflictError(what, "check that node; other nodes get its tasks once it has left the group")
        return name

    def _working_on(self, connector: str) -> list[str]:
        """Return the names of other nodes that run something of a connector, by their reports."""
        known, now = self._nodes.known, self._context.clock.monotonic()
        return [
            known.name_of(node_id)
            for node_id, status in known.others.items()
            if known.answers(node_id, now)
            and any(it.connector == connector and it.state not in _NOTHING for it in status.connectors)
        ]

    def _unfound(self, restart: Restart) -> OverrideConflictError | UnknownTaskError:
        flow, connector, task = self._flow, restart.connector, restart.task
        if task is not None:
            tasks = flow_tasks(self._context.config.source_connector)[0] if connector == SOURCE else 1
            if not self._nodes.known.is_shared or not 0 <= task < tasks:
                return UnknownTaskError(str(flow), connector, task)
        what = connector if task is None else f"task {task} of {connector}"
        return OverrideConflictError(
            f"this node does not run {what} of flow {flow}, and knows no node that does",
            "try again in some seconds, or ask the node that runs it: mm2py nodes",
        )

    async def _pass_on(self, restart: Restart, others: Sequence[str]) -> None:
        record = LogRecord(restart_key(self._flow, restart), encode_restart(restart, self._nodes.known.own_id))
        names = ", ".join(others)
        try:
            await self._nodes.append(record)
        except (Mm2Error, TimeoutError) as error:
            cause = str(error) or "the target did not answer in time"
            raise RestartNotPassedOnError(str(self._flow), names, cause) from error
        self._context.events.emit(RestartPassedOn(self._flow, restart.connector, restart.task, names, restart.by))

    def _obey(self, topic: str, opened_at: int, records: Sequence[LogRecord]) -> None:
        """Carry out what other nodes were asked, of *records* read from the topic."""
        if opened_at != self._opened_at:
            # The first time what is there is none of ours; a topic that was created again begins at 0.
            self._opened_at = opened_at
            self._read_to = opened_at if self._read_to is None else min(self._read_to, opened_at)
        for record in records:
            offset = record.offset or 0
            if offset < (self._read_to or 0):
                continue
            self._read_to = offset + 1
            if record.value is None or not is_restart_of(self._flow, record.key):
                continue
            try:
                restart, asked = decode_restart(record.value)
            except ValueError as error:
                self._context.passed_over.note(topic, [(record, str(error))])
                continue
            if asked != self._nodes.known.own_id:
                with suppress(OverrideConflictError, UnknownConnectorError):
                    self._here(restart)
