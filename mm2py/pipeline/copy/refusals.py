"""Errors of clusters as reasons why a partition does not get on: whom they keep out, and what to grant to whom."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error, cluster_of
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError, NotAuthorizedError, hint_at
from mm2py.wire.security.contexts import principal_of


#: What a cluster that is away, or asked at the wrong moment, raises: it is tried again.
UNREACHABLE = (ClusterUnreachableError, BrokerConnectionError, BrokerAnsweredError)

#: A broker whose answer is this late when the epoch ends is reported as silent.
SILENT_S: Final = 1.0


def failure_of(error: Mm2Error, endpoints: Iterable[ClusterEndpoint] = ()) -> PartitionFailure:
    """Put *error* into words for the operator; *endpoints* are those that it may have come from."""
    name = type(error).__name__
    if isinstance(error, BrokerAccessError | ClusterAccessError):
        return PartitionFailure(str(error), error.hint, name, cluster=error.cluster)
    if isinstance(error, NotAuthorizedError):
        hint = next((hint_at(error, it) for it in endpoints if it.alias == error.cluster), error.hint)
        return PartitionFailure(str(error), hint, name, cluster=error.cluster)
    return PartitionFailure(str(error), error.hint, name, waits_for=cluster_of(error))


def kept_out(error: Mm2Error | None) -> PartitionFailure | None:
    """Return the failure if *error* is a refused login; None otherwise."""
    return failure_of(error) if isinstance(error, BrokerAccessError | ClusterAccessError) else None


def tried_again(why: str, side: str, alias: str) -> PartitionFailure:
    """Return a failure of the cluster *alias* that the epoch overcomes by itself if it can; *side* is ``source`` or
    ``target``.
    """
    hint = f"it is tried again by itself; check the {side}'s brokers if it stays"
    return PartitionFailure(why, hint, waits_for=alias)


def late(cluster: Cluster) -> PartitionFailure:
    """Return the failure of a *cluster* that was not reached, or did not tell its topics, before the epoch was over."""
    return PartitionFailure(
        f"cluster {cluster.alias} did not answer within the epoch's time",
        "it is tried again by itself; check its brokers, the network to them, and how many connections they take",
        waits_for=cluster.alias,
    )


def silent(node: int, source: str) -> PartitionFailure:
    """Return the failure of a broker of the *source* that did not answer before the epoch was over."""
    return PartitionFailure(
        f"broker {node} at the source answered nothing within the epoch's time",
        "check that broker and the network to it; if it is only far away, raise copy.epoch.ms",
        waits_for=source,
    )


def leaderless(remote: TopicPartition, target: str) -> PartitionFailure:
    """Return the failure of a remote partition that has no leader."""
    return tried_again(f"no broker leads {remote} at the target", "target", target)


def untold(remote: TopicPartition, target: str) -> PartitionFailure:
    """Return the failure of a remote partition whose end the target did not tell before the epoch was over."""
    return tried_again(f"the target did not say within the epoch's time where {remote} ends", "target", target)


def endless(remote: TopicPartition, error: BrokerAnsweredError, target: ClusterEndpoint) -> PartitionFailure:
    """Return the failure of a remote partition of which the *target* answered an *error* for its end."""
    if error.code == ErrorCode.LEADER_NOT_AVAILABLE:
        return leaderless(remote, error.cluster)
    if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return PartitionFailure(str(error), lacks(target, "DESCRIBE", remote.topic), cluster=error.cluster)
    return failure_of(error) if error.hint else tried_again(str(error), "target", error.cluster)


def hint_at_fetch(code: int, source: ClusterEndpoint, topic: str) -> str | None:
    """Return what to do about a source's answer that stays until an operator acts; None for one that is tried again."""
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return lacks(source, "READ", topic)
    if code == ErrorCode.CORRUPT_MESSAGE:
        return "the source broker cannot read its own log: check its disk, or move leadership"
    return None


def lacks(endpoint: ClusterEndpoint, operation: str, topic: str) -> str:
    """Return what to grant to whom on a topic."""
    return f"grant {principal_of(endpoint)} {operation} on topic {topic} of cluster {endpoint.alias}"
