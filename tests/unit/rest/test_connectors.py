"""Kafka Connect's addresses below a flow: what a connector's config and state become."""

from __future__ import annotations

import pytest

from mm2py.core.control.overrides import CONNECTORS as NAMES
from mm2py.core.control.overrides import SOURCE
from mm2py.model.overrides import Overrides, Wanted
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
    assert control.ordered == Overrides(groups={SOURCE: wanted}, config={SOURCE: {"tasks.max": "2"}})
    assert len(control.said_by) == 1


async def test_expansions_that_connect_does_not_know(ask: Asking) -> None:
    """A request for expansions is answered with an object, as in Connect, whatever they are."""
    got = await ask("GET", f"{CONNECTORS}?expand=tasks")
    worker = await ask("GET", "/connectors?expand=tasks")

    assert got.json == {name: {} for name in NAMES}
    assert worker.json == {SOURCE: {}}
