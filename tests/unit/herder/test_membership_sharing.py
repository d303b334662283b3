"""What moves between the members of a flow's group, and in which order."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from mm2py.core.herder.sharing import Work
from mm2py.model.herder.node import Node
from mm2py.model.herder.share import (
    ALL_SLOTS,
    NO_SHARE,
    Candidate,
    NodeLoad,
    Share,
    SharedFlow,
    decode_shared_flow,
    encode_candidate,
    whole_share,
)
from mm2py.telemetry.events import (
    ControlWritesUnguarded,
)
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Heartbeat
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import INIT, FakeBrokers
from tests.support.flow_rig import FLOW, SETTINGS, changed, flow_context
from tests.support.memberships import NOBODY, TASKS, THERE, Run, leads


async def test_what_another_node_gets_is_released_first(run: Run) -> None:
    """A node comes: ours works on its half at once, and joins again once nothing beyond that is held."""
    async with run(NOBODY) as (place, group, _events):
        await asyncio.sleep(4)
        place.others = {"other": encode_candidate(Candidate(THERE))}
        place.answer = Heartbeat.REBALANCE
        await asyncio.sleep(4)
        joined, share = len(place.joins), group.share
        group.released.set()
        await asyncio.sleep(4)

    assert joined == 2
    assert len(share.tasks) == 1
    assert [None if it is None else it.held for it in place.joins] == [NO_SHARE, whole_share(TASKS), share]
    assert not group.is_deposed


async def test_what_another_node_releases_is_waited_for_with_short_pauses(run: Run) -> None:
    """What moves is copied by no node until all have joined again; usually it takes two seconds to notice."""
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, whole_share(TASKS)))}
        await asyncio.sleep(0.5)
        before = group.share
        left = decode_shared_flow(place.assigned).share_of("other")
        place.others = {"other": encode_candidate(Candidate(THERE, left))}
        place.answer = Heartbeat.REBALANCE
        await asyncio.sleep(0.5)
        moved, why = group.share, group.why
        place.others, place.answer = {}, Heartbeat.REBALANCE
        await asyncio.sleep(0.5)
        joins = len(place.joins)

    assert (before, moved.tasks) == (NO_SHARE, {1})
    assert why == f"{THERE} does this for {FLOW}"  # checkpoints, and what else the owner does alone
    assert joins == 2  # nothing moves any more


async def test_a_node_says_so_once_it_is_ready(run: Run) -> None:
    """Others keep what they have until then; at once it joins again."""
    async with run(NOBODY) as (place, group, _events):
        place.others = {"other": encode_candidate(Candidate(THERE, Share(True, frozenset({0, 1}), ALL_SLOTS)))}
        place.its.is_ready = False
        await asyncio.sleep(1)
        before = group.share
        place.its.note_ready()
        await asyncio.sleep(0.1)

    assert before == NO_SHARE
    assert [None if it is None else it.is_ready for it in place.joins] == [False, True]


async def _after_a_has_left(cluster: Cluster, **rates: dict[int, float]) -> tuple[dict[str, Share], SharedFlow]:
    """Return what three nodes had that measure these *rates*, and what two have without the first."""
    leader = leads(flow_context(LoopClock(), EventLog(LoopClock())), Work(TASKS, partitions=dict.fromkeys(range(8), 1)))
    shares = {
        "a": Share(True, frozenset(), frozenset(range(4))),
        "b": Share(False, frozenset({0}), frozenset(range(4, 512))),
        "c": Share(False, frozenset({1}), frozenset(range(512, 1024))),
    }
    members = {
        name: encode_candidate(Candidate(Node(name, 1), share, NodeLoad(rates.get(name, {}))))
        for name, share in shares.items()
    }
    before = SharedFlow(0, {name: Node(name, 1) for name in shares}, shares)
    await leader.assign(cluster, 1, members, before)
    return shares, decode_shared_flow((await leader.assign(cluster, 2, {it: members[it] for it in "bc"}, before))["b"])


async def test_what_a_vanished_node_copied_is_shared_by_what_was_last_known(cluster: Cluster) -> None:
    """Its slots are measured by no node any more."""
    busy = {0: 1e6, 2: 1e6}
    _, shared = await _after_a_has_left(cluster, a=busy | {1: 1e3, 3: 1e3}, b=dict.fromkeys(range(4, 8), 1.0))

    assert [len(busy.keys() & shared.share_of(name).slots) for name in "bc"] == [1, 1]


async def test_members_that_release_one_after_the_other_move_nothing_else(cluster: Cluster) -> None:
    """What is to go where is decided once, when a node comes, by what all hold at that time."""
    leader = leads(flow_context(LoopClock(), EventLog(LoopClock())), Work(3, partitions=dict.fromkeys(range(12), 1)))
    evens = frozenset(range(0, 1024, 2))
    held = {
        "a": Share(True, frozenset({0}), evens),
        "b": Share(False, frozenset({1}), ALL_SLOTS - evens),
        "c": NO_SHARE,
    }
    nodes = {name: Node(name, 1) for name in held}
    shared = SharedFlow(0, {name: nodes[name] for name in "ab"}, {name: held[name] for name in "ab"})
    found = []
    for released in ("", "a", "b", ""):
        if released:
            held[released] = shared.share_of(released)
        members = {name: encode_candidate(Candidate(nodes[name], share)) for name, share in held.items()}
        shared = decode_shared_flow((await leader.assign(cluster, len(found), members, shared))["a"])
        held["c"] = shared.share_of("c")
        found.append({name: shared.share_of(name).slots for name in "abc"})

    assert all(shares[name] == found[0][name] for shares in found for name in "ab")
    assert [len(shares["c"]) for shares in found] == [
        0,
        len(evens - found[0]["a"]),
        *2 * [1024 - len(found[0]["a"] | found[0]["b"])],
    ]


async def test_when_a_node_starts_the_others_keep_what_they_have(cluster: Cluster) -> None:
    """Nothing moves before its Spark has started."""
    leader = leads(flow_context(LoopClock(), EventLog(LoopClock())), Work(TASKS, partitions=dict.fromkeys(range(8), 1)))
    few = frozenset({0, *range(8, 516)})
    held = {"a": Share(True, frozenset({0}), few), "b": Share(False, frozenset({1}), ALL_SLOTS - few)}
    members = {name: encode_candidate(Candidate(Node(name, 1), share)) for name, share in held.items()}
    members["c"] = encode_candidate(Candidate(Node("c", 1), is_ready=False))
    before = SharedFlow(0, {name: Node(name, 1) for name in held}, held)
    shared = decode_shared_flow((await leader.assign(cluster, 1, members, before))["a"])

    assert shared.shares == {**held, "c": NO_SHARE}


async def test_when_a_node_has_left_the_others_keep_what_they_have(cluster: Cluster) -> None:
    """What one of them has taken over from it is not measured yet, so it is too early to compare them."""
    before, shared = await _after_a_has_left(cluster, b=dict.fromkeys(range(4, 8), 1e6))

    assert all(before[name].slots <= shared.share_of(name).slots for name in "bc")


async def test_what_nobody_holds_is_fenced_before_it_is_given_away(brokers: FakeBrokers, cluster: Cluster) -> None:
    """
    A node has vanished: its tasks go to others once the brokers refuse what it writes, even if that takes a while.

    If it takes too long, they go without, and that is reported.
    """
    clock = LoopClock()
    events = EventLog(clock)
    settings = changed(SETTINGS, copying=attrs.evolve(SETTINGS.source_connector.copying, tasks_max=TASKS))
    leader = leads(flow_context(clock, events, settings))
    held = {"a": Share(True, frozenset({0}), frozenset(range(512)))}

    async def assigned() -> Share:
        members = {name: encode_candidate(Candidate(Node(name, 1), share)) for name, share in held.items()}
        return decode_shared_flow((await leader.assign(cluster, 1, members))["a"]).share_of("a")

    brokers.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 100
    begun, withheld = clock.monotonic(), await assigned()
    first = (leader.must_repeat, clock.monotonic() - begun)
    leader.follow(SharedFlow(2, {}, {}))
    led_by_another = leader.must_repeat
    await assigned()
    brokers.answers = []
    given, opened = await assigned(), {it.transactional_id for _, it in brokers.requests_of(INIT)}
    brokers.answers = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 1_000
    rounds = 0
    while (share := await assigned()) == held["a"] and rounds < 100:
        rounds += 1
    (unguarded,) = events.of(ControlWritesUnguarded)

    assert (withheld, first[0], led_by_another) == (held["a"], True, False)
    assert first[1] == pytest.approx(2.0, abs=0.1)
    assert given == share == whole_share(TASKS)
    assert opened == {"A-mm2-MirrorSourceConnector-1"}
    assert 5 < rounds < 15
    assert not leader.must_repeat
    assert unguarded.transactional_id == "A-mm2-MirrorSourceConnector-1"
    assert unguarded.error == "no coordinator of cluster A had opened it after 2 s"
    assert "__transaction_state" in unguarded.hint
