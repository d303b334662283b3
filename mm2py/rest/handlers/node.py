"""Routes of the whole node: version, status, clusters, metrics and health."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

import mm2py
from mm2py.config.rest import Right
from mm2py.model.flow import Flow
from mm2py.model.health import reasons_unhealthy
from mm2py.model.state import NodeView
from mm2py.model.view_json import to_json
from mm2py.rest.route import Answer, Ask, Json, Routes, Text
from mm2py.rest.schemas import STRINGS, array, ref
from mm2py.rest.shapes import cluster_status, node_status


routes = Routes("node")

_JSON = "application/json"
_SNAPSHOT = {"type": "object", "additionalProperties": True}


@routes.add("GET", "/clusters", "The aliases of all clusters of the file", answers={200: STRINGS})
async def get_clusters(ask: Ask) -> object:
    return list(ask.node.settings.clusters)


@routes.add("GET", "/status", "The node, and the main figures of its flows", answers={200: ref("NodeStatus")})
async def get_status(ask: Ask) -> object:
    await ask.rest.ready()
    return node_status(ask.rest.view(), ask.rest.worker_id)


@routes.add(
    "GET",
    "/nodes",
    "The nodes that run each flow, as this one knows them",
    answers={200: {"type": "object", "additionalProperties": array(ref("NodeView"))}},
)
async def get_nodes(ask: Ask) -> object:
    return {str(view.flow): nodes_json(ask, view.flow) for view in ask.rest.own_view().flows}


def nodes_json(ask: Ask, flow: Flow) -> list[Json]:
    return [to_json(node) for node in ask.control.nodes(flow)]


@routes.add(
    "PUT",
    "/node/drain",
    "Give up the copy tasks of all flows to other nodes, and take none",
    answers={200: ref("NodeDrain")},
)
async def put_node_drain(ask: Ask) -> object:
    return _drain(ask, is_drained=True)


@routes.add("PUT", "/node/resume", "Take copy tasks again after a drain", answers={200: ref("NodeDrain")})
async def put_node_resume(ask: Ask) -> object:
    return _drain(ask, is_drained=False)


@routes.add(
    "GET", "/node/drain", "Whether this node is drained, and what it still runs", answers={200: ref("NodeDrain")}
)
async def get_node_drain(ask: Ask) -> object:
    return _drained(ask)


def _drain(ask: Ask, *, is_drained: bool) -> Json:
    ask.control.drain_node(is_drained=is_drained, by=ask.by)
    ask.rest.forget()
    return _drained(ask)


def _drained(ask: Ask) -> Json:
    flows = {view.flow: ask.control.nodes(view.flow) for view in ask.rest.own_view().flows}
    own = {flow: next((it for it in nodes if it.is_this), None) for flow, nodes in flows.items()}
    return {
        "worker_id": ask.rest.worker_id,
        "is_drained": ask.control.is_drained,
        "tasks": {str(flow): len(node.assigned) for flow, node in own.items() if node is not None},
        "without_others": sorted(str(flow) for flow, nodes in flows.items() if nodes and not _takers(nodes)),
    }


def _takers(nodes: Iterable[NodeView]) -> list[NodeView]:
    """Return the other nodes that can take tasks."""
    return [it for it in nodes if not it.is_this and it.is_member and it.answers and not it.is_drained]


@routes.add(
    "GET",
    "/metrics",
    "All metrics in Prometheus's format, or as JSON if the client accepts that",
    answers={200: _SNAPSHOT},
    ignores_query=True,
)
async def get_metrics(ask: Ask) -> object:
    await ask.rest.ready()
    if wants_json(ask.request):
        return ask.rest.metrics.snapshot(ask.rest.own_view())
    accepted = ask.request.headers.get("Accept", "")
    return Text(*ask.rest.metrics.exposition(ask.rest.own_view(), accepted))


def wants_json(request: web.Request) -> bool:
    """Whether a client explicitly accepts JSON: Prometheus asks for text, and accepts anything."""
    accepted = request.headers.get("Accept", "")
    return _JSON in accepted and "text/plain" not in accepted and "openmetrics" not in accepted


@routes.add(
    "GET",
    "/cluster/{cluster}/status",
    "Whether a cluster is reachable, and the flows that read or write it",
    answers={200: ref("ClusterStatus")},
    errors=(404,),
)
async def get_cluster_status(ask: Ask) -> object:
    return cluster_status(ask.node.settings, ask.cluster(), ask.rest.view())


@routes.add(
    "GET",
    "/cluster/{cluster}/metrics",
    "The metrics of the flows that read or write a cluster, as JSON",
    answers={200: _SNAPSHOT},
    errors=(404,),
)
async def get_cluster_metrics(ask: Ask) -> object:
    return ask.rest.metrics.snapshot(ask.rest.own_view(), cluster=ask.cluster())


@routes.add(
    "GET",
    "/health/live",
    "Liveness: if the process does not respond, restart it",
    answers={200: ref("Health")},
    right=Right.NONE,
    ignores_query=True,
)
async def get_health_live(_ask: Ask) -> object:
    return {"status": "alive", "reasons": []}


@routes.add(
    "GET",
    "/health/ready",
    "Readiness: whether all flows are working, or why not",
    answers={200: ref("Health"), 503: ref("Health")},
    right=Right.NONE,
    ignores_query=True,
)
async def get_health_ready(ask: Ask) -> object:
    reasons = reasons_unhealthy(ask.rest.view())
    if ask.rest.is_draining:
        reasons.insert(0, "the node is draining: it was asked to stop")
    return Answer(503 if reasons else 200, {"status": "waiting" if reasons else "ready", "reasons": reasons})


def server_info(cluster_id: str, version: str = mm2py.__version__) -> dict[str, str]:
    """Return version information as Connect's ServerInfo."""
    return {"version": version, "commit": f"mm2py-{mm2py.__version__}", "kafka_cluster_id": cluster_id}
