"""Refuse settings with replication loops; uncertain cases are a note."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings, Problem
from mm2py.errors import Mm2Error
from mm2py.flow.plugins import policy_of, topic_filter_of, transforms_of
from mm2py.model.endpoint import one_name_each
from mm2py.policy.loops import FlowNaming, Loop, describe, find_loop
from mm2py.policy.plugins import PluginError


_KEY = "replication.policy.class"


def judged(settings: MirrorSettings) -> MirrorSettings:
    """Return *settings* with a note if flows may form a replication loop; raise ConfigError if they certainly would.
    Flows of other nodes with the same file are included.
    """
    mirrors = list(_mirrors((*settings.flows, *settings.elsewhere)))
    try:
        loop = _found(mirrors)
    except PluginError as error:
        note = Problem(settings.path.name, _KEY, f"whether flows feed each other is uncertain: {error.reason}")
        return attrs.evolve(settings, notes=(*settings.notes, note))
    if loop is None:
        return settings
    message = describe({mirror.flow: mirror for mirror in mirrors}, loop)
    if len(loop.flows) == 1 and loop.is_sure:
        hint = "give each cluster its own brokers, or copies names of their own: remote.topic.suffix = .mirror"
        raise ConfigError((Problem(settings.path.name, "bootstrap.servers", message, hint),))
    if loop.is_sure:
        hint = "use the default policy, mirror one way only, or make sure that no topic is selected by all of them"
        if any(mirror.routed for mirror in mirrors):
            hint = "make sure that routers keep the policy's prefix, or that no topic is selected by all of them"
        raise ConfigError((Problem(settings.path.name, _KEY, message, hint),))
    hint = "make sure that the policy's topic_source() and upstream_topic() return a topic's origin"
    return attrs.evolve(settings, notes=(*settings.notes, Problem(settings.path.name, _KEY, message, hint)))


def _mirrors(flows: Sequence[FlowSettings]) -> Iterator[FlowNaming]:
    """Return the flows that mirror; one whose classes cannot be loaded mirrors nothing, and reports that itself."""
    cluster_of = one_name_each(end for flow in flows for end in (flow.source, flow.target))
    for flow in flows:
        if not flow.is_enabled:
            continue
        try:
            policy = policy_of(flow)
            topic_filter = topic_filter_of(flow)
            transforms = transforms_of(flow)
        except Mm2Error:
            continue
        routed = transforms.routed if transforms.has_routers else None
        yield FlowNaming(flow.flow, policy, topic_filter, flow.topics.heartbeats_enabled, routed, cluster_of)


def _found(mirrors: Sequence[FlowNaming]) -> Loop | None:
    try:
        return find_loop(mirrors)
    except Exception as error:  # errors of custom classes
        names = ", ".join(sorted({type(mirror.policy).__name__ for mirror in mirrors}))
        raise PluginError(_KEY, names, f"asking {names} failed: {error!r}") from error
