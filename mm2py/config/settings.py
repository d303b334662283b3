"""
The settings of a whole mirror, frozen: which flows this node runs and how.

`load_settings` reads a file and either returns valid settings, or raises one error with every problem.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs

from mm2py.config.advice import (
    judge_exactly_once,
    judge_renamed_source,
    note_exactly_once,
    note_overruled,
    note_readable,
    note_settings,
    note_transforms,
    note_unread,
    note_unsynced,
)
from mm2py.config.connector import (
    BrokenHistorySettings,
    ConnectorConfig,
    MirrorCheckpointConfig,
    MirrorHeartbeatConfig,
    MirrorSourceConfig,
    checkpoint_config,
    error_settings,
    heartbeat_config,
    shared_config,
    source_config,
)
from mm2py.config.explain import Effective, effective
from mm2py.config.keys.row import LineLevel
from mm2py.config.keys.table import find_key, nearest
from mm2py.config.layers import Imported, Layers, Side, level_of, lines_of, modernise
from mm2py.config.lint import Line, classify_all, judge_document, lint, note_document
from mm2py.config.problem import ConfigError, Problem, in_order
from mm2py.config.properties import escaped, parse_bytes
from mm2py.config.providers import Machine, Stamps
from mm2py.config.references import resolve_references
from mm2py.config.resolve import (
    FlowReader,
    NamedAgain,
    ProcessReader,
    cluster_aliases,
    cluster_endpoint,
    flow_endpoint,
    running_flows,
    target_named_again,
)
from mm2py.config.rest import RestSettings, judge_rest, note_rest, rest_settings
from mm2py.config.security import carries_secrets, encrypts_traffic, is_on_this_machine
from mm2py.config.transforms import judge_transforms, read_transforms
from mm2py.config.worker import WorkerConfig, distributed_worker_config, worker_config
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow
from mm2py.model.topic import is_topic_name


__all__ = [
    "BrokenHistorySettings",
    "ConfigError",
    "Effective",
    "FlowSettings",
    "MirrorSettings",
    "Problem",
    "import_settings",
    "load_settings",
]

_TARGETS = "--clusters"
_Lines = Mapping[str, str]


@attrs.frozen
class FlowSettings:
    """How one flow is run."""

    flow: Flow
    source_connector: MirrorSourceConfig
    checkpoint_connector: MirrorCheckpointConfig
    heartbeat_connector: MirrorHeartbeatConfig
    worker: WorkerConfig
    named_again: tuple[NamedAgain, ...] = ()
    #: Other source connectors of its pair that keep positions under the same name, as those of a standalone worker do.
    beside: tuple[MirrorSourceConfig, ...] = attrs.field(default=(), eq=False, repr=False)

    @property
    def is_enabled(self) -> bool:
        """Whether its topics are mirrored."""
        return self.source_connector.is_enabled

    @property
    def reads_source(self) -> bool:
        """Whether its nodes share it: it does more than to emit heartbeats."""
        return self.is_enabled or self.checkpoint_connector.is_run

    @property
    def source(self) -> ClusterEndpoint:
        return self.source_connector.source

    @property
    def target(self) -> ClusterEndpoint:
        return self.source_connector.target

    def config_of(self, connector: str) -> ConnectorConfig:
        """Return the config of a *connector*, by the name of its class."""
        return {
            SOURCE: self.source_connector,
            CHECKPOINT: self.checkpoint_connector,
            HEARTBEAT: self.heartbeat_connector,
        }[connector]

    def as_flow(self, flow: Flow) -> FlowSettings:
        """Return the same as settings of *flow*, another one of its pair."""
        return attrs.evolve(
            self,
            flow=flow,
            source_connector=attrs.evolve(self.source_connector, flow=flow),
            checkpoint_connector=attrs.evolve(self.checkpoint_connector, flow=flow),
            heartbeat_connector=attrs.evolve(self.heartbeat_connector, flow=flow),
        )

    @property
    def group_id(self) -> str:
        """The group at the target that the flow's node joins."""
        return self.worker.group_id


@attrs.frozen
class MirrorSettings:
    """The settings of one node."""

    path: Path
    clusters: Mapping[str, ClusterEndpoint]
    #: The flows of this node: enabled ones, and those that only emit heartbeats.
    flows: tuple[FlowSettings, ...]
    spark: Mapping[str, str] = attrs.field(repr=False)
    log_format: str
    log_level: str
    #: How many topic-partitions, and how many topics and groups, have their own series.
    metrics_partitions_max: int = 2_000
    metrics_topics_max: int = 1_000
    #: Where a Spark cluster's executors get further plans from this process: 0 for any port, -1 for none.
    plans_port: int = 0
    #: The file with the key that encrypts secrets sent to Spark's executors; empty if there is none.
    secrets_key_file: str = ""
    rest: RestSettings = attrs.field(factory=RestSettings)
    notes: tuple[Problem, ...] = ()
    #: A distributed worker's own group, at the target of all its flows.
    worker: WorkerConfig = attrs.field(factory=lambda: WorkerConfig(""))
    #: Enabled flows of the file that other nodes run.
    elsewhere: tuple[FlowSettings, ...] = attrs.field(default=(), repr=False)
    #: Every key's value and origin, secrets masked.
    effective: tuple[Effective, ...] = attrs.field(default=(), repr=False)
    #: The files that references such as ``${file:…}`` read, as they were then.
    provided: Stamps = attrs.field(factory=dict, eq=False, repr=False)
    #: Returns the settings of the same files with overrides that operators set while flows run.
    with_live: Callable[[Mapping[str, str]], MirrorSettings] | None = attrs.field(default=None, eq=False, repr=False)
    #: Returns the settings of the same files with what the owners of flows have otherwise.
    with_owners: Callable[[Mapping[str, str]], MirrorSettings] | None = attrs.field(default=None, eq=False, repr=False)


def load_settings(
    path: str | Path,
    *,
    targets: Sequence[str] = (),
    overrides: Mapping[str, str] | None = None,
    machine: Machine | None = None,
) -> MirrorSettings:
    """Read the file at *path* for a node that serves the clusters *targets* (all, if empty). *overrides* are treated
    as lines after the last one; value providers access *machine*, by default this one. Raise ConfigError with all
    problems.
    """
    given = _Given(_read(Path(path)), targets, overrides or {}, machine or Machine())
    return _changeable(partial(_settings, given))


def import_settings(
    imported: Imported, *, overrides: Mapping[str, str] | None = None, machine: Machine | None = None
) -> MirrorSettings:
    """
    Return the settings of files in another format.

    *overrides* are written as in an ``mm2.properties``. Raise ConfigError with all problems, those of the import and of
    its result.
    """
    return _changeable(partial(_settings, _Given(imported, (), overrides or {}, machine or Machine())))


def _changeable(read: Callable[[_Lines, _Lines], MirrorSettings]) -> MirrorSettings:
    """Return the settings that *read* returns for live lines and those of owners, with the ways to change both."""

    def with_lines(live: _Lines, owners: _Lines) -> MirrorSettings:
        return attrs.evolve(
            read(live, owners),
            with_live=lambda lines: with_lines(lines, owners),
            with_owners=lambda lines: with_lines({}, lines),
        )

    return with_lines({}, {})


@attrs.frozen
class _Given:
    """The inputs of settings: the lines of files, a node's targets, the command line, and the machine."""

    imported: Imported
    targets: Sequence[str]
    overrides: Mapping[str, str] = attrs.field(repr=False)
    machine: Machine


def _settings(given: _Given, live: _Lines, owners: _Lines) -> MirrorSettings:
    imported, targets, file = given.imported, given.targets, given.imported.path.name
    resolved = resolve_references(Layers(imported.lines, given.overrides, live, owners), given.machine)
    aliases = cluster_aliases(resolved.layers)
    layers = (modern := modernise(resolved.layers, aliases)).layers
    lines = classify_all(layers, aliases)
    found = lint(layers, lines, aliases)
    notes = imported.of_user((*imported.notes, *found.notes, *resolved.notes, *modern.notes))
    problems = [*imported.problems, *resolved.problems, *found.problems, *_judge_clusters(file, layers)]
    flows: list[FlowSettings] = []
    for flow in running_flows(layers, targets):
        settings = _flow(layers, flow)
        if isinstance(settings, FlowSettings):
            flows.append(settings)
        else:
            problems.extend(settings)
    problems.extend((*_judge_targets(targets, aliases), *_judge_secrets(flows, layers), *judge_rest(layers)))
    if not problems and not imported.may_be_idle:
        problems.extend(_judge_flows(file, flows, layers, targets))
    if problems:
        # What is wrong with a line that no user wrote follows from what is wrong with others.
        refused = tidied(resolved.without_effects(imported.of_user(problems) or problems))
        raise ConfigError(in_order(refused, imported.named), notes, resolved.files)

    of = ProcessReader(layers)
    clusters = {alias: end for alias in aliases if isinstance(end := cluster_endpoint(layers, alias), ClusterEndpoint)}
    return MirrorSettings(
        path=imported.path,
        clusters=_with_those_of_flows(clusters, aliases, flows),
        flows=tuple(flows),
        spark=_spark(layers),
        log_format=of.text("log.format"),
        log_level=of.text("log.level"),
        metrics_partitions_max=of.number("metrics.partitions.max"),
        metrics_topics_max=of.number("metrics.topics.max"),
        plans_port=of.number("copy.plans.port"),
        secrets_key_file=of.text("secrets.key.file"),
        rest=rest_settings(layers),
        notes=(*notes, *imported.of_user(_advise(given, layers, lines, flows))),
        worker=distributed_worker_config(layers, flows[0].flow.target if flows else next(iter(aliases), "")),
        elsewhere=_elsewhere(layers, flows),
        effective=tuple(effective(of, [FlowReader(layers, settings.flow) for settings in flows], lines)),
        provided=resolved.files,
    )


def _with_those_of_flows(
    clusters: Mapping[str, ClusterEndpoint], aliases: Sequence[str], flows: Iterable[FlowSettings]
) -> dict[str, ClusterEndpoint]:
    """Return *clusters*, and those of which only a flow's lines tell where they are, as a connector's file does."""
    of_flows = {end.alias: end for settings in flows for end in (settings.source, settings.target)}
    known = {**of_flows, **clusters}
    return {alias: known[alias] for alias in aliases if alias in known}


def _advise(given: _Given, layers: Layers, lines: Sequence[Line], here: Sequence[FlowSettings]) -> Iterator[Problem]:
    """Check a node's flows, those *here*, and the files for all nodes together."""
    imported, flows = given.imported, [FlowReader(layers, flow) for flow in running_flows(layers)]
    yield from _note_aliases(layers, here)
    yield from note_rest(rest_settings(layers), layers)
    if not imported.may_be_idle:
        yield from _note_heartbeats_only(imported.path.name, here, layers, given.targets)
    enabled = [of for of in flows if of.flag("enabled")]
    yield from note_unread(lines, flows, enabled)
    yield from note_overruled(lines, flows)
    yield from note_exactly_once(enabled)
    yield from note_unsynced(enabled)
    # A line at the top level is the same for several flows.
    yield from dict.fromkeys(note for of in enabled for note in note_settings(of))
    for of in enabled:
        yield from note_transforms(of)
    yield from note_readable(imported.named, lines, layers, given.machine)


def _elsewhere(layers: Layers, flows: Sequence[FlowSettings]) -> tuple[FlowSettings, ...]:
    """Read the flows of other nodes; a flow that cannot be read here is skipped."""
    here = {settings.flow for settings in flows}
    others = (_flow(layers, flow) for flow in running_flows(layers) if flow not in here)
    return tuple(other for other in others if isinstance(other, FlowSettings) and other.is_enabled)


def _flow(layers: Layers, flow: Flow) -> FlowSettings | tuple[Problem, ...]:
    of = FlowReader(layers, flow)
    source, target = flow_endpoint(of, Side.SOURCE), flow_endpoint(of, Side.TARGET)
    again = target_named_again(layers, flow)
    ends = (end for end in (source, target, again) if isinstance(end, Problem))
    problems = (
        *_judge_alias(flow, layers),
        *judge_renamed_source(of),
        *ends,
        *judge_transforms(of),
        *judge_exactly_once(of),
    )
    if isinstance(source, Problem) or isinstance(target, Problem) or problems:
        return problems
    settings = flow_settings(of, source, target)
    return attrs.evolve(settings, named_again=(again,) if isinstance(again, NamedAgain) else ())


def flow_settings(of: FlowReader, source: ClusterEndpoint, target: ClusterEndpoint) -> FlowSettings:
    """Read all settings of a flow."""
    shared = shared_config(of, source, target)
    transforms = read_transforms(of, error_settings(of))
    return FlowSettings(
        flow=of.flow,
        source_connector=source_config(of, shared, transforms),
        checkpoint_connector=checkpoint_config(of, shared, transforms),
        heartbeat_connector=heartbeat_config(of, shared),
        worker=worker_config(of),
    )


def tidied(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Sort problems in the file's order, one for each key of a line: the first one is closest to the cause."""
    kept: dict[tuple[str, str, str], Problem] = {}
    for problem in problems:
        # One line may list several invalid aliases.
        detail = problem.message if problem.key == "clusters" else ""
        kept.setdefault((problem.where, problem.key, detail), problem)
    return tuple(sorted(kept.values(), key=_line_number))


def _line_number(problem: Problem) -> int:
    _, _, number = problem.where.rpartition(":")
    return int(number) if number.isdigit() else 0


def _read(path: Path) -> Imported:
    try:
        document = parse_bytes(path.read_bytes(), name=path.name)
    except OSError as error:
        problem = Problem(str(path), "", f"cannot be read: {error.strerror or error}", "name a .properties file")
        raise ConfigError((problem,)) from error
    own = tuple(judge_document(document)), tuple(note_document(document))
    return Imported({path.name: path}, lines_of(document), *own)


def _spark(layers: Layers) -> dict[str, str]:
    master = ProcessReader(layers).text("spark.master")
    passed = {line.counts_as: line.text.strip() for line in layers.lines() if line.counts_as.startswith("spark.")}
    return passed | {"spark.master": master}


def _judge_secrets(flows: Sequence[FlowSettings], layers: Layers) -> Iterator[Problem]:
    """Refuse to send secrets in clear text over a network: an epoch's plan goes to Spark's executors."""
    spark = _spark(layers)
    ends = [end for flow in flows if flow.is_enabled for end in (flow.source, flow.target)]
    has_key = bool(ProcessReader(layers).text("secrets.key.file"))
    if is_on_this_machine(spark["spark.master"]) or has_key or encrypts_traffic(spark) or not carries_secrets(ends):
        return
    line = layers.get("spark.master")
    yield Problem(
        line.where if line else "",
        "secrets.key.file",
        "passwords and keys would go to Spark's executors in clear text",
        "name a file with the same key here and on each of Spark's machines, or switch on spark.authenticate, "
        "spark.network.crypto.enabled and spark.io.encryption.enabled",
    )


def _judge_clusters(file: str, layers: Layers) -> Iterator[Problem]:
    line = layers.get("clusters")
    if line is None:
        yield Problem(file, "clusters", "missing: the aliases of all clusters", "add clusters = A, B")
        return
    for alias in cluster_aliases(layers):
        if not _is_alias(alias):
            yield Problem(line.where, line.key, f"alias {alias!r} may contain neither -> nor control characters")
        words = alias.replace(";", " ").split()
        if len(words) > 1 and all(
            any(found.counts_as.startswith(f"{word}.") for found in layers.lines()) for word in words
        ):
            message = f"{alias!r} is one alias: they are separated by commas"
            yield Problem(line.where, line.key, message, f"write clusters = {', '.join(words)}")


def _is_alias(alias: str) -> bool:
    # URLs and logs cannot carry control characters; Java's HTTP server refuses them, too.
    return "->" not in alias and not any(unicodedata.category(char) in {"Cc", "Cs"} for char in alias)


def _judge_targets(targets: Sequence[str], aliases: Sequence[str]) -> Iterator[Problem]:
    for target in targets:
        if target not in aliases:
            near = nearest(target, aliases)
            known = f"clusters names {', '.join(aliases) or 'none'}"
            yield Problem(_TARGETS, target, "unknown cluster", f"did you mean {near}? {known}" if near else known)


def _judge_alias(flow: Flow, layers: Layers) -> Iterator[Problem]:
    """Refuse an alias that is invalid in the names of topics that the flow needs."""
    of, line = FlowReader(layers, flow), layers.get("clusters")
    where = line.where if line else ""
    if not of.flag("enabled") or not (_is_alias(flow.source) and _is_alias(flow.target)):
        return
    if is_topic_name(flow.source):
        is_at_source = of.flag("emit.offset-syncs.enabled") and of.text("offset-syncs.topic.location") == "source"
        if is_at_source and not is_topic_name(flow.target):
            message = f"alias {flow.target!r} cannot be part of a topic's name, as in mm2-offset-syncs.<alias>.internal"
            yield Problem(where, "clusters", message, f"add {escaped(f'{flow}.offset-syncs.topic.location')} = target")
    else:
        message = f"alias {flow.source!r} is a source cluster, so it becomes part of topic names"
        yield Problem(where, "clusters", message, "use letters, digits, dots, underscores and dashes")


def _judge_flows(file: str, flows: Sequence[FlowSettings], layers: Layers, targets: Sequence[str]) -> Iterator[Problem]:
    """Refuse to run without any flow. A node that only emits heartbeats runs, as in Java MirrorMaker."""
    if flows:
        return
    message = "No source->target replication flows."
    yield Problem(file, "", message, _hint_at_flow(layers, targets))


def _note_heartbeats_only(
    file: str, flows: Sequence[FlowSettings], layers: Layers, targets: Sequence[str]
) -> Iterator[Problem]:
    """Note that a node mirrors nothing: usually a flow was not enabled, or misspelt."""
    if not any(settings.is_enabled for settings in flows):
        message = "no flow is enabled: this node mirrors nothing and only emits heartbeats"
        yield Problem(file, "", message, _hint_at_flow(layers, targets))


def _hint_at_flow(layers: Layers, targets: Sequence[str]) -> str:
    aliases = cluster_aliases(layers)
    if len(aliases) == 1:
        return f"clusters names only {aliases[0]}; a flow needs two"
    enabled = [flow for flow in running_flows(layers) if FlowReader(layers, flow).flag("enabled")]
    if targets and enabled:
        named = ", ".join(str(flow) for flow in enabled)
        return f"enabled are {named}; none of them has the target {_TARGETS} {' '.join(targets)}"
    for line in layers.lines():
        key = line.counts_as
        is_strange = "->" in key and level_of(key, aliases)[0] is not LineLevel.FLOW
        if is_strange and key.endswith(".enabled") and line.text.strip().lower() == "true":
            return f"{line.key} ({line.where}) names a cluster that clusters does not list"
    if (line_at_top := layers.get("enabled")) is not None and line_at_top.text.strip().lower() == "true":
        return (
            f"a top-level enabled applies only to flows that emit heartbeats; add {_first_flow(aliases)}.enabled = true"
        )
    return f"add {_first_flow(aliases)}.enabled = true"


def _first_flow(aliases: Sequence[str]) -> Flow:
    return Flow(*(*aliases, "A", "B")[:2])


def _note_aliases(layers: Layers, flows: Iterable[FlowSettings]) -> Iterator[Problem]:
    line = layers.get("clusters")
    where = line.where if line else ""
    for alias in cluster_aliases(layers):
        for found in layers.lines():
            if found.counts_as.startswith(f"{alias}.") and find_key(LineLevel.TOP, found.counts_as) is not None:
                message = f"applies to all flows; it is no setting of cluster {alias}, whose alias it begins with"
                yield Problem(found.where, found.key, message)
    for settings in flows:
        separator, alias = settings.source_connector.policy.separator, settings.flow.source
        if settings.is_enabled and separator and separator in alias:
            message = f"alias {alias} contains the separator {separator!r}: cycles cannot be told from topic names"
            yield Problem(where, "clusters", message, "choose another alias or replication.policy.separator")
