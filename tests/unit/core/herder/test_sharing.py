"""Who gets what of a flow, by who is there and what each holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.core.herder.sharing import TOLERATED_RATIO, Work, needs_rebalance, share_work
from mm2py.model.herder.node import Node
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.model.herder.share import ALL_SLOTS, NO_SHARE, SLOTS, Candidate, NodeLoad, Share, SharedFlow, whole_share


FLOW = "A->B"


def _fresh(*names: str) -> dict[str, Candidate]:
    return {name: Candidate(Node(name, 1)) for name in names}


def _after(members: Mapping[str, Candidate], shared: SharedFlow) -> dict[str, Candidate]:
    """Return the members once each has released what it no longer has, and taken what it was given."""
    return {name: attrs.evolve(it, held=shared.share_of(name)) for name, it in members.items()}


def _settled(members: Mapping[str, Candidate], work: Work) -> dict[str, Candidate]:
    """Return the members after as many rebalances as it takes; two are enough."""
    for generation in range(2):
        members = _after(members, share_work(FLOW, generation, members, work))
    assert not needs_rebalance(FLOW, members, work)
    return dict(members)


def _assert_shared(members: Iterable[Share], tasks: int) -> None:
    shares = list(members)
    assert sorted(task for share in shares for task in share.tasks) == list(range(tasks))
    assert sorted(slot for share in shares for slot in share.slots) == sorted(ALL_SLOTS)
    assert sum(share.is_owner for share in shares) == 1
    counts = [len(share.tasks) for share in shares]
    assert max(counts) - min(counts) <= 1


def test_the_only_node_has_everything() -> None:
    shared = share_work(FLOW, 1, _fresh("a"), Work(3))

    assert shared.share_of("a") == Share(is_owner=True, tasks=frozenset({0, 1, 2}), slots=ALL_SLOTS)


def test_what_moves_is_released_before_another_node_gets_it() -> None:
    work = Work(2)
    members = _settled(_fresh("a"), work) | _fresh("b")

    first = share_work(FLOW, 2, members, work)
    second = share_work(FLOW, 3, _after(members, first), work)

    assert first.share_of("b") == NO_SHARE
    assert first.share_of("a") == second.share_of("a")
    assert first.share_of("a").is_owner
    _assert_shared(second.shares.values(), 2)
    assert 450 < len(second.share_of("b").slots) < 570


def test_what_a_vanished_node_had_is_given_out_at_once_and_nothing_else_moves() -> None:
    work = Work(6)
    members = _settled(_fresh("a", "b", "c"), work)
    owner = next(name for name, it in members.items() if it.held.is_owner)
    left = {name: it for name, it in members.items() if name != owner}

    shared = share_work(FLOW, 9, left, work)

    _assert_shared(shared.shares.values(), 6)
    for name, it in left.items():
        share = shared.share_of(name)
        assert it.held.tasks <= share.tasks
        assert it.held.slots <= share.slots


def test_a_node_without_a_task_stands_by() -> None:
    members = _settled(_fresh("a", "b", "c"), Work(1))

    shares = sorted((it.held for it in members.values()), key=lambda it: len(it.tasks))

    assert shares[:2] == [NO_SHARE, NO_SHARE]
    assert shares[2] == Share(is_owner=True, tasks=frozenset({0}), slots=ALL_SLOTS)


def test_of_nodes_that_are_all_stopped_the_owner_is_the_last() -> None:
    """It gets what the others release, so that it can write the last checkpoints; a drained one gets nothing."""
    work = Work(3)
    members = _settled(_fresh("a", "b", "c", "d"), work)
    owner = next(name for name, it in members.items() if it.held.is_owner)
    drained, *others = (name for name in members if name != owner)
    members = {name: attrs.evolve(it, is_drained=True, is_ending=name != drained) for name, it in members.items()}
    stopped = _settled(members, work)
    without_owner = _settled({name: stopped[name] for name in (drained, *others)}, work)

    for left, last in ((stopped, owner), (without_owner, others[0])):
        whole = Share(is_owner=True, tasks=frozenset({0, 1, 2}), slots=ALL_SLOTS)
        assert {name: it.held for name, it in left.items() if not it.held.is_empty} == {last: whole}


def test_a_drained_node_has_nothing_and_comes_back() -> None:
    work = Work(2)
    members = _settled(_fresh("a", "b"), work)
    drained = _settled({**members, "a": attrs.evolve(members["a"], is_drained=True)}, work)
    back = _settled({**drained, "a": attrs.evolve(drained["a"], is_drained=False)}, work)

    assert drained["a"].held == NO_SHARE
    assert drained["b"].held == Share(is_owner=True, tasks=frozenset({0, 1}), slots=ALL_SLOTS)
    _assert_shared((it.held for it in back.values()), 2)


def test_a_node_that_still_starts_takes_nothing_from_others() -> None:
    """It has its part once it is ready; where no other node can copy, it has everything at once."""
    work = Work(3)
    members = _settled(_fresh("a", "b"), work)
    starting = {"c": Candidate(Node("c", 1), is_ready=False)}
    before = share_work(FLOW, 3, members | starting, work)
    alone = share_work(FLOW, 4, starting, work)
    after = _settled(members | _fresh("c"), work)

    assert before.share_of("c") == NO_SHARE
    assert {name: before.share_of(name) for name in members} == {name: it.held for name, it in members.items()}
    assert len(alone.share_of("c").tasks) == 3
    _assert_shared([it.held for it in after.values()], 3)


def test_nothing_else_moves_while_something_moves() -> None:
    """What is on its way is measured by no node, so the one that gets it seems to have little."""
    rates = dict.fromkeys(range(0, 1024, 64), 5e4)
    work = Work(3, partitions=dict.fromkeys(rates, 1), rates=rates)
    members = _settled(_fresh("a", "b"), work) | _fresh("c")
    members = _after(members, share_work(FLOW, 3, members, work))
    held = {slot for it in members.values() for slot in it.held.slots}
    measured = {slot: rate for slot, rate in rates.items() if slot in held}

    shared = share_work(FLOW, 4, members, attrs.evolve(work, rates=measured, is_compared=False))

    assert len(measured) < len(rates)
    assert {name: shared.share_of(name).slots for name in "ab"} == {name: members[name].held.slots for name in "ab"}
    _assert_shared(shared.shares.values(), 3)


def test_slots_follow_the_load() -> None:
    """Ten times the load on what one node has is spread within two rebalances."""
    work = Work(3, partitions=dict.fromkeys(ALL_SLOTS, 1))
    members = _settled(_fresh("a", "b", "c"), work)
    hot = dict.fromkeys(members["a"].held.slots, 1e6) | dict.fromkeys(ALL_SLOTS - members["a"].held.slots, 1e5)
    skewed = attrs.evolve(work, rates=hot)

    assert needs_rebalance(FLOW, members, skewed)
    after = _settled(members, skewed)

    loads = [sum(hot[slot] for slot in it.held.slots) for it in after.values()]
    assert max(loads) <= TOLERATED_RATIO * sum(loads) / 3


def test_slots_without_partitions_are_spread_too() -> None:
    """Or a topic that is created later would be copied by the node that came first, until loads are compared again."""
    used = dict.fromkeys(range(10), 3)
    members = _settled(_settled(_fresh("a"), Work(2, partitions=used)) | _fresh("b"), Work(2, partitions=used))

    assert {len(it.held.slots - used.keys()) for it in members.values()} == {(SLOTS - 10) // 2}


def test_one_hot_slot_moves_nothing_as_it_cannot_be_divided() -> None:
    work = Work(2, partitions=dict.fromkeys(ALL_SLOTS, 1))
    members = _settled(_fresh("a", "b"), work)
    slot = min(members["a"].held.slots)

    assert not needs_rebalance(FLOW, members, attrs.evolve(work, rates={slot: 1e8}))


def _owning(settings: NodeSettings) -> Candidate:
    return Candidate(Node("a", 1), Share(is_owner=True, tasks=frozenset({0, 1}), slots=ALL_SLOTS), settings=settings)


def test_the_owner_s_settings_are_taken_where_a_file_differs() -> None:
    members = {
        "a": _owning(NodeSettings({"topics": "1"}, own={"x": "1"})),
        "b": Candidate(Node("b", 1), settings=NodeSettings({"topics": "2", "groups": "g"}, own={"x": "2"})),
    }
    shared = share_work(FLOW, 1, members, Work(2))

    assert shared.differences == {"a": (), "b": ("groups", "topics", "x")}
    assert shared.settings == {"topics": "1", "groups": None}
    assert shared.conflicts == {"a": (), "b": ()}
    _assert_shared((it.held for it in _settled(members, Work(2)).values()), 2)


@pytest.mark.parametrize(
    ("owners", "others"),
    [
        ({"transforms": "1"}, {}),
        ({}, {"transforms": "1"}),
        ({"transforms": "1"}, {"transforms": "2"}),
    ],
)
def test_a_node_that_cannot_take_the_owner_s_settings_gets_nothing(
    owners: Mapping[str, str], others: Mapping[str, str]
) -> None:
    members = {
        "a": _owning(NodeSettings(fixed=owners)),
        "b": Candidate(Node("b", 1), settings=NodeSettings(fixed=others)),
    }

    assert share_work(FLOW, 1, members, Work(2)).conflicts == {"a": (), "b": ("transforms",)}
    assert {name: it.held for name, it in _settled(members, Work(2)).items()} == {"a": whole_share(2), "b": NO_SHARE}


def test_without_an_owner_most_nodes_count() -> None:
    """So one node with another file, which happens to come first, does not keep the others out."""
    fixed = {"a": {"transforms": "1"}, "b": {}, "c": {}}
    members = {name: Candidate(Node(name, 1), settings=NodeSettings(fixed=it)) for name, it in fixed.items()}

    assert share_work(FLOW, 1, members, Work(2)).share_of("a") == NO_SHARE


def test_one_node_drives_a_spark_cluster() -> None:
    """The other ones stand by, until it is gone."""
    work = Work(4, is_for_one_node=True)
    members = _settled(_fresh("a", "b", "c"), work)
    (driver,) = (name for name, it in members.items() if not it.held.is_empty)
    del members[driver]
    after = _settled(members, work)

    assert sorted(it.held == whole_share(4) for it in after.values()) == [False, True]


def test_a_task_goes_to_the_node_that_has_less_to_do_for_other_flows() -> None:
    members = {
        "a": Candidate(Node("a", 1), load=NodeLoad(elsewhere_tasks=4)),
        "b": Candidate(Node("b", 1), load=NodeLoad(elsewhere_tasks=1)),
    }

    assert share_work(FLOW, 1, members, Work(1)).share_of("b").tasks == {0}


def _flows_after(rounds: int, rates: list[float]) -> dict[str, float]:
    """Return the load of three nodes, one of which had all flows, of one task each, after so many comparisons."""
    nodes = {name: Node(name, 1) for name in "abc"}
    at = dict.fromkeys(range(len(rates)), "a")
    for number in range(rounds):
        before = dict(at)
        for flow, rate in enumerate(rates):
            # All compare at once, by what was so before.
            others = [(other, name) for other, name in before.items() if other != flow]
            members = {
                name: Candidate(
                    node,
                    Share(is_owner=True, tasks=frozenset({0}), slots=ALL_SLOTS) if before[flow] == name else NO_SHARE,
                    NodeLoad(
                        {}, sum(rates[it] for it, at in others if at == name), sum(at == name for _, at in others)
                    ),
                )
                for name, node in nodes.items()
            }
            work = Work(1, rates={0: rate}, round=number)
            for generation in range(2):
                members = _after(members, share_work(f"flow-{flow}", generation, members, work))
            at[flow] = next(name for name, it in members.items() if it.held.tasks)
    return {name: sum(max(rates[flow], 1.0) for flow, it in at.items() if it == name) for name in nodes}


def test_flows_of_one_task_spread_over_the_nodes_that_came() -> None:
    loads = _flows_after(3, [0.0] * 20)

    assert max(loads.values()) <= TOLERATED_RATIO * 20 / 3


def test_flows_of_one_task_are_spread_by_what_they_carry() -> None:
    """Two carry ten times as much as the others."""
    rates = [2e7, 2e7, *[2e6] * 18]

    loads = _flows_after(6, rates)

    assert max(loads.values()) <= 1.5 * sum(rates) / 3


SHARES = st.builds(
    Share,
    is_owner=st.booleans(),
    tasks=st.frozensets(st.integers(0, 7), max_size=8),
    slots=st.frozensets(st.integers(0, 1023), max_size=200),
)


@settings(max_examples=150, deadline=None)
@given(
    held=st.dictionaries(st.sampled_from("abcde"), SHARES, min_size=1),
    tasks=st.integers(1, 8),
    rates=st.dictionaries(st.integers(0, 1023), st.floats(0, 1e9), max_size=20),
)
def test_whatever_nodes_hold_two_rebalances_share_everything_once(
    held: dict[str, Share], tasks: int, rates: dict[int, float]
) -> None:
    """Nodes may claim anything, even the same; no two of them ever get the same, and after two rounds all is given."""
    members = {name: Candidate(Node(name, 1), share) for name, share in held.items()}
    work = Work(tasks, rates=rates)
    for generation in range(3):
        shared = share_work(FLOW, generation, members, work)
        for name, share in shared.shares.items():
            for other, it in members.items():
                assert other == name or (share & it.held) == NO_SHARE
        members = _after(members, shared)
    shares = [it.held for it in members.values()]
    assert sorted(task for share in shares for task in share.tasks) == list(range(tasks))
    assert sorted(slot for share in shares for slot in share.slots) == sorted(ALL_SLOTS)
    assert sum(share.is_owner for share in shares) == 1


def test_a_node_that_came_back_is_not_compared() -> None:
    """It has measured nothing yet, so it seems to have no load: nothing moves to it, of few tasks or of many."""
    work = Work(2, partitions=dict.fromkeys(ALL_SLOTS, 1))
    two = _settled(_fresh("a", "b"), work)
    busy = dict.fromkeys(two["a"].held.slots, 1e6)
    one_task = {
        "a": Candidate(Node("a", 1), Share(is_owner=True, tasks=frozenset({0}), slots=ALL_SLOTS), NodeLoad({}, 1e8, 1)),
        "b": Candidate(Node("b", 1)),
    }
    for members, seen in ((two, attrs.evolve(work, rates=busy)), (one_task, Work(1, rates={0: 1e8}, round=2))):
        held = {member: it.held for member, it in members.items()}
        kept = share_work(FLOW, 9, members, attrs.evolve(seen, is_compared=False))

        assert needs_rebalance(FLOW, members, seen)
        assert kept.shares == held


def test_without_an_owner_one_of_those_that_may_take_part_says_how_many_tasks_there_are() -> None:
    """A node that is drained, or has other settings, is none of them."""
    able = {"b": Candidate(Node("b", 1), tasks=(4, 2))}

    assert Work(5, 1).of_owner(able) == Work(4, 2)
    assert Work(5, 1).of_owner({}) == Work(5, 1)
