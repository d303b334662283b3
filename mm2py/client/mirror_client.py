"""`MirrorClient`: Java's MirrorClient and RemoteClusterUtils for asyncio. It reads the topics of one cluster, the
target of mirrors, and the mirrors' records there. It writes nothing, commits nothing and joins no group. Names are
interpreted in `mm2py.policy.lineage`; here they are only fetched.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import ClassVar, Self, overload

import attrs

from mm2py.client.config import MirrorClientConfig
from mm2py.client.records import MirrorRecord, RecordKind, Removed, decoded, topic_of
from mm2py.client.translation import KnownPartitions, OffsetTranslation, remote_partitions
from mm2py.clock import Clock, SystemClock
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.checkpoint import Checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.topic import is_other_topic
from mm2py.policy import lineage
from mm2py.policy.replication import ReplicationPolicy
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.groups.consumer_groups import Groups
from mm2py.wire.requests import LATEST
from mm2py.wire.security.door import Opener
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.topics.admin import Admin


#: Where a group stands at the cluster that was asked, for each remote topic-partition.
Offsets = dict[TopicPartition, CommittedOffset]

#: Java's client has no such default; its callers name a time.
DEFAULT_TIMEOUT_S = 30.0

_SYNC, _POSITION = RecordKind.OFFSET_SYNC, RecordKind.POSITION


@attrs.define(eq=False)
class TopicMissingError(Mm2Error):
    """A topic of MirrorMaker 2's, or one that was asked for by name, is not on the cluster or may not be seen."""

    hint: ClassVar[str] = (
        "check the alias, the replication policy's separator, and that a flow from that cluster runs and may be read"
    )

    cluster: str
    topic: str
    what: str = ""

    def __str__(self) -> str:
        purpose = f", which would hold {self.what}" if self.what else ""
        return f"cluster {self.cluster} has no topic {self.topic}{purpose}"


@attrs.define(eq=False)
class ReadingTookTooLongError(Mm2Error):
    """
    A topic could not be read to its end in the time that was given.

    Java's client gives what it has read by then, which may be offsets of long ago; here that is an error.
    """

    hint: ClassVar[str] = "give it more time"

    cluster: str
    topic: str
    within_s: float

    def __str__(self) -> str:
        return f"{self.topic} of cluster {self.cluster} was not read to its end within {self.within_s:g} s"


class MirrorClient:
    """
    A client for one cluster that mirrors write to; enter it with ``async with``.

    Made from settings: a `MirrorClientConfig`, a mapping with the keys of Java's MirrorClientConfig, or the bootstrap
    servers alone. It may be used by several tasks at once. Errors: `ClusterUnreachableError` where no broker answers,
    `BrokerAnsweredError` for what brokers refuse (rights above all), `ConfigError` for a mapping that will not do.
    """

    def __init__(
        self,
        config: MirrorClientConfig | Mapping[str, object] | str,
        *,
        clock: Clock | None = None,
        opener: Opener = BrokerConnection.open,
    ) -> None:
        if isinstance(config, str):
            config = MirrorClientConfig(config)
        elif isinstance(config, Mapping):
            config = MirrorClientConfig.from_mapping(config)
        self.config = config
        self._cluster = Cluster(config.endpoint, clock or SystemClock(), opener=opener)

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.close()

    @property
    def replication_policy(self) -> ReplicationPolicy:
        """How topics are named, as the settings say."""
        return self.config.policy

    # Names: which mirrors there are.

    async def topics(self) -> frozenset[str]:
        """List the cluster's topics, without Kafka's own."""
        view = await Admin(self._cluster).list_topics()
        return frozenset(name for name, topic in view.topics.items() if not topic.is_internal)

    async def replication_hops(self, upstream_alias: str) -> int:
        """Return how many hops the shortest way from cluster *upstream_alias* to this one has; -1 if there is none. It
        is derived from mirrored heartbeats, so a flow counts from its first heartbeat on.
        """
        _require(upstream_alias, "upstream_alias")
        return lineage.replication_hops(self.config.policy, await self.topics(), upstream_alias)

    async def heartbeat_topics(self) -> frozenset[str]:
        """List the heartbeats topics: ``heartbeats``, ``A.heartbeats``, ``B.A.heartbeats``."""
        return lineage.heartbeats_topics(self.config.policy, await self.topics())

    async def checkpoint_topics(self) -> frozenset[str]:
        """List the checkpoints topics, one for each cluster that groups are translated from."""
        return lineage.checkpoints_topics(self.config.policy, await self.topics())

    async def upstream_clusters(self) -> frozenset[str]:
        """List the clusters whose records may come here, directly or through others."""
        return lineage.upstream_clusters(self.config.policy, await self.topics())

    async def remote_topics(self, source: str | None = None) -> frozenset[str]:
        """List the topics that were mirrored here; with *source* those that came straight from that cluster."""
        if source is not None:
            _require(source, "source")
        return lineage.remote_topics(self.config.policy, await self.topics(), source)

    def is_heartbeat_topic(self, topic: str) -> bool:
        """Whether *topic* holds heartbeats, of this cluster or mirrored."""
        return self.config.policy.is_heartbeats_topic(topic)

    def is_checkpoint_topic(self, topic: str) -> bool:
        """Whether *topic* holds checkpoints."""
        return self.config.policy.is_checkpoints_topic(topic)

    def is_remote_topic(self, topic: str) -> bool:
        """Whether *topic* was mirrored here."""
        return bool(lineage.remote_topics(self.config.policy, [topic]))

    def count_hops(self, topic: str, upstream_alias: str) -> int:
        """Return how many hops *topic* is away from cluster *upstream_alias*; -1 where it did not come from there."""
        return lineage.count_hops(self.config.policy, topic, upstream_alias)

    # Offsets: where groups of another cluster stand here.

    @overload
    async def remote_consumer_offsets(  # type: ignore[overload-overlap]  # a text is one name, not many letters
        self, group: str, source_alias: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Offsets: ...

    @overload
    async def remote_consumer_offsets(
        self, group: re.Pattern[str] | Collection[str], source_alias: str, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> dict[str, Offsets]: ...

    async def remote_consumer_offsets(
        self,
        group: str | re.Pattern[str] | Collection[str],
        source_alias: str,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Offsets | dict[str, Offsets]:
        """
        Return the translated offsets of groups of cluster *source_alias*, from its latest checkpoints here.

        One group by its name gives its offsets by remote topic-partition, none where it has no checkpoint. A compiled
        pattern, which must match the whole name, or several names give the offsets of each group that has
        checkpoints, in one reading (KIP-1239). mm2py's checkpoints say of which topic they are: one of a remote topic
        that has been deleted and created again is none.

        Raises `TopicMissingError` if there are no checkpoints of that cluster, `ReadingTookTooLongError`, TypeError or
        ValueError for an invalid argument. Records that cannot be parsed are ignored.
        """
        matches = _matcher(group)
        _require(source_alias, "source_alias")
        latest: dict[bytes | None, Checkpoint] = {}
        topic = self.config.policy.checkpoints_topic(source_alias)

        def take(record: LogRecord) -> None:
            content = decoded(RecordKind.CHECKPOINT, topic, record).content
            if isinstance(content, Removed):
                latest.pop(record.key, None)
            elif isinstance(content, Checkpoint) and matches(content.group):
                latest[record.key] = content

        async with self._in_time(topic, timeout_s):
            await self._feed(topic, RecordKind.CHECKPOINT, take)
            ids = await self._ids({at.remote.topic for at in latest.values() if at.topic_id is not None})
        found: dict[str, Offsets] = {}
        for at in latest.values():
            if not is_other_topic(at.topic_id, ids.get(at.remote.topic)):
                found.setdefault(at.group, {})[at.remote] = CommittedOffset(at.downstream, at.metadata, at.topic_id)
        return found.get(group, {}) if isinstance(group, str) else found

    async def committed_offsets(self, group: str) -> Offsets:
        """Return what *group* has committed on this very cluster; nothing where there is no such group."""
        _require(group, "group")
        answer = (await Groups(self._cluster).committed([group]))[group]
        if isinstance(answer, BrokerAnsweredError):
            raise answer
        return dict(answer)

    async def offset_translation(
        self,
        source_alias: str,
        *,
        source: MirrorClient | None = None,
        target_alias: str = "",
        positions_topic: str = "",
        name_remote: Callable[[str], str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> OffsetTranslation:
        """
        Read the offset translations of cluster *source_alias*, to translate any offset.

        Offset syncs lie on the source cluster unless ``offset-syncs.topic.location`` says ``target``: give a client
        for it as *source*, and as *target_alias* this cluster's alias, which is in their topic's name.
        *positions_topic* is the ``offset.storage.topic`` where that has a name of its own, and *name_remote* returns
        the remote topic of a source topic where a ``RegexRouter`` names it other than the replication policy.

        Raises `TopicMissingError` where nothing is known, `ReadingTookTooLongError`, TypeError and ValueError.
        """
        _require(source_alias, "source_alias")
        if source is not None:
            _require(target_alias, "target_alias")
        policy, gathered = self.config.policy, KnownPartitions(source_alias)
        syncs = topic_of(_SYNC, source_alias, policy)
        positions = positions_topic or topic_of(_POSITION, source_alias, policy)
        async with self._in_time(f"{positions}, {syncs}", timeout_s):
            here = await self.topics()
            if positions in here:
                await self._feed(positions, _POSITION, gathered.take_position)
            if syncs in here:
                gathered.begin_syncs()
                await self._feed(syncs, _SYNC, gathered.take_sync)
            there = {} if source is None else (await Admin(source._cluster).list_topics()).topics  # noqa: SLF001
            gathered.forget_other_topics({name: topic.topic_id for name, topic in there.items()})
            if source is not None and (syncs_there := topic_of(_SYNC, target_alias, policy)) in there:
                gathered.begin_syncs()
                await source._feed(syncs_there, _SYNC, gathered.take_sync)  # noqa: SLF001 - another one of us
            elif not {positions, syncs} & here:
                raise TopicMissingError(self._cluster.alias, syncs, _SYNC.value)
            name_remote = name_remote or functools.partial(policy.format_remote_topic, source_alias)
            gathered.forget_other_remotes(
                name_remote, await self._ids({name_remote(it.topic) for it in gathered.stored})
            )
            ends = await self._ends(remote_partitions(gathered.known(), name_remote).values())
        return OffsetTranslation(gathered, name_remote, ends)

    async def _feed(self, topic: str, kind: RecordKind, take: Callable[[LogRecord], None]) -> None:
        await self._expect(topic, kind)
        async with aclosing(TopicLog(self._cluster, topic).read_from({})) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    take(record)

    async def _ids(self, topics: Collection[str]) -> dict[str, str | None]:
        """Return the ids that *topics* have now."""
        if topics:
            await self._cluster.refresh_metadata(topics)
        return {topic: self._cluster.topic_id(topic) for topic in topics}

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of those *partitions* that are there."""
        await self._cluster.refresh_metadata({tp.topic for tp in partitions})
        there = [tp for tp in partitions if tp.partition in self._cluster.partitions_of(tp.topic)]
        answers = await self._cluster.list_offsets(there, LATEST)
        return {tp: answer for tp, answer in answers.items() if isinstance(answer, int)}

    # Records: what mirrors keep here.

    async def records(
        self, topic: str, kind: RecordKind, positions: Mapping[int, int] | None = None
    ) -> AsyncGenerator[list[MirrorRecord], None]:
        """
        Read *topic* up to its present end, chunk after chunk; *positions* say where partitions are begun.

        Every record of the log comes, superseded and malformed ones too.
        """
        await self._expect(topic, kind)
        log = TopicLog(self._cluster, topic)
        async with aclosing(log.read_from(positions or {})) as chunks:
            async for chunk in chunks:
                yield [decoded(kind, topic, record) for record in chunk]

    @asynccontextmanager
    async def _in_time(self, topic: str, within_s: float) -> AsyncIterator[None]:
        """Bound the block's time; *topic* names in the error what was read."""
        if not within_s > 0:
            raise ValueError(f"timeout_s must be a time in seconds, not {within_s!r}")
        try:
            async with asyncio.timeout(within_s):
                yield
        except TimeoutError as error:
            raise ReadingTookTooLongError(self._cluster.alias, topic, within_s) from error

    async def _expect(self, topic: str, kind: RecordKind) -> None:
        """Raise what is the matter where *topic* cannot be read."""
        if not await self._cluster.has_topic(topic):
            raise TopicMissingError(self._cluster.alias, topic, kind.value)


def _matcher(group: str | re.Pattern[str] | Collection[str]) -> Callable[[str], bool]:
    """Return the test that a group's name must pass. Java refuses null here, so we refuse None by name."""
    if isinstance(group, re.Pattern):
        pattern = group
        return lambda name: pattern.fullmatch(name) is not None
    if isinstance(group, str):
        wanted = frozenset({group})
    elif isinstance(group, Collection) and all(isinstance(name, str) for name in group):
        wanted = frozenset(group)
    else:
        raise TypeError(f"group must be a name, several names or a compiled pattern, not {group!r}")
    if not wanted:
        raise ValueError("group must name at least one group")
    return wanted.__contains__


def _require(alias: str, what: str) -> None:
    if not isinstance(alias, str):
        raise TypeError(f"{what} must be a cluster's alias, not {alias!r}")
    if not alias:
        raise ValueError(f"{what} must not be empty")
