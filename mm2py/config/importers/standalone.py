"""
A standalone worker of Kafka Connect with MirrorMaker's or Mirus's connectors, as lines of an ``mm2.properties``.

The worker's file describes the target: Connect writes records with the worker's own producer. Each connector's file
belongs to one flow, and all connectors of a flow are its task groups: without a MirrorHeartbeatConnector there are no
heartbeats. A connector's settings become the flow's own lines, the reverse of what MirrorMaker does.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from mm2py.config.connector import AT_SOURCE, OWNER_ID, TASK_IDS, key_of_checkpoints, only_reader_of
from mm2py.config.importers.lines import Imported, Lines, ParsedFile, read_files
from mm2py.config.importers.mirus import SOURCE_CLASS as MIRUS
from mm2py.config.importers.mirus import take_mirus
from mm2py.config.keys.row import LineLevel, Place
from mm2py.config.keys.table import find_key
from mm2py.config.layers import is_client_key
from mm2py.config.legacy import RENAMED
from mm2py.config.problem import Problem
from mm2py.config.properties import Entry
from mm2py.config.resolve import NAMED_AGAIN
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list


NAME = "standalone worker"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_SIMPLE_HEADERS = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_PACKAGE = "org.apache.kafka.connect.mirror."
_SERVERS = "bootstrap.servers"
#: What a checkpoint connector has for itself, beside what only it reads.
_OF_CHECKPOINTS = ("topics", "topic.filter.class", "admin.timeout.ms", *AT_SOURCE)
#: Why a connector's setting is not taken, by its name.
_NOT_TAKEN = {
    "tasks.max": "without effect: tasks.max of the MirrorSourceConnector sets the number of copy tasks",
    "clusters": "without effect: source.cluster.alias and target.cluster.alias name a connector's clusters",
}


class ConnectorClass(enum.Enum):
    """A connector's class, by MirrorMaker's name; the first of a flow's kinds leads."""

    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"
    MIRUS = "MirusSourceConnector"


#: The lines that switch off the task group of a missing connector.
_SWITCH = {ConnectorClass.CHECKPOINT: "emit.checkpoints.enabled", ConnectorClass.HEARTBEAT: "emit.heartbeats.enabled"}


@attrs.frozen
class Connector:
    """A connector's file, with its flow and task group."""

    file: ParsedFile
    kind: ConnectorClass
    flow: Flow

    def get(self, key: str) -> Entry | None:
        return self.file.entries.get(key)


def import_standalone(worker_file: Path, connector_files: Sequence[Path]) -> Imported:
    """Convert a worker's and its connectors' files to flows. Nothing is raised; problems are in the result."""
    worker, *files = read_files(worker_file, *connector_files)
    lines = Lines(NAME)
    problems, notes = take_connectors(lines, worker, files)
    return Imported((worker_file, *connector_files), lines.document(), tuple(problems), tuple(notes))


def take_connectors(
    lines: Lines, worker: ParsedFile, files: Sequence[ParsedFile], *, is_distributed: bool = False
) -> tuple[list[Problem], list[Problem]]:
    """
    Convert a worker and its connectors, from wherever they were read, to *lines*; return problems and notes.

    A distributed worker may have no connector, keeps positions in a topic of its own, and configures itself.
    """
    problems = [problem for file in (worker, *files) for problem in file.problems]
    notes = [note for file in (worker, *files) for note in file.notes]
    connectors: list[Connector] = []
    for file in files:
        found = None if file.problems else classify(file)
        if isinstance(found, Problem):
            problems.append(found)
        elif found is not None:
            connectors.append(found)
    connectors.sort(key=lambda connector: list(ConnectorClass).index(connector.kind))
    flows = tuple(dict.fromkeys(connector.flow for connector in connectors))
    aliases = dict.fromkeys(alias for flow in flows for alias in (flow.source, flow.target))
    targets = tuple(dict.fromkeys(flow.target for flow in flows))
    lines.set("clusters", ", ".join(aliases or ("target",) * is_distributed))
    lines.set("emit.heartbeats.enabled", "false")
    for connector in connectors if is_distributed else ():
        _take_group(lines, connector, worker)
    notes.extend(_take_worker(lines, worker, targets or ("target",) * is_distributed, is_distributed=is_distributed))
    for flow in flows:
        group = [connector for connector in connectors if connector.flow == flow]
        problems.extend(_judge_flow(group, worker, is_whole=not problems))
        notes.extend(_take_flow(lines, flow, group, worker))
        if not is_distributed:
            _settle_replication(lines, flow)
        _settle_servers(lines, flow)
    problems.extend(_judge_names(connectors))
    problems.extend(problem for connector in connectors for problem in _judge_converters(connector, worker))
    if is_distributed:
        problems.extend(_judge_shared_topics(connectors))
    if "clusters" in worker.entries:
        entry = worker.entries["clusters"]
        hint = "run connect-mirror-maker with it, or name a worker's file first"
        problems.append(Problem(entry.where, "clusters", "this is MirrorMaker 2's own file, not a worker's", hint))
    return problems, notes


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


def _take_worker(
    lines: Lines, worker: ParsedFile, targets: Sequence[str], *, is_distributed: bool
) -> Iterator[Problem]:
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
            for target in targets:
                lines.take(f"{target}.{key}", entry)


def _take_group(lines: Lines, connector: Connector, worker: ParsedFile) -> None:
    """Give each flow a group of its own, whatever other flows the worker has: they come and go. Its transactional ids
    are those of Java's tasks (KIP-618), which may have their permissions, and are kept out.
    """
    entry, name = worker.entries.get("group.id"), connector.get("name")
    if entry is None or not entry.value.strip():
        return
    flow, group = connector.flow, entry.value.strip()
    lines.set(f"{flow}.group.id", f"{group}-{flow.source}")
    if name is None or connector.kind is ConnectorClass.HEARTBEAT:
        return
    prefix = f"{group}-{name.value.strip()}"
    if connector.kind is ConnectorClass.CHECKPOINT:
        lines.set(f"{flow}.{OWNER_ID}", f"{prefix}-0")
    else:
        lines.set(f"{flow}.{TASK_IDS}", prefix)


def _is_of_process(key: str) -> bool:
    row = find_key(LineLevel.TOP, key)
    return row is not None and row.place is Place.TOP


def _is_of_worker(key: str) -> bool:
    row = find_key(LineLevel.CLUSTER, key)
    is_worker_s = row is not None and row.place in {Place.WORKER, Place.WORKER_TOP} and row.acts
    return is_worker_s and find_key(LineLevel.FLOW, key) is None


# A flow.


def _take_flow(lines: Lines, flow: Flow, group: Sequence[Connector], worker: ParsedFile) -> Iterator[Problem]:
    kinds = {connector.kind for connector in group}
    for connector in group:
        if connector.kind is ConnectorClass.MIRUS:
            yield from take_mirus(lines, connector.file, flow)
        else:
            yield from _take_connector(lines, connector, group, worker)
    _take_named_again(lines, flow, group, worker)
    lines.set(f"{flow}.enabled", "true" if kinds & {ConnectorClass.SOURCE, ConnectorClass.MIRUS} else "false")
    lines.set(f"{flow}.emit.checkpoints.enabled", "true" if ConnectorClass.CHECKPOINT in kinds else "false")
    lines.set(f"{flow}.emit.heartbeats.enabled", "true" if ConnectorClass.HEARTBEAT in kinds else "false")


def _take_named_again(lines: Lines, flow: Flow, group: Sequence[Connector], worker: ParsedFile) -> None:
    """Keep how connectors name a cluster that the flow reaches by other addresses: whether that is the same one, only
    the brokers can tell.
    """
    found: list[dict[str, str]] = []
    lead = next((line for one in group if (line := one.get(f"source.cluster.{_SERVERS}")) is not None), None)
    for connector in group:
        stem = "destination.consumer." if connector.kind is ConnectorClass.MIRUS else "target.cluster."
        for side, prefix, used in (
            ("target", stem, _writer(connector, worker)),
            ("source", "source.cluster.", lead),
        ):
            named = connector.get(prefix + _SERVERS)
            is_used = side == "target" or connector.kind is not ConnectorClass.HEARTBEAT
            if used is None or named is None or not is_used or _addresses(used) == _addresses(named):
                continue
            owner = f"{flow}.{NAMED_AGAIN}.{side}"
            names = [key.removeprefix(prefix) for key in connector.file.entries if key.startswith(prefix)]
            own = {name: connector.file.entries[prefix + name] for name in names if is_client_key(name)}
            shown = {f"{owner}.{name}": it.value for name, it in own.items()}
            if shown in found:
                continue
            found.append(shown)
            for name, entry in own.items():
                lines.take(f"{owner}.{len(found)}.{name}", entry)
            lines.set(f"{owner}.{len(found)}.key", named.key)
            lines.set(f"{owner}.{len(found)}.where", connector.file.name)


def _addresses(line: Entry) -> set[str]:
    return {address for address in split_list(line.value.lower()) if address}


def _settle_replication(lines: Lines, flow: Flow) -> None:
    """Replicate the positions topic like the mirror's other topics; a standalone worker has a file instead."""
    names = ("offset-syncs.topic", "checkpoints.topic", "heartbeats.topic")
    line = lines.first((*(f"{flow}.{name}.replication.factor" for name in names), f"{flow}.replication.factor"))
    if line is not None:
        lines.take(f"{flow.target}.offset.storage.replication.factor", line)
        lines.take(f"{flow.target}.config.storage.replication.factor", line)


def _settle_servers(lines: Lines, flow: Flow) -> None:
    """Let a heartbeats-only flow do without a source, as Java does: it is never used."""
    source = lines.first(f"{flow}.{form}{_SERVERS}" for form in ("source.cluster.", "source.consumer.", "consumer."))
    target = lines.first((f"{flow.target}.{_SERVERS}", f"{flow}.target.cluster.{_SERVERS}"))
    enabled = lines.get(f"{flow}.enabled")
    if source is None and target is not None and enabled is not None and enabled.value.strip().lower() == "false":
        lines.set(f"{flow}.source.cluster.{_SERVERS}", target.value)


def _take_connector(
    lines: Lines, connector: Connector, group: Sequence[Connector], worker: ParsedFile
) -> Iterator[Problem]:
    for entry in connector.file.entries.values():
        name, note = _modern(entry)
        if note is not None:
            yield note
        if _is_read_elsewhere(name, connector, worker):
            continue
        reader = only_reader_of(name)
        owner = connector.kind if reader is None else ConnectorClass(reader)
        owners = [other for other in group if other.kind is owner]
        if name != "clusters" and _is_of_process(name):
            message = "a setting of the whole process, ignored in a connector as in Connect"
            yield Problem(entry.where, entry.key, message, "write it in the worker's file")
        elif _is_of_worker(name):
            yield Problem(entry.where, entry.key, "has no effect in a connector", "write it in the worker's file")
        elif owner is connector.kind:
            yield from _take_line(lines, connector, group[0], name, entry)
        else:
            yield from _note_stray(entry, name, owner, owners)


def _note_stray(entry: Entry, name: str, owner: ConnectorClass, owners: Sequence[Connector]) -> Iterator[Problem]:
    """Note a setting that only another connector reads, in Connect too, unless that would do the same without it."""
    row = find_key(LineLevel.FLOW, name)
    is_switch = name.endswith(".enabled") and not owners
    same = "false" if is_switch else row.default if row is not None else None
    if entry.value.strip().lower() == same or any(other.get(entry.key) is not None for other in owners):
        return
    if owners:
        message, hint = f"without effect: only a {owner.value} reads it", f"write it in {owners[0].file.name}"
        yield Problem(entry.where, entry.key, message, hint)
    else:
        yield Problem(entry.where, entry.key, f"without effect: the flow has no {owner.value}")


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


def _take_line(lines: Lines, connector: Connector, lead: Connector, name: str, entry: Entry) -> Iterator[Problem]:
    flow, kind = connector.flow, connector.kind
    if name == "enabled" and kind in _SWITCH:
        if entry.value.strip().lower() == "false":
            lines.take(f"{flow}.{_SWITCH[kind]}", entry)
    elif name in _NOT_TAKEN and (name == "clusters" or kind is not ConnectorClass.SOURCE):
        before = lines.get(name if name == "clusters" else f"{flow}.{name}")
        if before is not None and before.value.strip() != entry.value.strip():
            yield Problem(entry.where, entry.key, _NOT_TAKEN[name])
        elif name == "clusters":
            lines.take(name, entry)
    elif kind is ConnectorClass.CHECKPOINT and connector is not lead and name.startswith(_OF_CHECKPOINTS):
        lines.take(key_of_checkpoints(name, flow), entry)
    elif connector is lead or only_reader_of(name) is not None or find_key(LineLevel.FLOW, name) is None:
        lines.take(f"{flow}.{name}", entry)
    else:
        yield from _note_overruled(entry, name, lines.get(f"{flow}.{name}"), lead)


def _note_overruled(entry: Entry, name: str, before: Entry | None, lead: Connector) -> Iterator[Problem]:
    """Note a setting that counts as the flow's *lead* has it, where that makes a difference."""
    row = find_key(LineLevel.FLOW, name)
    if before is not None and before.value.strip() != entry.value.strip():
        yield Problem(entry.where, entry.key, f"overruled by {before.where}: a flow has one such setting")
    elif before is None and row is not None and entry.value.strip() != (row.default or ""):
        message = f"without effect: a flow has one such setting, that of {lead.file.name}, which leaves it out"
        yield Problem(entry.where, entry.key, message, f"write it in {lead.file.name}")


def _modern(entry: Entry) -> tuple[str, Problem | None]:
    """Return the current name of a line's key, and a note if the file has KIP-382's."""
    stem = next((stem for stem in ("source.cluster.", "target.cluster.") if entry.key.startswith(stem)), "")
    now = RENAMED.get(entry.key.removeprefix(stem))
    if now is None or (stem and now != _SERVERS):
        return entry.key, None
    return stem + now, Problem(entry.where, entry.key, "KIP-382's draft spelling", f"write {stem}{now}")


# Problems.


def _judge_flow(group: Sequence[Connector], worker: ParsedFile, *, is_whole: bool) -> Iterator[Problem]:
    kinds = [connector.kind for connector in group]
    lead = group[0]
    line = lead.file.entries["connector.class"]
    if lead.kind is ConnectorClass.CHECKPOINT and is_whole:
        message = f"checkpoints of {lead.flow} depend on its MirrorSourceConnector in the same process"
        yield Problem(line.where, line.key, message, "name the MirrorSourceConnector's file as well")
    for connector, kind in zip(group[1:], kinds[1:], strict=True):
        if kind in kinds[: group.index(connector)]:
            again = connector.file.entries["connector.class"]
            first = next(other for other in group if other.kind is kind)
            message = f"{connector.flow} has a {kind.value} already ({first.file.name})"
            yield Problem(again.where, again.key, message, "give each a source.cluster.alias, or make one file of both")
    if lead.kind is ConnectorClass.MIRUS:
        yield from _judge_target(lead, worker, ())
        yield from _judge_source(lead, ("consumer.bootstrap.servers",))
        return
    if ConnectorClass.SOURCE in kinds or ConnectorClass.CHECKPOINT in kinds:
        yield from _judge_source(
            lead,
            ("source.cluster.bootstrap.servers", "source.cluster.brokers.list", "source.consumer.bootstrap.servers"),
        )
    for connector in group:
        yield from _judge_target(connector, worker, ("target.cluster.bootstrap.servers", "target.cluster.brokers.list"))


def _judge_source(connector: Connector, keys: Sequence[str]) -> Iterator[Problem]:
    if all(connector.get(key) is None for key in keys):
        message = f"missing: the brokers of {connector.flow.source}"
        yield Problem(connector.file.name, keys[0], message, f"add {keys[0]} = host:port")


def _writer(connector: Connector, worker: ParsedFile) -> Entry | None:
    """Return the line with the brokers to which Connect's producer writes this connector's records."""
    ways = (
        connector.get(f"producer.override.{_SERVERS}"),
        worker.entries.get(f"producer.{_SERVERS}"),
        worker.entries.get(_SERVERS),
    )
    return next((line for line in ways if line is not None), None)


def _judge_target(connector: Connector, worker: ParsedFile, keys: Sequence[str]) -> Iterator[Problem]:
    if _writer(connector, worker) is None and all(connector.get(key) is None for key in keys):
        yield Problem(worker.name, _SERVERS, "missing: the brokers of the target", f"add {_SERVERS} = host:port")


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


def _judge_shared_topics(connectors: Sequence[Connector]) -> Iterator[Problem]:
    """Refuse two sources of one alias: a worker's positions lie in one topic, by alias."""
    first: dict[str, Connector] = {}
    for connector in connectors:
        if connector.kind in {ConnectorClass.SOURCE, ConnectorClass.MIRUS}:
            other = first.setdefault(connector.flow.source, connector)
            if other.flow != connector.flow:
                line = connector.get("source.cluster.alias")
                message = (
                    f"{other.file.name} has a source called {connector.flow.source}, and another target.cluster.alias"
                )
                where, key = (line.where, line.key) if line else (connector.file.name, "source.cluster.alias")
                yield Problem(
                    where, key, message, "a worker has one target: give both connectors the same alias for it"
                )


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
