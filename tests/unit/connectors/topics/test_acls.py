"""What a round of ACLs does when clusters refuse, have no authorizer, or are away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest

from mm2py.config.connector import TopicSyncSettings
from mm2py.connectors.pair import PairedSource
from mm2py.connectors.topics import acls as topic_acls
from mm2py.connectors.topics.acls import AclSync
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError, Mm2Error
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.synced import SyncedAcl
from mm2py.telemetry.events import (
    AclSyncIdle,
    ClusterRecovered,
    ClusterUnreachable,
    StepFailed,
    TopicAclsChanged,
    TopicSyncFailed,
    TopicSyncRecovered,
)
from mm2py.wire.error_codes import ErrorCode, error_of
from tests.support.flow_rig import SETTINGS, LoopRig, SyncedMemoryDouble, changed
from tests.support.loops import turns_beside


INTERVAL_S = 600.0
ACL = TopicAcl("t", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.ALLOW)
REMOTE = attrs.evolve(ACL, topic="A.t")


@attrs.define
class FakeCluster:
    """A cluster's entries, and what it refuses."""

    alias: str
    acls: set[TopicAcl] = attrs.field(factory=set)
    failure: Mm2Error | None = None
    refuses_changes: bool = False
    answers_after_s: float = 0.0
    looks: int = 0


class AclSyncRig(LoopRig):
    """An `AclSync` between two such clusters, in virtual time."""

    def __init__(self, *, deletes: bool = False, filter_class: str = "default") -> None:
        self.source, self.target, self.memory = FakeCluster("A", {ACL}), FakeCluster("B"), SyncedMemoryDouble()
        sync = TopicSyncSettings(acls_interval_s=INTERVAL_S, acls_delete=deletes)
        topics = attrs.evolve(SETTINGS.source_connector.topics, filter_class=filter_class)
        super().__init__(changed(SETTINGS, topic_sync=sync, topics=topics))
        self.loop = AclSync(self.context, cast("Any", self.source), cast("Any", self.target), cast("Any", self.memory))


@pytest.fixture(autouse=True)
def wire(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loop talk to such clusters."""

    async def describe(cluster: FakeCluster) -> frozenset[TopicAcl]:
        cluster.looks += 1
        await asyncio.sleep(cluster.answers_after_s)
        if cluster.failure is not None:
            raise cluster.failure
        return frozenset(cluster.acls)

    async def create(cluster: FakeCluster, acls: Sequence[TopicAcl]) -> dict[TopicAcl, BrokerAnsweredError]:
        if cluster.refuses_changes:
            return {acl: error_of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "B", "CreateAcls") for acl in acls}
        cluster.acls.update(acls)
        return {}

    async def delete(cluster: FakeCluster, acls: Sequence[TopicAcl]) -> dict[TopicAcl, BrokerAnsweredError]:
        if cluster.refuses_changes:
            return {acl: error_of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "B", "DeleteAcls") for acl in acls}
        cluster.acls.difference_update(acls)
        return {}

    monkeypatch.setattr(topic_acls, "describe_topic_acls", describe)
    monkeypatch.setattr(topic_acls, "create_topic_acls", create)
    monkeypatch.setattr(topic_acls, "delete_topic_acls", delete)


async def test_what_is_missing_is_remembered_and_created() -> None:
    """An entry is the mirror's before it is created, and nothing is sent in later rounds."""
    rig = AclSyncRig()
    await rig.live(2.5 * INTERVAL_S)

    assert (rig.target.acls, rig.memory.written) == ({REMOTE}, [SyncedAcl(REMOTE)])
    assert [event.created for event in rig.events.of(TopicAclsChanged)] == [("ALLOW READ User:u on A.t",)]
    assert rig.source.looks == 3


async def test_an_entry_that_could_not_be_created_is_not_the_mirrors() -> None:
    """A refused entry is forgotten, told once with the right that is missing, and created when it may be."""
    rig = AclSyncRig()
    rig.target.refuses_changes = True
    await rig.live(1.5 * INTERVAL_S)
    forgotten = rig.memory.acls == set()
    rig.target.refuses_changes = False
    await rig.live(0.5 * INTERVAL_S)

    assert forgotten
    assert len(rig.events.of(TopicSyncFailed)) == 1
    assert [event.topics for event in rig.events.of(TopicSyncRecovered)] == [("A.t",)]
    assert (rig.target.acls, rig.memory.acls) == ({REMOTE}, {REMOTE})


async def test_an_entry_that_could_not_be_deleted_stays_the_mirrors() -> None:
    """A refused deletion is tried again, and forgotten only once it was made."""
    rig = AclSyncRig(deletes=True)
    await rig.live(0.5 * INTERVAL_S)
    rig.source.acls.clear()
    rig.target.refuses_changes = True
    await rig.live(0.5 * INTERVAL_S)
    before = set(rig.memory.acls)
    rig.target.refuses_changes = False
    await rig.live(0.5 * INTERVAL_S)

    assert before == {REMOTE}
    assert (rig.target.acls, rig.memory.acls) == (set(), set())


async def test_an_entry_of_another_source_connector_of_the_pair_stays() -> None:
    """One topic remembers what both have set; the other one gives remote topics names of its own."""
    rig = AclSyncRig(deletes=True)
    other = changed(SETTINGS, policy=attrs.evolve(SETTINGS.source_connector.policy, prefix="x-")).as_flow(
        attrs.evolve(SETTINGS.flow, connector="other")
    )
    theirs = attrs.evolve(ACL, topic="A.x-t")
    rig.context.pairs.know([PairedSource(it.source_connector) for it in (SETTINGS, other)])
    rig.memory.acls.add(theirs)
    rig.target.acls.add(theirs)
    await rig.live(1.5 * INTERVAL_S)
    both = set(rig.target.acls)
    rig.source.acls.clear()
    await rig.live(INTERVAL_S)

    assert both == {REMOTE, theirs}
    assert rig.target.acls == set()


@pytest.mark.parametrize("alias", ["A", "B"])
async def test_an_authorizer_that_goes_away_deletes_nothing(alias: str) -> None:
    """A cluster whose authorizer is switched off says so; what it said before stays as it is."""
    rig = AclSyncRig(deletes=True)
    await rig.live(0.5 * INTERVAL_S)
    cluster = rig.source if alias == "A" else rig.target
    cluster.failure = error_of(ErrorCode.SECURITY_DISABLED, alias, "DescribeAcls")
    await rig.live(2.5 * INTERVAL_S)

    assert [event.cluster for event in rig.events.of(AclSyncIdle)] == [alias]
    assert (rig.target.acls, rig.memory.acls) == ({REMOTE}, {REMOTE})


async def test_a_missing_right_to_see_entries_deletes_nothing() -> None:
    """A source that does not show its entries is not one that has none."""
    rig = AclSyncRig(deletes=True)
    await rig.live(0.5 * INTERVAL_S)
    rig.source.failure = error_of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "A", "DescribeAcls")
    await rig.live(2.5 * INTERVAL_S)

    assert rig.target.acls == {REMOTE}
    assert len(rig.events.of(TopicSyncFailed)) == 1
    assert rig.events.of(StepFailed) == ()


async def test_a_cluster_that_is_away_is_asked_again_soon() -> None:
    """After an absence the entries follow within seconds, not at the next interval."""
    rig = AclSyncRig()
    rig.target.failure = ClusterUnreachableError("B", "b:1", "refused")
    asyncio.get_running_loop().call_later(15, setattr, rig.target, "failure", None)
    await rig.live(0.1 * INTERVAL_S)

    assert rig.target.acls == {REMOTE}
    assert len(rig.events.of(ClusterUnreachable)) == 1


async def test_a_round_that_ends_at_the_source_makes_no_recovery_of_the_target() -> None:
    """Without an authorizer at the source, as in most clusters, the target is not asked for anything."""
    rig = AclSyncRig()
    rig.source.failure = error_of(ErrorCode.SECURITY_DISABLED, "A", "DescribeAcls")
    rig.reach.failed("write positions", ClusterUnreachableError("B", "b:9092", "connection refused"))
    await rig.live(2.5 * INTERVAL_S)

    assert (rig.source.looks, rig.target.looks) == (3, 0)
    assert rig.events.of(ClusterRecovered) == ()


async def test_a_round_that_hangs_is_given_up_and_tried_again() -> None:
    """A round takes `admin.timeout.ms` at most; that is logged once, and the entries follow once a round succeeds."""
    rig = AclSyncRig()
    rig.source.answers_after_s = 3_600
    limit_s = SETTINGS.source_connector.admin_timeout_ms / 1000
    asyncio.get_running_loop().call_later(2.5 * limit_s, setattr, rig.source, "answers_after_s", limit_s - 1)
    await rig.live(1 * INTERVAL_S)

    assert rig.target.acls == {REMOTE}
    assert rig.source.looks == 4
    assert [(event.step, event.error) for event in rig.events.of(StepFailed)] == [
        ("synchronise topic ACLs", "given up after 60 s (admin.timeout.ms)")
    ]


async def test_others_have_turns_while_many_acls_are_compared() -> None:
    """Those of ten thousand topics would hold the event loop for a second."""
    source = {attrs.evolve(ACL, topic=f"t{number}") for number in range(2_000)}
    plan, turns = await turns_beside(AclSyncRig().loop._plan(source, ()))

    assert len(plan.create) == 2_000
    assert turns >= 4


class ChoosyFilter:
    """A filter of one's own that does not expect every name."""

    def takes_topic(self, topic: str) -> bool:
        return {"t": True}[topic]


async def test_a_custom_filter_that_fails_is_a_step_that_failed() -> None:
    """An ACL may be for a topic that it does not expect: that is reported, once, and tried again like any refusal."""
    rig = AclSyncRig(filter_class=f"{__name__}.ChoosyFilter")
    rig.source.acls.add(attrs.evolve(ACL, topic="other"))
    await rig.live(0.5 * INTERVAL_S)
    (failed,) = rig.events.of(StepFailed)
    rig.source.acls.discard(attrs.evolve(ACL, topic="other"))
    await rig.live(0.5 * INTERVAL_S)

    assert "ChoosyFilter" in failed.error
    assert rig.target.acls == {REMOTE}
