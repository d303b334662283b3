"""Refuse settings with replication loops; uncertain cases are a note, and so are two flows into one remote topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings, Problem
from mm2py.connectors.plugins import policy_of, topic_filter_of, transforms_of
from mm2py.errors import Mm2Error
from mm2py.model.endpoint import one_name_each
from mm2py.policy.loops import FlowNaming, Meeting, describe, find_loop, find_meeting
from mm2py.policy.plugins import CustomClassError
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy


_KEY = "replication.policy.class"


def judged(settings: MirrorSettings, ids: Mapping[str, str] | None = None) -> MirrorSettings:
    """Return *settings* with a note if flows may form a replication loop, or if two write to one remote topic; raise
    ConfigError if they certainly form a loop. Flows of other nodes with the same file are included. *ids* are those of
    clusters, by alias, as far as they are known.
    """
    mirrors = list(_mirrors((*settings.flows, *settings.elsewhere), ids))
    try:
        loop = find_loop(mirrors)
        meeting = None if loop is not None and loop.is_sure else find_meeting(mirrors)
    except CustomClassError as error:
        note = Problem(settings.path.name, _KEY, f"whether flows feed each other is uncertain: {error}")
        return attrs.evolve(settings, notes=(*settings.notes, note))
    if meeting is not None:
        settings = attrs.evolve(settings, notes=(*settings.notes, _meeting_noted(settings, meeting)))
    if loop is None:
        return settings
    message = describe({mirror.flow: mirror for mirror in mirrors}, loop)
    if len(loop.flows) == 1 and loop.is_sure:
        hint = "give each cluster its own brokers, or copies names of their own: remote.topic.suffix = .mirror"
        raise ConfigError((Problem(settings.path.name, "bootstrap.servers", message, hint),))
    if loop.is_sure:
        raise ConfigError((Problem(settings.path.name, _KEY, message, _way_out(mirrors)),))
    hint = "make sure that the policy's topic_source() and upstream_topic() return a topic's origin"
    return attrs.evolve(settings, notes=(*settings.notes, Problem(settings.path.name, _KEY, message, hint)))


def _mirrors(flows: Sequence[FlowSettings], ids: Mapping[str, str] | None) -> Iterator[FlowNaming]:
    """Return the flows that mirror; one whose classes cannot be loaded mirrors nothing, and reports that itself."""
    cluster_of = one_name_each((end for flow in flows for end in (flow.source, flow.target)), ids)
    for flow in flows:
        if not flow.is_enabled:
            continue
        config = flow.source_connector
        try:
            policy = policy_of(config)
            topic_filter = topic_filter_of(config)
            transforms = transforms_of(config)
        except Mm2Error:
            continue
        routed = transforms.routed if transforms.has_routers else None
        yield FlowNaming(flow.flow, policy, topic_filter, config.topics.heartbeats_enabled, routed, cluster_of)


def _way_out(mirrors: Sequence[FlowNaming]) -> str:
    if any(mirror.routed for mirror in mirrors):
        return "make sure that routers keep the policy's prefix, or that no topic is selected by all of them"
    naming = {mirror.policy for mirror in mirrors if not isinstance(mirror.policy, IdentityReplicationPolicy)}
    policies = {policy for policy in naming if isinstance(policy, DefaultReplicationPolicy)}
    aliases = {alias for mirror in mirrors for alias in (mirror.flow.source, mirror.flow.target)}
    parted = {policy.separator for policy in policies for alias in aliases if policy.separator in alias}
    if parted and len(policies) == 1:
        return f"choose aliases without {parted.pop()!r}, or another replication.policy.separator"
    return "use the default policy, mirror one way only, or make sure that no topic is selected by all of them"


def _meeting_noted(settings: MirrorSettings, meeting: Meeting) -> Problem:
    one, other = meeting.flows
    message = (
        f"{one} and {other} both write to topic {meeting.remote_topic} of {one.target}, if both sources have such a "
        "topic: after a crash neither can tell which records there are its own, so some may come twice"
    )
    hint = "use the default policy, a remote.topic.prefix for each flow, or topics that only one of them selects"
    return Problem(settings.path.name, _KEY, message, hint)
