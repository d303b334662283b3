"""Connections to a cluster's brokers: shared, opened again, paused between attempts, moved, closed."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.cluster import Cluster
from mm2py.wire.connections import address_of
from mm2py.wire.requests import LATEST
from tests.support.clocks import LoopClock, now
from tests.support.fake_brokers import FOO, FakeBrokers, FakeConnection, brokers_of_foo


@pytest.fixture
def brokers() -> FakeBrokers:
    return brokers_of_foo()


@pytest.mark.parametrize(
    ("server", "expected"),
    [("h:1", ("h", 1)), ("h", ("h", 9092)), ("[::1]:5", ("::1", 5)), ("[::1]", ("::1", 9092)), ("SSL://h:2", ("h", 2))],
)
def test_addresses(server: str, expected: tuple[str, int]) -> None:
    """A bootstrap server is a host with or without a port, IPv6 in brackets."""
    address = address_of(server)

    assert expected == address


async def test_connections_are_shared_by_purpose(cluster: Cluster) -> None:
    """One connection per broker and purpose, however many ask for it at once."""
    fetch, again, produce, other = await asyncio.gather(
        cluster.connection(1, "fetch"),
        cluster.connection(1, "fetch"),
        cluster.connection(1, "produce"),
        cluster.connection(2, "fetch"),
    )

    assert (fetch is again, len({id(fetch), id(produce), id(other)})) == (True, 3)


async def test_a_broken_connection_is_opened_again(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A caller that asks after the connection broke gets a new one."""
    first = await cluster.connection(1)
    first.close()
    second = await cluster.connection(1)

    assert (second.is_closed, len(brokers.open_connections)) == (False, 1)


async def test_reconnects_back_off(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Attempts at a broker that refuses come at growing distances, up to the greatest, a fifth more or less."""
    brokers.down = {1}
    times = []
    for _ in range(12):
        with pytest.raises(BrokerConnectionError, match="refused"):
            await cluster.connection(1)
        times.append(now())
    pauses = [after - before - brokers.latency_s for before, after in itertools.pairwise(times)]
    expected = [min(1.0, 0.05 * 2**number) for number in range(11)]

    assert all(0.79 * wanted <= pause <= 1.21 * wanted for pause, wanted in zip(pauses, expected, strict=True))


async def test_back_off_ends_with_success(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A broker that came back is connected to, and starts with a clean slate."""
    brokers.down = {1}
    for _ in range(6):
        with pytest.raises(BrokerConnectionError):
            await cluster.connection(1)
    brokers.down = set()
    connection = await cluster.connection(1)
    connection.close()
    started = now()
    await cluster.connection(1)

    assert now() - started == pytest.approx(brokers.latency_s)


async def test_a_broker_that_moved_is_reached_at_its_new_address(brokers: FakeBrokers, cluster: Cluster) -> None:
    """After a refresh that shows another address the old connection is closed and the new one used."""
    old = await cluster.connection(1)
    brokers.hosts[1] = "b1-new"
    await cluster.refresh_metadata(())
    await cluster.connection(1)

    assert (old.is_closed, brokers.attempts[-1]) == (True, "b1-new")


async def test_a_broker_that_moves_while_it_is_connected_to(brokers: FakeBrokers) -> None:
    """A connection to the old address that opens after the move is closed, and its caller has to ask again."""
    gates: list[asyncio.Event] = []

    async def open_late(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        connection = await brokers.open(endpoint, host, port)
        if gates:
            await gates.pop().wait()
        return connection

    async with Cluster(brokers.endpoint, LoopClock(), opener=open_late) as cluster:
        await cluster.connection(0)  # which is asked for metadata, then
        gate = asyncio.Event()
        gates.append(gate)
        first = asyncio.create_task(cluster.connection(1))
        await asyncio.sleep(2 * brokers.latency_s)
        brokers.hosts[1] = "b1-new"
        await cluster.refresh_metadata(())
        await cluster.connection(1)
        gate.set()
        with pytest.raises(BrokerConnectionError, match="moved"):
            await first

    assert brokers.open_connections == []


async def test_a_broker_that_is_fenced_for_a_moment_keeps_its_connections(
    brokers: FakeBrokers, cluster: Cluster
) -> None:
    """A broker that is missing from one answer is used on the same connection when it is back."""
    connection = await cluster.connection(1)
    host = brokers.hosts.pop(1)
    await cluster.refresh_metadata(())
    brokers.hosts[1] = host
    await cluster.refresh_metadata(())

    assert (connection.is_closed, await cluster.connection(1) is connection) == (False, True)


async def test_no_such_broker(cluster: Cluster) -> None:
    """A node that the metadata does not name cannot be connected to."""
    with pytest.raises(BrokerConnectionError, match="no such broker"):
        await cluster.connection(99)


async def test_close_leaves_nothing_open(brokers: FakeBrokers) -> None:
    """Leaving the block closes every connection, and nothing can be opened after."""
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        await cluster.connection(0, "fetch")
        await cluster.connection(1, "produce")
    with pytest.raises(BrokerConnectionError, match="closed"):
        await cluster.connection(2)

    assert brokers.open_connections == []


async def test_cancelled_anywhere_nothing_is_left_open(brokers: FakeBrokers) -> None:
    """Cancelled at any moment of connecting and asking, the cluster closes what it had opened."""

    async def use() -> None:
        async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
            await cluster.list_offsets(FOO, LATEST)

    left = []
    for step in range(20):
        task = asyncio.create_task(use())
        await asyncio.sleep(0.001 + step * 0.005)
        task.cancel()
        await asyncio.wait([task])
        left.append(len(brokers.open_connections))

    assert left == [0] * 20
