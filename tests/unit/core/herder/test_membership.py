"""Who runs a flow, by who is in its group."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.herder.membership import PROTOCOL, PROTOCOL_TYPE, Occupied, Vacant, judge_members
from mm2py.model.group import GroupMember, GroupMembers
from mm2py.model.herder.node import Node, encode_node
from mm2py.model.herder.share import Candidate, encode_candidate


US = Node("here", 1, "this machine", "100")
NEIGHBOUR = Node("here", 2, "this machine", "200", "here:8083", 1_000)
STRANGER = Node("there", 2, "another machine", "200")


def _group(*members: bytes, protocol: str = PROTOCOL, protocol_type: str = PROTOCOL_TYPE) -> GroupMembers:
    found = (GroupMember(f"m{number}", f"/10.0.0.{number}", raw) for number, raw in enumerate(members))
    return GroupMembers("Stable", protocol_type, protocol, tuple(found))


@pytest.mark.parametrize(
    ("found", "is_alive", "expected"),
    [
        (GroupMembers(), True, Vacant()),
        (GroupMembers("Empty", PROTOCOL_TYPE), True, Vacant()),
        (_group(encode_node(NEIGHBOUR)), True, Occupied("mm2py on here, process 2", NEIGHBOUR, is_certain=True)),
        (_group(encode_node(NEIGHBOUR)), False, Vacant(("m0",))),
        (_group(encode_node(STRANGER)), False, Occupied("mm2py on there, process 2", STRANGER)),
        (
            _group(encode_node(NEIGHBOUR), encode_node(STRANGER)),
            False,
            Occupied("mm2py on there, process 2", STRANGER, dead=("m0",)),
        ),
        (_group(b"\0\1", protocol="sessioned"), True, Occupied("Java MirrorMaker, at 10.0.0.0")),
        (_group(b"", b"", protocol=""), True, Occupied("another mirror, at 10.0.0.0, 10.0.0.1", is_settling=True)),
        (_group(b"[" * 100_000), True, Occupied("another mirror, at 10.0.0.0")),
        (
            _group(b"", protocol="range", protocol_type="consumer"),
            True,
            Occupied("a group of protocol type consumer, at 10.0.0.0"),
        ),
    ],
)
def test_who_runs_a_flow(found: GroupMembers, is_alive: bool, expected: Vacant | Occupied) -> None:
    """Only a process of this machine can be known to have ended; any other member may run the flow."""
    assert judge_members(found, US, lambda _node: is_alive) == expected


@given(
    members=st.lists(
        st.tuples(st.text(), st.binary() | st.just(b'{"host": "h", "pid": 1, "machine": "this machine"}')), max_size=4
    ),
    protocol=st.sampled_from(["", PROTOCOL]) | st.text(),
    protocol_type=st.sampled_from(["", PROTOCOL_TYPE]) | st.text(),
    is_alive=st.booleans(),
)
def test_any_group_is_vacant_or_taken(
    members: list[tuple[str, bytes]], protocol: str, protocol_type: str, is_alive: bool
) -> None:
    """Whatever the members' ids and metadata are, the flow is vacant, or occupied by a named member."""
    there = tuple(GroupMember(name, f"/{name}", shown) for name, shown in members)
    found = judge_members(GroupMembers("Stable", protocol_type, protocol, there), US, lambda _node: is_alive)

    assert isinstance(found, Vacant) or found.by


def test_a_machine_that_does_not_say_which_it_is_tells_nothing_of_its_processes() -> None:
    """Without the name of the machine, the same process number may be another process, in another container."""
    nameless = attrs.evolve(NEIGHBOUR, machine="")
    found = judge_members(_group(encode_node(nameless)), attrs.evolve(US, machine=""), lambda _node: False)

    assert found == Occupied(str(nameless), nameless)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (_group(encode_candidate(Candidate(STRANGER)), encode_candidate(Candidate(NEIGHBOUR))), Vacant()),
        (_group(encode_candidate(Candidate(STRANGER)), encode_node(STRANGER)), Occupied(str(STRANGER), STRANGER)),
        (_group(b"", protocol=""), Vacant()),
        (_group(b"", protocol="sessioned"), Occupied("Java MirrorMaker, at 10.0.0.0")),
    ],
)
def test_whose_group_is_joined_to_share_a_flow(found: GroupMembers, expected: Vacant | Occupied) -> None:
    """That of nodes that do the same; while a group rebalances, Kafka refuses us if its members are not ours."""
    assert judge_members(found, US, lambda _node: True, shares=True) == expected


def test_many_hosts_are_counted() -> None:
    """A Connect cluster has as many hosts as it likes."""
    found = judge_members(_group(*[b""] * 5, protocol="compatible"), US, lambda _node: True)

    assert found == Occupied("Java MirrorMaker, at 10.0.0.0, 10.0.0.1, 10.0.0.2 and 2 more")


STATIC = attrs.evolve(NEIGHBOUR, instance="node-1")


def test_a_static_member_of_this_machine_may_come_back() -> None:
    """Its process has ended, and another node shares the flow; only a tool that needs it idle removes it."""
    found = _group(encode_candidate(Candidate(STATIC)))

    assert judge_members(found, US, lambda _node: False, shares=True) == Vacant()
    assert judge_members(found, US, lambda _node: False) == Vacant(("m0",))


@pytest.mark.parametrize(
    ("us", "is_waited_for"),
    [
        (attrs.evolve(US, instance="node-1"), True),
        (attrs.evolve(US, instance="node-2"), False),
        (attrs.evolve(STATIC, rest="another address"), False),
    ],
)
def test_who_was_fenced_waits_for_its_namesake(us: Node, is_waited_for: bool) -> None:
    """Not for itself: an answer to its own join may have been lost."""
    found = _group(encode_candidate(Candidate(STATIC)))
    named = attrs.evolve(found, members=(attrs.evolve(found.members[0], instance="node-1"),))
    unseen = attrs.evolve(named, protocol="", members=(attrs.evolve(named.members[0], metadata=b""),))

    judged = judge_members(named, us, lambda _node: True, shares=True, is_fenced=True)
    rebalancing = judge_members(unseen, us, lambda _node: True, shares=True, is_fenced=True)

    assert judged == (Occupied(str(STATIC), STATIC, is_certain=True, is_namesake=True) if is_waited_for else Vacant())
    assert isinstance(rebalancing, Occupied) is (us.instance == "node-1")


def test_a_group_of_later_nodes_only_is_not_taken_for_java_s() -> None:
    found = judge_members(_group(b"{}", protocol="mm2py-2"), US, lambda _node: True)

    assert found == Occupied("another version of mm2py, at 10.0.0.0")
