"""What has to change at the target."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pytest

from mm2py.core.topics.topology import (
    NOTHING_COPIED,
    Action,
    Beside,
    Copied,
    CreateTopic,
    GrowPartitions,
    Selected,
    copyable,
    missing,
    select,
)
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.model.topic import TopicDescription
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.policy.replication import DefaultReplicationPolicy


FLOW = Flow("A", "B")


@pytest.mark.parametrize(
    ("source", "target", "actions"),
    [
        pytest.param({"t": 3}, {}, [CreateTopic("t", "A.t", 3)], id="no remote topic"),
        pytest.param({"t": 3}, {"A.t": 2}, [GrowPartitions("A.t", 2, 3)], id="the source grew"),
        pytest.param({"t": 3}, {"A.t": 3}, [], id="nothing to do"),
        pytest.param({"t": 3}, {"A.t": 5}, [], id="more partitions at the target"),
        pytest.param({}, {"A.t": 3}, [], id="gone at the source"),
    ],
)
def test_missing(source: Mapping[str, int], target: Mapping[str, int], actions: list[Action]) -> None:
    """Remote topics are created and grown, and never shrunk or deleted."""
    assert tuple(actions) == missing(dict.fromkeys(source, "A.t"), source, target)


def applied(action: Action, target: Mapping[str, int]) -> Mapping[str, int]:
    match action:
        case CreateTopic(_, remote_topic, partitions):
            return {**target, remote_topic: partitions}
        case GrowPartitions(remote_topic, _, after):
            return {**target, remote_topic: after}


def test_an_interrupted_plan_is_taken_up_again() -> None:
    """After any part of a plan was carried out, the plan from the new view leads to the same end."""
    source = {"a": 2, "b": 3, "c": 4}
    remote_of = {topic: f"A.{topic}" for topic in source}
    start = {"A.b": 1}
    actions = missing(remote_of, source, start)
    for done in range(len(actions) + 1):
        target: Mapping[str, int] = start
        for action in actions[:done]:
            target = applied(action, target)
        rest = missing(remote_of, source, target)

        assert actions[done:] == rest
        for action in rest:
            target = applied(action, target)
        assert missing(remote_of, source, target) == ()


def test_copyable_is_what_both_sides_have() -> None:
    """Only partitions that exist on both sides can be copied."""
    places = copyable({"t": "A.t", "u": "A.u"}, {"t": 3, "u": 1}, {"A.t": 2})

    assert {TopicPartition("t", 0): "A.t", TopicPartition("t", 1): "A.t"} == places


def test_select_names_what_the_flow_mirrors() -> None:
    """Topics that the filter takes get remote names; internal ones and cycles are left out."""
    topics = {"orders": 1, "B.orders": 1, "__consumer_offsets": 50, "skipped": 1, "heartbeats": 1}
    topic_filter = DefaultTopicFilter.of([".*"], ["skipped"])

    selected = select(topics, FLOW, DefaultReplicationPolicy(), topic_filter, heartbeats_replication_enabled=True)

    assert selected.remote_of == {"orders": "A.orders", "heartbeats": "A.heartbeats"}
    assert selected.refused == {}


def test_topics_that_are_named_like_copies_are_known() -> None:
    """Those that the filter selects, and of which only the source's own alias makes copies."""
    topics = {"A.orders": 1, "C.A.orders": 1, "A.skipped": 1, "A.B.orders": 1, "orders": 1}
    topic_filter = DefaultTopicFilter.of([".*"], [".*skipped"])

    selected = select(topics, FLOW, DefaultReplicationPolicy(), topic_filter, heartbeats_replication_enabled=True)

    assert selected.named_like_copies == {"A.orders", "C.A.orders"}
    assert selected.remote_of == {"orders": "A.orders"}


@attrs.frozen
class _ShoutingPolicy(DefaultReplicationPolicy):
    """A policy that gives two topics one name."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}.{topic.upper()}"


def _copied(**homes: str) -> Copied:
    """Return what is known of topics, each with the remote topic that it was copied to."""
    ids = {name: f"id-of-{name}" for name in homes.values()}
    positions = [Position(TopicPartition(topic, 0), 7, 6, remote_topic_id=ids[home]) for topic, home in homes.items()]
    return Copied.of(positions, {name: TopicDescription(topic_id, {0: 1}) for name, topic_id in ids.items()})


def _selected(topics: str, copied: Copied, names: Mapping[str, str] | None = None) -> Selected:
    policy, everything = _ShoutingPolicy(), DefaultTopicFilter.of([".*"])
    return select(
        dict.fromkeys(topics.split(), 1), FLOW, policy, everything, heartbeats_replication_enabled=True, copied=copied,
        name_remote=None if names is None else names.__getitem__,
    )  # fmt: skip


def _why(selected: Selected, topic: str) -> PartitionFailure:
    failure = selected.refused[topic].failure
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    ("copied", "kept", "message"),
    [
        (_copied(), {}, "topics orders and Orders would all go to A.ORDERS"),
        (
            _copied(Orders="A.ORDERS"),
            {"Orders": "A.ORDERS"},
            "topics orders and Orders would all go to A.ORDERS, to which Orders is copied already",
        ),
        (_copied(orders="A.ORDERS"), {"orders": "A.ORDERS"}, None),
        (_copied(orders="A.ORDERS", Orders="A.ORDERS"), {}, "topics orders and Orders would all go to A.ORDERS"),
    ],
)
def test_two_topics_never_share_a_remote_topic(copied: Copied, kept: Mapping[str, str], message: str | None) -> None:
    """All of them are refused, with their names, but the one that is copied there already."""
    selected = _selected("Orders orders", copied)

    assert selected.remote_of == kept
    assert selected.refused.keys() == {"Orders", "orders"} - kept.keys()
    assert "orders" not in selected.refused or _why(selected, "orders").message == message


@pytest.mark.parametrize(
    ("is_first", "holds", "is_held", "is_kept"),
    [
        pytest.param(True, False, False, False, id="the first one begins with it"),
        pytest.param(False, False, False, True, id="we do"),
        pytest.param(True, True, False, True, id="we go on with it"),
        pytest.param(False, False, True, False, id="the second one goes on with it"),
        pytest.param(True, True, True, False, id="both have copied it"),
    ],
)
def test_two_source_connectors_never_share_a_remote_topic(
    *, is_first: bool, holds: bool, is_held: bool, is_kept: bool
) -> None:
    """Whichever copies a topic goes on, so that nothing is copied twice; else the first one does. Of heartbeats, which
    all of them copy unless they are told not to, nothing is said.
    """
    both = {"orders": "A.orders", "heartbeats": "A.heartbeats"}
    beside = Beside("first", is_first, both, frozenset(both) if is_held else frozenset())
    copied = _copied(**both) if holds else NOTHING_COPIED
    everything = DefaultTopicFilter.of([".*"])
    selected = select(
        dict.fromkeys((*both, "own"), 1), FLOW, DefaultReplicationPolicy(), everything,
        heartbeats_replication_enabled=True, copied=copied, beside=[beside],
    )  # fmt: skip

    assert selected.remote_of == {**(both if is_kept else {}), "own": "A.own"}
    assert list(selected.refused) == [] if is_kept else ["orders"]
    assert is_kept or "which connector first of the same clusters writes" in _why(selected, "orders").message


def test_a_topic_that_was_copied_elsewhere_is_refused() -> None:
    """By its positions it is in another remote topic, which the target still has: it is neither copied twice nor
    continued without its beginning. Nor does another topic get into that one.
    """
    names = {"orders": "sales", "bills": "A.sales", "carts": "A.carts", "fresh": "A.fresh"}
    copied = _copied(orders="A.sales", carts="A.carts")
    selected = _selected("orders bills carts fresh", copied, names)

    assert selected.remote_of == {"carts": "A.carts", "fresh": "A.fresh"}
    assert {topic: _why(selected, topic).message for topic in selected.refused} == {
        "orders": "topic orders was copied to A.sales, and would go to sales now",
        "bills": "topics bills and orders would all go to A.sales, to which orders is copied already",
    }
    assert "a RegexRouter from sales to A.sales;" in _why(selected, "orders").hint


def _named_without_ids(remote_topic: str | None, *there: str) -> Selected:
    """Select a topic that brokers from before 2.8 hold a copy of, and that earlier versions named A.dc2.orders."""
    position = Position(TopicPartition("orders", 0), 7, 6, remote_topic=remote_topic)
    policy, everything = DefaultReplicationPolicy(), DefaultTopicFilter.of([".*"])
    return select(
        {"orders": 1}, FLOW, policy, everything, heartbeats_replication_enabled=True,
        name_remote="dc2.A.{}".format, name_before="A.dc2.{}".format,
        copied=Copied.of([position], {name: TopicDescription(None, {0: 1}) for name in there}),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("remote_topic", "there", "message"),
    [
        ("A.x", ("A.x", "A.orders"), "was copied to A.x, and would go to dc2.A.orders now"),
        ("A.x", ("A.x", "dc2.A.orders"), "was copied to A.x, and would go to dc2.A.orders now"),
        ("A.x", ("A.orders",), None),
        ("dc2.A.orders", ("dc2.A.orders", "A.orders"), None),
        (
            None,
            ("A.orders", "A.dc2.orders"),
            "the target has A.dc2.orders, and not dc2.A.orders, where it would go now",
        ),
        (None, ("A.orders",), "the target has A.orders, and not dc2.A.orders, where it would go now"),
        (None, ("A.dc2.orders", "dc2.A.orders"), None),
        (None, (), None),
    ],
)
def test_where_a_topic_was_copied_is_told_without_ids(
    remote_topic: str | None, there: tuple[str, ...], message: str | None
) -> None:
    """By the name that its positions have, or else by what the target has of the names that it had before."""
    selected = _named_without_ids(remote_topic, *there)

    assert bool(selected.refused) == (message is not None)
    assert message is None or _why(selected, "orders").message.endswith(message)


@pytest.mark.parametrize(
    ("position", "is_there"),
    [
        (Position(TopicPartition("orders", 0), 0, -1, remote_topic_id="1"), True),
        (Position(TopicPartition("orders", 0), 7, 6, remote_topic_id="1"), False),
        (Position(TopicPartition("orders", 0), 7), True),
    ],
    ids=["nothing was copied", "its remote topic is gone", "by Java, which keeps no id"],
)
def test_a_topic_without_records_elsewhere_goes_where_it_is_named(position: Position, *, is_there: bool) -> None:
    """What the copy should follow is in no other remote topic, as far as is known."""
    target = {"A.sales": TopicDescription("1", {0: 1})} if is_there else {}
    selected = _selected("orders", Copied.of([position], target), {"orders": "sales"})

    assert selected.remote_of == {"orders": "sales"}
