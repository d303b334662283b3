"""Topics that vanish while they are in use: made and filled again, once, behind nothing newer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import attrs
import pytest

from mm2py.core.internal_topics import InternalTopic
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import Flow
from mm2py.storage.compacted_topic import CompactedTopic, TopicVanishedError
from mm2py.telemetry.events import InternalTopicRecreated
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import (
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    METADATA,
    FakeBrokers,
    FakePartition,
    FakeTopic,
    says,
)


NEW = InternalTopic("log", "offset.storage.replication.factor", 1)
FLOW = Flow("B", "A")
REPLACED = "another one has taken its place, or it lost all its records"
NEW_ID = "AAAAAAAAAAAAAAAAAAAAAg"


@attrs.define
class CompactedTopicRig:
    brokers: FakeBrokers
    cluster: Cluster
    log: CompactedTopic
    known: dict[bytes, bytes]
    events: EventLog

    async def append(self, key: bytes, value: bytes) -> None:
        await self.log.append([LogRecord(key, value, partition=0)])
        self.known[key] = value

    async def contents(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in await self.log.read_all()]

    @property
    def refills(self) -> list[InternalTopicRecreated]:
        return list(self.events.of(InternalTopicRecreated))

    def replace(self, topic_id: str = NEW_ID) -> None:
        self.brokers.topics["log"] = FakeTopic([FakePartition()], topic_id)


@pytest.fixture
async def rig() -> AsyncIterator[CompactedTopicRig]:
    """A topic of one partition that holds ``a`` and ``b``."""
    brokers, clock = FakeBrokers(), LoopClock()
    policy = [("cleanup.policy", "compact", False, False, False, [])]

    def described(_: int, request: object) -> object:
        return request.RESPONSE_TYPE(0, [(0, None, 2, "log", policy)])  # type: ignore[attr-defined]

    async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster:
        known: dict[bytes, bytes] = {}
        events = EventLog(clock)

        async def contents() -> Sequence[LogRecord]:
            return [LogRecord(key, value, partition=0) for key, value in known.items()]

        rig = CompactedTopicRig(brokers, cluster, CompactedTopic(FLOW, cluster, NEW, events, contents), known, events)
        brokers.script(DESCRIBE_CONFIGS, *[described] * 5)
        await rig.log.ensure()
        await rig.append(b"a", b"1")
        await rig.append(b"b", b"1")
        yield rig


async def test_a_deleted_topic_is_made_and_filled_before_what_is_appended(rig: CompactedTopicRig) -> None:
    """What did not change comes first, then what did; it is told once, with how much was written again."""
    del rig.brokers.topics["log"]
    await rig.append(b"a", b"2")
    await rig.append(b"a", b"3")
    made = [request.create_topic_requests for _, request in rig.brokers.requests_of(CREATE_TOPICS)]

    assert await rig.contents() == [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"a", b"3")]
    assert rig.refills == [InternalTopicRecreated(FLOW, "A", "log", "it was deleted", 2, "")]
    assert made == [[("log", 1, 1, [], [("cleanup.policy", "compact")])]] * 2


async def test_a_topic_of_another_id_is_filled(rig: CompactedTopicRig) -> None:
    """A look finds the topic that another client created, and fills it once, even if nothing is appended."""
    rig.replace()
    await rig.log.look()
    await rig.log.look()

    assert await rig.contents() == [(b"a", b"1"), (b"b", b"1")]
    assert rig.refills == [InternalTopicRecreated(FLOW, "A", "log", REPLACED, 2, "")]


async def test_a_topic_replaced_between_two_looks_is_filled(rig: CompactedTopicRig) -> None:
    """What was appended to a new topic before it was seen to be new is written again after what is older."""
    old, moved = rig.brokers.topics["log"], FakePartition(leader=1)
    await rig.log.look()
    rig.brokers.topics["log"] = FakeTopic([moved], NEW_ID)  # its leader refuses what the old one's would take
    await rig.append(b"a", b"2")

    assert old.partitions[0].end == 2
    assert [value for _, value in await rig.contents()] == [b"2", b"1", b"1", b"2"]
    assert len(rig.refills) == 1


async def test_a_look_is_due_every_few_seconds(rig: CompactedTopicRig) -> None:
    """In between the topic is not asked about, however often something is appended."""
    asked = len(rig.brokers.requests_of(METADATA))
    for _ in range(100):
        await rig.append(b"a", b"2")
    few = len(rig.brokers.requests_of(METADATA)) - asked
    await rig.cluster.clock.sleep(5.0)

    assert few <= 1
    assert rig.log.is_look_due


@pytest.mark.parametrize(("code", "kind"), [(29, NotAuthorizedError), (44, TopicVanishedError)])
async def test_a_topic_that_may_not_be_made_again(
    rig: CompactedTopicRig, code: int, kind: type[BrokerAnsweredError]
) -> None:
    """The error has a hint; once an operator created the topic it is filled, and reported."""
    del rig.brokers.topics["log"]
    rig.brokers.script(CREATE_TOPICS, says(0, [("log", code, None)]))
    with pytest.raises(kind) as refused:
        await rig.log.look()
    rig.replace()
    await rig.append(b"a", b"2")

    assert refused.value.hint
    assert await rig.contents() == [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]
    assert [it.cause for it in rig.refills] == [REPLACED]


async def test_a_topic_that_never_was_is_not_told_to_be_back(rig: CompactedTopicRig) -> None:
    """One that the mirror might not create at first did not vanish."""
    log = CompactedTopic(FLOW, rig.cluster, attrs.evolve(NEW, name="late"), rig.events, rig.log._contents)
    rig.brokers.script(CREATE_TOPICS, says(0, [("late", 29, None)]))
    await log.ensure()
    await log.append([LogRecord(b"a", b"1", partition=0)])

    assert [record.value for record in await log.read_all()] == [b"1"]
    assert rig.refills == []
