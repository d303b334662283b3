"""Dashboards that were made for Java's workers read a node: a real Prometheus scrapes it, renames as docs/metrics.md
says, and evaluates what they ask. What they ask of containers, of the JVM and of Java's own clients is not among it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import yaml
from aiohttp import web

from mm2py.devkit.ports import HOST, free_ports
from mm2py.model.rounds import RoundsView
from mm2py.model.state import FlowState, FlowView, TaskState, TaskView
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metrics import Metrics
from tests.support.clocks import ManualClock
from tests.support.eventually import eventually
from tests.support.prometheus import Prometheus, prometheus
from tests.support.views import WALL_MS, flow_view, mirror_view, partition_view


PAGE: Final = (Path(__file__).parents[2] / "docs/metrics.md").read_text()
#: The sections of the page whose rules a dashboard needs.
RULES: Final = {
    "aws": ["Dashboards made for Java"],
    "strimzi": ["Dashboards made for Java", "Strimzi's names"],
    "cut-over": ["Names with `_metrics`"],
    "reporter": ["Names with `_metrics`"],
}
#: A flow that copies, one of whose tasks has failed; one that has copied all; one that does not know; one that starts.
STATES: Final = ("busy", "level", "unknown", "starting")

_WORKER: Final = "kafka_connect_worker_"
_QUOTED: Final = 'connector=~"\\".*SourceConnector\\""'
_COMMITS: Final = f'kafka_connect_connector_task_offset_commit_avg_time_ms{{{_QUOTED},task=~"[0-9]+"}}'
_MIRROR: Final = "kafka_connect_mirror_mirrorsourceconnector_"
_ENDINGS: Final = {"": 7, "_min": 2, "_max": 30, "_avg": 8.5}
#: What Strimzi's dashboards of MirrorMaker 2 and Connect ask, and its alerts, for the JMX exporter; what is to be seen.
STRIMZI: Final[dict[str, float]] = {
    f"sum({_WORKER}connector_count)": 3,
    f"sum({_WORKER}task_count)": 4,
    f"sum({_WORKER}connector_running_task_count)": 3,
    f"sum({_WORKER}connector_paused_task_count)": 0,
    f"sum({_WORKER}connector_failed_task_count) by (connector) != 0": 1,
    f"sum({_WORKER}connector_unassigned_task_count)": 0,
    f"sum({_WORKER}connector_destroyed_task_count)": 0,
    f"sum({_WORKER}rebalance_rebalancing)": 1,
    "sum(kafka_connect_coordinator_assigned_connectors) by (pod)": 3,
    "sum(kafka_connect_coordinator_assigned_tasks) by (pod)": 4,
    f"sum(kafka_connect_source_task_source_record_active_count{{{_QUOTED}}})": 10,
    f"sum({_COMMITS}) / count({_COMMITS})": 12,
    f"sum({_MIRROR}record_rate)": 1,
    f"sum({_MIRROR}byte_rate)": 10,
    **{f"max(sum({_MIRROR}record_age_ms{it}) by (partition, topic))": value for it, value in _ENDINGS.items()},
    **{f"max(sum({_MIRROR}replication_latency_ms{it}) by (partition, topic))": value for it, value in _ENDINGS.items()},
    "sum by (source, target, topic, partition, group)"
    " (kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms)": 7,
    'sum(kafka_consumer_fetch_manager_records_lag{clientid=~".*replication-consumer\\""}) by (topic)': 10,
    "sum(sum(kafka_connect_connector_status"
    " * on (connector) group_left (connector_class) kafka_connect_connector_connector_class"
    " * on (connector) group_left (connector_version) kafka_connect_connector_connector_version"
    " * on (connector) group_left (connector_type) kafka_connect_connector_connector_type)"
    " by (connector, status, connector_class, connector_version, connector_type))": 4,
    "count(sum(kafka_connect_task_error_total_record_failures"
    " * on (connector, task) group_left (status) kafka_connect_connector_task_status"
    ") by (connector, status, task))": 2,
    'sum(kafka_connect_connector_status{status="failed"}) by (pod) > 0': 1,
    f"sum({_WORKER}connector_failed_task_count) by (pod) > 0": 1,
}
#: The same for Strimzi's metrics reporter, where the names are others.
REPORTER: Final[dict[str, float]] = {
    "sum(kafka_connect_connect_worker_metrics_connector_count)": 3,
    "sum(kafka_connect_connect_worker_metrics_task_count)": 4,
    "sum(kafka_connect_connect_worker_metrics_connector_failed_task_count) by (connector) != 0": 1,
    "sum(kafka_connect_connect_worker_rebalance_metrics_rebalancing)": 1,
    "sum(kafka_connect_connect_coordinator_metrics_assigned_connectors) by (pod)": 3,
    "sum(kafka_connect_connect_coordinator_metrics_assigned_tasks) by (pod)": 4,
    'max(kafka_connect_connector_task_metrics_offset_commit_avg_time_ms{connector=~".*SourceConnector"})': 12,
    f"sum({_MIRROR}record_rate)": 1,
    "count(kafka_connect_connector_metrics_status_info"
    " * on (connector) group_left (connector_class) kafka_connect_connector_metrics_connector_class_info"
    " * on (connector) group_left (connector_version) kafka_connect_connector_metrics_connector_version_info"
    " * on (connector) group_left (connector_type) kafka_connect_connector_metrics_connector_type_info)": 4,
    "count(kafka_connect_task_error_metrics_total_record_failures"
    " * on (connector, task) group_left (status) kafka_connect_connector_task_metrics_status_info)": 2,
}
#: What the dashboard of AWS's migration samples asks.
AWS: Final[dict[str, float]] = {
    "max(kafka_connect_mirror_source_connector_record_age_ms_avg)": 8.5,
    "max(kafka_connect_mirror_source_connector_replication_latency_ms_avg)": 8.5,
    'sum by (connector) (kafka_connect_source_task_source_record_active_count{connector!="mm2-hbc"})': 10,
    'sum by (topic) (kafka_consumer_fetch_manager_records_lag{topic!="connect-offsets"})': 10,
    "sum(kafka_consumer_incoming_byte_total) / 1000000": 600e-6,
}
_WRITTEN: Final = "kafka_connect_source_task_metrics_source_record_write_total"
#: What a dashboard for the hours of a migration asks.
CUT_OVER: Final[dict[str, float]] = {
    "max(kafka_connect_mirror_source_connector_replication_latency_ms_max >= 0)": 30,
    "max by (topic) (kafka_connect_mirror_source_connector_record_age_ms_max >= 0)": 30,
    "sum(kafka_connect_source_task_metrics_source_record_active_count) or vector(0)": 10,
    "sum(kafka_connect_worker_metrics_connector_failed_task_count) or vector(0)": 1,
    "max by (source, group) (kafka_connect_mirror_checkpoint_connector_checkpoint_latency_ms_max)": 30,
    f'sum({_WRITTEN}{{connector=~".*MirrorSourceConnector"}})': 60,
    f'count({_WRITTEN}{{connector=~".*MirrorCheckpointConnector"}})': 1,
    'sum(kafka_connect_worker_metrics_connector_running_task_count{connector=~".*MirrorSourceConnector"})': 1,
    "sum(kafka_connect_worker_rebalance_metrics_completed_rebalances_total)": 4,
    "max(kafka_connect_worker_rebalance_metrics_time_since_last_rebalance_ms)": 5_000,
    "max(kafka_connect_connector_task_metrics_offset_commit_success_percentage)": 0.75,
}
#: Whether it is safe to cut over: 1 if the lag is small, nothing is on its way, and no task has failed.
IS_SAFE: Final = (
    "(sum(kafka_connect_worker_metrics_task_count) >= bool 0)"
    " * ((max(kafka_connect_mirror_source_connector_replication_latency_ms_max >= 0) or vector(0)) < bool 5000)"
    " * ((sum(kafka_connect_source_task_metrics_source_record_active_count) or vector(0)) == bool 0)"
    " * ((sum(kafka_connect_worker_metrics_connector_failed_task_count) or vector(0)) == bool 0)"
)


def _flow(state: str) -> FlowView:
    """Make up a flow with two copy tasks and one partition of each."""
    lags = {"busy": (5, 5), "level": (0, 0), "unknown": (0, None), "starting": ()}[state]
    partitions = [partition_view("orders", at, 30, lag=lag, task=at) for at, lag in enumerate(lags)]
    last = TaskState.BACKING_OFF if state == "busy" else TaskState.RUNNING
    tasks = tuple(TaskView(at, (TaskState.RUNNING, last)[at], 7, 1, records=30) for at in range(len(lags)))
    flow = flow_view(
        partitions,
        tasks=tasks,
        commits=RoundsView(3, ended_ms=WALL_MS, avg_ms=12, max_ms=20, failed=0.25),
        rebalances=RoundsView(4, is_under_way=True, ended_ms=WALL_MS - 5_000, avg_ms=80, max_ms=90),
    )
    return flow if tasks else _starting(flow)


def _starting(flow: FlowView) -> FlowView:
    """Make up a flow whose source has not answered yet."""
    groups = tuple(attrs.evolve(it, state=FlowState.STARTING) for it in flow.groups)
    return attrs.evolve(flow, state=FlowState.STARTING, groups=groups)


def _relabelling(board: str) -> list[dict[str, Any]]:
    """Return the rules of the page that a dashboard needs; of several in one section, those that come last or first."""
    found: list[dict[str, Any]] = []
    for section in RULES[board]:
        text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
        blocks = [yaml.safe_load(it) for it in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
        block = blocks[-1 if board == "reporter" else 0]
        found += (block["scrape_configs"][0] if "scrape_configs" in block else block)["metric_relabel_configs"]
    return found


@asynccontextmanager
async def _served() -> AsyncIterator[int]:
    """Serve the metrics of a node in each state; return the port."""

    async def answer(request: web.Request) -> web.Response:
        view = mirror_view(_flow(request.match_info["state"]))
        text, _ = Metrics(EventLog(ManualClock())).exposition(view)
        return web.Response(body=text, content_type="text/plain")

    app = web.Application()
    app.router.add_get("/{state}", answer)
    runner = web.AppRunner(app)
    (port,) = free_ports(1)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        yield port
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _watched(directory: Path) -> AsyncIterator[Prometheus]:
    """Run a Prometheus that has scraped each state, once for each dashboard."""
    async with _served() as port:
        jobs = [
            {
                "job_name": f"{board}-{state}",
                "metrics_path": f"/{state}",
                "static_configs": [
                    {"targets": [f"{HOST}:{port}"], "labels": {"pod": "mm2-0", "board": board, "state": state}}
                ],
                "metric_relabel_configs": _relabelling(board),
            }
            for board in RULES
            for state in STATES
        ]
        file = directory / "prometheus.yml"
        file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
        with prometheus(directory, file) as server:
            await server.wait_until_ready()

            async def are_scraped() -> bool:
                up = await server.query("up == 1")
                assert len(up) == len(jobs), up
                return True

            await eventually(are_scraped, within_s=30, what="each state is scraped")
            yield server


async def _ask(server: Prometheus, expression: str, board: str, state: str) -> float:
    """Return the only value that an expression has for a dashboard in a state."""
    where = f'board="{board}",state="{state}"'
    asked = re.sub(r"\b(kafka_\w+)(\{?)", lambda it: f"{it[1]}{{{where}{',' if it[2] else '}'}", expression)
    found = await server.query(asked)
    assert len(found) == 1, (asked, found)
    return found[0][1]


async def test_published_dashboards_show_a_node(tmp_path: Path) -> None:
    """Each thing that they ask has a series, with the labels that they group by, and its value is the node's. The one
    for a cut-over calls it safe if all has arrived, and not while that is unknown or the flow has not started.
    """
    wanted = {"strimzi": STRIMZI, "reporter": REPORTER, "aws": AWS, "cut-over": CUT_OVER}
    async with _watched(tmp_path) as server:
        found = {board: {it: await _ask(server, it, board, "busy") for it in asked} for board, asked in wanted.items()}
        is_safe = {state: await _ask(server, IS_SAFE, "cut-over", state) for state in STATES}

    assert found == wanted
    assert is_safe == {"busy": 0, "level": 1, "unknown": 0, "starting": 0}
