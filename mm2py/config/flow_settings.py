"""How a flow is run: what its keys come to, grouped by what they are about."""

from __future__ import annotations

import attrs

from mm2py.config.keys.table import key_named
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list
from mm2py.model.transform import FlowTransforms


@attrs.frozen
class CheckpointSettings:
    """Which consumer groups a flow translates, and how it syncs their offsets. The defaults are MirrorMaker's."""

    groups: tuple[str, ...] = (".*",)
    groups_exclude: tuple[str, ...] = ("console-consumer-.*", "connect-.*", "__.*")
    group_filter_class: str = "org.apache.kafka.connect.mirror.DefaultGroupFilter"
    refresh_enabled: bool = True
    refresh_interval_s: float = 30.0
    is_emitted: bool = True
    emit_interval_s: float = 60.0
    is_synced: bool = False
    sync_interval_s: float = 60.0
    #: Whether a group's offsets at the target may be set back.
    sync_rewinds: bool = False
    topic_replication_factor: int = 3


@attrs.frozen
class OffsetSyncSettings:
    """How a flow tracks offset translation. The defaults are MirrorMaker's if it has any."""

    is_emitted: bool = True
    #: The cluster that stores the offset syncs: source or target.
    location: str = "source"
    topic_replication_factor: int = 3
    lag_max: int = 100
    #: How many runs are kept in memory, of 32 bytes each.
    flow_runs_max: int = 2_000_000
    partition_runs_max: int = 200_000


@attrs.frozen
class TopicSyncSettings:
    """How a flow synchronises configs and ACLs of remote topics. The defaults are MirrorMaker's if it has any."""

    configs_exclude: tuple[str, ...] = split_list(key_named("config.properties.exclude").default or "")
    config_filter_class: str = "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter"
    use_defaults_from: str = "target"
    configs_enabled: bool = True
    configs_interval_s: float = 600.0
    #: Whether to overwrite what an operator set on a remote topic.
    configs_overwrite: bool = False
    acls_enabled: bool = True
    acls_interval_s: float = 600.0
    acls_delete: bool = False
    acls_prefixed: bool = False


@attrs.frozen
class BrokenHistorySettings:
    """What a flow does when the source or the target no longer matches a position."""

    on_source_recreated: str = "fail"
    on_source_expired: str = "earliest"
    on_source_truncated: str = "continue"
    on_target_rewound: str = "copy-again"


@attrs.frozen
class MembershipSettings:
    """The group at the target whose members share a flow."""

    #: Empty: the source's alias and ``-mm2``.
    group: str = ""
    session_ms: int = 6_000
    heartbeat_ms: int = 2_000
    #: Whether a second node stands by.
    refuses: bool = True
    #: `group.instance.id`: this node's place waits for it while it restarts. Empty: it leaves the group.
    instance: str = ""
    #: What the transactional ids of copy tasks begin with, and the one for checkpoints, if the flow consists of a
    #: worker's connectors. Empty: they follow from the group.
    task_ids: str = ""
    owner_id: str = ""


@attrs.frozen
class TopicSettings:
    """Which topics a flow mirrors, and how often it looks for them."""

    names: tuple[str, ...]
    exclude: tuple[str, ...]
    filter_class: str
    heartbeats_enabled: bool
    refresh_enabled: bool
    refresh_interval_s: float
    #: How often at least the source is asked whether it has other topics or partitions, which then causes a refresh.
    look_interval_s: float
    #: Of new remote topics: a number, -1 for the brokers' default, None for the source topic's own.
    replication_factor: int | None


@attrs.frozen
class PolicySettings:
    """How remote topics are named."""

    class_name: str
    separator: str
    internal_separator_enabled: bool
    prefix: str = ""
    suffix: str = ""


@attrs.frozen
class HeartbeatSettings:
    """What a flow writes to say that it is there."""

    is_emitted: bool
    interval_s: float
    topic_replication_factor: int


@attrs.frozen
class StorageSettings:
    """A topic at the target where a flow keeps what it has to know; without a name it has the default one."""

    topic: str = ""
    replication_factor: int = 3
    partitions: int = 1


@attrs.frozen
class CopySettings:
    """How the copy tasks of a flow run."""

    tasks_max: int
    auto_offset_reset: str
    offset_flush_interval_ms: int
    shutdown_ms: int
    epoch_ms: int
    drain_ms: int
    restart_backoff_ms: int
    restart_backoff_max_ms: int
    #: The consumer group at the source where partitions without a position start; empty where there is none.
    start_group: str = ""
    #: The timestamp from which partitions without a position are copied; None leaves it to `auto_offset_reset`.
    start_timestamp_ms: int | None = None
    #: Are the records of transforms written in transactions?
    is_exactly_once: bool = False
    transaction_timeout_ms: int = 60_000


@attrs.frozen
class NamedAgain:
    """How a connector names one of the flow's clusters, by other addresses than those that are used: the flow runs if
    that is the same cluster.
    """

    key: str
    #: The connector, or its file.
    where: str
    endpoint: ClusterEndpoint


@attrs.frozen
class FlowSettings:
    """How one flow is run."""

    flow: Flow
    #: Are its topics mirrored?
    is_enabled: bool
    source: ClusterEndpoint
    target: ClusterEndpoint
    topics: TopicSettings
    policy: PolicySettings
    heartbeats: HeartbeatSettings
    #: Where positions are kept.
    offset_storage: StorageSettings
    copying: CopySettings
    limits: CopyLimits
    #: Time limit of one round of a periodic job at the clusters' topics, configs, ACLs or groups.
    admin_timeout_ms: int
    checkpoints: CheckpointSettings = CheckpointSettings()
    topic_sync: TopicSyncSettings = TopicSyncSettings()
    broken_history: BrokenHistorySettings = BrokenHistorySettings()
    offset_syncs: OffsetSyncSettings = OffsetSyncSettings()
    membership: MembershipSettings = MembershipSettings()
    transforms: FlowTransforms = attrs.field(factory=FlowTransforms)
    #: Where overrides by operators are kept; by default `mm2-configs.<source>.internal`.
    config_storage: StorageSettings = StorageSettings()
    #: Where nodes that share the flow report to each other; by default `mm2-status.<source>.internal`.
    status_storage: StorageSettings = StorageSettings(partitions=5)
    named_again: tuple[NamedAgain, ...] = ()

    @property
    def group_id(self) -> str:
        """The group at the target that the flow's node joins."""
        return self.membership.group or f"{self.flow.source}-mm2"
