"""
What operators ask nodes for by REST, one request after the other, and what must come of it.

A request that was answered counts: each node that has been able to hear of it for a while shows it, whatever befell
the nodes meanwhile. One that was not answered may be carried out or not, and late; nothing is expected of what it was
about until something else is known.
"""

from __future__ import annotations

import asyncio
import math
import random
from typing import TYPE_CHECKING, Any

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import MirrorView
from tests.simulated import settings
from tests.simulated.faults.kind import duration
from tests.simulated.http import Answer, ask
from tests.simulated.node import SimNode
from tests.simulated.verbs import AS_STORED, SHOWN, USUAL, VERBS, VERBS_APART, Connectors, Request


if TYPE_CHECKING:
    from tests.simulated.world import World


FLOW = Flow("A", "B")
#: What was asked and not answered may be carried out so much later: what was sent is read within 40 s.
_UNSURE_S = 100.0
#: All nodes that are awake and reach the target have heard of a change by then.
_HEARD_S = 45.0
#: How often offsets are tried to be altered, which is refused until all has stopped.
_TRIES, _PAUSE_S = 6, 3.0
_BUG = 500


class Operators:
    """All who ask for something; they wait for each other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._turn = asyncio.Lock()
        self._draw = random.Random(f"operators {world.options.seed}")
        self._all = Connectors.of(world.options)
        #: The source connectors of the pair.
        self._sources = [it for it in self._all if not it.is_apart]
        self._configs = settings.connectors(world.options, world.source.servers)
        #: What is so since when, by what it is of, as far as that is known.
        self._known: dict[str, tuple[float, object]] = {it: (0.0, value) for it, value in USUAL.items()}
        #: Until when something that was not answered may be carried out.
        self._unsure_until: dict[str, float] = {}
        self._undoing: asyncio.Task[None] | None = None
        #: When offsets may have been altered last.
        self.altered_at = -math.inf
        #: Whether it is at the end of a round that things are undone; what still waits for its turn is not asked then.
        self.is_peace = False

    def begin(self) -> None:
        """Create what runs, where no file says it."""
        if self._world.options.is_worker:
            self._known.clear()
            self.undo()

    # Asking.

    def ask_for_something(self, draw: random.Random) -> str:
        """Have something asked of a node, and undone later; return what, nothing if none runs."""
        node = self._world.a_node(draw)
        if node is None:
            return ""
        able = self._of(node)
        name = draw.choice(VERBS_APART if able[0].is_apart else (*VERBS, "offsets", "offsets"))
        which = draw.choice(able) if len(able) > 1 else able[0]
        work = self._alter(node, draw) if name == "offsets" else self._ask_all(node, VERBS[name](which, draw))
        self._world.outside.start(work, f"operator {name}")
        self._world.outside.call_later(duration(draw), self._undo_later)
        return f"{which.prefix}{name} at {node.name}"

    def undo(self) -> None:
        """Have all as it was at first, however long that takes."""
        if self._undoing is None or self._undoing.done():
            self._undoing = self._world.outside.start(self._undo(), "operator undoes")

    def _undo_later(self) -> None:
        if not self.is_peace:
            self.undo()

    async def _ask_all(self, node: SimNode, requests: list[Request]) -> None:
        async with self._turn:
            for request in requests if not self.is_peace else ():
                await self._ask(node, request)

    async def _ask(self, node: SimNode, request: Request) -> Answer | None:
        world, before = self._world, {what: self._known.pop(what, None) for what in request.brings}
        answer = await ask(world.loop, node.name, request.method, request.path, request.body)
        now = world.loop.time()
        said = "no answer" if answer is None else f"{answer.status} {'' if answer.is_ok else answer.body!s:.160}"
        world.journal.tell("operator", request.method, request.path, node.name, said)
        if answer is not None and answer.status == _BUG:
            world.checker.fail(f"{node.name} answered {request.method} {request.path} with {answer.body!s:.200}")
        for what, value in request.brings.items():
            was = before[what]
            if answer is None or answer.status >= _BUG:
                self._unsure_until[what] = now + _UNSURE_S
            elif answer.is_ok and request.spares and (was is None or was[1] in request.spares):
                self._known |= {} if was is None else {what: was}
            elif answer.is_ok and self._unsure_until.get(what, 0.0) < now:
                self._known[what] = (now, value) if was is None or was[1] != value else was
            elif not answer.is_ok and was is not None:
                self._known[what] = was
        return answer

    async def _is_done(self, node: SimNode, request: Request) -> bool:
        answer = await self._ask(node, request)
        return answer is not None and answer.is_ok

    async def _undo(self) -> None:
        left = {it.is_apart for it in self._all}
        while left:
            async with self._turn:
                node = self._world.a_node(self._draw)
                if node is not None and settings.is_apart(node.name) in left and await self._undone(node):
                    left.remove(settings.is_apart(node.name))
            if left:
                await asyncio.sleep(2.0)

    def _of(self, node: SimNode) -> list[Connectors]:
        """Return the connectors that a node's worker has."""
        return [it for it in self._all if it.is_apart is settings.is_apart(node.name)]

    async def _undone(self, node: SimNode) -> bool:
        is_worker = self._world.options.is_worker
        for of, which in ((one, kind) for one in self._of(node) for kind in one.kinds if is_worker):
            name, wanted = of.name(which), of.known(**{which: Wanted.RUNNING})
            path, config = f"/connectors/{name}", {**self._configs[name], "name": name}
            there = await self._ask(node, Request("GET", f"{path}/config"))
            if (there is None or there.body != config) and not await self._is_done(
                node, Request("PUT", f"{path}/config", config)
            ):
                return False
            if not await self._is_done(node, Request("PUT", f"{path}/resume", brings=wanted)):
                return False
        for one in self._of(node):
            usual = one.known(**(AS_STORED if is_worker else USUAL))
            if not await self._is_done(node, Request("DELETE", one.at_flow("/overrides"), brings=usual)):
                return False
        for other in self._world.nodes.values():
            if other.is_able:
                await self._ask(other, Request("PUT", "/node/resume"))
        return True

    # Offsets.

    async def _alter(self, node: SimNode, draw: random.Random) -> None:
        """Stop the source connector and set a partition to another offset; it begins there when all is undone."""
        source = draw.choice(self._world.source.partitions_of(settings.TOPICS))
        topic = source.topic
        if source.stable < 1:
            return
        last = draw.randrange(source.stable)
        place = {"cluster": "A", "topic": topic, "partition": source.number}
        body = {"offsets": [{"partition": place, "offset": {"offset": last}}]}
        partition, of = TopicPartition(topic, source.number), self._source_of(topic)
        async with self._turn:
            if self.is_peace or not await self._is_done(
                node, Request("PUT", of.at("source", "/stop"), brings=of.known(source=Wanted.STOPPED))
            ):
                return
            for _ in range(_TRIES):
                self._world.checker.may_be_altered(partition, last + 1)
                self.altered_at = self._world.loop.time()
                answer = await self._ask(node, Request("PATCH", of.at("source", "/offsets"), body))
                if answer is None or answer.status >= _BUG:
                    return  # it may be so, and later
                if answer.is_ok:
                    await self._read_back(node, partition, last)
                    return
                self._world.checker.is_not_altered(partition)
                await asyncio.sleep(_PAUSE_S)

    async def _read_back(self, node: SimNode, partition: TopicPartition, last: int) -> None:
        if self._world.checker.is_awaited(partition):
            self._world.checker.fail(f"{node.name} has altered {partition}, it says, and no such position is stored")
        answer = await self._ask(node, Request("GET", self._source_of(partition.topic).at("source", "/offsets")))
        if answer is None or not answer.is_ok:
            return
        shown = {_place(it["partition"]): it["offset"] for it in answer.body["offsets"]}
        source = self._world.source.partition(partition.topic, partition.partition)
        at = shown.get(partition, {}).get("offset", -1)
        if source is not None and not last <= at <= max(last, source.start - 1):
            self._world.checker.fail(f"{node.name} shows {at} of {partition}, altered to {last}")

    # What must come of it.

    def forgotten(self, node: SimNode, view: MirrorView, calm_since: float) -> list[str]:
        """
        Return what a node, whose *view* is given, does not show of what operators asked for, though it has been able to
        hear of it.
        """
        now = self._world.loop.time()
        control = node.node.control if node.node is not None else None
        found, flows = list[str](), {it.flow for it in view.flows}
        for of in self._of(node):
            if control is None or of.flow not in flows:
                continue
            overrides = control.overrides(of.flow)
            for name, show in SHOWN.items():
                at, value = self._known.get(f"{of.prefix}{name}", (now, None))
                if max(at, calm_since) <= now - _HEARD_S and (shown := show(overrides)) != value:
                    found.append(f"{of.prefix}{name} is {shown}; an operator has made it {value} {now - at:.0f} s ago")
        return found

    def _source_of(self, topic: str) -> Connectors:
        """Return the source connector that copies a topic: one alone copies all."""
        return next(it for it in self._sources[::-1] if not it.is_aside or topic == settings.TOPIC_ASIDE)

    def forbids(self, topic: str, calm_since: float) -> str:
        """Return why a topic of the source must not be copied now; empty if it may be."""
        within_s, prefix = _HEARD_S + self._world.options.epoch_ms / 1000, self._source_of(topic).prefix
        for what, (at, value) in self._known.items():
            is_held = what == f"{prefix}source" and value is not Wanted.RUNNING
            is_held = is_held or (what == f"{prefix}topics" and isinstance(value, list) and topic in value)
            if is_held and max(at, calm_since) <= self._world.loop.time() - within_s:
                return f"{what} is {value} since {at:.0f} s"
        return ""


def _place(shown: dict[str, Any]) -> TopicPartition:
    return TopicPartition(shown["topic"], int(shown["partition"]))
