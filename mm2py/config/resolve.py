"""
From the lines of a file to the settings of its clusters and flows.

Invalid values are replaced by their default here: `mm2py.config.lint` reports each of them, and nothing runs while
there is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

import attrs

from mm2py.config.connectors import NAMED_AGAIN, OWNER_ID, TASK_IDS
from mm2py.config.flow_settings import (
    BrokenHistorySettings,
    CheckpointSettings,
    CopySettings,
    FlowSettings,
    HeartbeatSettings,
    MembershipSettings,
    NamedAgain,
    OffsetSyncSettings,
    PolicySettings,
    StorageSettings,
    TopicSettings,
    TopicSyncSettings,
)
from mm2py.config.keys.cluster import LEAST_TRANSACTION_MS
from mm2py.config.keys.row import LAST_PORT, Key, trimmed
from mm2py.config.keys.table import key_named
from mm2py.config.layers import Layers, Side, Value, spellings
from mm2py.config.problem import Problem
from mm2py.config.properties import escaped
from mm2py.config.security import client_key_in, read_security
from mm2py.config.transforms import read_transforms
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list
from mm2py.model.timestamp import timestamp_ms
from mm2py.model.transform import Errors


_ADDRESS = re.compile(r"(?:[0-9a-zA-Z%._-]*://)?(\[[0-9a-fA-F:.%]+\]|[0-9a-zA-Z%._-]+):([0-9]{1,5})")
_HEARTBEATS = "emit.heartbeats.interval.seconds"
#: A Java producer needs less memory than a copy task, which buffers whole fetch answers.
_LEAST_BUFFER_BYTES = 1024 * 1024
#: How often topics and groups are listed if the file does not say; Java's default of 600 s is for all that it reads.
_LOOK_INTERVAL_S = 30.0


def read(layers: Layers, key: Key, flow: Flow | None = None) -> object:
    """Read *key* for *flow*: the strongest line, or the default."""
    line = layers.first(spellings(key, flow)) or Value(key.default or "")
    try:
        return key.parse(line.text)
    except ValueError:
        return key.kind.parse(key.default or "")


@attrs.frozen
class FlowReader:
    """Typed access to the keys of one flow."""

    layers: Layers
    flow: Flow | None

    def flag(self, name: str) -> bool:
        return cast("bool", self._read(name))

    def number(self, name: str) -> int:
        return cast("int", self._read(name))

    def number_if_set(self, name: str) -> int | None:
        """Return the number in a line; None if there is no line, or no valid one."""
        key = key_named(name)
        line = self.layers.first(spellings(key, self.flow))
        try:
            return None if line is None else cast("int", key.parse(line.text))
        except ValueError:
            return None

    def text(self, name: str) -> str:
        return cast("str", self._read(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._read(name))

    def _read(self, name: str) -> object:
        return read(self.layers, key_named(name), self.flow)


def cluster_aliases(layers: Layers) -> tuple[str, ...]:
    """Return the aliases in ``clusters``, as far as they are valid."""
    line = layers.get("clusters")
    return tuple(dict.fromkeys(alias for alias in split_list(line.text) if alias)) if line else ()


def running_flows(layers: Layers, targets: Sequence[str] = ()) -> tuple[Flow, ...]:
    """Return the flows that a node runs: enabled ones, and those that emit heartbeats, as MirrorMaker selects them. A
    top-level ``enabled`` is ignored here, but applies to flows selected because of heartbeats.
    """
    aliases = cluster_aliases(layers)
    pairs = (Flow(source, target) for source in aliases for target in aliases if source != target)
    wanted = (flow for flow in pairs if not targets or flow.target in targets)
    return tuple(flow for flow in wanted if _is_enabled_itself(layers, flow) or _emits_heartbeats(layers, flow))


def _is_enabled_itself(layers: Layers, flow: Flow) -> bool:
    line = layers.get(f"{flow}.enabled")
    return line is not None and line.text.strip().lower() == "true"


def _emits_heartbeats(layers: Layers, flow: Flow) -> bool:
    of = FlowReader(layers, flow)
    return of.flag("emit.heartbeats.enabled") and of.number(_HEARTBEATS) >= 0


def flow_settings(layers: Layers, flow: Flow, source: ClusterEndpoint, target: ClusterEndpoint) -> FlowSettings:
    """Read all settings of *flow*."""
    of = FlowReader(layers, flow)
    return FlowSettings(
        flow=flow,
        is_enabled=of.flag("enabled"),
        source=source,
        target=target,
        topics=_topics(of),
        policy=PolicySettings(
            class_name=of.text("replication.policy.class"),
            separator=of.text("replication.policy.separator"),
            internal_separator_enabled=of.flag("replication.policy.internal.topic.separator.enabled"),
            prefix=of.text("remote.topic.prefix"),
            suffix=of.text("remote.topic.suffix"),
        ),
        heartbeats=HeartbeatSettings(
            is_emitted=_emits_heartbeats(layers, flow),
            interval_s=float(max(1, of.number(_HEARTBEATS))),
            topic_replication_factor=of.number("heartbeats.topic.replication.factor"),
        ),
        offset_storage=StorageSettings(
            of.text("offsets.storage.topic")
            or of.text("offset.storage.topic")
            or f"mm2-offsets.{flow.source}.internal",
            of.number("offset.storage.replication.factor"),
            of.number("offset.storage.partitions"),
        ),
        copying=_copying(of),
        limits=_limits(of),
        admin_timeout_ms=of.number("admin.timeout.ms"),
        checkpoints=_checkpoints(of),
        topic_sync=_topic_sync(of),
        broken_history=BrokenHistorySettings(
            on_source_recreated=of.text("copy.on.source.recreated"),
            on_source_expired=of.text("copy.on.source.expired"),
            on_source_truncated=of.text("copy.on.source.truncated"),
            on_target_rewound=of.text("copy.on.target.rewound"),
        ),
        offset_syncs=_offset_syncs(of),
        membership=_membership(of, flow),
        transforms=read_transforms(layers, flow, _errors(of)),
        config_storage=StorageSettings(of.text("config.storage.topic"), of.number("config.storage.replication.factor")),
        status_storage=StorageSettings(
            of.text("status.storage.topic"),
            of.number("status.storage.replication.factor"),
            of.number("status.storage.partitions"),
        ),
    )


def _periodic(of: FlowReader, job: str) -> tuple[bool, float]:
    """Return whether a periodic job is done, and how often: never, if that is 0 or less, as Java's Scheduler has it."""
    name = f"{job}.interval.seconds"
    seconds = of.number(name)
    is_due = of.flag(f"{job}.enabled") and seconds > 0
    return is_due, float(seconds if seconds > 0 else int(key_named(name).default or "0"))


def _topics(of: FlowReader) -> TopicSettings:
    refresh_enabled, refresh_interval_s = _periodic(of, "refresh.topics")
    return TopicSettings(
        names=of.texts("topics"),
        exclude=of.texts("topics.exclude"),
        filter_class=of.text("topic.filter.class"),
        heartbeats_enabled=of.flag("heartbeats.replication.enabled"),
        refresh_enabled=refresh_enabled,
        refresh_interval_s=refresh_interval_s,
        look_interval_s=_look_interval_s(of, "refresh.topics.interval.seconds"),
        replication_factor=_remote_factor(of.text("replication.factor")),
    )


def _look_interval_s(of: FlowReader, key: str) -> float:
    """Return how often a listing, which costs little, is repeated: as the file says, else more often than in Java."""
    written = of.number_if_set(key)
    return _LOOK_INTERVAL_S if written is None or written <= 0 else float(written)


def _copying(of: FlowReader) -> CopySettings:
    return CopySettings(
        tasks_max=of.number("tasks.max"),
        auto_offset_reset=of.text("consumer.auto.offset.reset"),
        offset_flush_interval_ms=of.number("offset.flush.interval.ms"),
        shutdown_ms=of.number("task.shutdown.graceful.timeout.ms"),
        epoch_ms=of.number("copy.epoch.ms"),
        drain_ms=of.number("copy.drain.ms"),
        restart_backoff_ms=of.number("copy.restart.backoff.ms"),
        restart_backoff_max_ms=of.number("copy.restart.backoff.max.ms"),
        start_group=of.text("copy.start.group"),
        start_timestamp_ms=timestamp_ms(since) if (since := of.text("start.timestamp")) else None,
        is_exactly_once=of.text("exactly.once.source.support").lower() == "enabled",
        transaction_timeout_ms=max(LEAST_TRANSACTION_MS, of.number("producer.transaction.timeout.ms")),
    )


def _errors(of: FlowReader) -> Errors:
    return Errors(
        are_tolerated=of.text("errors.tolerance") == "all",
        dead_letters=of.text("errors.deadletterqueue.topic.name"),
        dead_letters_factor=of.number("errors.deadletterqueue.topic.replication.factor"),
        with_context=of.flag("errors.deadletterqueue.context.headers.enable"),
    )


def _membership(of: FlowReader, flow: Flow) -> MembershipSettings:
    # One line applies to all flows into a cluster, but each needs its own group.
    group = of.text("group.id")
    others = (other for other in running_flows(of.layers) if other.target == flow.target and other != flow)
    is_shared = bool(group) and any(FlowReader(of.layers, other).flag("enabled") for other in others)
    # As connectors of a distributed worker have it.
    of_flow, task_ids, owner_id = (of.layers.get(f"{flow}.{key}") for key in ("group.id", TASK_IDS, OWNER_ID))
    if of_flow is not None:
        group, is_shared = trimmed(of_flow.text), False
    refuses = of.text("copy.on.second.node") == "refuse"
    return attrs.evolve(
        _of_group(of, f"{group}-{flow.source}" if is_shared else group),
        instance=of.text("group.instance.id") if refuses else "",
        task_ids="" if task_ids is None else task_ids.text,
        owner_id="" if owner_id is None else owner_id.text,
    )


def worker_membership(layers: Layers, target: str) -> MembershipSettings:
    """Read how a distributed worker is a member of its own group, at cluster *target*."""
    of = FlowReader(layers, Flow("", target))
    return _of_group(of, of.text("group.id"))


def _of_group(of: FlowReader, group: str) -> MembershipSettings:
    return MembershipSettings(
        group=group,
        session_ms=of.number("session.timeout.ms"),
        heartbeat_ms=of.number("heartbeat.interval.ms"),
        refuses=of.text("copy.on.second.node") == "refuse",
    )


def _checkpoints(of: FlowReader) -> CheckpointSettings:
    refresh_enabled, _ = _periodic(of, "refresh.groups")
    is_synced, sync_interval_s = _periodic(of, "sync.group.offsets")
    emit_interval_s = of.number("emit.checkpoints.interval.seconds")
    return CheckpointSettings(
        groups=of.texts("groups"),
        groups_exclude=of.texts("groups.exclude"),
        group_filter_class=of.text("group.filter.class"),
        refresh_enabled=refresh_enabled,
        refresh_interval_s=_look_interval_s(of, "refresh.groups.interval.seconds"),
        is_emitted=of.flag("emit.checkpoints.enabled") and emit_interval_s >= 0,
        emit_interval_s=float(max(0, emit_interval_s)),
        is_synced=is_synced,
        sync_interval_s=sync_interval_s,
        sync_rewinds=of.flag("sync.group.offsets.rewind.enabled"),
        topic_replication_factor=of.number("checkpoints.topic.replication.factor"),
    )


def _remote_factor(text: str) -> int | None:
    return None if text.strip() == "source" else int(text)


def _topic_sync(of: FlowReader) -> TopicSyncSettings:
    configs_enabled, configs_interval_s = _periodic(of, "sync.topic.configs")
    acls_enabled, acls_interval_s = _periodic(of, "sync.topic.acls")
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


def _offset_syncs(of: FlowReader) -> OffsetSyncSettings:
    return OffsetSyncSettings(
        is_emitted=of.flag("emit.offset-syncs.enabled"),
        location=of.text("offset-syncs.topic.location"),
        topic_replication_factor=of.number("offset-syncs.topic.replication.factor"),
        lag_max=of.number("offset.lag.max"),
        flow_runs_max=of.number("offset.translation.runs.max"),
        partition_runs_max=of.number("offset.translation.partition.runs.max"),
    )


#: Kafka's numbers of the codecs; any other value keeps the source's.
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def _limits(of: FlowReader) -> CopyLimits:
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
    is_ours = size is None or of.number_if_set("copy.coalesce.batch.bytes") is not None
    return of.number("copy.coalesce.batch.bytes") if is_ours or size is None else size


def flow_endpoint(layers: Layers, flow: Flow, side: Side) -> ClusterEndpoint | Problem:
    """Read the connection settings of *flow* for its source or target cluster."""
    alias = flow.source if side is Side.SOURCE else flow.target
    reached = _reach(layers, alias, flow, side)
    if isinstance(reached, Problem):
        return reached
    of, role = FlowReader(layers, flow), "consumer" if side is Side.SOURCE else "producer"
    return attrs.evolve(
        reached,
        client_id=of.text(f"{role}.client.id") or str(flow),
        request_timeout_ms=of.number(f"{role}.request.timeout.ms"),
        metadata_max_age_ms=of.number(f"{role}.metadata.max.age.ms"),
        reconnect_backoff_ms=of.number(f"{role}.reconnect.backoff.ms"),
        reconnect_backoff_max_ms=of.number(f"{role}.reconnect.backoff.max.ms"),
        connection_setup_ms=of.number(f"{role}.socket.connection.setup.timeout.ms"),
        send_buffer_bytes=of.number(f"{role}.send.buffer.bytes"),
        receive_buffer_bytes=of.number(f"{role}.receive.buffer.bytes"),
    )


def cluster_endpoint(layers: Layers, alias: str) -> ClusterEndpoint | Problem:
    """Read the connection settings of cluster *alias*, independently of a flow."""
    return _reach(layers, alias, None, Side.SOURCE)


def clusters_named_again(layers: Layers, flow: Flow) -> Iterator[NamedAgain | Problem]:
    """Read how connectors name the flow's clusters by other addresses than those that are used."""
    for side, alias in (("source", flow.source), ("target", flow.target)):
        stem = f"{flow}.{NAMED_AGAIN}.{side}."
        for line in layers.lines():
            if line.key.startswith(stem) and line.key.endswith(".key"):
                owner = line.key.removesuffix(".key")
                end, where = cluster_endpoint(layers, owner), layers.get(f"{owner}.where")
                if isinstance(end, Problem):
                    yield end
                else:
                    yield NamedAgain(line.text, where.text if where else "", attrs.evolve(end, alias=alias))


def _reach(layers: Layers, alias: str, flow: Flow | None, side: Side) -> ClusterEndpoint | Problem:
    servers = layers.first(_cluster_spellings("bootstrap.servers", alias, flow, side))
    wanted = f"{alias}.bootstrap.servers"
    line = escaped(wanted)
    if servers is None:
        listed = layers.get("clusters")
        where = listed.where if listed else ""
        return Problem(where, wanted, f"cluster {alias} has no bootstrap.servers", f"add {line} = host:port")
    try:
        addresses = parse_servers(servers.text)
    except ValueError as error:
        return Problem(servers.where, servers.key, servers.reason(error), f"write {line} = host1:9092, host2:9092")
    security = _security(layers, alias, flow, side)
    return security if isinstance(security, Problem) else ClusterEndpoint(alias, addresses, security=security)


def _security(layers: Layers, alias: str, flow: Flow | None, side: Side) -> Security | Problem:
    names = {name for line in layers.lines() if (name := client_key_in(line.key)) is not None}
    found = {name: layers.first(_cluster_spellings(name, alias, flow, side)) for name in names}
    protocol = layers.first(_cluster_spellings("security.protocol", alias, flow, side)) or Value("PLAINTEXT")
    return read_security(protocol, {name: line for name, line in found.items() if line is not None})


def _cluster_spellings(name: str, alias: str, flow: Flow | None, side: Side) -> tuple[str, ...]:
    if flow is None:
        return (f"{alias}.{name}", name)
    return spellings(attrs.evolve(key_named("bootstrap.servers"), name=name), flow, side)


def parse_servers(text: str) -> tuple[str, ...]:
    """Parse a list of brokers. Raise ValueError that names an invalid address."""
    addresses = [address for address in split_list(text) if address]
    if not addresses:
        raise ValueError("no broker is named")
    return tuple(_parse_address(address) for address in addresses)


def _parse_address(address: str) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is not of the form host:port")
    port = int(match.group(2))
    if not 0 < port <= LAST_PORT:
        raise ValueError(f"{address!r}: there is no port {port}")
    return f"{match.group(1)}:{port}"
