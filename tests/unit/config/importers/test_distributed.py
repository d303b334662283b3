"""A distributed worker's file and the connectors of its topic become flows; secrets are masked, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mm2py.config.connectors import combined, read_part, worker_settings
from mm2py.config.explain import masked, unmasked
from mm2py.config.importers.connect import Connector, classify
from mm2py.config.importers.lines import parsed, read_worker
from mm2py.config.problem import Problem
from mm2py.config.settings import MirrorSettings
from mm2py.config.worker import WorkerConfig
from tests.support.config_files import problems_of


Load = Callable[..., MirrorSettings]

WORKER = """\
bootstrap.servers = t:9092
group.id = connect
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
config.storage.topic = configs
offset.storage.topic = offsets
offset.storage.replication.factor = 1
status.storage.topic = statuses
status.storage.replication.factor = 1
"""
SOURCE = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "west",
    "target.cluster.alias": "east",
    "source.cluster.bootstrap.servers": "w:9092",
    "topics": "orders",
}
MIRUS = {
    "connector.class": "com.salesforce.mirus.MirusSourceConnector",
    "consumer.bootstrap.servers": "m:9092",
    "topics.whitelist": "test",
    "replication.factor": "2",
}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a worker's file and load it with connectors."""

    def write_and_load(
        connectors: Mapping[str, Mapping[str, str]] | None = None, worker: str = WORKER, **overrides: str
    ) -> MirrorSettings:
        path = tmp_path / "worker.properties"
        path.write_text(worker)
        found = read_worker(path, {key.replace("_", "."): value for key, value in overrides.items()})
        named = {found.name: path}
        ours = [
            one for name, it in (connectors or {}).items() if isinstance(one := classify(parsed(name, it)), Connector)
        ]
        alone = worker_settings(found, named, is_distributed=True)
        parts = [read_part(one, found, named, ours, is_distributed=True) for one in ours]
        return combined(alone, parts, group=found.entries["group.id"].value)

    return write_and_load


def test_a_worker_may_have_no_connector(load: Load) -> None:
    """There is no flow then, and one cluster: the target."""
    settings = load()

    assert settings.flows == ()
    assert {alias: end.bootstrap_servers for alias, end in settings.clusters.items()} == {"target": ("t:9092",)}


def test_no_note_is_about_a_line_that_no_user_wrote(load: Load) -> None:
    """The flow's group and transactional ids are the import's own; what is unknown of the user's is named once."""
    (note,) = load({"us-west": {**SOURCE, "one": "1", "two": "2"}}).notes

    assert str(note) == "unknown key, ignored: one (us-west), two (us-west)"


def test_the_worker_is_in_its_group_as_its_file_says(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever flows it has; references are replaced as everywhere."""
    monkeypatch.setenv("MIRROR_GROUP", "mirrors")
    lines = "group.id = ${env:MIRROR_GROUP}\nconfig.providers = env\nsession.timeout.ms = 9000\n"
    found = load({"us-west": SOURCE, "mirus": MIRUS}, WORKER + lines)
    alone = load(None, WORKER + lines)

    assert found.worker == alone.worker == WorkerConfig("mirrors", session_ms=9_000)
    assert {flow.group_id for flow in found.flows} == {"mirrors-west", "mirrors-mirus"}
    assert not load(copy_on_second_node="warn").worker.refuses


def test_all_flows_share_the_worker_s_topics(load: Load) -> None:
    """Positions lie in the worker's topic, whatever a connector's topics need; each flow has a group of its own."""
    settings = load({"us-west": SOURCE, "mirus": MIRUS})

    flows = {str(flow.flow): flow for flow in settings.flows}
    assert set(flows) == {"west->east", "mirus->target"}
    for flow in flows.values():
        assert (
            flow.source_connector.offset_storage.topic,
            flow.source_connector.offset_storage.replication_factor,
        ) == ("offsets", 1)
        assert (flow.worker.config_storage.topic, flow.worker.config_storage.replication_factor) == ("configs", 3)
        assert flow.target.bootstrap_servers == ("t:9092",)
    assert {alias: end.bootstrap_servers for alias, end in settings.clusters.items()} == {
        "west": ("w:9092",), "east": ("t:9092",), "mirus": ("m:9092",), "target": ("t:9092",)
    }  # fmt: skip
    assert {name: flow.group_id for name, flow in flows.items()} == {
        "west->east": "connect-west",
        "mirus->target": "connect-mirus",
    }


def test_another_connector_changes_nothing_of_a_flow(load: Load) -> None:
    """So the flows of other connectors continue undisturbed."""
    alone, together = load({"us-west": SOURCE}), load({"mirus": MIRUS, "us-west": SOURCE})

    assert alone.flows[0] in together.flows


def test_required_keys_are_those_of_connect(load: Load) -> None:
    """Each is named."""
    problems = problems_of(load, worker="tasks.max = 1\n")

    missing = [problem.key for problem in problems if problem.message.startswith("missing")]
    assert missing == [
        "bootstrap.servers",
        "group.id",
        "config.storage.topic",
        "offset.storage.topic",
        "status.storage.topic",
    ]


def test_an_override_is_a_line_of_the_worker(load: Load) -> None:
    """As in Mirus, whose start script sets `rest.port`."""
    settings = load({"us-west": SOURCE}, offset_storage_topic="others", rest_port="8084")

    assert settings.flows[0].source_connector.offset_storage.topic == "others"
    assert [str(listener) for listener in settings.rest.listeners] == ["http://127.0.0.1:8084"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", "http://:8083"),
        ("rest.auth.anonymous", "write"),
        ("spark.master", "local[1]"),
        ("log.level", "DEBUG"),
        ("ssl.client.auth", "want"),
        ("config.providers", "file"),
        ("config.providers.file.class", "no.such.Provider"),
    ],
)
def test_a_connector_cannot_change_the_process(load: Load, key: str, value: str) -> None:
    """It would change it for all others; as in Connect, the connector runs without the line, whatever that says."""
    plain, settings = load({"us-west": SOURCE}), load({"us-west": {**SOURCE, key: value}})

    assert (settings.flows, settings.rest, settings.spark) == (plain.flows, plain.rest, plain.spark)
    assert set(settings.notes) - set(plain.notes) == {
        Problem(
            "us-west",
            key,
            "a setting of the whole process, ignored in a connector as in Connect",
            "write it in the worker's file",
        )
    }


_SECRETS = {
    "source.cluster.sasl.jaas.config": "password=x",
    "source.consumer.ssl.key.password": "x",
    "target.cluster.ssl.keystore.password": "x",
    "producer.override.sasl.jaas.config": "x",
    "transforms.mask.password": "x",
    "source.cluster.sasl.oauthbearer.assertion.private.key.passphrase": "x",
    "source.cluster.ssl.engine.secret": "x",
}
#: Java's alone, but known not to be secret.
_PLAIN = {
    "source.cluster.ssl.protocol": "TLSv1.3",
    "target.cluster.sasl.login.class": "c",
    "producer.override.sasl.oauthbearer.assertion.private.key.file": "/k.pem",
}


def test_secrets_are_masked_and_kept() -> None:
    """What is shown may be put back. References are no secrets, nor is what Java alone uses if it is known."""
    config = {**SOURCE, **_SECRETS, **_PLAIN, "consumer.ssl.truststore.password": "${file:/x:y}", "key.converter": "c"}

    shown = masked(config)
    assert {key for key, value in shown.items() if value == "***"} == set(_SECRETS)
    assert unmasked(shown, config) == (config, ())
    assert unmasked({**shown, "topics": "more"}, config) == ({**config, "topics": "more"}, ())


def test_a_mask_without_a_secret_is_found() -> None:
    """It must not become the secret."""
    given, lost = unmasked({"source.cluster.sasl.jaas.config": "***", "topics": "***"}, SOURCE)

    assert lost == ("source.cluster.sasl.jaas.config",)
    assert given["topics"] == "***"
