"""The OpenAPI document says what the application does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs
import jsonschema_rs
import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import Elsewhere
from mm2py.rest.app import ROUTES, openapi
from mm2py.rest.route import Route
from mm2py.telemetry.events import RestFailed
from tests.support.rest_asking import BODIES, Asking, Got, path_of


DOCUMENT = openapi()


def _refs(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from _refs(one)
    elif isinstance(value, list):
        for one in value:
            yield from _refs(one)


async def test_the_document_and_the_application_have_the_same_addresses(ask: Asking) -> None:
    """Each method of each path that the application answers is in the document, and no other."""
    answered = {
        (route.method, re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.resource.canonical))
        for route in ask.app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    # Each is answered with a slash at its end, too.
    answered = {(method, path) for method, path in answered if not path.endswith("/") or path == "/"}
    described = {(method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item}

    assert described == answered


def test_every_reference_leads_somewhere() -> None:
    """Schemas that are referred to are there; names of operations are unique."""
    there = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    operations = [one["operationId"] for item in DOCUMENT["paths"].values() for one in item.values()]

    assert set(_refs(DOCUMENT)) <= there
    assert len(operations) == len(set(operations))


def test_it_is_json() -> None:
    """The document can be written down."""
    assert json.loads(json.dumps(DOCUMENT, allow_nan=False)) == DOCUMENT


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.path != "/stream"],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_answers_are_as_described(ask: Asking, route: Route) -> None:
    """What each address answers has a status and a schema that the document has, and no cookie."""
    body = BODIES[route.name] if route.takes is not None else None

    got = await ask(route.method, path_of(route), body, Accept="application/json")

    assert not ask.node.events.of(RestFailed)
    assert got.status in {*route.answers, 409}
    assert (got.status == 409) is (route.name == "post_connector")
    assert "Set-Cookie" not in got.headers
    assert got.headers["X-Content-Type-Options"] == "nosniff"
    if route.path != "/openapi.json" and "static" not in route.path:
        _fits(route, got)


@pytest.mark.parametrize("route", [it for it in ROUTES if "/topics" in it.path and it.method == "GET"], ids=str)
async def test_answers_about_what_another_node_copies_are_as_described(ask: Asking, route: Route) -> None:
    """Figures that only that node knows may be missing."""
    view = ask.node.shown
    ask.node.shown = attrs.evolve(view, flows=(attrs.evolve(view.flows[0], partitions=()),))
    ask.node.control.others = {TopicPartition("orders", number): Elsewhere("A.orders", "there") for number in (0, 1)}

    got = await ask(route.method, path_of(route), Accept="application/json")

    assert got.status == 200
    _fits(route, got)


def _fits(route: Route, got: Got) -> None:
    path = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.path)
    described: dict[str, Any] = DOCUMENT["paths"][path][route.method.lower()]["responses"][str(got.status)]
    content = described.get("content")
    assert (content is None) is (got.text == "")
    if content is not None:
        schema = {**content["application/json"]["schema"], "components": DOCUMENT["components"]}
        jsonschema_rs.validator_for(schema).validate(got.json)


def test_metrics_are_described_in_each_of_their_forms() -> None:
    """Prometheus asks for one text or the other, programs for JSON."""
    content = DOCUMENT["paths"]["/metrics"]["get"]["responses"]["200"]["content"]

    assert set(content) == {"application/json", "text/plain", "application/openmetrics-text"}
