"""What a flow passes to each of its connectors, and what the source connector does beside copying."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import ClassVar, Generic, TypeAlias, TypeVar, cast

import attrs

from mm2py.clock import Clock
from mm2py.config.connector import MirrorCheckpointConfig, MirrorHeartbeatConfig, MirrorSourceConfig
from mm2py.config.settings import FlowSettings
from mm2py.config.worker import WorkerConfig
from mm2py.connectors.control_writers import ControlWriters
from mm2py.connectors.pair import Pairs
from mm2py.connectors.reach import Reach
from mm2py.connectors.supervise import supervise
from mm2py.core.herder.sharing import flow_tasks
from mm2py.model.flow import Flow
from mm2py.storage.unreadable_records import PassedOver
from mm2py.telemetry.journal import EventLog


C_co = TypeVar("C_co", covariant=True)
D = TypeVar("D")


@attrs.frozen
class FlowContext(Generic[C_co]):
    """What a flow passes to each of its connectors, with that connector's config; or its herder, with all of them."""

    config: C_co
    flow: Flow
    worker: WorkerConfig
    #: How many tasks the flow has on all nodes.
    tasks: int
    #: Time limit of a drain.
    drain_s: float
    #: One for all groups of the flow, so that an unreachable cluster is reported once.
    reach: Reach
    clock: Clock
    events: EventLog
    jitter: Callable[[], float]
    #: One for all lives of its groups, so that an invalid record is reported once.
    passed_over: PassedOver = attrs.field(
        default=attrs.Factory(lambda self: PassedOver(self.flow, self.events), takes_self=True)
    )
    #: Gets the ids of the source's and of the target's cluster once they are reached; raises if they must not be used.
    on_clusters: Callable[[str | None, str | None], None] = lambda _source, _target: None
    #: The source connectors of all pairs.
    pairs: Pairs = attrs.field(factory=Pairs)
    #: What is written on the target by; one for all lives.
    writers: ControlWriters = attrs.field(
        default=attrs.Factory(
            lambda self: ControlWriters(self.flow, self.worker, self.events, self.reach, self.jitter), takes_self=True
        )
    )

    def of(self, config: D) -> FlowContext[D]:
        """Return what a connector with *config* is passed."""
        return attrs.evolve(cast("FlowContext[D]", self), config=config)

    async def supervise(self, task: str, body: Callable[[], Awaitable[None]]) -> None:
        """Run *body*, and again after each failure."""
        await supervise(task, body, clock=self.clock, jitter=self.jitter, report=self.events.emit)


HerderContext: TypeAlias = FlowContext[FlowSettings]
SourceContext: TypeAlias = FlowContext[MirrorSourceConfig]
CheckpointContext: TypeAlias = FlowContext[MirrorCheckpointConfig]
HeartbeatContext: TypeAlias = FlowContext[MirrorHeartbeatConfig]


def flow_context(
    settings: FlowSettings,
    reach: Reach,
    *,
    clock: Clock,
    events: EventLog,
    jitter: Callable[[], float],
    on_clusters: Callable[[str | None, str | None], None] = lambda _source, _target: None,
    pairs: Pairs | None = None,
) -> HerderContext:
    """Return what the herder of a flow with these *settings* passes around, for all lives of its connectors."""
    return FlowContext(
        settings,
        settings.flow,
        settings.worker,
        tasks=flow_tasks(settings.source_connector)[0],
        drain_s=settings.source_connector.copying.settling_s,
        reach=reach,
        clock=clock,
        events=events,
        jitter=jitter,
        on_clusters=on_clusters,
        pairs=pairs or Pairs(),
    )


class BackgroundLoop(ABC):
    """Something that the source group does beside copying, on the same clusters."""

    #: Its name in the log, after ``A->B/source/``.
    name: ClassVar[str]
    #: Whether only the flow's owner does it, where several nodes share the flow.
    is_for_owner: ClassVar[bool] = False

    @abstractmethod
    async def run(self) -> None:
        """Work until cancelled. Its errors are reported, and it runs again after a pause; copying continues."""

    async def finish(self) -> None:  # noqa: B027 - most loops leave the rest to the next start
        """Write what is left, once the last epoch is accounted for and `run` has ended; three seconds at most."""
