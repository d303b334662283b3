"""Each kind of store in a topic of the mirror's own, on brokers that are made up: it holds things by their names."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Final, cast

import attrs
import pytest

from mm2py.config.settings import FlowSettings
from mm2py.config.worker import StorageSettings
from mm2py.connectors.checkpoint.checkpoints import Checkpoints
from mm2py.connectors.checkpoint.latencies import CheckpointLatencies
from mm2py.connectors.offsets.offset_syncs import OffsetSyncs
from mm2py.connectors.offsets.stored_translations import syncs_in
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.source.positions import NOTHING_COPIED, Positions
from mm2py.connectors.topics.ownership import SyncedMemory
from mm2py.core.herder import overrides as verbs
from mm2py.core.source.progress import PartitionState
from mm2py.errors import Mm2Error
from mm2py.model.epoch import PartitionOutcome, Run
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.connector_configs import KeyValue, config_record
from mm2py.model.herder.node_status import node_id_of
from mm2py.model.herder.stored_overrides import NOTHING_STORED
from mm2py.model.positions import Position
from mm2py.model.synced import SyncedConfig
from mm2py.storage import connector_store, override_store
from mm2py.storage.connector_store import ConnectorStore
from mm2py.storage.override_store import NOT_SEEN, OverrideStore
from mm2py.storage.status_store import StatusStore
from mm2py.telemetry.events import ConnectorsRefilled, InternalTopicRecreated
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import FencedWriter
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.checkpointing import Shift
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, FakePartition, FakeTopic
from tests.support.flow_rig import FLOW, SETTINGS, changed, checkpoint_context, source_context


_ANOTHER: Final = "AAAAAAAAAAAAAAAAAAAAAg"
#: Long enough for what a store does now and then by itself.
_SOME_S: Final = 20.0


def part(name: str) -> TopicPartition:
    return TopicPartition(name, 0)


@attrs.define
class Tasks:
    """What runs until the end of a test."""

    group: asyncio.TaskGroup
    running: list[asyncio.Task[None]] = attrs.field(factory=list)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.running.append(self.group.create_task(work))
        return self.running[-1]


@attrs.define(eq=False)
class Store(ABC):
    """One store on one node."""

    brokers: FakeBrokers
    cluster: Cluster
    tasks: Tasks
    clock: LoopClock = attrs.field(factory=LoopClock)
    events: EventLog = attrs.field(init=False)

    #: The partitions of its topic.
    partitions: ClassVar[int] = 1

    def __attrs_post_init__(self) -> None:
        self.events = EventLog(self.clock)

    @property
    @abstractmethod
    def topic(self) -> str:
        """The name of its topic."""

    @abstractmethod
    async def begin(self) -> None:
        """Read what there is, and hold it from then on."""

    @abstractmethod
    async def put(self, name: str) -> None:
        """Hold something more."""

    @abstractmethod
    async def look(self) -> None:
        """Do what it does every few seconds though nothing changes."""

    @abstractmethod
    async def held(self) -> set[str]:
        """Return what a node that starts now reads."""

    async def read(self) -> Sequence[LogRecord]:
        return await TopicLog(self.cluster, self.topic).read_all()

    @property
    def refills(self) -> list[int]:
        """How much it has reported to have written again."""
        return [it.records for it in self.events.of(InternalTopicRecreated)]

    @property
    def settings(self) -> FlowSettings:
        storage = attrs.evolve(SETTINGS.source_connector.offset_storage, partitions=self.partitions)
        syncs = attrs.evolve(SETTINGS.source_connector.offset_syncs, location="target", topic_replication_factor=1)
        settings = changed(SETTINGS, offset_storage=storage, offset_syncs=syncs)
        return changed(settings, target=attrs.evolve(self.brokers.endpoint, alias="B"))


class PositionsStore(Store):
    """Positions: a thing is a topic-partition."""

    topic = "mm2-offsets.A.internal"
    positions: Positions

    async def begin(self) -> None:
        context = source_context(self.clock, self.events, self.settings)
        await write_as_task(self, context.writers.tasks)
        self.positions = Positions(context, self.cluster, self.cluster, NOTHING_COPIED)
        await self.positions.read()

    async def put(self, name: str) -> None:
        await self.positions.write([Position(part(name), 100, 99)])

    async def look(self) -> None:
        await self.positions.log.look()

    async def held(self) -> set[str]:
        context = source_context(self.clock, EventLog(self.clock), self.settings)
        return {it.topic for it in await Positions(context, self.cluster, self.cluster, NOTHING_COPIED).read()}


class SyncedStore(Store):
    """What the mirror set at the target: a thing is a topic with a config."""

    topic = "mm2-synced.A.internal"
    memory: SyncedMemory

    async def begin(self) -> None:
        context = source_context(self.clock, self.events, self.settings)
        await write_as_task(self, context.writers.tasks)
        self.memory = SyncedMemory(context, self.cluster)
        await self.memory.load()

    async def put(self, name: str) -> None:
        await self.memory.write([SyncedConfig(name, "key", ("value",))])

    async def look(self) -> None:
        await self.memory.log.look()

    async def held(self) -> set[str]:
        memory = SyncedMemory(source_context(self.clock, EventLog(self.clock), self.settings), self.cluster)
        await memory.load()
        return set(memory.configured)


class SyncsStore(Store):
    """Offset syncs: a thing is a topic-partition."""

    topic = "mm2-offset-syncs.A.internal"
    syncs: OffsetSyncs

    async def begin(self) -> None:
        context = source_context(self.clock, self.events, self.settings)
        await write_as_task(self, context.writers.tasks)
        self.states = dict[TopicPartition, PartitionState]()
        tasks = SimpleNamespace(
            ledger=SimpleNamespace(states=self.states, taken_over=0), outcomes=SimpleNamespace(listeners=list[object]())
        )
        life = SimpleNamespace(source=self.cluster, target=self.cluster, tasks=tasks)
        self.syncs = OffsetSyncs(context, Translations(), cast("Any", life))
        await self.syncs._read()

    async def put(self, name: str) -> None:
        self.states[part(name)] = PartitionState(part(name), f"A.{name}", 100, 99)
        run = Run(0, 0, 100)
        self.syncs.note(PartitionOutcome(part(name), 100, 99, is_unsure=False, runs=(run,)), 0)
        await self.syncs._write()

    async def look(self) -> None:
        await self.clock.sleep(_SOME_S)
        await self.syncs._write()

    async def held(self) -> set[str]:
        return {it.source.topic for it in syncs_in(await self.read(), [])}


class CheckpointsStore(Store):
    """Checkpoints: a thing is a consumer group."""

    topic = "A.checkpoints.internal"
    checkpoints: Checkpoints

    async def begin(self) -> None:
        self.brokers.topics["A.foo"] = FakeTopic([FakePartition(end=100)], "AAAAAAAAAAAAAAAAAAAABw")
        self.groups = list[str]()
        writer = FencedWriter("connect-cluster-A-mm2")
        await writer.open(self.cluster)
        self.checkpoints = self._made(self.events, writer)
        await self.checkpoints.read()

    def _made(self, events: EventLog, writer: FencedWriter | None = None) -> Checkpoints:
        context = checkpoint_context(self.clock, events, self.settings)
        forward, back, latencies = Shift({"foo": 0}), Shift({}), CheckpointLatencies(self.clock)
        return Checkpoints(
            context, self.cluster, self.cluster, forward=forward, back=back, latencies=latencies, writer=writer
        )

    async def put(self, name: str) -> None:
        self.brokers.group(name, {TopicPartition("foo", 0): 40}, at=0)
        self.groups.append(name)
        await self.checkpoints.emit_once(self.groups)

    async def look(self) -> None:
        await self.clock.sleep(_SOME_S)
        await self.checkpoints.emit_once(self.groups)

    async def held(self) -> set[str]:
        checkpoints = self._made(EventLog(self.clock))
        await checkpoints.read()
        return {name for name in "abc" if checkpoints.last_of(name)}


class OverridesStore(Store):
    """Overrides: a thing is a paused topic."""

    topic = "mm2-configs.A.internal"
    kept = NOTHING_STORED
    seen = NOT_SEEN

    async def begin(self) -> None:
        self.store = OverrideStore(self.settings, self.clock)
        self.kept = await self.store.read(events=self.events)

    async def put(self, name: str) -> None:
        paused = verbs.pause_topic(self.kept.overrides, name)
        self.kept = await self.store.write(paused, before=self.kept, by="ann")

    async def look(self) -> None:
        if self.kept.revision:
            self.seen = await self.store.refill(self.kept, self.seen, self.events)

    async def held(self) -> set[str]:
        return set((await OverrideStore(self.settings, self.clock).read()).overrides.topics)


class ConnectorsStore(Store):
    """A worker's connectors."""

    topic = "configs"

    async def begin(self) -> None:
        self.store, _ = await self._following(self.events)

    async def _following(self, events: EventLog) -> tuple[ConnectorStore, asyncio.Task[None]]:
        storage, jitter = StorageSettings(self.topic, 1), lambda: 0.5
        store = ConnectorStore(
            self.settings.target, storage, "connect-cluster-g", clock=self.clock, events=events, jitter=jitter,
            on_change=lambda _: None, on_request=lambda _: None,
        )  # fmt: skip
        following = self.tasks.start(store.follow())
        await self.clock.sleep(_SOME_S)
        return store, following

    async def put(self, name: str) -> None:
        async def decide() -> Sequence[KeyValue]:
            return [config_record(name, {"topics": "foo"})]

        await self.store.change(decide)

    async def look(self) -> None:
        await self.clock.sleep(_SOME_S)

    async def held(self) -> set[str]:
        store, following = await self._following(EventLog(self.clock))
        following.cancel()
        return set(store.connectors)

    @property
    def refills(self) -> list[int]:
        return [it.connectors for it in self.events.of(ConnectorsRefilled)]


class StatusesStore(Store):
    """Statuses of nodes: a thing is a node that reports."""

    topic = "mm2-status.A.internal"
    partitions = 5

    async def begin(self) -> None:
        self.nodes = list[str]()
        self.log = self._log()

    def _log(self) -> StatusStore:
        storage = attrs.evolve(SETTINGS.worker.status_storage, replication_factor=1)
        return StatusStore(FLOW, storage, self.cluster, self.events)

    async def put(self, name: str) -> None:
        self.nodes.append(name)
        await self.look()

    async def look(self) -> None:
        try:
            for name in self.nodes:
                await self.log.write(name, b"{}")
        except Mm2Error:  # as in the loop of a flow's nodes
            self.log.is_open = False
            for name in self.nodes:
                await self.log.write(name, b"{}")

    async def held(self) -> set[str]:
        log = self._log()
        await log.write("this", b"{}")
        return {node_id_of(FLOW, it.key) or "" for it in await log.read()} - {"this"}


#: What writes as one of a flow's tasks, or as its owner: another one that does takes over.
FENCED: Final[list[type[Store]]] = [PositionsStore, SyncedStore, SyncsStore, CheckpointsStore]
KINDS: Final[list[type[Store]]] = [*FENCED, OverridesStore, ConnectorsStore, StatusesStore]
#: What notices that a topic has lost records, although it is the same one.
NOTICES: Final[list[type[Store]]] = [OverridesStore, ConnectorsStore]


async def write_as_task(store: Store, writer: Any) -> None:
    """Have a node write as task 0, in a group that answers at once."""

    def ask() -> None:
        writer.begin_asking()
        writer.confirm()

    writer.guard(ask)
    writer.hold([0])
    store.tasks.start(writer.run(store.cluster))
    await writer.ready()


@asynccontextmanager
async def stores(kind: type[Store], monkeypatch: pytest.MonkeyPatch, count: int = 1) -> AsyncIterator[list[Store]]:
    """Return stores of one kind on so many nodes."""
    brokers, clock = FakeBrokers(), LoopClock()
    for module in (connector_store, override_store):
        monkeypatch.setattr(module, "Cluster", partial(Cluster, opener=brokers.open))
    target = attrs.evolve(brokers.endpoint, alias="B")
    clusters = [Cluster(target, clock, opener=brokers.open) for _ in range(count)]  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group)
        for cluster in clusters:
            await cluster.connect()
        yield [kind(brokers, cluster, tasks) for cluster in clusters]
        for task in tasks.running:
            task.cancel()
    for cluster in clusters:
        await cluster.close()


def replace(store: Store) -> None:
    """Have another program create a store's topic, empty."""
    store.brokers.topics[store.topic] = FakeTopic([FakePartition() for _ in range(store.partitions)], _ANOTHER)
