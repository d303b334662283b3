"""
Notices within seconds that a cluster does not answer, however long requests to it may take.

One of its brokers is asked every two seconds, by one flow of the node for all that come to it in the same way. If that
flow begins again meanwhile, or gives its tasks away, the next one goes on from there. While no broker answers, another
one is asked each second, on a connection of its own: that one broker is frozen, or that a request which takes long is
in front of the question, is no absence. A late answer is one all the same; but what has been silent is back only once
it answers promptly, so that a slow cluster does not come and go.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterable
from typing import Any, Final

import attrs

from mm2py.clock import Clock
from mm2py.connectors.known_clusters import Pulse, Silence
from mm2py.connectors.reach import Reach
from mm2py.errors import ClusterSilentError, Mm2Error
from mm2py.pipeline.spark.patience import Patience
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import MetadataRequest
from mm2py.wire.security.access import BrokerAccessError


_STEP: Final = "look at the brokers"
_EVERY_S: Final = 2.0
#: Longer than a broker that collects garbage, and shorter than what operators wait.
_SILENT_S: Final = 5.0
_NO_ANSWER: Final = f"no answer within {_SILENT_S:g} s"
#: How long each broker is waited for until the next one is asked, too; and how often after all were.
_NEXT_S: Final = 1.0
_AGAIN_S: Final = 5.0


@attrs.frozen
class _Answer:
    """What came of a question. The failure of one broker says nothing of the others, unless it lets nobody in."""

    begun: float
    is_alone: bool
    error: Mm2Error | None = None

    @property
    def is_telling(self) -> bool:
        return self.error is None or not self.is_alone or isinstance(self.error, BrokerAccessError)


class ClusterPulse:
    """Watches *clusters* for one flow, which knows their *reach*."""

    def __init__(self, reach: Reach, clock: Clock, clusters: Iterable[Cluster]) -> None:
        self._reach = reach
        self._clock = clock
        self._clusters = clusters

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for cluster in self._clusters:
                tasks.create_task(self._watch(cluster), name=f"pulse/{cluster.alias}")

    async def _watch(self, cluster: Cluster) -> None:
        while True:
            await self._clock.sleep(_EVERY_S)
            with self._reach.pulse(cluster.alias, _EVERY_S) as pulse:
                if pulse is not None:
                    await self._ask(cluster, pulse)

    async def _ask(self, cluster: Cluster, pulse: Pulse) -> None:
        """Ask a cluster until something comes of it, and report that it is away while nothing does."""
        begun = self._clock.monotonic()
        silence = pulse.silence or Silence(begun, _SILENT_S)
        since, patience = silence.since, Patience(silence.left_s, self._clock)
        async with asyncio.TaskGroup() as tasks:
            questions = _Questions(cluster, self._clock, tasks)
            while (answer := await questions.answer()) is None:
                if (heard_at := self._reach.heard_at(cluster.alias)) > since:  # another step was answered
                    patience, since = Patience(_SILENT_S, self._clock), heard_at
                elif patience.is_over():
                    error = ClusterSilentError(cluster.alias, ",".join(cluster.servers()), _NO_ANSWER)
                    self._reach.failed(_STEP, error, begun=since)
                    patience = Patience(_SILENT_S, self._clock)
                pulse.silence = Silence(since, patience.left_s)
            questions.end()
        pulse.silence = None
        if answer.error is None:
            self._reach.answered([cluster.alias], _STEP, begun=answer.begun)
        elif self._reach.heard_at(cluster.alias) <= begun:
            self._reach.failed(_STEP, answer.error, begun=begun)


class _Questions:
    """The same question to one broker of a cluster after the other, until there is an answer."""

    def __init__(self, cluster: Cluster, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._cluster = cluster
        self._clock = clock
        self._tasks = tasks
        servers = cluster.servers()
        self._next = itertools.chain(
            zip(servers, itertools.repeat(_NEXT_S)), zip(itertools.cycle(servers), itertools.repeat(_AGAIN_S))
        )
        self._due_at = clock.monotonic() + _NEXT_S
        self._asked: set[asyncio.Task[_Answer]] = set()
        self._put(cluster.refresh_metadata(()), is_alone=False)

    async def answer(self) -> _Answer | None:
        """Return what came of it; None if that is nothing yet, once it is time to look at the clock."""
        done, self._asked = await asyncio.wait(self._asked, timeout=_NEXT_S, return_when=asyncio.FIRST_COMPLETED)
        found = next((it for it in (task.result() for task in done) if it.is_telling), None)
        if found is None and self._clock.monotonic() >= self._due_at:
            server, pause_s = next(self._next)
            self._due_at = self._clock.monotonic() + pause_s
            self._put(self._cluster.ask_server(server, MetadataRequest(())), is_alone=True)
        return found

    def _put(self, question: Coroutine[Any, Any, object], *, is_alone: bool) -> None:
        begun = self._clock.monotonic()

        async def answer() -> _Answer:
            try:
                await question
            except Mm2Error as error:
                return _Answer(begun, is_alone, error)
            return _Answer(begun, is_alone)

        self._asked.add(self._tasks.create_task(answer(), name=f"{self._cluster.alias}/pulse/question"))

    def end(self) -> None:
        """Wait for no other answers."""
        for task in self._asked:
            task.cancel()
