"""What of a flow other nodes copy: by its assignment, and by a look at the clusters from a node that stands by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from mm2py.errors import TopicsUnknownError
from mm2py.herder import elsewhere
from mm2py.herder.elsewhere import PartsElsewhere
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import ALL_SLOTS, Elsewhere, Share, slot_of
from mm2py.model.state import FlowState
from mm2py.policy.plugins import CustomClassError
from mm2py.policy.replication import DefaultReplicationPolicy
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import METADATA, FakeBrokers, FakePartition, FakeTopic
from tests.support.flow_rig import SETTINGS, flow_context


HERE, THERE, MOVING = (TopicPartition("orders", number) for number in range(3))


@attrs.define
class Rig:
    """The node *here*, a member of the flow's group with another one."""

    parts: PartsElsewhere
    nodes: SimpleNamespace
    source: SimpleNamespace


def _rig(state: FlowState, *, is_shared: bool = True) -> Rig:
    clock = LoopClock()
    of_here, of_moving = frozenset({slot_of(HERE)}), frozenset({slot_of(MOVING)})
    shares = {
        "1": Share(True, frozenset({0}), of_here),
        "2": Share(False, frozenset({1}), ALL_SLOTS - of_here - of_moving),
    }
    nodes = SimpleNamespace(members=shares, is_shared=is_shared, name_of={"1": "here:1", "2": "there:2"}.get)
    context = flow_context(clock, EventLog(clock))
    source = SimpleNamespace(state=state, config=context.config.source_connector)
    return Rig(PartsElsewhere(context, cast("Any", nodes), cast("Any", source)), nodes, source)


def _life() -> Any:
    """Return a life that copies one of three partitions."""
    places = {it: SimpleNamespace(remote_topic="A.orders") for it in (HERE, THERE, MOVING)}
    topics = SimpleNamespace(latest=SimpleNamespace(places=places))
    return SimpleNamespace(topics=topics, tasks=SimpleNamespace(ledger=SimpleNamespace(states={HERE: None})))


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeBrokers]:
    """Return both clusters: the target lacks a partition, and a topic."""
    found = {"A": FakeBrokers(1), "B": FakeBrokers(1)}
    found["A"].topics = {name: FakeTopic([FakePartition(), FakePartition()]) for name in ("orders", "new")}
    found["B"].topics = {"A.orders": FakeTopic([FakePartition()])}

    def open_cluster(endpoint: Any, clock: Any) -> Cluster:
        brokers = found[endpoint.alias]
        return Cluster(attrs.evolve(brokers.endpoint, alias=endpoint.alias), clock, opener=brokers.open)  # type: ignore[arg-type]

    monkeypatch.setattr(elsewhere, "Cluster", open_cluster)
    return found


async def test_what_is_not_copied_here_is_at_the_node_of_its_slot(clusters: dict[str, FakeBrokers]) -> None:
    """A node that copies a part asks no cluster; what moves has no node."""
    rig = _rig(FlowState.RUNNING)
    rig.parts.follow(_life())

    found = await rig.parts.find(must_know=False)

    assert found == {THERE: Elsewhere("A.orders", "there:2"), MOVING: Elsewhere("A.orders")}
    assert not any(brokers.requests for brokers in clusters.values())


async def test_a_node_that_stands_by_looks_at_both_clusters(clusters: dict[str, FakeBrokers]) -> None:
    """What it knew of a former life may be old. It looks again after ten seconds, however often it is asked."""
    rig = _rig(FlowState.STANDBY)
    rig.parts.follow(_life())
    clock = rig.parts._context.clock
    found = [await rig.parts.find(must_know=False) for _ in range(3)]
    once = len(clusters["A"].requests_of(METADATA))
    await clock.sleep(11)
    await rig.parts.find(must_know=True)

    assert found == [{HERE: Elsewhere("A.orders", "here:1")}] * 3
    assert len(clusters["A"].requests_of(METADATA)) == 2 * once


async def test_a_node_without_others_looks_only_if_it_must(clusters: dict[str, FakeBrokers]) -> None:
    """Its flow has just been started, or is stopped: a list is empty, but an unknown topic may be one."""
    rig = _rig(FlowState.STOPPED, is_shared=False)

    assert await rig.parts.find(must_know=False) == {}
    assert not clusters["A"].requests
    assert list(await rig.parts.find(must_know=True)) == [HERE]


class Fussy(DefaultReplicationPolicy):
    """A policy of one's own that does not expect every topic."""

    def is_internal_topic(self, topic: str) -> bool:
        return {"orders": False}[topic]


@pytest.mark.usefixtures("clusters")
async def test_a_custom_class_that_fails_is_the_error() -> None:
    """It is named to the one that asks, and not taken for a cluster that is away: another node knows no better."""
    rig = _rig(FlowState.STANDBY)
    policy = attrs.evolve(SETTINGS.source_connector.policy, class_name=f"{__name__}.Fussy")
    rig.source.config = attrs.evolve(SETTINGS.source_connector, policy=policy)
    with pytest.raises(CustomClassError, match=r"Fussy: is_internal_topic\('new'\) failed: KeyError"):
        await rig.parts.find(must_know=False)


async def test_a_cluster_that_does_not_answer_is_an_error(clusters: dict[str, FakeBrokers]) -> None:
    """Nothing is concluded from half a look, and the next question asks again."""
    rig = _rig(FlowState.STANDBY)
    clusters["B"].down = {0}
    with pytest.raises(TopicsUnknownError, match="copies nothing of flow A->B"):
        await rig.parts.find(must_know=False)
    clusters["B"].down = set()

    assert list(await rig.parts.find(must_know=False)) == [HERE]
