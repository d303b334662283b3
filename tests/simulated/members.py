"""
Nodes that run nothing but their place in a flow's group, or in a worker's: the product's own memberships, each of which
a model (`membership_model.py`) has befall what it wants, and looks at.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import attrs

from mm2py.config.worker import WorkerConfig
from mm2py.connectors.task_group import AnyGroup
from mm2py.herder.node_context import NodeContext
from mm2py.herder.runner import FlowRunner
from mm2py.herder.worker_membership import WorkerMembership
from mm2py.model.flow import Flow
from mm2py.model.herder.node import Node
from mm2py.model.herder.share import NO_SHARE, Share, whole_share
from mm2py.telemetry.events import Event, FlowRunsElsewhere, FlowUnguarded, WorkerRunsElsewhere, WorkerUnguarded
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.groups.membership import Membership
from tests.simulated.loop import HOST, Host
from tests.support.flow_rig import SETTINGS, changed, flow_context
from tests.support.memberships import alone


if TYPE_CHECKING:
    from tests.simulated.membership_model import Model


TASKS: Final = 3
SESSION_S: Final = 6.0
GROUP: Final = "A-mm2"
#: A node that is in touch for so long has asked its group, and has been answered.
ASKED_S: Final = 2 * SESSION_S


class Works:
    """Stands for a task group: what it was given, and what it may still do of what it had."""

    is_for_owner = has_failed = False

    def __init__(self, draw: random.Random) -> None:
        self.given = self.works = NO_SHARE
        self._draw = draw
        self._is_released = asyncio.Event()

    @property
    def requests(self) -> Works:
        return self

    @property
    def is_admitted(self) -> bool:
        return not self.given.is_empty

    def give(self, share: Share, _why: str = "", _hint: str = "") -> None:
        """Begin what is new at once; what is not in it any more ends after a while."""
        self.given, self.works = share, self.works | share
        asyncio.get_running_loop().call_later(self._draw.uniform(0.01, 4.0), self._release)

    def depose(self) -> None:
        """End all at once, and begin again."""
        self.works = NO_SHARE
        asyncio.get_running_loop().call_later(0.1, self._begin)

    def _begin(self) -> None:
        self.works |= self.given

    def _release(self) -> None:
        self.works &= self.given
        self._is_released.set()

    def suspend(self, why: str) -> None:
        """Do nothing: who is not certain is not asked what it does."""

    async def until_released(self) -> None:
        """Wait until nothing is done beyond what was given."""
        while self.works - self.given != NO_SHARE:
            self._is_released.clear()
            await self._is_released.wait()


class Member:
    """A node with its place in the group; a process at a time."""

    def __init__(self, model: Model, name: str, instance: str) -> None:
        self.model, self.name, self.instance = model, name, instance
        self.host = Host(model.loop, name)
        self.runs = itertools.count(1)
        self.task: asyncio.Task[Any] | None = None
        #: Whether brokers refuse it the group, and for which time.
        self.is_refused = False
        self.refusals = 0
        #: What keeps it from asking the group now, and until when something did.
        self.hindrances, self.hindered_until = 0, 0.0
        self.told: collections.Counter[tuple[Host, int, str]] = collections.Counter()

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done() and not self.host.is_dead

    @property
    def is_in_touch(self) -> bool:
        return self.is_running and not self.hindrances and self.hindered_until + ASKED_S < self.model.loop.time()

    def node(self) -> Node:
        return Node(self.name, self.host.pid, f"machine of {self.name}", "1", instance=self.instance)

    def start(self) -> None:
        """Start a process unless one runs."""
        if not self.is_running:
            self.host = Host(self.model.loop, self.name)
            self.host.pid = next(self.runs)
            self.hindered_until = self.model.loop.time()
            self.task = self.host.start(self.live(), self.name)

    async def live(self) -> None:
        """Be a member until cancelled."""
        raise NotImplementedError

    def wrong(self) -> Iterator[str]:
        """Return what is not as it has to be at any time."""
        raise NotImplementedError

    def said(self, event: Event) -> None:
        """Note what is to be told once."""
        match event:
            case FlowUnguarded(error=error) | WorkerUnguarded(error=error) if "GROUP_AUTHORIZATION_FAILED" in error:
                told = self.refusals, error
            case FlowRunsElsewhere(node=node) | WorkerRunsElsewhere(node=node) if "Java" in node:
                told = self.model.occupations, node
            case _:
                return
        self.told[self.host, *told] += 1
        if self.told[self.host, *told] > 1:
            self.model.fail(f"{self.name} says twice of one time: {event}")


class FlowMember(Member):
    """Shares a flow."""

    async def live(self) -> None:
        model = self.model
        events = EventLog(model.clock, self.said)
        worker = attrs.evolve(SETTINGS.worker, instance=self.instance)
        copying = attrs.evolve(SETTINGS.source_connector.copying, tasks_max=TASKS)
        settings = changed(SETTINGS, target=model.target, worker=worker, copying=copying)
        context = flow_context(model.clock, events, settings)
        #: It is not guarded, or still ends what it did then.
        self.is_loose = False
        self.context, self.works = context, Works(model.draw)

        async def take_over() -> None:
            await asyncio.sleep(model.draw.uniform(0.0, 1.0))

        self.its = alone(context, NodeContext(self.node, before_takeover=take_over))
        self.its.begin([cast("AnyGroup", self.works)])
        await self.its.run()

    @property
    def is_sure(self) -> bool:
        """Whether it knows of a share that is its own."""
        if not self.context.writers.is_guarding:
            self.is_loose = True
        elif self.works.works - self.works.given == NO_SHARE:
            self.is_loose = False
        is_guarded = not self.is_loose and self.its.share.shared is not None
        return self.is_running and self.host.is_up and is_guarded and self.its._certainty.is_certain

    @property
    def state(self) -> str:
        """Return the name of what it is in."""
        its, share = self.its, self.its.share
        if its._is_fenced:
            return "fenced"
        if share._unguarded_by and share._taken_at is None and not its._is_joining:
            return "unguarded"
        if share.shared is None:
            return "occupied" if share._taken_at is not None else "joining" if its._is_joining else "away"
        if not its._certainty.is_certain or share._settled < share._doubts or share._was_ours:
            return "doubted"
        return "releasing" if share.held != share._share else "joining" if its._is_joining else "member"

    def wrong(self) -> Iterator[str]:
        if not self.is_running or not self.host.is_up:
            return
        state, given = self.state, self.works.given
        self.model.states[state] += 1
        wanted = {"unguarded": whole_share(TASKS), "member": self.its.share._share}
        wanted |= dict.fromkeys(("fenced", "occupied"), NO_SHARE)
        if given != wanted.get(state, given):
            yield f"{self.name} is {state}, and was given {given} (owner: {given.is_owner})"
        if state == "unguarded" and self.is_in_touch and not self.is_refused:
            yield f"{self.name} is unguarded for good"
        if self.is_in_touch and self.model.is_occupied_long and self.works.works != NO_SHARE and not self.is_refused:
            yield f"{self.name} works while the group is Java's"


class WorkerMember(Member):
    """Runs a worker's flows while the worker's group is not Java's."""

    async def live(self) -> None:
        model = self.model
        events = EventLog(model.clock, self.said)
        self.runs_flows = False
        settings = WorkerConfig(GROUP)
        self.its = WorkerMembership(model.target, settings, clock=model.clock, events=events)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run_flows(), name="flows")
            await self.its.run(self.node)

    async def _run_flows(self) -> None:
        while True:
            await self.its.admit(cast("FlowRunner", self))
            if self.model.is_occupied and not self.is_refused:
                self.model.fail(f"{self.name} begins while the group is Java's")
            self.runs_flows = True
            await self.its.until_closed()
            self.runs_flows = False

    flow = Flow("A", "B")

    def hold(self, error: object, _state: object = None) -> None:
        """Note that the flow waits."""
        self.model.states["held" if error is not None else "admitted"] += 1

    def wrong(self) -> Iterator[str]:
        if self.is_in_touch and self.host.is_up and self.model.is_occupied_long and self.runs_flows:
            yield f"{self.name} runs flows while the group is Java's"


class Place(Membership):
    """A place in the group that brokers may refuse."""

    async def _ask(self, request: Any, name: str, *judge: Any, **others: Any) -> Any:
        member = MEMBERS.get(HOST.get())
        if member is not None and member.is_refused:
            raise error_of(ErrorCode.GROUP_AUTHORIZATION_FAILED, "B", name, self.group)
        return await super()._ask(request, name, *judge, **others)


#: Who runs on which host.
MEMBERS: dict[Host | None, Member] = {}
