"""A connector of Mirus becomes a flow that does what Mirus does, or says what to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import ConfigError, MirrorSettings
from mm2py.connectors.plugins import remote_names_of, selected_topics
from mm2py.herder.replication_loops import judged
from tests.support.config_files import only_flow, refusals_of


Load = Callable[..., MirrorSettings]

_CONVERTERS = "org.apache.kafka.connect.converters.ByteArrayConverter"
WORKER = f"""\
bootstrap.servers = target:9092
group.id = mirus-quickstart
key.converter = {_CONVERTERS}
key.converter.schemas.enable = false
value.converter = {_CONVERTERS}
internal.key.converter = org.apache.kafka.connect.json.JsonConverter
config.storage.topic = mirus-config
offset.storage.topic = mirus-offsets
offset.storage.replication.factor = 1
mirus.task.auto.restart.enabled = true
"""
CONNECTOR = """\
name = mirus-source
connector.class = com.salesforce.mirus.MirusSourceConnector
consumer.bootstrap.servers = source:9092
consumer.client.id = mirus
topics.whitelist = test
"""
#: A suffix, and a router that removes it again.
ROUTER = """\
destination.topic.name.suffix = .mirror
transforms = r
transforms.r.type = org.apache.kafka.connect.transforms.RegexRouter
transforms.r.regex = (.*).mirror
transforms.r.replacement = eu-$1
"""
#: As Mirus's quickstart posts it.
QUICKSTART = """\
{
    "name": "mirus-quickstart-source",
    "connector.class": "com.salesforce.mirus.MirusSourceConnector",
    "tasks.max": "5",
    "topics.whitelist": "test",
    "destination.topic.name.suffix": ".mirror",
    "destination.consumer.bootstrap.servers": "localhost:9092",
    "consumer.bootstrap.servers": "localhost:9092",
    "consumer.client.id": "mirus-quickstart",
    "consumer.key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "consumer.value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer"
}
"""


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a worker's and a connector's file and load them."""

    def write_and_load(connector: str = CONNECTOR, worker: str = WORKER, name: str = "mirus.properties") -> object:
        (tmp_path / "worker.properties").write_text(worker)
        (tmp_path / name).write_text(connector)
        return standalone_settings(tmp_path / "worker.properties", [tmp_path / name])

    return write_and_load  # type: ignore[return-value]


def test_a_connector_is_a_flow(load: Load) -> None:
    """It is called after the connector, keeps names, and does nothing that Mirus does not do."""
    flow = only_flow(load())

    assert str(flow.flow) == "mirus-source->target"
    assert (flow.source.bootstrap_servers, flow.target.bootstrap_servers) == (("source:9092",), ("target:9092",))
    assert (flow.source.client_id, flow.is_enabled, remote_names_of(flow.source_connector)("a.b")) == (
        "mirus",
        True,
        "a.b",
    )
    assert flow.source_connector.topics.refresh_interval_s == 60.0
    assert not any(
        (
            flow.heartbeat_connector.is_emitted,
            flow.checkpoint_connector.is_emitted,
            flow.source_connector.offset_syncs.is_emitted,
        )
    )
    assert not any(
        (
            flow.source_connector.topic_sync.configs_enabled,
            flow.source_connector.topic_sync.acls_enabled,
            flow.source_connector.topics.heartbeats_enabled,
        )
    )
    assert (flow.source_connector.offset_storage.topic, flow.source_connector.offset_storage.replication_factor) == (
        "mm2-offsets.mirus-source.internal",
        1,
    )


@pytest.mark.parametrize(
    ("lines", "topics"),
    [
        ("topics.whitelist = a.b, c", (r"a\.b", "c")),
        ("topics.regex = log-[0-9]{1\\,3}", ("log-[0-9]{1,3}",)),
        ("topics.regex.list = a.*, ^b$", ("a.*", "^b$")),
        ("topics.whitelist = x.y\ntopics.regex = a.*", (r"x\.y", "a.*")),
        ("topics.regex =", ()),
    ],
)
def test_any_of_three_ways_selects_a_topic(load: Load, lines: str, topics: tuple[str, ...]) -> None:
    """Names are names: their dots match dots alone. Without any, nothing is mirrored, as with Mirus."""
    flow = only_flow(load(CONNECTOR.replace("topics.whitelist = test", lines)))

    assert flow.source_connector.topics.names == topics


def test_whatever_is_selected_keeps_its_name(load: Load) -> None:
    """Mirus leaves out no name, and knows no heartbeats: such topics are topics like any other."""
    names = ("heartbeats", "device-heartbeats", "target.heartbeats", "orders.replica")
    flow = only_flow(load(CONNECTOR.replace("= test", f"= {', '.join(names)}")))

    assert selected_topics(flow.source_connector, dict.fromkeys((*names, "other"), 1)).remote_of == dict(
        zip(names, names, strict=True)
    )


def test_what_the_target_lacks_is_replicated_as_its_brokers_say(load: Load) -> None:
    """As topics are that they create by themselves, unless the connector's file says otherwise."""
    assert only_flow(load()).source_connector.topics.replication_factor == -1
    assert only_flow(load(CONNECTOR + "replication.factor = 3\n")).source_connector.topics.replication_factor == 3


def test_no_topic_at_all_is_noted(load: Load) -> None:
    """A connector that selects nothing runs, and says so."""
    settings = load(CONNECTOR.replace("topics.whitelist = test\n", ""))

    assert any("no topic is named, so nothing is mirrored" in note.message for note in settings.notes)


def test_the_monitor_s_interval_is_that_of_new_topics(load: Load) -> None:
    """Milliseconds become seconds, at least one; what is no number is a problem of its own line."""
    connector = CONNECTOR + "monitor.poll.wait.ms = {}\n"

    assert only_flow(load(connector.format(90_500))).source_connector.topics.refresh_interval_s == 90.0
    assert only_flow(load(connector.format(100))).source_connector.topics.refresh_interval_s == 1.0
    assert refusals_of(load, connector.format("often")) == [
        "mirus.properties:6: monitor.poll.wait.ms: expected a whole number, found 'often'"
    ]


def test_what_means_nothing_here_is_noted_with_what_does(load: Load) -> None:
    """Keys of Mirus are named with their lines, in either file."""
    settings = load(CONNECTOR + "replay.policy = FILTER\ndestination.bootstrap.servers = target:9092\n")
    notes = [str(note) for note in settings.notes]

    assert "mirus.properties:6: replay.policy: a key of another mirror, ignored (nothing is copied twice)" in notes
    assert any(note.startswith("mirus.properties:7: destination.bootstrap.servers: without effect") for note in notes)
    assert any(note.startswith("worker.properties:8: offset.storage.topic: without effect") for note in notes)
    assert any(note.startswith("worker.properties:10: mirus.task.auto.restart.enabled: a key of an") for note in notes)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("plugin.path = /x", "has no effect in a connector (write it in the worker's file)"),
        ("security.protocol = SSL", (
         "has no effect in a connector (for the source, write consumer.security.protocol; for the target, write it "
         "in the worker's file)")),
        ("log.level = debug",
         "a setting of the whole process, ignored in a connector as in Connect (write it in the worker's file)"),
    ],
)  # fmt: skip
def test_what_no_connector_has_belongs_elsewhere(load: Load, line: str, note: str) -> None:
    """The hint is about lines of these files, not of an mm2.properties."""
    assert f"mirus.properties:6: {line.partition(' ')[0]}: {note}" in map(str, load(CONNECTOR + line).notes)


def test_the_quickstart_runs_as_it_is(load: Load) -> None:
    """It mirrors a topic of a cluster to another one beside it."""
    settings = judged(load(QUICKSTART, WORKER.replace("target:", "localhost:"), name="quickstart.json"))
    flow = only_flow(settings)

    assert (flow.source_connector.copying.tasks_max, flow.source_connector.topics.names) == (5, ("test",))
    assert remote_names_of(flow.source_connector)("test") == "test.mirror"
    assert not [note for note in settings.notes if "destination.topic" in note.key or "one cluster" in note.message]


def test_a_prefix_and_a_policy_of_one_s_own_go_together(load: Load) -> None:
    """Whatever class names remote topics, what Mirus adds is added."""
    lines = "destination.topic.name.prefix = eu-\nreplication.policy.class = default\n"

    assert remote_names_of(only_flow(load(CONNECTOR + lines)).source_connector)("test") == "mirus-source.eu-test"


def test_a_router_sees_a_prefix_and_a_suffix(load: Load) -> None:
    """Mirus's task adds them to the name before the transforms run."""
    assert remote_names_of(only_flow(load(CONNECTOR + ROUTER)).source_connector)("test") == "eu-test"


@pytest.mark.parametrize(
    ("connector", "refusal"),
    [
        (CONNECTOR + "destination.topic.name.suffix = /copy\n",
         ":6: destination.topic.name.suffix: '/copy' cannot be part of a topic's name"),
        (CONNECTOR + "source.value.converter = org.example.Avro\n",
         ":6: source.value.converter: org.example.Avro would change records"),
        (CONNECTOR.replace("name = mirus-source\n", ""),
         ": name: missing: positions are stored under the connector's name"),
        (CONNECTOR.replace("name = mirus-source\n", "name = target\n"),
         ":1: name: source and target are both called target (give each its own name)"),
        (CONNECTOR.replace("name = mirus-source\n", "name = a,b\n"),
         ":1: name: a,b is the name of a cluster here, and has a comma"),
        (CONNECTOR.replace("consumer.bootstrap.servers = source:9092\n", ""),
         ": consumer.bootstrap.servers: missing: the brokers of mirus-source"),
    ],
    ids=["no topic's name", "a converter that changes records", "no name", "the target's name", "a name with a comma",
         "no source"],
)  # fmt: skip
def test_what_cannot_be_a_flow_is_refused(load: Load, connector: str, refusal: str) -> None:
    """At the user's own line: where to read, and under which name positions are kept, are needed."""
    (problem,) = refusals_of(load, connector)

    assert problem.startswith(f"mirus.properties{refusal}")


def test_topics_are_not_copied_into_themselves(load: Load) -> None:
    """With names kept, a source that is the target would grow without end."""
    with pytest.raises(ConfigError, match="mirus-source->target would feed itself without end"):
        judged(load(CONNECTOR.replace("source:9092", "other:9092, target:9092")))
