"""Kafka Connect's addresses below a flow: what a connector's config and state become."""

from __future__ import annotations

import pytest

from mm2py.core.control.overrides import SOURCE
from mm2py.model.overrides import Overrides, Wanted
from tests.support.rest_asking import Asking


CONNECTORS = "/from:A/to:B/connectors"


@pytest.mark.parametrize("wanted", [Wanted.PAUSED, Wanted.STOPPED])
async def test_a_connector_is_created_in_its_initial_state(ask: Asking, wanted: Wanted) -> None:
    """Config and state are one change, so that nothing is copied before offsets are altered (KIP-980)."""
    control = ask.node.control
    control.ordered = Overrides(groups={SOURCE: Wanted.DELETED})
    body = {"name": SOURCE, "config": {"tasks.max": "2"}, "initial_state": wanted.name}

    created = await ask("POST", CONNECTORS, body)

    assert created.status == 201
    assert control.ordered == Overrides(groups={SOURCE: wanted}, config={SOURCE: {"tasks.max": "2"}})
    assert len(control.said_by) == 1
