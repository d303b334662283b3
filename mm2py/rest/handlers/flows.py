"""Routes of one flow: its state, topics and partitions, groups, and overrides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVarTuple

import attrs

from mm2py.config.keys.table import nearest
from mm2py.core.herder import overrides as verbs
from mm2py.model.health import reasons_unhealthy
from mm2py.model.herder.overrides import NO_LIMIT, NO_OVERRIDES, Overrides
from mm2py.model.state import FlowView
from mm2py.model.view_json import to_json
from mm2py.rest.errors import not_found
from mm2py.rest.handlers.known_topics import elsewhere, named_partition, named_topic, sent_topics
from mm2py.rest.handlers.node import nodes_json, server_info
from mm2py.rest.plugin_definitions import VERSION
from mm2py.rest.route import Answer, Ask, Json, Param, Routes
from mm2py.rest.schemas import BOOLEAN, LIMIT_SENT, STRING, TOPICS_SENT, array, ref
from mm2py.rest.shapes import (
    flow_status,
    groups_json,
    limit_json,
    overrides_json,
    partitions_of,
    topics_of,
)


Ts = TypeVarTuple("Ts")

FLOW: Final = "/from:{source}/to:{target}"
_TOPIC: Final = FLOW + "/topics/{topic}"
_PARTITION: Final = _TOPIC + "/partitions/{partition}"
#: Changed overrides are written to the target cluster before the answer.
WRITE_ERRORS: Final = (400, 404, 409, 503)
#: A node that stands by looks at the clusters to know the flow's topics.
_READ_ERRORS: Final = (404, 503)
_MOST_TOPICS: Final = 10_000
_SORTS: Final = ("topic", "lag", "lag_s", "seconds_until_level", "record_rate", "byte_rate", "age_ms", "latency_ms")
_PAGING: Final = (
    Param("search", STRING, "Only names that contain this text"),
    Param("sort", {"type": "string", "enum": list(_SORTS)}, "Sort key; in descending order except `topic`"),
    Param("limit", {"type": "integer", "minimum": 0, "maximum": _MOST_TOPICS}, "At most this many"),
    Param("offset", {"type": "integer", "minimum": 0, "maximum": 10_000_000}, "Skip this many"),
)

routes = Routes("flow")


@routes.add(
    "GET",
    FLOW,
    "Version information, as at Connect's root",
    answers={200: ref("ServerInfo")},
    errors=(404,),
    ignores_query=True,
)
async def get_flow_root(ask: Ask) -> object:
    flow = ask.flow()
    return server_info(flow.flow.target, VERSION)


@routes.add("GET", FLOW + "/status", "A flow's status", answers={200: ref("FlowStatus")}, errors=(404,))
async def get_flow_status(ask: Ask) -> object:
    return flow_status(ask.flow(), ask.rest.view().wall_ms)


@routes.add(
    "GET",
    FLOW + "/metrics",
    "A flow's metrics, as JSON",
    answers={200: {"type": "object", "additionalProperties": True}},
    errors=(404,),
)
async def get_flow_metrics(ask: Ask) -> object:
    return ask.rest.metrics.snapshot(ask.rest.own_view(), flow=ask.flow().flow)


@routes.add(
    "GET",
    FLOW + "/health",
    "A flow's health, in Connect's format",
    answers={200: ref("WorkerStatus"), 503: ref("WorkerStatus")},
    errors=(404,),
    ignores_query=True,
)
async def get_flow_health(ask: Ask) -> object:
    view = attrs.evolve(ask.rest.view(), flows=(ask.flow(),))
    if reasons := reasons_unhealthy(view):
        return Answer(503, {"status": "unhealthy", "message": "; ".join(reasons)})
    return {"status": "healthy", "message": "The flow is ready to handle requests."}


@routes.add(
    "GET", FLOW + "/tasks", "Copy tasks with their last epochs", answers={200: array(ref("TaskView"))}, errors=(404,)
)
async def get_copy_tasks(ask: Ask) -> object:
    return [to_json(task) for task in ask.flow().tasks]


@routes.add(
    "GET",
    FLOW + "/nodes",
    "The nodes that run a flow, this one first",
    answers={200: array(ref("NodeView"))},
    errors=(404,),
)
async def get_flow_nodes(ask: Ask) -> object:
    return nodes_json(ask, ask.flow().flow)


# Consumer groups.


@routes.add(
    "GET",
    FLOW + "/groups",
    "Consumer groups with their translated offsets",
    answers={200: array(ref("ConsumerGroup"))},
    query=_PAGING[:1],
    errors=(404,),
)
async def get_groups(ask: Ask) -> object:
    search = ask.request.query.get("search", "")
    flow = ask.flow()
    found = (group for group in flow.consumer_groups if search in group.group)
    return groups_json(flow, found, ask.rest.view().wall_ms)


@routes.add(
    "GET",
    FLOW + "/groups/{group}",
    "One consumer group with its translated offsets",
    answers={200: ref("ConsumerGroup")},
    errors=(404,),
)
async def get_group(ask: Ask) -> object:
    flow, name = ask.flow(), ask.part("group")
    known = {group.group: group for group in flow.consumer_groups}
    if name not in known:
        raise not_found(f"flow {flow.flow} translates no group {name}", nearest(name, known))
    return groups_json(flow, (known[name],), ask.rest.view().wall_ms)[0]


# Topics and partitions.


@routes.add(
    "GET",
    FLOW + "/topics",
    "The topics that a flow mirrors: lag, rates, what blocks them",
    answers={200: ref("Topics")},
    query=_PAGING,
    errors=(400, 404, 503),
)
async def get_topics(ask: Ask) -> object:
    flow = ask.flow()
    others = await elsewhere(ask, flow)
    sort, search = ask.choice("sort", _SORTS), ask.request.query.get("search", "")
    most, first = ask.amount("limit", 1000, most=_MOST_TOPICS), ask.amount("offset", 0, most=10_000_000)
    found = [topic for topic in topics_of(flow, _overrides(ask, flow), others) if search in topic["topic"]]
    if sort != "topic":
        found.sort(key=lambda topic: (topic[sort] is None, -(topic[sort] or 0), topic["topic"]))
    return {"total": len(found), "topics": found[first : first + most]}


def _overrides(ask: Ask, flow: FlowView) -> Overrides:
    return ask.control.overrides(flow.flow)


async def _shown_topic(ask: Ask) -> Json:
    flow, name = await named_topic(ask)
    topics = topics_of(flow, _overrides(ask, flow), await elsewhere(ask, flow))
    found = next((topic for topic in topics if topic["topic"] == name), None)
    if found is None:
        raise not_found(f"flow {flow.flow} mirrors topic {name} no more")
    return found


@routes.add("GET", _TOPIC, "One topic", answers={200: ref("Topic")}, errors=_READ_ERRORS)
async def get_topic(ask: Ask) -> object:
    return await _shown_topic(ask)


@routes.add(
    "GET",
    _TOPIC + "/partitions",
    "A topic's partitions",
    answers={200: array(ref("Partition"))},
    errors=_READ_ERRORS,
)
async def get_partitions(ask: Ask) -> object:
    flow, name = await named_topic(ask)
    return partitions_of(flow, name, _overrides(ask, flow), await elsewhere(ask, flow))


@routes.add(
    "GET",
    _PARTITION,
    "One partition: position, lag, rates, age and latency, its last error and the next attempt",
    answers={200: ref("Partition")},
    errors=_READ_ERRORS,
)
async def get_partition(ask: Ask) -> object:
    flow, source = await named_partition(ask)
    shown = partitions_of(flow, source.topic, _overrides(ask, flow), await elsewhere(ask, flow))
    found = next((one for one in shown if one["partition"] == source.partition), None)
    if found is None:
        raise not_found(f"flow {flow.flow} does not copy partition {source} now")
    return found


# Overrides. Each is answered once it is stored on the target cluster; it takes effect with the next epoch.


async def change_overrides(ask: Ask, flow: FlowView, change: Callable[[Overrides], Overrides]) -> Overrides:
    """Change a flow's overrides."""
    return await ask.change(ask.control.change_overrides(flow.flow, change, by=ask.by))


async def carry_out(
    ask: Ask, flow: FlowView, verb: Callable[[Overrides, *Ts], Overrides], *about: *Ts, code: int = 202
) -> Answer:
    """Change a flow's overrides by *verb* with *about* as its argument; answer with a status only."""
    await change_overrides(ask, flow, lambda overrides: verb(overrides, *about))
    return Answer(code)


@routes.add("GET", FLOW + "/overrides", "All overrides of a flow", answers={200: ref("Overrides")}, errors=(404,))
async def get_overrides(ask: Ask) -> object:
    flow = ask.flow()
    return overrides_json(flow.flow, _overrides(ask, flow))


@routes.add(
    "DELETE",
    FLOW + "/overrides",
    "Revert all overrides of a flow: it runs with the file's settings again",
    answers={200: ref("Overrides")},
    errors=WRITE_ERRORS,
)
async def delete_overrides(ask: Ask) -> object:
    flow = ask.flow()
    return overrides_json(flow.flow, await change_overrides(ask, flow, lambda _overrides: NO_OVERRIDES))


@routes.add("PUT", FLOW + "/pause", "Pause a flow: all its connectors", answers={202: None}, errors=WRITE_ERRORS)
async def pause_flow(ask: Ask) -> object:
    flow = ask.flow()
    return await carry_out(ask, flow, verbs.pause_flow, _connectors(flow))


@routes.add(
    "PUT",
    FLOW + "/resume",
    "Resume a paused or stopped flow: all its connectors",
    answers={202: None},
    errors=WRITE_ERRORS,
)
async def resume_flow(ask: Ask) -> object:
    return await carry_out(ask, ask.flow(), verbs.resume_flow)


@routes.add(
    "PUT",
    FLOW + "/stop",
    "Stop a flow: all its connectors release their resources",
    answers={204: None},
    errors=WRITE_ERRORS,
)
async def stop_flow(ask: Ask) -> object:
    flow = ask.flow()
    return await carry_out(ask, flow, verbs.stop_flow, _connectors(flow), code=204)


def _connectors(flow: FlowView) -> tuple[str, ...]:
    return tuple(group.connector for group in flow.groups)


@routes.add(
    "PUT",
    FLOW + "/refresh",
    "Look for new topics, partitions and consumer groups at once, on all nodes of the flow",
    answers={202: None},
    errors=WRITE_ERRORS,
)
async def refresh_flow(ask: Ask) -> object:
    await ask.change(ask.control.refresh(ask.flow().flow, by=ask.by))
    return Answer(202)


@routes.add("PUT", _TOPIC + "/pause", "Pause a topic", answers={202: None}, errors=WRITE_ERRORS)
async def pause_topic(ask: Ask) -> object:
    flow, topic = await named_topic(ask)
    return await carry_out(ask, flow, verbs.pause_topic, topic)


@routes.add("PUT", _TOPIC + "/resume", "Resume a topic", answers={202: None}, errors=WRITE_ERRORS)
async def resume_topic(ask: Ask) -> object:
    flow, topic = await named_topic(ask)
    return await carry_out(ask, flow, verbs.resume_topic, topic)


@routes.add(
    "PUT",
    FLOW + "/topics/pause",
    "Pause several topics in one change",
    takes=TOPICS_SENT,
    answers={202: None},
    errors=WRITE_ERRORS,
)
async def pause_topics(ask: Ask) -> object:
    flow, topics = await sent_topics(ask)
    return await carry_out(ask, flow, verbs.pause_topics, topics)


@routes.add(
    "PUT",
    FLOW + "/topics/resume",
    "Resume several topics in one change",
    takes=TOPICS_SENT,
    answers={202: None},
    errors=WRITE_ERRORS,
)
async def resume_topics(ask: Ask) -> object:
    flow, topics = await sent_topics(ask)
    return await carry_out(ask, flow, verbs.resume_topics, topics)


@routes.add("PUT", _PARTITION + "/pause", "Pause a partition", answers={202: None}, errors=WRITE_ERRORS)
async def pause_partition(ask: Ask) -> object:
    flow, partition = await named_partition(ask)
    return await carry_out(ask, flow, verbs.pause_partition, partition)


@routes.add("PUT", _PARTITION + "/resume", "Resume a partition", answers={202: None}, errors=WRITE_ERRORS)
async def resume_partition(ask: Ask) -> object:
    flow, partition = await named_partition(ask)
    return await carry_out(ask, flow, verbs.resume_partition, partition)


# Rate limits. What a PUT leaves out is read in the change itself: another request may change it until then.


@routes.add("GET", FLOW + "/limit", "A flow's rate limit", answers={200: ref("Limit")}, errors=(404,))
async def get_flow_limit(ask: Ask) -> object:
    return limit_json(_overrides(ask, ask.flow()).limit)


@routes.add(
    "PUT",
    FLOW + "/limit",
    "Set a flow's rate limit: numbers, or amounts such as `10 MB/s`; null is no limit",
    takes=LIMIT_SENT,
    answers={200: ref("Limit")},
    errors=WRITE_ERRORS,
)
async def put_flow_limit(ask: Ask) -> object:
    flow, asked = ask.flow(), await ask.object()

    def change(overrides: Overrides) -> Overrides:
        return verbs.set_limit(overrides, verbs.read_limit(asked, overrides.limit))

    return limit_json((await change_overrides(ask, flow, change)).limit)


@routes.add("DELETE", FLOW + "/limit", "Remove a flow's rate limit", answers={204: None}, errors=WRITE_ERRORS)
async def delete_flow_limit(ask: Ask) -> object:
    return await carry_out(ask, ask.flow(), verbs.set_limit, NO_LIMIT, code=204)


@routes.add(
    "GET",
    _TOPIC + "/limit",
    "A topic's rate limit",
    answers={200: ref("Limit")},
    errors=_READ_ERRORS,
)
async def get_topic_limit(ask: Ask) -> object:
    flow, topic = await named_topic(ask)
    return limit_json(_overrides(ask, flow).topic_limits.get(topic, NO_LIMIT))


@routes.add(
    "PUT",
    _TOPIC + "/limit",
    "Set a topic's rate limit, in addition to the flow's",
    takes=LIMIT_SENT,
    answers={200: ref("Limit")},
    errors=WRITE_ERRORS,
)
async def put_topic_limit(ask: Ask) -> object:
    flow, topic = await named_topic(ask)
    asked = await ask.object()

    def change(overrides: Overrides) -> Overrides:
        before = overrides.topic_limits.get(topic, NO_LIMIT)
        return verbs.set_topic_limit(overrides, topic, verbs.read_limit(asked, before))

    return limit_json((await change_overrides(ask, flow, change)).topic_limits.get(topic, NO_LIMIT))


@routes.add("DELETE", _TOPIC + "/limit", "Remove a topic's rate limit", answers={204: None}, errors=WRITE_ERRORS)
async def delete_topic_limit(ask: Ask) -> object:
    flow, topic = await named_topic(ask)
    return await carry_out(ask, flow, verbs.set_topic_limit, topic, NO_LIMIT, code=204)


# Settings that override the file's.


@routes.add(
    "GET",
    FLOW + "/config",
    "The settings that override the file's, with the file's values",
    answers={200: array(ref("Setting"))},
    query=(Param("all", BOOLEAN, "Every setting of the flow, with its origin and description"),),
    errors=(400, 404),
)
async def get_settings(ask: Ask) -> object:
    flow = ask.flow()
    if ask.flag("all"):
        return [
            {
                "connector": one.connector,
                "key": one.key,
                "value": one.value,
                "file_value": one.in_file,
                "origin": one.origin,
                "documentation": one.doc,
                "why_not": one.why_not,
                "restarts": one.restarts,
            }
            for one in ask.control.flow_settings(flow.flow)
        ]
    return [
        {"connector": one.connector, "key": one.key, "value": one.value, "file_value": one.in_file}
        for connector in sorted(_overrides(ask, flow).config)
        for one in ask.control.live_settings(flow.flow, connector)
    ]
