"""
MirrorMaker's and Mirus's connectors of a worker of Kafka Connect, each as lines of an ``mm2.properties`` of its own.

The worker's file describes the target: Connect writes records with the worker's own producer. A connector's settings
become lines of its flow, the reverse of what MirrorMaker does. `mm2py.config.connectors` has what they come to beside
each other.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.connector import is_read_by, reader_of
from mm2py.config.importers.lines import Lines, ParsedFile
from mm2py.config.importers.mirus import SOURCE_CLASS as MIRUS
from mm2py.config.importers.mirus import take_mirus
from mm2py.config.keys.row import LineLevel, Place
from mm2py.config.keys.table import find_key, levels_of
from mm2py.config.layers import RENAMED, Imported, is_client_key
from mm2py.config.problem import Problem
from mm2py.config.properties import Entry
from mm2py.config.resolve import NAMED_AGAIN
from mm2py.model.connector_offset import SOURCE
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list


NAME: Final = "worker"
BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
#: What a worker's cluster is called as long as no connector names it.
_NO_ALIAS: Final = "target"
_SIMPLE_HEADERS: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_CONVERTERS: Final = ("key.converter", "value.converter", "header.converter")
_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_SERVERS: Final = "bootstrap.servers"
_HEARTBEATS: Final = "emit.heartbeats.enabled"
_NOT_TASKS: Final = "without effect: tasks.max of the MirrorSourceConnector sets the number of copy tasks"
_NOT_CLUSTERS: Final = "without effect: source.cluster.alias and target.cluster.alias name a connector's clusters"


#: Required of a distributed worker, by Connect as well.
_REQUIRED: Final = {
    "bootstrap.servers": "the brokers of the target",
    "group.id": "the name of the worker's group",
    "config.storage.topic": "the topic with the connectors' configs",
    "offset.storage.topic": "the topic with positions",
    "status.storage.topic": "the topic with the nodes' statuses",
}


class ConnectorClass(enum.Enum):
    """A connector's class, by its simple name; they start in this order."""

    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"
    MIRUS = "MirusSourceConnector"


#: The lines that switch off the task group of a missing connector.
_SWITCH: Final = {ConnectorClass.CHECKPOINT: "emit.checkpoints.enabled", ConnectorClass.HEARTBEAT: _HEARTBEATS}


@attrs.frozen
class Connector:
    """A connector's file, with its class and flow."""

    file: ParsedFile
    kind: ConnectorClass
    flow: Flow
    #: Where it comes among the source connectors of its pair.
    order: int = 0

    @property
    def group(self) -> str:
        """The connector of a flow that it is."""
        return SOURCE if self.kind is ConnectorClass.MIRUS else self.kind.value

    @property
    def name(self) -> str:
        return self.file.text("name")

    @property
    def rank(self) -> int:
        """Where it comes among the connectors of a worker: by its class."""
        return list(ConnectorClass).index(self.kind)

    def get(self, key: str) -> Entry | None:
        return self.file.entries.get(key)


def import_worker(worker: ParsedFile, named: Mapping[str, Path], *, is_distributed: bool = False) -> Imported:
    """Convert a worker's file by itself, whatever connectors it has."""
    lines = Lines(NAME)
    lines.set("clusters", _NO_ALIAS)
    lines.set(_HEARTBEATS, "false")
    notes = (*worker.notes, *_take_worker(lines, worker, _NO_ALIAS, is_distributed=is_distributed))
    problems = [*worker.problems, *(_missing(worker) if is_distributed else ())]
    if (entry := worker.entries.get("clusters")) is not None:
        hint = "run connect-mirror-maker with it, or name a worker's file first"
        problems.append(Problem(entry.where, "clusters", "this is MirrorMaker 2's own file, not a worker's", hint))
    return Imported(named, lines.all(), tuple(problems), notes, lines.name, may_be_idle=True)


def _missing(worker: ParsedFile) -> Iterator[Problem]:
    for key, what in _REQUIRED.items():
        entry = worker.entries.get(key)
        if not worker.problems and (entry is None or not entry.value.strip()):
            yield Problem(worker.name, key, f"missing: {what}", f"add {key} = …, as Kafka Connect requires")


def import_connector(
    connector: Connector,
    worker: ParsedFile,
    named: Mapping[str, Path],
    beside: Sequence[Connector] = (),
    *,
    is_distributed: bool = False,
) -> Imported:
    """
    Convert one connector by itself, as the only one of its flow. Nothing is raised; problems are in the result.

    *beside* are the others of its flow, to which notes refer. A distributed worker keeps positions in a topic of its
    own, and configures itself.
    """
    lines, flow, kind = Lines(NAME), connector.flow, connector.kind
    lines.set("clusters", f"{flow.source}, {flow.target}")
    lines.set(_HEARTBEATS, "false")
    notes = [*worker.notes, *_take_worker(lines, worker, flow.target, is_distributed=is_distributed)]
    notes += connector.file.notes
    if kind is ConnectorClass.MIRUS:
        notes += _take_mirus(lines, connector)
    else:
        notes += _take_connector(lines, connector, beside, worker)
    _take_named_again(lines, connector, worker)
    lines.set(f"{flow}.enabled", "false" if kind is ConnectorClass.HEARTBEAT else "true")
    lines.set(f"{flow}.emit.checkpoints.enabled", "true" if kind is ConnectorClass.CHECKPOINT else "false")
    lines.set(f"{flow}.{_HEARTBEATS}", "true" if kind is ConnectorClass.HEARTBEAT else "false")
    if not is_distributed:
        _settle_replication(lines, (connector, *beside))
    target = lines.first((f"{flow.target}.{_SERVERS}", f"{flow}.target.cluster.{_SERVERS}"))
    if kind is ConnectorClass.HEARTBEAT and target is not None:
        lines.set(f"{flow}.source.cluster.{_SERVERS}", target.text)  # as in Java it needs no source: it never uses it
    problems = (*_judge_ends(connector, worker), *_judge_converters(connector, worker))
    return Imported(named, lines.all(), problems, tuple(notes), lines.name, may_be_idle=True)


# The kind of a connector.


def classify(file: ParsedFile) -> Connector | Problem:
    """Return what a connector is, or why it is none of ours."""
    line = file.entries.get("connector.class")
    known = f"mm2py runs {', '.join(kind.value for kind in ConnectorClass)}"
    if line is None:
        return Problem(file.name, "connector.class", "missing: what the connector does", known)
    kind = kind_of(line.value.strip())
    if kind is None:
        return Problem(line.where, line.key, f"mm2py has no connector {line.value.strip()}", known)
    if kind is ConnectorClass.MIRUS:
        name = file.entries.get("name")
        if name is None or not name.value.strip():
            return Problem(file.name, "name", "missing: positions are stored under the connector's name")
        return _of_flow(file, kind, name, Flow(name.value.strip(), _alias(file, "target")))
    given = file.entries.get("source.cluster.alias")
    if given is None:
        return Problem(file.name, "source.cluster.alias", "missing: remote topics are named after it")
    return _of_flow(file, kind, given, Flow(_alias(file, "source"), _alias(file, "target")))


def _of_flow(file: ParsedFile, kind: ConnectorClass, named: Entry, flow: Flow) -> Connector | Problem:
    """Return the connector of *flow*, whose source a line has *named*; a problem if there can be no such flow."""
    target = file.entries.get("target.cluster.alias") or named
    if flow.source == flow.target:
        message = f"source and target are both called {flow.source}"
        return Problem(target.where, target.key, message, f"give each its own {target.key.rpartition('.')[2]}")
    for line, alias in ((named, flow.source), (target, flow.target)):
        if "," in alias:
            return Problem(line.where, line.key, f"{alias} is the name of a cluster here, and has a comma")
    return Connector(file, kind, flow)


def kind_of(name: str) -> ConnectorClass | None:
    """Return the connector that Connect would run for a class's name; None if it is none of ours."""
    if name in {MIRUS, MIRUS.rpartition(".")[2]}:
        return ConnectorClass.MIRUS
    short = name.removeprefix(_PACKAGE)
    # Connect also accepts a plugin's simple name, with or without its last word.
    whole = short if short.endswith("Connector") else f"{short}Connector"
    return next((kind for kind in ConnectorClass if kind.value == whole and kind is not ConnectorClass.MIRUS), None)


def _alias(file: ParsedFile, side: str) -> str:
    entry = file.entries.get(f"{side}.cluster.alias")
    return entry.value.strip() if entry is not None and entry.value.strip() else side


# The worker.


def _take_worker(lines: Lines, worker: ParsedFile, target: str, *, is_distributed: bool) -> Iterator[Problem]:
    for key, entry in worker.entries.items():
        if key.removeprefix("internal.").startswith(_CONVERTERS) or key == "clusters":
            continue
        if key == "offset.storage.file.filename" or (key == "offset.storage.topic" and not is_distributed):
            message = "without effect: positions are stored on the target cluster, in mm2-offsets.ALIAS.internal"
            yield Problem(entry.where, key, message)
        elif _is_of_process(key) or key.startswith("copy."):
            lines.take(key, entry)
        elif find_key(LineLevel.CLUSTER, key) is None and find_key(LineLevel.FLOW, key) is not None:
            yield Problem(entry.where, key, "has no effect in a worker's file", "write it in the connector's file")
        else:
            lines.take(f"{target}.{key}", entry)


def _is_of_process(key: str) -> bool:
    row = find_key(LineLevel.TOP, key)
    return row is not None and row.place is Place.TOP


# A connector's lines.


def _take_named_again(lines: Lines, connector: Connector, worker: ParsedFile) -> None:
    """Keep how a connector names its target, if that is reached by other addresses: whether it is the same cluster,
    only the brokers can tell.
    """
    prefix = "destination.consumer." if connector.kind is ConnectorClass.MIRUS else "target.cluster."
    used, named = _writer(connector, worker), connector.get(prefix + _SERVERS)
    if used is None or named is None or _addresses(used) == _addresses(named):
        return
    for key, entry in connector.file.entries.items():
        if key.startswith(prefix) and is_client_key(name := key.removeprefix(prefix)):
            lines.take(f"{connector.flow}.{NAMED_AGAIN}.{name}", entry)


def _addresses(line: Entry) -> set[str]:
    return {address for address in split_list(line.value.lower()) if address}


def _settle_replication(lines: Lines, connectors: Sequence[Connector]) -> None:
    """Replicate the positions topic like the mirror's other topics; a standalone worker has a file instead."""
    names = ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic")
    keys = (*(f"{name}.replication.factor" for name in names), "replication.factor")
    line = next((line for key in keys for one in connectors if (line := one.get(key)) is not None), None)
    if line is not None:
        for topic in ("offset", "config"):
            lines.take(f"{connectors[0].flow.target}.{topic}.storage.replication.factor", line)


def _take_mirus(lines: Lines, connector: Connector) -> Iterator[Problem]:
    file = connector.file
    misplaced = {key: note for key, entry in file.entries.items() if (note := _misplaced(entry, key, "consumer."))}
    yield from misplaced.values()
    entries = {key: entry for key, entry in file.entries.items() if key not in misplaced}
    yield from take_mirus(lines, attrs.evolve(file, entries=entries), connector.flow)


def _take_connector(
    lines: Lines, connector: Connector, beside: Sequence[Connector], worker: ParsedFile
) -> Iterator[Problem]:
    flow, kind, enabled = connector.flow, connector.kind, connector.get("enabled")
    if kind in _SWITCH and enabled is not None and enabled.value.strip().lower() != "true":
        lines.take(f"{flow}.{_SWITCH[kind]}", enabled)  # before its own line, which it is stronger than
    for entry in connector.file.entries.values():
        name, note = _modern(entry)
        if (winner := connector.get(name)) is not None and note is not None:
            yield Problem(entry.where, entry.key, f"overruled by {name} ({winner.where})", "remove the old line")
            continue
        if note is not None:
            yield note
        if _is_read_elsewhere(name, connector, worker):
            continue
        if (note := _misplaced(entry, name, "source.cluster.")) is not None:
            yield note
        elif name == "enabled" and kind in _SWITCH:
            continue
        elif is_read_by(name, kind.value) or find_key(LineLevel.FLOW, name) is None:
            lines.take(f"{flow}.{name}", entry)
        elif name == "tasks.max":
            lines.take(f"{flow}.{name}", entry)  # it has to be a number here, too
            yield Problem(entry.where, entry.key, _NOT_TASKS)
        else:
            yield from _note_stray(entry, name, beside)


def _misplaced(entry: Entry, name: str, source: str) -> Problem | None:
    """Return a note on a setting that no connector has; *source* is before those of the source's clients."""
    rows = levels_of(name)
    row = rows.get(LineLevel.CLUSTER)
    if name == "clusters":
        return Problem(entry.where, entry.key, _NOT_CLUSTERS)
    if _is_of_process(name):
        message = "a setting of the whole process, ignored in a connector as in Connect"
        return Problem(entry.where, entry.key, message, "write it in the worker's file")
    if row is None or LineLevel.FLOW in rows:
        return None
    hint = "write it in the worker's file"
    if not row.acts and (levels_of(f"consumer.{name}") or levels_of(f"producer.{name}")):
        return None  # it is meant for the clients that copy
    if row.place is Place.CLUSTER:
        hint = f"for the source, write {source}{name}; for the target, {hint}"
    return Problem(entry.where, entry.key, "has no effect in a connector", hint)


def _note_stray(entry: Entry, name: str, beside: Sequence[Connector]) -> Iterator[Problem]:
    """Note a setting that only another connector reads, in Connect too, unless that would do the same without it."""
    reader = ConnectorClass(reader_of(name))
    owners = [other for other in beside if other.kind is reader]
    row = find_key(LineLevel.FLOW, name)
    is_switch = name.endswith(".enabled") and not owners
    same = "false" if is_switch else row.default if row is not None else None
    if entry.value.strip().lower() == same or any(other.get(entry.key) is not None for other in owners):
        return
    if owners:
        message, hint = f"without effect: only a {reader.value} reads it", f"write it in {owners[0].file.name}"
        yield Problem(entry.where, entry.key, message, hint)
    else:
        yield Problem(entry.where, entry.key, f"without effect: the flow has no {reader.value}")


def _is_read_elsewhere(name: str, connector: Connector, worker: ParsedFile) -> bool:
    if name in {"name", "connector.class", "source.cluster.alias", "target.cluster.alias"}:
        entry = connector.get(name)
        return entry is not None and bool(entry.value.strip())  # Java takes an empty alias for what it is
    if name == "clusters":
        return set(split_list(connector.file.entries[name].value)) == {connector.flow.source, connector.flow.target}
    if name == "tasks.max" and connector.kind in _SWITCH:
        return connector.file.entries[name].value.strip() == "1"  # as many as there are
    if name.startswith("target.cluster.") and is_client_key(name.removeprefix("target.cluster.")):
        return _writer(connector, worker) is not None  # records go where the worker writes
    return name.startswith(_CONVERTERS)


def _modern(entry: Entry) -> tuple[str, Problem | None]:
    """Return the current name of a line's key, and a note if the file has KIP-382's."""
    stem = next((stem for stem in ("source.cluster.", "target.cluster.") if entry.key.startswith(stem)), "")
    now = RENAMED.get(entry.key.removeprefix(stem))
    if now is None or (stem and now != _SERVERS):
        return entry.key, None
    return stem + now, Problem(entry.where, entry.key, "KIP-382's draft spelling", f"write {stem}{now}")


# Problems.


def judge_beside(connectors: Sequence[Connector]) -> Iterator[Problem]:
    """Return what keeps *connectors* from running in one worker, each of which is valid by itself."""
    yield from _judge_names(connectors)
    first: dict[tuple[Flow, str], Connector] = {}
    for connector in connectors:
        before = first.setdefault((connector.flow, connector.group), connector)
        if before is not connector and {before.kind, connector.kind} != {ConnectorClass.SOURCE}:
            line = connector.file.entries["connector.class"]
            message = f"{connector.flow} has a {connector.kind.value} already ({before.file.name})"
            yield Problem(line.where, line.key, message, "give each a source.cluster.alias, or make one file of both")


def _judge_ends(connector: Connector, worker: ParsedFile) -> Iterator[Problem]:
    keys: tuple[str, ...] = ()
    if connector.kind is ConnectorClass.MIRUS:
        yield from _judge_source(connector, ("consumer.bootstrap.servers",))
    else:
        keys = ("target.cluster.bootstrap.servers", "target.cluster.brokers.list")
        if connector.kind is not ConnectorClass.HEARTBEAT:
            client = "admin" if connector.kind is ConnectorClass.CHECKPOINT else "consumer"
            names = ("cluster.bootstrap.servers", "cluster.brokers.list", f"{client}.bootstrap.servers")
            yield from _judge_source(connector, [f"source.{name}" for name in names])
    if _writer(connector, worker) is None and all(connector.get(key) is None for key in keys):
        yield Problem(worker.name, _SERVERS, "missing: the brokers of the target", f"add {_SERVERS} = host:port")


def _judge_source(connector: Connector, keys: Sequence[str]) -> Iterator[Problem]:
    if all(connector.get(key) is None for key in keys):
        message = f"missing: the brokers of {connector.flow.source}"
        yield Problem(connector.file.name, keys[0], message, f"add {keys[0]} = host:port")


def _writer(connector: Connector, worker: ParsedFile) -> Entry | None:
    """Return the line with the brokers to which Connect's producer writes this connector's records
    (Worker.baseProducerConfigs).
    """
    of_worker = worker.entries.get(f"producer.{_SERVERS}") or worker.entries.get(_SERVERS)
    return connector.get(f"producer.override.{_SERVERS}") or of_worker


def _judge_names(connectors: Sequence[Connector]) -> Iterator[Problem]:
    """Check what Connect checks: each connector has a unique name."""
    seen: dict[str, Connector] = {}
    for connector in connectors:
        line = connector.get("name")
        if line is None or not line.value.strip():
            yield Problem(connector.file.name, "name", "missing: the connector's name", "add name = NAME")
        elif (first := seen.setdefault(line.value.strip(), connector)) is not connector:
            message = f"{first.file.name} already has a connector with that name"
            yield Problem(line.where, "name", message, "give each connector a name of its own")


def _judge_converters(connector: Connector, worker: ParsedFile) -> Iterator[Problem]:
    """Refuse converters that would change records; the connector's take precedence over the worker's."""
    of_source = tuple(f"source.{key}" for key in _CONVERTERS) if connector.kind is ConnectorClass.MIRUS else ()
    for key in (*_CONVERTERS, *of_source):
        line = connector.get(key) or worker.entries.get(key)
        if line is None or line.value.strip() in {BYTES, BYTES.rpartition(".")[2], ""}:
            continue
        if key == "header.converter" and line.value.strip() == _SIMPLE_HEADERS:
            continue  # Connect's default, which the user did not choose
        message = f"{line.value.strip()} would change records; they are copied as they are"
        hint = f"write {key} = {BYTES} in {connector.file.name}"
        yield Problem(line.where, key, message, hint)
