"""Which flows feed each other without end."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import attrs
import pytest

from mm2py.model.flow import Flow
from mm2py.policy import loops
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.policy.loops import FlowNaming, Loop, Meeting, describe, find_loop, find_meeting
from mm2py.policy.replication import AffixedReplicationPolicy, DefaultReplicationPolicy, IdentityReplicationPolicy
from mm2py.policy.selection import Selection, judge_topic


EXCLUDED = (r"mm2.*\.internal", r".*\.replica", "__.*")


@attrs.frozen
class BlindPolicy(DefaultReplicationPolicy):
    """Makes new names, and cannot read them."""

    def topic_source(self, topic: str) -> str | None:  # noqa: ARG002
        return None

    def upstream_topic(self, topic: str) -> str | None:  # noqa: ARG002
        return None


@attrs.frozen
class KeepingPolicy(IdentityReplicationPolicy):
    """A user's own policy that keeps names."""


class ShortNames:
    """A user's own filter."""

    def takes_topic(self, topic: str) -> bool:
        return len(topic) == 3


class AlsoShortNames(DefaultTopicFilter):
    """One that takes more than its lists say."""

    def takes_topic(self, topic: str) -> bool:
        return len(topic) == 3 or super().takes_topic(topic)


@dataclasses.dataclass
class Endings:
    """Another one, which Python cannot hash."""

    endings: list[str]

    def takes_topic(self, topic: str) -> bool:
        return topic.endswith(tuple(self.endings))


def mirror(
    flow: str, topics: str = ".*", *, policy: str = "identity", exclude: tuple[str, ...] = EXCLUDED
) -> FlowNaming:
    """Make a flow that takes *topics*, parted by blanks."""
    source, target = flow.split("->")
    policies = {
        "identity": IdentityReplicationPolicy(source),
        "default": DefaultReplicationPolicy(),
        "underscores": DefaultReplicationPolicy("_"),
        "joined": DefaultReplicationPolicy(""),
        "blind": BlindPolicy(),
        "keeping": KeepingPolicy(source),
    }
    return FlowNaming(Flow(source, target), policies[policy], DefaultTopicFilter.of(topics.split(), exclude))


def said(loop: Loop | None) -> tuple[str, str | None] | None:
    """Return a loop's flows and topic, beginning with the first flow in order."""
    if loop is None:
        return None
    begin = loop.flows.index(min(loop.flows))
    return " ".join(map(str, (*loop.flows[begin:], *loop.flows[:begin]))), loop.topic


IDENTITY = {
    "two flows that take all": (["A->B", "B->A"], "A->B B->A"),
    "one way": (["A->B", "A->C", "B->C"], None),
    "a ring of three": (["A->B", "B->C", "C->A"], "A->B B->C C->A"),
    "a ring inside a larger shape": (["X->A", "A->B", "B->C", "C->B", "C->X"], "B->C C->B"),
}


@pytest.mark.parametrize(("flows", "expected"), IDENTITY.values(), ids=IDENTITY)
def test_rings_of_flows_that_keep_names(flows: list[str], expected: str | None) -> None:
    """Any circle of them sends each record round for ever; without a circle there is nothing to fear."""
    found = said(find_loop([mirror(flow) for flow in flows]))

    assert found == (expected and (expected, "orders"))


FILTERS = {
    "prefixes of their own": (r"emea\..*", r"apac\..*", None),
    "a topic in both lists": ("orders clicks", "clicks views", "clicks"),
    "a name in one, an expression in the other": ("orders", "ord.*", "orders"),
    "expressions that have names in common": ("invoices.*", ".*-eu", "invoices-eu"),
    "a list without members": (".*", "", None),
    "only what is never mirrored": ("__.*", "__.*", None),
    "only what is internal": (r"mm2-.*\.internal", r"mm2-.*\.internal", None),
    "only heartbeats": ("heartbeats", "heartbeats", None),
}


@pytest.mark.parametrize(("there", "back", "topic"), FILTERS.values(), ids=FILTERS)
def test_flows_with_no_topic_in_common_are_fine(there: str, back: str, topic: str | None) -> None:
    """Two ways with names kept work where no name is taken both ways; where one is, it is named."""
    found = find_loop([mirror("A->B", there), mirror("B->A", back)])

    assert (found and found.topic) == topic


def mesh(size: int, topics: str, policy: str) -> list[FlowNaming]:
    """Make flows between all of so many clusters; *topics* has the aliases of each."""
    aliases = [f"c{number}" for number in range(size)]
    return [mirror(f"{a}->{b}", topics.format(a, b), policy=policy) for a in aliases for b in aliases if a != b]


NO_LOOP = {
    "what one flow leaves out": [mirror("A->B", ".*-eu"), mirror("B->A", "ord.*", exclude=("orders.*", ".*-eu"))],
    "lists of names take only so many rounds": [
        mirror("A->B", "orders", policy="default"), mirror("B->A", "A.orders", policy="underscores"),
    ],
    "a mesh that keeps names, with a list for each flow": mesh(4, "{}-to-{}-.*", "identity"),
    "default names show every way, however many there are": mesh(12, ".*", "default"),
    "routers that leave the policy's part of a name alone": [
        attrs.evolve(mirror("A->B", policy="default"), routed=lambda named: f"eu.{named}"),
        mirror("B->A", policy="default"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("flows", NO_LOOP.values(), ids=NO_LOOP)
def test_flows_that_feed_each_other_only_so_far_are_fine(flows: list[FlowNaming]) -> None:
    """No name goes round for ever."""
    assert find_loop(flows) is None


MIXED = {
    "names kept one way, shown the other": ([("A->B", "identity"), ("B->A", "default")], None, False),
    "all shown": ([("A->B", "default"), ("B->C", "default"), ("C->A", "default")], None, False),
    "shown in two ways": ([("A->B", "default"), ("B->A", "underscores")], "A->B B->A", True),
    "a ring with one that shows": ([("A->B", "identity"), ("B->C", "default"), ("C->A", "identity")], None, False),
    "a ring in two ways": (
        [("A->B", "identity"), ("B->C", "underscores"), ("C->A", "default")],
        "A->B B->C C->A",
        True,
    ),
}


@pytest.mark.parametrize(("flows", "expected", "grows"), MIXED.values(), ids=MIXED)
def test_mixes_of_policies(flows: list[tuple[str, str]], expected: str | None, *, grows: bool) -> None:
    """A name that one flow gives and another cannot read gets longer with each round; else a circle is seen in time."""
    found = find_loop([mirror(flow, policy=policy) for flow, policy in flows])

    assert (found is not None and found.grows) is grows
    assert said(found) == (expected and (expected, "orders"))


def test_aliases_with_separators_hide_circles() -> None:
    """If both aliases contain the separator, names do not identify a topic's source; nor without a separator."""
    flows = [mirror("eu.west->us.east", policy="default"), mirror("us.east->eu.west", policy="default")]
    joined = [mirror("east->west", policy="joined"), mirror("west->east", policy="joined")]

    for pair in (flows, joined):
        found = find_loop(pair)
        assert found is not None
        assert found.grows
    assert find_loop(joined[:1]) is None


@pytest.mark.parametrize("policy", ["blind", "keeping"])
def test_a_policy_of_one_s_own_is_not_sure(policy: str) -> None:
    """What it says about a few names need not hold for all, so nothing is refused because of it."""
    found = find_loop([mirror("A->B", policy=policy), mirror("B->A", policy=policy)])

    assert found is not None
    assert not found.is_sure


def test_a_sure_loop_is_found_beside_others() -> None:
    """A policy of one's own does not hide two flows that feed each other."""
    flows = [
        mirror("A->B", policy="keeping"), mirror("B->A", policy="keeping"), mirror("B->C"), mirror("C->B", "clicks"),
    ]  # fmt: skip

    found = find_loop(flows)

    assert found is not None
    assert found.is_sure
    assert said(found) == ("B->C C->B", "clicks")


@pytest.mark.parametrize(
    "back",
    [
        mirror("B->A", "(?!orders|x).*"),
        attrs.evolve(mirror("B->A"), topic_filter=ShortNames()),
        attrs.evolve(mirror("B->A"), topic_filter=AlsoShortNames.of(())),
    ],
    ids=["an expression that cannot be walked", "a filter of one's own", "one derived from the default"],
)
def test_what_cannot_be_ruled_out_is_said(back: FlowNaming) -> None:
    """If no name is found, but none can be ruled out, there may be a loop."""
    found = find_loop([mirror("A->B", "x.{300}"), back])

    assert found is not None
    assert (found.topic, found.is_sure) == (None, False)


def test_more_combinations_than_can_be_looked_into_leave_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the search is given up, a loop is not ruled out."""
    monkeypatch.setattr(loops, "_MOST_WORDS", 2)

    found = find_loop([mirror(f"{a}->{b}", f"{a}{b}.*") for a in "ABCD" for b in "ABCD" if a != b])

    assert found is not None
    assert (found.topic, found.is_sure) == (None, False)


def test_a_loop_is_said_in_words() -> None:
    """The message names flows, a topic and why."""
    flows = [mirror("A->B"), mirror("B->A")]
    loop = find_loop(flows)

    assert loop is not None
    assert describe({it.flow: it for it in flows}, loop) == (
        "A->B, B->A would feed each other without end: each record of topic orders goes round and round, "
        "because A->B and B->A keep names"
    )


def stripped(topic: str) -> str:
    """Do what a RegexRouter does that takes the name's first part away."""
    return re.sub(r"[A-Z]\.(.*)", r"\1", topic)


def test_routers_that_hide_the_way() -> None:
    """If routers remove the policy's prefix, a ring of flows never ends; without them it does."""
    ring = [mirror(flow, policy="default") for flow in ("A->B", "B->C", "C->A")]
    stripping = [attrs.evolve(one, routed=stripped) for one in ring]

    assert find_loop(ring) is None
    assert said(find_loop(stripping)) == ("A->B B->C C->A", "orders")


def test_routers_for_one_name() -> None:
    """A router that is about one topic alone makes a loop for that one."""
    ring = [mirror(flow, "orders [A-C].orders", policy="default") for flow in ("A->B", "B->C", "C->A")]
    names = {"A.orders": "orders", "B.orders": "orders", "C.orders": "orders"}
    stripping = [attrs.evolve(one, routed=lambda named: names.get(named, named)) for one in ring]

    assert said(find_loop(stripping)) == ("A->B B->C C->A", "orders")


def _prefixed(aliases: str) -> list[FlowNaming]:
    """Make flows between all clusters that put their source's alias in front, and leave out what has one already."""
    exclude = tuple(f"{alias}-.*" for alias in aliases)
    flows = [f"{source}->{target}" for source in aliases for target in aliases if source != target]
    made = [mirror(flow, exclude=(*EXCLUDED, *exclude)) for flow in flows]
    return [attrs.evolve(it, policy=AffixedReplicationPolicy(it.policy, f"{it.flow.source}-")) for it in made]


def test_names_that_only_grow_lead_nowhere_if_they_are_excluded() -> None:
    """Of the many longer and longer names none is on a cycle: nothing is searched for them, and nothing is in doubt."""
    assert find_loop(_prefixed("ABCD")) is None


def test_a_search_that_takes_too_long_names_flows_that_form_a_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doubt is about flows that could feed each other, not about those that were being looked at."""
    monkeypatch.setattr(loops, "_MOST_WORDS", 1)
    found = find_loop([mirror("A->B", "a.*"), mirror("B->C", "b.*"), mirror("C->A", "c.*")])

    assert found is not None
    assert (len(found.flows), found.topic, found.is_sure) == (3, None, False)


MEETINGS = {
    "names are kept": ([mirror("A->C"), mirror("B->C")], "orders"),
    "a name in one, an expression in the other": ([mirror("A->C", "bills orders"), mirror("B->C", "bi.*")], "bills"),
    "the same expression": ([mirror("A->C", "invoices-.+"), mirror("B->C", "invoices-.+")], "invoices-a"),
    "the third of them": ([mirror("A->C", "a"), mirror("B->C", "b"), mirror("D->C", "[b-d]")], "b"),
    "only heartbeats": ([mirror("A->C", "heartbeats"), mirror("B->C", "heartbeats")], None),
    "other topics": ([mirror("A->C", "a.*"), mirror("B->C", "b.*")], None),
    "other targets": ([mirror("A->C"), mirror("B->D")], None),
    "default names": ([mirror("A->C", policy="default"), mirror("B->C", policy="default")], None),
    "prefixes of their own": (
        [
            attrs.evolve(mirror(flow), policy=AffixedReplicationPolicy(IdentityReplicationPolicy(flow[0]), flow[0]))
            for flow in ("A->C", "B->C")
        ],
        None,
    ),
}


@pytest.mark.parametrize(("flows", "topic"), MEETINGS.values(), ids=MEETINGS)
def test_flows_into_one_remote_topic(flows: list[FlowNaming], topic: str | None) -> None:
    """Two flows to one cluster that give topics the same names are found, where both take a topic."""
    found = find_meeting(flows)

    assert (found and found.remote_topic) == topic
    assert found is None or found.flows == tuple(mirror.flow for mirror in flows[-2:])


def test_lists_of_names_are_not_searched_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """All their names are tried as they are; to search thirty long lists would take seconds."""
    monkeypatch.delattr("mm2py.policy.loops._Search.word")
    flows = [mirror(f"{source}->Z", f"orders-{source} v1\\.{source}") for source in "ABC"]

    assert find_meeting(flows) is None
    assert find_meeting([*flows, mirror("D->Z", r"v1\.C")]) == Meeting((Flow("C", "Z"), Flow("D", "Z")), "v1.C")


def test_long_lists_are_asked_for_their_own_names_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty flows with three hundred names each: to judge each name on each flow took seconds at each reload."""
    judged: list[str] = []

    def judge(topic: str, *others: Any, **named: Any) -> Selection:
        judged.append(topic)
        return judge_topic(topic, *others, **named)

    monkeypatch.setattr(loops, "judge_topic", judge)
    ring = [mirror(f"{a}->{b}", " ".join(f"{a}-{at}" for at in range(30)) + " x-.+") for a, b in ("AB", "BC", "CA")]

    assert find_loop(ring) == Loop(tuple(flow.flow for flow in ring), "x-a", grows=False, is_sure=True)
    assert len(judged) < 200


def test_source_connectors_of_one_pair_do_not_meet() -> None:
    """One of them copies a topic that both select, and the other one says so; another pair's flow meets either."""
    first = mirror("A->C", "orders")
    second = attrs.evolve(first, flow=Flow("A", "C", "second"))

    assert find_meeting([first, second]) is None
    assert find_meeting([first, second, attrs.evolve(first, flow=Flow("B", "C"))]) is not None


def test_a_filter_of_one_s_own_may_have_no_hash() -> None:
    """As an object that is compared by its values: a dataclass is one."""
    own = [attrs.evolve(mirror(flow), topic_filter=Endings(["ers"])) for flow in ("A->C", "B->C")]

    assert find_meeting(own) == Meeting((Flow("A", "C"), Flow("B", "C")), "orders")
