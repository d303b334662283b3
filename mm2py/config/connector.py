"""What each connector of a flow has in its config, whatever its class, and which of them reads a setting."""

from __future__ import annotations

from typing import Final

import attrs

from mm2py.config.layers import Layers
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

#: A flow's lines that only a distributed worker's connectors have: what the transactional ids of copy tasks begin with,
#: and the one for checkpoints.
TASK_IDS: Final = f"{SOURCE}.transactional.id"
OWNER_ID: Final = f"{CHECKPOINT}.transactional.id"
#: What a connector's settings for clients at its source begin with.
AT_SOURCE: Final = ("source.cluster.", "source.consumer.", "source.admin.", "consumer.")
#: What a flow's lines begin with that its checkpoint connector has for itself.
OF_CHECKPOINTS: Final = f"{CHECKPOINT}.own."


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


def shared_config(of: FlowReader, flow: Flow, source: ClusterEndpoint, target: ClusterEndpoint) -> ConnectorConfig:
    """Read what a flow's connectors have in common."""
    policy = PolicySettings(
        class_name=of.text("replication.policy.class"),
        separator=of.text("replication.policy.separator"),
        internal_separator_enabled=of.flag("replication.policy.internal.topic.separator.enabled"),
        prefix=of.text("remote.topic.prefix"),
        suffix=of.text("remote.topic.suffix"),
    )
    return ConnectorConfig(flow, of.flag("enabled"), source, target, policy, of.number("admin.timeout.ms"))


def key_of_checkpoints(key: str, flow: Flow) -> str:
    """Return the key of a *flow*'s line as its checkpoint connector has it for itself."""
    return f"{flow}.{OF_CHECKPOINTS}{key.removeprefix(f'{flow}.')}"


def of_checkpoints(layers: Layers, flow: Flow) -> Layers:
    """
    Return *layers* as the checkpoint connector of *flow* has them: what it says itself is over the flow's lines.

    If it names the source's brokers, what the flow's other connectors say of clients there does not count.
    """
    stem = f"{flow}.{OF_CHECKPOINTS}"
    own = {f"{flow}.{line.key.removeprefix(stem)}": line for line in layers.lines() if line.key.startswith(stem)}
    clients = tuple(f"{flow}.{client}" for client in AT_SOURCE)
    if any(f"{client}bootstrap.servers" in own for client in clients):
        layers = layers.without(clients)
    return layers.replaced({key: attrs.evolve(line, key=key) for key, line in own.items()})


def topic_filter_settings(of: FlowReader) -> TopicFilterSettings:
    return TopicFilterSettings(of.texts("topics"), of.texts("topics.exclude"), of.text("topic.filter.class"))
