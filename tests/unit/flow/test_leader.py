"""What the leader of a flow's group sends its members."""

from __future__ import annotations

import json
from typing import cast

import attrs
import pytest

from mm2py.flow import leader
from mm2py.flow.leader import GroupLeader
from mm2py.model.node import Node
from mm2py.model.share import Candidate, encode_candidate, whole_share
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.flow_rig import flow_context


@pytest.mark.parametrize(("versions", "expected"), [((1,), 1), ((2, 3), 2), ((3, 1, 2), 1), ((7, 9), 3)])
async def test_an_assignment_has_the_latest_form_that_all_members_read(
    monkeypatch: pytest.MonkeyPatch, versions: tuple[int, ...], expected: int
) -> None:
    """While nodes are upgraded one after the other, the leader may be of any version; this one writes up to 3."""
    monkeypatch.setattr(leader, "VERSION", 3)
    clock = LoopClock()
    members = {f"m{at}": Candidate(Node(f"n{at}", 1), version=version) for at, version in enumerate(versions)}
    members["m0"] = attrs.evolve(members["m0"], held=whole_share(2))  # so no former node is to be fenced
    joined = {name: encode_candidate(candidate) for name, candidate in members.items()}
    sent = await GroupLeader(flow_context(clock, EventLog(clock))).assign(cast("Cluster", None), 1, joined)

    assert sent.keys() == members.keys()
    assert {json.loads(raw)["version"] for raw in sent.values()} == {expected}
