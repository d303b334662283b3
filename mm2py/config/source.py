"""The config of a MirrorSourceConnector."""

from __future__ import annotations

import attrs

from mm2py.config.connector import ConnectorConfig, TopicFilterSettings, topic_filter_settings
from mm2py.config.keys.cluster import LEAST_TRANSACTION_MS
from mm2py.config.keys.table import key_named
from mm2py.config.resolve import FlowReader, look_interval_s, periodic
from mm2py.config.worker import StorageSettings
from mm2py.model.connector_offset import SOURCE
from mm2py.model.epoch import SETTLING_MS, CopyLimits
from mm2py.model.patterns import split_list
from mm2py.model.timestamp import timestamp_ms
from mm2py.model.transform import Errors, FlowTransforms


#: Kafka's numbers of the codecs; any other value keeps the source's.
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
#: A Java producer needs less memory than a copy task, which buffers whole fetch answers.
_LEAST_BUFFER_BYTES = 1024 * 1024


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
