"""
The topics that a flow keeps for itself, as they are created: what keeps something there, and what checks beforehand
whether it may, name them by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from mm2py.config.connector import MirrorCheckpointConfig, MirrorHeartbeatConfig, MirrorSourceConfig
from mm2py.config.worker import StorageSettings
from mm2py.model.synced import synced_topic
from mm2py.policy.replication import ReplicationPolicy


#: Brokers compact no segment that they still write, of a gigabyte or a week by default, and all of it is read at each
#: start. A topic has as much in such segments, but one is not smaller than Kafka allows.
_SEGMENTS_BYTES: Final = 16 * 1024 * 1024
_LEAST_SEGMENT_BYTES: Final = 1024 * 1024
#: Statuses are overwritten every few seconds: small segments let the brokers compact them soon.
_STATUS_SEGMENT_BYTES: Final = 8 * 1024 * 1024
_OFFSET_STORAGE: Final = "offset.storage.replication.factor"
_CONFIG_STORAGE: Final = "config.storage.replication.factor"
_STATUS_STORAGE: Final = "status.storage.replication.factor"


@attrs.frozen
class InternalTopic:
    """A compacted topic of the mirror's own. `setting` is where its replication factor comes from."""

    name: str
    setting: str
    replication_factor: int
    partitions: int = 1
    #: What it is created with, if the brokers take that.
    configs: Mapping[str, str] = attrs.field(factory=dict)


def positions(config: MirrorSourceConfig) -> InternalTopic:
    """Return the topic of a source connector's positions."""
    storage = config.offset_storage
    segments = _read_whole(storage.partitions)
    return InternalTopic(storage.topic, _OFFSET_STORAGE, storage.replication_factor, storage.partitions, segments)


def synced(config: MirrorSourceConfig) -> InternalTopic:
    """Return the topic of what a source connector set on remote topics."""
    return InternalTopic(synced_topic(config.flow.source), _OFFSET_STORAGE, config.offset_storage.replication_factor)


def offset_syncs(config: MirrorSourceConfig, policy: ReplicationPolicy) -> InternalTopic:
    """Return the topic of a source connector's offset syncs."""
    syncs, flow = config.offset_syncs, config.flow
    name = policy.offset_syncs_topic(flow.target if syncs.location == "source" else flow.source)
    setting = "offset-syncs.topic.replication.factor"
    return InternalTopic(name, setting, syncs.topic_replication_factor, configs=_read_whole())


def checkpoints(config: MirrorCheckpointConfig, policy: ReplicationPolicy) -> InternalTopic:
    """Return the topic of a flow's checkpoints."""
    name, setting = policy.checkpoints_topic(config.flow.source), "checkpoints.topic.replication.factor"
    return InternalTopic(name, setting, config.topic_replication_factor, configs=_read_whole())


def heartbeats(config: MirrorHeartbeatConfig, policy: ReplicationPolicy) -> InternalTopic:
    """Return the topic of heartbeats."""
    setting = "heartbeats.topic.replication.factor"
    return InternalTopic(policy.heartbeats_topic(), setting, config.topic_replication_factor)


def overrides(storage: StorageSettings) -> InternalTopic:
    """Return the topic of overrides, which is read as a whole again and again."""
    segments = {"segment.bytes": str(_LEAST_SEGMENT_BYTES)}
    return InternalTopic(storage.topic, _CONFIG_STORAGE, storage.replication_factor, configs=segments)


def connectors(storage: StorageSettings) -> InternalTopic:
    """Return the topic of a worker's connectors."""
    return InternalTopic(storage.topic, _CONFIG_STORAGE, storage.replication_factor)


def statuses(storage: StorageSettings) -> InternalTopic:
    """Return the topic of what nodes report to each other."""
    segments = {"segment.bytes": str(_STATUS_SEGMENT_BYTES)}
    return InternalTopic(storage.topic, _STATUS_STORAGE, storage.replication_factor, storage.partitions, segments)


def _read_whole(partitions: int = 1) -> Mapping[str, str]:
    """Return the configs of a topic that is written all the time and read as a whole."""
    return {"segment.bytes": str(max(_LEAST_SEGMENT_BYTES, _SEGMENTS_BYTES // partitions))}
