"""
Asking mirrored clusters where their records come from, and which offsets mean the same on both sides.

Everything here is read from the clusters; nothing is written, and no mirror needs to run. `MirrorClient` is the way in;
the functions of `mm2py.client.remote_clusters` ask one question each, as Java's RemoteClusterUtils do.
"""

from __future__ import annotations

from mm2py.client.config import MirrorClientConfig
from mm2py.client.mirror_client import MirrorClient, Offsets, ReadingTookTooLongError, TopicMissingError
from mm2py.client.records import Malformed, MirrorRecord, RecordKind, SourcePosition
from mm2py.client.translation import OffsetTranslation
from mm2py.config.problem import ConfigError
from mm2py.core.offsets.translation import Precision, Translated, Translation, Untranslated
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError, Mm2Error
from mm2py.model.checkpoint import Checkpoint
from mm2py.model.endpoint import Security
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.heartbeat import Heartbeat
from mm2py.model.offset_sync import OffsetSync
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy


__all__ = [
    "BrokerAnsweredError",
    "Checkpoint",
    "ClusterUnreachableError",
    "CommittedOffset",
    "ConfigError",
    "DefaultReplicationPolicy",
    "Heartbeat",
    "IdentityReplicationPolicy",
    "Malformed",
    "MirrorClient",
    "MirrorClientConfig",
    "MirrorRecord",
    "Mm2Error",
    "OffsetSync",
    "OffsetTranslation",
    "Offsets",
    "Precision",
    "ReadingTookTooLongError",
    "RecordKind",
    "ReplicationPolicy",
    "Security",
    "SourcePosition",
    "TopicMissingError",
    "TopicPartition",
    "Translated",
    "Translation",
    "Untranslated",
]
