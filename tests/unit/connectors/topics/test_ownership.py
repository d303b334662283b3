"""What a flow put on remote topics is remembered in a topic of the target."""

from __future__ import annotations

import attrs
import pytest

from mm2py.connectors.topics.ownership import NoMemoryError, SyncedMemory
from mm2py.errors import BrokerAnsweredError
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.synced import ForgottenAcl, ForgottenConfig, SyncedAcl, SyncedConfig
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import CREATE_TOPICS, PRODUCE, FakeBrokers
from tests.support.flow_rig import source_context


TOPIC = "mm2-synced.A.internal"
ACL = TopicAcl("A.t", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.ALLOW)


def memory_of(cluster: Cluster) -> SyncedMemory:
    clock = LoopClock()
    return SyncedMemory(source_context(clock, EventLog(clock)), cluster)


async def test_a_restart_remembers(brokers: FakeBrokers, cluster: Cluster) -> None:
    """What one memory wrote and did not forget, the next one knows; the topic is compacted, with one partition."""
    first = memory_of(cluster)
    await first.load()
    other = attrs.evolve(ACL, topic="A.u")
    await first.write([SyncedConfig("A.t", "a", ("1",)), SyncedConfig("A.t", "b", ("2",)), SyncedAcl(ACL)])
    await first.write([SyncedConfig("A.t", "a", ("1", "3")), ForgottenConfig("A.t", "b"), SyncedAcl(other)])
    await first.write([ForgottenAcl(other), SyncedConfig("A.gone", "a", ("1",)), ForgottenConfig("A.gone", "a")])
    second = memory_of(cluster)
    await second.load()
    [(_, request)] = brokers.requests_of(CREATE_TOPICS)

    for memory in (first, second):
        assert memory.configured == {"A.t"}
        assert (memory.configs_of("A.t"), memory.configs_of("A.u"), memory.acls) == ({"a": ("1", "3")}, {}, {ACL})
    assert request.create_topic_requests == [(TOPIC, 1, 1, [], [("cleanup.policy", "compact")])]


async def test_what_could_not_be_written_is_not_remembered(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A refused entry is not known, and the error says which rights the topic needs."""
    memory = memory_of(cluster)
    await memory.load()
    brokers.script(PRODUCE, lambda _, request: request.RESPONSE_TYPE([(TOPIC, [(0, 29, -1, -1, 0)])], 0))
    with pytest.raises(NoMemoryError, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        await memory.write([SyncedAcl(ACL)])

    assert memory.acls == frozenset()
    assert "grant" in caught.value.hint


async def test_a_topic_that_may_not_be_created(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Without the topic there is no memory, which is reported; a later try finds it if an operator created it."""
    memory = memory_of(cluster)
    brokers.script(CREATE_TOPICS, lambda _, request: request.RESPONSE_TYPE(0, [(TOPIC, 29, None)]))
    with pytest.raises(NoMemoryError, match=TOPIC):
        await memory.load()
    await memory.load()

    assert memory.acls == frozenset()


async def test_a_topic_whose_brokers_are_away(brokers: FakeBrokers, cluster: Cluster) -> None:
    """No permission is missing: what is away is named instead."""
    memory = memory_of(cluster)
    await memory.load()
    brokers.topics[TOPIC].partitions[0].leader = -1
    with pytest.raises(BrokerAnsweredError, match=f"leads {TOPIC}-0") as writing:
        await memory.write([SyncedAcl(ACL)])
    memory.forget()
    with pytest.raises(BrokerAnsweredError, match=f"leads {TOPIC}-0") as reading:
        await memory.load()

    assert "grant" not in writing.value.hint + reading.value.hint


async def test_a_node_that_becomes_the_owner_reads_what_the_last_one_wrote(
    brokers: FakeBrokers, cluster: Cluster
) -> None:
    """Several nodes share the flow: what this one knew from an earlier time counts no more."""
    memory, others = (memory_of(cluster) for _ in range(2))
    await memory.load()
    await memory.write([SyncedConfig("A.t", "a", ("1",)), SyncedAcl(ACL)])
    await others.load()
    await others.write([SyncedConfig("A.t", "a", ("2",)), ForgottenAcl(ACL)])
    memory.forget()
    await memory.load()

    assert (memory.configs_of("A.t"), memory.acls) == ({"a": ("2",)}, frozenset())
