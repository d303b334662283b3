"""
What a flow needs of its clusters, and what it lacks. docs/security.md has the same in a table.

A `Need` is about operations on what exists; whether a topic that is missing could be created is for the cluster to say,
which knows more about that than ACLs.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import attrs

from mm2py.config.layers import Side
from mm2py.config.settings import FlowSettings
from mm2py.core import internal_topics
from mm2py.core.findings import Finding, Level
from mm2py.core.internal_topics import InternalTopic
from mm2py.model.acl import Operation
from mm2py.policy.replication import ReplicationPolicy


_LISTED: Final = 3
_OWN = frozenset({Operation.DESCRIBE, Operation.READ, Operation.WRITE})
_READS = frozenset({Operation.READ, Operation.DESCRIBE})
_HINT: Final = "grant it with kafka-acls.sh --add"


class Resource(enum.Enum):
    """What an operation is on."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    CLUSTER = "the cluster"


@attrs.frozen
class Need:
    """Operations on some resources of one side, and what they are for."""

    side: Side
    resource: Resource
    names: tuple[str, ...]
    operations: frozenset[Operation]
    purpose: str
    #: Does the flow not copy without it?
    is_vital: bool = False


@attrs.frozen
class OwnTopic:
    """An internal topic on one side, and what it is for."""

    side: Side
    topic: InternalTopic
    purpose: str
    is_vital: bool = False
    #: Is it created only once the flow has several nodes?
    is_of_nodes: bool = False


#: What is allowed on each resource of one side; None, or no entry, where that is unknown.
Allowed = Mapping[tuple[Resource, str], frozenset[Operation] | None]


def own_topics(settings: FlowSettings, policy: ReplicationPolicy) -> Iterator[OwnTopic]:
    """Return the topics that the flow keeps for itself."""
    source, checkpoint = settings.source_connector, settings.checkpoint_connector
    yield OwnTopic(Side.TARGET, internal_topics.overrides(settings.worker.config_storage), "overrides")
    if settings.heartbeat_connector.is_emitted:
        topic = internal_topics.heartbeats(settings.heartbeat_connector, policy)
        yield OwnTopic(Side.TARGET, topic, "heartbeats")
    if settings.is_enabled:
        yield OwnTopic(Side.TARGET, internal_topics.positions(source), "positions", is_vital=True)
        if source.topic_sync.configs_enabled or source.topic_sync.acls_enabled:
            purpose = "sync.topic.configs.enabled and sync.topic.acls.enabled"
            yield OwnTopic(Side.TARGET, internal_topics.synced(source), purpose)
    if settings.reads_source:
        topic = internal_topics.statuses(settings.worker.status_storage)
        yield OwnTopic(Side.TARGET, topic, "what nodes report to each other", is_of_nodes=True)
    if checkpoint.is_run:
        yield OwnTopic(Side.TARGET, internal_topics.checkpoints(checkpoint, policy), "checkpoints")
    if settings.is_enabled and source.offset_syncs.is_emitted:
        side = Side.SOURCE if source.offset_syncs.location == "source" else Side.TARGET
        yield OwnTopic(side, internal_topics.offset_syncs(source, policy), "offset syncs")


def needs(
    settings: FlowSettings, own: Sequence[OwnTopic], topics: Collection[str], remote_topics: Collection[str],
    groups: Collection[str],
) -> Iterator[Need]:  # fmt: skip
    """Return what the flow needs to mirror *topics* to *remote_topics*, and to translate *groups*."""
    for it in own:
        yield Need(it.side, Resource.TOPIC, (it.topic.name,), _OWN, it.purpose, is_vital=it.is_vital)
    if settings.is_enabled:
        yield from _of_records(settings, tuple(sorted(topics)), tuple(sorted(remote_topics)))
    if settings.reads_source:
        yield Need(
            Side.TARGET, Resource.TRANSACTIONAL_ID, _transactional_ids(settings),
            frozenset({Operation.DESCRIBE, Operation.WRITE}), "refusing writes of a node that was replaced",
        )  # fmt: skip
        yield from _of_groups(settings, tuple(sorted(groups)))


def needs_of_syncs(settings: FlowSettings, policy: ReplicationPolicy) -> Iterator[Need]:
    """Return what a checkpoint connector needs of the offset syncs that a source connector elsewhere writes."""
    if settings.reads_source and not settings.is_enabled:
        side, other = settings.checkpoint_connector.syncs_at
        yield Need(Side(side), Resource.TOPIC, (policy.offset_syncs_topic(other),), _READS, "offset syncs")


def _of_records(settings: FlowSettings, sources: tuple[str, ...], remotes: tuple[str, ...]) -> Iterator[Need]:
    """Return what the source connector needs of the topics that it mirrors."""
    sync = settings.source_connector.topic_sync
    yield Need(Side.SOURCE, Resource.TOPIC, sources, _READS, "records", is_vital=True)
    written = _OWN | (
        {Operation.DELETE} if settings.source_connector.broken_history.on_source_recreated == "re-create" else set()
    )
    yield Need(Side.TARGET, Resource.TOPIC, remotes, written, "records", is_vital=True)
    changed = {Operation.ALTER, Operation.DESCRIBE_CONFIGS}
    yield Need(Side.TARGET, Resource.TOPIC, remotes, frozenset(changed), "partitions and limits of remote topics")
    if sync.configs_enabled:
        reads, writes = frozenset({Operation.DESCRIBE_CONFIGS}), frozenset({Operation.ALTER_CONFIGS})
        yield Need(Side.SOURCE, Resource.TOPIC, sources, reads, "sync.topic.configs.enabled")
        yield Need(Side.TARGET, Resource.TOPIC, remotes, writes, "sync.topic.configs.enabled")
    if sync.acls_enabled:
        acls = frozenset({Operation.DESCRIBE})
        yield Need(Side.SOURCE, Resource.CLUSTER, ("",), acls, "sync.topic.acls.enabled")
        yield Need(Side.TARGET, Resource.CLUSTER, ("",), acls | {Operation.ALTER}, "sync.topic.acls.enabled")


def _transactional_ids(settings: FlowSettings) -> tuple[str, ...]:
    own = settings.worker.owner_id
    return (f"{settings.worker.task_ids}-*", own) if settings.is_enabled else (own,)


def _of_groups(settings: FlowSettings, groups: tuple[str, ...]) -> Iterator[Need]:
    describe, read = frozenset({Operation.DESCRIBE}), frozenset({Operation.READ})
    yield Need(Side.TARGET, Resource.GROUP, (settings.group_id,), read, "sharing the flow between nodes")
    if settings.is_enabled and settings.source_connector.copying.start_group:
        yield Need(
            Side.SOURCE, Resource.GROUP, (settings.source_connector.copying.start_group,), describe, "copy.start.group"
        )
    if settings.checkpoint_connector.is_run:
        yield Need(Side.SOURCE, Resource.GROUP, groups, describe, "checkpoints")
        if settings.checkpoint_connector.is_synced:
            yield Need(Side.TARGET, Resource.GROUP, groups, read | describe, "sync.group.offsets.enabled")


def lacking(need: Need, allowed: Allowed, alias: str, principal: str) -> Iterator[Finding]:
    """Compare a *need* with what is *allowed* on cluster *alias*: one finding for all that lack the same."""
    missing: dict[tuple[Operation, ...], list[str]] = {}
    unknown = []
    for name in need.names:
        operations = allowed.get((need.resource, name))
        if operations is None:
            unknown.append(name)
        elif lacks := tuple(sorted(need.operations - operations)):
            missing.setdefault(lacks, []).append(name)
    level = Level.ERROR if need.is_vital else Level.WARNING
    for lacks, names in missing.items():
        words = ", ".join(operation.name for operation in lacks)
        text = f"{principal} lacks {words} on {named(need.resource, names)} of {alias}, for {need.purpose}"
        yield Finding(level, alias, text, _HINT)
    if unknown:
        words = ", ".join(sorted(operation.name for operation in need.operations))
        text = f"whether {principal} has {words} on {named(need.resource, unknown)} of {alias}, for {need.purpose}"
        yield Finding(Level.UNKNOWN, alias, text)


def named(resource: Resource, names: Sequence[str]) -> str:
    """Return *names* of one kind in words, the first of them if there are many."""
    if resource is Resource.CLUSTER:
        return str(resource.value)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    plural = "" if len(names) == 1 else "s"
    return f"{resource.value}{plural} {', '.join(names[:_LISTED])}{more}"
