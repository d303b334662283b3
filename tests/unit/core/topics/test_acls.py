"""Which ACLs the target needs; the names of some tests are those of MirrorMaker 2's own."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.topics.acls import AclPlan, mirrored_acls, plan_acls
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.policy.replication import DefaultReplicationPolicy, ReplicationPolicy


ACL = TopicAcl("t", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.ALLOW)
DEFAULT = DefaultReplicationPolicy()


def mirrored(acl: TopicAcl, *, with_prefixed: bool = False, policy: ReplicationPolicy = DEFAULT) -> set[TopicAcl]:
    return set(
        mirrored_acls(
            [acl],
            lambda topic: topic != "other",
            lambda topic: policy.format_remote_topic("A", topic),
            with_prefixed=with_prefixed,
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"operation": Operation.WRITE}, id="ALLOW WRITE"),
        pytest.param({"pattern": PatternType.PREFIXED}, id="prefixed"),
        pytest.param({"topic": "other"}, id="a topic that is not mirrored"),
        pytest.param({"topic": "*"}, id="all topics"),
    ],
)
def test_acl_filtering(change: dict[str, object]) -> None:
    """Rights to write, and entries that do not name a mirrored topic literally, are not copied."""
    assert mirrored(attrs.evolve(ACL, **change)) == set()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({}, {}, id="renamed"),
        pytest.param({"operation": Operation.ALL}, {"operation": Operation.READ}, id="ALLOW ALL"),
        pytest.param({"operation": Operation.DESCRIBE}, {"operation": Operation.DESCRIBE}, id="DESCRIBE"),
        pytest.param(
            {"operation": Operation.ALL, "permission": Permission.DENY},
            {"operation": Operation.ALL, "permission": Permission.DENY},
            id="DENY ALL",
        ),
        pytest.param(
            {"operation": Operation.WRITE, "permission": Permission.DENY},
            {"operation": Operation.WRITE, "permission": Permission.DENY},
            id="DENY WRITE",
        ),
        pytest.param({"host": "10.0.0.1"}, {"host": "10.0.0.1"}, id="host"),
    ],
)
def test_acl_transformation(change: dict[str, object], expected: dict[str, object]) -> None:
    """An entry gets the remote topic's name; the right to everything becomes the right to read; the rest is kept."""
    assert mirrored(attrs.evolve(ACL, **change)) == {attrs.evolve(ACL, topic="A.t", **expected)}


def test_prefixed_entries_need_names_that_keep_the_prefix() -> None:
    """Told to, prefixed entries are copied, but not under a policy that puts the alias behind the name."""

    class Behind(DefaultReplicationPolicy):
        def format_remote_topic(self, source_alias: str, topic: str) -> str:
            return f"{topic}.{source_alias}"

    prefixed = attrs.evolve(ACL, pattern=PatternType.PREFIXED)

    assert mirrored(prefixed, with_prefixed=True) == {attrs.evolve(prefixed, topic="A.t")}
    assert mirrored(prefixed, with_prefixed=True, policy=Behind()) == set()


def test_a_prefix_need_not_have_a_name() -> None:
    """A policy of one's own may name those topics alone that are mirrored, and ACLs are asked about for all."""

    class Listed(DefaultReplicationPolicy):
        def format_remote_topic(self, source_alias: str, topic: str) -> str:  # noqa: ARG002
            return {"orders": "shop-orders"}.get(topic)  # type: ignore[return-value]

    assert mirrored(attrs.evolve(ACL, pattern=PatternType.PREFIXED), with_prefixed=True, policy=Listed()) == set()


@pytest.mark.parametrize(
    ("source", "target", "synced", "deletes", "plan"),
    [
        pytest.param(True, False, False, True, AclPlan(create=(ACL,)), id="missing"),
        pytest.param(True, True, False, True, AclPlan(), id="there already"),
        pytest.param(True, True, True, True, AclPlan(), id="ours, and needed"),
        pytest.param(True, False, True, True, AclPlan(create=(ACL,)), id="ours, deleted by an operator"),
        pytest.param(False, True, True, True, AclPlan(delete=(ACL,)), id="ours, gone at the source"),
        pytest.param(False, True, True, False, AclPlan(), id="the same, but deleting is off"),
        pytest.param(False, True, False, True, AclPlan(), id="not ours"),
        pytest.param(False, False, True, True, AclPlan(forget=(ACL,)), id="gone on both sides"),
    ],
)
def test_plan_acls(source: bool, target: bool, synced: bool, deletes: bool, plan: AclPlan) -> None:
    """Only what is missing is created, and only what the mirror created is deleted, if at all."""
    acls = [[ACL] if there else [] for there in (source, target, synced)]

    assert plan == plan_acls(acls[0], acls[0], acls[1], acls[2], deletes=deletes)


def test_a_topic_that_is_no_longer_chosen_keeps_its_entries() -> None:
    """An entry goes when the source has it no longer, not when its topic is left out of the mirror."""
    assert plan_acls([], [ACL], [ACL], [ACL], deletes=True) == AclPlan()
