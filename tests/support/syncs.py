"""Configs and ACLs of topics as a test sets and reads them, key by key and entry by entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from mm2py.clock import SystemClock
from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.topic import ConfigSource
from mm2py.wire.cluster import Cluster
from mm2py.wire.topics.acls import create_topic_acls, delete_topic_acls, describe_topic_acls
from mm2py.wire.topics.admin import Admin
from tests.support.eventually import eventually


def allow(topic: str, principal: str, operation: Operation, **changes: object) -> TopicAcl:
    """Make an entry that allows something on one topic from everywhere; *changes* say what is else."""
    return TopicAcl(
        **{
            "topic": topic,
            "pattern": PatternType.LITERAL,
            "principal": f"User:{principal}",
            "host": "*",
            "operation": operation,
            "permission": Permission.ALLOW,
            **changes,
        }  # type: ignore[arg-type]
    )


@asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Cluster]:
    """Connect to a cluster for a moment."""
    async with Cluster(ClusterEndpoint("test", tuple(bootstrap.split(","))), SystemClock()) as cluster:
        yield cluster


async def set_configs(bootstrap: str, topic: str, **configs: str | None) -> None:
    """Set configs of a topic and delete those that are None; underscores stand for dots. The others stay."""
    changes = {key.replace("_", "."): value for key, value in configs.items()}
    async with connected(bootstrap) as cluster:
        assert await Admin(cluster).alter_topic_configs({topic: changes}) == {}


async def own_configs(bootstrap: str, topic: str) -> dict[str, str | None]:
    """Return the configs that are set on a topic itself."""
    async with connected(bootstrap) as cluster:
        described = (await Admin(cluster).topic_configs([topic]))[topic]
        assert isinstance(described, Mapping), described
        return {key: entry.value for key, entry in described.items() if entry.source is ConfigSource.TOPIC}


async def topic_acls(bootstrap: str, *, under: str) -> set[TopicAcl]:
    """Return the entries of the topics whose names begin so."""
    async with connected(bootstrap) as cluster:
        return {acl for acl in await describe_topic_acls(cluster) if acl.topic.startswith(under)}


async def grant(bootstrap: str, acls: Collection[TopicAcl]) -> None:
    """Create entries and wait until the brokers know them."""
    async with connected(bootstrap) as cluster:
        assert await create_topic_acls(cluster, list(acls)) == {}

        async def are_known() -> bool:
            return set(acls) <= set(await describe_topic_acls(cluster))

        await eventually(are_known, within_s=30, what="the brokers know the new entries", every_s=0.02)


async def revoke(bootstrap: str, acls: Collection[TopicAcl]) -> None:
    """Delete entries and wait until the brokers know them no more."""
    async with connected(bootstrap) as cluster:
        assert await delete_topic_acls(cluster, list(acls)) == {}

        async def are_gone() -> bool:
            return not set(acls) & set(await describe_topic_acls(cluster))

        await eventually(are_gone, within_s=30, what="the brokers know the deleted entries no more", every_s=0.02)
