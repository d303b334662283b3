"""When an epoch asks for metadata, and for which topics."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from mm2py.errors import ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.pipeline.copy.metadata import WantedTopics, follow_leaders, renew_aged
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.copy_rig import rig_of
from tests.support.fake_brokers import FakeConnection, brokers_of_foo
from tests.support.in_process import InProcessCluster


class _Cluster:
    """A cluster whose topics have ten partitions each and have all aged; each answer takes a second."""

    clock = LoopClock()
    may_have_moved = False

    def __init__(self, topics: Collection[str] = (), *, fails_after: int = 1_000) -> None:
        self.asked: list[list[str]] = []
        self._topics = topics
        self._fails_after = fails_after

    def aged(self, topics: Collection[str]) -> list[str]:
        return sorted(set(topics) & set(self._topics))

    def partitions_of(self, _topic: str) -> tuple[int, ...]:
        return tuple(range(10))

    async def refresh_metadata(self, topics: Collection[str]) -> None:
        self.asked.append(sorted(topics))
        await asyncio.sleep(1)
        if len(self.asked) > self._fails_after:
            raise ClusterUnreachableError("A", "a:9092", "connection refused")

    ensure_metadata = refresh_metadata


async def test_only_topics_in_trouble_are_asked_for() -> None:
    """Those that get into trouble while brokers answer are in the next request, all of them."""
    cluster: Any = _Cluster()
    wanted = WantedTopics()
    following = asyncio.ensure_future(follow_leaders(cluster, wanted))
    wanted.add("a")
    await asyncio.sleep(0.5)
    for topic in ("c", "b", "c"):
        wanted.add(topic)
    await asyncio.sleep(5)
    following.cancel()

    assert cluster.asked == [["a"], ["b", "c"]]
    assert not wanted.is_set()


async def test_what_has_aged_is_renewed_a_part_at_a_time() -> None:
    """Of thousands of partitions one answer would take long to decode; a cluster that is away is left to the epoch."""
    topics = [f"t{number:03}" for number in range(120)]
    cluster: Any = _Cluster(topics[:110])
    gone: Any = _Cluster(topics, fails_after=1)
    await renew_aged(cluster, topics)
    await renew_aged(gone, topics)

    assert cluster.asked == [topics[:50], topics[50:100], topics[100:110]]
    assert len(gone.asked) == 2


async def test_a_broker_that_moved_from_an_address_where_nothing_answers() -> None:
    """
    A broker comes back under another address, and its former one is silent, so that no attempt to connect fails.

    The epoch ends before it would; the next one asks where the brokers are, although no topic has aged.
    """
    brokers = brokers_of_foo()

    async def open_there(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        if host not in brokers.hosts.values():
            await asyncio.sleep(60)
        return await brokers.open(endpoint, host, port)

    async with Cluster(brokers.endpoint, LoopClock(), opener=open_there) as cluster:
        brokers.hosts[1] = "b1-new"
        for _ in range(2):
            await renew_aged(cluster, ())
            opening = asyncio.ensure_future(cluster.connection(1))
            await asyncio.wait([opening], timeout=5)
            opening.cancel()
            await asyncio.wait([opening])

    assert brokers.attempts[-1] == "b1-new"
    assert not opening.cancelled()


async def test_records_do_not_wait_for_metadata_that_has_only_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch begins to copy with the leaders that it knows, while brokers are asked again."""
    rig = rig_of(1)
    asked: list[str] = []

    async def slow(cluster: InProcessCluster, _topics: Collection[str]) -> None:
        asked.append(cluster.alias)
        await asyncio.sleep(0.8)

    monkeypatch.setattr(InProcessCluster, "aged", lambda _cluster, topics: list(topics))
    monkeypatch.setattr(InProcessCluster, "ensure_metadata", slow)
    rig.load(0, 3)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rig.epoch(epoch_ms=1_000))
        await asyncio.sleep(0.2)
        copied = rig.remote().end

    assert copied == 9
    assert sorted(asked) == ["A", "B"]
