"""A worker's connectors, followed at brokers that are made up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import attrs
import pytest

from mm2py.config.worker import StorageSettings
from mm2py.errors import BrokerConnectionError, ConnectorsNotStoredError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.herder.connector_configs import KeyValue, LoggerRequest, config_record, logger_record
from mm2py.storage import connector_store
from mm2py.storage.connector_store import ConnectorStore
from mm2py.telemetry.events import ConnectorsFollowed, ConnectorsNotFollowed, ConnectorsRefilled
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import FencedWriter
from mm2py.wire.security.access import BrokerAccessError
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, FakeConnection, empty, topics_with


def _store(brokers: FakeBrokers, events: EventLog) -> ConnectorStore:
    return ConnectorStore(
        brokers.endpoint,
        StorageSettings("configs", 1),
        "connect-cluster-g",
        clock=LoopClock(),
        events=events,
        jitter=lambda: 0.5,
        on_change=lambda _: None,
        on_request=lambda _: None,
    )


async def _nothing() -> Sequence[KeyValue]:
    return ()


async def test_an_outage_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lasts for hours, and so does the refusal of a login in the end; connectors are known again within seconds."""
    brokers, events = FakeBrokers(1), EventLog(LoopClock())
    refusals = [BrokerAccessError("A", "b0:9092", "refused", "User:mm2", "correct it")] * 100

    async def opened(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        if not brokers.down and refusals:
            raise refusals.pop()
        return await brokers.open(endpoint, host, port)

    monkeypatch.setattr(connector_store, "Cluster", partial(Cluster, opener=opened))
    store = _store(brokers, events)
    async with asyncio.TaskGroup() as tasks:
        brokers.down = set(brokers.hosts)
        following = tasks.create_task(store.follow())
        await asyncio.sleep(7_200)
        with pytest.raises(ConnectorsNotStoredError, match="connection refused"):
            await store.change(_nothing)
        brokers.down = set()
        while refusals:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(1)
        await asyncio.sleep(60)
        following.cancel()

    assert store.is_read
    assert len(events.of(ConnectorsNotFollowed)) == 2
    [over] = events.of(ConnectorsFollowed)
    assert over.away_s > 7_200


async def test_connectors_are_followed_by_another_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's file was read again: what follows is asked with its password, and nothing with the former one."""
    brokers, clock, logins = FakeBrokers(), LoopClock(), list[str]()

    async def opened(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        logins.append(endpoint.security.protocol)
        return await brokers.open(endpoint, host, port)

    monkeypatch.setattr(connector_store, "Cluster", partial(Cluster, opener=opened))
    store = _store(brokers, EventLog(clock))
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(store.follow())
        await asyncio.sleep(5)
        before, former = set(logins), brokers.open_connections
        store.endpoint = attrs.evolve(brokers.endpoint, security=Security("SSL"))
        logins.clear()
        await asyncio.sleep(5)
        async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster:
            record = config_record("m", {"topics": "orders"})
            await TopicLog(cluster, "configs").append([LogRecord(*record, partition=0)])
        await asyncio.sleep(5)
        following.cancel()

    assert (before, set(logins)) == ({"PLAINTEXT"}, {"SSL"})
    assert former
    assert all(it.is_closed for it in former)
    assert set(store.connectors) == {"m"}


async def test_a_topic_that_lost_all_records_is_filled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The only broker that holds it lost its disk. A worker that starts before the next change finds all connectors."""
    brokers, clock = FakeBrokers(), LoopClock()
    brokers.topics = topics_with("configs", [0])
    events = EventLog(clock)

    async def unguarded(*_: object) -> FencedWriter:
        return FencedWriter("connect-cluster-g")

    monkeypatch.setattr(connector_store, "Cluster", partial(Cluster, opener=brokers.open))
    monkeypatch.setattr(ConnectorStore, "_opened", unguarded)
    store, later = _store(brokers, events), _store(brokers, EventLog(clock))
    async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(store.follow())
        await asyncio.sleep(5)
        for key, value in (config_record("a", {"topics": "1"}), config_record("b", {"topics": "2"})):
            await TopicLog(cluster, "configs").append([LogRecord(key, value, partition=0)])
        await asyncio.sleep(5)
        empty(brokers.topics["configs"].partitions[0])
        await asyncio.sleep(5)
        following.cancel()
        reading = tasks.create_task(later.follow())
        await asyncio.sleep(5)
        reading.cancel()

    assert set(store.connectors) == set(later.connectors) == {"a", "b"}
    assert [event.connectors for event in events.of(ConnectorsRefilled)] == [2]


async def test_a_topic_that_lost_its_end_is_read_again_and_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An unclean election takes connectors away, and another one is created where they stood.

    That one is known, the others go on and are written again, also if brokers are away when that is tried first; no
    request is done again.
    """
    brokers, clock = FakeBrokers(), LoopClock()
    brokers.topics = topics_with("configs", [0])
    events, requests = EventLog(clock), list[LoggerRequest]()
    away = [BrokerConnectionError("B", "b1:9092", "it is gone")]

    async def unguarded(*_: object) -> FencedWriter:
        if away:
            raise away.pop()
        return FencedWriter("connect-cluster-g")

    monkeypatch.setattr(connector_store, "Cluster", partial(Cluster, opener=brokers.open))
    monkeypatch.setattr(ConnectorStore, "_opened", unguarded)
    store, later = _store(brokers, events), _store(brokers, EventLog(clock))
    store._on_request = requests.append
    request = LoggerRequest("mm2py", "DEBUG")
    async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster, asyncio.TaskGroup() as tasks:
        following = tasks.create_task(store.follow())
        await asyncio.sleep(5)
        log = TopicLog(cluster, "configs")
        for key, value in (
            config_record("a", {"topics": "1"}),
            logger_record(request),
            config_record("b", {"topics": "2"}),
        ):
            await log.append([LogRecord(key, value, partition=0)])
        await asyncio.sleep(5)
        brokers.topics["configs"].partitions[0].truncate(2)
        await asyncio.sleep(5)
        await log.append([LogRecord(*config_record("c", {"topics": "3"}), partition=0)])
        await asyncio.sleep(5)
        reading = tasks.create_task(later.follow())
        await asyncio.sleep(5)
        following.cancel()
        reading.cancel()

    assert set(store.connectors) == set(later.connectors) == {"a", "b", "c"}
    assert requests == [request]
    assert len(events.of(ConnectorsRefilled)) == 1
