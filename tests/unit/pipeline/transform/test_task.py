"""What record tasks keep between their epochs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import attrs
import pytest

from mm2py.model.flow import Flow
from mm2py.pipeline.transform import task
from mm2py.pipeline.transform.micro_batch import RecordTask
from mm2py.pipeline.transform.task import RecordTasks
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers


AB, BA = Flow("A", "B"), Flow("B", "A")


async def test_what_has_settled_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flows restart with another password; as long as one of them runs, its connections stay."""
    brokers, clock = FakeBrokers(1), LoopClock()
    monkeypatch.setattr(task, "Cluster", partial(Cluster, opener=brokers.open))
    tasks = RecordTasks(cast("Any", None), clock, EventLog(clock))
    for flow in (AB, BA):
        tasks._tasks[flow, 0] = RecordTask(cast("Any", None), committer=None)
    cluster = tasks.cluster(brokers.endpoint)
    await cluster.connect()
    await cluster.connection(0)
    left = []
    for flow in (AB, BA):
        await tasks.settle(flow)
        left.append(len(brokers.open_connections))

    assert left == [1, 0]
    assert tasks.cluster(brokers.endpoint) is not cluster


async def test_what_begins_while_connections_are_closed_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One flow settles as the other one begins: a producer would keep a connection that is never opened again."""
    brokers, clock = FakeBrokers(1), LoopClock()
    monkeypatch.setattr(task, "Cluster", partial(Cluster, opener=brokers.open))
    tasks = RecordTasks(cast("Any", None), clock, EventLog(clock))
    ends = [attrs.evolve(brokers.endpoint, alias=alias) for alias in "AB"]
    for end in ends:
        await tasks.cluster(end).connect()
    settling = asyncio.create_task(tasks.settle(AB))
    await asyncio.sleep(0)
    begun = [tasks.cluster(end) for end in (*ends, attrs.evolve(brokers.endpoint, alias="C"))]
    await settling

    for cluster in begun:
        await cluster.connect()
        await cluster.connection(0)
        assert tasks.cluster(cluster.endpoint) is cluster
    await tasks.close()
