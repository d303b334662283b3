"""From a file to settings: the defaults, the field of each key, and which flows run."""

from __future__ import annotations

from operator import attrgetter

import attrs
import pytest

from mm2py.config.connector import (
    BrokenHistorySettings,
    CopySettings,
    MirrorCheckpointConfig,
    MirrorHeartbeatConfig,
    MirrorSourceConfig,
    OffsetSyncSettings,
    PolicySettings,
    TopicFilterSettings,
    TopicSettings,
    TopicSyncSettings,
)
from mm2py.config.explain import node_settings
from mm2py.config.settings import ConfigError, FlowSettings
from mm2py.config.worker import StorageSettings, WorkerConfig
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.transform import FlowTransforms
from tests.support.config_files import BASE, ConfigFile
from tests.support.mm2_file import STRANGE_ALIAS, mm2_properties


def _worker(group_id: str, *times_ms: int, refuses: bool = True) -> WorkerConfig:
    """Return the config of a worker that keeps things in A's topics."""
    overrides, status = StorageSettings("mm2-configs.A.internal"), StorageSettings("mm2-status.A.internal", 3, 5)
    return WorkerConfig(group_id, *times_ms, refuses=refuses, config_storage=overrides, status_storage=status)


def _flow(
    source: ClusterEndpoint,
    target: ClusterEndpoint,
    *,
    topics: TopicSettings,
    policy: PolicySettings,
    beats: tuple[bool, float, int],
    offset_storage: StorageSettings,
    copying: CopySettings,
    limits: CopyLimits,
    worker: WorkerConfig,
    admin_timeout_ms: int,
) -> FlowSettings:
    """Return the settings of A->B; what is not given has its default."""
    shared = (Flow("A", "B"), True, source, target, policy, admin_timeout_ms)
    chosen = TopicFilterSettings(topics.names, topics.exclude, topics.filter_class)
    return FlowSettings(
        Flow("A", "B"),
        MirrorSourceConfig(
            *shared,
            topics=topics,
            offset_storage=offset_storage,
            copying=copying,
            limits=limits,
            topic_sync=TopicSyncSettings(),
            broken_history=BrokenHistorySettings(),
            offset_syncs=OffsetSyncSettings(),
            transforms=FlowTransforms(),
        ),
        MirrorCheckpointConfig(*shared, topics=chosen, transforms=FlowTransforms()),
        MirrorHeartbeatConfig(*shared, *beats),
        worker,
    )


def test_the_defaults_are_mirror_makers(config: ConfigFile) -> None:
    """Nothing but clusters and a flow gives MirrorMaker's defaults, and ours for what is ours."""
    settings = config.load()
    (flow,) = [it for it in settings.flows if it.is_enabled]

    assert flow == _flow(
        ClusterEndpoint("A", ("a:9092",), client_id="A->B"),
        ClusterEndpoint("B", ("b:9092",), client_id="A->B"),
        topics=TopicSettings(
            names=(".*",),
            exclude=(r"mm2.*\.internal", r".*\.replica", "__.*"),
            filter_class="org.apache.kafka.connect.mirror.DefaultTopicFilter",
            heartbeats_enabled=True,
            refresh_enabled=True,
            refresh_interval_s=600.0,
            look_interval_s=30.0,
            replication_factor=2,
        ),
        policy=PolicySettings(
            "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
            ".",
            internal_separator_enabled=True,
        ),
        beats=(True, 1.0, 3),
        worker=_worker("A-mm2"),
        offset_storage=StorageSettings("mm2-offsets.A.internal", 3, 25),
        copying=CopySettings(
            tasks_max=1,
            auto_offset_reset="earliest",
            offset_flush_interval_ms=60_000,
            shutdown_ms=5_000,
            epoch_ms=10_000,
            drain_ms=5_000,
        ),
        limits=CopyLimits(),
        admin_timeout_ms=60_000,
    )
    assert dict(settings.spark) == {"spark.master": "local[*]"}
    assert (settings.log_format, settings.log_level, settings.notes) == ("auto", "info", ())
    assert list(settings.clusters) == ["A", "B"]


#: Each key with a value of its own.
_EVERY_KEY = r"""
A->B.topics = orders, log-\\d{1,3}
A->B.topics.exclude =
topic.filter.class = shop.Filter
replication.policy.class = identity
replication.policy.separator = _
replication.policy.internal.topic.separator.enabled = FALSE
replication.factor = -1
refresh.topics.enabled = false
refresh.topics.interval.seconds = 7
heartbeats.replication.enabled = false
emit.heartbeats.enabled = false
emit.heartbeats.interval.seconds = 11
heartbeats.topic.replication.factor = 2
admin.timeout.ms = 8
offset.storage.topic = positions
offset.storage.replication.factor = 1
B.offset.flush.interval.ms = 9
B.group.id = mirrors
B.session.timeout.ms = 32
B.heartbeat.interval.ms = 33
copy.on.second.node = warn
task.shutdown.graceful.timeout.ms = 10
copy.epoch.ms = 501
copy.drain.ms = 102
copy.buffer.bytes = 70001
copy.partition.buffer.bytes = 70002
copy.coalesce.below.bytes = 0
B.producer.batch.size = 70003
A.consumer.auto.offset.reset = latest
A.consumer.isolation.level = read_committed
A.consumer.fetch.min.bytes = 11
A.consumer.fetch.max.bytes = 12
A.consumer.max.partition.fetch.bytes = 13
A.consumer.fetch.max.wait.ms = 14
A.consumer.request.timeout.ms = 15
A.consumer.metadata.max.age.ms = 16
A.consumer.reconnect.backoff.ms = 17
A.consumer.reconnect.backoff.max.ms = 18
A.consumer.client.id = reader
A.consumer.socket.connection.setup.timeout.ms = 26
A.consumer.send.buffer.bytes = 27
A.consumer.receive.buffer.bytes = 28
B.producer.max.request.size = 19
B.producer.max.in.flight.requests.per.connection = 2
B.producer.retry.backoff.ms = 20
B.producer.retry.backoff.max.ms = 21
B.producer.request.timeout.ms = 22
B.producer.metadata.max.age.ms = 23
B.producer.reconnect.backoff.ms = 24
B.producer.reconnect.backoff.max.ms = 25
B.producer.client.id = writer
B.producer.socket.connection.setup.timeout.ms = 29
B.producer.send.buffer.bytes = 30
B.producer.receive.buffer.bytes = 31
"""
_EVERY_FIELD = _flow(
    ClusterEndpoint("A", ("a:9092",), "reader", 15, 16, 17, 18, Security(), 26, 27, 28),
    ClusterEndpoint("B", ("b:9092",), "writer", 22, 23, 24, 25, Security(), 29, 30, 31),
    topics=TopicSettings(
        names=("orders", r"log-\d{1,3}"),
        exclude=(),
        filter_class="shop.Filter",
        heartbeats_enabled=False,
        refresh_enabled=False,
        refresh_interval_s=7.0,
        look_interval_s=7.0,
        replication_factor=-1,
    ),
    policy=PolicySettings(
        "identity",
        "_",
        internal_separator_enabled=False,
    ),
    beats=(False, 11.0, 2),
    offset_storage=StorageSettings("positions", 1, 25),
    copying=CopySettings(
        tasks_max=1,
        auto_offset_reset="latest",
        offset_flush_interval_ms=9,
        shutdown_ms=10,
        epoch_ms=501,
        drain_ms=102,
    ),
    limits=CopyLimits(
        reads_committed=True,
        fetch_min_bytes=11,
        fetch_max_bytes=12,
        fetch_partition_max_bytes=13,
        fetch_max_wait_ms=14,
        produce_request_max_bytes=19,
        produce_max_in_flight=2,
        retry_backoff_ms=20,
        retry_backoff_max_ms=21,
        buffer_bytes=70001,
        partition_buffer_bytes=70002,
        coalesce_below_bytes=0,
        coalesce_batch_bytes=70003,
    ),
    admin_timeout_ms=8,
    worker=_worker("mirrors", 32, 33, refuses=False),
)


def test_every_key_with_effect_reaches_its_field(config: ConfigFile) -> None:
    """Each key is set to a value of its own and found where it belongs."""
    assert config.flow(_EVERY_KEY) == _EVERY_FIELD


@pytest.mark.parametrize(
    ("lines", "buffer_bytes", "batch_bytes"),
    [
        ("", 33_554_432, 262_144),
        ("B.producer.buffer.memory = 70000000\nB.producer.batch.size = 500000", 70_000_000, 500_000),
        ("B.producer.buffer.memory = 32768", 1_048_576, 262_144),
        (
            ("B.producer.buffer.memory = 70000000\nB.producer.batch.size = 500000\ncopy.buffer.bytes = 80000000"),
            80_000_000,
            500_000,
        ),
    ],
)
def test_java_s_buffers_are_taken_where_ours_are_not_set(
    config: ConfigFile, lines: str, buffer_bytes: int, batch_bytes: int
) -> None:
    """A producer's buffer.memory and batch.size size what a copy task holds and puts together."""
    limits = config.flow(lines).source_connector.limits

    assert (buffer_bytes, batch_bytes) == (limits.buffer_bytes, limits.coalesce_batch_bytes)


@pytest.mark.parametrize(
    ("lines", "running", "enabled"),
    [
        ("A->B.enabled = true", ["A->B", "A->C", "B->A", "B->C", "C->A", "C->B"], ["A->B"]),
        ("emit.heartbeats.enabled = false\nA->B.enabled = true", ["A->B"], ["A->B"]),
        (
            "emit.heartbeats.enabled = false\nA->B.enabled = true\nC->A.emit.heartbeats.enabled = true",
            ["A->B", "C->A"],
            ["A->B"],
        ),
        (
            "enabled = true\nemit.heartbeats.enabled = false\nA->B.emit.heartbeats.enabled = true",
            ["A->B"],
            ["A->B"],
        ),
        (
            "enabled = true\nA->B.enabled = false",
            ["A->B", "A->C", "B->A", "B->C", "C->A", "C->B"],
            ["A->C", "B->A", "B->C", "C->A", "C->B"],
        ),
        ("emit.heartbeats.enabled = false\nA->B.enabled = TRUE \nB->C.enabled=false", ["A->B"], ["A->B"]),
    ],
)
def test_flows_run_when_enabled_or_for_heartbeats(
    config: ConfigFile, lines: str, running: list[str], enabled: list[str]
) -> None:
    """Heartbeats bring in flows that are not enabled; a top-level enabled counts only for flows that run anyway."""
    settings = config.load(f"clusters = A, B, C\nbootstrap.servers = x:1\n{lines}", base="")

    assert running == [str(flow.flow) for flow in settings.flows]
    assert enabled == [str(flow.flow) for flow in settings.flows if flow.is_enabled]


@pytest.mark.parametrize(
    ("text", "targets", "hint"),
    [
        (BASE.replace("true", "false"), [], "(add A->B.enabled = true)"),
        (BASE.replace("A->B", "A->X"), [], "A->X.enabled (mm2.properties:4) names a cluster"),
        (BASE, ["A"], "enabled are A->B; none of them has the target --clusters A"),
    ],
)
def test_a_node_without_an_enabled_flow_says_that_it_only_emits_heartbeats(
    config: ConfigFile, text: str, targets: list[str], hint: str
) -> None:
    """Java runs heartbeats for such a file; here the log says so, with what was probably meant."""
    settings = config.load(text, targets=targets, base="")

    *_, note = settings.notes
    assert [flow.heartbeat_connector.is_emitted for flow in settings.flows] == [True] * len(settings.flows)
    assert "only emits heartbeats" in note.message
    assert hint in str(note)


def test_a_flow_that_only_emits_heartbeats_may_come_from_any_alias(config: ConfigFile) -> None:
    """Nothing is mirrored from there, so the alias is in no topic's name."""
    lines = "clusters = A, B~?\nbootstrap.servers = x:1\nA->B~?.enabled = true\noffset-syncs.topic.location = target"
    settings = config.load(lines, base="")

    assert [str(flow.flow) for flow in settings.flows] == ["A->B~?", "B~?->A"]


def test_a_node_runs_only_the_flows_into_its_targets(config: ConfigFile) -> None:
    """--clusters keeps the flows that end at one of the named clusters."""
    settings = config.load("B->A.enabled = true", targets=["B"])

    assert [str(flow.flow) for flow in settings.flows] == ["A->B"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h:1", ("h:1",)),
        (" h1:1 , h2:65535 ", ("h1:1", "h2:65535")),
        ("PLAINTEXT://h:9092", ("h:9092",)),
        ("SASL_SSL://h:9092, SASL_PLAINTEXT://[::1]:9092", ("h:9092", "[::1]:9092")),
        ("[::1]:9092, 10.0.0.1:09092", ("[::1]:9092", "10.0.0.1:9092")),
        ("my-host_1.example.com:9092", ("my-host_1.example.com:9092",)),
    ],
)
def test_brokers_may_be_written_in_all_of_kafkas_ways(config: ConfigFile, text: str, expected: tuple[str, ...]) -> None:
    """Names, IPv4, IPv6 in brackets, with or without a protocol in front."""
    settings = config.load(
        f"clusters = A, B\nB.bootstrap.servers=b:1\nA->B.enabled=true\nA.bootstrap.servers = {text}", base=""
    )

    assert expected == settings.clusters["A"].bootstrap_servers


@pytest.mark.parametrize("address", ["=h:9092", "${HOST}.example.com:9092", "<host>:9092", "a;b:1", "//h:1", "h:1/"])
def test_what_can_be_no_host_is_refused(config: ConfigFile, address: str) -> None:
    """As in Java, which says so at the start: a second equals sign, and a variable that nothing has filled in."""
    (problem,) = config.problems(f"A.bootstrap.servers = {address}")

    assert problem.message == f"{address!r} is not of the form host:port"


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("B.producer.max.in.flight.requests.per.connection = 10", "source_connector.limits.produce_max_in_flight", 5),
        ("B.producer.batch.size = 0", "source_connector.limits.coalesce_batch_bytes", 1),
        ("A.consumer.metadata.max.age.ms = 0", "source.metadata_max_age_ms", 1),
        ("B.offset.storage.partitions = -1", "source_connector.offset_storage.partitions", -1),
        ("B.status.storage.partitions = -1", "worker.status_storage.partitions", -1),
    ],
)
def test_a_number_that_java_takes_is_taken(config: ConfigFile, line: str, field: str, expected: int) -> None:
    """As it is where mm2py can work with it, otherwise as the nearest."""
    assert attrgetter(field)(config.flow(line)) == expected


def test_a_start_some_time_ago_is_refused_with_what_to_write(config: ConfigFile) -> None:
    """Java's consumer has it since 4.0; here the time itself is named."""
    (problem,) = config.problems("A.consumer.auto.offset.reset = by_duration:PT1H")

    assert problem.where == "mm2.properties:5"
    assert problem.message == "by_duration is not supported; write start.timestamp with the time itself"


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("A.consumer.isolation.level = read_committed ", "source_connector.limits.reads_committed", True),
        ("A.consumer.auto.offset.reset = latest ", "source_connector.copying.auto_offset_reset", "latest"),
        ("A.consumer.client.rack = r1 ", "source_connector.limits.rack", "r1"),
        ("A.consumer.client.id = me ", "source.client_id", "me"),
        ("B.producer.compression.type = zstd ", "source_connector.limits.codec", 4),
        ("A->B.offset-syncs.topic.location = target ", "source_connector.offset_syncs.location", "target"),
        ("A->B.use.defaults.from = source ", "source_connector.topic_sync.use_defaults_from", "source"),
        ("A->B.errors.tolerance = all ", "source_connector.transforms.errors.are_tolerated", True),
        ("B.offset.storage.topic = x ", "source_connector.offset_storage.topic", "x"),
        ("B.offset.storage.topic = x\nA->B.offsets.storage.topic = y", "source_connector.offset_storage.topic", "y"),
        ("B.status.storage.topic = x ", "worker.status_storage.topic", "x"),
        ("A->B.config.action.reload = none ", "flow.source", "A"),
    ],
)
def test_a_blank_after_a_value_is_no_part_of_it(config: ConfigFile, line: str, field: str, expected: object) -> None:
    """Java's connectors, clients and worker trim their texts."""
    assert attrgetter(field)(config.flow(line)) == expected


def test_spark_keys_are_passed_on(config: ConfigFile) -> None:
    """Every spark.* key reaches Spark as it is written, and the master has a default."""
    settings = config.load("spark.master = spark://m:7077\nspark.executor.memory = 1g\nspark.x= a b ")

    assert dict(settings.spark) == {
        "spark.master": "spark://m:7077",
        "spark.executor.memory": "1g",
        "spark.x": "a b",
    }


def test_a_target_s_alias_may_be_almost_anything(config: ConfigFile) -> None:
    """The alias that Kafka's own test gives a target, with offset syncs on the target as there, needs no note."""
    keys = {"offset-syncs.topic.location": "target"}
    settings = config.load(base=mm2_properties("a:1", "b:1", aliases=("A", STRANGE_ALIAS), **keys))

    assert settings.notes == ()
    (flow,) = settings.flows
    assert flow.flow == Flow("A", STRANGE_ALIAS)
    assert flow.target.bootstrap_servers == ("b:1",)


def test_a_start_at_a_timestamp(config: ConfigFile) -> None:
    """A flow's own line beats the top level; what is no timestamp is one problem with its line, and what to write."""
    lines = "start.timestamp = 2026-11-01T00:00:00Z", "B->A.enabled = true", "B->A.start.timestamp = 1793491200001"
    starts = {str(flow.flow): flow.source_connector.copying.start_timestamp_ms for flow in config.load(*lines).flows}

    assert starts == {"A->B": 1_793_491_200_000, "B->A": 1_793_491_200_001}
    (refusal,) = config.refusals("clusters = A, B", "bootstrap.servers = a:1", "start.timestamp = 2026-11-01", base="")
    assert refusal == (
        "mm2.properties:3: start.timestamp: '2026-11-01' has no time zone: write 2026-11-01T00:00:00Z for UTC, or "
        "+02:00 at the end"
    )


def test_every_key_of_consumer_groups_reaches_its_setting(config: ConfigFile) -> None:
    """Which groups are translated, how often, and what becomes of their offsets."""
    flow = config.flow(
        """
groups = orders-.*
A->B.groups.blacklist = tmp-.*
group.filter.class = shop.GroupFilter
refresh.groups.enabled = false
refresh.groups.interval.seconds = 1
emit.checkpoints.enabled = false
emit.checkpoints.interval.seconds = 2
sync.group.offsets.enabled = true
A->B.sync.group.offsets.interval.seconds = 3
sync.group.offsets.rewind.enabled = true
checkpoints.topic.replication.factor = -1
"""
    )

    assert flow.checkpoint_connector == attrs.evolve(
        config.flow().checkpoint_connector,
        groups=("orders-.*",),
        groups_exclude=("tmp-.*",),
        group_filter_class="shop.GroupFilter",
        refresh_enabled=False,
        refresh_interval_s=1.0,
        is_emitted=False,
        emit_interval_s=2.0,
        is_synced=True,
        sync_interval_s=3.0,
        sync_rewinds=True,
        topic_replication_factor=-1,
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("C->B.enabled = true\n", {"A": "A-mm2", "C": "C-mm2"}),
        ("B.group.id = mirrors\n", {"A": "mirrors"}),
        ("B.group.id = mirrors\nC->B.enabled = true\n", {"A": "mirrors-A", "C": "mirrors-C"}),
        ("C.group.id = others\n", {"A": "A-mm2"}),
    ],
)
def test_flows_into_one_cluster_have_groups_of_their_own(
    config: ConfigFile, lines: str, expected: dict[str, str]
) -> None:
    """`group.id` is about all flows into a cluster, but says who runs one of them; heartbeats alone need none."""
    settings = config.load("clusters = A, B, C\nC.bootstrap.servers = c1:9092\n" + lines)

    assert {it.flow.source: it.group_id for it in settings.flows if it.is_enabled} == expected


def test_a_node_s_own_name_is_no_difference_to_others(config: ConfigFile) -> None:
    """Each node has another `group.instance.id`; nodes that copy side by side have no use for one."""
    named, other = (config.load(f"B.group.instance.id = node-{number}\n") for number in (1, 2))
    warning = config.load("B.group.instance.id = node-1\ncopy.on.second.node = warn\n")
    flow = named.flows[0].flow

    assert [it.flows[0].worker.instance for it in (named, other, warning)] == ["node-1", "node-2", ""]
    assert node_settings(named.effective, flow) == node_settings(other.effective, flow)
    with pytest.raises(ConfigError, match=r"cannot be a group\.instance\.id"):
        config.load("B.group.instance.id = my node\n")
