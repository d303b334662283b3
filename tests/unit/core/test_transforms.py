"""Which topics have a transform, what routers call them, and who transforms them."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.transforms import TopicTransforms, record_slots, routed
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


_DATED = Step("t", "TimestampRouter", {"topic.format": " ${topic}-${timestamp}", "timestamp.format": "yyyyMMdd"})


@pytest.mark.parametrize(
    ("steps", "topic", "name"),
    [
        ((_DATED,), "orders", "orders-${timestamp}"),
        ((_router("(ord)(.*)", "$2-$1"), _DATED, _router("ers-(.*)", "x-$1")), "orders", "x-ord-${timestamp}"),
        ((attrs.evolve(_DATED, predicate=_SHOP),), "orders", None),
        ((attrs.evolve(_DATED, predicate=_SHOP),), "shop-1", "shop-1-${timestamp}"),
        ((_router("orders", "shop-a"), attrs.evolve(_DATED, predicate=_SHOP)), "orders", "shop-a-${timestamp}"),
        ((attrs.evolve(_DATED, predicate=Predicate("RecordIsTombstone")),), "orders", "orders-${timestamp}"),
        ((_DATED, _DATED), "orders", "orders-${timestamp}-${timestamp}"),
    ],
)
def test_a_timestamp_router_spreads_the_topics_that_it_is_for(
    steps: tuple[Step, ...], topic: str, name: str | None
) -> None:
    """Their remote topics have one name together; topics that its predicate's pattern leaves out stay unopened."""
    transforms = TopicTransforms(FlowTransforms(steps=steps))

    assert transforms.is_spread(topic) is (name is not None)
    assert transforms.has_task(topic) is (name is not None)
    assert transforms.routed(topic) == (name or topic)


def test_a_transform_that_routes_spreads_its_topics() -> None:
    """And those of no other rule, be it one that comes later and fits too."""
    routing = TopicRule("orders", Transform("transform.orders.sql", sql="SELECT", routes=True))
    transforms = TopicTransforms(FlowTransforms((routing, _rule(".*"))))

    assert (transforms.is_spread("orders"), transforms.is_spread("carts")) == (True, False)
    assert transforms.may_spread
    assert not TopicTransforms(FlowTransforms((_rule(".*"), routing))).is_spread("orders")


def test_heartbeats_are_not_spread() -> None:
    """They are mirrored as they are."""
    transforms = TopicTransforms(FlowTransforms(steps=(_DATED,)), is_exempt="heartbeats".__eq__)

    assert (transforms.is_spread("heartbeats"), transforms.routed("heartbeats")) == (False, "heartbeats")


def test_the_first_rule_that_fits_counts() -> None:
    """A topic has the record task of the first rule that matches its whole name; without one it stays unopened."""
    transforms = TopicTransforms(FlowTransforms((_rule("orders"), _rule("ord.*"))))

    assert [transforms.task_of(topic) for topic in ("orders", "orders2", "borders")] == [0, 1, None]
    assert [task.name for task in transforms.tasks] == ["transform.orders.sql", "transform.ord.*.sql"]


def test_routers_alone_open_nothing() -> None:
    """A flow whose steps look at names alone has no record task."""
    transforms = TopicTransforms(FlowTransforms(steps=(_router("(.*)", "x-$1", _SHOP),)))

    assert transforms.tasks == ()
    assert (transforms.task_of("shop-1"), transforms.routed("shop-1")) == (None, "x-shop-1")


def test_steps_are_for_every_topic_and_come_behind_rules() -> None:
    """A step that looks into records gives topics without a rule a task of their own; heartbeats stay as they are."""
    settings = FlowTransforms((_rule("orders"),), (_router("(.*)", "x-$1"), _DROP))
    transforms = TopicTransforms(settings, is_exempt="heartbeats".__eq__)

    assert [transforms.task_of(topic) for topic in ("orders", "carts", "heartbeats")] == [0, 1, None]
    assert [len(task.steps) for task in transforms.tasks] == [2, 2]
    assert [transforms.routed(topic) for topic in ("carts", "heartbeats")] == ["x-carts", "heartbeats"]
    assert record_slots(settings) == 4
