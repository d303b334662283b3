"""Kafka's merges beyond what test_java_settings.py asks Kafka about: what they make of a file is read like it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.connectors import Part, read_part
from mm2py.config.importers.connect import Connector, classify
from mm2py.config.importers.lines import parsed
from mm2py.config.keys.row import Key, LineLevel, Place
from mm2py.config.keys.table import KEYS, find_key
from mm2py.config.layers import Layers, Side, Value
from mm2py.config.resolve import FlowReader
from mm2py.config.settings import ConfigError, FlowSettings
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.flow import Flow
from tests.support.config_files import ConfigFile
from tests.support.kafka_merges import CONNECTOR_KEYS, client_config, connector_config, producer_config, worker_config


FLOW: Final = Flow("A", "B")
#: What may stand before a key, by its place. A flow's target.cluster. is left out: it counts for the mirror's writer,
#: whereas a connector's is about its admin clients alone as soon as the worker names brokers.
_PREFIXES: Final = {
    Place.FLOW: ("", "A->B."),
    Place.FLOW_ONLY: ("A->B.",),
    Place.WORKER: ("B.", "A."),
    Place.WORKER_TOP: ("", "B."),
    Place.CLUSTER: (
        "", "A.", "B.", "A.consumer.", "B.producer.", "A.admin.", "A.producer.", "A->B.source.cluster.",
        "A->B.source.consumer.", "A->B.consumer.", "A->B.producer.override.", "A->B.target.producer.", "A->B.producer.",
    ),
    Place.CONSUMER: ("A.consumer.", "B.consumer.", "A->B.consumer.", "A->B.source.consumer.", "consumer."),
    Place.PRODUCER: (
        "B.producer.", "A.producer.", "A->B.producer.", "A->B.producer.override.", "A->B.target.producer.", "producer.",
    ),
}  # fmt: skip
#: What Kafka names by itself if no line does.
_FILLED_IN: Final = ("group.id", "offset.storage.topic", "status.storage.topic", "config.storage.topic")
_VALUES: Final = ("true", "false", "1", "7000", "h:1", "SSL", "PLAIN", "source", "target", "gzip", "latest", "a, b")


def _fits(key: Key, text: str) -> bool:
    try:
        key.parse(text)
    except ValueError:
        return False
    return True


#: Keys with valid values.
_DRAWN: Final = [
    (key, texts)
    for key in KEYS
    if key.acts and key.stem is None and key.place in _PREFIXES
    if (texts := [text for text in (key.default or "x", *_VALUES) if _fits(key, text)])
]


def _drawn(chance: random.Random) -> dict[str, str]:
    """Return a file's lines, several of which compete; whether the flow runs is not left to chance."""
    lines = {"clusters": "A, B", "A.bootstrap.servers": "a:1", "B.bootstrap.servers": "b:1"}
    for key, texts in chance.choices(_DRAWN, k=chance.randrange(1, 12)):
        for prefix in chance.choices(_PREFIXES[key.place], k=2):
            lines[prefix + key.name] = chance.choice(texts)
    return {**lines, "A->B.enabled": "true", "A->B.emit.heartbeats.enabled": "true"}


def _part(originals: Mapping[str, str], kind: str) -> Part:
    """Return what a connector comes to in a worker of Connect, both with the configs that Kafka makes of a file."""
    connector = classify(parsed(kind, _connector_config(originals, kind)))
    assert isinstance(connector, Connector)
    worker = attrs.evolve(parsed("worker", worker_config(originals, FLOW)), name="worker")
    return read_part(connector, worker, {"worker": Path("worker")}, [connector], is_distributed=True)


def _connector_config(originals: Mapping[str, str], kind: str) -> dict[str, str]:
    """Return a connector's config: Kafka hands on what it knows, and mm2py's own settings are handed on likewise."""
    own = {key: text for key, text in originals.items() if key not in CONNECTOR_KEYS and _is_of_flows(key)}
    return {**own, **connector_config(originals, FLOW, kind)}


def _is_of_flows(key: str) -> bool:
    row = find_key(LineLevel.TOP, key)
    return row is not None and row.place is Place.FLOW


def test_a_flow_s_lines_are_those_that_kafka_s_merges_have() -> None:
    """Of each key: but for a flow's plain producer lines, which Kafka does not read, and which count last."""
    different, compared = [], 0
    for seed in range(300):
        originals = _drawn(random.Random(seed))
        of = FlowReader(Layers((Value(text, "f", key) for key, text in originals.items()), {}), FLOW)
        for key, side, wanted in _merged(originals):
            line = of.layers.first(of.ways(key, side))
            is_ours = line is not None and line.key.startswith(("A->B.producer.", "A->B.target.producer."))
            compared += line is not None
            if wanted != (line and line.text) and (wanted is not None or not is_ours):
                different.append((seed, key.full_name, side, wanted, line))

    assert compared > 2_000
    assert different == []


def _merged(originals: Mapping[str, str]) -> Iterator[tuple[Key, Side, str | None]]:
    """Return the value of each key in Kafka's merges, for each of the clusters that it is about."""
    worker, connector = worker_config(originals, FLOW), _connector_config(originals, SOURCE)
    clients = {
        Side.SOURCE: client_config(connector, Side.SOURCE, "consumer"),
        Side.TARGET: producer_config(worker, connector),
    }
    sides = {Place.CONSUMER: (Side.SOURCE,), Place.PRODUCER: (Side.TARGET,), Place.CLUSTER: (Side.SOURCE, Side.TARGET)}
    for key, _ in _DRAWN:
        for side in sides.get(key.place, ()):
            yield key, side, clients[side].get(key.name)
        if key.place not in sides and key.name not in _FILLED_IN:
            config = connector if key.place in {Place.FLOW, Place.FLOW_ONLY} else worker
            yield key, Side.SOURCE, config.get(key.name)


def test_connectors_are_read_as_the_flow_that_they_are_of(config: ConfigFile) -> None:
    """A file and what Kafka makes of it, a worker's config and its connectors', come to the same."""
    different, compared = {}, 0
    for seed in range(80):
        originals = _drawn(random.Random(seed))
        lines = (f"{key} = {text}".replace("\\", "\\\\") for key, text in originals.items())
        try:
            flow = config.flow(*lines, base="")
        except ConfigError:
            continue  # two lines that do not fit together
        for kind in (SOURCE, CHECKPOINT, HEARTBEAT):
            compared += 1
            found = _part(originals, kind).flow
            if found is None or found.worker != flow.worker or _alone(found, kind) != _alone(flow, kind):
                different[seed, kind] = originals

    assert compared > 150
    assert different == {}


def _alone(flow: FlowSettings, kind: str) -> dict[str, object]:
    """Return what is a connector's own: transforms are the source connector's, and without a flow heartbeats go on."""
    others = {SOURCE: (), CHECKPOINT: ("transforms",), HEARTBEAT: ("is_enabled",)}
    fields = attrs.asdict(flow.config_of(kind), recurse=False)
    return {name: value for name, value in fields.items() if name not in others[kind]}


def test_a_worker_s_producer_may_be_told_no_brokers() -> None:
    """It writes to the worker's cluster then, unless a line of the worker's or a connector's override says other."""
    ends = {"source.cluster.alias": "A", "target.cluster.alias": "B", "source.cluster.bootstrap.servers": "a:1"}
    source = {**ends, "connector.class": SOURCE, "producer.bootstrap.servers": "not-read:1"}
    worker, producer = {"bootstrap.servers": "w:1"}, {"producer.bootstrap.servers": "p:1"}
    override = {"producer.override.bootstrap.servers": "o:1"}

    written = [({}, {}), (producer, {}), (producer, override), ({}, override)]
    found = [_target({**worker, **of_worker}, {**source, **own}) for of_worker, own in written]
    made = [producer_config({**worker, **of_worker}, {**source, **own}) for of_worker, own in written]

    assert found == ["w:1", "p:1", "o:1", "o:1"]
    assert [config["bootstrap.servers"] for config in made] == found


def _target(worker: Mapping[str, str], source: Mapping[str, str]) -> str:
    """Return the brokers that a source connector of a worker writes to."""
    connector = classify(parsed("mirror", source))
    assert isinstance(connector, Connector)
    file = parsed("worker", worker)
    [server] = (
        read_part(connector, file, {"worker": Path("worker")}, [connector]).settings.flows[0].target.bootstrap_servers
    )
    return server
