"""
A distributed worker of Kafka Connect: its connectors come from its config topic, and REST changes them there.

The worker's file and the connectors together are the node's settings. A connector that does not fit is left out and
shown as not run, so that it never stops the others. A change is validated together with all others before it is
stored; then every worker reads it from the topic, this one too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.config.explain import unmasked
from mm2py.config.importers.connect import ConnectorClass, kind_of
from mm2py.config.importers.lines import ParsedFile, config_storage, leader_id, read_worker
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings, Problem
from mm2py.connectors.supervise import supervise
from mm2py.core.herder.overrides import SOURCE
from mm2py.errors import OverrideConflictError, UnknownConnectorError
from mm2py.herder.composition import Composition, Place, compose, created_ms, own_problems
from mm2py.herder.takeover import take_over_from_mirus, take_over_positions
from mm2py.herder.worker_membership import WorkerMembership
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.model.herder.connector_configs import (
    ConnectorsTopic,
    KeyValue,
    LoggerRequest,
    StoredConnector,
    config_record,
    logger_record,
    state_record,
)
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowView
from mm2py.storage.connector_store import ConnectorStore
from mm2py.telemetry.events import ConnectorNotRun, ConnectorStored, Event, RestartNeeded
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.levels import parse_level
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import TopicLog


#: What makes a file that of this worker and no other.
_IDENTITY: Final = ("bootstrap.servers", "group.id", "config.storage.topic")


@attrs.define(eq=False)
class Hooks:
    """What a worker calls in its daemon: to read the settings again, and for a flow's new target states."""

    reload: Callable[[], None]
    apply: Callable[[Flow], None]


class ConnectWorker:
    """The connectors of one worker. `read` is how the daemon reads its settings."""

    def __init__(
        self,
        path: Path,
        overrides: Mapping[str, str],
        *,
        clock: Clock,
        events: EventLog,
        is_strict: bool = False,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Read the worker's file at *path*, with *overrides* over it. Raise ConfigError if it is invalid."""
        self._path = path
        self._overrides = overrides
        self._is_strict = is_strict
        self._clock = clock
        self._events = events
        self._jitter = jitter
        self._hooks: Hooks | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changing = asyncio.Lock()
        self._configs: Mapping[str, Mapping[str, str]] = {}
        #: Connectors that have their positions, each of a flow; whether nodes may still write elsewhere where they are.
        self._settled: dict[tuple[Flow, str], bool] = {}
        #: The file as it was last read, of the same worker.
        self._worker = worker = read_worker(path, overrides)
        #: What of the file is left to a restart, as it was last reported.
        self._left: tuple[str, ...] = ()
        self.composition = compose(path, worker, {}, is_strict=is_strict)
        endpoint = _target(self.composition)
        #: Whether its flows may run here.
        self.membership = WorkerMembership(endpoint, self.composition.settings.worker, clock=clock, events=events)
        #: All connectors of the config topic, those that are not run too.
        self.store = ConnectorStore(
            endpoint,
            config_storage(worker),
            leader_id(worker),
            clock=clock,
            events=events,
            jitter=jitter,
            on_change=self._on_change,
            on_request=self._on_request,
        )

    def read(self) -> MirrorSettings:
        """Read the file again, and return the settings with the connectors as last seen. Runs in a thread."""
        self._worker = self._read_again()
        before, now = self.composition.idle, self.composed(self.store.connectors)
        self.composition = now
        # Its password may be another one.
        self.store.endpoint = self.membership.endpoint = _target(self.composed({}))
        for name, idle in now.idle.items():
            if idle != before.get(name):
                self._report(ConnectorNotRun(name, tuple(map(str, idle.problems))))
        return now.settings

    def _read_again(self) -> ParsedFile:
        """Return the file as it is now. That of another worker is left to a restart, all of it: until then this one is
        what it was, as its connectors are in its own topic. Raise ConfigError if it is invalid by itself.
        """
        found, known = read_worker(self._path, self._overrides), self._worker
        compose(self._path, found, {}, is_strict=self._is_strict)
        left = tuple(key for key in _IDENTITY if found.text(key) != known.text(key))
        if left and left != self._left:
            self._report(RestartNeeded(left))
        self._left = left
        return known if left else found

    def _report(self, event: Event) -> None:
        """Emit an event of the thread that reads on the event loop, where sinks expect it."""
        if self._loop is None:
            self._events.emit(event)
        else:
            self._loop.call_soon_threadsafe(self._events.emit, event)

    def composed(self, connectors: Mapping[str, StoredConnector]) -> Composition:
        """Return what *connectors* come to beside the worker's file."""
        return compose(self._path, self._worker, connectors, is_strict=self._is_strict)

    async def run(self, hooks: Hooks) -> None:
        """Follow the config topic until cancelled."""
        self._hooks, self._loop = hooks, asyncio.get_running_loop()
        report = self._events.emit
        await supervise("connectors", self.store.follow, clock=self._clock, jitter=self._jitter, report=report)

    def _on_change(self, names: frozenset[str]) -> None:
        if self._hooks is None:
            return
        configs = {name: one.config for name, one in self.store.connectors.items()}
        if configs != self._configs:
            self._configs = configs
            self._hooks.reload()
        for flow in {place.flow for name in names if (place := self.composition.places.get(name)) is not None}:
            self._hooks.apply(flow)

    def _on_request(self, request: LoggerRequest) -> None:
        if (level := parse_level(request.level)) is not None:
            self._events.set_level(request.name, level)

    # Reading.

    def named(self, view: FlowView) -> FlowView:
        """Return a flow's *view* with the names of its connectors."""
        names = {place.group: name for name, place in self._of_flow(view.flow)}
        groups = (attrs.evolve(group, name=names.get(group.connector, "")) for group in view.groups)
        return attrs.evolve(view, groups=tuple(groups))

    async def check(self, name: str, config: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return the problems that *config* would have as connector *name*, together with all others."""
        before = self.composition.idle
        others = {key: one for key, one in self.store.connectors.items() if key != name}
        problems, now = await self._tried(name, config, others)
        for other, idle in now.idle.items():
            if other in others and other not in before:
                problems.append(Problem(name, "", f"connector {other} could not run beside it: {idle}"))
        return tuple(problems)

    async def check_apart(self, name: str, config: Mapping[str, str]) -> tuple[Problem, ...]:
        """Return the problems that *config* would have: those of a connector that exists together with all others, and
        by itself under any other name, as tools make one up.
        """
        if name in self.store.connectors:
            return await self.check(name, config)
        problems, _ = await self._tried(name, config, {})
        return tuple(problems)

    async def _tried(
        self, name: str, config: Mapping[str, str], others: Mapping[str, StoredConnector]
    ) -> tuple[list[Problem], Composition]:
        return await asyncio.to_thread(own_problems, name, config, others, self.composed)

    # Changing.

    async def put(
        self, name: str, config: Mapping[str, str], *, by: str, wanted: Wanted | None = None, is_new: bool = False
    ) -> bool:
        """
        Create or change a connector; return whether it was created. Secrets that are shown masked are kept.

        Raise ConfigError with all problems, OverrideConflictError if *is_new* and there is one of that name, and
        ConnectorsNotStoredError.
        """
        created = False

        async def decide() -> list[KeyValue]:
            nonlocal created
            created = name not in self.store.connectors
            if is_new and not created:
                raise OverrideConflictError(f"Connector {name} already exists")
            states = [] if wanted is None else [state_record(name, wanted)]
            return [*states, await self._judged(name, config)]

        async with self._changing:
            await self.store.change(decide)
        self._events.emit(ConnectorStored(name, "created" if created else "changed", by))
        return created

    async def patch(self, name: str, changes: Mapping[str, str | None], *, by: str) -> None:
        """Change some settings of a connector, None to remove them (KIP-477). Raise UnknownConnectorError, and as
        `put`.
        """

        async def decide() -> list[KeyValue]:
            merged = {**self._known(name).config, **changes}
            return [await self._judged(name, {key: text for key, text in merged.items() if text is not None})]

        async with self._changing:
            await self.store.change(decide)
        self._events.emit(ConnectorStored(name, "changed", by))

    async def _judged(self, name: str, config: Mapping[str, str]) -> KeyValue:
        """Return the record of a connector's config. Raise ConfigError with all problems."""
        known = self.store.connectors.get(name)
        given, lost = unmasked(config, {} if known is None else known.config)
        problems = [Problem(name, key, "is masked, and no such secret is stored: send the secret") for key in lost]
        problems += await self.check(name, given)
        if problems:
            raise ConfigError(tuple(problems))
        return config_record(name, given, created_ms(name, given, self.store.connectors, now_ms=self._clock.wall_ms()))

    async def delete(self, name: str, *, by: str) -> None:
        """Remove a connector; its offsets stay. Raise UnknownConnectorError, ConnectorsNotStoredError."""
        await self._write_of(name, config_record(name, None), state_record(name, None))
        self._events.emit(ConnectorStored(name, "deleted", by))

    async def want(self, name: str, wanted: Wanted, *, by: str) -> None:
        """Set a connector's target state. Raise UnknownConnectorError, ConnectorsNotStoredError."""
        await self._write_of(name, state_record(name, wanted))
        self._events.emit(ConnectorStored(name, wanted.value, by))

    async def set_log_level(self, name: str, level: str) -> None:
        """Have all nodes, this one too, log from a level on. Raise ConnectorsNotStoredError."""

        async def decide() -> Sequence[KeyValue]:
            return [logger_record(LoggerRequest(name, level))]

        async with self._changing:
            await self.store.change(decide)

    async def _write_of(self, name: str, *records: KeyValue) -> None:
        """Write *records* of a connector, if there is one of that name."""

        async def decide() -> Sequence[KeyValue]:
            self._known(name)
            return records

        async with self._changing:
            await self.store.change(decide)

    def _known(self, name: str) -> StoredConnector:
        if (known := self.store.connectors.get(name)) is None:
            raise UnknownConnectorError("", name)
        return known

    # A connector's first start.

    async def take_over(self, settings: FlowSettings, *, from_nodes: bool = False) -> None:
        """
        Let a flow go on where its connector stood, or one that it replaces. Raise the clusters' errors.

        Once more where it continues *from_nodes* that had a part of it until now: one of a former version, or one that
        has just learnt of the connector's new name, has written how far it came where that was kept before.
        """
        flow, name = settings.flow, settings.source_connector.name
        for one, place in self._of_flow(flow):
            stored = self.store.connectors.get(one)
            if place.group != SOURCE or stored is None:
                continue
            if not self._settled.get((flow, one), True) if from_nodes else (flow, one) in self._settled:
                continue
            may_be_more = False
            if kind_of(stored.config.get("connector.class", "").strip()) is ConnectorClass.MIRUS:
                if not from_nodes:
                    await take_over_from_mirus(settings, one, clock=self._clock, report=self._events.emit)
            elif one == name:
                may_be_more = await take_over_positions(
                    settings,
                    living=self.store.connectors.keys(),
                    worker=self.store.endpoint,
                    clock=self._clock,
                    report=self._events.emit,
                )
            self._settled[flow, one] = may_be_more

    # Target states of a flow's task groups; see `OverrideControl`.

    def states(self, flow: Flow) -> dict[str, Wanted]:
        """Return the target states of a flow's task groups that are not to run."""
        return {
            place.group: one.wanted
            for name, place in self._of_flow(flow)
            if (one := self.store.connectors.get(name)) is not None and one.wanted is not Wanted.RUNNING
        }

    async def set_states(self, flow: Flow, wanted: Mapping[str, Wanted], *, by: str) -> None:
        """Set the target states of a flow's task groups."""
        names = {place.group: name for name, place in self._of_flow(flow)}
        if Wanted.DELETED in wanted.values():
            what = ", ".join(f"/connectors/{names[group]}" for group in wanted if group in names)
            raise OverrideConflictError("a connector of this worker is deleted at its own address", f"DELETE {what}")
        for group, one in wanted.items():
            if group in names:
                await self.want(names[group], one, by=by)

    def _of_flow(self, flow: Flow) -> Iterator[tuple[str, Place]]:
        return ((name, place) for name, place in self.composition.places.items() if place.flow == flow)


def _target(alone: Composition) -> ClusterEndpoint:
    """Return how a worker without connectors reaches its cluster."""
    [endpoint] = alone.settings.clusters.values()
    return endpoint


def worker_group(path: Path) -> str | None:
    """Return the group of a distributed worker's file; None if *path* is another kind of file."""
    entries = read_worker(path).entries
    if "clusters" in entries or not {"config.storage.topic", "group.id"} <= entries.keys():
        return None
    return entries["group.id"].value.strip()


async def read_worker_settings(path: Path, clock: Clock) -> Composition:
    """Read the worker's file and its connectors. Raise ConfigError if the file is invalid."""
    worker = read_worker(path)
    endpoint = _target(compose(path, worker, {}))
    topic, stored = config_storage(worker).topic, ConnectorsTopic()
    async with Cluster(endpoint, clock) as cluster:
        if await cluster.has_topic(topic):
            for record in await TopicLog(cluster, topic).read_all():
                stored.take(record.key, record.value)
    return compose(path, worker, stored.connectors)
