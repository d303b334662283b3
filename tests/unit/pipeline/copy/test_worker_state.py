"""What a Python worker keeps between epochs, and for how long."""

from __future__ import annotations

from functools import partial

import attrs
import pytest

from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.pipeline.copy import worker_state
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.wire.cluster import Cluster
from mm2py.wire.fetch import FetchSession
from tests.support.clocks import ManualClock
from tests.support.fake_brokers import FakeBrokers


async def test_what_is_reached_otherwise_now_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password is replaced every hour, and the settings are reloaded: one login of each cluster is left open."""
    brokers, clock, state = FakeBrokers(1), ManualClock(), WorkerState()
    monkeypatch.setattr(worker_state, "Cluster", partial(Cluster, opener=brokers.open))
    source = brokers.endpoint
    found = []
    for hour in range(5):
        target = ClusterEndpoint("B", source.bootstrap_servers, security=Security("SSL", (("password", str(hour)),)))
        for _ in range(360):  # an epoch every ten seconds
            for endpoint in (source, target):
                cluster = state.cluster(endpoint, clock)
                await cluster.connect()
                await cluster.connection(0)
            clock.advance(10)
        found.append((len(state.clusters), len(brokers.open_connections)))
    await state.close()

    assert found == [(2, 2)] * 5
    assert not brokers.open_connections


async def test_what_was_fetched_of_a_flow_that_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connectors come and go under ever new names; a fetch session knows each partition that it was about."""
    brokers, clock, state = FakeBrokers(1), ManualClock(), WorkerState()
    monkeypatch.setattr(worker_state, "Cluster", partial(Cluster, opener=brokers.open))
    stays, left = brokers.endpoint, []
    for number in range(5):
        for end in (stays, attrs.evolve(stays, alias=f"A{number}")):
            cluster = state.cluster(end, clock)
            await cluster.connect()
            state.sessions.setdefault((end.alias, 0, 0), FetchSession(await cluster.connection(0, "fetch")))
        for _ in range(2):
            clock.advance(400)
            state.cluster(stays, clock)
        left.append([alias for alias, *_ in state.sessions])
    await state.close()

    assert left == [[stays.alias]] * 5


async def test_what_takes_turns_in_a_worker_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of dozens of flows each comes back within minutes."""
    brokers, clock, state = FakeBrokers(1), ManualClock(), WorkerState()
    monkeypatch.setattr(worker_state, "Cluster", partial(Cluster, opener=brokers.open))
    ends = [attrs.evolve(brokers.endpoint, alias=f"A{number}") for number in range(30)]
    for _ in range(3):
        for end in ends:
            await state.cluster(end, clock).connect()
            clock.advance(10)

    assert len(brokers.attempts) == len(ends)
    await state.close()
