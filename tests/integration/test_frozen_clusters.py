"""Clusters whose brokers are stopped (SIGSTOP): they take connections, and nothing comes of them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.health import IssueCode, flow_issues, reasons_unhealthy, shown
from mm2py.model.state import FlowState, MirrorView
from mm2py.telemetry.events import ClusterRecovered, ClusterUnreachable
from tests.support.brokers import MakeCluster
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic


#: Well below what a request has.
_NOTICED_S = 12.0
_REQUEST_S = 18


@pytest.mark.parametrize("alias", ["A", "B"])
async def test_a_frozen_cluster_is_unreachable_at_once(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path, alias: str
) -> None:
    """Source or target: what is shown is what is shown later, and it is reported once, and once that it is back."""
    frozen = await asyncio.to_thread(make_cluster, f"silent-{alias.lower()}")
    source, target = (frozen, primary) if alias == "A" else (primary, frozen)
    await create_topic(source.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(source.bootstrap_servers, prefix, count=100, partitions=2)
    keys = {"A->B.topics": prefix, "offset.storage.topic": f"{prefix}-offsets", "emit.heartbeats.enabled": "true"}
    keys |= {f"{each}.request.timeout.ms": f"{_REQUEST_S * 1_000}" for each in ("A", "B")}
    settings = flow_settings(source.bootstrap_servers, target.bootstrap_servers, **keys)
    async with running_flow(settings, tmp_path) as flow:

        def state() -> FlowState:
            return shown(flow.runner.view()).state

        await flow.copied(100)
        await eventually(lambda: state() is FlowState.RUNNING, within_s=10, what="it is running")
        frozen.pause(0)
        try:
            frozen_at = time.monotonic()
            await eventually(lambda: state() is FlowState.UNREACHABLE, within_s=30, what="it is unreachable")
            noticed_s, view = time.monotonic() - frozen_at, flow.runner.view()
            await asyncio.sleep(_REQUEST_S + 4)  # what was asked before has failed by then
            later, told = flow.runner.view(), flow.events.of(ClusterUnreachable)
        finally:
            frozen.resume(0)
        await eventually(lambda: state() is FlowState.RUNNING, within_s=30, what="it runs again")
        await flow.told(ClusterRecovered)
        await eventually(lambda: flow.runner.view().lag == 0, within_s=30, what="it is level again")

    assert noticed_s < _NOTICED_S
    for each in (view, later):
        assert shown(each).state is FlowState.UNREACHABLE
        assert [(it.alias, it.is_reachable) for it in each.clusters] == [("A", alias == "B"), ("B", alias == "A")]
        wrong = [issue for issue in flow_issues(each) if not issue.is_note]
        assert [(it.code, it.about) for it in wrong] == [(IssueCode.CLUSTER_UNREACHABLE, alias)], wrong
    (reason,) = reasons_unhealthy(MirrorView(0, is_ready=True, flows=(view,)))
    assert reason == f"A->B: cluster {alias} does not answer at {frozen.bootstrap_servers}: no answer within 5 s"
    assert [event.cluster for event in told] == [alias]
    assert len(flow.events.of(ClusterRecovered)) == len(flow.events.of(ClusterUnreachable)) == 1
