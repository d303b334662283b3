"""A node by name: the product's own daemon, which can be started, drained, killed, frozen, and started again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mm2py import daemon
from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.connectors.supervise import supervise
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.herder.replication_loops import judged
from mm2py.model.state import MirrorView
from mm2py.rest.server import RestServer
from mm2py.telemetry.events import Event
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metrics import Metrics
from tests.simulated.epochs import SimEpochs
from tests.simulated.loop import Host, SimClock, SimLoop
from tests.simulated.network import Network


class SimNode:
    """A node by name: it can be started, drained, killed, frozen, and started again."""

    def __init__(
        self,
        name: str,
        file: Path,
        loop: SimLoop,
        clock: SimClock,
        *,
        is_worker: bool,
        network: Network,
        tell: Callable[..., None],
        connectors: Sequence[Path] = (),
    ) -> None:
        self.name = name
        self.file = file
        #: The files of a standalone worker's connectors.
        self.connectors = connectors
        self.is_worker = is_worker
        #: Whether its file is another one now than that of its start, which lies beside it.
        self.is_changed = False
        self.host: Host | None = None
        self.node: daemon.MirrorMaker | None = None
        self.rest: RestServer | None = None
        self.task: asyncio.Task[Any] | None = None
        self.is_wanted = False
        self._loop, self._clock, self._network, self._tell = loop, clock, network, tell
        self._runs = 0

    @property
    def is_running(self) -> bool:
        """Whether its process is there, frozen or not."""
        return self.host is not None and not self.host.is_dead and self.task is not None and not self.task.done()

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        is_alive = self.host is not None and not self.host.is_dead
        return is_alive and self.is_wanted and self.task is not None and self.task.done()

    @property
    def failure(self) -> BaseException | None:
        """Why it has ended."""
        return None if self.task is None or self.task.cancelled() else self.task.exception()

    @property
    def is_able(self) -> bool:
        """Whether it runs and is not frozen."""
        return self.is_running and self.host is not None and not self.host.is_frozen

    @property
    def epochs(self) -> SimEpochs | None:
        """What the daemon runs its epochs with, once it has started."""
        return self.host.epochs if self.host is not None else None

    @property
    def workers(self) -> list[Host]:
        """Return its worker processes."""
        return [host for host, _ in self.epochs.workers.values()] if self.epochs is not None else []

    @property
    def hosts(self) -> list[Host]:
        """Return the daemon's process and those of its workers."""
        return [*([self.host] if self.host is not None else []), *self.workers]

    def start(self) -> None:
        """Start it unless it runs."""
        if self.is_running:
            return
        if self.host is not None and not self.host.is_dead:  # it was drained, and its Spark ended with it
            self._lose(self.workers)
        self._runs += 1
        self.host = Host(self._loop, self.name)
        self.host.pid = self._runs
        self.is_wanted = True
        self.task = self.host.start(self._run(), name=self.name)
        self._tell(self.name, "start")

    async def _run(self) -> None:
        """Run as `cli.running.run_node` does, without what it has to do with signals and files."""
        clock, events = self._clock, EventLog(self._clock, self._said)
        worker = ConnectWorker(self.file, {}, clock=clock, events=events) if self.is_worker else None

        def read() -> MirrorSettings:
            if self.connectors:
                return judged(standalone_settings(self.file, self.connectors))
            return judged(worker.read() if worker is not None else load_settings(self.file))

        node = daemon.MirrorMaker(
            read(), clock=clock, events=events, jitter=random.random, read_again=read, worker=worker
        )
        rest = RestServer(node, clock=clock, events=events, metrics=Metrics(events))
        node.rest_address = lambda: rest.rest.worker_id
        self.node, self.rest = node, rest
        async with asyncio.TaskGroup() as tasks:
            serving = supervise("rest", rest.run, clock=clock, jitter=random.random, report=events.emit)
            beside = tasks.create_task(serving, name="rest")
            await node.run()
            beside.cancel()

    def reload(self) -> None:
        """Change its file, or change it back, and have it read that again, as by SIGHUP; one that starts reads it."""
        self.is_changed = not self.is_changed
        link = self.file.with_suffix(".next")
        link.symlink_to(self.file.with_suffix(".changed" if self.is_changed else ".first"))
        link.replace(self.file)
        if self.node is not None and self.host is not None:
            self.host.call_later(0, self.node.request_reload)

    def _said(self, event: Event) -> None:
        self._tell(self.name, "says", event)

    def view(self) -> MirrorView:
        """Return what it says of itself."""
        assert self.host is not None
        assert self.node is not None
        return self.host.context.copy().run(self.node.view)

    def stop(self) -> None:
        """Ask it to drain and end."""
        self.is_wanted = False
        if self.node is not None and self.rest is not None and self.host is not None:
            self.host.call_later(0, self.rest.drain)
            self.host.call_later(0, self.node.request_stop, "the operator")

    def kill(self, *, with_workers: bool = True) -> None:
        """Lose the daemon; its workers too, or they go on to the end of their epochs."""
        assert self.host is not None
        idle = self.epochs.idle_workers() if self.epochs is not None else []
        self._lose(self.hosts if with_workers else [self.host, *idle])

    def _lose(self, hosts: list[Host]) -> None:
        for host in hosts:
            host.kill()
            self._network.drop_host(host)

    def freeze(self) -> None:
        """Stop all its processes where they stand."""
        for host in self.hosts:
            host.freeze()

    def thaw(self) -> None:
        """Have what is frozen go on."""
        for host in self.hosts:
            if host.is_frozen and not host.is_dead:
                host.thaw()

    def turn_clock(self, ms: int) -> None:
        """Set its machine's wall clock, which is so much ahead then."""
        for host in self.hosts:
            host.clock_ahead_ms = ms
