"""Asking REST's application without sockets: what a request would get, and through which door."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import attrs
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from mm2py.clock import Clock
from mm2py.config.rest import Listener
from mm2py.rest.app import make_app
from mm2py.rest.route import Route
from mm2py.rest.server import RestServer
from tests.support.clocks import LoopClock
from tests.support.rest_node import CONNECTOR, NodeDouble, node_double


#: What stands in for the parts of a path, so that each route leads somewhere.
PARTS = {
    "source": "A",
    "target": "B",
    "cluster": "A",
    "connector": "MirrorSourceConnector",
    "plugin": "MirrorSourceConnector",
    "topic": "orders",
    "partition": "1",
    "task": "0",
    "group": "billing",
    "logger": "root",
    "name:.+": "index.html",
}
_NO_OFFSET = {"partition": {"cluster": "A", "topic": "orders", "partition": 0}, "offset": None}
#: Bodies that routes take.
BODIES: Mapping[str, object] = {
    "pause_topics": {"topics": ["orders"]},
    "resume_topics": {"topics": ["orders"]},
    "put_connector_config": {"topics": "orders"},
    "patch_connector_config": {"topics": "orders"},
    "put_flow_limit": {"bytes_per_s": 1_000_000},
    "put_topic_limit": {"records_per_s": 10},
    "post_connector": {"name": "MirrorSourceConnector", "config": {}},
    "validate_config": {"topics": "orders"},
    "post_worker_connector": {
        "name": "north",
        "config": {**CONNECTOR, "name": "north", "source.cluster.alias": "C", "tasks.max": 2},
    },
    "put_worker_config": {**CONNECTOR, "topics": "orders"},
    "patch_worker_config": {"topics": "orders", "tasks.max": None},
    "validate_worker_config": CONNECTOR,
    "put_logger": {"level": "DEBUG"},
    "patch_worker_offsets": {"offsets": [_NO_OFFSET]},
    "patch_offsets": {"offsets": [_NO_OFFSET]},
}


def path_of(route: Route, parts: Mapping[str, str] = PARTS) -> str:
    """Return an address that the route answers, with *parts* for what it leaves open."""
    path = route.path
    for name, value in parts.items():
        path = path.replace("{" + name + "}", value)
    return path


def basic(name: str, password: str) -> str:
    """Return the `Authorization` header of a user with a password."""
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@attrs.frozen
class Got:
    """An answer."""

    status: int
    text: str
    headers: CIMultiDict[str]

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@attrs.frozen
class Asking:
    """An application, a node behind it, and how to ask it."""

    node: NodeDouble
    server: RestServer
    app: web.Application

    async def __call__(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str
    ) -> Got:
        """Send a request; names of *headers* have underscores for dashes."""
        sent: CIMultiDict[str] = CIMultiDict({"Host": "localhost:8083"})
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        content = json.dumps(body).encode() if body is not None else raw
        reader = StreamReader(BaseProtocol(asyncio.get_running_loop()), 2**22, loop=asyncio.get_running_loop())
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
            sent["Content-Length"] = str(len(content))
            reader.feed_data(content)
        reader.feed_eof()
        request = make_mocked_request(
            method, path, sent, app=self.app, payload=reader, client_max_size=1024 * 1024, writer=mock.AsyncMock()
        )
        response = await self.app._handle(request)
        assert isinstance(response, web.Response)
        content = response.body if isinstance(response.body, bytes) else b""
        return Got(response.status, content.decode(), response.headers)


def asking(folder: Path, *lines: str, listener: Listener | None = None, clock: Clock | None = None) -> Asking:
    """Make an application for tests, with these further *lines* of settings."""
    used = clock or LoopClock()
    node = node_double(folder, used, *lines)
    server = RestServer(
        node,
        clock=used,
        events=node.events,
        metrics=PlainMetrics(),
    )
    app = make_app(server.rest, listener or node.settings.rest.listeners[0])
    app.freeze()
    return Asking(node, server, app)


class PlainMetrics:
    """Metrics of a test: something that can be told apart."""

    def exposition(self, view: object, accept: str = "") -> tuple[bytes, str]:  # noqa: ARG002
        return b"mm2_up 1\n", "text/plain; version=0.0.4; charset=utf-8"

    def snapshot(self, view: object, flow: object = None, cluster: str | None = None) -> dict[str, Any]:  # noqa: ARG002
        return {"flows": {"A->B": {"flow": str(flow), "cluster": cluster}}}
