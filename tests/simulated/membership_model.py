"""
A model of memberships: one to three nodes of a flow, or of a worker, in virtual time at a simulated coordinator. What
befalls them comes from a seed; at each look it is checked what each node has by what it knows, and that each failure is
told once. `python -m tests.simulated.membership_model KIND FROM COUNT` runs so many seeds and prints what was violated,
and how often nodes were seen in which state.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import math
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from unittest import mock

from mm2py.herder import membership, worker_membership
from mm2py.herder.leader import GroupLeader
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.herder.share import NO_SHARE, decode_candidate, decode_shared_flow
from tests.simulated.cluster import Cluster
from tests.simulated.coordination import GroupState
from tests.simulated.loop import Host, SimClock, SimLoop
from tests.simulated.members import ASKED_S, GROUP, MEMBERS, TASKS, FlowMember, Member, Place, WorkerMember
from tests.simulated.network import Network
from tests.simulated.taming import tamed


_LOOKS_S, _LASTS_S, _PEACE_S, _QUIET_S = 0.2, 90.0, 90.0, 15.0
#: How often the group may rebalance in peace.
_MOST_REBALANCES: Final = 3
#: A process learns by then that another one has taken its name.
_BEAT_S: Final = 3.0


class Model:
    """Nodes, their group's coordinator, and what befalls them."""

    def __init__(self, kind: type[Member], seed: int) -> None:
        self.draw = random.Random(f"members {seed}")
        self.loop = SimLoop(seed)
        self.clock = SimClock(self.loop)
        self.network = Network(self.loop, seed)
        self.cluster = Cluster("B", self.loop, self.network, seed, brokers=1)
        self.target = ClusterEndpoint("B", (self.cluster.servers,))
        is_static = kind is FlowMember and self.draw.random() < 0.4
        self.members = [
            kind(self, f"n{it}", f"i{it}" if is_static else "") for it in range(self.draw.choice((1, 2, 3)))
        ]
        self.twins = [kind(self, f"{it.name}-twin", it.instance) for it in self.members if it.instance]
        self.outside = Host(self.loop, "outside")
        self.violations: list[str] = []
        self.states: collections.Counter[str] = collections.Counter()
        self.befell: list[str] = []
        self.occupations = 0
        self._occupied_since: float | None = None
        #: When several processes had a name last.
        self._doubled: dict[str, float] = {}

    def fail(self, what: str) -> None:
        """Note what is wrong."""
        self.violations.append(f"{self.loop.time():.1f} s: {what}; before that: {'; '.join(self.befell[-8:])}")

    @property
    def is_occupied(self) -> bool:
        return self._occupied_since is not None

    @property
    def is_occupied_long(self) -> bool:
        return self._occupied_since is not None and self._occupied_since + ASKED_S < self.loop.time()

    # What befalls them.

    def _all(self) -> list[Member]:
        return [*self.members, *self.twins]

    def kill(self, member: Member) -> None:
        """Lose a process, which is started again."""
        member.host.kill()
        self.network.drop_host(member.host)
        self._later(15.0, member.start)

    def freeze(self, member: Member) -> None:
        """Have a process stand still."""
        member.host.freeze()
        self._hinder(20.0, [member], member.host.thaw)

    def cut(self, member: Member) -> None:
        """Have nothing pass between a node and its coordinator."""
        ways = (member.name, "b0"), ("b0", member.name)
        self.network.block(*ways)
        self._hinder(20.0, [member], lambda: self.network.unblock(*ways))

    def hang(self, _member: Member) -> None:
        """Have the coordinator stand still."""
        self.cluster.freeze(0)
        self._hinder(20.0, self._all(), lambda: self.cluster.thaw(0))

    def refuse(self, member: Member) -> None:
        """Take the right to the group away from a node."""
        if not member.is_refused:
            member.is_refused, member.refusals = True, member.refusals + 1
            self._hinder(15.0, [member], lambda: setattr(member, "is_refused", False))

    def _hinder(self, most_s: float, members: list[Member], mend: Callable[[], object]) -> None:
        """Have members not ask their group until *mend* is called."""

        def mended() -> None:
            mend()
            for member in members:
                member.hindrances, member.hindered_until = member.hindrances - 1, self.loop.time()

        for member in members:
            member.hindrances += 1
        self._later(most_s, mended)

    def occupy(self, _member: Member) -> None:
        """Have Java throw all members out, and join."""
        if not self.is_occupied:
            self._occupied_since, self.occupations = self.loop.time(), self.occupations + 1
            coordinator = self.cluster.coordinator
            group = coordinator.group(GROUP)
            for name in [*group.members, *group.pending]:
                coordinator.leave(group, name)
            coordinator.use(GROUP, members=1, protocol="connect")
            self._later(30.0, self._free)

    def _free(self) -> None:
        self._occupied_since = None
        self.cluster.coordinator.use(GROUP, members=0, protocol="connect")

    def drain(self, member: Member) -> None:
        """Have a node give its share to others for a while."""
        if isinstance(member, FlowMember) and member.is_running and member.host.is_up:
            its = member.its
            member.host.call_later(0, lambda: its.drain(is_drained=True))
            self._later(15.0, lambda: member.host.call_later(0, lambda: its.drain(is_drained=False)))

    def twin(self, member: Member) -> None:
        """Start another process under the `group.instance.id` of a node, and end it."""
        for other in self.twins:
            if other.instance == member.instance and not other.is_running:
                other.start()
                self._later(15.0, lambda it=other: it.task.cancel() if it.task is not None else None)

    def _later(self, most_s: float, mend: Any) -> None:
        self.outside.call_later(self.draw.uniform(0.3, most_s), mend)

    # A run.

    def run(self) -> None:
        """Run to the end."""
        asyncio.set_event_loop(self.loop)
        living = self.outside.start(self._live(), "model")
        living.add_done_callback(lambda _: self.loop.stop())
        self.loop.run_forever()
        living.result()
        self.violations += self.loop.unhandled

    async def _live(self) -> None:
        for member in self.members:
            self.outside.call_later(self.draw.uniform(0.0, 5.0), member.start)
        looking = self.outside.start(self._look(), "looks")
        every_s = self.draw.choice((2.0, 5.0, 15.0))
        kinds = (self.kill, self.freeze, self.cut, self.hang, self.refuse, self.occupy, self.drain, self.twin)
        while self.loop.time() < _LASTS_S:
            await asyncio.sleep(self.draw.expovariate(1 / every_s))
            member = self.draw.choice(self.members)
            befalls = self.draw.choice(kinds)
            if member.is_running and member.host.is_up:
                self.befell.append(f"{self.loop.time():.1f} {befalls.__name__} {member.name}")
                befalls(member)
        await self._settle()
        looking.cancel()

    async def _look(self) -> None:
        while not self.violations:
            await asyncio.sleep(_LOOKS_S)
            for member in self._all():
                MEMBERS[member.host] = member
                if member.task is not None:
                    for what in member.wrong():
                        self.fail(what)
            flows = [it for it in self._all() if isinstance(it, FlowMember) and it.task is not None]
            sure = [it for it in flows if it.is_sure and not self._may_be_replaced(it)]
            for one, other in itertools.combinations(sure, 2):
                both = one.works.works & other.works.works
                if both != NO_SHARE:
                    slots = len(both.slots)
                    self.fail(f"{one.name} and {other.name} both have {both}, {slots} slots, owner: {both.is_owner}")

    def _may_be_replaced(self, member: Member) -> bool:
        """Whether another process has taken the name of a node, which learns that with its next heartbeat."""
        now = self.loop.time()
        if member.instance and sum(it.is_running for it in self._all() if it.instance == member.instance) > 1:
            self._doubled[member.instance] = now
        return self._doubled.get(member.instance, -math.inf) + _BEAT_S > now

    async def _settle(self) -> None:
        """All is well within minutes, and stays so without a rebalance."""
        await asyncio.sleep(30.0)
        for member in self.members:
            member.start()
        until = self.loop.time() + _PEACE_S
        while (unwell := self._unwell()) and not self.violations:
            if self.loop.time() > until:
                self.fail(f"in peace, {unwell}")
            await asyncio.sleep(1.0)
        if not await self._is_quiet():
            self.fail("the group rebalances without end")
        if unwell := self._unwell():
            self.fail(f"later, {unwell}")

    async def _is_quiet(self) -> bool:
        """Wait for a while without a rebalance; a leader may find one node to have too much before there is one."""
        for _ in range(_MOST_REBALANCES):
            before = self.cluster.coordinator.group(GROUP).generation
            await asyncio.sleep(_QUIET_S)
            if self.cluster.coordinator.group(GROUP).generation == before:
                return True
        return False

    def _unwell(self) -> str:
        group = self.cluster.coordinator.group(GROUP)
        if group.state is not GroupState.STABLE or len(group.members) != len(self.members):
            return f"{len(group.members)} of {len(self.members)} nodes are in the group, which is {group.state.value}"
        flows = [it for it in self.members if isinstance(it, FlowMember)]
        if not flows:
            idle = [it.name for it in self.members if isinstance(it, WorkerMember) and not it.runs_flows]
            return f"{', '.join(idle)} run no flow" if idle else ""
        found = [it.works.works for it in flows]
        if sorted(itertools.chain(*(it.tasks for it in found))) != list(range(TASKS)):
            return f"tasks are {[sorted(it.tasks) for it in found]}"
        owners = sum(it.is_owner for it in found)
        return "" if owners == 1 else f"there are {owners} owners"


def _checked(model: Model) -> Any:
    """Return the leader's assignment, of which nothing is granted that another member holds."""
    assign = GroupLeader.assign

    async def assigned(
        leader: GroupLeader, cluster: Any, generation: int, joined: Mapping[str, bytes], **more: Any
    ) -> Any:
        answer = await assign(leader, cluster, generation, joined, **more)
        shared = decode_shared_flow(next(iter(answer.values())))
        held = {it: candidate.held for it, raw in joined.items() if (candidate := decode_candidate(raw)) is not None}
        for one, other in itertools.permutations(held, 2):
            if shared.share_of(one) & held[other] != NO_SHARE:
                model.fail(f"{one} was granted {shared.share_of(one)} while {other} held {held[other]}")
        return answer

    return assigned


KINDS: Final[Mapping[str, type[Member]]] = {"flow": FlowMember, "worker": WorkerMember}


def played(kind: str, seed: int) -> dict[str, Any]:
    """Run a seed in this process, which can do nothing else any more; return what was violated, and the states."""
    with tamed(seed), contextlib.ExitStack() as patches:
        model = Model(KINDS[kind], seed)
        for room in (membership, worker_membership):
            patches.enter_context(mock.patch.object(room, "Membership", Place))
        patches.enter_context(mock.patch.object(GroupLeader, "assign", _checked(model)))
        model.run()
    return {"seed": seed, "violations": model.violations[:3], "states": model.states}


def play(kind: str, seeds: Iterable[int]) -> None:
    """Print a line of JSON for each seed, each run in a process of its own."""
    for seed in seeds:
        if not (child := os.fork()):
            try:
                found = played(kind, seed)
            except BaseException:  # noqa: BLE001 - nothing may return into the parent's code
                found = {"seed": seed, "violations": [traceback.format_exc()], "states": {}}
            print(json.dumps(found), flush=True)  # noqa: T201 - the test reads it
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    play(sys.argv[1], range(int(sys.argv[2]), int(sys.argv[2]) + int(sys.argv[3])))
