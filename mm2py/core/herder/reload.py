"""The effect of changed settings on running flows."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from mm2py.config.settings import FlowSettings, MirrorSettings
from mm2py.core.herder.overrides import CONNECTORS
from mm2py.model.flow import Flow


@attrs.frozen
class FlowChanges:
    """The flows that differ after a reload; the others are left alone."""

    added: tuple[FlowSettings, ...] = ()
    #: With their new settings.
    changed: tuple[FlowSettings, ...] = ()
    #: Which of these restart as a whole, whatever changed.
    whole: frozenset[Flow] = frozenset()
    removed: tuple[Flow, ...] = ()
    unchanged: tuple[Flow, ...] = ()


def compare_flows(before: Iterable[FlowSettings], after: Iterable[FlowSettings]) -> FlowChanges:
    """Return the changes from the flows *before* to those *after*."""
    known = {settings.flow: settings for settings in before}
    wanted = {settings.flow: settings for settings in after}
    both = [settings for flow, settings in wanted.items() if flow in known]
    return FlowChanges(
        added=tuple(settings for flow, settings in wanted.items() if flow not in known),
        changed=tuple(settings for settings in both if settings != known[settings.flow]),
        removed=tuple(flow for flow in known if flow not in wanted),
        unchanged=tuple(settings.flow for settings in both if settings == known[settings.flow]),
    )


def restarting_alone(before: FlowSettings, after: FlowSettings) -> frozenset[str] | None:
    """Return the connectors whose configs differ, which restart alone; None if the whole flow must restart."""
    if _of_all(before) != _of_all(after):
        return None
    return frozenset(connector for connector in CONNECTORS if before.config_of(connector) != after.config_of(connector))


def _of_all(settings: FlowSettings) -> tuple[object, ...]:
    """Return what a flow's nodes share its tasks by, and what its connectors have of each other."""
    source = settings.source_connector
    return (
        (settings.worker, settings.named_again, source.copying.settling_s),
        (source.is_enabled and source.copying.tasks_max, settings.checkpoint_connector.is_run),
        settings.heartbeat_connector.is_emitted,
        (source.source, source.target, source.policy, source.offset_storage, source.name, source.order),
        (source.transforms, source.copying.is_exactly_once),
    )


def needing_restart(before: MirrorSettings, after: MirrorSettings) -> tuple[str, ...]:
    """Return the changed keys that take effect only at a start of the daemon."""
    spark = {key for key in {*before.spark, *after.spark} if before.spark.get(key) != after.spark.get(key)}
    rest_before, rest_after = (settings.rest for settings in (before, after))
    others = {
        "log.format": before.log_format != after.log_format,
        "log.level": before.log_level != after.log_level,
        "metrics.partitions.max": before.metrics_partitions_max != after.metrics_partitions_max,
        "metrics.topics.max": before.metrics_topics_max != after.metrics_topics_max,
        "listeners": rest_before.listeners != rest_after.listeners,
        "listeners.https.ssl": (rest_before.tls, rest_before.client_auth) != (rest_after.tls, rest_after.client_auth),
        "copy.plans.port": before.plans_port != after.plans_port,
        "secrets.key.file": before.secrets_key_file != after.secrets_key_file,
    }
    return tuple(sorted(spark | {key for key, differs in others.items() if differs}))
