"""When topic configs are compared: new topics at once, all at every interval, failures soon again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from mm2py.config.connector import TopicSyncSettings
from mm2py.connectors.topics.configs import ConfigSync
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.telemetry.events import ClusterUnreachable, TopicConfigsChanged, TopicConfigsKept, TopicSyncFailed
from mm2py.wire.error_codes import ErrorCode, error_of
from tests.support.flow_rig import SETTINGS, LoopRig, SyncedMemoryDouble, changed
from tests.support.loops import turns_beside


INTERVAL_S = 600.0


@attrs.define
class Side:
    """One cluster: the configs set on its topics, and when it was asked about which."""

    configs: dict[str, dict[str, str]] = attrs.field(factory=dict)
    looks: list[tuple[float, list[str]]] = attrs.field(factory=list)
    refusals: dict[str, BrokerAnsweredError] = attrs.field(factory=dict)
    is_away: bool = False

    async def topic_configs(
        self, topics: Collection[str], keys: Collection[str] | None = None
    ) -> dict[str, Mapping[str, ConfigEntry] | BrokerAnsweredError]:
        if keys is None:
            self.looks.append((asyncio.get_running_loop().time(), list(topics)))
        if self.is_away:
            raise ClusterUnreachableError("A", "a:1", "refused")
        return {topic: self._described(topic) for topic in topics}

    def _described(self, topic: str) -> Mapping[str, ConfigEntry] | BrokerAnsweredError:
        if topic not in self.configs:
            return error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "A", "DescribeConfigs", topic)
        return {key: ConfigEntry(value, ConfigSource.TOPIC) for key, value in self.configs[topic].items()}

    async def alter_topic_configs(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> dict[str, dict[str, BrokerAnsweredError]]:
        refused: dict[str, dict[str, BrokerAnsweredError]] = {}
        for topic, keys in changes.items():
            for key, value in keys.items():
                if key in self.refusals:
                    refused.setdefault(topic, {})[key] = self.refusals[key]
                elif value is None:
                    del self.configs[topic][key]
                else:
                    self.configs[topic][key] = value
        return refused


class ConfigSyncRig(LoopRig):
    """A `ConfigSync` between two such clusters, in virtual time."""

    def __init__(self) -> None:
        super().__init__(changed(SETTINGS, topic_sync=TopicSyncSettings(configs_interval_s=INTERVAL_S)))
        self.source, self.target = Side(), Side()
        self.measured = ""
        self.adopted: list[str] = []
        topics: Any = SimpleNamespace(
            memory=SyncedMemoryDouble(), watch=self.watch_topics, measure_again=self._measure_again
        )
        cluster: Any = SimpleNamespace(endpoint=SETTINGS.target)
        self.loop = sync = ConfigSync(
            self.context, cluster, cluster, topics, on_limits=lambda: self.adopted.append(self.measured)
        )
        sync._source = self.source  # type: ignore[assignment]
        sync._target = self.target  # type: ignore[assignment]

    async def _measure_again(self) -> None:
        self.measured = self.target.configs["A.t"]["max.message.bytes"]

    def mirror_topics(self, *topics: str) -> None:
        for topic in topics:
            self.source.configs.setdefault(topic, {})
            self.target.configs.setdefault(f"A.{topic}", {})
        self.mirror({topic: f"A.{topic}" for topic in topics})


@pytest.fixture
async def rig() -> ConfigSyncRig:
    return ConfigSyncRig()


async def test_all_topics_at_every_interval(rig: ConfigSyncRig) -> None:
    """The first look is at once, the next ones an interval apart, each at all topics."""
    rig.mirror_topics("t", "u")
    begun = asyncio.get_running_loop().time()
    await rig.live(2.5 * INTERVAL_S)

    assert [(round(at - begun), topics) for at, topics in rig.source.looks] == [
        (0, ["t", "u"]),
        (600, ["t", "u"]),
        (1200, ["t", "u"]),
    ]


async def test_new_topics_at_once(rig: ConfigSyncRig) -> None:
    """A topic that is mirrored from now on is compared alone, and does not put off the next comparison of all."""
    rig.mirror_topics("t")
    begun = asyncio.get_running_loop().time()
    asyncio.get_running_loop().call_later(100, rig.mirror_topics, "t", "u")
    await rig.live(1.1 * INTERVAL_S)

    assert [(round(at - begun), topics) for at, topics in rig.source.looks] == [
        (0, ["t"]),
        (100, ["u"]),
        (600, ["t", "u"]),
    ]


async def test_a_topic_that_brokers_do_not_know_yet(rig: ConfigSyncRig) -> None:
    """A topic so new that a broker does not know it is no error, and is compared again soon."""
    rig.mirror_topics("t", "u")
    del rig.target.configs["A.u"]
    begun = asyncio.get_running_loop().time()
    asyncio.get_running_loop().call_later(15, rig.target.configs.setdefault, "A.u", {})
    await rig.live(0.5 * INTERVAL_S)

    assert [(round(at - begun), topics) for at, topics in rig.source.looks] == [
        (0, ["t", "u"]),
        (10, ["u"]),
        (20, ["u"]),
    ]
    assert rig.events.of(TopicSyncFailed) == ()


async def test_a_cluster_that_is_away(rig: ConfigSyncRig) -> None:
    """A failed read of configs is repeated soon, and an unavailable cluster is reported once."""
    rig.mirror_topics("t")
    rig.source.is_away = True
    asyncio.get_running_loop().call_later(25, setattr, rig.source, "is_away", False)
    rig.source.configs["t"] = {"retention.ms": "5"}
    await rig.live(40)

    assert rig.target.configs["A.t"] == {"retention.ms": "5"}
    assert (len(rig.source.looks), len(rig.events.of(ClusterUnreachable))) == (4, 1)


async def test_it_begins_again_after_a_failure(rig: ConfigSyncRig) -> None:
    """A loop that is started again looks at once, though no topic is new."""
    rig.mirror_topics("t")
    await rig.live(1)
    rig.source.configs["t"] = {"retention.ms": "5"}
    await rig.live(1)

    assert rig.target.configs["A.t"] == {"retention.ms": "5"}


async def test_what_happens_is_told_once(rig: ConfigSyncRig) -> None:
    """A change is reported when it is made, what stays when its list changes, a refusal until it ends."""
    rig.source.configs["t"] = {"retention.ms": "5", "flush.ms": "1", "nope": "1"}
    rig.target.configs["A.t"] = {"flush.ms": "2"}
    rig.target.refusals["nope"] = error_of(ErrorCode.INVALID_CONFIG, "B", "IncrementalAlterConfigs", "nope")
    rig.mirror_topics("t")
    await rig.live(3.5 * INTERVAL_S)

    assert [(event.set, event.deleted) for event in rig.events.of(TopicConfigsChanged)] == [(("retention.ms=5",), ())]
    assert [event.kept for event in rig.events.of(TopicConfigsKept)] == [("flush.ms=2",)]
    assert [event.topics for event in rig.events.of(TopicSyncFailed)] == [("t",)]


async def test_the_copier_learns_a_new_limit(rig: ConfigSyncRig) -> None:
    """Once max.message.bytes was changed, partitions are planned with what the target shows."""
    rig.source.configs["t"] = {"max.message.bytes": "2000000"}
    rig.mirror_topics("t")
    await rig.live(1)

    assert rig.adopted == ["2000000"]


async def test_others_have_turns_while_many_topics_are_compared(rig: ConfigSyncRig) -> None:
    """Ten thousand would hold the event loop for a second."""
    topics = [f"t{number}" for number in range(1_000)]
    rig.mirror_topics(*topics)
    (plans, _), turns = await turns_beside(rig.loop._look({topic: f"A.{topic}" for topic in topics}))

    assert len(plans) == 1_000
    assert turns >= 5
