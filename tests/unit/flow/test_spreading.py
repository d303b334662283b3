"""Remote topics that records of spread topics need: made, grown, refused, and made anew, over pretended clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs

from mm2py.core.progress import PartitionState
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.flow.group import Surroundings
from mm2py.flow.reach import Reach
from mm2py.flow.source import SourceTasks
from mm2py.flow.spreading import Spreading
from mm2py.flow.topics import Mirrored, Topics
from mm2py.model.epoch import Ended, EpochOutcome, EpochPlan, PartitionOutcome, PartitionPlan, WantedLane, read_lane_key
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.state import PartitionStage
from mm2py.model.topic import NewTopic, TopicDescription, TopicsView
from mm2py.model.transform import FlowTransforms, Predicate, Step
from mm2py.telemetry.events import PartitionsGrown, PartitionStopped, StepFailed, TopicCreated
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from tests.support.clocks import LoopClock
from tests.unit.flow.test_source import SETTINGS, PretendedEpochs


_DAYS = Step(
    "days",
    "TimestampRouter",
    {"topic.format": "${topic}-${timestamp}", "timestamp.format": "yyyyMMdd"},
    Predicate("TopicNameMatches", {"pattern": "orders|carts"}),
)
FLOW_SETTINGS = attrs.evolve(
    SETTINGS, topics=(".*",), transforms=FlowTransforms(steps=(_DAYS,)), timestamp_topics_max=3, replication_factor=None
)
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
TODAY, TOMORROW = "A.orders-20261122", "A.orders-20261123"


@attrs.define
class PretendedAdmin:
    """A cluster's topics, by the number of their partitions."""

    there: dict[str, int]
    refused: BrokerAnsweredError | None = None
    is_away: bool = False
    created: list[NewTopic] = attrs.field(factory=list)
    brokers: int = 3

    async def list_topics(self) -> TopicsView:
        if self.is_away:
            raise ClusterUnreachableError("B", "b:1", "refused")
        return TopicsView(
            {
                name: TopicDescription(f"id-{name}", dict.fromkeys(range(count), 0), replication_factor=2)
                for name, count in self.there.items()
            }
        )

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, BrokerAnsweredError | None]:
        if self.refused is None:
            self.created += topics
            self.there |= {topic.name: topic.partitions for topic in topics}
        return dict.fromkeys([topic.name for topic in topics], self.refused)

    async def grow_partitions(self, totals: Mapping[str, int]) -> dict[str, BrokerAnsweredError | None]:
        self.there |= totals
        return dict.fromkeys(totals)

    async def broker_configs(self, _names: Collection[str]) -> dict[str, Any]:
        return {}

    async def topic_configs(self, topics: Collection[str], _names: Collection[str] = ()) -> dict[str, dict[str, Any]]:
        return {topic: {} for topic in topics}


@attrs.define(eq=False)
class Rig:
    """A flow's topics and source tasks, whose epochs want what they are told to, and what makes it."""

    source: PretendedAdmin
    target: PretendedAdmin
    topics: Topics
    tasks: SourceTasks
    events: EventLog
    spreading: Spreading
    wanted: dict[TopicPartition, str] = attrs.field(factory=dict)
    plans: list[PartitionPlan] = attrs.field(factory=list)

    def answer(self, plan: EpochPlan) -> EpochOutcome:
        """Go ten records further, or wait for what the partition is told to want, if the plan has no lane of it."""
        self.plans += plan.partitions
        return EpochOutcome(plan.flow, plan.task, plan.epoch, tuple(map(self._outcome, plan.partitions)))

    def _outcome(self, one: PartitionPlan) -> PartitionOutcome:
        outcome = PartitionOutcome(one.source, one.position, None, is_unsure=False)
        name, number = read_lane_key(self.wanted.get(one.source, ""))
        lane = (one.lanes or {}).get(name)
        if name and (lane is None or lane.partitions <= (one.source.partition if number is None else number)):
            return attrs.evolve(outcome, ended=Ended.WANTING, wanted=(WantedLane(name, one.position, 1_000, number),))
        return attrs.evolve(outcome, position=one.position + 10, records=10)

    async def refresh(self) -> Mirrored:
        mirrored = await self.topics.refresh_once()
        self.tasks.adopt(mirrored, {it: Position(it, 0, None) for it in mirrored.places})
        return mirrored

    def state(self, source: TopicPartition) -> PartitionState:
        return self.tasks.states[source]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait, in the loop's own time."""
        async with asyncio.timeout(600):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.1)


@asynccontextmanager
async def running(wanted: dict[TopicPartition, str], **there: int) -> AsyncIterator[Rig]:
    """Run a flow whose source has `orders` with two partitions, and whose target has *there* beside what it makes."""
    clock = LoopClock()
    events = EventLog(clock)
    source = PretendedAdmin({"orders": 2, "carts": 1, "plain": 1})
    target = PretendedAdmin({f"A.{name.replace('_', '-')}": count for name, count in there.items()})
    reach = Reach(SETTINGS.flow, clock, events, lambda: 0.5)
    around = Surroundings(FLOW_SETTINGS, reach, clock, events, lambda: 0.5)
    memory: Any = SimpleNamespace(load=_nothing, write=_nothing)
    admins: Any = source, target
    topics = Topics(FLOW_SETTINGS, *admins, memory, reach=reach, clock=clock, events=events)
    epochs = PretendedEpochs()
    tasks = SourceTasks(FLOW_SETTINGS, epochs, clock=clock, events=events, luck=lambda: 0.5)
    life: Any = SimpleNamespace(topics=topics, tasks=tasks)
    rig = Rig(source, target, topics, tasks, events, Spreading(around, life), wanted)
    epochs.script = rig.answer
    await rig.refresh()
    async with asyncio.TaskGroup() as group:
        loops = [group.create_task(rig.spreading.run()), group.create_task(tasks.run())]
        yield rig
        for loop in loops:
            loop.cancel()


async def _nothing(*_: object) -> None:
    return


async def test_a_spread_topic_has_places_but_no_remote_topic() -> None:
    """Nothing is made for it before a record needs it; other topics have theirs."""
    async with running({}) as rig:
        mirrored = rig.topics.latest

        assert mirrored.remote_of == {"plain": "A.plain"}
        assert {it: place.remote_topic for it, place in mirrored.places.items() if it.topic == "orders"} == {
            FIRST: "A.orders-${timestamp}",
            SECOND: "A.orders-${timestamp}",
        }
        assert [topic.name for topic in rig.target.created] == ["A.plain"]
        assert rig.topics.spread == {"orders", "carts"}
        assert mirrored.is_settled


async def test_what_a_record_needs_is_made_and_the_partition_goes_on() -> None:
    """With the source's partitions and replicas; the other partition is not held up, nobody waits for a refresh."""
    async with running({FIRST: "orders-20261122"}) as rig:
        begun = asyncio.get_running_loop().time()
        await rig.until(lambda: rig.state(FIRST).position > 0)
        took_s = asyncio.get_running_loop().time() - begun
        told = [(it.topic, it.remote_topic, it.partitions) for it in rig.events.of(TopicCreated)]

    made = rig.target.created[-1]
    assert (made.name, made.partitions, made.replication_factor) == (TODAY, 2, 2)
    assert ("orders", TODAY, 2) in told
    assert took_s < SETTINGS.refresh_topics_interval_s / 10
    assert rig.state(SECOND).position > 0


async def test_a_remote_topic_that_is_there_is_used_or_grown() -> None:
    """One with a partition less gets it when its record comes."""
    async with running({FIRST: "orders-20261122", SECOND: "orders-20261122"}, orders_20261122=1) as rig:
        await rig.until(lambda: min(rig.state(FIRST).position, rig.state(SECOND).position) > 0)

    assert [topic.name for topic in rig.target.created] == ["A.plain"]
    assert [(it.remote_topic, it.before, it.after) for it in rig.events.of(PartitionsGrown)] == [(TODAY, 1, 2)]


async def test_a_refusal_stops_the_partition_until_it_is_taken_back() -> None:
    """It names the record and what it needs, is told once however often it is tried, and others go on."""
    async with running({FIRST: "orders-20261122"}) as rig:
        rig.target.refused = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "B", "CreateTopics", TODAY)
        await rig.until(lambda: rig.state(FIRST).stage is PartitionStage.STOPPED)
        await rig.until(lambda: rig.state(FIRST).failures > 2)
        stops, steps = rig.events.of(PartitionStopped), rig.events.of(StepFailed)
        moved = rig.state(SECOND).position
        rig.target.refused = None
        await rig.until(lambda: rig.state(FIRST).position > 0)

    assert len(stops) == len(steps) == 1
    assert f"A->B, orders-0, offset 0, timestamp 1000, needs remote topic {TODAY}: " in stops[0].message
    assert moved > 0
    assert rig.state(FIRST).stage is PartitionStage.COPYING


async def test_a_partition_that_a_record_names_stops_its_own_alone() -> None:
    """The other one goes to the same remote topic; a refusal of the target's is told for any partition."""
    async with running({FIRST: "orders-20261122/7", SECOND: "orders-20261122"}) as rig:
        await rig.until(lambda: rig.state(FIRST).stage is PartitionStage.STOPPED and rig.state(SECOND).position > 0)
        failure = rig.state(FIRST).failure
        assert failure is not None
        assert "sends it to partition 7 of a topic that has 2" in failure.message
        rig.target.refused = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "B", "CreateTopics", TOMORROW)
        rig.wanted[FIRST] = "orders-20261123/1"
        await rig.until(lambda: "TOPIC_AUTHORIZATION" in str(rig.state(FIRST).failure))
        rig.target.refused = None
        await rig.until(lambda: rig.state(FIRST).position > 0)


async def test_there_are_no_more_than_the_setting_says() -> None:
    """Those of earlier lives count, others of like names do not; room that is made is used."""
    there = {"orders_20260101": 2, "orders_20260102": 2, "orders_20260103": 2, "orders_eu": 2}
    async with running({FIRST: "orders-20261122"}, **there) as rig:
        await rig.until(lambda: rig.state(FIRST).stage is PartitionStage.STOPPED)
        failure = rig.state(FIRST).failure
        del rig.target.there["A.orders-20260101"]
        await rig.until(lambda: rig.state(FIRST).position > 0)

    assert failure is not None
    assert "orders has 3 remote topics already, and timestamp.router.topics.max is 3" in failure.message


async def test_a_deleted_remote_topic_is_made_anew() -> None:
    """An interruption has topics looked at; what is gone is wanted again."""
    async with running({FIRST: "orders-20261122"}) as rig:
        await rig.until(lambda: rig.state(FIRST).position > 0)
        del rig.target.there[TODAY]
        for listener in rig.tasks.listeners:
            listener(PartitionOutcome(FIRST, 10, None, is_unsure=True, ended=Ended.INTERRUPTED), 10)
        async with asyncio.timeout(1):
            await rig.topics.until_due(600)
        await rig.refresh()
        before = rig.state(FIRST).lanes
        await rig.until(lambda: TODAY in rig.target.there)

    assert before == {}
    assert [topic.name for topic in rig.target.created].count(TODAY) == 2


async def test_a_target_that_is_away_is_asked_again() -> None:
    """The partition waits meanwhile."""
    async with running({FIRST: "orders-20261122"}) as rig:
        rig.target.is_away = True
        await rig.until(lambda: rig.state(FIRST).wanted is not None)
        await asyncio.sleep(20)
        is_waiting = rig.state(FIRST).wanted is not None
        rig.target.is_away = False
        await rig.until(lambda: rig.state(FIRST).position > 0)

    assert is_waiting


async def test_a_topic_that_comes_later_does_not_get_a_spread_topic_s_remote_one() -> None:
    """Its records would be mixed with those of a day."""
    async with running({FIRST: "orders-20261122"}) as rig:
        await rig.until(lambda: rig.state(FIRST).position > 0)
        rig.source.there["orders-20261122"] = 1
        mirrored = await rig.refresh()
        told = [event.error for event in rig.events.of(StepFailed)]

    assert "orders-20261122" not in mirrored.remote_of
    assert told == ["orders-20261122 and orders have one remote topic; only orders is mirrored"]
