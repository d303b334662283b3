"""Brokers of a cluster that are frozen: their connections stay open, and nothing is answered on them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import LATEST
from tests.support.clocks import now
from tests.support.fake_brokers import FOO, FakeBrokers, FakeConnection, advance, brokers_of_foo


@pytest.fixture
def brokers() -> FakeBrokers:
    return brokers_of_foo()


@pytest.mark.parametrize("is_connected", [True, False])
async def test_what_a_frozen_broker_led_is_looked_up_before_it_is_asked_again(
    brokers: FakeBrokers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, is_connected: bool
) -> None:
    """
    A broker is frozen. Its connections stay open, or new ones are accepted, and another broker leads what it led.

    Whoever asks it gives up long before the request does. The next attempt asks the others who leads now.
    """
    frozen, send, open_connection = {0}, FakeConnection.send, brokers.open

    async def send_unless_frozen(connection: FakeConnection, request: Any) -> Any:
        await asyncio.sleep(60 if connection.node_id in frozen else 0)
        return await send(connection, request)

    async def open_unless_frozen(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        await asyncio.sleep(60 if host == "b0" else 0)
        return await open_connection(endpoint, host, port)

    await cluster.list_offsets(FOO, LATEST)
    monkeypatch.setattr(FakeConnection, "send", send_unless_frozen)
    cluster._connections._door._opener = open_unless_frozen
    partition = brokers.topics["foo"].partitions[0]
    partition.leader, partition.leader_epoch = 1, 6
    advance(partition, 42)
    asking = cluster.list_offsets(FOO[:1], LATEST) if is_connected else cluster.connection(0, "fetch")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asking
    if is_connected:
        cluster.doubt(0)
    started = now()
    await cluster.ensure_known(["foo"])

    assert cluster.leader(FOO[0]) == 1
    assert now() - started < 1
    assert cluster.aged(["foo"]) == []


async def test_a_frozen_broker_is_not_asked_for_metadata_twice(
    brokers: FakeBrokers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch that begins with a question to it ends with that; the next one asks another broker."""
    send, frozen = FakeConnection.send, set[int]()

    async def send_unless_frozen(connection: FakeConnection, request: Any) -> Any:
        frozen.update({connection.node_id} if not frozen else ())  # whichever is asked first
        await asyncio.sleep(60 if connection.node_id in frozen else 0)
        return await send(connection, request)

    await cluster.list_offsets(FOO, LATEST)  # all are connected
    monkeypatch.setattr(FakeConnection, "send", send_unless_frozen)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await cluster.refresh_metadata(["foo"])
    for _ in range(20):
        started = now()
        await cluster.refresh_metadata(["foo"])
        assert now() - started < 1
