"""Views, overrides and settings as REST shows them. Values in, plain JSON values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

import mm2py
from mm2py.config.settings import MirrorSettings
from mm2py.model.behind import Behind
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.group_move import GroupMove, PartitionMove, by_source, moves_of
from mm2py.model.health import HealthIssue, all_issues, flow_issues, is_healthy, node_issues, shown
from mm2py.model.herder.overrides import Overrides, RateLimit
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import (
    FlowView,
    GroupOffsetsView,
    MirrorView,
    PartitionStage,
    PartitionView,
    TimesView,
)
from mm2py.model.topic import MissingTopic
from mm2py.model.view_json import to_json
from mm2py.rest.schemas import BOOLEAN, INTEGER, NUMBER, STRING, STRINGS, Json, Views, array, nullable, obj, ref


#: Not in a flow's status, because it grows with topics and groups; these have routes of their own.
_ELSEWHERE: Final = ("partitions", "consumer_groups", "missing_topics")
#: The stage of what other nodes copy, and what they are called if it is unknown which one does.
ELSEWHERE: Final = "elsewhere"
#: The stage of partitions that the target lacks.
MISSING: Final = "missing"
UNKNOWN_NODE: Final = "unknown"
#: Figures of a topic that are those of its partitions together.
_SUMS: Final = ("records", "bytes", "record_rate", "byte_rate")


def node_status(view: MirrorView, worker_id: str) -> Json:
    """Show a node, with the main figures of its flows."""
    return {
        "version": mm2py.__version__,
        "worker_id": worker_id,
        "host": view.host,
        "id": view.node_id,
        "wall_ms": view.wall_ms,
        "started_ms": view.started_ms,
        "is_ready": view.is_ready,
        "spark": None if view.spark is None else to_json(view.spark),
        "is_healthy": is_healthy(all_issues(view)),
        "issues": issues_json(node_issues(view)),
        "flows": [flow_summary(flow) for flow in view.flows],
    }


def issues_json(issues: Iterable[HealthIssue]) -> list[Json]:
    return [to_json(issue) for issue in issues]


def flow_figures(flow: FlowView) -> Json:
    """Show what every summary of a flow has, that of the status page too."""
    issues = flow_issues(flow)
    flow = shown(flow, issues)
    return {
        "flow": str(flow.flow),
        "source": flow.flow.source,
        "target": flow.flow.target,
        "state": flow.state.name.lower(),
        "topics": flow.topics,
        "partitions": flow.partition_count,
        "nodes": max(1, sum(node.is_member for node in flow.nodes)),
        "records_per_s": flow.records_per_s,
        "bytes_per_s": flow.bytes_per_s,
        "lag": flow.lag,
        "lag_is_least": flow.lag_is_least,
        "latency_p50_ms": flow.latency_p50_ms,
        "latency_p99_ms": flow.latency_p99_ms,
        "last_error": flow.last_error,
        "hint": flow.hint,
        "stages": _stages(flow.partitions),
        "issues": issues_json(issues),
        "connectors": {group.connector: group.state.name.lower() for group in flow.groups},
    }


def flow_summary(flow: FlowView) -> Json:
    """Show the main figures of a flow."""
    return {
        **flow_figures(flow),
        "lag_s": flow.lag_s,
        "lag_s_is_least": flow.lag_s_is_least,
        "seconds_until_level": flow.seconds_until_level,
        "unknown_lags": flow.unknown_lags,
    }


def flow_status(flow: FlowView, wall_ms: int) -> Json:
    """Show a whole flow as of *wall_ms*, except what grows with topics and groups."""
    issues = flow_issues(flow)
    whole = to_json(attrs.evolve(shown(flow, issues), partitions=(), consumer_groups=(), missing_topics=()))
    for name in _ELSEWHERE:
        del whole[name]
    stages = dict.fromkeys((stage.name.lower() for stage in PartitionStage), 0) | _stages(flow.partitions)
    return {
        **whole,
        "wall_ms": wall_ms,
        "source": flow.flow.source,
        "target": flow.flow.target,
        "partitions": flow.partition_count,
        "stages": stages,
        "issues": issues_json(issues),
    }


def partitions_of(
    flow: FlowView, topic: str, overrides: Overrides, elsewhere: Mapping[TopicPartition, Elsewhere]
) -> list[Json]:
    """Show a topic's partitions by number, those *elsewhere* too."""
    here = {one.source: partition_json(one) for one in flow.partitions if one.source.topic == topic}
    others = {
        source: _not_here(source, place.remote_topic, ELSEWHERE, overrides, node=place.node)
        for source, place in elsewhere.items()
        if source.topic == topic
    }
    lacking = {
        source: _not_here(source, it.remote_topic, MISSING, overrides, failure=it.failure and attrs.asdict(it.failure))
        for it in flow.missing_topics
        if it.topic == topic
        for source in it.sources
    }
    return [one for _, one in sorted({**lacking, **others, **here}.items())]


def partition_json(partition: PartitionView) -> Json:
    """Show a partition, its topic and number first."""
    shown = to_json(partition)
    source = shown.pop("source")
    return {"topic": source["topic"], "partition": source["partition"], "node": "", **shown}


def _not_here(source: TopicPartition, remote_topic: str, stage: str, overrides: Overrides, **facts: object) -> Json:
    """Show a partition that this node does not copy: another one, which knows its figures, or none."""
    unknown: Json = {field.name: None for field in attrs.fields(PartitionView) if field.name != "source"}
    known = {"remote_topic": remote_topic, "stage": stage, "is_paused": overrides.is_paused(source), **facts}
    return {"topic": source.topic, "partition": source.partition, "node": "", **unknown, **known}


def topics_of(
    flow: FlowView, overrides: Overrides | None, elsewhere: Mapping[TopicPartition, Elsewhere] | None = None
) -> list[Json]:
    """Show a flow's topics by name, each with the totals of its partitions here, and which nodes have others."""
    found: dict[str, list[PartitionView]] = {}
    for partition in flow.partitions:
        found.setdefault(partition.source.topic, []).append(partition)
    here = {partition.source for partition in flow.partitions}
    others: dict[str, list[Elsewhere]] = {}
    for source, place in (elsewhere or {}).items():
        if source not in here:
            others.setdefault(source.topic, []).append(place)
    lacking = {it.topic: it for it in flow.missing_topics}
    names = sorted({*found, *others, *lacking})
    return [_topic(name, found.get(name, []), others.get(name, []), lacking.get(name), overrides) for name in names]


def groups_json(flow: FlowView, groups: Iterable[GroupOffsetsView], wall_ms: int) -> list[Json]:
    """Show consumer groups, each with what moving it to the target at *wall_ms* would mean."""
    found = []
    for group, move, each in moves_of(groups, by_source(flow.partitions)):
        shown = to_json(group)
        offsets = [{**offset, "move": _move(one, wall_ms)} for offset, one in zip(shown["offsets"], each, strict=True)]
        found.append({**shown, "offsets": offsets, "move": None if move is None else _move(move, wall_ms)})
    return found


def _move(move: PartitionMove, wall_ms: int) -> Json:
    return {**to_json(move), "text": move.text(wall_ms)}


def topic_names(flow: FlowView) -> list[str]:
    return sorted({partition.source.topic for partition in flow.partitions} | {it.topic for it in flow.missing_topics})


def _topic(
    name: str,
    partitions: list[PartitionView],
    others: list[Elsewhere],
    lacking: MissingTopic | None,
    overrides: Overrides | None,
) -> Json:
    failed = next((partition.failure for partition in partitions if partition.failure is not None), None)
    failed = failed or (lacking.failure if lacking is not None else None)
    stage = ELSEWHERE if others else MISSING
    limit = overrides.topic_limits.get(name) if overrides is not None else None
    sums = {key: sum(getattr(partition, key) for partition in partitions) if partitions else None for key in _SUMS}
    return {
        "topic": name,
        "remote_topic": next(it.remote_topic for it in (*partitions, *others, lacking) if it is not None),
        "partitions": len(partitions) + len(others) + (lacking.partitions if lacking is not None else 0),
        "elsewhere": dict(sorted(Counter(it.node or UNKNOWN_NODE for it in others).items())),
        "stage": max((it.stage for it in partitions), key=_urgency).name.lower() if partitions else stage,
        "stages": _stages(partitions) | ({MISSING: lacking.partitions} if lacking is not None else {}),
        "is_paused": overrides is not None and name in overrides.topics,
        "limit": None if limit is None else limit_json(limit),
        **attrs.asdict(Behind.together([*map(Behind.of, partitions), *([Behind()] if others else [])])),
        "seconds_until_loss": _least(partition.seconds_until_loss for partition in partitions),
        "seconds_until_level": _latest(partitions),
        **sums,
        "age_ms": _mean(partition.age for partition in partitions),
        "latency_ms": _mean(partition.latency for partition in partitions),
        "retry_in_s": _least(partition.retry_in_s for partition in partitions),
        "last_error": failed.message if failed is not None else "",
        "hint": failed.hint if failed is not None else "",
    }


def _urgency(stage: PartitionStage) -> int:
    order = (PartitionStage.COPYING, PartitionStage.PAUSED, PartitionStage.BACKING_OFF, PartitionStage.STOPPED)
    return order.index(stage)


def _known(values: Iterable[float | None]) -> Iterator[float]:
    return (value for value in values if value is not None)


def _stages(partitions: Iterable[PartitionView]) -> Json:
    """Count partitions by stage; empty stages are omitted."""
    # An enum's name is slow to look up, and there are thousands of partitions.
    found = Counter(partition.stage for partition in partitions)
    return {stage.name.lower(): many for stage, many in found.items()}


def _least(values: Iterable[float | None]) -> float | None:
    return min(_known(values), default=None)


def _latest(partitions: Iterable[PartitionView]) -> float | None:
    """Return when the last of *partitions* will be level; None if that is unknown of one."""
    times = [partition.seconds_until_level for partition in partitions]
    known = list(_known(times))
    return max(known) if known and len(known) == len(times) else None


def _mean(times: Iterable[TimesView | None]) -> float | None:
    known = list(_known(one.avg_ms for one in times if one is not None))
    return sum(known) / len(known) if known else None


def limit_json(limit: RateLimit) -> Json:
    return {"bytes_per_s": limit.bytes_per_s, "records_per_s": limit.records_per_s}


def overrides_json(flow: Flow, overrides: Overrides) -> Json:
    """Show the overrides of a flow."""
    return {
        "flow": str(flow),
        "connectors": {name: wanted.value for name, wanted in overrides.groups.items()},
        "topics": sorted(overrides.topics),
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in sorted(overrides.partitions)],
        "limit": limit_json(overrides.limit),
        "topic_limits": {topic: limit_json(limit) for topic, limit in sorted(overrides.topic_limits.items())},
        "config": {name: dict(lines) for name, lines in overrides.config.items() if lines},
        "pauses": {what: attrs.asdict(pause) for what, pause in overrides.pauses.items()},
    }


# Their schemas.


_NUMBERS: Final = ("lag_s", "seconds_until_loss", "seconds_until_level", "age_ms", "latency_ms", "retry_in_s")
_COUNTS: Final = {"type": "object", "additionalProperties": INTEGER}
_TOPIC: Final = obj(
    {
        "topic": STRING,
        "remote_topic": STRING,
        "partitions": INTEGER,
        "stage": STRING,
        "stages": _COUNTS,
        "is_paused": BOOLEAN,
        "limit": nullable(ref("Limit")),
        "lag": nullable(INTEGER),
        "lag_is_least": BOOLEAN,
        "lag_s_is_least": BOOLEAN,
        "elsewhere": _COUNTS,
        "records": nullable(INTEGER),
        "bytes": nullable(INTEGER),
        "record_rate": nullable(NUMBER),
        "byte_rate": nullable(NUMBER),
        "last_error": STRING,
        "hint": STRING,
        **{name: nullable(NUMBER) for name in _NUMBERS},
    }
)


_NODE: Final = {
    "version": STRING,
    "worker_id": STRING,
    "host": STRING,
    "id": STRING,
    "wall_ms": INTEGER,
    "started_ms": nullable(INTEGER),
    "is_ready": BOOLEAN,
    "is_healthy": BOOLEAN,
    "spark": nullable(ref("SparkView")),
    "flows": array(ref("FlowSummary")),
}
_DRAIN: Final = obj(
    {
        "worker_id": STRING,
        "is_drained": BOOLEAN,
        "tasks": {"type": "object", "additionalProperties": INTEGER},
        "without_others": STRINGS,
    }
)
_CLUSTER: Final = obj(
    {
        "cluster": STRING,
        "bootstrap_servers": STRINGS,
        "is_reachable": nullable(BOOLEAN),
        "error": STRING,
        "hint": STRING,
        "flows": array(ref("FlowSummary")),
    }
)


def schemas(views: Views) -> Mapping[str, Json]:
    """Return the schemas of these answers, by their names in `openapi`."""
    views.of(MirrorView)
    flow, partition = views.found["FlowView"], views.found["PartitionView"]
    issues = array(views.of(HealthIssue))
    status = {name: schema for name, schema in flow["properties"].items() if name not in _ELSEWHERE}
    status |= {"wall_ms": INTEGER, "source": STRING, "target": STRING, "partitions": INTEGER}
    status |= {"stages": _COUNTS, "issues": issues}
    # Of what another node copies no more is known than what is always there.
    known = {"remote_topic": STRING, "stage": STRING, "is_paused": BOOLEAN, "node": STRING}
    shown = {name: nullable(one) for name, one in partition["properties"].items() if name != "source"} | known
    summary: dict[str, Any] = {
        name: flow["properties"][name]
        for name in (
            "flow", "state", "topics", "records_per_s", "bytes_per_s", "lag", "lag_s", "lag_is_least", "lag_s_is_least",
            "seconds_until_level",
            "latency_p50_ms", "latency_p99_ms", "last_error", "hint",
        )
    }  # fmt: skip
    summary |= {"source": STRING, "target": STRING, "partitions": INTEGER, "unknown_lags": INTEGER, "nodes": INTEGER}
    summary |= {"stages": _COUNTS, "issues": issues, "connectors": {"type": "object", "additionalProperties": STRING}}
    views.of(GroupMove)
    move = obj({**views.found.pop("GroupMove")["properties"], "text": STRING})
    group = {**views.found["GroupOffsetsView"]["properties"], "move": nullable(ref("GroupMove"))}
    offset = {**views.found.pop("GroupOffsetView")["properties"], "move": ref("GroupMove")}
    return {
        **views.found,
        "ConsumerGroup": obj(group),
        "GroupMove": move,
        "GroupOffsetView": obj(offset),
        "FlowStatus": obj(status),
        "FlowSummary": obj(summary),
        "NodeStatus": obj({**_NODE, "issues": issues}),
        "Partition": obj({"topic": STRING, "partition": INTEGER, **shown}),
        "Topic": _TOPIC,
        "Topics": obj({"total": INTEGER, "topics": array(ref("Topic"))}),
        "ClusterStatus": _CLUSTER,
        "NodeDrain": _DRAIN,
    }


def cluster_status(settings: MirrorSettings, alias: str, view: MirrorView) -> Json:
    """
    Show a cluster and the flows that use it. If none of them has asked it, nothing is known of it.

    It is reachable if it lets any of them in; why it is not, or not for another one, is shown as well.
    """
    flows = [flow for flow in view.flows if alias in (flow.flow.source, flow.flow.target)]
    seen = [cluster for flow in flows for cluster in flow.clusters if cluster.alias == alias and cluster.is_asked]
    away = next((cluster for cluster in seen if not cluster.is_reachable), None)
    return {
        "cluster": alias,
        "bootstrap_servers": list(settings.clusters[alias].bootstrap_servers),
        "is_reachable": any(cluster.is_reachable for cluster in seen) if seen else None,
        "error": away.error if away is not None else "",
        "hint": away.hint if away is not None else "",
        "flows": [flow_summary(flow) for flow in flows],
    }
