"""Requests of operators for running flows: overrides, restarts, configs and offsets. REST calls these; the daemon has
one `Control` for all its flows.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from mm2py.clock import Clock
from mm2py.core.herder.connector_offsets import read_offsets
from mm2py.core.herder.live_config import (
    FlowSetting,
    LiveSetting,
    flow_settings,
    live_settings,
    patch_config,
    put_config,
    revert_config,
    shown_config,
)
from mm2py.errors import (
    BrokerAnsweredError,
    BrokerConnectionError,
    ClusterUnreachableError,
    Mm2Error,
    OverrideConflictError,
    OverrideRejectedError,
    OverridesNotStoredError,
    UnknownConnectorError,
    UnknownFlowError,
)
from mm2py.herder.connector_offsets import ConnectorOffsets
from mm2py.herder.desired_connectors import DesiredConnectors
from mm2py.herder.fleet import Fleet
from mm2py.herder.overrides import OverrideControl
from mm2py.herder.runner import FlowRunner
from mm2py.herder.this_node import this_node
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Overrides, Wanted
from mm2py.model.herder.restart import Restart
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import FlowState, NodeView
from mm2py.telemetry.events import NodeDrained, NodeResumed
from mm2py.telemetry.journal import EventLog


class Control:
    """The requests that a node accepts for its flows. *by* is the author; by default this process. Each raises
    UnknownFlowError if this node does not run the flow. Changes of overrides also raise OverrideRejectedError with all
    problems, OverrideConflictError if another node changed them meanwhile, and OverridesNotStoredError if the target
    cluster does not store them.
    """

    def __init__(
        self, desired: DesiredConnectors, overrides: OverrideControl, fleet: Fleet, *, clock: Clock, events: EventLog
    ) -> None:
        self._desired = desired
        self._overrides = overrides
        self._fleet = fleet
        self._clock = clock
        self._events = events

    # Overrides.

    def overrides(self, flow: Flow) -> Overrides:
        """Return the overrides of *flow*."""
        self._desired.settings_of(flow)
        return self._overrides.stored(flow).overrides

    async def change_overrides(
        self, flow: Flow, change: Callable[[Overrides], Overrides], *, by: str = ""
    ) -> Overrides:
        """Store changed overrides of *flow* on the target cluster, then apply them within seconds; return them."""
        return await self._overrides.change(flow, change, by=by or str(this_node()))

    # Restarts (KIP-745).

    async def restart(
        self, flow: Flow, connector: str, *, include_tasks: bool = False, only_failed: bool = False, by: str = ""
    ) -> None:
        """Restart a connector on all nodes that run it, see `SharedRestarts`. Raise UnknownConnectorError,
        OverrideConflictError if no node is known that runs it, and RestartNotPassedOnError.
        """
        restart = Restart(connector, None, include_tasks, only_failed, by or str(this_node()))
        await self._runner(flow).requests.restart(restart)

    async def restart_task(self, flow: Flow, connector: str, task: int, *, by: str = "") -> None:
        """Restart one task of a connector, on whichever node it runs. Raise UnknownTaskError if it has no such task,
        OverrideConflictError if the task's node does not answer, and RestartNotPassedOnError.
        """
        await self._runner(flow).requests.restart(Restart(connector, task, by=by or str(this_node())))

    async def refresh(self, flow: Flow, *, by: str = "") -> None:
        """Have the nodes of a flow look for new topics, partitions and consumer groups now. Raise as `restart` does."""
        await self._runner(flow).requests.refresh(by=by or str(this_node()))

    def _runner(self, flow: Flow) -> FlowRunner:
        runner = self._fleet.runner(flow)
        if runner is None:
            raise UnknownFlowError(str(flow))
        return runner

    # Nodes.

    def nodes(self, flow: Flow) -> tuple[NodeView, ...]:
        """Return the nodes that run *flow*, this one first; empty if it only emits heartbeats."""
        return self._runner(flow).node_views()

    async def elsewhere(self, flow: Flow, *, must_know: bool = False) -> Mapping[TopicPartition, Elsewhere]:
        """Return the partitions of *flow* that other nodes copy, or if the caller *must_know*, all that this node does
        not. Raise TopicsUnknownError if it stands by, and the clusters do not answer.
        """
        sharing = self._runner(flow).sharing
        parts = None if sharing is None else sharing.parts
        return {} if parts is None else await parts.find(must_know=must_know)

    @property
    def is_drained(self) -> bool:
        """Whether an operator drained this node."""
        return self._fleet.is_drained

    def drain_node(self, *, is_drained: bool, by: str = "") -> None:
        """Have this node give up all its tasks to other nodes, or take its part again; a restart ends it, too."""
        if self._fleet.is_drained is not is_drained:
            author = by or str(this_node())
            self._events.emit(NodeDrained(author) if is_drained else NodeResumed(author))
        self._fleet.set_drained(is_drained=is_drained)

    # Configs of connectors, changed while they run.

    def connector_config(self, flow: Flow, connector: str) -> dict[str, str]:
        """Return a connector's config in Connect's format, as it was put if it was; secrets are masked."""
        self._desired.settings_of(flow)
        return shown_config(self.overrides(flow), self._desired.live, flow, connector)

    def live_settings(self, flow: Flow, connector: str) -> tuple[LiveSetting, ...]:
        """Return the settings of a connector that replace the file's, with the file's values."""
        return live_settings(self.overrides(flow), self._desired.agreed, flow, connector)

    def flow_settings(self, flow: Flow) -> tuple[FlowSetting, ...]:
        """Return every setting of a flow as it applies."""
        return flow_settings(self.overrides(flow), self._desired.agreed, flow)

    async def put_config(
        self,
        flow: Flow,
        connector: str,
        body: Mapping[str, object],
        *,
        sent: Mapping[str, object] | None = None,
        wanted: Wanted = Wanted.RUNNING,
        by: str = "",
    ) -> Overrides:
        """Replace the config of a connector, see `mm2py.core.herder.live_config.put_config`."""
        put = functools.partial(put_config, sent=sent, wanted=wanted)
        change = self._overrides.config_change(flow, connector, body, put)
        return await self.change_overrides(flow, change, by=by)

    async def patch_config(self, flow: Flow, connector: str, body: Mapping[str, object], *, by: str = "") -> Overrides:
        """Change the settings in *body*; None reverts to the file's value."""
        change = self._overrides.config_change(flow, connector, body, patch_config)
        return await self.change_overrides(flow, change, by=by)

    async def revert_config(
        self, flow: Flow, connector: str, keys: Collection[str] | None = None, *, by: str = ""
    ) -> Overrides:
        """Revert some *keys* of a connector, or all, to the file's values."""
        return await self.change_overrides(
            flow, lambda overrides: revert_config(overrides, flow, connector, keys), by=by
        )

    # Offsets (KIP-875).

    async def offsets(self, flow: Flow, connector: str) -> tuple[ConnectorOffset, ...]:
        """Return a connector's offsets as stored on the target. Raise OverridesNotStoredError if it does not answer."""
        offsets = self._offsets_of(flow, connector)
        with self._not_stored(flow):
            return await offsets.read(connector)

    async def alter_offsets(self, flow: Flow, connector: str, offsets: object, *, by: str = "") -> None:
        """
        Alter offsets of a stopped connector; `core.control.connector_offsets.read_offsets` has the form of *offsets*.

        Raise OverrideRejectedError with all problems, also if the connector is not to be stopped, OverrideConflictError
        if it has not stopped yet, and OverridesNotStoredError if a cluster does not respond.
        """
        altered = self._offsets_of(flow, connector)
        requested = read_offsets(flow, connector, offsets)
        async with self._stopped(flow, connector):
            await altered.alter(connector, requested, by=by or str(this_node()))

    async def reset_offsets(self, flow: Flow, connector: str, *, by: str = "") -> None:
        """Remove all offsets of a stopped connector, so that it starts where its settings say."""
        offsets = self._offsets_of(flow, connector)
        async with self._stopped(flow, connector):
            await offsets.reset(connector, by=by or str(this_node()))

    def _offsets_of(self, flow: Flow, connector: str) -> ConnectorOffsets:
        groups = {group.connector: group for group in self._runner(flow).view().groups}
        if connector not in groups or self.overrides(flow).wanted(connector) is Wanted.DELETED:
            raise UnknownConnectorError(str(flow), connector)
        return ConnectorOffsets(self._desired.settings_of(flow), clock=self._clock, events=self._events)

    @asynccontextmanager
    async def _stopped(self, flow: Flow, connector: str) -> AsyncIterator[None]:
        """Keep a stopped connector from being resumed during the block. Raise OverrideRejectedError if it is not to be
        stopped, and OverrideConflictError if it has not stopped yet.
        """
        async with self._overrides.lock(flow):
            await self._overrides.current(flow)
            if self.overrides(flow).wanted(connector) is not Wanted.STOPPED:
                # As in Connect, which tells with 409 that the same request succeeds later.
                raise OverrideRejectedError(
                    (f"{connector} of flow {flow} must be stopped before its offsets are altered: stop it first",)
                )
            states = {group.connector: group.state for group in self._runner(flow).view().groups}
            if states.get(connector) is not FlowState.STOPPED:
                raise OverrideConflictError(
                    f"{connector} of flow {flow} has not stopped yet", "try again in some seconds"
                )
            if late := self._runner(flow).requests.not_stopped(connector, self._overrides.stored(flow).revision):
                raise OverrideConflictError(
                    f"{connector} of flow {flow} has not stopped yet on {', '.join(late)}",
                    "try again in some seconds; mm2py nodes shows whether they answer",
                )
            with self._not_stored(flow):
                yield

    @contextmanager
    def _not_stored(self, flow: Flow) -> Iterator[None]:
        """Raise OverridesNotStoredError for any failure of the target cluster; one of the source is raised as it is."""
        try:
            yield
        except (OverrideRejectedError, OverrideConflictError):
            raise
        except (ClusterUnreachableError, BrokerConnectionError, BrokerAnsweredError) as error:
            if error.cluster == flow.source:
                raise
            raise OverridesNotStoredError(str(flow), flow.target, str(error)) from error
        except Mm2Error as error:
            raise OverridesNotStoredError(str(flow), flow.target, str(error)) from error
