"""What each verb of an operator makes of a flow's orders."""

from __future__ import annotations

import attrs
import pytest

from mm2py.core.herder import overrides as verbs
from mm2py.core.herder.overrides import CHECKPOINT, CONNECTORS, HEARTBEAT, SOURCE
from mm2py.errors import OverrideConflictError, OverrideRejectedError, UnknownConnectorError
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_LIMIT, NO_OVERRIDES, Overrides, RateLimit, Wanted


_ORDERS_0, _ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize("before", [Wanted.RUNNING, Wanted.PAUSED, Wanted.STOPPED])
@pytest.mark.parametrize("after", Wanted)
def test_a_connector_gets_to_any_state(before: Wanted, after: Wanted) -> None:
    """From whichever state, and a second time to the same; the other task groups are left alone."""
    overrides = Overrides(groups={SOURCE: before, CHECKPOINT: Wanted.PAUSED})

    once = verbs.want_connector(overrides, SOURCE, after)

    assert (once.wanted(SOURCE), once.wanted(CHECKPOINT)) == (after, Wanted.PAUSED)
    assert (SOURCE in once.groups) is (after is not Wanted.RUNNING)
    assert after is Wanted.DELETED or verbs.want_connector(once, SOURCE, after) == once


@pytest.mark.parametrize("wanted", Wanted)
def test_a_deleted_connector_is_not_there(wanted: Wanted) -> None:
    """As in Connect only its config brings it back; everything else answers that there is no such connector."""
    before = Overrides(config={SOURCE: {"topics": "a"}, CHECKPOINT: {"groups": "g"}})
    gone = verbs.want_connector(before, SOURCE, Wanted.DELETED)

    assert gone.config == {CHECKPOINT: {"groups": "g"}}
    with pytest.raises(UnknownConnectorError):
        verbs.want_connector(gone, SOURCE, wanted)
    assert verbs.start_connector(gone, SOURCE).wanted(SOURCE) is Wanted.RUNNING


def test_connectors_go_by_java_s_names() -> None:
    """Any other name is not known."""
    for name in CONNECTORS:
        assert verbs.want_connector(NO_OVERRIDES, name, Wanted.PAUSED).wanted(name) is Wanted.PAUSED
    with pytest.raises(UnknownConnectorError, match="no connector source"):
        verbs.want_connector(NO_OVERRIDES, "source", Wanted.PAUSED)


def test_a_flow_is_all_its_connectors() -> None:
    """
    Pause and stop ask for the connectors that the flow has, and leave alone what is stopped or deleted already; resume
    is for all that is not deleted, however it was paused.
    """
    stopped = verbs.want_connector(NO_OVERRIDES, CHECKPOINT, Wanted.STOPPED)
    mixed = verbs.pause_flow(stopped, (SOURCE, CHECKPOINT))
    deleted = verbs.want_connector(mixed, HEARTBEAT, Wanted.DELETED)

    assert mixed.groups == {SOURCE: Wanted.PAUSED, CHECKPOINT: Wanted.STOPPED}
    assert verbs.stop_flow(mixed, (SOURCE, CHECKPOINT)).groups == dict.fromkeys((SOURCE, CHECKPOINT), Wanted.STOPPED)
    assert verbs.resume_flow(mixed) == NO_OVERRIDES
    assert verbs.resume_flow(deleted).groups == {HEARTBEAT: Wanted.DELETED}


def test_a_topic_is_resumed_as_a_whole() -> None:
    """What was paused of it one by one runs again too; other topics stay as they are."""
    other = TopicPartition("other", 0)
    overrides = verbs.pause_topic(
        verbs.pause_partition(verbs.pause_partition(NO_OVERRIDES, _ORDERS_1), other), "orders"
    )
    paused = [overrides.is_paused(it) for it in (_ORDERS_0, _ORDERS_1, other)]

    resumed = verbs.resume_topic(overrides, "orders")

    assert paused == [True, True, True]
    assert resumed == Overrides(partitions=frozenset({other}))


def test_several_topics_are_paused_and_resumed() -> None:
    """In one change; what is wrong with one of them refuses all."""
    paused = verbs.pause_topics(NO_OVERRIDES, ["orders", "invoices"])

    assert paused.topics == {"orders", "invoices"}
    assert verbs.resume_topics(paused, ["orders"]).topics == {"invoices"}
    with pytest.raises(OverrideRejectedError):
        verbs.pause_topics(NO_OVERRIDES, ["orders", "a b"])


def test_a_partition_of_a_paused_topic_is_not_resumed_alone() -> None:
    """Resuming it would have no visible effect, so it is refused with a message that names what works."""
    overrides = verbs.pause_topic(NO_OVERRIDES, "orders")

    with pytest.raises(OverrideConflictError, match="orders is paused as a whole: resume the topic"):
        verbs.resume_partition(overrides, _ORDERS_0)


def test_a_partition_is_paused_and_resumed() -> None:
    """Alone, and however often it is said."""
    overrides = verbs.pause_partition(verbs.pause_partition(NO_OVERRIDES, _ORDERS_0), _ORDERS_0)

    assert (overrides.is_paused(_ORDERS_0), overrides.is_paused(_ORDERS_1)) == (True, False)
    assert verbs.resume_partition(verbs.resume_partition(overrides, _ORDERS_0), _ORDERS_0) == NO_OVERRIDES


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "ä", "x" * 250])
def test_what_cannot_be_a_topic_is_refused(topic: str) -> None:
    """A pause of it would wait for ever."""
    for verb in (verbs.pause_topic, verbs.resume_topic):
        with pytest.raises(OverrideRejectedError, match="cannot be the name of a topic"):
            verb(NO_OVERRIDES, topic)
    with pytest.raises(OverrideRejectedError):
        verbs.set_topic_limit(NO_OVERRIDES, topic, NO_LIMIT)


def test_a_partition_below_0_is_refused() -> None:
    """No topic has it."""
    with pytest.raises(OverrideRejectedError, match="no partition -1"):
        verbs.pause_partition(NO_OVERRIDES, TopicPartition("orders", -1))


def test_limits_are_set_and_taken_back() -> None:
    """A flow's and a topic's limit stand beside each other; no limit leaves no trace."""
    limit = RateLimit(bytes_per_s=1e6)
    overrides = verbs.set_topic_limit(verbs.set_limit(NO_OVERRIDES, limit), "orders", RateLimit(records_per_s=10))

    assert overrides == Overrides(limit=limit, topic_limits={"orders": RateLimit(records_per_s=10)})
    assert verbs.set_limit(verbs.set_topic_limit(overrides, "orders", NO_LIMIT), NO_LIMIT) == NO_OVERRIDES


@pytest.mark.parametrize("rate", [0.0, -1.0, 0.001, float("nan"), float("inf")])
def test_a_limit_lets_something_through(rate: float) -> None:
    """Zero is a pause, and no number is none: both problems are named."""
    with pytest.raises(OverrideRejectedError) as refused:
        verbs.set_limit(NO_OVERRIDES, RateLimit(rate, rate))

    assert [problem.split()[0] for problem in refused.value.problems] == ["bytes_per_s", "records_per_s"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (1_000_000, 1e6),
        (0.5, 0.5),
        ("2500", 2500.0),
        ("10 MB/s", 1e7),
        ("10MiB/s", 10 * 1024**2),
        ("512Ki", 512 * 1024),
        ("1.5 k bytes", 1500.0),
        (None, None),
        ("", None),
    ],
)
def test_bytes_are_read_with_units(asked: object, expected: float | None) -> None:
    """Decimal and binary ones, as numbers or as text; nothing is no limit."""
    assert verbs.read_limit({"bytes_per_s": asked}) == RateLimit(bytes_per_s=expected)


def test_records_are_read_with_units() -> None:
    """What is not named stays as it was."""
    before = RateLimit(bytes_per_s=5.0)

    assert verbs.read_limit({"records_per_s": "50k records/s"}, before) == RateLimit(5.0, 50_000.0)
    assert verbs.read_limit({}, before) == before


@pytest.mark.parametrize(
    "asked",
    [
        "fast",
        "-5",
        "10 records",
        "10 M B s",
        True,
        [1],
        {"a": 1},
        "1e3",
        0,
        "0",
        pytest.param(-(10**400), id="401 digits"),
    ],
)
def test_what_is_no_rate_is_refused(asked: object) -> None:
    """In words that name the field; never by a surprise."""
    with pytest.raises(OverrideRejectedError, match="bytes_per_s"):
        verbs.read_limit({"bytes_per_s": asked})


def test_all_problems_of_a_limit_are_told_at_once() -> None:
    """Unknown fields beside wrong values."""
    with pytest.raises(OverrideRejectedError) as refused:
        verbs.read_limit({"bytes": 1, "bytes_per_s": "x", "records_per_s": -1})

    assert len(refused.value.problems) == 3


def test_a_verb_leaves_settings_alone() -> None:
    """Dynamic config is not what pauses and limits are about."""
    overrides = Overrides(config={SOURCE: {"topics": "a"}})

    after = verbs.want_connector(overrides, SOURCE, Wanted.PAUSED)
    after = verbs.set_limit(verbs.pause_topic(after, "t"), RateLimit(1.0))

    assert attrs.evolve(after, groups={}, topics=frozenset(), limit=NO_LIMIT) == overrides
