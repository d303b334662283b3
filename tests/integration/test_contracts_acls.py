"""What brokers with an authorizer answer about access control entries, asked of real ones and of a simulated one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from aiokafka.protocol.admin import CreateAclsRequest_v1, DeleteAclsRequest_v1, DescribeAclsRequest_v1

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import AUTHORIZED, NEVER_KILLED, clusters_of
from tests.support.contracts import Side, contract


TOPIC, GROUP, ALICE, BOB = 2, 3, "User:alice", "User:bob"
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, DENY, ALLOW = 3, 4, 2, 3


@pytest.fixture(scope="module")
def authorized() -> Iterator[KafkaCluster]:
    """A cluster with an authorizer, for all tests of this file."""
    with clusters_of("target", properties={**NEVER_KILLED, **AUTHORIZED}) as clusters:
        yield clusters["target"]


@pytest.fixture
def backup(authorized: KafkaCluster) -> KafkaCluster:
    """Have the contracts of this file asked of that one."""
    return authorized


def begin(it: Side) -> tuple[str, str]:
    """Have the model have an authorizer, too; return the names of two topics."""
    if it.model is not None:
        it.model.acls = {}
    return f"{it.prefix}-one", f"{it.prefix}-two"


async def shown(it: Side, name: str | None, pattern: int = ANY, principal: str | None = None) -> None:
    await it.read(DescribeAclsRequest_v1(TOPIC, name, pattern, principal, None, ANY, ANY))


@contract
async def test_acls_are_created_once(it: Side) -> None:
    """One that is there already counts as created."""
    one, two = begin(it)
    read = (TOPIC, one, LITERAL, ALICE, "*", READ, ALLOW)
    await it.ask(CreateAclsRequest_v1([read, (TOPIC, two, PREFIXED, BOB, "10.0.0.1", WRITE, DENY)]))
    await it.ask(CreateAclsRequest_v1([read, (TOPIC, one, LITERAL, BOB, "*", READ, ALLOW)]))
    await shown(it, one)
    await shown(it, two)


@contract
async def test_acls_are_found_by_filters(it: Side) -> None:
    """By name, by what matches a name, by principal; entries of other resources are none of topics."""
    one, two = begin(it)
    await it.ask(
        CreateAclsRequest_v1(
            [
                (TOPIC, one, LITERAL, ALICE, "*", READ, ALLOW),
                (TOPIC, it.prefix, PREFIXED, BOB, "*", READ, ALLOW),
                (GROUP, one, LITERAL, ALICE, "*", READ, ALLOW),
            ]
        )
    )
    for pattern in (ANY, MATCH, LITERAL, PREFIXED):
        await shown(it, one, pattern)
        await shown(it, two, pattern)
    await shown(it, one, MATCH, ALICE)
    await shown(it, it.prefix, PREFIXED, ALICE)


@contract
async def test_acls_are_deleted_by_filters(it: Side) -> None:
    """One that is not there is deleted, too."""
    one, two = begin(it)
    acls = [(TOPIC, name, LITERAL, who, "*", READ, ALLOW) for name in (one, two) for who in (ALICE, BOB)]
    await it.ask(CreateAclsRequest_v1(acls))
    await shown(it, one)
    await it.ask(DeleteAclsRequest_v1([acls[0], (TOPIC, two, LITERAL, None, None, ANY, ANY)]))
    await shown(it, one)
    await shown(it, two)
    await it.ask(DeleteAclsRequest_v1([acls[0]]))
