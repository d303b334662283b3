"""
The configs of a flow's connectors: what each has, whatever its class, and what a MirrorSourceConnector, a
MirrorCheckpointConnector and a MirrorHeartbeatConnector have of their own; and which of them reads a setting.
"""

from __future__ import annotations

from typing import Final

import attrs

from mm2py.config.keys.cluster import LEAST_TRANSACTION_MS
from mm2py.config.keys.table import key_named
from mm2py.config.resolve import HEARTBEAT_INTERVAL, FlowReader, emits_heartbeats, look_interval_s, periodic
from mm2py.config.worker import StorageSettings
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import SETTLING_MS, CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list
from mm2py.model.timestamp import timestamp_ms
from mm2py.model.transform import Errors, FlowTransforms


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
#: Kafka's numbers of the codecs; any other value keeps the source's.
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
#: A Java producer needs less memory than a copy task, which buffers whole fetch answers.
_LEAST_BUFFER_BYTES = 1024 * 1024


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


# MirrorSourceConnector.


@attrs.frozen
class TopicSettings(TopicFilterSettings):
    """Which topics a flow mirrors, and how often it looks for them."""

    heartbeats_enabled: bool
    refresh_enabled: bool
    refresh_interval_s: float
    #: How often at least the source is asked whether it has other topics or partitions, which then causes a refresh.
    look_interval_s: float
    #: Of new remote topics: a number, -1 for the brokers' default, None for the source topic's own.
    replication_factor: int | None


@attrs.frozen
class CopySettings:
    """How the copy tasks of a flow run."""

    tasks_max: int
    auto_offset_reset: str
    offset_flush_interval_ms: int
    shutdown_ms: int
    epoch_ms: int
    drain_ms: int
    #: The consumer group at the source where partitions without a position start; empty where there is none.
    start_group: str = ""
    #: The timestamp from which partitions without a position are copied; None leaves it to `auto_offset_reset`.
    start_timestamp_ms: int | None = None
    #: Are the records of transforms written in transactions?
    is_exactly_once: bool = False
    transaction_timeout_ms: int = 60_000

    @property
    def settling_s(self) -> float:
        """How long tasks may take to end their epochs and what follows these."""
        return max(self.epoch_ms, SETTLING_MS) / 1000 + self.last_s

    @property
    def last_s(self) -> float:
        """How long they may take once they see that their epochs are to end."""
        return max(self.shutdown_ms, self.drain_ms) / 1000


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
class OffsetSyncSettings:
    """How a flow tracks offset translation. The defaults are MirrorMaker's if it has any."""

    is_emitted: bool = True
    #: The cluster that stores the offset syncs: source or target.
    location: str = "source"
    topic_replication_factor: int = 3
    lag_max: int = 100


@attrs.frozen
class BrokenHistorySettings:
    """What a flow does when the source or the target no longer matches a position."""

    on_source_recreated: str = "fail"
    on_source_expired: str = "earliest"
    on_source_truncated: str = "continue"
    on_target_rewound: str = "copy-again"


@attrs.frozen
class MirrorSourceConfig(ConnectorConfig):
    """Which topics are mirrored, and how."""

    topics: TopicSettings
    #: Where positions are kept.
    offset_storage: StorageSettings
    copying: CopySettings
    limits: CopyLimits
    topic_sync: TopicSyncSettings
    broken_history: BrokenHistorySettings
    offset_syncs: OffsetSyncSettings
    transforms: FlowTransforms
    #: The name under which its positions are stored.
    name: str = SOURCE
    #: Where it comes among the source connectors of its pair: the first one keeps what several of them would copy.
    order: int = 0


def source_config(of: FlowReader, shared: ConnectorConfig, transforms: FlowTransforms) -> MirrorSourceConfig:
    return MirrorSourceConfig(
        **attrs.asdict(shared, recurse=False),
        topics=topic_settings(of),
        offset_storage=StorageSettings(
            of.text("offsets.storage.topic")
            or of.text("offset.storage.topic")
            or f"mm2-offsets.{shared.flow.source}.internal",
            of.number("offset.storage.replication.factor"),
            of.number("offset.storage.partitions"),
        ),
        copying=copy_settings(of),
        limits=copy_limits(of),
        topic_sync=topic_sync_settings(of),
        broken_history=broken_history_settings(of),
        offset_syncs=offset_sync_settings(of),
        transforms=transforms,
    )


def topic_settings(of: FlowReader) -> TopicSettings:
    refresh_enabled, refresh_interval_s = periodic(of, "refresh.topics")
    return TopicSettings(
        **attrs.asdict(topic_filter_settings(of), recurse=False),
        heartbeats_enabled=of.flag("heartbeats.replication.enabled"),
        refresh_enabled=refresh_enabled,
        refresh_interval_s=refresh_interval_s,
        look_interval_s=look_interval_s(of, "refresh.topics.interval.seconds"),
        replication_factor=_remote_factor(of.text("replication.factor")),
    )


def copy_settings(of: FlowReader) -> CopySettings:
    return CopySettings(
        tasks_max=of.number("tasks.max"),
        auto_offset_reset=of.text("consumer.auto.offset.reset"),
        offset_flush_interval_ms=of.number("offset.flush.interval.ms"),
        shutdown_ms=of.number("task.shutdown.graceful.timeout.ms"),
        epoch_ms=of.number("copy.epoch.ms"),
        drain_ms=of.number("copy.drain.ms"),
        start_group=of.text("copy.start.group"),
        start_timestamp_ms=timestamp_ms(since) if (since := of.text("start.timestamp")) else None,
        is_exactly_once=of.text("exactly.once.source.support").lower() == "enabled",
        transaction_timeout_ms=max(LEAST_TRANSACTION_MS, of.number("producer.transaction.timeout.ms")),
    )


def error_settings(of: FlowReader) -> Errors:
    return Errors(
        are_tolerated=of.text("errors.tolerance") == "all",
        dead_letters=of.text("errors.deadletterqueue.topic.name"),
        dead_letters_factor=of.number("errors.deadletterqueue.topic.replication.factor"),
        with_context=of.flag("errors.deadletterqueue.context.headers.enable"),
    )


def topic_sync_settings(of: FlowReader) -> TopicSyncSettings:
    configs_enabled, configs_interval_s = periodic(of, "sync.topic.configs")
    acls_enabled, acls_interval_s = periodic(of, "sync.topic.acls")
    return TopicSyncSettings(
        configs_exclude=of.texts("config.properties.exclude"),
        config_filter_class=of.text("config.property.filter.class"),
        use_defaults_from=of.text("use.defaults.from"),
        configs_enabled=configs_enabled,
        configs_interval_s=configs_interval_s,
        configs_overwrite=of.text("sync.topic.configs.by.hand") == "overwrite",
        acls_enabled=acls_enabled,
        acls_interval_s=acls_interval_s,
        acls_delete=of.flag("sync.topic.acls.delete.enabled"),
        acls_prefixed=of.flag("sync.topic.acls.prefixed.enabled"),
    )


def offset_sync_settings(of: FlowReader) -> OffsetSyncSettings:
    return OffsetSyncSettings(
        is_emitted=of.flag("emit.offset-syncs.enabled"),
        location=of.text("offset-syncs.topic.location"),
        topic_replication_factor=of.number("offset-syncs.topic.replication.factor"),
        lag_max=of.number("offset.lag.max"),
    )


def copy_limits(of: FlowReader) -> CopyLimits:
    return CopyLimits(
        reads_committed=of.text("consumer.isolation.level") == "read_committed",
        fetch_max_bytes=of.number("consumer.fetch.max.bytes"),
        fetch_partition_max_bytes=of.number("consumer.max.partition.fetch.bytes"),
        fetch_min_bytes=of.number("consumer.fetch.min.bytes"),
        fetch_max_wait_ms=of.number("consumer.fetch.max.wait.ms"),
        produce_request_max_bytes=of.number("producer.max.request.size"),
        produce_max_in_flight=of.number("producer.max.in.flight.requests.per.connection"),
        buffer_bytes=_buffer_bytes(of),
        partition_buffer_bytes=of.number("copy.partition.buffer.bytes"),
        coalesce_below_bytes=of.number("copy.coalesce.below.bytes"),
        coalesce_batch_bytes=_coalesced_bytes(of),
        retry_backoff_ms=of.number("producer.retry.backoff.ms"),
        retry_backoff_max_ms=of.number("producer.retry.backoff.max.ms"),
        rack=of.text("consumer.client.rack"),
        catch_up_latency_ms=of.number("catch.up.latency.ms"),
        codec=_CODECS.get(of.text("producer.compression.type")),
    )


def _buffer_bytes(of: FlowReader) -> int:
    memory = of.number_if_set("producer.buffer.memory")
    if memory is None or of.number_if_set("copy.buffer.bytes") is not None:
        return of.number("copy.buffer.bytes")
    return max(_LEAST_BUFFER_BYTES, memory)


def _coalesced_bytes(of: FlowReader) -> int:
    size = of.number_if_set("producer.batch.size")
    return CopyLimits().coalesce_batch_bytes if size is None else size


def _remote_factor(text: str) -> int | None:
    return None if text.strip() == "source" else int(text)


def broken_history_settings(of: FlowReader) -> BrokenHistorySettings:
    return BrokenHistorySettings(
        on_source_recreated=of.text("copy.on.source.recreated"),
        on_source_expired=of.text("copy.on.source.expired"),
        on_source_truncated=of.text("copy.on.source.truncated"),
        on_target_rewound=of.text("copy.on.target.rewound"),
    )


# MirrorCheckpointConnector.


@attrs.frozen
class MirrorCheckpointConfig(ConnectorConfig):
    """Which consumer groups are translated, and how their offsets are synchronised. The defaults are MirrorMaker's."""

    topics: TopicFilterSettings
    #: Whose routers name remote topics.
    transforms: FlowTransforms
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
    #: The cluster that stores the offset syncs, if the source connector runs elsewhere: source or target.
    syncs_location: str = "source"

    @property
    def syncs_at(self) -> tuple[str, str]:
        """The cluster that stores the offset syncs, source or target, and the other one's alias, which names them."""
        is_at_source = self.syncs_location == "source"
        return self.syncs_location, self.flow.target if is_at_source else self.flow.source

    @property
    def is_run(self) -> bool:
        """Whether there is anything to do."""
        return self.is_enabled and self.is_emitted


def checkpoint_config(of: FlowReader, shared: ConnectorConfig, transforms: FlowTransforms) -> MirrorCheckpointConfig:
    refresh_enabled, _ = periodic(of, "refresh.groups")
    is_synced, sync_interval_s = periodic(of, "sync.group.offsets")
    emit_interval_s = of.number("emit.checkpoints.interval.seconds")
    return MirrorCheckpointConfig(
        **attrs.asdict(shared, recurse=False),
        topics=topic_filter_settings(of),
        transforms=transforms,
        groups=of.texts("groups"),
        groups_exclude=of.texts("groups.exclude"),
        group_filter_class=of.text("group.filter.class"),
        refresh_enabled=refresh_enabled,
        refresh_interval_s=look_interval_s(of, "refresh.groups.interval.seconds"),
        is_emitted=of.flag("emit.checkpoints.enabled") and emit_interval_s >= 0,
        emit_interval_s=float(max(0, emit_interval_s)),
        is_synced=is_synced,
        sync_interval_s=sync_interval_s,
        sync_rewinds=of.flag("sync.group.offsets.rewind.enabled"),
        topic_replication_factor=of.number("checkpoints.topic.replication.factor"),
        syncs_location=of.text("offset-syncs.topic.location"),
    )


# MirrorHeartbeatConnector.


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
