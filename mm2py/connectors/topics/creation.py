"""
Creating remote topics, with their sources' configs from the first moment on.

A compacted topic that was created without its cleanup policy would lose records before this was noticed. If the target
does not accept a config, because it is older or different, the topic is created without configs and then gets the
accepted ones one by one; if the source's may not be read, the topic is created without them, which is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from mm2py.config.connector import MirrorSourceConfig
from mm2py.connectors.plugins import config_filter_of
from mm2py.connectors.topics.ownership import SyncedMemory
from mm2py.connectors.topics.refusals import RefusalLog
from mm2py.core.topics.configs import BROKER_NAMES, copied_configs, limits_of_brokers, wider_limits
from mm2py.core.topics.topology import CreateTopic
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.flow import Flow
from mm2py.model.synced import ForgottenConfig, SyncedConfig
from mm2py.model.topic import NewTopic, TopicsView
from mm2py.telemetry.events import TopicLimitsRaised
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, is_retriable
from mm2py.wire.topics.admin import Admin


#: How many topics are named in an event.
_NAMED = 5


class TopicCreation:
    """How one flow creates remote topics."""

    def __init__(
        self, config: MirrorSourceConfig, source: Admin, target: Admin, memory: SyncedMemory, events: EventLog
    ) -> None:
        self._replication_factor = config.topics.replication_factor
        self._source = source
        self._target = target
        self._memory = memory
        self._flow = config.flow
        self._events = events
        self._refusals = RefusalLog(config.flow, "create remote topics with their source's configs", events)
        self._remembers = config.topic_sync.configs_enabled
        self._chosen = config_filter_of(config)
        #: Remote topics that the mirror has configured, and that the last refresh did not find.
        self._missing: frozenset[str] = frozenset()

    async def create(
        self, wanted: Sequence[CreateTopic], source_topics: TopicsView
    ) -> dict[str, BrokerAnsweredError | None]:
        """Create the remote topics that are *wanted*; return per remote topic None, or why the target refused it. One
        whose configs the source cannot tell right now is left out.
        """
        if not wanted:
            return {}
        described = await self._source.topic_configs([it.topic for it in wanted])
        brokers_limits = await self._limits_of_brokers()
        configs: dict[str, dict[str, str]] = {}
        limits: dict[str, Mapping[str, str]] = {}
        unread: dict[str, BrokerAnsweredError] = {}
        for it in wanted:
            found = described[it.topic]
            if isinstance(found, BrokerAnsweredError):
                # Deleted meanwhile, or so new that not all brokers know it: the next refresh will tell.
                if not is_retriable(found.code):
                    unread[it.remote_topic] = found
                    configs[it.remote_topic] = {}
                continue
            limits[it.remote_topic] = wider_limits(found, brokers_limits, self._chosen)
            configs[it.remote_topic] = {**limits[it.remote_topic], **copied_configs(found, self._chosen)}
        factor_of = self._factors(source_topics)
        new = [
            NewTopic(it.remote_topic, it.partitions, factor_of(it.topic), configs[it.remote_topic])
            for it in wanted
            if it.remote_topic in configs
        ]
        unremembered = await self._remember(new)
        results = await self._target.create_topics(new)
        untaken = [
            topic
            for topic in new
            if topic.configs and (error := results[topic.name]) is not None and error.code == ErrorCode.INVALID_CONFIG
        ]
        refused = await self._create_bare(untaken, results)
        self._refusals.forget({it.remote_topic for it in wanted})  # the others are made, or gone
        self._refusals.note(list(results), unremembered | unread | refused)
        created = {topic: limits[topic] for topic in limits if results[topic] is None and topic not in refused}
        tell_raised(self._flow, created, self._events)
        return results

    async def forget_gone(self, there: Collection[str]) -> None:
        """
        Forget what was set on remote topics that are not among those *there*: they come and go under ever new names.

        One that may not be seen any more is not gone. A broker may not know yet what another has just created, so it
        takes two refreshes. What is still to be created counts as there: it may be, after an answer that was lost.
        """
        left_out = self._memory.configured.difference(there)
        missing = await self._target.missing(left_out) if left_out else frozenset()
        gone, self._missing = missing & self._missing, missing
        entries = [ForgottenConfig(topic, key) for topic in sorted(gone) for key in self._memory.configs_of(topic)]
        if entries:
            with suppress(Mm2Error):  # nothing depends on it, and the next refresh tries again
                await self._memory.write(entries)

    async def _limits_of_brokers(self) -> dict[str, int]:
        """Return the limits of the target's brokers; without permission, the first sync corrects them."""
        try:
            return limits_of_brokers(await self._target.broker_configs(BROKER_NAMES.values()))
        except BrokerAnsweredError:
            return {}

    async def _remember(self, new: Sequence[NewTopic]) -> dict[str, Mm2Error]:
        """Record what is about to be set, as the mirror's. Otherwise, if the source changes its configs before the
        first comparison, those here would look set by hand. Creating topics does not depend on it: if it fails, the
        comparison treats values equal to the source's as the mirror's.
        """
        entries = [SyncedConfig(topic.name, key, (value,)) for topic in new for key, value in topic.configs.items()]
        if not entries or not self._remembers:
            return {}
        try:
            await self._memory.load()
            await self._memory.write(entries)
        except Mm2Error as error:
            return {topic.name: error for topic in new if topic.configs}
        return {}

    async def _create_bare(
        self, topics: Sequence[NewTopic], results: dict[str, BrokerAnsweredError | None]
    ) -> dict[str, BrokerAnsweredError]:
        """Create *topics* without configs and set those that the target accepts; return the errors of others."""
        if not topics:
            return {}
        bare = [NewTopic(topic.name, topic.partitions, topic.replication_factor) for topic in topics]
        results |= await self._target.create_topics(bare)
        created = {topic.name: topic.configs for topic in topics if results[topic.name] is None}
        refused = await self._target.alter_topic_configs(created)
        return {topic: next(iter(errors.values())) for topic, errors in refused.items()}

    def _factors(self, source_topics: TopicsView) -> Callable[[str], int]:
        """Return what gives the replication factor of each source topic's remote topic."""
        chosen = self._replication_factor
        if chosen is not None:
            return lambda _topic: chosen
        # Not by the brokers that are up: the topic would keep the few replicas that it gets while one restarts. Counted
        # once, because that looks at each partition of the target.
        most = self._target.all_brokers
        return lambda topic: max(1, min(source_topics.topics[topic].replication_factor, most))


def tell_raised(flow: Flow, limits: Mapping[str, Mapping[str, str]], events: EventLog) -> None:
    """Report which remote topics got which *limits*, grouped by equal ones."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for topic, raised in sorted(limits.items()):
        if raised:
            alike.setdefault(tuple(f"{key}={value}" for key, value in sorted(raised.items())), []).append(topic)
    for raised_to, topics in alike.items():
        events.emit(TopicLimitsRaised(flow, tuple(topics[:_NAMED]), len(topics), raised_to))
