"""Synchronises the configs of remote topics with their sources'. `core.topics.configs` decides what is due; this loop
reads, records, sends and reports. New topics are compared as soon as they are mirrored, all topics at every interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.plugins import config_filter_of
from mm2py.connectors.supervise import until_set
from mm2py.connectors.topics.creation import tell_raised
from mm2py.connectors.topics.refusals import RefusalLog
from mm2py.connectors.topics.remote_topics import Topics
from mm2py.core.topics.configs import ConfigPlan, plan_configs
from mm2py.errors import BrokerAnsweredError
from mm2py.model.synced import ForgottenConfig, Synced, SyncedConfig
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.telemetry.events import TopicConfigsChanged, TopicConfigsKept
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topics.admin import Admin


_STEP = "synchronise topic configs"
#: Retry interval after a round failed, or brokers did not know a new topic yet.
_RETRY_S = 10.0
#: The config of a remote topic that the copier needs.
_LIMIT = "max.message.bytes"
#: Brokers learn of a change one after the other: number and interval of checks for it.
_LOOKS = 20
_LOOK_PAUSE_S = 0.1
#: How many topics are compared before others have a turn of the event loop.
_TOPICS_A_TURN = 200


class ConfigSync(BackgroundLoop):
    """The configs of one flow's remote topics."""

    name = "topic-configs"
    is_for_owner = True

    def __init__(
        self,
        context: SourceContext,
        source: Cluster,
        target: Cluster,
        topics: Topics,
        *,
        on_limits: Callable[[], None],
    ) -> None:
        """Create it for the *topics* of a flow; *on_limits* is called once these know new limits of remote topics."""
        self._config = context.config
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self._topics = topics
        self._on_limits = on_limits
        self._source = Admin(source)
        self._target = Admin(target)
        self._memory = topics.memory
        self._refusals = RefusalLog(context.flow, _STEP, context.events)
        self._chosen = config_filter_of(context.config)
        self._remote_of: Mapping[str, str] = {}
        self._new: set[str] = set()
        self._has_new = asyncio.Event()
        self._kept: dict[str, tuple[str, ...]] = {}
        topics.watch(self._adopt)

    def _adopt(self, remote_of: Mapping[str, str]) -> None:
        """Synchronise *remote_of*, remote topic by topic, from now on."""
        self._new = {topic for topic in remote_of if topic not in self._remote_of or topic in self._new}
        self._remote_of = dict(remote_of)
        self._refusals.forget(self._remote_of)
        remote_topics = frozenset(self._remote_of.values())
        self._kept = {topic: kept for topic, kept in self._kept.items() if topic in remote_topics}
        if self._new:
            self._has_new.set()

    async def run(self) -> None:
        """Synchronise for as long as the flow lives; returns at once if the setting is off."""
        if not self._config.topic_sync.configs_enabled:
            return
        if not self._remote_of:
            await self._has_new.wait()
        interval_s = self._config.topic_sync.configs_interval_s
        looked_at = -interval_s
        while True:
            self._has_new.clear()
            now = self._clock.monotonic()
            is_whole = now - looked_at >= interval_s
            topics = list(self._remote_of) if is_whole else sorted(self._new)
            sync, limit_ms = partial(self._sync_once, topics), self._config.admin_timeout_ms
            if not await self._reach.done(_STEP, self._config.flow.aliases, sync, within_ms=limit_ms):
                await self._clock.sleep(min(interval_s, _RETRY_S))
                continue
            looked_at = now if is_whole else looked_at
            rest_s = interval_s - (self._clock.monotonic() - looked_at)
            await until_set(self._has_new, max(0.0, min(rest_s, _RETRY_S) if self._new else rest_s))

    async def _sync_once(self, topics: list[str]) -> None:
        remote_of = {topic: self._remote_of[topic] for topic in topics if topic in self._remote_of}
        await self._memory.load()
        plans, refused = await self._look(remote_of)
        await self._memory.write([entry for remote, plan in plans.items() for entry in _entries(remote, plan)])
        answers = await self._target.alter_topic_configs({remote: plan.changes for remote, plan in plans.items()})
        topic_of = {remote: topic for topic, remote in remote_of.items()}
        refused |= {topic_of[remote]: next(iter(errors.values())) for remote, errors in answers.items()}
        unseen = {topic for topic, error in refused.items() if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        # Deleted meanwhile, or so new that not all brokers know it: the next refresh will tell.
        self._new = (self._new - set(topics)) | (self._new & unseen)
        self._refusals.note(topics, {topic: error for topic, error in refused.items() if topic not in unseen})
        for remote, plan in plans.items():
            self._tell(remote, plan, answers.get(remote, {}))
        raised = {
            remote: {key: value for key, value in plan.limits.items() if key not in answers.get(remote, {})}
            for remote, plan in plans.items()
        }
        tell_raised(self._config.flow, raised, self._events)
        limits = {
            remote: plan.changes[_LIMIT]
            for remote, plan in plans.items()
            if _LIMIT in plan.changes and _LIMIT not in answers.get(remote, {})
        }
        if limits:
            await self._hand_on(limits)

    async def _look(self, remote_of: Mapping[str, str]) -> tuple[dict[str, ConfigPlan], dict[str, BrokerAnsweredError]]:
        """Describe both sides; return the changes by remote topic, and unreadable configs by topic."""
        overwrites = self._config.topic_sync.configs_overwrite
        source = await self._source.topic_configs(remote_of)
        target = await self._target.topic_configs(remote_of.values())
        plans: dict[str, ConfigPlan] = {}
        refused: dict[str, BrokerAnsweredError] = {}
        for count, (topic, remote) in enumerate(remote_of.items(), 1):
            ours, theirs = source[topic], target[remote]
            if isinstance(ours, BrokerAnsweredError):
                refused[topic] = ours
            elif isinstance(theirs, BrokerAnsweredError):
                refused[topic] = theirs
            else:
                plans[remote] = plan_configs(
                    ours, theirs, self._memory.configs_of(remote), self._chosen, overwrites=overwrites
                )
            if not count % _TOPICS_A_TURN:
                await self._clock.sleep(0)
        return plans, refused

    async def _hand_on(self, limits: Mapping[str, str | None]) -> None:
        """Inform the copier once brokers show the new *limits*, by remote topic."""
        for _ in range(_LOOKS):
            shown = await self._target.topic_configs(limits, [_LIMIT])
            if all(_shows(shown[remote], value) for remote, value in limits.items()):
                break
            await self._clock.sleep(_LOOK_PAUSE_S)
        await self._topics.measure_again()
        self._on_limits()

    def _tell(self, remote_topic: str, plan: ConfigPlan, refused: Mapping[str, BrokerAnsweredError]) -> None:
        flow = self._config.flow
        done = {key: value for key, value in plan.changes.items() if key not in refused}
        if done:
            put = tuple(f"{key}={value}" for key, value in done.items() if value is not None)
            deleted = tuple(key for key, value in done.items() if value is None)
            self._events.emit(TopicConfigsChanged(flow, remote_topic, put, deleted))
        kept = tuple(f"{key}={value}" for key, value in plan.kept.items())
        if kept and self._kept.get(remote_topic) != kept:
            self._events.emit(TopicConfigsKept(flow, remote_topic, kept))
        self._kept[remote_topic] = kept


def _shows(described: Mapping[str, ConfigEntry] | BrokerAnsweredError, value: str | None) -> bool:
    """Whether *value* is set on a topic itself, or with None, that nothing is."""
    if isinstance(described, BrokerAnsweredError):
        return False
    entry = described.get(_LIMIT)
    is_set = entry is not None and entry.source is ConfigSource.TOPIC
    return (entry.value if entry is not None and is_set else None) == value


def _entries(remote_topic: str, plan: ConfigPlan) -> list[Synced]:
    remembered: list[Synced] = [SyncedConfig(remote_topic, key, values) for key, values in plan.remember.items()]
    return remembered + [ForgottenConfig(remote_topic, key) for key in sorted(plan.forget)]
