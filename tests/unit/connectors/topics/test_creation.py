"""Creating remote topics with their sources' configs, and what happens when a cluster does not take or tell them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs
import pytest

from mm2py.config.settings import FlowSettings
from mm2py.connectors.topics.creation import TopicCreation
from mm2py.core.topics.topology import CreateTopic
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.synced import SyncedConfig
from mm2py.model.topic import ConfigEntry, ConfigSource, NewTopic, TopicDescription, TopicsView
from mm2py.telemetry.events import TopicLimitsRaised, TopicSyncFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from tests.support.flow_rig import SETTINGS, SyncedMemoryDouble, changed


SOURCE = TopicsView({"t": TopicDescription(None, {0: 0}, replication_factor=3)})
WANTED = [CreateTopic("t", "A.t", 1)]


class SourceAdmin:
    """Describes the configs of one topic, or refuses to."""

    def __init__(self, *, refusal: ErrorCode | None = None, **configs: str) -> None:
        self._answer: Mapping[str, ConfigEntry] | BrokerAnsweredError = {
            key.replace("_", "."): ConfigEntry(value, ConfigSource.TOPIC) for key, value in configs.items()
        }
        if refusal is not None:
            self._answer = error_of(refusal, "A", "DescribeConfigs", "t")

    async def topic_configs(
        self, topics: Collection[str]
    ) -> dict[str, Mapping[str, ConfigEntry] | BrokerAnsweredError]:
        return dict.fromkeys(topics, self._answer)


@attrs.define
class TargetAdmin:
    """Two brokers that do not take one config."""

    bad_key: str = "remote.storage.enable"
    all_brokers: int = 2
    are_limits_denied: bool = False
    created: list[NewTopic] = attrs.field(factory=list)
    altered: dict[str, Mapping[str, str | None]] = attrs.field(factory=dict)

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, BrokerAnsweredError | None]:
        bad = error_of(ErrorCode.INVALID_CONFIG, "B", "CreateTopics")
        self.created += [topic for topic in topics if self.bad_key not in topic.configs]
        return {topic.name: bad if self.bad_key in topic.configs else None for topic in topics}

    async def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, dict[str, BrokerAnsweredError]]:
        self.altered |= changes
        bad = error_of(ErrorCode.INVALID_CONFIG, "B", "IncrementalAlterConfigs")
        return {topic: {self.bad_key: bad} for topic, keys in changes.items() if self.bad_key in keys}

    async def broker_configs(self, _keys: Collection[str]) -> Mapping[str, ConfigEntry]:
        if self.are_limits_denied:
            raise error_of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "B", "DescribeConfigs")
        return {
            "log.message.timestamp.after.max.ms": ConfigEntry("3600000", ConfigSource.DEFAULT),
            "message.max.bytes": ConfigEntry("1048588", ConfigSource.DEFAULT),
        }


async def create(
    events: EventLog,
    source: SourceAdmin,
    target: TargetAdmin,
    memory: SyncedMemoryDouble | None = None,
    settings: FlowSettings = SETTINGS,
) -> dict[str, BrokerAnsweredError | None]:
    creation = TopicCreation(settings.source_connector, source, target, memory or SyncedMemoryDouble(), events)
    return await creation.create(WANTED, SOURCE)


async def test_new_topic_configs(events: EventLog) -> None:
    """A remote topic is created with its source's configs, which are remembered as the mirror's before."""
    target, memory = TargetAdmin(), SyncedMemoryDouble()
    results = await create(events, SourceAdmin(cleanup_policy="compact", min_insync_replicas="2"), target, memory)

    assert (results, target.created) == ({"A.t": None}, [NewTopic("A.t", 1, 1, {"cleanup.policy": "compact"})])
    assert memory.written == [SyncedConfig("A.t", "cleanup.policy", ("compact",))]


FAR_AHEAD = "message.timestamp.after.max.ms"


async def test_limits_of_the_source(events: EventLog) -> None:
    """A limit that is excluded is raised all the same where the target's brokers let less through, and told."""
    target, memory = TargetAdmin(), SyncedMemoryDouble()
    await create(events, SourceAdmin(message_timestamp_after_max_ms="86400000"), target, memory)

    assert target.created == [NewTopic("A.t", 1, 1, {FAR_AHEAD: "86400000"})]
    assert memory.written == [SyncedConfig("A.t", FAR_AHEAD, ("86400000",))]
    assert [(event.topics, event.limits) for event in events.of(TopicLimitsRaised)] == [
        (("A.t",), (f"{FAR_AHEAD}=86400000",))
    ]


async def test_limits_that_the_target_does_not_tell(events: EventLog) -> None:
    """Without the right to ask the target's brokers topics are created as ever."""
    target = TargetAdmin(are_limits_denied=True)
    await create(events, SourceAdmin(message_timestamp_after_max_ms="86400000"), target)

    assert target.created == [NewTopic("A.t", 1, 1)]
    assert events.of(TopicLimitsRaised) == ()


async def test_a_config_that_the_target_does_not_take(events: EventLog) -> None:
    """The topic is created all the same, gets every other config, and the refusal is reported."""
    target = TargetAdmin()
    results = await create(events, SourceAdmin(cleanup_policy="compact", remote_storage_enable="true"), target)

    assert (results, target.created) == ({"A.t": None}, [NewTopic("A.t", 1, 1)])
    assert target.altered == {"A.t": {"cleanup.policy": "compact", "remote.storage.enable": "true"}}
    assert ["INVALID_CONFIG" in event.error for event in events.of(TopicSyncFailed)] == [True]


async def test_a_topic_that_is_created_again_is_reported_again(events: EventLog) -> None:
    """It lacks a config once more. Of others no refusal is kept: they come and go under ever new names."""
    source, target = SourceAdmin(remote_storage_enable="true"), TargetAdmin()
    creation = TopicCreation(SETTINGS.source_connector, source, target, SyncedMemoryDouble(), events)
    for topic in ("t", "u", "t"):
        await creation.create([CreateTopic(topic, f"A.{topic}", 1)], TopicsView({topic: SOURCE.topics["t"]}))

    assert [event.topics for event in events.of(TopicSyncFailed)] == [("A.t",), ("A.u",), ("A.t",)]


async def test_configs_that_may_not_be_read(events: EventLog) -> None:
    """Without the right to read configs the topic is created without them, and the refusal is logged."""
    target = TargetAdmin()
    results = await create(events, SourceAdmin(refusal=ErrorCode.TOPIC_AUTHORIZATION_FAILED), target)

    assert (results, target.created) == ({"A.t": None}, [NewTopic("A.t", 1, 1)])
    assert len(events.of(TopicSyncFailed)) == 1


async def test_configs_that_a_broker_does_not_know_yet(events: EventLog) -> None:
    """A topic just created, or just deleted, is left to the next refresh: without configs it could stay so."""
    target = TargetAdmin()
    results = await create(events, SourceAdmin(refusal=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), target)

    assert (results, target.created) == ({}, [])
    assert events.of(TopicSyncFailed) == ()


class ChoosyFilter:
    """A filter of one's own that does not expect every config."""

    def takes_config(self, key: str) -> bool:
        return {"cleanup.policy": True}[key]

    def takes_source_default(self, key: str) -> bool:
        return self.takes_config(key)


async def test_a_filter_that_fails(events: EventLog) -> None:
    """What a custom class raises is the error of this step, with the class's name; copying does not end with it."""
    sync = attrs.evolve(SETTINGS.source_connector.topic_sync, config_filter_class=f"{__name__}.ChoosyFilter")
    with pytest.raises(Mm2Error, match=r"ChoosyFilter: takes_config\('retention.ms'\) failed: KeyError"):
        await create(
            events,
            SourceAdmin(retention_ms="1"),
            TargetAdmin(),
            settings=changed(SETTINGS, topic_sync=sync),
        )


async def test_a_memory_that_is_away_does_not_hold_up_topics(events: EventLog) -> None:
    """If nothing can be remembered the topic is created all the same, which is reported."""
    target = TargetAdmin()
    results = await create(events, SourceAdmin(cleanup_policy="compact"), target, SyncedMemoryDouble(is_away=True))

    assert (results, target.created[0].configs) == ({"A.t": None}, {"cleanup.policy": "compact"})
    assert len(events.of(TopicSyncFailed)) == 1


@pytest.mark.parametrize(
    ("setting", "brokers", "factor"),
    [(2, 5, 2), (-1, 5, -1), (None, 5, 3), (None, 2, 2), (None, 0, 1)],
)
async def test_replication_factor(events: EventLog, setting: int | None, brokers: int, factor: int) -> None:
    """The factor is the setting's, the brokers' default, or the source's as far as there are brokers for it."""
    target = TargetAdmin(all_brokers=brokers)
    await create(
        events,
        SourceAdmin(),
        target,
        settings=changed(SETTINGS, topics=attrs.evolve(SETTINGS.source_connector.topics, replication_factor=setting)),
    )

    assert [topic.replication_factor for topic in target.created] == [factor]


class LargeTarget(TargetAdmin):
    """A cluster whose brokers take long to count: each of its partitions is looked at."""

    counts = 0

    @property
    def all_brokers(self) -> int:
        self.counts += 1
        return 2

    @all_brokers.setter
    def all_brokers(self, _count: int) -> None:
        """Keep no number."""


async def test_brokers_are_counted_once_for_all_topics(events: EventLog) -> None:
    """A count takes ten milliseconds beside tens of thousands of partitions, and there may be thousands of topics."""
    target, names = LargeTarget(), [f"t{number}" for number in range(100)]
    settings = changed(SETTINGS, topics=attrs.evolve(SETTINGS.source_connector.topics, replication_factor=None))
    creation = TopicCreation(settings.source_connector, SourceAdmin(), target, SyncedMemoryDouble(), events)
    source = TopicsView(dict.fromkeys(names, SOURCE.topics["t"]))
    await creation.create([CreateTopic(name, f"A.{name}", 1) for name in names], source)

    assert [topic.replication_factor for topic in target.created] == [2] * 100
    assert target.counts == 1
