"""Fixtures that unit tests share: a clock that stands still, events, and a cluster whose brokers are answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock, ManualClock
from tests.support.fake_brokers import FakeBrokers
from tests.support.memberships import Run, runner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def events(clock: ManualClock) -> EventLog:
    return EventLog(clock)


@pytest.fixture
def brokers() -> FakeBrokers:
    return FakeBrokers()


@pytest.fixture
async def cluster(brokers: FakeBrokers) -> AsyncIterator[Cluster]:
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        yield cluster


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a membership whose group at the target is as said, with the settings changed as said."""
    return runner(monkeypatch)
