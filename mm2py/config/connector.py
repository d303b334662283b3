"""What each connector of a flow has in its config, whatever its class, and which of them reads a setting."""

from __future__ import annotations

from typing import Final

import attrs

from mm2py.config.resolve import FlowReader
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow


#: Stems of settings that only one connector reads; all others are the source connector's, or shared.
_OWNED: Final = {
    CHECKPOINT: (
        "groups",
        "group.filter.class",
        "refresh.groups",
        "emit.checkpoints",
        "sync.group.offsets",
        "checkpoints.topic",
    ),
    HEARTBEAT: ("emit.heartbeats", "heartbeats.topic"),
}
#: Stems of those that all read: what clients are made with, and how remote topics are named.
_SHARED: Final = (
    "enabled",
    "admin.",
    "consumer.",
    "producer.",
    "source.",
    "target.",
    "replication.policy.",
    "remote.topic.",
)
#: What a checkpoint connector has of its own of what a source connector reads, too.
_ALSO: Final = ("topics", "topic.filter.class", "offset-syncs.topic.location")


@attrs.frozen
class PolicySettings:
    """How remote topics are named."""

    class_name: str
    separator: str
    internal_separator_enabled: bool
    prefix: str = ""
    suffix: str = ""


@attrs.frozen
class TopicFilterSettings:
    """Which topics a connector is about."""

    names: tuple[str, ...]
    exclude: tuple[str, ...]
    filter_class: str


@attrs.frozen
class ConnectorConfig:
    """What each connector of a flow is configured with."""

    flow: Flow
    #: Are the flow's topics mirrored?
    is_enabled: bool
    source: ClusterEndpoint
    target: ClusterEndpoint
    policy: PolicySettings
    #: Time limit of one round of a periodic job at the clusters' topics, configs, ACLs or groups.
    admin_timeout_ms: int


def only_reader_of(name: str) -> str | None:
    """Return the connector that alone reads setting *name*; None if it is not a checkpoint or heartbeat setting."""
    return next((connector for connector, stems in _OWNED.items() if name.startswith(stems)), None)


def reader_of(name: str) -> str:
    """Return the first connector that reads setting *name*."""
    return only_reader_of(name) or SOURCE


def is_read_by(name: str, connector: str) -> bool:
    """Whether *connector* reads setting *name*, by the name of its class."""
    if connector not in _OWNED:
        return only_reader_of(name) is None
    also = _ALSO if connector == CHECKPOINT else ()
    return name.startswith((*_OWNED[connector], *_SHARED, *also))


def shared_config(of: FlowReader, source: ClusterEndpoint, target: ClusterEndpoint) -> ConnectorConfig:
    """Read what a flow's connectors have in common."""
    policy = PolicySettings(
        class_name=of.text("replication.policy.class"),
        separator=of.text("replication.policy.separator"),
        internal_separator_enabled=of.flag("replication.policy.internal.topic.separator.enabled"),
        prefix=of.text("remote.topic.prefix"),
        suffix=of.text("remote.topic.suffix"),
    )
    return ConnectorConfig(of.flow, of.flag("enabled"), source, target, policy, of.number("admin.timeout.ms"))


def topic_filter_settings(of: FlowReader) -> TopicFilterSettings:
    return TopicFilterSettings(of.texts("topics"), of.texts("topics.exclude"), of.text("topic.filter.class"))
