"""ACLs of topics read, created and deleted; each answer goes to the entry that it is about."""

from __future__ import annotations

import attrs
import pytest

from mm2py.errors import BrokerAnsweredError
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.wire.cluster import Cluster
from mm2py.wire.topics.acls import create_topic_acls, delete_topic_acls, describe_topic_acls
from tests.support.fake_brokers import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, FakeBrokers, says


ACL = TopicAcl("t", PatternType.LITERAL, "User:u", "*", Operation.READ, Permission.ALLOW)
OTHER = attrs.evolve(ACL, topic="p", pattern=PatternType.PREFIXED, operation=Operation.ALL, permission=Permission.DENY)


async def test_entries_are_read(brokers: FakeBrokers, cluster: Cluster) -> None:
    """All entries for topics are asked for; one with an unknown operation is left out."""
    rows = [
        (2, "t", 3, [("User:u", "*", 3, 3), ("User:u", "*", 99, 3)]),
        (2, "p", 4, [("User:u", "*", 2, 2)]),
    ]
    brokers.script(DESCRIBE_ACLS, says(0, 0, None, rows))
    found = await describe_topic_acls(cluster)
    [(_, request)] = brokers.requests_of(DESCRIBE_ACLS)
    asked = request.to_object()

    assert found == {ACL, OTHER}
    assert list(asked.values()) == [2, None, 1, None, None, 1, 1]


async def test_no_authorizer_is_an_answer(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A cluster without an authorizer says so at once."""
    brokers.script(DESCRIBE_ACLS, says(0, 54, None, []))
    with pytest.raises(BrokerAnsweredError, match="SECURITY_DISABLED"):
        await describe_topic_acls(cluster)


async def test_a_cluster_that_is_not_ready_is_asked_again(brokers: FakeBrokers, cluster: Cluster) -> None:
    """What may succeed later is repeated."""
    brokers.script(DESCRIBE_ACLS, says(0, 7, None, []), says(0, 0, None, []))

    assert await describe_topic_acls(cluster) == frozenset()


async def test_entries_are_created(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Each entry reaches the broker in full, and a refusal belongs to the entry at its place."""
    brokers.script(CREATE_ACLS, says(0, [(0, None), (42, "Invalid principal")]))
    refused = await create_topic_acls(cluster, [ACL, OTHER])
    [(_, request)] = brokers.requests_of(CREATE_ACLS)

    assert {acl: str(error) for acl, error in refused.items()} == {
        OTHER: "cluster A answered CreateAcls with INVALID_REQUEST [42] "
        "(DENY ALL User:u on PREFIXED p: Invalid principal)"
    }
    assert request.creations == [(2, "t", 3, "User:u", "*", 3, 3), (2, "p", 4, "User:u", "*", 2, 2)]


async def test_only_what_may_pass_is_repeated(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Of two entries, only the one whose answer says that it may succeed later is sent again."""
    brokers.script(
        CREATE_ACLS,
        says(0, [(7, None), (0, None)]),
        says(0, [(0, None)]),
    )
    refused = await create_topic_acls(cluster, [ACL, OTHER])
    counts = [len(request.creations) for _, request in brokers.requests_of(CREATE_ACLS)]

    assert (refused, counts) == ({}, [2, 1])


async def test_entries_are_deleted_by_their_full_names(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A filter names every field, so that it meets one entry only; nothing found counts as deleted."""
    brokers.script(DELETE_ACLS, says(0, [(0, None, []), (31, None, [])]))
    refused = await delete_topic_acls(cluster, [ACL, OTHER])
    [(_, request)] = brokers.requests_of(DELETE_ACLS)

    assert {acl: error.name for acl, error in refused.items()} == {OTHER: "CLUSTER_AUTHORIZATION_FAILED"}
    assert request.filters == [(2, "t", 3, "User:u", "*", 3, 3), (2, "p", 4, "User:u", "*", 2, 2)]
