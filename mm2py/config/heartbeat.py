"""The config of a MirrorHeartbeatConnector."""

from __future__ import annotations

import attrs

from mm2py.config.connector import ConnectorConfig
from mm2py.config.resolve import HEARTBEAT_INTERVAL, FlowReader, emits_heartbeats


@attrs.frozen
class MirrorHeartbeatConfig(ConnectorConfig):
    """What is written to say that a flow is there."""

    is_emitted: bool
    interval_s: float
    topic_replication_factor: int


def heartbeat_config(of: FlowReader, shared: ConnectorConfig) -> MirrorHeartbeatConfig:
    return MirrorHeartbeatConfig(
        **attrs.asdict(shared, recurse=False),
        is_emitted=emits_heartbeats(of),
        interval_s=float(max(1, of.number(HEARTBEAT_INTERVAL))),
        topic_replication_factor=of.number("heartbeats.topic.replication.factor"),
    )
