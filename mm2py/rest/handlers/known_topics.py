"""The topics and partitions that a path or a body names: what any node of the flow copies may be asked of any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mm2py.config.keys.table import nearest
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import FlowView
from mm2py.rest.errors import bad_request, not_found
from mm2py.rest.route import Ask
from mm2py.rest.shapes import topic_names


async def elsewhere(ask: Ask, flow: FlowView) -> Mapping[TopicPartition, Elsewhere]:
    """Return the partitions of a flow that other nodes copy."""
    return await ask.control.elsewhere(flow.flow)


async def named_topic(ask: Ask) -> tuple[FlowView, str]:
    """Return the flow and the topic that the path names; raise if the flow does not mirror it."""
    flow, name = ask.flow(), ask.part("topic")
    await _check(ask, flow, (name,))
    return flow, name


async def _check(ask: Ask, flow: FlowView, names: Collection[str]) -> None:
    known, overrides = set(topic_names(flow)), ask.control.overrides(flow.flow)
    # A deleted topic may still have an override to be removed.
    ordered = {*overrides.topics, *overrides.topic_limits} | {one.topic for one in overrides.partitions}
    if unknown := {*names} - known - ordered:
        known |= {it.topic for it in await ask.control.elsewhere(flow.flow, must_know=True)}
        for name in sorted(unknown - known):
            raise not_found(f"flow {flow.flow} mirrors no topic {name}", nearest(name, sorted(known)))


async def sent_topics(ask: Ask) -> tuple[FlowView, tuple[str, ...]]:
    """Return the flow and the topics that the body names; raise if the flow does not mirror one of them."""
    flow, body = ask.flow(), await ask.object()
    names = body.get("topics")
    if body.keys() != {"topics"} or not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise bad_request('the body must be {"topics": [names]}')
    if not names:
        raise bad_request("topics must name at least one topic")
    await _check(ask, flow, names)
    return flow, tuple(names)


async def named_partition(ask: Ask) -> tuple[FlowView, TopicPartition]:
    """Return the flow and the partition that the path names; raise if the flow does not mirror it."""
    flow, topic = await named_topic(ask)
    source = TopicPartition(topic, ask.number("partition"))
    is_known = any(one.source == source for one in flow.partitions)
    is_known |= any(source in one.sources for one in flow.missing_topics)
    if is_known or source in ask.control.overrides(flow.flow).partitions:
        return flow, source
    if source not in await ask.control.elsewhere(flow.flow, must_know=True):
        raise not_found(f"topic {topic} of flow {flow.flow} has no partition {source.partition}")
    return flow, source
