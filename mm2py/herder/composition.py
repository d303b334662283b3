"""
What a worker's file and its connectors come to, and what is wrong with one of them.

A connector that does not fit is left out, and never stops the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.connectors import Part, combined, placed, read_part, worker_settings
from mm2py.config.importers.connect import Connector, classify, judge_beside
from mm2py.config.importers.lines import ParsedFile, parsed
from mm2py.config.providers import Stamp
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings, Problem
from mm2py.connectors.plugins import unusable_classes
from mm2py.herder.replication_loops import judged
from mm2py.model.connector_offset import HEARTBEAT, SOURCE
from mm2py.model.flow import Flow
from mm2py.model.herder.connector_configs import StoredConnector


Connectors = Mapping[str, StoredConnector]

_ALIAS: Final = "source.cluster.alias"
_TARGET: Final = "target.cluster.alias"
#: What a connector's settings begin with that say which flow it is of.
_ENDS: Final = ("source.cluster.", "target.cluster.")
_CLASSES: Final = frozenset(
    {"replication.policy.class", "topic.filter.class", "group.filter.class", "config.property.filter.class"}
)


class Idleness(enum.Enum):
    """Why a connector is not run."""

    #: It is of a class that mm2py does not have.
    FOREIGN = "foreign"
    INVALID = "invalid"


@attrs.frozen
class Idle:
    """A connector that is not run, and why."""

    why: Idleness
    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.problems))


@attrs.frozen
class Place:
    """A connector that is run: its flow, and its task group there."""

    flow: Flow
    group: str


@attrs.frozen
class Composition:
    """The settings that a worker's file and its connectors come to."""

    settings: MirrorSettings
    places: Mapping[str, Place] = attrs.field(factory=dict)
    #: The flow that each valid connector would be alone.
    alone: Mapping[str, FlowSettings] = attrs.field(factory=dict)
    idle: Mapping[str, Idle] = attrs.field(factory=dict)


def compose(path: Path, worker: ParsedFile, connectors: Connectors, *, is_strict: bool = False) -> Composition:
    """Return the settings with all *connectors* that fit; where some contradict each other, earlier ones count. Raise
    ConfigError if the worker's file is invalid by itself.
    """
    alone = worker_settings(worker, {worker.name: path}, is_distributed=True)
    if alone.notes and is_strict:
        raise ConfigError(alone.notes)
    found = {name: classify(parsed(name, one.config)) for name, one in connectors.items()}
    idle = {name: _unusable(connectors[name].config, one) for name, one in found.items() if isinstance(one, Problem)}
    ours = [
        attrs.evolve(one, order=connectors[name].created_ms)
        for name, one in found.items()
        if isinstance(one, Connector)
    ]
    parts, awaited = list[Part](), dict[Path, Stamp]()
    for one in sorted(ours, key=lambda one: one.rank):
        try:
            parts.append(read_part(one, worker, {worker.name: path}, ours, is_distributed=True))
        except ConfigError as error:
            idle[one.name] = Idle(Idleness.INVALID, error.problems)
            awaited |= error.provided
    fitting = list[Part]()
    for part in parts:
        if problems := _beside(fitting, part):
            idle[part.connector.name] = Idle(Idleness.INVALID, problems)
        else:
            fitting.append(part)
    group = worker.text("group.id")
    settings, accepted = _without_loops(
        partial(combined, alone, group=group, is_distributed=True), fitting, idle, is_strict=is_strict
    )
    places = {it.connector.name: Place(it.place, it.connector.group) for it in placed(accepted)}
    flows_alone = {part.connector.name: part.flow for part in parts if part.flow is not None}
    return Composition(attrs.evolve(settings, provided={**awaited, **settings.provided}), places, flows_alone, idle)


def _beside(accepted: Sequence[Part], one: Part) -> tuple[Problem, ...]:
    others = [part.connector for part in accepted]
    return tuple(judge_beside([*others, one.connector])) or tuple(_judge_targets(accepted, one))


def _judge_targets(others: Sequence[Part], one: Part) -> Iterator[Problem]:
    """Refuse a second alias for the target of a source: the nodes of both flows would be one group there."""
    for other in others:
        if HEARTBEAT in {one.connector.group, other.connector.group} or one.config is None or other.config is None:
            continue  # heartbeats are shared by no group
        mine, known = one.connector.flow, other.connector.flow
        is_one = set(one.config.target.bootstrap_servers) & set(other.config.target.bootstrap_servers)
        if is_one and mine.source == known.source and mine.target != known.target:
            message = f"{other.connector.name} has source {known.source} and the same target, as {known.target}"
            yield Problem(one.connector.name, _TARGET, message, f"write the same {_TARGET} in both")


def _without_loops(
    combine: Callable[[Sequence[Part]], MirrorSettings],
    parts: Sequence[Part],
    idle: dict[str, Idle],
    *,
    is_strict: bool,
) -> tuple[MirrorSettings, Sequence[Part]]:
    """Return the settings of those *parts* that do not feed each other, and which these are; others become *idle*."""

    def load(some: Sequence[Part]) -> MirrorSettings:
        settings = combine(some)
        if (notes := judged(settings).notes) and is_strict:
            raise ConfigError(notes)
        return settings

    try:
        return load(parts), parts
    except ConfigError:
        settings, accepted = combine(()), list[Part]()
    for part in parts:
        try:
            settings = load([*accepted, part])
        except ConfigError as error:
            idle[part.connector.name] = Idle(Idleness.INVALID, error.problems)
        else:
            accepted.append(part)
    return settings, accepted


def _unusable(config: Mapping[str, str], problem: Problem) -> Idle:
    is_foreign = problem.key == "connector.class" and bool(config.get("connector.class", "").strip())
    return Idle(Idleness.FOREIGN if is_foreign else Idleness.INVALID, (problem,))


def created_ms(name: str, config: Mapping[str, str], connectors: Connectors, now_ms: int) -> int:
    """Return when a connector that is stored now among *connectors* counts as created: see `StoredConnector`."""
    pair, known = _pair_copied(name, config), connectors.get(name)
    if known is not None and _pair_copied(name, known.config) == pair:
        return known.created_ms
    others = (_pair_copied(other, one.config) for other, one in connectors.items() if other != name)
    return now_ms if pair is not None and pair in others else 0


def _pair_copied(name: str, config: Mapping[str, str]) -> Flow | None:
    """Return the pair of which a connector copies topics."""
    found = classify(parsed(name, config))
    return found.flow if isinstance(found, Connector) and found.group == SOURCE else None


Composed = Callable[[Connectors], Composition]


def own_problems(
    name: str, config: Mapping[str, str], others: Connectors, composed: Composed
) -> tuple[list[Problem], Composition]:
    """Return all problems of one connector, and what it comes to beside *others*. *composed* returns what connectors
    come to with the worker's file.
    """
    problems: list[Problem] = []
    found = classify(parsed(name, config))
    if isinstance(found, Problem) and found.key == _ALIAS and _ALIAS not in config:
        problems.append(found)
        config = {**config, _ALIAS: "source"}
    now = composed({**others, name: StoredConnector(config)})
    own = now.idle.get(name)
    problems += () if own is None else own.problems
    if "connector.class" in config and (own is None or own.why is not Idleness.FOREIGN):
        problems += _unusable_classes(name, config, composed)
    return problems, now


def _unusable_classes(name: str, config: Mapping[str, str], composed: Composed) -> list[Problem]:
    """Return which classes of a connector cannot be loaded, whatever else is wrong with it."""
    needed = {key: text for key, text in config.items() if key.startswith(_ENDS) or key in {"name", *_CLASSES}}
    for some in (config, {**needed, "connector.class": config["connector.class"]}):
        found = composed({name: StoredConnector(some)}).alone.get(name) if _CLASSES & config.keys() else None
        if found is not None:
            return [
                Problem(name, error.key, f"{error.class_name}: {error.reason}", error.hint)
                for error in unusable_classes(found)
                if error.key in config
            ]
    return []
