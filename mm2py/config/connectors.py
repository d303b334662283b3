"""
The settings that a worker of Kafka Connect and its connectors come to.

Each connector is read and judged by itself, as Connect does it, with the worker's file and nothing else. Then those of
a pair become one flow: they share a group of nodes, and where records went is known to all of them. Each further source
connector of a pair is a flow of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import attrs

from mm2py.config.connector import ConnectorConfig, MirrorSourceConfig, is_read_by, only_reader_of, reader_of
from mm2py.config.explain import Effective
from mm2py.config.importers.connect import (
    Connector,
    ConnectorClass,
    classify,
    import_connector,
    import_worker,
    judge_beside,
)
from mm2py.config.importers.lines import ParsedFile, named_files, read_files
from mm2py.config.problem import ConfigError, Problem, in_order
from mm2py.config.providers import Stamp
from mm2py.config.resolve import NamedAgain
from mm2py.config.settings import FlowSettings, MirrorSettings, import_settings, tidied
from mm2py.config.worker import of_connectors, of_process
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.flow import Flow


#: The line with a cluster's brokers in a connector.
_SERVERS: Final = {"source": "source.cluster.bootstrap.servers", "target": "producer.override.bootstrap.servers"}

_Lines = Mapping[str, str]
_Loaded = TypeVar("_Loaded")


@attrs.frozen
class Part:
    """A connector, with the settings that it has by itself."""

    connector: Connector
    settings: MirrorSettings
    #: Whether it is a source connector beside the first one of its pair.
    is_further: bool = False

    @property
    def place(self) -> Flow:
        """The flow that it is of."""
        pair = self.connector.flow
        return attrs.evolve(pair, connector=self.connector.name) if self.is_further else pair

    @property
    def flow(self) -> FlowSettings | None:
        """The settings of its flow, None if it is switched off."""
        found = next(iter(self.settings.flows), None)
        return found.as_flow(self.place) if found is not None and self.is_further else found

    @property
    def config(self) -> ConnectorConfig | None:
        return None if self.flow is None else self.flow.config_of(self.connector.group)


def standalone_settings(
    worker_file: Path, connector_files: Sequence[Path], *, overrides: Mapping[str, str] | None = None
) -> MirrorSettings:
    """Return the settings of a standalone worker's file and its connectors' files. *overrides* are written as in an
    ``mm2.properties``. Raise ConfigError with all problems.
    """
    files = named_files(worker_file, *connector_files)
    worker, *others = read_files(worker_file, *connector_files)
    found = [classify(file) for file in others if not file.problems]
    ours = (one for one in found if isinstance(one, Connector))
    connectors = [attrs.evolve(one, order=place) for place, one in enumerate(ours)]
    refused = _Refused([problem for file in others for problem in file.problems])
    refused.problems += [one for one in found if isinstance(one, Problem)]
    alone = refused.tried(partial(worker_settings, worker, files, overrides))
    tried = [refused.tried(partial(read_part, one, worker, files, connectors, overrides)) for one in connectors]
    parts = [part for part in tried if part is not None]
    refused.problems += judge_beside(connectors)
    if not connectors and not refused.problems:
        message = "No source->target replication flows."
        refused.problems.append(Problem(worker_file.name, "", message, "name a connector's file"))
    if alone is None or refused.problems:
        raise refused.error(files)
    group = worker.text("group.id")
    is_one = len({part.connector.flow for part in parts}) == 1
    return combined(alone, parts, files=tuple(files), group="" if is_one else group)


def worker_settings(
    worker: ParsedFile,
    named: Mapping[str, Path],
    overrides: Mapping[str, str] | None = None,
    *,
    is_distributed: bool = False,
) -> MirrorSettings:
    """Return the settings of a worker without connectors. Raise ConfigError with all problems of its file."""
    imported = import_worker(worker, named, is_distributed=is_distributed)
    lines = {key: text for key, text in (overrides or {}).items() if "->" not in key}
    return attrs.evolve(import_settings(imported, overrides=lines), notes=imported.notes)


def read_part(
    connector: Connector,
    worker: ParsedFile,
    named: Mapping[str, Path],
    connectors: Iterable[Connector],
    overrides: Mapping[str, str] | None = None,
    *,
    is_distributed: bool = False,
) -> Part:
    """Return a connector with the settings that it has by itself; notes refer to other *connectors* of its flow. Raise
    ConfigError with all problems.
    """
    beside = [other for other in connectors if other.flow == connector.flow and other is not connector]
    imported = import_connector(connector, worker, named, beside, is_distributed=is_distributed)
    return Part(connector, import_settings(imported, overrides=_of_flow(overrides or {}, connector.flow, connectors)))


def _of_flow(lines: _Lines, flow: Flow, connectors: Iterable[Connector]) -> dict[str, str]:
    """Return *lines* without those of other flows."""
    others = tuple(f"{one.flow}." for one in connectors if one.flow != flow)
    return {key: text for key, text in lines.items() if not key.startswith(others)}


def _of_part(lines: _Lines, part: Part) -> dict[str, str]:
    """Return those of *lines*, set for its flow, that the connector reads first, as set for its pair, and those of
    clusters.
    """
    own, pair = f"{part.place}.", f"{part.connector.flow}."
    mine = {key: reader_of(key.removeprefix(own)) == part.connector.group for key in lines if key.startswith(own)}
    return {
        pair + key.removeprefix(own) if key in mine else key: text
        for key, text in lines.items()
        if mine.get(key, "->" not in key)
    }


def placed(parts: Iterable[Part]) -> list[Part]:
    """Return *parts* by their classes, as they are beside each other: of a pair's source connectors the first one is in
    front, and the others are further ones.
    """

    def rank(part: Part) -> tuple[int, int, str]:
        one = part.connector
        return (one.rank, one.order, one.name) if one.kind is ConnectorClass.SOURCE else (one.rank, 0, "")

    pairs, found = set[Flow](), list[Part]()
    for part in sorted(parts, key=rank):
        is_source, pair = part.connector.kind is ConnectorClass.SOURCE, part.connector.flow
        found.append(attrs.evolve(part, is_further=is_source and pair in pairs))
        pairs |= {pair} if is_source else set()
    return found


def combined(
    worker: MirrorSettings,
    parts: Sequence[Part],
    *,
    files: Sequence[str] = (),
    group: str = "",
    is_distributed: bool = False,
) -> MirrorSettings:
    """
    Return the settings of a *worker* without connectors, with those of its connectors.

    Notes come in the order of *files*. With the name of a worker's *group*, each flow has a group of its own.
    """
    parts = placed(parts)
    of_flows: dict[Flow, list[Part]] = {}
    for part in parts:
        of_flows.setdefault(part.place, []).append(part)
    of = partial(_flow, group=group, is_distributed=is_distributed)
    flows = _introduced({flow: found for flow, its in of_flows.items() if (found := of(flow, its)) is not None})
    clusters = {alias: end for part in parts for alias, end in part.settings.clusters.items()}

    def changed(change: Callable[[MirrorSettings, _Lines], MirrorSettings], lines: _Lines) -> MirrorSettings:
        of_worker = {key: text for key, text in lines.items() if "->" not in key}
        refused = _Refused()
        alone = refused.tried(partial(change, worker, of_worker))
        others = []
        for part in parts:
            settings = refused.tried(partial(change, part.settings, _of_part(lines, part)))
            others += [attrs.evolve(part, settings=settings)] if settings is not None else []
        if alone is None or refused.problems:
            raise refused.error(files)
        settings = combined(alone, others, files=files, group=group, is_distributed=is_distributed)
        gone = flows.keys() - {one.flow for one in settings.flows}
        if gone:
            hint = "stop or delete the connector instead"
            raise ConfigError(tuple(Problem("", "", f"{flow} would have nothing to do", hint) for flow in gone))
        return settings

    return attrs.evolve(
        worker,
        clusters=clusters or worker.clusters,
        flows=tuple(flows.values()),
        notes=_notes(worker, parts, files),
        effective=(
            *(row for row in worker.effective if not row.owner),
            *(row for flow in flows for row in _effective(flow, of_flows[flow])),
        ),
        provided={
            path: stamp for one in (worker, *(it.settings for it in parts)) for path, stamp in one.provided.items()
        },
        with_live=lambda lines: changed(_with_live, lines),
        with_owners=lambda lines: changed(_with_owners, lines),
    )


def _with_live(settings: MirrorSettings, lines: _Lines) -> MirrorSettings:
    return settings if settings.with_live is None else settings.with_live(lines)


def _with_owners(settings: MirrorSettings, lines: _Lines) -> MirrorSettings:
    return settings if settings.with_owners is None else settings.with_owners(lines)


def _flow(flow: Flow, parts: Sequence[Part], *, group: str, is_distributed: bool) -> FlowSettings | None:
    """Return the flow that the connectors of a pair are; None if there is nothing for them to do."""
    found = {part.connector.group: part.flow for part in parts if part.flow is not None}
    lead = next(iter(found.values()), None)
    if lead is None:
        return None
    source = lead.source_connector if SOURCE in found else attrs.evolve(lead.source_connector, is_enabled=False)
    if (first := parts[0].connector).kind is ConnectorClass.SOURCE:
        source = attrs.evolve(source, name=first.name if is_distributed else source.name, order=first.order)
    checkpoint = found.get(CHECKPOINT, lead).checkpoint_connector
    beats = found.get(HEARTBEAT, lead).heartbeat_connector
    if not (source.is_enabled or checkpoint.is_run or beats.is_emitted):
        return None
    names = {part.connector.group: part.connector.name for part in parts}
    worker = of_connectors(lead.worker, group, flow, names) if group else lead.worker
    if flow.connector and not group:
        worker = of_process(worker, flow.connector)
    elif checkpoint.is_run and not (is_distributed or source.is_enabled):
        worker = of_process(worker, names[CHECKPOINT])
    return attrs.evolve(
        lead,
        source_connector=source,
        checkpoint_connector=attrs.evolve(checkpoint, transforms=source.transforms),
        heartbeat_connector=beats,
        worker=worker,
        named_again=tuple(_named_again(lead, parts)),
    )


def _named_again(lead: FlowSettings, parts: Sequence[Part]) -> Iterator[NamedAgain]:
    """Return how connectors name the clusters of their flow otherwise than its first one."""
    seen = {(end.alias, end.bootstrap_servers) for end in (lead.source, lead.target)}
    for part in parts:
        if part.flow is None or part.config is None:
            continue
        ends = [("target", part.config.target)]
        if part.connector.group != HEARTBEAT:  # it never uses the source
            ends.append(("source", part.config.source))
        named = [NamedAgain(_SERVERS[side], part.connector.file.name, end) for side, end in ends]
        for one in (*part.flow.named_again, *named):
            place = (one.endpoint.alias, one.endpoint.bootstrap_servers)
            if place not in seen:
                seen.add(place)
                yield one


def _introduced(flows: Mapping[Flow, FlowSettings]) -> dict[Flow, FlowSettings]:
    """Return the settings of *flows*, each with those beside it."""
    sources = [one.source_connector for one in flows.values() if one.is_enabled]

    def beside(own: MirrorSourceConfig) -> tuple[MirrorSourceConfig, ...]:
        pair = (one for one in sources if one.flow != own.flow and one.flow.pair == own.flow.pair)
        return tuple(one for one in pair if one.name == own.name)

    return {flow: attrs.evolve(one, beside=beside(one.source_connector)) for flow, one in flows.items()}


def _effective(flow: Flow, parts: Sequence[Part]) -> Iterator[Effective]:
    """Return the settings of a flow: each as the connector has it that reads it first, and what the checkpoint
    connector has otherwise.
    """
    rows = {
        part.connector.group: {
            row.key: attrs.evolve(row, owner=str(flow))
            for row in part.settings.effective
            if row.owner == str(part.connector.flow)
        }
        for part in parts
        if part.flow is not None
    }
    lead = next(iter(rows.values()))
    for key, row in lead.items():
        yield rows.get(only_reader_of(key) or "", lead).get(key, row)
    own = rows.get(CHECKPOINT, {})
    for key, row in own.items() if own is not lead else ():
        is_shared = only_reader_of(key) is None and is_read_by(key, CHECKPOINT)
        if is_shared and row.is_changed and (key not in lead or lead[key].value != row.value):
            yield attrs.evolve(row, key=f"{CHECKPOINT}.{key}")


def _notes(worker: MirrorSettings, parts: Sequence[Part], files: Sequence[str]) -> tuple[Problem, ...]:
    """Return the notes of all: those of the worker's file, and of what is not of any file, if no connector makes use of
    it.
    """
    if not parts:
        return worker.notes
    notes = dict.fromkeys(note for part in parts for note in part.settings.notes)
    own = tuple(part.connector.file.name for part in parts)
    shared = set[Problem].intersection(*(set(part.settings.notes) for part in parts))
    kept = [note for note in notes if note in shared or note.where.rpartition(":")[0] in own or note.where in own]
    return in_order([*kept, *_note_naming(parts)], files)


def _note_naming(parts: Sequence[Part]) -> Iterator[Problem]:
    """Note checkpoints of other remote topics than those that the source connector makes."""
    sources = {part.place: part for part in parts if part.connector.group == SOURCE}
    for part in parts:
        source = sources.get(part.connector.flow)
        if part.connector.group != CHECKPOINT or source is None or source.config is None or part.config is None:
            continue
        if part.config.policy != source.config.policy:
            name = source.connector.file.name
            message = (
                f"it names remote topics otherwise than {name}: there are no checkpoints of those that {name} makes"
            )
            hint = "write the same replication.policy.* and remote.topic.* in both"
            yield Problem(part.connector.file.name, "replication.policy.class", message, hint)


class _Refused:
    """The problems of several settings, each of which may be invalid."""

    def __init__(self, problems: Iterable[Problem] = ()) -> None:
        self.problems = list(problems)
        self._notes: dict[Problem, None] = {}
        self._provided = dict[Path, Stamp]()

    def tried(self, load: Callable[[], _Loaded]) -> _Loaded | None:
        """Return what *load* returns; None if that is refused."""
        try:
            return load()
        except ConfigError as error:
            self.problems += error.problems
            self._notes |= dict.fromkeys(error.notes)
            self._provided |= error.provided
            return None

    def error(self, files: Iterable[str]) -> ConfigError:
        """Return all problems as one error, in the order of *files*."""
        return ConfigError(in_order(tidied(self.problems), files), tuple(self._notes), self._provided)
