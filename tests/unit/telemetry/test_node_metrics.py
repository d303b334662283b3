"""Metrics of the nodes that run a flow, as one of them exports them."""

from __future__ import annotations

import attrs
from prometheus_client.parser import text_string_to_metric_families

from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metrics import Metrics
from tests.support.clocks import ManualClock
from tests.support.rest_node import some_nodes
from tests.support.views import flow_view, mirror_view


def test_nodes_with_one_address_have_series_of_their_own() -> None:
    """One that is lost does not hide behind the others, nor its rate behind theirs."""
    this, other = (attrs.evolve(it, worker_id="localhost:8080") for it in some_nodes())
    lost = attrs.evolve(other, id="lost-3", host="lost", answers=False, heard_ms=70_000)
    view = mirror_view(flow_view(nodes=(this, other, lost)))
    text, _ = Metrics(EventLog(ManualClock())).exposition(view)
    samples = [sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples]
    found = {
        name: {(it.labels["id"], it.labels["host"]): it.value for it in samples if it.name == f"mm2py_node_{name}"}
        for name in ("tasks", "bytes_per_second", "last_heard_seconds")
    }

    assert found == {
        "tasks": {("here-1", "here"): 1, ("there-2", "there"): 1, ("lost-3", "lost"): 1},
        "bytes_per_second": {("here-1", "here"): 0, ("there-2", "there"): 2_000},
        "last_heard_seconds": {("there-2", "there"): 1.2, ("lost-3", "lost"): 70},
    }
