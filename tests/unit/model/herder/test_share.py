"""What nodes of a flow send each other by way of its group."""

from __future__ import annotations

import statistics

import attrs
import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.herder.node import Node, decode_node, encode_node
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.model.herder.share import (
    ALL_SLOTS,
    NO_SHARE,
    SLOTS,
    Candidate,
    NodeLoad,
    Share,
    SharedFlow,
    decode_candidate,
    decode_shared_flow,
    encode_candidate,
    encode_shared_flow,
    lasting_names,
    slot_of,
    whole_share,
    with_former_shares,
)


HERE = Node("here", 1, "machine", "2", "10.0.0.1:8083", 3)
THERE = Node("there", 2)
SHARE = Share(is_owner=True, tasks=frozenset({0, 2}), slots=frozenset({0, 7, SLOTS - 1}))


def test_a_candidate_survives_its_byte_form() -> None:
    settings = NodeSettings({"tasks.max": "4"}, {"transforms": "ab12"})
    candidate = Candidate(HERE, SHARE, NodeLoad({7: 1500.0}, 20.0, 3), settings, generation=5, tasks=(5, 1))

    assert decode_candidate(encode_candidate(candidate)) == candidate
    assert decode_node(encode_candidate(candidate)) == HERE


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'{"pid":1}',
        encode_node(HERE),
        encode_node(HERE)[:-1] + b',"shared":[]}',
        encode_node(HERE)[:-1] + b',"shared":{"held":7}}',
        encode_node(HERE)[:-1] + b',"shared":{"tasks":[1]}}',
        encode_node(HERE)[:-1] + b',"shared":{"tasks":7}}',
    ],
)
def test_what_does_not_say_what_it_holds_gets_no_share(raw: bytes) -> None:
    assert decode_candidate(raw) is None


def test_an_assignment_survives_its_byte_form() -> None:
    shares = {"a": SHARE, "b": Share(tasks=frozenset({1}), slots=ALL_SLOTS - SHARE.slots)}
    shared = SharedFlow(
        4,
        {"a": HERE, "b": THERE},
        shares,
        {"a": (), "b": ("tasks.max", "x")},
        {"a": (), "b": ("x",)},
        {"tasks.max": None, "topics": "a"},
    )

    read = decode_shared_flow(encode_shared_flow(shared))

    assert read == shared
    assert read.owner == HERE
    assert read.share_of("unknown") == NO_SHARE


@pytest.mark.parametrize(
    "raw", [b"", b"mm2py-1", b"[]", b'{"version":2}', b'{"version":1,"generation":1,"members":{"a":{"node":{}}}}']
)
def test_what_is_no_assignment_is_an_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_shared_flow(raw)


def test_every_partition_has_one_slot_that_follows_from_its_name() -> None:
    partitions = [TopicPartition(f"topic-{topic}", number) for topic in range(40) for number in range(50)]

    slots = [slot_of(it) for it in partitions]

    assert slot_of(TopicPartition("orders", 3)) == 52
    assert all(0 <= slot < SLOTS for slot in slots)
    assert len(set(slots)) > SLOTS * 0.8
    assert all(whole_share(2).has(it) for it in partitions)


def test_the_partitions_of_a_topic_lie_apart() -> None:
    """A new topic goes to all nodes, of which each has a range of the slots that had no partitions yet."""
    halves = [
        sum(slot_of(TopicPartition(f"topic-{topic}", number)) < SLOTS // 2 for number in range(16))
        for topic in range(200)
    ]

    assert statistics.mean(halves) == pytest.approx(8, abs=0.3)
    assert statistics.stdev(halves) < 2.5
    assert 0 < min(halves) <= max(halves) < 16


def test_a_static_member_that_came_back_is_in_an_assignment_by_its_name() -> None:
    """As another process with another id; a node without that name is not."""
    former, now = attrs.evolve(THERE, instance="node-1"), attrs.evolve(THERE, pid=3, instance="node-1")
    shared = SharedFlow(4, {"a": HERE, "b": former}, {"b": SHARE})
    name, taken = shared.taken_by("b again", now)

    assert (name, taken.nodes, taken.share_of(name)) == ("b", {"a": HERE, "b": now}, SHARE)
    assert shared.taken_by("c", HERE) == ("c", shared)
    assert lasting_names(shared.nodes) == lasting_names({"a": HERE, "b again": now}) == {"a", "node-1"}


def test_a_static_member_that_came_back_in_a_rebalance_has_what_it_had() -> None:
    """As a new process it holds nothing, but what it had was kept for it; not what another node holds by now."""
    former, here = attrs.evolve(THERE, instance="node-1"), attrs.evolve(HERE, instance="node-2")
    taken = Share(tasks=frozenset({2}), slots=frozenset({7}))
    before = SharedFlow(4, {"a": here, "b": former}, {"a": NO_SHARE, "b": SHARE})
    back = Candidate(attrs.evolve(former, pid=3))
    others = {"a": Candidate(here, taken, generation=4), "c": Candidate(attrs.evolve(THERE, pid=9))}
    found = with_former_shares({"b again": back, **others}, before)

    assert found == {"b again": attrs.evolve(back, held=SHARE - taken), **others}
    assert with_former_shares({"b again": back}, None) == {"b again": back}
