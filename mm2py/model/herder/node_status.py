"""
What each node runs of a flow, as it writes it for the others to ``mm2-status.<source>.internal``.

The topic is Kafka Connect's, which Java MirrorMaker 2 writes too. Our keys have none of its prefixes
(KafkaStatusBackingStore), so that Java ignores them. There is one record for each node and flow; an empty value means
that the node has left. Its size does not depend on the number of partitions.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import attrs

from mm2py.errors import shortened
from mm2py.model.connector_offset import SOURCE
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.foreign import (
    INT64_MOST,
    elements,
    mapping,
    number,
    read_versioned,
    refusing,
    whole,
    words,
    write_json,
)
from mm2py.model.health import flow_issues, shown
from mm2py.model.herder.node import Node, node_members, read_node
from mm2py.model.herder.share import (
    NO_SHARE,
    NodeLoad,
    Share,
    load_members,
    read_load,
    read_share,
    share_members,
    slot_of,
)
from mm2py.model.state import (
    NOT_HERE,
    ConnectorStatus,
    FlowState,
    FlowView,
    GroupView,
    PartitionView,
    TaskState,
    TaskStatus,
    TaskView,
)


StateT = TypeVar("StateT", bound=enum.Enum)

VERSION: Final = 1
#: Its records are all in this partition, so that one request reads them.
PARTITION: Final = 0
_KEY: Final = "mm2py-node-"
#: Slots that move less than this part of a node's bytes are not worth a word, nor are more slots than this.
_NOTICEABLE: Final = 0.001
_SLOTS_AT_MOST: Final = 200
_TASKS_AT_MOST: Final = 256
_ISSUES_AT_MOST: Final = 8
_DIFFERENCES_AT_MOST: Final = 50
_LONGEST_TEXT: Final = 300


@attrs.frozen
class NodeStatus:
    """
    One node, as it reports itself. `at_ms` is its wall time, which is the record's. `generation` is that of the
    assignment that it follows, -1 if it follows none; the slots of its share are in that alone. Counts are those since
    it started, of the partitions that it copies; `topics` and `mirrored` count what the flow mirrors, on whichever
    node, `mirrored` its partitions. That is None if the node does not follow them, or is of an earlier version.

    `topics_mark` is a digest of the mirrored partitions that it knows, whichever node copies them; `differs` are the
    settings that are not the owner's.
    """

    node: Node
    at_ms: int
    generation: int = -1
    share: Share = NO_SHARE
    #: Since when it has had just these tasks, and has owned the flow, by its own clock.
    tasks_since_ms: int | None = None
    owner_since_ms: int | None = None
    #: As it is shown; those of its connectors are plain, because other nodes act on them.
    state: FlowState = FlowState.STARTING
    tasks: tuple[TaskStatus, ...] = ()
    connectors: tuple[ConnectorStatus, ...] = ()
    topics: int = 0
    partitions: int = 0
    stopped_partitions: int = 0
    unknown_lags: int = 0
    mirrored: int | None = None
    records: int = 0
    bytes: int = 0
    records_per_s: float = 0.0
    bytes_per_s: float = 0.0
    lag: int | None = None
    lag_s: float | None = None
    seconds_until_level: float | None = None
    load: NodeLoad = attrs.field(factory=NodeLoad)
    topics_mark: str = ""
    overrides_revision: int = 0
    #: Whether an operator drained it: it takes no tasks, of this flow nor of others.
    is_drained: bool = False
    issues: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


def status_topic(source_alias: str) -> str:
    """Name the topic on the target cluster; as MM2's other internal topics it is never mirrored."""
    return f"mm2-status.{source_alias}.internal"


def status_key(flow: Flow, node_id: str) -> bytes:
    """Return the record key of a node's status."""
    return f"{_KEY}{flow}/{node_id}".encode()


def node_id_of(flow: Flow, key: bytes | None) -> str | None:
    """Return which node a record of *flow* is about; None if *key* is not that of a status."""
    prefix = status_key(flow, "")
    if key is None or not key.startswith(prefix):
        return None
    return key[len(prefix) :].decode(errors="replace")


def topics_mark(mirrored: Iterable[TopicPartition]) -> str:
    """Return a short digest of the topics and partitions that are *mirrored*, the same in any order."""
    names = "\n".join(sorted(f"{it.topic}-{it.partition}" for it in mirrored))
    return hashlib.blake2b(names.encode(), digest_size=8).hexdigest()


def noticeable_rates(partitions: Iterable[PartitionView]) -> dict[int, float]:
    """
    Return the bytes per second of hash slots, of those that matter.

    They are those of the last few epochs: a mean over a minute shows a new load late, and less than there is of a
    partition that has just moved here, so that nodes would be uneven for longer.
    """
    rates: dict[int, float] = {}
    for it in partitions:
        if it.bytes_per_s > 0:
            slot = slot_of(it.source)
            rates[slot] = rates.get(slot, 0.0) + it.bytes_per_s
    least = max(1.0, _NOTICEABLE * sum(rates.values()))
    busiest = sorted(((rate, slot) for slot, rate in rates.items() if rate >= least), reverse=True)
    return {slot: rate for rate, slot in busiest[:_SLOTS_AT_MOST]}


def describe(status: NodeStatus, view: FlowView) -> NodeStatus:
    """Fill *status* with what the node's own *view* of the flow shows."""
    part = _of_its_part(status, view)
    found = flow_issues(part)
    issues = [issue.sentence for issue in found if not issue.is_note]
    return attrs.evolve(
        status,
        state=shown(part, found).state,
        tasks=tuple(_task(task) for task in view.tasks[:_TASKS_AT_MOST]),
        connectors=tuple(
            ConnectorStatus(it.connector, it.state, shortened(it.last_error, _LONGEST_TEXT)) for it in view.groups
        ),
        topics=view.topics,
        partitions=view.partition_count,
        stopped_partitions=view.stopped_partitions,
        unknown_lags=view.unknown_lags,
        mirrored=view.mirrored,
        records=view.records,
        bytes=view.bytes,
        records_per_s=view.records_per_s,
        bytes_per_s=view.bytes_per_s,
        lag=view.lag,
        lag_s=view.lag_s,
        seconds_until_level=view.seconds_until_level,
        issues=tuple(shortened(issue, _LONGEST_TEXT) for issue in issues[:_ISSUES_AT_MOST]),
    )


def _of_its_part(status: NodeStatus, view: FlowView) -> FlowView:
    """Return *view* without connectors that other nodes run: that they rest here is no issue, unless this node gets no
    share as its settings differ.
    """
    if status.generation < 0 or status.share.is_owner or (status.differs and status.share.is_empty):
        return view
    return attrs.evolve(view, groups=tuple(it for it in view.groups if it.state not in NOT_HERE or _is_due(status, it)))


def _is_due(status: NodeStatus, group: GroupView) -> bool:
    return bool(status.share.tasks) and group.connector == SOURCE


def _task(view: TaskView) -> TaskStatus:
    return TaskStatus(
        view.task,
        view.state,
        view.partitions,
        view.records_per_s,
        view.bytes_per_s,
        shortened(view.worker, _LONGEST_TEXT),
        shortened(view.last_error, _LONGEST_TEXT),
    )


def encode_status(flow: Flow, status: NodeStatus) -> bytes:
    """Return the record value with a node's status; that of an idle node is the same each time."""
    value = {
        "version": VERSION,
        "flow": str(flow),
        "node": node_members(status.node),
        "generation": status.generation,
        "share": share_members(attrs.evolve(status.share, slots=frozenset())),
        "tasksSinceMs": status.tasks_since_ms,
        "ownerSinceMs": status.owner_since_ms,
        "state": status.state.name,
        "tasks": [_task_members(task) for task in status.tasks],
        "connectors": [
            {"connector": it.connector, "state": it.state.name, "error": it.last_error} for it in status.connectors
        ],
        "topics": status.topics,
        "partitions": status.partitions,
        "stoppedPartitions": status.stopped_partitions,
        "unknownLags": status.unknown_lags,
        "mirrored": status.mirrored,
        "records": status.records,
        "bytes": status.bytes,
        "recordsPerS": round(status.records_per_s, 1),
        "bytesPerS": round(status.bytes_per_s, 1),
        "lag": status.lag,
        "lagS": None if status.lag_s is None else round(status.lag_s, 3),
        "levelS": None if status.seconds_until_level is None else round(status.seconds_until_level),
        **load_members(status.load),
        "topicsMark": status.topics_mark,
        "overridesRevision": status.overrides_revision,
        "drained": status.is_drained,
        "issues": list(status.issues),
        "differs": list(status.differs[:_DIFFERENCES_AT_MOST]),
    }
    return write_json(value)


def decode_status(flow: Flow, value: bytes, at_ms: int) -> NodeStatus:
    """Parse the status of a node that runs *flow*, as written at that time; a newer one may have more members. Raise
    ValueError with the problem.
    """
    with refusing():
        content = read_versioned(value, VERSION)
        if content["flow"] != str(flow):
            raise ValueError(f"it is about flow {content['flow']!r}")
        return _status(content, at_ms)


def _status(content: Mapping[str, Any], at_ms: int) -> NodeStatus:
    node = read_node(content["node"])
    if node is None:
        raise ValueError("it names no node")
    return NodeStatus(
        node,
        at_ms,
        generation=whole(content["generation"], least=-1, most=INT64_MOST),
        share=read_share(content["share"]),
        tasks_since_ms=_moment(content.get("tasksSinceMs")),
        owner_since_ms=_moment(content.get("ownerSinceMs")),
        state=_state(FlowState, content["state"]),
        tasks=tuple(_read_task(mapping(it)) for it in elements(content["tasks"])[:_TASKS_AT_MOST]),
        connectors=tuple(_read_connector(mapping(it)) for it in elements(content["connectors"])[:_TASKS_AT_MOST]),
        topics=whole(content["topics"]),
        partitions=whole(content["partitions"]),
        stopped_partitions=whole(content["stoppedPartitions"]),
        unknown_lags=whole(content["unknownLags"]),
        mirrored=None if content.get("mirrored") is None else whole(content["mirrored"]),
        records=whole(content["records"]),
        bytes=whole(content["bytes"], most=INT64_MOST),
        records_per_s=_rate(content["recordsPerS"]),
        bytes_per_s=_rate(content["bytesPerS"]),
        lag=None if content["lag"] is None else whole(content["lag"], most=INT64_MOST),
        lag_s=None if content["lagS"] is None else _rate(content["lagS"]),
        # A node of an earlier version does not tell it.
        seconds_until_level=None if content.get("levelS") is None else _rate(content["levelS"]),
        load=read_load(content),
        topics_mark=_text(content["topicsMark"]),
        overrides_revision=whole(content["overridesRevision"]),
        is_drained=bool(content["drained"]),
        issues=tuple(_text(it) for it in elements(content["issues"])[:_ISSUES_AT_MOST]),
        differs=tuple(_text(it) for it in elements(content["differs"])[:_DIFFERENCES_AT_MOST]),
    )


def _task_members(task: TaskStatus) -> dict[str, Any]:
    return {
        "task": task.task,
        "state": task.state.name,
        "partitions": task.partitions,
        "recordsPerS": round(task.records_per_s, 1),
        "bytesPerS": round(task.bytes_per_s, 1),
        "worker": task.worker,
        "error": task.last_error,
    }


def _read_task(task: Mapping[str, Any]) -> TaskStatus:
    return TaskStatus(
        whole(task["task"]),
        _state(TaskState, task["state"]),
        whole(task["partitions"]),
        _rate(task["recordsPerS"]),
        _rate(task["bytesPerS"]),
        _text(task["worker"]),
        _text(task["error"]),
    )


def _read_connector(one: Mapping[str, Any]) -> ConnectorStatus:
    return ConnectorStatus(_text(one["connector"]), _state(FlowState, one["state"]), _text(one["error"]))


def _state(states: type[StateT], value: object) -> StateT:
    found = states.__members__.get(words(value))
    if found is None:
        raise ValueError(f"its state {value!r} is unknown")
    return found


def _rate(value: object) -> float:
    rate = number(value)
    if rate < 0:
        raise ValueError(f"{rate} is below 0")
    return rate


def _moment(value: object) -> int | None:
    return None if value is None else whole(value, most=INT64_MOST)


def _text(value: object) -> str:
    return words(value)[: 2 * _LONGEST_TEXT]
