"""MirrorMaker 1's command line and its two files become one flow, or all that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.importers.mirror_maker_1 import LegacyOptions, import_legacy
from mm2py.config.settings import MirrorSettings, import_settings
from mm2py.connectors.plugins import selected_topics
from tests.support.config_files import only_flow, problems_of, refusals_of


Load = Callable[..., MirrorSettings]

CONSUMER = """\
bootstrap.servers = source:9092
group.id = mirror-group
auto.offset.reset = earliest
"""
PRODUCER = """\
bootstrap.servers = target:9092
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write the two files and load them with options of the command line."""

    def write_and_load(consumer: str = CONSUMER, producer: str = PRODUCER, **options: object) -> MirrorSettings:
        files = tmp_path / "consumer.properties", tmp_path / "producer.properties"
        for file, text in zip(files, (consumer, producer), strict=True):
            file.write_text(text)
        line = LegacyOptions(*files, **{"include": "orders", **options})  # type: ignore[arg-type]
        return import_settings(import_legacy(line))

    return write_and_load


def test_two_files_and_a_topic_are_a_flow(load: Load) -> None:
    """The flow is called after the group, keeps names, and reaches the clusters that the two files name."""
    settings = load()
    flow = only_flow(settings)

    assert str(flow.flow) == "mirror-group->target"
    assert flow.is_enabled
    assert (flow.source.bootstrap_servers, flow.target.bootstrap_servers) == (("source:9092",), ("target:9092",))
    assert flow.source_connector.topics.names == ("orders",)
    assert flow.source_connector.offset_storage.topic == "mm2-offsets.mirror-group.internal"
    assert set(settings.clusters) == {"mirror-group", "target"}


def test_the_mirror_begins_where_the_group_stands(load: Load) -> None:
    """A partition without a position starts at the group's offset, else as auto.offset.reset says; that is noted."""
    settings = load()
    flow = only_flow(settings)

    assert (flow.source_connector.copying.start_group, flow.source_connector.copying.auto_offset_reset) == (
        "mirror-group",
        "earliest",
    )
    assert "consumer.properties:2: group.id: the mirror starts at this group's committed" in str(settings.notes[0])


def test_a_consumer_begins_at_the_end_unless_told_otherwise(load: Load) -> None:
    """Without auto.offset.reset the first MirrorMaker's consumer skips what is there; so does the flow, and says so."""
    settings = load(CONSUMER.replace("auto.offset.reset = earliest\n", ""))

    assert only_flow(settings).source_connector.copying.auto_offset_reset == "latest"
    assert any(note.key == "auto.offset.reset" and "from their end" in note.message for note in settings.notes)


def test_new_features_are_off(load: Load) -> None:
    """Nothing is written but records, positions and what copying needs; brokers say how often topics are replicated."""
    flow = only_flow(load())

    assert not flow.heartbeat_connector.is_emitted
    assert not flow.source_connector.topics.heartbeats_enabled
    assert not flow.checkpoint_connector.is_emitted
    assert not flow.source_connector.offset_syncs.is_emitted
    assert not flow.source_connector.topic_sync.configs_enabled
    assert not flow.source_connector.topic_sync.acls_enabled
    assert (
        flow.source_connector.topics.replication_factor,
        flow.source_connector.offset_storage.replication_factor,
    ) == (-1, -1)
    assert "__consumer_offsets" in flow.source_connector.topics.exclude


def test_whatever_is_selected_keeps_its_name(load: Load) -> None:
    """MirrorMaker 1 knows no heartbeats: such topics are topics like any other."""
    flow = only_flow(load(include=".*heartbeats|orders"))

    names = ("device-heartbeats", "heartbeats", "orders", "target.heartbeats")
    assert selected_topics(flow.source_connector, dict.fromkeys((*names, "other"), 1)).remote_of == dict(
        zip(names, names, strict=True)
    )


def test_each_client_gets_its_own_settings(load: Load) -> None:
    """How a cluster is reached and how its client works come from that client's file alone."""
    consumer = CONSUMER + "security.protocol = SSL\nfetch.min.bytes = 7\nmetadata.max.age.ms = 30500\n"
    producer = PRODUCER + (
        "security.protocol = SASL_PLAINTEXT\nsasl.mechanism = PLAIN\n"
        "sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="p";\n'
        "max.request.size = 70000\nclient.id = writer\n"
    )
    flow = only_flow(load(consumer, producer))

    assert (flow.source.security.protocol, flow.target.security.protocol) == ("SSL", "SASL_PLAINTEXT")
    assert (flow.source_connector.limits.fetch_min_bytes, flow.source_connector.limits.produce_request_max_bytes) == (
        7,
        70000,
    )
    assert (flow.source.client_id, flow.target.client_id) == ("mirror-group->target", "writer")
    assert flow.source_connector.topics.refresh_interval_s == 30.0


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("orders,clicks", "orders|clicks"),
        (" 'orders, clicks.*' ", "orders|clicks.*"),
        ("a|b", "a|b"),
        (".*", ".*"),
    ],
)
def test_topics_are_read_as_the_first_mirror_maker_does(load: Load, written: str, read: str) -> None:
    """A comma is a bar, blanks and outer quotes are nothing."""
    assert only_flow(load(include=written)).source_connector.topics.names == (read,)


def test_every_option_counts(load: Load) -> None:
    """Streams are copy tasks, the commit interval is that of positions; the rest is accepted and explained."""
    settings = load(
        include_option="--whitelist",
        num_streams="4",
        offset_commit_interval_ms="5000",
        abort_on_send_failure="false",
        consumer_rebalance_listener="com.example.Listener",
        source_alias="west",
    )
    flow = only_flow(settings)
    noted = {note.key for note in settings.notes}

    assert (
        flow.source_connector.copying.tasks_max,
        flow.source_connector.copying.offset_flush_interval_ms,
        str(flow.flow),
    ) == (4, 5000, "west->target")
    assert noted >= {"--whitelist", "--abort.on.send.failure", "--consumer.rebalance.listener"}


def test_what_is_set_for_consumer_and_producer_themselves_is_one_note(load: Load) -> None:
    """Serializers, assignors and commits are named together, with their lines."""
    settings = load(
        CONSUMER + "partition.assignment.strategy = x\nkey.deserializer = y\n", PRODUCER + "key.serializer = z\n"
    )

    (note,) = [note.message for note in settings.notes if note.message.startswith("without effect, records")]
    assert "partition.assignment.strategy (consumer.properties:4)" in note
    assert "key.serializer (producer.properties:2)" in note


def test_what_counts_knows_the_file_and_line_of_each_key(load: Load) -> None:
    """--explain shows each value with the file, the line and the key that the user wrote."""
    settings = load(CONSUMER + "fetch.min.bytes = 7\n", num_streams="2")
    origins = {row.key: row.origin for row in settings.effective if row.owner}

    assert origins["consumer.fetch.min.bytes"] == "consumer.properties:4, fetch.min.bytes"
    assert origins["tasks.max"] == "kafka-mirror-maker, --num.streams"


def test_all_problems_come_at_once_in_the_order_of_the_files(load: Load) -> None:
    """Missing keys and values that cannot be read are named with file, line and the key as it is written."""
    problems = refusals_of(
        load, "fetch.min.bytes = many\n", "max.request.size = x\nbootstrap.servers = nowhere\n", num_streams="two"
    )

    assert [problem.partition(" (")[0] for problem in problems] == [
        "kafka-mirror-maker: --num.streams: expected a whole number, found 'two'",
        "consumer.properties: bootstrap.servers: missing: the brokers of the source",
        (
            "consumer.properties: group.id: missing: the consumer group of MirrorMaker 1, at whose offsets the mirror "
            "starts"
        ),
        "consumer.properties:1: fetch.min.bytes: expected a whole number, found 'many'",
        "producer.properties:1: max.request.size: expected a whole number, found 'x'",
        "producer.properties:2: bootstrap.servers: 'nowhere' is not of the form host:port",
    ]
    assert problems[-1].endswith("(write bootstrap.servers = host1:9092, host2:9092)")


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    """Each missing file is one problem, and nothing follows from it."""
    options = LegacyOptions(tmp_path / "c.properties", tmp_path / "p.properties", "orders")
    problems = problems_of(lambda: import_settings(import_legacy(options)))

    assert [problem.message for problem in problems] == ["cannot be read: No such file or directory"] * 2


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"message_handler": "com.example.Handler"}, "--message.handler"),
        ({"include": " "}, "--include"),
        ({"include": "a{1"}, "--include"),
        ({"source_alias": "a b"}, "--source.alias"),
        ({"source_alias": "target"}, "--source.alias"),
    ],
)
def test_options_that_will_not_do_are_refused(load: Load, options: dict[str, str], key: str) -> None:
    """What would change what the target gets, or cannot be read, is refused by its option."""
    (problem,) = refusals_of(load, **options)

    assert problem.startswith(f"kafka-mirror-maker: {key}: ")


def test_a_cluster_is_not_mirrored_into_itself(load: Load) -> None:
    """With names kept, the same brokers on both sides would feed a topic from itself."""
    (problem,) = refusals_of(load, CONSUMER, CONSUMER)

    assert problem.startswith("producer.properties:1: bootstrap.servers: the same brokers as in consumer.properties")


def test_a_group_that_names_no_topic_needs_an_alias(load: Load) -> None:
    """Positions are kept under the group's name; one that can be in no topic's name asks for --source.alias."""
    consumer = CONSUMER.replace("mirror-group", "mirror group!")
    (problem,) = refusals_of(load, consumer)

    assert problem.startswith(
        "consumer.properties:2: group.id: positions cannot be stored under the name 'mirror group!'"
    )
    assert only_flow(load(consumer, source_alias="west")).source_connector.copying.start_group == "mirror group!"
