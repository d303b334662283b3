"""When the source is asked what the copying does not tell: where nothing is read, and what topics keep."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.source.idle_source import IdleSourceWatch
from mm2py.core.lag import Retention
from mm2py.core.source.progress import PartitionState
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.model.flow import TopicPartition
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.requests import EARLIEST
from tests.support.flow_rig import SETTINGS, LoopRig


PAUSED, HELD, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("gone", 0)
DENIED = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "A", "DescribeConfigs", "t")
KEPT = {"cleanup.policy": "delete", "retention.ms": "60000", "retention.bytes": "-1"}


class IdleSourceRig(LoopRig):
    """A `IdleSourceWatch` on a source that answers as the test says, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[TopicPartition, int | BrokerAnsweredError] = {PAUSED: 150, HELD: 900, GONE: 7}
        self.asked: list[set[TopicPartition]] = []
        self.described: list[tuple[float, set[str]]] = []
        self.configs: Mapping[str, str] | BrokerAnsweredError = KEPT
        self.is_away, self.answer_s = False, 0
        self.states = {it: PartitionState(it, f"A.{it.topic}", 100, 99) for it in (PAUSED, HELD, GONE)}
        self.measures = FlowMeasures(self.clock)
        tasks = SimpleNamespace(
            ledger=SimpleNamespace(states=self.states),
            holders=SimpleNamespace(is_held=lambda source: source == HELD, held={0: {HELD}}),
        )
        self.topic_ids = {"t": "first"}
        source = SimpleNamespace(endpoint=SETTINGS.source, list_offsets=self._list_offsets, topic_id=self.topic_ids.get)
        life: Any = SimpleNamespace(source=source, topics=SimpleNamespace(watch=self.watch_topics), tasks=tasks)
        self.loop = watch = IdleSourceWatch(self.context, self.measures, life)
        watch._admin = SimpleNamespace(topic_configs=self._topic_configs)  # type: ignore[assignment]
        self.mirror({"t": "A.t"})

    async def _list_offsets(
        self, partitions: Collection[TopicPartition], when: int
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        if self.is_away:
            raise ClusterUnreachableError("A", "a:1", "refused")
        await asyncio.sleep(self.answer_s)
        self.asked.append(set(partitions))
        return {it: 20 if when == EARLIEST else self.ends[it] for it in partitions}

    async def _topic_configs(
        self, topics: Collection[str], _keys: Collection[str]
    ) -> dict[str, Mapping[str, ConfigEntry] | BrokerAnsweredError]:
        self.described.append((asyncio.get_running_loop().time(), set(topics)))
        configs = self.configs
        if isinstance(configs, BrokerAnsweredError):
            return dict.fromkeys(topics, configs)
        return {topic: {k: ConfigEntry(v, ConfigSource.TOPIC) for k, v in configs.items()} for topic in topics}

    def mirror_another_after(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self.mirror, {"t": "A.t", "u": "A.u"})


@pytest.fixture
async def rig() -> IdleSourceRig:
    return IdleSourceRig()


async def test_a_partition_without_an_epoch_shows_its_lag(rig: IdleSourceRig) -> None:
    """The offsets of a partition that no epoch holds are read from the source; others are left alone."""
    await rig.live(5.5)
    after = rig.states[PAUSED]

    assert rig.asked == [{PAUSED}] * 2  # where logs begin, and where they end
    assert (after.log.start, after.log.high_watermark, after.lag) == (20, 150, 50)
    assert rig.states[HELD].log.high_watermark == rig.states[GONE].log.high_watermark == -1


async def test_a_partition_whose_epoch_does_not_come_back_falls_behind_visibly(rig: IdleSourceRig) -> None:
    """Once its epoch should have told where the log ends, the source is asked, held or not."""
    due_s = (SETTINGS.source_connector.copying.epoch_ms + SETTINGS.source_connector.copying.drain_ms) / 1000
    await rig.live(due_s - 1)
    before = rig.states[HELD].lag
    await rig.live(due_s + 20)

    assert (before, rig.states[HELD].lag) == (None, 800)


async def test_without_a_request_a_source_is_not_back(rig: IdleSourceRig) -> None:
    """An unavailable source is not reported as back only because there is nothing to ask it."""
    for source in (PAUSED, GONE):
        del rig.states[source]
    rig.mirror({})
    rig.reach.failed("copy", ClusterUnreachableError("A", "a:1", "refused"))
    await rig.live(30)

    assert rig.asked == []
    assert not rig.reach.is_complete


async def test_a_partition_that_cannot_be_asked_about_stays_as_it_was(rig: IdleSourceRig) -> None:
    """A broker's refusal says nothing about where the log ends."""
    rig.ends[PAUSED] = DENIED
    await rig.live(10.5)

    assert rig.states[PAUSED].log.high_watermark == -1


async def test_an_answer_is_as_old_as_its_question(rig: IdleSourceRig) -> None:
    """A process that was stopped while it asked reads an answer from before that: the end has moved on since."""
    rig.answer_s = 60
    await rig.live(5 + 2 * 60 + 0.5)

    assert rig.states[PAUSED].lag == 50
    assert rig.measures.asked_s(PAUSED) == pytest.approx(2 * 60 + 0.5)


async def test_records_of_a_topic_that_took_the_name_are_not_counted(rig: IdleSourceRig) -> None:
    """
    A topic of which 150 records were written and 100 copied was deleted and created again, and its partition stopped.

    What is written to the new one meanwhile is none of the records that were lost with the old one.
    """
    rig.states[PAUSED] = attrs.evolve(rig.states[PAUSED], topic_id="first")
    await rig.live(10.5)
    rig.topic_ids["t"], rig.ends[PAUSED] = "second", 5_000
    await rig.live(10.5)

    assert rig.states[PAUSED].log.high_watermark == 150


async def test_a_source_that_is_away_is_tried_again(rig: IdleSourceRig) -> None:
    """It is noted that the source does not answer, and once it does the numbers are right again."""
    rig.is_away = True
    await rig.live(10.5)
    away = rig.reach.is_complete
    rig.is_away = False
    await rig.live(10.5)

    assert (away, rig.reach.is_complete) == (False, True)
    assert rig.states[PAUSED].lag == 50


async def test_retention_is_read_now_and_then(rig: IdleSourceRig) -> None:
    """What topics keep is read at once, at the refresh interval, and soon after a topic is new."""
    interval_s = SETTINGS.source_connector.topics.refresh_interval_s
    rig.mirror_another_after(interval_s + 25)
    await rig.live(2 * interval_s)
    times, topics = [at for at, _ in rig.described], [asked for _, asked in rig.described]

    assert times[0] == 0
    assert interval_s <= times[1] <= interval_s + 10
    assert interval_s + 25 <= times[2] <= interval_s + 35
    assert topics == [{"t"}, {"t"}, {"t", "u"}]
    assert rig.measures.retention == {"t": Retention(60_000, None), "u": Retention(60_000, None)}


async def test_configs_that_may_not_be_read_are_unknown(rig: IdleSourceRig) -> None:
    """Without the right to read configs nothing is known of what topics keep, and it is not asked in a hurry."""
    rig.configs = DENIED
    await rig.live(60)

    assert rig.measures.retention == {}
    assert len(rig.described) == 1
