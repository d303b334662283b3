"""
What a worker's file and its connectors come to, and what is wrong with one of them.

A connector that does not fit is left out, and never stops the others.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.importers.distributed import import_distributed, parsed, waiting
from mm2py.config.importers.lines import ParsedFile
from mm2py.config.importers.standalone import Connector, ConnectorClass, classify
from mm2py.config.providers import Stamp
from mm2py.config.settings import ConfigError, MirrorSettings, Problem, import_settings
from mm2py.connectors.plugins import unusable_classes
from mm2py.core.herder.overrides import SOURCE
from mm2py.herder.replication_loops import judged
from mm2py.model.flow import Flow
from mm2py.model.herder.connector_configs import StoredConnector


Configs = Mapping[str, Mapping[str, str]]
Connectors = Mapping[str, StoredConnector]

_ALIAS: Final = "source.cluster.alias"
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
    #: A checkpoint connector without a source connector of its flow.
    WAITING = "waiting"


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
    idle: Mapping[str, Idle] = attrs.field(factory=dict)


def compose(path: Path, worker: ParsedFile, configs: Configs, *, is_strict: bool = False) -> Composition:
    """Return the settings with all of *configs* that fit; where some contradict each other, earlier ones count. Raise
    ConfigError if the worker's file is invalid by itself.
    """

    def load(some: Configs) -> MirrorSettings:
        imported = import_distributed(path, worker, some)
        settings = import_settings(imported)
        if not settings.flows:
            settings = attrs.evolve(settings, notes=imported.notes)
        if (notes := judged(settings).notes) and is_strict:
            raise ConfigError(notes)
        return settings

    found = {name: classify(parsed(name, config)) for name, config in configs.items()}
    idle = {name: _unusable(configs[name], one) for name, one in found.items() if isinstance(one, Problem)}
    kinds = list(ConnectorClass)
    ours = sorted((one for one in found.values() if isinstance(one, Connector)), key=lambda one: kinds.index(one.kind))
    idle |= {name: Idle(Idleness.WAITING, (problem,)) for name, problem in waiting(configs).items()}
    accepted = {one.file.name: configs[one.file.name] for one in ours if one.file.name not in idle}
    try:
        settings = load(accepted)
    except ConfigError:
        wanted, accepted, settings, awaited = accepted, {}, load({}), dict[Path, Stamp]()
        for name, config in wanted.items():
            more = {**accepted, name: config}
            if name in (without := waiting(more)):
                idle[name] = Idle(Idleness.WAITING, (without[name],))
                continue
            try:
                settings, accepted = load(more), more
            except ConfigError as error:
                idle[name] = Idle(Idleness.INVALID, error.problems)
                awaited |= error.provided
        settings = attrs.evolve(settings, provided={**awaited, **settings.provided})
    places = {one.file.name: Place(one.flow, _group(one)) for one in ours if one.file.name in accepted}
    return Composition(settings, places, idle)


def _unusable(config: Mapping[str, str], problem: Problem) -> Idle:
    is_foreign = problem.key == "connector.class" and bool(config.get("connector.class", "").strip())
    return Idle(Idleness.FOREIGN if is_foreign else Idleness.INVALID, (problem,))


def _group(connector: Connector) -> str:
    return SOURCE if connector.kind is ConnectorClass.MIRUS else connector.kind.value


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
    if own is not None and own.why is Idleness.WAITING:  # it is judged as beside what it waits for
        own = _apart(name, config, composed).idle.get(name)
    problems += () if own is None else own.problems
    if "connector.class" in config and (own is None or own.why is not Idleness.FOREIGN):
        problems += _unusable_classes(name, config, composed)
    return problems, now


def _apart(name: str, config: Mapping[str, str], composed: Composed) -> Composition:
    """Return what a connector comes to without others, but for the source connector that a checkpoint one needs."""
    ends = {key: text for key, text in config.items() if key.startswith(_ENDS)}
    source = {} if name not in waiting({name: config}) else {**ends, "connector.class": ConnectorClass.SOURCE.value}
    beside = {f"{name} source": StoredConnector(source)} if source else {}
    return composed({**beside, name: StoredConnector(config)})


def _unusable_classes(name: str, config: Mapping[str, str], composed: Composed) -> list[Problem]:
    """Return which classes of a connector cannot be loaded, whatever else is wrong with it."""
    needed = {key: text for key, text in config.items() if key.startswith(_ENDS) or key in {"name", *_CLASSES}}
    for some in (config, {**needed, "connector.class": config["connector.class"]}):
        for settings in _apart(name, some, composed).settings.flows if _CLASSES & config.keys() else ():
            return [
                Problem(name, error.key, f"{error.class_name}: {error.reason}", error.hint)
                for error in unusable_classes(settings)
                if error.key in config
            ]
    return []
