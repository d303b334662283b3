"""Which topics a flow mirrors, one row per reason."""

from __future__ import annotations

import difflib

import attrs
import pytest

from mm2py.model.flow import Flow
from mm2py.model.topic import Unmatched
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.policy.replication import AffixedReplicationPolicy, DefaultReplicationPolicy, IdentityReplicationPolicy
from mm2py.policy.selection import Selection, has_own_alias, is_cycle, judge_topic, near_misses, unmatched


FLOW = Flow("A", "B")
DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy("A")
FILTER = DefaultTopicFilter.of((".*",), (r"mm2.*\.internal", r".*\.replica", "__.*"))
NARROW = DefaultTopicFilter.of(("orders",), ("orders-.*",))


@pytest.mark.parametrize(
    ("topic", "topic_filter", "expected"),
    [
        ("orders", FILTER, Selection.REPLICATED),
        ("C.orders", FILTER, Selection.REPLICATED),
        ("orders.internal", FILTER, Selection.REPLICATED),
        ("heartbeats", FILTER, Selection.REPLICATED),
        ("heartbeats", NARROW, Selection.HEARTBEATS),
        ("C.heartbeats", NARROW, Selection.HEARTBEATS),
        ("my-heartbeats", NARROW, Selection.NOT_INCLUDED),
        ("__consumer_offsets", FILTER, Selection.INTERNAL),
        (".orders", FILTER, Selection.INTERNAL),
        ("mm2-offsets.C.internal", FILTER, Selection.INTERNAL),
        ("C.checkpoints.internal", FILTER, Selection.INTERNAL),
        ("B.orders", FILTER, Selection.CYCLE),
        ("A.orders", FILTER, Selection.CYCLE),
        ("C.B.orders", FILTER, Selection.CYCLE),
        ("C.A.orders", FILTER, Selection.CYCLE),
        ("B.heartbeats", FILTER, Selection.CYCLE),
        ("orders.replica", FILTER, Selection.EXCLUDED),
        ("orders-tmp", NARROW, Selection.EXCLUDED),
        ("payments", NARROW, Selection.NOT_INCLUDED),
    ],
)
def test_a_topic_is_mirrored_or_left_out_for_a_reason(
    topic: str, topic_filter: DefaultTopicFilter, expected: Selection
) -> None:
    """Under the default policy each topic has one reason to be mirrored or not."""
    assert expected is judge_topic(topic, FLOW, DEFAULT, topic_filter)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", Selection.REPLICATED),
        ("A.orders", Selection.REPLICATED),
        ("B.orders", Selection.REPLICATED),
        ("heartbeats", Selection.REPLICATED),
        ("C.heartbeats", Selection.REPLICATED),
        ("B.heartbeats", Selection.CYCLE),
        ("C.B.heartbeats", Selection.CYCLE),
        ("__consumer_offsets", Selection.INTERNAL),
    ],
)
def test_a_policy_that_keeps_names_sees_cycles_of_heartbeats_only(topic: str, expected: Selection) -> None:
    """Names tell nothing of the way under the identity policy, so only the target's own mark counts."""
    assert expected is judge_topic(topic, FLOW, IDENTITY, FILTER)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [("A.orders", True), ("C.A.orders", True), ("A.B.orders", False), ("B.orders", False), ("orders", False)],
)
def test_a_topic_may_be_a_cycle_by_the_source_s_alias_alone(topic: str, *, expected: bool) -> None:
    """Java before 4.4 mirrors such a topic, so it may be an ordinary one."""
    assert has_own_alias(topic, FLOW, DEFAULT) is expected
    assert not has_own_alias(topic, FLOW, IDENTITY)


def test_a_copy_that_a_suffix_marks_has_no_alias() -> None:
    """
    Flows in both directions keep names but for a suffix: each leaves the other's copies alone.

    Their names say nothing of an alias, so there is nothing to rename.
    """
    marked = AffixedReplicationPolicy(IDENTITY, suffix=".mirror")

    assert judge_topic("orders.mirror", FLOW, marked, FILTER) is Selection.CYCLE
    assert not has_own_alias("orders.mirror", FLOW, marked)
    assert has_own_alias("A.orders.mirror", FLOW, AffixedReplicationPolicy(DEFAULT, suffix=".mirror"))


@attrs.frozen
class _Regions(DefaultReplicationPolicy):
    """A policy of one's own that knows the clusters of its house, and no others."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return {"east": "e.", "west": "w."}[source_alias] + topic

    def topic_source(self, topic: str) -> str | None:
        return {"e": "east", "w": "west"}.get(topic.partition(".")[0])


def test_a_policy_is_asked_about_the_clusters_of_its_flow_alone() -> None:
    """One that knows no others would raise, and stop the flow."""
    flow = Flow("east", "west")

    assert has_own_alias("e.orders", flow, _Regions())
    assert not has_own_alias("w.orders", flow, _Regions())


def test_two_mirrors_with_the_same_aliases_do_not_feed_each_other() -> None:
    """Each calls the cluster that it reads S: a copy of the one is no topic for the other."""
    here, there = Flow("S", "T"), Flow("S", "T")
    copy = DEFAULT.format_remote_topic(here.source, "orders")

    assert judge_topic(copy, there, DEFAULT, FILTER) is Selection.CYCLE


def test_heartbeats_follow_the_filter_when_told() -> None:
    """With heartbeats.replication.enabled off, a heartbeats topic is like any other."""
    refused = judge_topic("heartbeats", FLOW, DEFAULT, NARROW, heartbeats_replication_enabled=False)
    taken = judge_topic("heartbeats", FLOW, DEFAULT, FILTER, heartbeats_replication_enabled=False)

    assert (refused, taken) == (Selection.NOT_INCLUDED, Selection.REPLICATED)


def test_which_reasons_mean_mirroring() -> None:
    """Two of the reasons are reasons to mirror."""
    assert [reason for reason in Selection if reason.is_replicated] == [Selection.REPLICATED, Selection.HEARTBEATS]


def test_a_filter_of_ones_own_says_yes_or_no() -> None:
    """A topic filter that is not ours gives no finer reason than not included."""

    class OnlyShort:
        def takes_topic(self, topic: str) -> bool:
            return len(topic) < 4

    reasons = [judge_topic(topic, FLOW, DEFAULT, OnlyShort()) for topic in ("abc", "abcd", "heartbeats", "B.x")]

    assert reasons == [Selection.REPLICATED, Selection.NOT_INCLUDED, Selection.HEARTBEATS, Selection.CYCLE]


def test_a_topic_without_upstream_is_no_cycle() -> None:
    """A policy that names a source but no upstream topic ends the walk."""

    class Odd(DefaultReplicationPolicy):
        def topic_source(self, topic: str) -> str | None:
            del topic
            return "C"

        def upstream_topic(self, topic: str) -> None:
            del topic

    assert not is_cycle("orders", FLOW, Odd())


@pytest.mark.parametrize(("topic", "expected"), [("orders", True), ("orders-tmp", False), ("order", False)])
def test_the_filter_matches_whole_names(topic: str, *, expected: bool) -> None:
    """Members match the whole name, and exclusion beats inclusion."""
    topic_filter = DefaultTopicFilter.of(("orders.*",), ("orders-.*",))

    assert topic_filter.takes_topic(topic) is expected


def test_a_filter_derived_from_the_default_decides_itself() -> None:
    """What its own method says is what is mirrored, not what its lists say."""

    class OnlyLower(DefaultTopicFilter):
        def takes_topic(self, topic: str) -> bool:
            return topic.islower() and super().takes_topic(topic)

    topic_filter = OnlyLower.of((".*",))

    assert judge_topic("orders", FLOW, DEFAULT, topic_filter) is Selection.REPLICATED
    assert judge_topic("ORDERS", FLOW, DEFAULT, topic_filter) is Selection.NOT_INCLUDED


def test_an_empty_list_of_topics_takes_none() -> None:
    """topics= mirrors nothing; topics.exclude= leaves nothing out."""
    nothing, everything = DefaultTopicFilter.of(()), DefaultTopicFilter.of((".*",), ())

    assert (nothing.takes_topic("orders"), everything.takes_topic("__x")) == (False, True)


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        (["order"], ("orders", "orders-2024")),
        (["ordres"], ("orders",)),
        (["orders-"], ("orders", "orders-2024")),
        ([".*"], ()),
        (["zzz"], ()),
        ([], ()),
    ],
)
def test_names_that_come_near_are_found(wanted: list[str], near: tuple[str, ...]) -> None:
    """A misspelt name, and the beginning of a name, lead to what was meant."""
    assert near_misses(wanted, {"orders", "orders-2024", "bills", "__consumer_offsets"}) == near


@pytest.mark.parametrize(
    ("wanted", "is_idle", "found"),
    [
        pytest.param(["orders"], False, None, id="there"),
        pytest.param(["orders", "ordres"], False, Unmatched(3, ("ordres",), ("orders",)), id="misspelt"),
        pytest.param(["or.ers", "bills.eu"], False, Unmatched(3, ("bills.eu",)), id="a dot is any character"),
        pytest.param(["x.*", "orders|y"], False, None, id="expressions may match later"),
        pytest.param(["x.*"], True, Unmatched(3, is_idle=True), id="nothing is mirrored"),
    ],
)
def test_names_without_a_topic_are_found(wanted: list[str], is_idle: bool, found: Unmatched | None) -> None:
    """A name is meant as it is, an expression for what may come."""
    topics = {"orders", "orders-2024", "__consumer_offsets"}

    assert unmatched(wanted, DefaultTopicFilter.of(wanted), topics, is_idle=is_idle) == found


def test_a_custom_filter_says_nothing_of_names() -> None:
    """What it makes of the list is its own."""

    class Choosy:
        def takes_topic(self, topic: str) -> bool:
            return topic == "orders"

    assert unmatched(["ordres"], Choosy(), {"orders"}, is_idle=False) is None


def test_a_long_list_of_names_on_a_large_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """While names are compared nothing else happens: 300 names among 10 000 topics took eight seconds of CPU."""
    compared = 0
    compare = difflib.get_close_matches

    def counting(word: str, possibilities: list[str], n: int, cutoff: float) -> list[str]:
        nonlocal compared
        compared += len(possibilities)
        return compare(word, possibilities, n, cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    names = {f"clicks.{number}" for number in range(2_000)}
    found = near_misses(["clocks.7", *(f"bills-{number}" for number in range(300))], names)

    assert (found[0], compared) == ("clicks.7", 10_000)
