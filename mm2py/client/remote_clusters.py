"""
Java's RemoteClusterUtils: one question, one answer, a connection of its own for each.

*config* is what `MirrorClient` takes: Java's mapping, a `MirrorClientConfig`, or bootstrap servers. For several
questions, use one `MirrorClient` instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import overload

from mm2py.client.config import MirrorClientConfig
from mm2py.client.mirror_client import DEFAULT_TIMEOUT_S, MirrorClient, Offsets


Config = MirrorClientConfig | Mapping[str, object] | str


async def replication_hops(config: Config, upstream_alias: str) -> int:
    """See `MirrorClient.replication_hops`."""
    async with MirrorClient(config) as client:
        return await client.replication_hops(upstream_alias)


async def heartbeat_topics(config: Config) -> frozenset[str]:
    """See `MirrorClient.heartbeat_topics`."""
    async with MirrorClient(config) as client:
        return await client.heartbeat_topics()


async def checkpoint_topics(config: Config) -> frozenset[str]:
    """See `MirrorClient.checkpoint_topics`."""
    async with MirrorClient(config) as client:
        return await client.checkpoint_topics()


async def upstream_clusters(config: Config) -> frozenset[str]:
    """See `MirrorClient.upstream_clusters`."""
    async with MirrorClient(config) as client:
        return await client.upstream_clusters()


@overload
async def translate_offsets(  # type: ignore[overload-overlap]  # a text is one name, not many letters
    config: Config, source_alias: str, group: str, timeout_s: float = DEFAULT_TIMEOUT_S
) -> Offsets: ...


@overload
async def translate_offsets(
    config: Config, source_alias: str, group: re.Pattern[str] | Collection[str], timeout_s: float = DEFAULT_TIMEOUT_S
) -> dict[str, Offsets]: ...


async def translate_offsets(
    config: Config,
    source_alias: str,
    group: str | re.Pattern[str] | Collection[str],
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Offsets | dict[str, Offsets]:
    """See `MirrorClient.remote_consumer_offsets`; the order of the arguments is Java's."""
    async with MirrorClient(config) as client:
        return await client.remote_consumer_offsets(group, source_alias, timeout_s)
