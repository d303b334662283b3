"""A worker's connectors, followed at brokers that are made up."""

from __future__ import annotations

import asyncio
from functools import partial

import attrs
import pytest

from mm2py.config.flow_settings import StorageSettings
from mm2py.flow.control import connector_store
from mm2py.flow.control.connector_store import ConnectorStore
from mm2py.model.connector_configs import config_record
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, FakeConnection


async def test_connectors_are_followed_by_another_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker's file was read again: what follows is asked with its password, and nothing with the former one."""
    brokers, clock, logins = FakeBrokers(), LoopClock(), list[str]()

    async def opened(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        logins.append(endpoint.security.protocol)
        return await brokers.open(endpoint, host, port)

    monkeypatch.setattr(connector_store, "Cluster", partial(Cluster, opener=opened))
    store = ConnectorStore(
        brokers.endpoint,
        StorageSettings("configs", 1),
        "connect-cluster-g",
        clock=clock,
        events=EventLog(clock),
        jitter=lambda: 0.5,
        on_change=lambda _: None,
        on_restart=lambda _: None,
    )
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
