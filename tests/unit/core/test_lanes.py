"""Which remote topics records of a spread topic may have."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.lanes import Known, Wish, made_by, plan_lanes, shape_of
from mm2py.core.topology import CreateTopic, GrowPartitions, Reason
from mm2py.model.epoch import WantedLane
from mm2py.model.flow import Flow, TopicPartition


FLOW = Flow("A", "B")
#: `orders` has four partitions and two remote topics by now; `A.orders-1` has two of the four.
KNOWN = Known(
    source={"orders": 4, "orders-3": 1, "carts": 1},
    target={"A.orders-0": 4, "A.orders-1": 2, "A.orders-3": 1},
    owners={"A.orders-0": "orders", "A.orders-3": "orders-3"},
    counts={"orders": 2},
    most=3,
)


def wish(day: str, *, topic: str = "orders", partition: int = 1, offset: int = 7) -> Wish:
    return Wish(TopicPartition(topic, partition), WantedLane(f"{topic}-{day}", offset, 1_000), f"A.{topic}-{day}")


def test_what_is_not_there_is_made_like_other_remote_topics() -> None:
    """One that is missing gets as many partitions as the source topic, one that is short of some grows."""
    plan = plan_lanes(FLOW, [wish("0"), wish("1"), wish("2"), wish("2", partition=3)], KNOWN)

    assert plan.actions == (
        GrowPartitions("A.orders-1", 2, 4),
        CreateTopic("orders", "A.orders-2", 4, Reason.NEEDED_BY_RECORD),
    )
    assert plan.refused == {}


def test_a_partition_that_the_last_look_did_not_see_counts_too() -> None:
    """A source topic may have grown since."""
    assert plan_lanes(FLOW, [wish("0", partition=5)], KNOWN).actions == (GrowPartitions("A.orders-0", 4, 6),)


@pytest.mark.parametrize(
    ("wished", "why"),
    [
        pytest.param([wish("3")], "remote topic A.orders-3 is that of orders-3", id="another topic's"),
        pytest.param([wish("2"), wish("4")], "orders has 3 remote topics already, and timestamp.router", id="too many"),
        pytest.param([wish("+")], "no topic can be called A.orders-+", id="no name"),
        pytest.param([wish("x" * 250)], "no topic can be called A.orders-xxx", id="too long"),
    ],
)
def test_what_is_refused_names_the_record(wished: list[Wish], why: str) -> None:
    """Where the record is, its timestamp, what it would need, and why that cannot be."""
    plan = plan_lanes(FLOW, wished, KNOWN)

    (((topic, name), failure),) = plan.refused.items()
    assert (topic, name) == ("orders", wished[-1].wanted.name)
    assert failure.message.startswith(f"A->B, orders-1, offset 7, timestamp 1000, needs remote topic A.{name}: {why}")
    assert failure.offset == 7
    assert len(plan.actions) == len(wished) - 1


def test_a_partition_that_no_topic_gets_is_refused() -> None:
    """Topics grow with their source, not with what records say."""

    def to(number: int, day: str) -> Wish:
        plain = wish(day)
        return attrs.evolve(plain, wanted=attrs.evolve(plain.wanted, partition=number))

    plan = plan_lanes(FLOW, [to(3, "2"), to(4, "2"), to(4, "0")], KNOWN)

    assert [action.remote_topic for action in plan.actions] == ["A.orders-2"]
    assert list(plan.refused) == [("orders", "orders-2/4"), ("orders", "orders-0/4")]
    assert all("partition 4 of a topic that has 4" in failure.message for failure in plan.refused.values())


def test_what_is_there_is_never_too_many() -> None:
    """The bound is for new ones."""
    known = attrs.evolve(KNOWN, counts={"orders": 900})

    assert plan_lanes(FLOW, [wish("0")], known).refused == {}


def test_two_topics_do_not_share_a_new_one() -> None:
    """Who needs it first has it."""
    one, other = (Wish(TopicPartition(topic, 0), WantedLane("x", 0, 0), "A.x") for topic in ("orders", "carts"))
    plan = plan_lanes(FLOW, [one, other], KNOWN)

    assert plan.actions == (CreateTopic("orders", "A.x", 4, Reason.NEEDED_BY_RECORD),)
    assert list(plan.refused) == [("carts", "x")]


def test_two_names_do_not_share_a_remote_topic() -> None:
    """A policy of one's own may call them alike; their records would have sequences of two writers."""
    upper, lower = (Wish(TopicPartition("orders", 0), WantedLane(name, 0, 0), "A.jan") for name in ("JAN", "jan"))
    known = attrs.evolve(KNOWN, target={"A.jan": 4}, owners={"A.jan": "orders"}, names={"A.jan": "JAN"})

    assert list(plan_lanes(FLOW, [upper, lower], KNOWN).refused) == [("orders", "jan")]
    assert list(plan_lanes(FLOW, [upper, lower], known).refused) == [("orders", "jan")]


@pytest.mark.parametrize(
    ("patterns", "name", "fits"),
    [
        (["yyyyMMdd"], "A.orders-20240101", True),
        (["yyyyMMdd"], "A.orders-eu-20240101", False),
        (["yyyyMMdd"], "A.orders-eu", False),
        (["yyyy-MM"], "A.orders-2024-01", True),
        (["yyyy-MM"], "A.orders-2024", False),
        (["yyyyMMdd", "MMM"], "A.orders-Jan", True),
        ([], "A.orders-1", False),
    ],
)
def test_remote_topics_are_known_by_their_names(patterns: list[str], name: str, *, fits: bool) -> None:
    """Those of an earlier life of the daemon count, others' do not."""
    assert (made_by("A.orders-${timestamp}", shape_of(patterns)).fullmatch(name) is not None) is fits
