"""What a MirrorHeartbeatConnector is configured with."""

from __future__ import annotations

import attrs

from mm2py.config.resolve import HEARTBEAT_INTERVAL, FlowReader, emits_heartbeats


@attrs.frozen
class HeartbeatSettings:
    """What a flow writes to say that it is there."""

    is_emitted: bool
    interval_s: float
    topic_replication_factor: int


def heartbeat_settings(of: FlowReader) -> HeartbeatSettings:
    return HeartbeatSettings(
        is_emitted=emits_heartbeats(of),
        interval_s=float(max(1, of.number(HEARTBEAT_INTERVAL))),
        topic_replication_factor=of.number("heartbeats.topic.replication.factor"),
    )
