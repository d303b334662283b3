"""How soon it is noticed that a cluster does not answer, and that it does again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import attrs
import pytest

from mm2py.connectors.cluster_pulse import ClusterPulse
from mm2py.connectors.known_clusters import KnownClusters
from mm2py.connectors.reach import Reach
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.telemetry.events import ClusterRecovered, ClusterUnreachable
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import now
from tests.support.fake_brokers import METADATA, FakeBrokers, FakeConnection


class FrozenConnection(FakeConnection):
    """A connection to a broker that may be frozen, or slow: what was asked is answered once it goes on."""

    async def send(self, request: Any) -> Any:
        brokers = self._brokers
        assert isinstance(brokers, FreezingBrokers)
        await asyncio.sleep(brokers.slow_s)
        await brokers.goes_on(self.node_id)
        return await super().send(request)


class FreezingBrokers(FakeBrokers):
    """Brokers that freeze, each by its number: they take connections, and do not answer."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.frozen: set[int] = set()
        self.slow_s = 0.0
        self._thawed = asyncio.Event()

    async def goes_on(self, node_id: int) -> None:
        while node_id in self.frozen:
            self._thawed.clear()
            await self._thawed.wait()

    def thaw(self) -> None:
        self.frozen.clear()
        self._thawed.set()

    async def open(self, endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        connection = await super().open(endpoint, host, port)
        await self.goes_on(connection.node_id)
        frozen = FrozenConnection(self, connection.node_id)
        self.connections.append(frozen)
        return frozen


@attrs.define
class StoppingClock:
    """The clock of a process that can be stopped."""

    stood_still_s: float = 0.0

    def wall_ms(self) -> int:
        return round(self.monotonic() * 1_000)

    def monotonic(self) -> float:
        return now() + self.stood_still_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@attrs.define
class PulseRig:
    """A cluster A whose pulse is watched, by one flow or by several, in virtual time."""

    brokers: FreezingBrokers
    events: EventLog
    clock: StoppingClock
    known: KnownClusters = attrs.field(factory=KnownClusters)
    flows: list[Reach] = attrs.field(factory=list)
    #: After how many seconds a flow begins again.
    life_s: float = math.inf

    @property
    def reach(self) -> Reach:
        return self.flows[0]

    @property
    def error(self) -> str:
        return self.reach.view()[0].error

    @property
    def told(self) -> tuple[int, int]:
        """How often it was reported that the cluster is away, and that it is back."""
        return len(self.events.of(ClusterUnreachable)), len(self.events.of(ClusterRecovered))

    @asynccontextmanager
    async def watching(self, target: str = "B") -> AsyncIterator[Cluster]:
        """Watch it for a flow of the node, until the end of the block."""
        endpoint = self.brokers.endpoint
        ends = (endpoint, ClusterEndpoint(target, (f"{target}:1",)))
        reach = Reach(Flow("A", target), self.clock, self.events, lambda: 0.5, known=self.known.known_to(ends))
        self.flows.append(reach)
        async with Cluster(endpoint, self.clock, opener=self.brokers.open) as cluster, asyncio.TaskGroup() as tasks:
            reach.answered(["A"])
            watch = tasks.create_task(self._live(ClusterPulse(reach, self.clock, [cluster])))
            await asyncio.sleep(7)
            yield cluster
            watch.cancel()

    async def _live(self, pulse: ClusterPulse) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.life_s):
                    await pulse.run()

    async def until(self, is_so: Callable[[], bool], *, within_s: float) -> float:
        """Wait until *is_so*; return how long that took, *within_s* if it did not become so."""
        begun = now()
        for _ in range(round(within_s * 10)):
            if is_so():
                break
            await asyncio.sleep(0.1)
        return now() - begun


@pytest.fixture
async def rig(request: pytest.FixtureRequest) -> PulseRig:
    clock = StoppingClock()
    return PulseRig(FreezingBrokers(getattr(request, "param", 3)), EventLog(clock), clock)


@pytest.mark.parametrize("rig", [1, 3], indirect=True)
async def test_a_cluster_that_freezes_is_unreachable_within_seconds(rig: PulseRig) -> None:
    """Nothing fails: requests are on their way for half a minute. One event reports it, and one that it is back."""
    async with rig.watching():
        rig.brokers.frozen = set(rig.brokers.hosts)
        noticed_s = await rig.until(lambda: rig.reach.is_away("A"), within_s=60)
        error = rig.error
        await asyncio.sleep(300)
        is_still_away, told = rig.reach.is_away("A"), rig.told
        rig.brokers.thaw()
        back_s = await rig.until(lambda: not rig.reach.is_away("A"), within_s=60)
        await asyncio.sleep(60)

    assert 5 <= noticed_s <= 7.2
    assert error.startswith("cluster A does not answer at ")
    assert error.endswith(": no answer within 5 s")
    assert (is_still_away, told, rig.told) == (True, (1, 0), (1, 1))
    assert back_s <= 4.5


@pytest.mark.parametrize("frozen", [{0}, {0, 2}], ids=str)
async def test_a_cluster_is_there_while_any_broker_answers(rig: PulseRig, frozen: set[int]) -> None:
    """Whichever broker was asked so far: the others are asked in time, and are the first to be asked from then on."""
    async with rig.watching() as cluster:
        await cluster.refresh_metadata(())
        rig.brokers.frozen = frozen
        away_s = await rig.until(lambda: rig.reach.is_away("A"), within_s=300)

    assert away_s > 299
    assert rig.told == (0, 0)


async def test_a_slow_cluster_does_not_come_and_go(rig: PulseRig) -> None:
    """Brokers that pause for four seconds are there; those that need ten are away, until they are quick again."""
    async with rig.watching():
        rig.brokers.slow_s = 4.0
        await asyncio.sleep(300)
        slow = rig.reach.is_away("A"), rig.told
        rig.brokers.slow_s = 10.0
        await asyncio.sleep(300)
        slower = rig.reach.is_away("A"), rig.told
        rig.brokers.slow_s = 4.0
        await asyncio.sleep(300)
        slow_again = rig.reach.is_away("A"), rig.told
        rig.brokers.slow_s = 0.0
        await asyncio.sleep(20)

    assert slow == (False, (0, 0))
    assert slower == slow_again == (True, (1, 0))
    assert (rig.reach.is_away("A"), rig.told) == (False, (1, 1))


async def test_what_another_step_is_answered_counts(rig: PulseRig) -> None:
    """A cluster whose answers to the pulse get lost, but not those to other steps, is there."""
    async with rig.watching():
        rig.brokers.frozen = {0, 1, 2}
        for _ in range(60):
            await asyncio.sleep(3)
            await rig.reach.once("write", ["A"], lambda: asyncio.sleep(1))

    assert rig.told == (0, 0)


async def test_a_step_that_waited_for_another_cluster_is_no_answer(rig: PulseRig) -> None:
    """A answers the first half of a step and freezes; the other half has to wait for B, until seconds later."""
    async with rig.watching():

        async def ask_both() -> None:
            await asyncio.sleep(1)
            rig.brokers.frozen = {0, 1, 2}
            await asyncio.sleep(4.5)

        await rig.reach.once("refresh topics", ["A", "B"], ask_both)
        noticed_s = await rig.until(lambda: rig.reach.is_away("A"), within_s=60)

    assert noticed_s <= 3


async def test_a_silence_outlasts_the_life_that_noticed_it(rig: PulseRig) -> None:
    """A flow begins again every few seconds, as it loses its tasks and gets them: each life goes on from the last."""
    rig.life_s = 4.5
    async with rig.watching():
        rig.brokers.frozen = {0, 1, 2}
        noticed_s = await rig.until(lambda: rig.reach.is_away("A"), within_s=60)

    assert noticed_s <= 15


async def test_a_silence_of_long_ago_says_nothing_of_now(rig: PulseRig) -> None:
    """Flows stop while a cluster does not answer; the one that runs a minute later gives it all of its time."""
    reach = Reach(Flow("A", "B"), rig.clock, rig.events, lambda: 0.5)
    async with Cluster(rig.brokers.endpoint, rig.clock, opener=rig.brokers.open) as cluster:
        rig.brokers.frozen = {0, 1, 2}
        for _ in range(2):
            with suppress(TimeoutError):
                async with asyncio.timeout(6.5):
                    await ClusterPulse(reach, rig.clock, [cluster]).run()
            await asyncio.sleep(60)

    assert rig.told == (0, 0)


async def test_several_flows_ask_a_cluster_as_often_as_one(rig: PulseRig) -> None:
    """And if the flow that asked ends, another one does."""
    async with rig.watching("B"):
        async with rig.watching("C"), rig.watching("D"):
            rig.brokers.requests.clear()
            await asyncio.sleep(100)
            asked = len(rig.brokers.requests_of(METADATA))
            rig.brokers.frozen = {0, 1, 2}
            await asyncio.sleep(8)
            away = [reach.is_away("A") for reach in rig.flows]
            rig.brokers.thaw()
        rig.brokers.requests.clear()
        await asyncio.sleep(100)

    assert 45 <= asked <= 50
    assert away == [True] * 3
    assert 45 <= len(rig.brokers.requests_of(METADATA)) <= 50


async def test_time_in_which_this_process_stood_still_is_no_silence(rig: PulseRig) -> None:
    """A question was on its way as the process was stopped; the answer is there as it wakes, but is read later."""
    async with rig.watching():
        rig.brokers.frozen = {0, 1, 2}
        await asyncio.sleep(2.5)
        rig.clock.stood_still_s += 110
        await asyncio.sleep(1.5)
        rig.brokers.thaw()
        await asyncio.sleep(10)

    assert rig.told == (0, 0)


async def test_brokers_that_refuse_are_away_at_once(rig: PulseRig) -> None:
    """With the reason that they give, or what keeps the flow out, whichever broker is asked first."""
    async with rig.watching():
        rig.brokers.down = {0, 1, 2}
        refused_s = await rig.until(lambda: rig.reach.is_away("A"), within_s=60)

    assert refused_s <= 2.5
    assert "no answer" not in rig.error
