"""What the leader of a flow's group sends its members."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import attrs
import pytest

from mm2py.config.settings import load_settings
from mm2py.core.herder.sharing import Work
from mm2py.herder import leader
from mm2py.model.herder.node import Node
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.model.herder.share import (
    NO_SHARE,
    SLOTS,
    Candidate,
    NodeLoad,
    Share,
    decode_shared_flow,
    encode_candidate,
    whole_share,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import INIT, FakeBrokers
from tests.support.flow_rig import flow_context
from tests.support.memberships import leads
from tests.support.mm2_file import marking_exactly_once, mm2_properties


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
    sent = await leads(flow_context(clock, EventLog(clock))).assign(cast("Cluster", None), 1, joined)

    assert sent.keys() == members.keys()
    assert {json.loads(raw)["version"] for raw in sent.values()} == {expected}


async def test_open_transactions_of_a_lost_node_are_ended_before_its_tasks_are_given_away(
    tmp_path: Path, brokers: FakeBrokers, cluster: Cluster
) -> None:
    """They would hide positions from whoever gets the tasks, for as long as a transaction may last."""
    path = tmp_path / "mm2.properties"
    path.write_text(mm2_properties("a:9092", "b:9092", **marking_exactly_once("A")))
    settings = next(flow for flow in load_settings(path).flows if flow.is_enabled)
    joined = {"a": encode_candidate(Candidate(Node("one", 1)))}
    await leads(flow_context(LoopClock(), EventLog(LoopClock()), settings)).assign(cluster, 1, joined)

    opened = [request.transactional_id for _, request in brokers.requests_of(INIT)]
    assert "A-mm2-MirrorSourceConnector-0" in opened
    assert opened[-1] == "mm2py-A->B-transforms"


@pytest.mark.parametrize("known", [0, SLOTS])
async def test_a_leader_that_has_just_started_moves_nothing(known: int) -> None:
    """
    What a node measures right after a restart says little: it copies what has piled up.

    The leader does not even know yet which slots have partitions, but for those that another node measures.
    """
    clock, half = LoopClock(), SLOTS // 2
    slots = (frozenset(range(half)), frozenset(range(half, SLOTS)))
    shares = [Share(number == 0, frozenset({number}), some) for number, some in enumerate(slots)]
    busy = NodeLoad(dict.fromkeys(slots[1], 1e6))
    joined = {
        "a": encode_candidate(Candidate(Node("one", 1), held=shares[0])),
        "b": encode_candidate(Candidate(Node("two", 2), held=shares[1], load=busy)),
    }
    ours = leads(flow_context(clock, EventLog(clock)), Work(2, partitions=dict.fromkeys(range(known), 1)))
    sent = await ours.assign(cast("Cluster", None), 1, joined)
    shared = decode_shared_flow(sent["a"])

    assert [shared.share_of(member) for member in ("a", "b")] == shares


async def test_the_owner_s_settings_say_how_many_tasks_there_are() -> None:
    """The leader is a node that stands by, for its transforms: it knows of a task more, which has no slots."""
    clock, other = LoopClock(), NodeSettings(fixed={"transforms": "x"})
    joined = {
        "a": encode_candidate(Candidate(Node("one", 1), held=whole_share(4), tasks=(4, 0))),
        "b": encode_candidate(Candidate(Node("two", 2), settings=other, tasks=(5, 1))),
    }
    ours = leads(flow_context(clock, EventLog(clock)), Work(5, record_tasks=1))
    sent = await ours.assign(cast("Cluster", None), 1, joined)

    assert decode_shared_flow(sent["a"]).shares == {"a": whole_share(4), "b": NO_SHARE}
