"""
Reading, creating and deleting access control entries of topics (KIP-140, pattern types from KIP-290).

Entries with an operation or pattern that this version does not know are left out: what cannot be named cannot be
copied either.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from aiokafka.protocol.admin import (
    CreateAclsRequest_v1,
    DeleteAclsRequest_v1,
    DescribeAclsRequest_v1,
)
from aiokafka.protocol.api import Request

from mm2py.errors import BrokerAnsweredError
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.patience import Patience


_TOPIC = 2
_ANY = 1
#: A KRaft controller makes one metadata record of each entry and takes 10 000 in one command.
_ACLS_PER_REQUEST = 1_000


class DescribeTopicAclsRequest(Request[DescribeAclsRequest_v1]):
    """All entries for topics, whatever they say."""

    API_KEY = 29

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(_TOPIC, None, _ANY, None, None, _ANY, _ANY)


class CreateTopicAclsRequest(Request[CreateAclsRequest_v1]):
    """Several entries at once; the answers come in their order."""

    API_KEY = 30

    def __init__(self, acls: Sequence[TopicAcl]) -> None:
        self._acls = acls

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([_row(acl) for acl in self._acls])


class DeleteTopicAclsRequest(Request[DeleteAclsRequest_v1]):
    """Several entries at once, each named in full, so that nothing else is met."""

    API_KEY = 31

    def __init__(self, acls: Sequence[TopicAcl]) -> None:
        self._acls = acls

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class([_row(acl) for acl in self._acls])


async def describe_topic_acls(cluster: Cluster) -> frozenset[TopicAcl]:
    """Read all entries for topics. Raise `BrokerAnsweredError`: SECURITY_DISABLED where there is no authorizer."""
    patience = _patience(cluster)
    while True:
        response = await cluster.send_to_any(DescribeTopicAclsRequest())
        if not response.error_code:
            return frozenset(_read(response.resources))
        if patience.is_over_for(response.error_code):
            raise error_of(response.error_code, cluster.alias, "DescribeAcls", response.error_message)
        await patience.pause()


def _read(resources: Any) -> Iterator[TopicAcl]:
    for _kind, topic, pattern, rows in resources:
        for principal, host, operation, permission in rows:
            try:
                yield TopicAcl(
                    topic, PatternType(pattern), principal, host, Operation(operation), Permission(permission)
                )
            except ValueError:
                continue


async def create_topic_acls(cluster: Cluster, acls: Sequence[TopicAcl]) -> dict[TopicAcl, BrokerAnsweredError]:
    """Create *acls*; give those that were refused. One that exists counts as created."""
    return await _command(cluster, acls, "CreateAcls", CreateTopicAclsRequest, "creation_responses")


async def delete_topic_acls(cluster: Cluster, acls: Sequence[TopicAcl]) -> dict[TopicAcl, BrokerAnsweredError]:
    """Delete *acls*; give those that were refused. One that does not exist counts as deleted."""
    return await _command(cluster, acls, "DeleteAcls", DeleteTopicAclsRequest, "filter_responses")


async def _command(
    cluster: Cluster,
    acls: Sequence[TopicAcl],
    name: str,
    request_for: Callable[[Sequence[TopicAcl]], Any],
    answers: str,
) -> dict[TopicAcl, BrokerAnsweredError]:
    refused: dict[TopicAcl, BrokerAnsweredError] = {}
    for at in range(0, len(acls), _ACLS_PER_REQUEST):
        pending = list(acls[at : at + _ACLS_PER_REQUEST])
        patience = _patience(cluster)
        while pending:
            codes: list[tuple[int, str | None]]
            try:
                response = await cluster.send_to_any(request_for(pending))
                codes = [(code, message) for code, message, *_ in getattr(response, answers)]
                if len(codes) != len(pending):  # whose is whose?
                    codes = [(ErrorCode.UNKNOWN_SERVER_ERROR, "left out of the answer")] * len(pending)
            except BrokerAnsweredError as error:
                codes = [(error.code, error.detail)] * len(pending)
            errors = {
                acl: error_of(code, cluster.alias, name, f"{acl}: {message}" if message else str(acl))
                for acl, (code, message) in zip(pending, codes, strict=True)
                if code
            }
            pending = [acl for acl in errors if not patience.is_over_for(errors[acl].code)]
            refused |= {acl: error for acl, error in errors.items() if acl not in pending}
            if pending:
                await patience.pause()
    return refused


def _row(acl: TopicAcl) -> tuple[int, str, int, str, str, int, int]:
    return _TOPIC, acl.topic, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission


def _patience(cluster: Cluster) -> Patience:
    return Patience(cluster.clock, cluster.endpoint.request_timeout_ms / 1000)
