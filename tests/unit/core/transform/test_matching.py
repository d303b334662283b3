"""Which topics have a transform, what routers call them, and who transforms them."""

from __future__ import annotations

import pytest

from mm2py.core.transform.matching import TopicTransforms, record_slots, routed
from mm2py.model.transform import FlowTransforms, Predicate, Step, TopicRule, Transform


def _router(regex: str, replacement: str, predicate: Predicate | None = None, *, is_negated: bool = False) -> Step:
    return Step("r", "RegexRouter", {"regex": regex, "replacement": replacement}, predicate, is_negated)


def _rule(topics: str) -> TopicRule:
    return TopicRule(topics, Transform(f"transform.{topics}.sql", sql="SELECT * FROM records"))


_DROP = Step("d", "DropHeaders", {"headers": "x"})
_SHOP = Predicate("TopicNameMatches", {"pattern": "shop-.*"})


@pytest.mark.parametrize(
    ("steps", "topic", "name"),
    [
        ((), "orders", "orders"),
        ((_router("(ord)(.*)", "$2-$1"),), "orders", "ers-ord"),
        ((_router("rder", "x"),), "orders", "orders"),
        ((_router("(.)(.*)", "$23"),), "orders", "rders3"),
        ((_router("(?<a>.).*", "${a}\\$1"),), "orders", "o$1"),
        ((_router("(o)?.*", "$1x$01"),), "carts", "x"),
        # As of Java's replaceFirst: what is found first is replaced, which may be less than the name that matched.
        ((_router("orders|orders-eu", "x"),), "orders-eu", "x-eu"),
        ((_router("(.*?)", "x"),), "orders", "xorders"),
        ((_router(".*", "x"), _router("x", "y")), "orders", "y"),
        ((_router(".*", "x", _SHOP),), "orders", "orders"),
        ((_router(".*", "x", _SHOP),), "shop-1", "x"),
        ((_router(".*", "x", _SHOP, is_negated=True),), "orders", "x"),
        ((_router("orders", "shop-a"), _router(".*", "x", _SHOP)), "orders", "x"),
        ((_DROP, _router("orders", "sales")), "orders", "sales"),
    ],
)
def test_routers_name_topics(steps: tuple[Step, ...], topic: str, name: str) -> None:
    """Routers follow Java's replacement rules, one behind the other, each for the names that its predicate takes."""
    assert routed(topic, steps) == name


def test_the_first_rule_that_fits_counts() -> None:
    """A topic has the record task of the first rule that matches its whole name; without one it stays unopened."""
    transforms = TopicTransforms(FlowTransforms((_rule("orders"), _rule("ord.*"))))

    assert [transforms.task_of(topic) for topic in ("orders", "orders2", "borders")] == [0, 1, None]
    assert [task.name for task in transforms.tasks] == ["transform.orders.sql", "transform.ord.*.sql"]


def test_a_topics_own_name_is_no_expression() -> None:
    """Its dots are dots, escaped or not: the rule of one topic takes no other topic."""
    transforms = TopicTransforms(FlowTransforms((_rule("shop.orders"), _rule(r"shop\.carts"), _rule("shop-orders"))))

    topics = ("shop.orders", "shop-orders", "shopxorders", "shop.carts", "shop-carts")
    assert [transforms.task_of(topic) for topic in topics] == [0, 2, None, 1, None]


#: Routers as Java MirrorMaker 2 ran them between clusters A and B, and where it wrote the records of topics.
_AS_JAVA_DOES = [
    ((_router(r"A\.(.*)", "$1"),), {"orders": "orders"}),
    ((_router("(.*)", "dc2.$1"),), {"plain": "dc2.A.plain"}),
    ((_router(r"(.*)\.(.*)", "$1-$2"),), {"orders": "A-orders", "eu.orders": "A.eu-orders"}),
    ((_router("orders", "sales"),), {"orders": "A.orders"}),
    ((_router(".*", "x", Predicate("TopicNameMatches", {"pattern": "orders"})),), {"orders": "A.orders"}),
    ((_router(".*", "x", Predicate("TopicNameMatches", {"pattern": r"A\.orders"})),), {"orders": "x"}),
]


@pytest.mark.parametrize(("steps", "names"), _AS_JAVA_DOES)
def test_routers_see_what_the_policy_named(steps: tuple[Step, ...], names: dict[str, str]) -> None:
    """The replication policy names a topic first, then routers rename it: the record's topic in Java's chain."""
    transforms = TopicTransforms(FlowTransforms(steps=steps), "A.{}".format)

    assert {topic: transforms.name_remote(topic) for topic in names} == names


@pytest.mark.parametrize(
    ("pattern", "is_negated", "opened"),
    [
        (r"[^.]+\.keep.*", True, ["carts", "a.audit", "audit"]),
        (r".*\.audit.*", False, ["a.audit", "audit"]),
        ("audit", False, []),
    ],
)
def test_predicates_see_what_the_policy_named(pattern: str, opened: list[str], *, is_negated: bool) -> None:
    """Records that a filter may drop are opened; those of all other topics stay in their batches."""
    predicate = Predicate("TopicNameMatches", {"pattern": pattern})
    steps = (Step("f", "Filter", {}, predicate, is_negated),)
    transforms = TopicTransforms(FlowTransforms(steps=steps), "A.{}".format)

    found = [topic for topic in ("carts", "keep-1", "a.audit", "audit") if transforms.has_task(topic)]
    assert found == opened


def test_routers_alone_open_nothing() -> None:
    """A flow whose steps look at names alone has no record task."""
    transforms = TopicTransforms(FlowTransforms(steps=(_router("(.*)", "x-$1", _SHOP),)))

    assert transforms.tasks == ()
    assert (transforms.task_of("shop-1"), transforms.name_remote("shop-1")) == (None, "x-shop-1")


def test_steps_are_for_every_topic_and_come_behind_rules() -> None:
    """A step that looks into records gives topics without a rule a task of their own; heartbeats stay as they are."""
    settings = FlowTransforms((_rule("orders"),), (_router("(.*)", "x-$1"), _DROP))
    transforms = TopicTransforms(settings, is_exempt="heartbeats".__eq__)

    assert [transforms.task_of(topic) for topic in ("orders", "carts", "heartbeats")] == [0, 1, None]
    assert [len(task.steps) for task in transforms.tasks] == [2, 2]
    assert [transforms.name_remote(topic) for topic in ("carts", "heartbeats")] == ["x-carts", "heartbeats"]
    assert record_slots(settings) == 4
