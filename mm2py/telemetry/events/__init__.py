"""Everything that happens, one frozen class each; `base` says how they reach the log."""

from mm2py.telemetry.events.base import Event, Level
from mm2py.telemetry.events.daemon import (
    DaemonDraining,
    DaemonStarted,
    DaemonStopped,
    SettingNoted,
    SparkEnded,
    SparkSaid,
    SparkStarted,
)
from mm2py.telemetry.events.epochs import (
    CopyTaskLost,
    CopyTaskRecovered,
    EpochEnded,
    WaitingForSlot,
)
from mm2py.telemetry.events.flow import (
    ClusterRecovered,
    ClusterUnreachable,
    FlowDrained,
    FlowFailed,
    FlowStarted,
    FlowSummary,
    GroupFailed,
    StepFailed,
    TaskRestarted,
)
from mm2py.telemetry.events.heartbeats import HeartbeatsResumed, HeartbeatsStarted
from mm2py.telemetry.events.partitions import (
    ForeignRecordsFound,
    PartitionInterrupted,
    PartitionRecovered,
    PartitionStopped,
    PositionsRead,
    PositionsWritten,
    ResumedExactly,
    ResumeUnproven,
)
from mm2py.telemetry.events.security import AuthenticationFailed
from mm2py.telemetry.events.syncs import (
    AclSyncIdle,
    TopicAclsChanged,
    TopicConfigsChanged,
    TopicConfigsKept,
    TopicSyncFailed,
    TopicSyncRecovered,
)
from mm2py.telemetry.events.topics import (
    AssignmentChanged,
    PartitionsGrown,
    TopicCreated,
    TopicGone,
    TopicsRefreshed,
)


__all__ = [
    "AclSyncIdle",
    "AssignmentChanged",
    "AuthenticationFailed",
    "ClusterRecovered",
    "ClusterUnreachable",
    "CopyTaskLost",
    "CopyTaskRecovered",
    "DaemonDraining",
    "DaemonStarted",
    "DaemonStopped",
    "EpochEnded",
    "Event",
    "FlowDrained",
    "FlowFailed",
    "FlowStarted",
    "FlowSummary",
    "ForeignRecordsFound",
    "GroupFailed",
    "HeartbeatsResumed",
    "HeartbeatsStarted",
    "Level",
    "PartitionInterrupted",
    "PartitionRecovered",
    "PartitionStopped",
    "PartitionsGrown",
    "PositionsRead",
    "PositionsWritten",
    "ResumeUnproven",
    "ResumedExactly",
    "SettingNoted",
    "SparkEnded",
    "SparkSaid",
    "SparkStarted",
    "StepFailed",
    "TaskRestarted",
    "TopicAclsChanged",
    "TopicConfigsChanged",
    "TopicConfigsKept",
    "TopicCreated",
    "TopicGone",
    "TopicSyncFailed",
    "TopicSyncRecovered",
    "TopicsRefreshed",
    "WaitingForSlot",
]
