"""The bytes of node statuses: what is written is read, what is invalid is refused, and the size is bounded."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.all_nodes import node_view
from mm2py.model.herder.node import Node
from mm2py.model.herder.node_status import (
    ConnectorStatus,
    NodeStatus,
    TaskStatus,
    decode_status,
    describe,
    encode_status,
    node_id_of,
    noticeable_rates,
    status_key,
    status_topic,
    topics_mark,
)
from mm2py.model.herder.share import ALL_SLOTS, NodeLoad, Share, slot_of
from mm2py.model.state import (
    ClusterView,
    FlowState,
    FlowView,
    GroupView,
    PartitionStage,
    PartitionView,
    TaskState,
    TaskView,
)


FLOW = Flow("A", "B")
HERE = Node("here", 7, "machine", "12", "http://here:8083", 1_000)
_COUNTS = st.integers(0, 2**62)
_RATES = st.integers(0, 10**9).map(lambda tenths: tenths / 10)
_WORDS = st.text(max_size=300)
_STATUSES = st.builds(
    NodeStatus,
    node=st.just(HERE),
    at_ms=_COUNTS,
    generation=st.integers(-1, 2**31),
    share=st.builds(Share, st.booleans(), st.frozensets(st.integers(0, 99))),
    tasks_since_ms=st.none() | _COUNTS,
    owner_since_ms=st.none() | _COUNTS,
    state=st.sampled_from(FlowState),
    tasks=st.lists(
        st.builds(TaskStatus, _COUNTS, st.sampled_from(TaskState), _COUNTS, _RATES, _RATES, _WORDS, _WORDS), max_size=3
    ).map(tuple),
    connectors=st.lists(st.builds(ConnectorStatus, _WORDS, st.sampled_from(FlowState), _WORDS), max_size=3).map(tuple),
    mirrored=st.none() | _COUNTS,
    records=_COUNTS,
    lag=st.none() | _COUNTS,
    lag_s=st.none() | _RATES,
    seconds_until_level=st.none() | st.integers(0, 10**6).map(float),
    load=st.builds(NodeLoad, st.dictionaries(st.integers(0, 1023), st.integers(0, 10**9).map(float), max_size=5)),
    topics_mark=_WORDS,
    overrides_revision=_COUNTS,
    is_drained=st.booleans(),
    issues=st.lists(_WORDS, max_size=3).map(tuple),
    differs=st.lists(_WORDS, max_size=3).map(tuple),
)


@given(_STATUSES)
def test_what_is_written_is_read(status: NodeStatus) -> None:
    """All of a status survives, whatever its texts are."""
    assert decode_status(FLOW, encode_status(FLOW, status), status.at_ms) == status


def test_java_ignores_the_key() -> None:
    """No word that KafkaStatusBackingStore looks for begins the key, and each flow and node has its own."""
    key = status_key(FLOW, HERE.id)

    assert not key.startswith((b"status-connector-", b"status-task-", b"status-topic-"))
    assert node_id_of(FLOW, key) == HERE.id
    assert node_id_of(Flow("A", "C"), key) is None
    assert node_id_of(FLOW, None) is None
    assert status_topic("A") == "mm2-status.A.internal"


def test_each_process_has_an_id_of_its_own() -> None:
    """The same process number on another machine, or after a restart, is another node; its REST address is not."""
    ids = {
        attrs.evolve(HERE, **change).id
        for change in ({}, {"machine": "other"}, {"begun": "13"}, {"host": "there"}, {"pid": 8}, {"started_ms": 2})
    }

    assert len(ids) == 6
    assert attrs.evolve(HERE, rest="").id == HERE.id
    assert [attrs.evolve(HERE, rest=rest).worker_id for rest in ("http://here:8083/", "h:1", "")] == [
        "here:8083",
        "h:1",
        HERE.id,
    ]


def _changed(**members: Any) -> bytes:
    content = json.loads(encode_status(FLOW, NodeStatus(HERE, 7, share=Share(slots=ALL_SLOTS))))
    return json.dumps({name: value for name, value in {**content, **members}.items() if value is not ...}).encode()


def test_the_bytes_of_an_idle_node_stay_the_same() -> None:
    """So the others need not parse them again."""
    later = NodeStatus(HERE, 8, share=Share(slots=ALL_SLOTS))

    assert encode_status(FLOW, later) == _changed().replace(b": ", b":").replace(b", ", b",")


def test_an_older_node_may_say_less() -> None:
    """Since when it has its tasks, and how many partitions the flow mirrors, is unknown then."""
    older = _changed(tasksSinceMs=..., ownerSinceMs=..., mirrored=...)

    assert decode_status(FLOW, older, 7) == decode_status(FLOW, _changed(), 7)


def test_a_newer_node_may_say_more() -> None:
    assert decode_status(FLOW, _changed(mood="good"), 7) == decode_status(FLOW, _changed(), 7)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        _changed(version=2),
        _changed(flow="A->C"),
        _changed(node={}),
        _changed(node=...),
        _changed(share={"tasks": ["x"]}),
        _changed(share={"slots": "f" * 300}),
        _changed(share=[]),
        _changed(state="ASLEEP"),
        _changed(state=7),
        _changed(tasks={}),
        _changed(tasks=[{"task": 1}]),
        _changed(connectors=[7]),
        _changed(recordsPerS=-1),
        _changed(recordsPerS=True),
        _changed(lag=-1),
        _changed(slotRates=7),
        _changed(slotRates={"x": 1}),
        _changed(issues=[7]),
    ],
)
def test_what_is_no_status_is_refused_with_a_reason(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_status(FLOW, value, 7)


@given(st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda it: str(it).encode()))
def test_any_bytes_are_a_status_or_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_status(FLOW, value, 7)


def _partition(topic: str, number: int, bytes_per_s: float) -> PartitionView:
    return PartitionView(TopicPartition(topic, number), topic, 0, PartitionStage.STOPPED, 0, 0, 0, 0, 0, bytes_per_s)


def test_a_node_reports_its_state_as_it_is_shown() -> None:
    """Its connectors' states are plain: the other nodes go by them."""
    clusters = (ClusterView("A", is_reachable=True), ClusterView("B", is_reachable=False, error="refused"))
    groups = (GroupView("MirrorSourceConnector", FlowState.RUNNING),)
    status = describe(NodeStatus(HERE, 7), FlowView(FLOW, FlowState.RUNNING, clusters=clusters, groups=groups))
    read = decode_status(FLOW, encode_status(FLOW, status), 7)

    assert (read.state, read.connectors[0].state) == (FlowState.UNREACHABLE, FlowState.RUNNING)
    assert node_view(read, None, heard_s=1.0, answers=True).state is FlowState.UNREACHABLE


def test_its_size_does_not_follow_the_number_of_partitions() -> None:
    """Ten thousand busy partitions, of which all are stopped, and 500 tasks with long errors, stay below 300 KB."""
    partitions = tuple(_partition("topic", number, 1e6 + number) for number in range(10_000))
    tasks = tuple(TaskView(task, TaskState.LATE, 0, 20, last_error="x" * 10_000) for task in range(500))
    view = FlowView(FLOW, FlowState.RUNNING, partitions=partitions, tasks=tasks)
    status = NodeStatus(HERE, 7, load=NodeLoad(noticeable_rates(partitions)), differs=("key",) * 1000)

    value = encode_status(FLOW, describe(status, view))

    read = decode_status(FLOW, value, 7)
    assert len(value) < 300_000
    assert (read.partitions, read.stopped_partitions, len(read.load.slots)) == (10_000, 10_000, 200)
    assert "partitions topic-0, topic-1, topic-2 and 9997 more are stopped" in read.issues[0]


def test_rates_are_those_of_slots_that_matter() -> None:
    """Partitions of one slot add up, idle ones and tiny ones are left out."""
    busy, tiny, idle = _partition("a", 0, 1e6), _partition("b", 0, 1.0), _partition("c", 0, 0.0)

    rates = noticeable_rates([busy, busy, tiny, idle])

    assert rates == {slot_of(busy.source): 2e6}
    assert noticeable_rates([]) == {}


def test_the_mark_of_topics_follows_names_and_counts() -> None:
    """The order does not matter; a partition more or fewer, or another name, does."""
    one = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]

    assert topics_mark(one) == topics_mark(reversed(one))
    assert len({topics_mark(some) for some in (one, one[:2], one[1:], [], [*one, TopicPartition("b", 1)])}) == 5


@pytest.mark.parametrize(
    ("status", "issues"),
    [
        (NodeStatus(HERE, 7, generation=3), 0),
        (NodeStatus(HERE, 7, generation=3, share=Share(tasks=frozenset({1}))), 1),
        (NodeStatus(HERE, 7, generation=3, share=Share(is_owner=True)), 1),
        (NodeStatus(HERE, 7), 1),
        (NodeStatus(HERE, 7, generation=3, differs=("topics",)), 1),
        (NodeStatus(HERE, 7, generation=3, differs=("copy.epoch.ms",), share=Share(tasks=frozenset({0}))), 1),
    ],
    ids=[
        "a spare node",
        "one with a task",
        "the owner",
        "one that no group knows",
        "one that is kept out",
        "one that differs",
    ],
)
def test_what_other_nodes_run_is_no_issue_of_a_node(status: NodeStatus, issues: int) -> None:
    """A node that stands by, or has tasks and is not the owner, is as it should be: others must not warn of it."""
    resting = [GroupView(it, FlowState.STARTING) for it in ("MirrorSourceConnector", "MirrorHeartbeatConnector")]

    found = describe(status, FlowView(FLOW, FlowState.STANDBY, groups=tuple(resting))).issues

    assert len(found) == issues
    is_kept_out = bool(status.differs) and status.share.is_empty
    assert ("Heartbeat" in "".join(found)) is (status.share.is_owner or status.generation < 0 or is_kept_out)
