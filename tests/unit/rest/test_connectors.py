"""Kafka Connect's addresses below a flow: what a connector's config and state become."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.herder.overrides import CONNECTORS as NAMES
from mm2py.core.herder.overrides import SOURCE
from mm2py.model.herder.overrides import Overrides, Wanted
from mm2py.model.state import ClusterView, FlowState
from tests.support.rest_asking import Asking


CONNECTORS = "/from:A/to:B/connectors"


@pytest.mark.parametrize(("state", "wanted"), [("PAUSED", Wanted.PAUSED), ("Stopped", Wanted.STOPPED)])
async def test_a_connector_is_created_in_its_initial_state(ask: Asking, state: str, wanted: Wanted) -> None:
    """Config and state are one change, so that nothing is copied before offsets are altered (KIP-980). As in Connect
    the state may be in any case.
    """
    control = ask.node.control
    control.ordered = Overrides(groups={SOURCE: Wanted.DELETED})
    body = {"name": SOURCE, "config": {"tasks.max": "2"}, "initial_state": state}

    created = await ask("POST", CONNECTORS, body)

    assert created.status == 201
    put = {"name": SOURCE, "tasks.max": "2"}
    assert control.ordered == Overrides(groups={SOURCE: wanted}, config={SOURCE: {"tasks.max": "2"}}, put={SOURCE: put})
    assert len(control.said_by) == 1


async def test_a_connector_whose_cluster_is_away_says_so_in_connect_s_words(ask: Asking) -> None:
    """Connect has no state for it: it is RUNNING, as in Connect, and the trace has the reason, as a task's has."""
    node = ask.node
    [flow, *others] = node.shown.flows
    away = ClusterView("B", is_reachable=False, error="cluster B does not answer", hint="start it")
    groups = tuple(attrs.evolve(it, state=FlowState.RUNNING, last_error="", hint="") for it in flow.groups)
    flow = attrs.evolve(flow, clusters=(flow.clusters[0], away), groups=groups)
    node.shown = attrs.evolve(node.shown, flows=(flow, *others))

    for name in NAMES:
        got = (await ask("GET", f"{CONNECTORS}/{name}/status")).json

        assert got["connector"]["state"] == "RUNNING"
        assert got["connector"]["trace"] == "cluster B does not answer\nstart it"
    own = (await ask("GET", flow.flow.url_path("status"))).json
    assert {own["state"], *(group["state"] for group in own["groups"])} == {"unreachable"}


async def test_expansions_that_connect_does_not_know(ask: Asking) -> None:
    """A request for expansions is answered with an object, as in Connect, whatever they are."""
    got = await ask("GET", f"{CONNECTORS}?expand=tasks")
    worker = await ask("GET", "/connectors?expand=tasks")

    assert got.json == {name: {} for name in NAMES}
    assert worker.json == {SOURCE: {}}
