"""A daemon for tests of REST alone: it shows what the test says, keeps overrides in memory, and applies none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import MirrorSettings, Problem, load_settings
from mm2py.core.herder.connector_offsets import read_offsets
from mm2py.core.herder.live_config import (
    FlowSetting,
    LiveSetting,
    connector_config,
    flow_settings,
    live_settings,
    patch_config,
    put_config,
    revert_config,
)
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.errors import UnknownFlowError, UnknownTaskError
from mm2py.herder.composition import Composition, own_problems
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.herder.control import Control
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.connector_configs import (
    ConnectorsTopic,
    LoggerRequest,
    StoredConnector,
    config_record,
)
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, Wanted
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import (
    ClusterView,
    ConnectorStatus,
    FlowState,
    FlowView,
    GroupOffsetsView,
    GroupOffsetView,
    GroupView,
    MirrorView,
    NodeView,
    PartitionStage,
    PartitionView,
    TaskState,
    TaskStatus,
    TaskView,
    TimesView,
)
from mm2py.storage.connector_store import Decide
from mm2py.telemetry.events import Event
from mm2py.telemetry.journal import EventLog


FLOW = Flow("A", "B")
LINES = (
    "clusters = A, B",
    "A.bootstrap.servers = a:1",
    "B.bootstrap.servers = b:1",
    "A->B.enabled = true",
    "A->B.topics = orders, invoices",
)


#: Settings never change, and take a while to be read.
_read_before: dict[tuple[str, ...], MirrorSettings] = {}


def settings_of(folder: Path, *lines: str) -> MirrorSettings:
    """Read settings for one flow ``A->B``, and further *lines*."""
    found = _read_before.get(lines)
    if found is None:
        path = folder / "mm2.properties"
        path.write_text("\n".join((*LINES, *lines)) + "\n")
        found = _read_before[lines] = load_settings(path)
    return found


def some_view() -> MirrorView:
    """Return a node whose flow copies two partitions of `orders` and cannot copy the one of `invoices`."""
    times = TimesView(5.0, 1.0, 9.0, 4.0)
    failure = PartitionFailure("a record is too large", "raise max.message.bytes", "RecordTooLargeError", 17)
    partitions = (
        PartitionView(
            TopicPartition("invoices", 0), "A.invoices", 1, PartitionStage.STOPPED, 17, 17, 3, 17, 1700, 0.0, 12.5,
            failure,
        ),
        *(
            PartitionView(
                TopicPartition("orders", number), "A.orders", 0, PartitionStage.COPYING, 100, 100, number, 100, 9000,
                10.0, age=times, latency=times, lag_s=float(number),
            )
            for number in (0, 1)
        ),
    )  # fmt: skip
    offset = GroupOffsetView(
        TopicPartition("orders", 0),
        TopicPartition("A.orders", 0),
        upstream=40,
        downstream=40,
        distance=60,
        is_exact=True,
    )
    flow = FlowView(
        FLOW,
        FlowState.RUNNING,
        topics=2,
        partitions=partitions,
        tasks=(TaskView(0, TaskState.RUNNING, 7, 2), TaskView(1, TaskState.WAITING_FOR_SLOT, 3, 1)),
        clusters=(ClusterView("A", is_reachable=True), ClusterView("B", is_reachable=True)),
        lag=4,
        groups=tuple(GroupView(name, FlowState.RUNNING) for name in (SOURCE, CHECKPOINT, HEARTBEAT)),
        consumer_groups=(GroupOffsetsView("billing", (offset,)),),
    )
    return MirrorView(1_700_000_000_000, is_ready=True, flows=(flow,), started_ms=1_600_000_000_000)


def some_nodes(*, is_drained: bool = False) -> tuple[NodeView, ...]:
    """Return this node, which has task 0, and another one with task 1, which is the owner."""
    task = TaskStatus(1, TaskState.RUNNING, 4, 20.0, 2_000.0)
    working = tuple(ConnectorStatus(name, FlowState.RUNNING) for name in (SOURCE, CHECKPOINT))
    return (
        NodeView("here-1", "here:8083", "here", 1, is_this=True, is_drained=is_drained, assigned=(0,), partitions=3),
        NodeView(
            "there-2", "there:8083", "there", 2, "http://there:8083", is_owner=True, heard_ms=1_200, assigned=(1,),
            tasks=(task,), connectors=working, partitions=4, records=1_000, bytes=50_000, records_per_s=20.0,
            bytes_per_s=2_000.0, lag=30, lag_s=8.0,
        ),
    )  # fmt: skip


@attrs.define
class ControlDouble(Control):
    """Keeps overrides in memory, applies none. `failure` is raised by the next change, `takes_s` later, or restart."""

    settings: MirrorSettings
    ordered: Overrides = NO_OVERRIDES
    said_by: list[str] = attrs.field(factory=list)
    restarts: list[tuple[object, ...]] = attrs.field(factory=list)
    altered: list[object] = attrs.field(factory=list)
    failure: Exception | None = None
    takes_s: float = 0.0
    #: Until it is set, changes are under way.
    may_end: asyncio.Event | None = None
    drained: bool = False
    #: What another node copies, and why it is not known.
    others: dict[TopicPartition, Elsewhere] = attrs.field(factory=dict)
    unreachable: Exception | None = None

    @property
    def is_drained(self) -> bool:
        return self.drained

    def drain_node(self, *, is_drained: bool, by: str = "") -> None:
        self.drained = is_drained
        self.said_by.append(by)

    def nodes(self, flow: Flow) -> tuple[NodeView, ...]:
        if flow != FLOW:
            raise UnknownFlowError(str(flow))
        return some_nodes(is_drained=self.drained)

    def overrides(self, flow: Flow) -> Overrides:
        if flow != FLOW:
            raise UnknownFlowError(str(flow))
        return self.ordered

    async def change_overrides(
        self, flow: Flow, change: Callable[[Overrides], Overrides], *, by: str = ""
    ) -> Overrides:
        await asyncio.sleep(self.takes_s)
        if self.may_end is not None:
            await self.may_end.wait()
        if self.failure is not None:
            raise self.failure
        self.ordered = change(self.overrides(flow))
        self.said_by.append(by)
        return self.ordered

    async def elsewhere(self, flow: Flow, *, must_know: bool = False) -> Mapping[TopicPartition, Elsewhere]:
        if self.unreachable is not None and (must_know or self.others):
            raise self.unreachable
        return self.others if flow == FLOW else {}

    async def restart(
        self, flow: Flow, connector: str, *, include_tasks: bool = False, only_failed: bool = False, by: str = ""
    ) -> None:
        if self.failure is not None:
            raise self.failure
        self.said_by.append(by)
        self.restarts.append((str(flow), connector, include_tasks, only_failed))

    async def refresh(self, flow: Flow, *, by: str = "") -> None:
        if self.failure is not None:
            raise self.failure
        self.said_by.append(by)
        self.restarts.append((str(flow), "refresh"))

    async def restart_task(self, flow: Flow, connector: str, task: int, *, by: str = "") -> None:
        if self.failure is not None:
            raise self.failure
        if task not in {0, 1}:
            raise UnknownTaskError(str(flow), connector, task)
        self.said_by.append(by)
        self.restarts.append((str(flow), connector, task))

    async def offsets(self, flow: Flow, connector: str) -> tuple[ConnectorOffset, ...]:  # noqa: ARG002
        if self.failure is not None:
            raise self.failure
        return (ConnectorOffset({"cluster": "A", "partition": 0, "topic": "orders"}, {"offset": 99}),)

    async def alter_offsets(self, flow: Flow, connector: str, offsets: object, *, by: str = "") -> None:
        read_offsets(flow, connector, offsets)
        self._alter(offsets, by)

    async def reset_offsets(self, flow: Flow, connector: str, *, by: str = "") -> None:  # noqa: ARG002
        self._alter(None, by)

    def _alter(self, offsets: object, by: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.said_by.append(by)
        self.altered.append(offsets)

    def connector_config(self, flow: Flow, connector: str) -> dict[str, str]:
        return connector_config(self.settings, flow, connector) | dict(self.ordered.config.get(connector, {}))

    def live_settings(self, flow: Flow, connector: str) -> tuple[LiveSetting, ...]:
        return live_settings(self.ordered, self.settings, flow, connector)

    def flow_settings(self, flow: Flow) -> tuple[FlowSetting, ...]:
        return flow_settings(self.ordered, self.settings, flow)

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
        put = partial(put_config, sent=sent, wanted=wanted)
        return await self.change_overrides(
            flow, lambda overrides: put(overrides, flow, connector, body, self.settings), by=by
        )

    async def patch_config(self, flow: Flow, connector: str, body: Mapping[str, object], *, by: str = "") -> Overrides:
        return await self.change_overrides(
            flow, lambda overrides: patch_config(overrides, flow, connector, body, self.settings), by=by
        )

    async def revert_config(
        self, flow: Flow, connector: str, keys: Collection[str] | None = None, *, by: str = ""
    ) -> Overrides:
        return await self.change_overrides(
            flow, lambda overrides: revert_config(overrides, flow, connector, keys), by=by
        )


class _WorkerDouble(ConnectWorker):
    """A worker that judges connectors without a thread: virtual time would jump past it."""

    async def _tried(
        self, name: str, config: Mapping[str, str], others: Mapping[str, StoredConnector]
    ) -> tuple[list[Problem], Composition]:
        return own_problems(name, config, others, self.composed)


class _StoreDouble:
    """A worker's config topic in memory."""

    is_read, cluster_id = True, "u-7"

    def __init__(self, on_change: Callable[[], object], endpoint: ClusterEndpoint) -> None:
        self.endpoint = endpoint
        self._topic = ConnectorsTopic()
        self._on_change = on_change
        self.loggers: list[LoggerRequest] = []

    @property
    def connectors(self) -> Mapping[str, StoredConnector]:
        return self._topic.connectors

    async def change(self, decide: Decide) -> None:
        for key, value in await decide():
            found = self._topic.take(key, value)
            if isinstance(found, LoggerRequest):
                self.loggers.append(found)
        self._on_change()


#: The connector of the worker double, in the flow that the view shows.
CONNECTOR: Mapping[str, str] = {
    "name": SOURCE,
    "connector.class": f"org.apache.kafka.connect.mirror.{SOURCE}",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:1",
    "source.cluster.sasl.jaas.config": "password=hidden",
    "topics": "orders, invoices",
}
_WORKER = """\
bootstrap.servers = b:1
group.id = connect
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
config.storage.topic = configs
offset.storage.topic = offsets
status.storage.topic = statuses
"""


def worker_double(folder: Path, clock: Clock, events: EventLog) -> ConnectWorker:
    """Make a worker with one connector."""
    path = folder / "worker.properties"
    path.write_text(_WORKER)
    worker = _WorkerDouble(path, {}, clock=clock, events=events)
    store = _StoreDouble(worker.read, worker.store.endpoint)
    worker.store = store  # type: ignore[assignment]
    store._topic.take(*config_record(SOURCE, CONNECTOR))
    worker.read()
    return worker


@attrs.define
class NodeDouble:
    """What REST shows of a daemon, and a control that the test can look into."""

    settings: MirrorSettings
    events: EventLog
    pictures: int = 0
    prepared: int = 0
    shown: MirrorView = attrs.field(factory=some_view)
    make_worker: Callable[[], ConnectWorker | None] = lambda: None
    control: ControlDouble = attrs.field(init=False)
    _worker: list[ConnectWorker | None] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.control = ControlDouble(self.settings)

    @property
    def worker(self) -> ConnectWorker | None:
        """A worker with a connector of the flow, made when it is first asked for: few tests do."""
        if not self._worker:
            self._worker.append(self.make_worker())
        return self._worker[0]

    async def prepare_views(self) -> None:
        self.prepared += 1

    def view(self, *, has_partitions: bool = True) -> MirrorView:  # noqa: ARG002
        self.pictures += 1
        return self.shown


def node_double(
    folder: Path, clock: Clock, *lines: str, sink: Callable[[Event], None] = lambda _event: None
) -> NodeDouble:
    """Make a daemon for tests, with these further *lines* of settings."""
    events = EventLog(clock, sink)
    return NodeDouble(settings_of(folder, *lines), events, make_worker=lambda: worker_double(folder, clock, events))
