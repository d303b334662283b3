"""What a file means is what Kafka's own MirrorMaker classes make of it: flows, workers, connectors and clients."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs
import pytest

from mm2py.config.keys.row import LineLevel, Place
from mm2py.config.keys.table import find_key, key_named
from mm2py.config.layers import Layers, Side, is_client_key, lines_of, of_client, of_producer, spellings
from mm2py.config.properties import parse_bytes
from mm2py.config.resolve import FlowReader, running_flows
from mm2py.model.flow import Flow
from tests.support.config_files import BASE
from tests.support.java_maps import JavaMaps, inherited_keys, java_maps
from tests.support.kafka_merges import (
    CLIENT_KEYS,
    CONNECTOR_KEYS,
    client_config,
    connector_config,
    producer_config,
    worker_config,
)


#: What Java fills in by itself, and so says nothing about the file.
_FILLED_IN = {
    "client.id",
    "enable.auto.commit",
    "auto.offset.reset",
    "metrics.context.connect.group.id",
    "metrics.context.connect.kafka.cluster.id",
    "key.serializer",
    "value.serializer",
    "max.block.ms",
    "enable.idempotence",
    "acks",
    "max.in.flight.requests.per.connection",
    "delivery.timeout.ms",
}
_FILLED_IN_BY_DRIVER = {
    "name", "connector.class", "client.id", "group.id", "offset.storage.topic", "status.storage.topic",
    "config.storage.topic", "key.converter", "value.converter", "header.converter", "enabled",
}  # fmt: skip
#: The clients of a flow whose settings count, by their names in the Java program.
_CLIENTS: Mapping[str, Callable[[str, Flow], tuple[str, ...]]] = {
    "sourceConsumer": lambda name, flow: of_client(name, flow, Side.SOURCE, "consumer"),
    "sourceAdmin": lambda name, flow: of_client(name, flow, Side.SOURCE, "admin"),
    "targetAdmin": lambda name, flow: of_client(name, flow, Side.TARGET, "admin"),
    # The last two go beyond Java.
    "dataProducer": lambda name, flow: of_producer(name, flow)[:-2],
}
_WORKER = (Place.WORKER, Place.WORKER_TOP)
_FILLED_IN_BY_FLOW = {"name", "connector.class", "source.cluster.alias", "target.cluster.alias"}


#: Every prefix that may stand before a setting of a client: those that count and those that do not.
_PREFIXES = (
    "", "consumer.", "producer.", "admin.", "A.", "B.",
    "A.consumer.", "A.producer.", "A.admin.", "B.consumer.", "B.producer.", "B.admin.",
    "A->B.", "A->B.consumer.", "A->B.producer.", "A->B.admin.", "A->B.producer.override.",
    "A->B.consumer.override.", "A->B.source.cluster.", "A->B.target.cluster.", "A->B.source.consumer.",
    "A->B.source.producer.", "A->B.source.admin.", "A->B.target.consumer.", "A->B.target.producer.",
    "A->B.target.admin.",
    "B->A.consumer.", "B->A.producer.override.", "source.cluster.", "target.cluster.", "source.consumer.",
)  # fmt: skip
#: Client keys, which are inherited, and others, which are not; values by kind, so that Java takes them all.
_CLIENT_SETTINGS = {
    "bootstrap.servers": ("c:1", "SASL_SSL://d:2", "e:3", "f:4"),
    "security.protocol": ("SSL", "ssl", "SASL_SSL", "PLAINTEXT"),
    "ssl.keystore.type": ("PEM", "JKS", "PKCS12", "x"),
    "sasl.mechanism": ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "y"),
    "request.timeout.ms": ("1", "2", "3", "4"),
    "metadata.max.age.ms": ("5", "6", "7", "8"),
    "max.request.size": ("9", "10", "11", "12"),
    "fetch.min.bytes": ("13", "14", "15", "16"),
    "client.id": ("one", "two", "three", "four"),
}
_FLOW_SETTINGS = {
    "tasks.max": ("1", "2", "33"),
    "topics": ("a, b", "x.*", ""),
    "topics.exclude": ("c, d, c", "mm2.*", ""),
    "groups": ("g1,g2", ".*", ""),
    "replication.factor": ("-1", "3", "4"),
    "replication.policy.separator": ("_", "-", ""),
    "refresh.topics.interval.seconds": ("5", "0", "-7"),
    "sync.topic.acls.enabled": ("false", "TRUE", " true"),
    "emit.heartbeats.enabled": ("false", "true", "False"),
    "emit.checkpoints.interval.seconds": ("0", "9", "-10"),
    "offset-syncs.topic.location": ("source", "target", "source"),
    "offset.lag.max": ("0", "1", "2"),
    "enabled": ("true", "false", "True"),
}
_WORKER_SETTINGS = {
    "offset.storage.topic": ("one", "two"),
    "offset.storage.replication.factor": ("1", "2"),
    "offset.flush.interval.ms": ("7", "8"),
    "task.shutdown.graceful.timeout.ms": ("9", "10"),
    "worker.sync.timeout.ms": ("11", "12"),
    "group.id": ("g", "h"),
    "client.id": ("c", "d"),
    "exactly.once.source.support": ("enabled", "disabled"),
}
_LEVELS = ("", "A.", "B.", "A->B.", "B->A.")


#: Files in which keys begin with ``ssl.`` that no client of Java's has: here they are inherited like the others.
_MORE_IS_INHERITED = {"merge-odd.properties", "merge-odd-top.properties", "merge-words.properties"}

#: Where we differ on purpose (docs/compatibility.md says why); the files are compared apart.
BLANK_BEHIND_TRUE = """\
clusters = A, B, C
bootstrap.servers = x:1
emit.heartbeats.enabled = false
A->B.enabled = true\\u0020
B->C.enabled = true
"""


def settings_files() -> dict[str, str]:
    """Return the files by name; the same ones each time."""
    files = {"plain": BASE, "only-clusters": "clusters = A, B\n", **_pairs(), **_merges()}
    files |= {**_clashes(), **_levels(), **_drawn()}
    return {f"{name}.properties": text for name, text in files.items()}


def _pairs() -> dict[str, str]:
    three = "clusters = A, B, C\nbootstrap.servers = x:1\n"
    return {
        "pairs-default": three,
        "pairs-enabled": three + "A->B.enabled = true\n",
        "pairs-heartbeats-off": three + "emit.heartbeats.enabled = false\nA->B.enabled = TRUE\nB->A.enabled = false\n",
        "pairs-one-heartbeat": three + "emit.heartbeats.enabled = false\nC->A.emit.heartbeats.enabled = true\n",
        "pairs-one-off": three + "A->B.emit.heartbeats.enabled = false\nA->C.emit.heartbeats.enabled = FALSE\n",
        "pairs-top-level": three + "enabled = true\nemit.heartbeats.enabled = false\nB->C.enabled = true\n",
        "pairs-dotted": "clusters = us.west, us\nus.west.bootstrap.servers = w:1\nus.bootstrap.servers = u:1\n",
    }


def _merges() -> dict[str, str]:
    """Set what only the merges of whole maps show: keys that no table has, beside what decides where keys go."""
    odd = ("foo", "consumer", "consumerx", "producer.x", "adminx", "ssl.foo", "sasl.foo", "topicsx", "task", "taskx.y")
    odd += ("worker", "workers.x", "offset.storage", "offset.storagex", "key.converter.x", "replication.policy.x")
    odd += ("config.providersx", "source.cluster.foo", "target.cluster.foo", "producer.override.foo", "status.storage")
    identity = ("name", "connector.class", "source.cluster.alias", "target.cluster.alias", "tasks.max", "client.id")
    kind = "org.apache.kafka.connect.storage"
    providers = "config.providers = env\nconfig.providers.env.class = {}.EnvVarConfigProvider\n"
    provided = providers.format("org.apache.kafka.common.config.provider")
    return {
        "merge-odd": BASE + "".join(f"{level}{key} = {level}1\n" for level in _LEVELS for key in odd) + "A. = 1\n",
        "merge-odd-top": BASE + "".join(f"{key} = 1\n" for key in odd),
        "merge-identity-top": BASE + "".join(f"{key} = 1\n" for key in identity),
        "merge-identity-pair": BASE + "".join(f"A->B.{key} = 2\n" for key in identity),
        "merge-identity-cluster": BASE + "".join(f"A.{key} = 3\nB.{key} = 4\n" for key in identity if key != "name"),
        "merge-providers": BASE + provided + "A.config.providers = x\nA->B.config.providers.y = z\n",
        "merge-converters": BASE
        + f"key.converter = {kind}.StringConverter\nB.key.converter = {kind}.SimpleHeaderConverter\n",
        "merge-nested": "clusters = a, a.b, a.b.c\nbootstrap.servers = y:1\na.b.c.bootstrap.servers = x:1\n"
        "a.ssl.protocol = s\na.b.ssl.provider = p\n",
        "merge-words": "clusters = source, consumer, ssl\nbootstrap.servers = y:1\nconsumer.ssl.protocol = s\n"
        "source.cluster.ssl.provider = p\nssl.consumer.ssl.provider = q\nconsumer.consumer.ssl.provider = r\n",
        "merge-values": BASE + "A.ssl.key.password =   two words  \nA->B.topics = \\u00e9,\\ b\nB.sasl.jaas.config =\n",
    }


def _clashes() -> dict[str, str]:
    """Set one key of each kind behind every two prefixes at once, so that each meets each other one."""
    files: dict[str, str] = {}
    for setting in ("security.protocol", "request.timeout.ms"):
        values = _CLIENT_SETTINGS[setting]
        for number, (one, other) in enumerate(itertools.combinations(_PREFIXES, 2)):
            lines = f"{one}{setting} = {values[0]}\n{other}{setting} = {values[2]}\n"
            files[f"clash-{setting}-{number:03}"] = BASE + lines
    return files


def _levels() -> dict[str, str]:
    files: dict[str, str] = {}
    for setting, values in (_FLOW_SETTINGS | _WORKER_SETTINGS).items():
        for one, other in itertools.combinations(_LEVELS, 2):
            lines = f"{one}{setting} = {values[0]}\n{other}{setting} = {values[1]}\n"
            files[f"level-{setting}-{one or 'top'}-{other or 'top'}".replace(">", "")] = BASE + lines
    return files


def _drawn() -> dict[str, str]:
    files: dict[str, str] = {}
    for number in range(120):
        chance = random.Random(number)
        lines = [_line(chance, chance.choice(_PREFIXES), _CLIENT_SETTINGS) for _ in range(chance.randrange(1, 30))]
        lines += [
            _line(chance, chance.choice(_LEVELS), _FLOW_SETTINGS | _WORKER_SETTINGS)
            for _ in range(chance.randrange(12))
        ]
        chance.shuffle(lines)
        files[f"drawn-{number:03}"] = BASE + "".join(lines)
    return files


def _line(chance: random.Random, prefix: str, settings: dict[str, tuple[str, ...]]) -> str:
    setting = chance.choice(list(settings))
    return f"{prefix}{setting} = {chance.choice(settings[setting])}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write all files."""
    folder = tmp_path_factory.mktemp("settings")
    for name, text in settings_files().items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def by_java(folder: Path) -> Mapping[str, JavaMaps]:
    """Ask one Java process about all files."""
    return java_maps(folder)


_CONNECTORS = {
    "source": "MirrorSourceConnector",
    "checkpoint": "MirrorCheckpointConnector",
    "heartbeat": "MirrorHeartbeatConnector",
}


def test_a_file_s_configs_are_java_s_as_a_whole(folder: Path, by_java: Mapping[str, JavaMaps]) -> None:
    """Of each pair's worker and of its three connectors, each key and each value."""
    different = {}
    compared = 0
    for name, java in by_java.items():
        originals = _originals(folder, name)
        for pair, configs in java.configs.items():
            flow = Flow(*pair.split("->"))
            ours = {what: connector_config(originals, flow, kind) for what, kind in _CONNECTORS.items()}
            ours["worker"] = worker_config(originals, flow)
            compared += len(configs)
            different |= {
                f"{name} {pair} {what}": found
                for what, config in configs.items()
                if (found := _differences(ours[what], config, set()))
            }

    assert compared > 4_000
    assert different == {}


def test_clients_are_made_of_these_configs_as_in_java(folder: Path, by_java: Mapping[str, JavaMaps]) -> None:
    """But for what Java fills in by itself."""
    different = {}
    for name, java in by_java.items():
        for pair, configs in java.configs.items():
            ours = {
                "sourceConsumer": client_config(configs["source"], Side.SOURCE, "consumer"),
                "sourceAdmin": client_config(configs["source"], Side.SOURCE, "admin"),
                "targetAdmin": client_config(configs["source"], Side.TARGET, "admin"),
                "dataProducer": producer_config(configs["worker"], configs["source"]),
            }
            for what, config in ours.items() if not java.refusal else ():
                if what != "dataProducer":
                    config.pop("client.id", None)  # Java decorates it
                if found := _differences(config, java.maps[pair, what], _FILLED_IN):
                    different[f"{name} {pair} {what}"] = found

    assert different == {}


def test_what_is_inherited_is_known() -> None:
    """A new version of Kafka may have more of it."""
    assert inherited_keys() == {"client": CLIENT_KEYS, "connector": CONNECTOR_KEYS}


def _originals(folder: Path, name: str) -> dict[str, str]:
    return {line.key: line.text for line in _layers(folder, name).lines()}


def _layers(folder: Path, name: str) -> Layers:
    return Layers(lines_of(parse_bytes((folder / name).read_bytes(), name=name)), {})


def _client_settings(layers: Layers, flow: Flow, client: str) -> dict[str, str]:
    """Return all that *client* is configured with, by name."""
    parts = [line.key.split(".") for line in layers.lines()]
    names = {".".join(key[at:]) for key in parts for at in range(len(key))}
    lines = {name: layers.first(_CLIENTS[client](name, flow)) for name in names}
    return {name: line.text for name, line in lines.items() if line is not None}


def _differences(
    ours: Mapping[str, str], java: Mapping[str, str], filled_in: set[str]
) -> dict[str, tuple[object, object]]:
    """Compare two maps; what Java fills in counts only where the file sets it, too."""
    names = {name for name in {*ours, *java} if name in ours or name not in filled_in}
    return {name: (ours.get(name), java.get(name)) for name in names if ours.get(name) != java.get(name)}


def test_there_are_enough_files(by_java: Mapping[str, JavaMaps]) -> None:
    """The comparison covers hundreds of files, and Java takes nearly all of them."""
    refused = [name for name, java in by_java.items() if java.refusal]

    assert len(by_java) > 500
    assert len(refused) < len(by_java) / 10


def test_the_same_flows_run(folder: Path, by_java: Mapping[str, JavaMaps]) -> None:
    """A flow runs where Java would start a herder for it."""
    different = {}
    for name, java in by_java.items():
        flows = {str(flow) for flow in running_flows(_layers(folder, name))}
        if not java.refusal and flows != java.flows:
            different[name] = (flows, java.flows)

    assert different == {}


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_client_is_configured_as_java_s_is(folder: Path, by_java: Mapping[str, JavaMaps], client: str) -> None:
    """Each client of each flow sees the same settings, from whichever prefix they come."""
    different = {}
    for name, java in by_java.items():
        layers = _layers(folder, name)
        for flow in running_flows(layers):
            if java.refusal or name in _MORE_IS_INHERITED:
                continue
            ours = _client_settings(layers, flow, client)
            # Java decorates the name of every client but Connect's own.
            if client != "dataProducer":
                ours.pop("client.id", None)
            if found := _differences(ours, java.maps[str(flow), client], _FILLED_IN):
                different[f"{name} {flow}"] = found

    assert different == {}


def test_a_worker_s_values_are_java_s(folder: Path, by_java: Mapping[str, JavaMaps]) -> None:
    """Every key of the worker that the file sets has the value that Java's worker gets."""
    different: dict[str, object] = {}
    compared = 0
    for name, java in by_java.items():
        layers = _layers(folder, name)
        for flow in running_flows(layers) if not java.refusal else ():
            for key, text in java.maps[str(flow), "worker"].items():
                row = find_key(LineLevel.CLUSTER, key)
                if row is None or row.place not in _WORKER or row.stem is not None or key in _FILLED_IN_BY_DRIVER:
                    continue
                compared += 1
                if (line := layers.first(spellings(row, flow))) is None or line.text != text:
                    different[f"{name} {flow} {key}"] = (line, text)

    assert compared > 100
    assert different == {}


def test_a_flow_s_values_are_java_s(folder: Path, by_java: Mapping[str, JavaMaps]) -> None:
    """Every key of the connectors has Java's value, defaults included, as our own table reads it."""
    different: dict[str, object] = {}
    compared = 0
    for name, java in by_java.items():
        layers = _layers(folder, name)
        for flow in running_flows(layers) if not java.refusal else ():
            for key, text in java.maps[str(flow), "values"].items():
                row = find_key(LineLevel.FLOW, key)
                if row is None or row.place is not Place.FLOW or key in _FILLED_IN_BY_FLOW:
                    continue
                compared += 1
                ours = _written(FlowReader(layers, flow).read(row))
                if ours != text and not _is_unset(ours, text):
                    different[f"{name} {flow} {key}"] = (ours, text)

    assert compared > 10_000
    assert different == {}


def _written(value: object) -> str:
    """Write a value as the Java program does."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_unset(ours: str, java: str) -> bool:
    return (ours, java) == ("", "null")


@pytest.mark.parametrize(
    ("side", "what"), [(Side.SOURCE, "sourceConsumer"), (Side.TARGET, "dataProducer")], ids=["source", "target"]
)
def test_clusters_are_reached_as_java_reaches_them(
    folder: Path, by_java: Mapping[str, JavaMaps], side: Side, what: str
) -> None:
    """Brokers, protocol, TLS and SASL of the connections that copy are those of Java's consumer and producer."""
    different = {}
    compared = 0
    for name, java in by_java.items():
        layers = _layers(folder, name)
        for flow in running_flows(layers) if not java.refusal else ():
            for key, text in java.maps[str(flow), what].items():
                if is_client_key(key) and text != "null":
                    compared += 1
                    line = layers.first(spellings(attrs.evolve(key_named("bootstrap.servers"), name=key), flow, side))
                    if line is None or line.text != text:
                        different[f"{name} {flow} {key}"] = (line, text)

    assert compared > 1_000
    assert different == {}


def test_a_blank_behind_true_does_not_turn_a_flow_off(tmp_path: Path) -> None:
    """Java's driver takes "true " for false, though its connectors do not; here it is true."""
    (tmp_path / "blank").write_text(BLANK_BEHIND_TRUE)
    java = java_maps(tmp_path)["blank"]

    assert java.flows == {"B->C"}
    assert [str(flow) for flow in running_flows(_layers(tmp_path, "blank"))] == ["A->B", "B->C"]
