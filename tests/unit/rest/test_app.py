"""The application: every address behind its door, errors in Connect's shape, and what no request may break."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from urllib.parse import quote

import attrs
import pytest

import mm2py
from mm2py.config.problem import ConfigError, Problem
from mm2py.config.rest import Listener, Right
from mm2py.devkit.jars import KAFKA_VERSION
from mm2py.errors import (
    ClusterUnreachableError,
    OverrideConflictError,
    OverrideRejectedError,
    OverridesNotStoredError,
    UnknownConnectorError,
)
from mm2py.model.flow import Flow
from mm2py.rest.app import ROUTES
from mm2py.rest.route import Route
from mm2py.telemetry.events import RestChangeFailed, RestFailed
from tests.support.mm2_file import STRANGE_ALIAS
from tests.support.rest_asking import BODIES, Asking, asking, path_of
from tests.support.rest_node import some_nodes


TOKENS = ("rest.auth.read.tokens = see", "rest.auth.write.tokens = do")
FLOW = "/from:A/to:B"
SOURCE = FLOW + "/connectors/MirrorSourceConnector"
#: They answer in their own time.
ASKABLE = [route for route in ROUTES if route.path != "/stream"]


def _id(route: object) -> str:
    return f"{route.method} {route.path}" if isinstance(route, Route) else str(route)


def _body(route: Route) -> object:
    return BODIES[route.name] if route.takes is not None else None


async def test_names_in_addresses_may_hold_any_character(tmp_path: Path) -> None:
    """Aliases and groups are found by their names, URL-encoded, and hints have such addresses."""
    ask, flow = asking(tmp_path), Flow("A", STRANGE_ALIAS)
    ask.node.make_worker = lambda: None
    (shown,) = ask.node.shown.flows
    group = attrs.evolve(shown.consumer_groups[0], group="{a} / %2F")
    shown = attrs.evolve(shown, flow=flow, consumer_groups=(group,))
    ask.node.shown = attrs.evolve(ask.node.shown, flows=(shown,))
    clusters = {**ask.node.settings.clusters, STRANGE_ALIAS: ask.node.settings.clusters["B"]}
    ask.node.settings = attrs.evolve(ask.node.settings, clusters=clusters)
    cluster = quote(STRANGE_ALIAS, safe="")

    assert (await ask("GET", flow.url_path("status"))).json["target"] == STRANGE_ALIAS
    assert (await ask("GET", flow.url_path("groups", "{a} / %2F"))).json["group"] == "{a} / %2F"
    assert (await ask("GET", f"/cluster/{cluster}/status")).status == 200
    assert f"did you mean {flow.url_path('connectors')}?" in (await ask("GET", "/connectors")).json["message"]


@pytest.mark.parametrize("who", ["nobody", "reader", "writer"])
@pytest.mark.parametrize("route", ASKABLE, ids=_id)
async def test_every_address_asks_who_it_is(tmp_path: Path, route: Route, who: str) -> None:
    """Without credentials nothing is shown but health and the page's own files; readers change nothing."""
    ask = asking(tmp_path, *TOKENS)
    has = {"nobody": Right.NONE, "reader": Right.READ, "writer": Right.WRITE}[who]
    headers = {"nobody": {}, "reader": {"Authorization": "Bearer see"}, "writer": {"Authorization": "Bearer do"}}[who]
    is_allowed = has >= route.right

    got = await ask(route.method, path_of(route), _body(route), **headers)

    assert (got.status not in {401, 403}) is is_allowed
    if not is_allowed:
        assert got.status == (401 if has is Right.NONE else 403)
        assert got.json["error_code"] == got.status
        assert ask.node.control.said_by == []
        assert ask.node.pictures == 0


@pytest.mark.parametrize("route", [route for route in ASKABLE if route.right is Right.WRITE], ids=_id)
async def test_other_machines_change_nothing_without_access_control(tmp_path: Path, route: Route) -> None:
    """Without access control, a listener that other machines reach is read-only; the answer names the setting."""
    ask = asking(tmp_path, listener=Listener("http", "", 8083))

    got = await ask(route.method, path_of(route), _body(route))

    assert got.status == 403
    assert "rest.auth.users.file" in got.json["message"]
    assert ask.node.control.said_by == []


@pytest.mark.parametrize("route", ASKABLE, ids=_id)
async def test_a_method_that_an_address_has_not(ask: Asking, route: Route) -> None:
    """It is 405, says what is allowed, and changes nothing."""
    allowed = {one.method for one in ROUTES if one.path == route.path}
    method = next(method for method in ("DELETE", "PATCH", "POST", "PUT") if method not in allowed)

    got = await ask(method, path_of(route), {})

    assert got.status == 405
    assert allowed <= set(got.headers["Allow"].split(", "))
    assert got.json["error_code"] == 405


@pytest.mark.parametrize("route", ASKABLE, ids=_id)
async def test_unknown_query_parameters(ask: Asking, route: Route) -> None:
    """A parameter without effect is refused, and what is known is named; Connect, probes and scrapers ignore it."""
    got = await ask(route.method, path_of(route) + "?forward=false&name[]=up", _body(route))

    if route.ignores_query:
        assert got.status in {*route.answers, 409}
        return
    assert got.status == 400
    assert "'forward'" in got.json["message"]
    assert "'name[]'" in got.json["message"]
    assert all(param.name in got.json["message"] for param in route.query)
    assert ask.node.control.said_by == []


def test_who_may_add_query_parameters() -> None:
    """Connect's clients, as Connect ignores what it does not know; probes, scrapers, and links to the page."""
    own = [it for it in ROUTES if it.tag not in {"connect", "worker"} and not it.path.startswith("/admin/loggers")]
    lenient = {route.path for route in own if route.ignores_query}

    assert all(route.ignores_query for route in ROUTES if route.tag in {"connect", "worker"})
    assert lenient == {
        "/",
        "/static/{name:.+}",
        "/metrics",
        "/health/live",
        "/health/ready",
        "/from:{source}/to:{target}",
        "/from:{source}/to:{target}/health",
    }


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("POST", SOURCE + "/restart?includeTask=true", "'includeTask': did you mean includeTasks?"),
        ("GET", FLOW + "/topics?limt=1", "'limt': did you mean limit?"),
        ("GET", "/status?x=1", "'x': this takes none"),
        ("HEAD", "/events?since=1", ""),
        ("GET", "/stream?only=event", "only must be one of"),
        ("GET", "/events?" + "x" * 3000, "characters omitted"),
    ],
)
async def test_misspelt_query_parameters(ask: Asking, method: str, path: str, problem: str) -> None:
    """A slip in a parameter's name or value is never taken for a request without it, on Connect's routes either."""
    got = await ask(method, path)

    assert got.status == 400
    assert problem in (got.text if method == "HEAD" else got.json["message"])
    assert ask.node.control.said_by == []


@pytest.mark.parametrize("route", [route for route in ROUTES if "{" in route.path], ids=_id)
async def test_unknown_names(ask: Asking, route: Route) -> None:
    """Whatever the path names and there is not, is 404 in words."""
    for name in ("source", "target", "cluster", "connector", "plugin", "topic", "partition", "task", "group"):
        if "{" + name + "}" not in route.path or route.name == "put_worker_config":  # that creates one
            continue
        path = path_of(attrs_with(route, name, "77" if name in {"partition", "task"} else "nothing"))

        got = await ask(route.method, path, _body(route))

        assert got.status == 404, path
        assert got.json["error_code"] == 404


def attrs_with(route: Route, name: str, value: str) -> Route:
    """Return the route with one part of its path filled in."""
    return attrs.evolve(route, path=route.path.replace("{" + name + "}", value))


@pytest.mark.parametrize("route", [route for route in ROUTES if route.takes is not None], ids=_id)
@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'"x"', b"NaN", b'{"a": NaN}', b"\xff", b"[" * 100_000])
async def test_bad_bodies(ask: Asking, route: Route, raw: bytes) -> None:
    """What is no JSON object is 400 and changes nothing."""
    got = await ask(route.method, path_of(route), raw=raw)

    assert got.status == 400
    assert ask.node.control.said_by == []


@pytest.mark.parametrize(
    ("method", "path", "raw", "status"),
    [
        ("PUT", FLOW + "/limit", f'{{"bytes_per_s": {10**400}}}', 400),
        ("PUT", FLOW + "/topics/orders/limit", f'{{"records_per_s": {10**400}}}', 400),
        ("POST", FLOW + "/connectors", '{"name": "MirrorSourceConnector", "initial_state": []}', 400),
        ("POST", "/connectors", '{"name": "north", "initial_state": {}}', 400),
        ("PATCH", SOURCE + "/config", r'{"topics": "\ud800"}', 400),
        ("GET", FLOW + "/topics?limit=" + "9" * 5_000, None, 400),
        ("GET", FLOW + "/topics/orders/partitions/" + "9" * 5_000, None, 404),
        ("POST", f"{SOURCE}/tasks/{'9' * 5_000}/restart", None, 404),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_values_out_of_bounds(ask: Asking, method: str, path: str, raw: str | None, status: int) -> None:
    """Numbers of many digits, half of a surrogate pair and an unexpected type are refused, and change nothing."""
    got = await ask(method, path, raw=None if raw is None else raw.encode())

    assert got.status == status
    assert len(got.text) < 2_000
    assert ask.node.events.of(RestFailed) == ()
    assert ask.node.control.said_by == []


async def test_a_body_must_say_that_it_is_json(ask: Asking) -> None:
    """A form on another page cannot send that content type without a preflight request, so it is required."""
    got = await ask("PUT", SOURCE + "/config", raw=b"{}", Content_Type="text/plain")

    assert got.status == 415


async def test_a_body_may_not_be_endless(ask: Asking) -> None:
    """More than a megabyte is refused."""
    got = await ask("PUT", SOURCE + "/config", raw=b"[" + b"1," * 600_000 + b"1]")

    assert got.status == 413
    assert got.json["error_code"] == 413


@pytest.mark.parametrize(
    ("error", "status", "word"),
    [
        (OverrideRejectedError(("topics: bad", "tasks.max: bad")), 400, "tasks.max"),
        (ConfigError((Problem("f:1", "topics", "bad"),)), 400, "topics"),
        (OverrideConflictError("it changed", "look again"), 409, "look again"),
        (OverridesNotStoredError("A->B", "B", "away"), 503, "target cluster"),
        (ClusterUnreachableError("B", "b:1", "refused"), 503, "b:1"),
        (TimeoutError(), 503, "in time"),
        (UnknownConnectorError("A->B", "x"), 404, "x"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_what_keeps_an_order_from_being_given(ask: Asking, error: Exception, status: int, word: str) -> None:
    """Each reason has its own status and its own words; who may try again is told when."""
    ask.node.control.failure = error

    got = await ask("PUT", SOURCE + "/pause")

    assert (got.status, got.json["error_code"]) == (status, status)
    assert word in got.json["message"]
    assert ("Retry-After" in got.headers) is (status == 503)


async def test_all_problems_come_in_one_answer(ask: Asking) -> None:
    """Several bad settings are all named at once, and none of them counts."""
    got = await ask("PUT", SOURCE + "/config", {"tasks.max": "many", "topcs": "x", "copy.epoch.ms": "0"})

    assert got.status == 400
    assert len(got.json["problems"]) == 3
    assert "did you mean topics" in got.json["message"]
    assert ask.node.control.ordered.config == {}


async def test_several_topics_are_one_change(ask: Asking) -> None:
    """They are paused together, or not at all if the flow does not mirror one of them or the body is something else."""
    paused = await ask("PUT", FLOW + "/topics/pause", {"topics": ["orders", "invoices"]})
    unknown = await ask("PUT", FLOW + "/topics/resume", {"topics": ["orders", "invoces"]})
    invalid = [
        await ask("PUT", FLOW + "/topics/pause", body)
        for body in ({"topics": []}, {"topics": "orders"}, {"topics": [1]}, {"topic": ["orders"]}, {})
    ]

    assert (paused.status, unknown.status) == (202, 404)
    assert "did you mean invoices" in unknown.json["message"]
    assert [got.status for got in invalid] == [400] * 5
    assert ask.node.control.ordered.topics == {"orders", "invoices"}
    assert len(ask.node.control.said_by) == 1
    await ask("PUT", FLOW + "/topics/resume", {"topics": ["orders"]})
    assert ask.node.control.ordered.topics == {"invoices"}


@pytest.mark.parametrize("path", [FLOW + "/limit", FLOW + "/topics/orders/limit"])
async def test_each_of_two_limits_counts(ask: Asking, path: str) -> None:
    """Two set different fields at once: the second is put before the first is stored, and leaves that as it is."""
    ask.node.control.takes_s = 1.0

    await asyncio.gather(ask("PUT", path, {"bytes_per_s": 1_000}), ask("PUT", path, {"records_per_s": 10}))

    assert (await ask("GET", path)).json == {"bytes_per_s": 1_000, "records_per_s": 10}


async def test_a_bug_is_told_and_answered(ask: Asking) -> None:
    """An unexpected error is 500 in the usual shape, with an event that holds the traceback."""
    ask.node.control.failure = RuntimeError("boom")

    got = await ask("PUT", SOURCE + "/pause")

    assert got.status == 500
    assert "boom" not in got.text
    [event] = ask.node.events.of(RestFailed)
    assert "boom" in event.traceback


async def test_a_change_that_fails_too_late_is_an_event(ask: Asking, caplog: pytest.LogCaptureFixture) -> None:
    """
    The target hangs, the client has long been answered, then the change fails: one event names it and what to try, and
    asyncio logs no unretrieved exception.
    """
    ask.node.control.takes_s = 90.0
    ask.node.control.failure = OverridesNotStoredError("A->B", "B", "no answer in 20 s")

    got = await ask("PUT", SOURCE + "/pause")
    await asyncio.sleep(60)
    gc.collect()

    assert got.status == 503
    [event] = ask.node.events.of(RestChangeFailed)
    assert (event.method, event.path) == ("PUT", SOURCE + "/pause")
    assert "no answer in 20 s" in event.error
    assert event.hint
    assert "never retrieved" not in caplog.text


async def test_nearest_names(ask: Asking) -> None:
    """A slip of the pen is told what it may have meant, and Connect's tools at a node that is no worker which flow."""
    ask.node.make_worker = lambda: None
    near = {
        "/connectors": "/from:A/to:B/connectors",
        "/from:A/to:B/topics/order": "orders",
        "/from:A/to:B/connectors/MirrorSourceConector": "MirrorSourceConnector",
        "/from:A/to:B/groups/biling": "billing",
        "/cluster": "/clusters",
    }

    for path, meant in near.items():
        got = await ask("GET", path)

        assert got.status == 404
        assert got.json["message"].endswith(f"did you mean {meant}?")


async def test_trailing_slashes_and_heads(ask: Asking) -> None:
    """kcctl asks with a slash at the end; HEAD is GET without a body."""
    slashed = await ask("GET", FLOW + "/connectors/")
    head = await ask("HEAD", FLOW + "/connectors")

    assert slashed.json == ["MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"]
    assert head.status == 200


async def test_other_pages_and_tricks_are_refused(ask: Asking) -> None:
    """A page of another origin changes nothing, and none reaches this machine under another name."""
    crossed = await ask("PUT", SOURCE + "/pause", Origin="https://evil.example")
    rebound = await ask("GET", "/status", Host="evil.example")
    plain = await ask("GET", "/status", Origin="https://evil.example")

    assert (crossed.status, rebound.status, plain.status) == (403, 403, 200)
    assert "Access-Control-Allow-Origin" not in plain.headers
    assert ask.node.control.said_by == []


async def test_an_allowed_origin(tmp_path: Path) -> None:
    """An origin of the settings reads, asks first what it may do, and is told to whom answers go."""
    ask = asking(tmp_path, "access.control.allow.origin = https://dash.example")

    read = await ask("GET", "/status", Origin="https://dash.example")
    asked = await ask("OPTIONS", "/status", Origin="https://dash.example", Access_Control_Request_Method="GET")
    refused = await ask("OPTIONS", "/status", Origin="https://dash.example", Access_Control_Request_Method="PUT")

    assert read.headers["Access-Control-Allow-Origin"] == "https://dash.example"
    assert (asked.status, refused.status) == (204, 403)


async def test_a_picture_is_taken_once_for_all(ask: Asking) -> None:
    """A request within a second gets the same snapshot; after a change there is a new one. The first is prepared."""
    for path in ("/status", FLOW + "/status", FLOW + "/topics", "/metrics"):
        await ask("GET", path)
    before = ask.node.pictures
    await ask("PUT", SOURCE + "/pause")
    await ask("GET", "/status")

    assert before == 1
    assert (ask.node.pictures, ask.node.prepared) == (2, 1)


async def test_a_draining_node_shows_and_takes_no_orders(ask: Asking) -> None:
    """While it stops it answers, says that it is not ready, and changes nothing."""
    ask.server.drain()

    shown, ready, changed = [
        await ask(method, path)
        for method, path in (("GET", "/status"), ("GET", "/health/ready"), ("PUT", SOURCE + "/pause"))
    ]

    assert (shown.status, ready.status, changed.status) == (200, 503, 503)
    assert "draining" in ready.json["reasons"][0]


async def test_who_ordered_it_is_said(tmp_path: Path) -> None:
    """An order carries the name that was shown."""
    ask = asking(tmp_path, *TOKENS)

    await ask("PUT", SOURCE + "/pause", Authorization="Bearer do")

    assert "the right to write" in ask.node.control.said_by[0]


async def test_metrics_in_both_forms(ask: Asking) -> None:
    """Prometheus gets text whatever else it accepts; JSON is for clients that ask for it by name."""
    scraped = await ask("GET", "/metrics", Accept="application/openmetrics-text;q=0.9,text/plain;q=0.5,*/*;q=0.1")
    asked = await ask("GET", "/metrics", Accept="application/json")
    of_flow = await ask("GET", FLOW + "/metrics")
    of_cluster = await ask("GET", "/cluster/B/metrics")

    assert scraped.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "A->B" in asked.json["flows"]
    assert of_flow.json["flows"]["A->B"]["flow"] == "A->B"
    assert of_cluster.json["flows"]["A->B"]["cluster"] == "B"


async def test_a_flow_is_shown_as_all_of_its_nodes_run_it(ask: Asking) -> None:
    """Tasks have the worker of their node, and totals are those of all; a node's metrics are its own."""
    view = ask.node.shown
    flow = attrs.evolve(view.flows[0], tasks=view.flows[0].tasks[:1], nodes=some_nodes())
    ask.node.shown = attrs.evolve(view, flows=(flow,))

    states = (await ask("GET", SOURCE + "/status")).json
    (summary,) = (await ask("GET", "/status")).json["flows"]
    of_flow = (await ask("GET", FLOW + "/status")).json
    own = ask.server.rest.own_view().flows[0]

    assert [(it["id"], it["worker_id"], it["state"]) for it in states["tasks"]] == [
        (0, ask.server.rest.worker_id, "RUNNING"),
        (1, "there:8083", "RUNNING"),
    ]
    assert (summary["lag"], summary["partitions"], summary["nodes"]) == (34, 7, 2)
    assert (of_flow["lag"], of_flow["partitions"], len(of_flow["nodes"])) == (34, 7, 2)
    assert (own.lag, len(own.tasks)) == (4, 1)


async def test_a_drain_is_answered_with_what_is_left(ask: Asking) -> None:
    """The node gives up its tasks, and another one can take them."""
    before = await ask("GET", "/node/drain")
    drained = await ask("PUT", "/node/drain")
    resumed = await ask("PUT", "/node/resume")

    assert not before.json["is_drained"]
    assert (drained.json["is_drained"], drained.json["tasks"], drained.json["without_others"]) == (
        True,
        {"A->B": 1},
        [],
    )
    assert not resumed.json["is_drained"]
    assert len(ask.node.control.said_by) == 2


@pytest.mark.parametrize(
    ("connector", "topics"),
    [
        ("MirrorSourceConnector", ["A.invoices", "A.orders"]),
        ("MirrorCheckpointConnector", ["A.checkpoints.internal"]),
        ("MirrorHeartbeatConnector", ["heartbeats"]),
    ],
)
async def test_active_topics_are_those_that_are_written(ask: Asking, connector: str, topics: list[str]) -> None:
    """As in Connect, a source connector's topics are those at the target."""
    got = await ask("GET", f"{FLOW}/connectors/{connector}/topics")

    assert got.json == {connector: {"topics": topics}}


async def test_a_flow_is_a_connect_of_the_version_that_it_speaks_as(ask: Asking) -> None:
    """Tools such as kcctl ask for the version, and refuse to stop a connector of an old Connect."""
    ask.node.make_worker = lambda: None
    flow, node = (await ask("GET", FLOW)).json, (await ask("GET", "/")).json

    assert flow == {"version": KAFKA_VERSION, "commit": f"mm2py-{mm2py.__version__}", "kafka_cluster_id": "B"}
    assert node["version"] == mm2py.__version__


async def test_a_config_is_judged_whatever_name_comes_with_it(ask: Asking) -> None:
    """Connect's tools send a made up name when they only want to know whether a config is right."""
    path = f"{FLOW}/connector-plugins/MirrorSourceConnector/config/validate"
    fine = await ask("PUT", path, {"name": "dummy-name", "tasks.max": "2"})
    bad = await ask("PUT", path, {"name": 7, "tasks.max": "many"})

    assert fine.json["error_count"] == 0
    assert bad.json["error_count"] == 2


async def test_the_root_is_a_page_for_browsers(ask: Asking) -> None:
    """Connect's tools get its JSON, a browser the page."""
    ask.node.make_worker = lambda: None
    tool = await ask("GET", "/", Accept="application/json")
    anything = await ask("GET", "/")
    browser = await ask("GET", "/", Accept="text/html,application/xhtml+xml")

    assert sorted(tool.json) == ["commit", "kafka_cluster_id", "version"] == sorted(anything.json)
    assert browser.headers["Content-Type"].startswith("text/html")
    assert browser.text.startswith("<!doctype html>")
