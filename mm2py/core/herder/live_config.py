"""
Live settings: which settings operators may change while a flow runs, and how PUT and PATCH change its overrides.

A connector's config is shown as Kafka Connect shows it, and accepted in the same shape: a value equal to the file's is
no change. Values that replace the file's are stored with the flow's overrides, under MirrorMaker's names of a flow's
settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from mm2py.config.connector import only_reader_of
from mm2py.config.explain import masked
from mm2py.config.keys.ignored import FOREIGN_KEYS
from mm2py.config.keys.row import Key, Kind, LineLevel, Place
from mm2py.config.keys.table import KEYS, find_key, key_named, nearest
from mm2py.config.layers import DEFAULT, LIVE, spellings
from mm2py.config.settings import ConfigError, MirrorSettings, Problem
from mm2py.core.herder.overrides import CONNECTORS, SOURCE, start_connector
from mm2py.errors import OverrideRejectedError, UnknownConnectorError
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides, Wanted
from mm2py.model.patterns import split_list


_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_FIXED: Final = ("name", "connector.class", "source.cluster.alias", "target.cluster.alias")
#: Shown with every connector: settings shared by all of them.
_SHARED: Final = ("enabled", "replication.policy.", "remote.topic.")
#: What begins settings that several connectors read, or by which a flow's nodes share it: see `restarting_alone`.
_OF_ALL: Final = (
    *_SHARED, "tasks.max", "copy.epoch.ms", "copy.drain.ms", "copy.on.second.node", "exactly.once.", "errors.",
    "topics", "topic.filter.", "admin.", "consumer.", "producer.",
)  # fmt: skip
_CHANGEABLE: Final = frozenset({Place.FLOW, Place.FLOW_ONLY, Place.CONSUMER, Place.PRODUCER, Place.ADMIN})
_IN_FILE: Final = "change it in the file"
#: Why a setting cannot change while a flow runs, by prefix.
_REASONS: Final = {
    "enabled": "stop or delete the connector instead",
    "emit.checkpoints.enabled": "stop or delete the connector instead",
    "emit.heartbeats.enabled": "stop or delete the connector instead",
    "replication.policy.": f"copying would continue in other topics: {_IN_FILE}",
    "remote.topic.": f"copying would continue in other topics: {_IN_FILE}",
    "offset-syncs.topic.location": f"existing offset syncs would stay on the other cluster: {_IN_FILE}",
    "offsets.storage.topic": f"existing positions would stay in the other topic: {_IN_FILE}",
    "consumer.isolation.level": f"a resume depends on it to count records: {_IN_FILE}",
    "transforms": f"records before and after the change would differ: {_IN_FILE}",
    "predicates": f"records before and after the change would differ: {_IN_FILE}",
}


@attrs.frozen
class LiveSetting:
    """A setting that overrides the file's; `in_file` is None if neither the file nor the defaults have it."""

    connector: str
    key: str
    value: str
    in_file: str | None


@attrs.frozen
class FlowSetting:
    """A setting of a flow as it applies. `origin` is ``override``, ``default``, or the line of the file; `why_not` is
    the reason why it cannot change while the flow runs, empty if it can. `restarts` is the connector that restarts when
    it changes, ``flow`` if that may be more than one.
    """

    connector: str
    key: str
    value: str
    in_file: str | None
    origin: str
    doc: str
    why_not: str
    restarts: str


@attrs.frozen
class Asked:
    """The changes in a body: settings by name, None to revert to the file's value, and all problems."""

    values: Mapping[str, str | None]
    problems: tuple[str, ...] = ()


# Showing.


def connector_config(settings: MirrorSettings, flow: Flow, connector: str) -> dict[str, str]:
    """Return a connector's config as Connect would show it: a flat map, secrets masked."""
    _check(flow, connector)
    shown = {
        "name": connector,
        "connector.class": _PACKAGE + connector,
        "source.cluster.alias": flow.source,
        "target.cluster.alias": flow.target,
    }
    for one in settings.effective:
        name = _shown_name(flow, connector, one.key) if one.owner == str(flow) and one.acts else None
        if name is not None and (one.value or one.origin != DEFAULT):
            shown.setdefault(name, one.value)
    if connector != SOURCE:
        shown["tasks.max"] = "1"
    return shown


def _shown_name(flow: Flow, connector: str, key: str) -> str | None:
    """Return a connector's name for a setting of its flow, None if it has none."""
    side, _, rest = key.partition(".")
    if side in {"source", "target"} and (row := find_key(LineLevel.CLUSTER, rest)) and row.place is Place.CLUSTER:
        return f"{side}.cluster.{rest}"
    for alias, side in ((flow.source, "source"), (flow.target, "target")):
        rest = key.removeprefix(f"{alias}.")
        if rest != key and (row := find_key(LineLevel.CLUSTER, rest)) is not None:
            return f"{side}.cluster.{rest}" if row.place is Place.CLUSTER else None
    row = find_key(LineLevel.FLOW, key)
    if row is None or row.place not in _CHANGEABLE:
        return None
    return key if connector_of(key) == connector or key.startswith(_SHARED) else None


def shown_config(overrides: Overrides, live: MirrorSettings, flow: Flow, connector: str) -> dict[str, str]:
    """
    Return a connector's config as it was put, as Connect does; else as `connector_config` has it, of the *live*
    settings. What has another value by now, by a change of the file, has that one.
    """
    said = connector_config(live, flow, connector)
    put = overrides.put.get(connector)
    return said if put is None else {name: _now(name, text, said) for name, text in put.items()}


def _now(name: str, text: str, said: Mapping[str, str]) -> str:
    row = find_key(LineLevel.FLOW, name)
    now = said.get(name, said.get(row.full_name) if row is not None else None)
    return text if now is None or now == _shown(name, text) or _is_as_said(row, text, now) else now


def _shown(name: str, text: str) -> str:
    """Return the text of a setting in the form in which Connect's other ways to write it are shown."""
    return _PACKAGE + text.strip().rpartition(".")[2] if name == "connector.class" else text


def live_settings(overrides: Overrides, file: MirrorSettings, flow: Flow, connector: str) -> tuple[LiveSetting, ...]:
    """Return the settings that replace the file's, with the file's values."""
    said = connector_config(file, flow, connector)
    lines = sorted(overrides.config.get(connector, {}).items())
    return tuple(LiveSetting(connector, key, value, said.get(key)) for key, value in lines)


def flow_settings(overrides: Overrides, file: MirrorSettings, flow: Flow) -> tuple[FlowSetting, ...]:
    """Return every setting of a flow by name, those without a value too if they can be given one."""
    found: dict[str, FlowSetting] = {}
    for connector in CONNECTORS:
        said = connector_config(file, flow, connector)
        live = overrides.config.get(connector, {})
        origins = {
            _shown_name(flow, connector, one.key): one.origin
            for one in reversed(file.effective)
            if one.owner == str(flow) and one.acts
        }
        for name in {*said, *live, *_names_of(flow, connector)} - {*_FIXED, *found}:
            row = find_key(LineLevel.FLOW, name)
            about = row or find_key(LineLevel.CLUSTER, name.partition(".cluster.")[2])
            found[name] = FlowSetting(
                connector,
                name,
                live.get(name, said.get(name, (row.default if row is not None else None) or "")),
                said.get(name),
                "override" if name in live else origins.get(name, DEFAULT),
                about.doc if about is not None else "",
                _why_not(flow, connector, name, row),
                "flow" if name.startswith(_OF_ALL) else connector,
            )
    return tuple(found[name] for name in sorted(found))


def connector_of(name: str) -> str:
    """Return which connector a flow's setting belongs to."""
    return only_reader_of(name) or SOURCE


# Changing.


def put_config(
    overrides: Overrides,
    flow: Flow,
    connector: str,
    body: Mapping[str, object],
    file: MirrorSettings,
    *,
    sent: Mapping[str, object] | None = None,
    wanted: Wanted = Wanted.RUNNING,
) -> Overrides:
    """Replace a connector's settings by those in *body*; omitted keys have the *file*'s values. A deleted connector is
    *wanted* again, one that is paused or stopped stays so. *sent* is the body in the words of who sent it. Raise
    OverrideRejectedError with all problems.
    """
    asked = read_config(flow, connector, body, file)
    nothing = [f"{key} has no value; omit it to revert to the file's" for key in body if body[key] is None]
    if problems := (*asked.problems, *nothing):
        raise OverrideRejectedError(problems)
    values = {key: value for key, value in asked.values.items() if value is not None}
    if overrides.wanted(connector) is Wanted.DELETED:
        overrides = start_connector(overrides, connector, wanted)
    texts = masked({"name": connector, **{name: _text(value) for name, value in (sent or body).items()}})
    put = {name: before for name, before in overrides.put.items() if name != connector}
    if values or texts != connector_config(file, flow, connector):
        put[connector] = texts
    return _with_config(attrs.evolve(overrides, put=put), connector, values)


def patch_config(
    overrides: Overrides, flow: Flow, connector: str, body: Mapping[str, object], file: MirrorSettings
) -> Overrides:
    """Change the keys in *body*; None reverts to the *file*'s value. Raise OverrideRejectedError with all problems."""
    asked = read_config(flow, connector, body, file)
    if asked.problems:
        raise OverrideRejectedError(asked.problems)
    if (put := overrides.put.get(connector)) is not None:
        texts = {name: _text(value) for name, value in {**put, **body}.items() if value is not None}
        overrides = attrs.evolve(overrides, put={**overrides.put, connector: masked(texts)})
    merged = {**overrides.config.get(connector, {}), **asked.values}
    return _with_config(overrides, connector, {key: value for key, value in merged.items() if value is not None})


def revert_config(overrides: Overrides, flow: Flow, connector: str, keys: Iterable[str] | None = None) -> Overrides:
    """Revert some *keys* of a connector, or all, to the file's values."""
    _check(flow, connector)
    keys = None if keys is None else set(keys)
    others = {name: sent for name, sent in overrides.put.items() if name != connector}
    if keys is None:
        return _with_config(attrs.evolve(overrides, put=others), connector, {})
    gone = {row.full_name if (row := find_key(LineLevel.FLOW, key)) is not None else key for key in keys}
    kept = {key: value for key, value in overrides.config.get(connector, {}).items() if key not in gone}
    if connector in overrides.put:
        sent = {key: text for key, text in overrides.put[connector].items() if key not in {*keys, *gone}}
        overrides = attrs.evolve(overrides, put={**others, connector: sent})
    return _with_config(overrides, connector, kept)


def _with_config(overrides: Overrides, connector: str, values: Mapping[str, str]) -> Overrides:
    others = {name: lines for name, lines in overrides.config.items() if name != connector}
    return attrs.evolve(overrides, config=others | ({connector: dict(values)} if values else {}))


def read_config(flow: Flow, connector: str, body: Mapping[str, object], file: MirrorSettings) -> Asked:
    """Parse a body: values that differ from the *file*'s, None for values equal to them."""
    said = connector_config(file, flow, connector)
    values: dict[str, str | None] = {}
    problems: list[str] = []
    for name, value in body.items():
        row = find_key(LineLevel.FLOW, name)
        if value is None:
            if row is None or connector_of(row.full_name) != connector:
                problems.append(_why_not(flow, connector, name, row))
            else:
                values[row.full_name] = None
            continue
        if isinstance(value, dict | list):
            problems.append(f"{name} must be a string")
            continue
        text = _text(value)
        if name == "clusters" and set(split_list(text)) == set(flow.aliases):
            continue  # as KIP-382's connectors name the clusters of their flow
        if _is_as_said(row, text, said.get(name, said.get(row.full_name) if row is not None else None)):
            if row is not None:
                values[row.full_name] = None
        elif problem := _judge(flow, connector, name, row, text):
            problems.append(problem)
        elif row is not None:
            values[row.full_name] = text
    return Asked(values, tuple(problems))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_as_said(row: Key | None, text: str, said: str | None) -> bool:
    if said is None:
        return row is not None and text.strip() in {"" if row.default is None else row.default, *row.fits}
    if text.strip() == said.strip() or row is None:
        return text.strip() == said.strip()
    try:
        return row.parse(text) == row.parse(said)
    except ValueError:
        return False


def _judge(flow: Flow, connector: str, name: str, row: Key | None, text: str) -> str:
    """Return the problem with setting *name*, empty if there is none."""
    reason = _why_not(flow, connector, name, row)
    if reason or row is None:
        return reason
    if "${" in text:
        return f"{name}: only the file may refer to value providers"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"{name} has half of a surrogate pair, which no topic can store"
    try:
        row.parse(text)
    except ValueError as error:
        return f"{name}: {error}"
    return ""


def _why_not(flow: Flow, connector: str, name: str, row: Key | None) -> str:
    """Return why a setting cannot be changed here, empty if it can."""
    if name in _FIXED:
        return f"{name} identifies the connector: it cannot be changed"
    if row is None:
        return _unknown(flow, connector, name)
    if row.place is Place.CLUSTER or row.is_secret:
        return f"{name} is a connection setting of a cluster: {_IN_FILE}"
    reason = next((reason for stem, reason in _REASONS.items() if row.full_name.startswith(stem)), "")
    if not reason and row.kind is Kind.CLASS:
        reason = f"it names code to be run: {_IN_FILE}"
    elif not reason and row.acts and (row.stem is not None or row.place not in _CHANGEABLE):
        reason = _IN_FILE
    if reason:
        return f"{name} cannot change while the flow runs: {reason}"
    owner = connector_of(row.full_name)
    if owner != connector:
        return f"{name} is a setting of {owner}"
    return "" if row.acts else f"{name} has no effect in this version"


def _unknown(flow: Flow, connector: str, name: str) -> str:
    side, _, rest = name.partition(".cluster.")
    if side in {"source", "target"} and rest:
        return f"{name} is a connection setting of a cluster: {_IN_FILE}"
    if (row := find_key(LineLevel.CLUSTER, name)) is not None and row.place in {Place.WORKER, Place.WORKER_TOP}:
        return f"{name} applies to all flows into cluster {flow.target}: {_IN_FILE}, as {flow.target}.{name}"
    if find_key(LineLevel.TOP, name) is not None:
        return f"{name} applies to the whole process: {_IN_FILE}"
    if (instead := FOREIGN_KEYS.get(name)) is not None:
        return f"{name} is a key of another mirror: {instead}"
    near = nearest(name, _names_of(flow, connector))
    return f"{name} is unknown" + (f": did you mean {near}?" if near else "")


def _names_of(flow: Flow, connector: str) -> Iterator[str]:
    return (row.full_name for row in KEYS if row.stem is None and not _why_not(flow, connector, row.full_name, row))


# As settings.


def lines_of(flow: Flow, overrides: Overrides) -> dict[str, str]:
    """
    Return the settings of *overrides* as lines of a properties file, in the form with the highest precedence.

    Raise OverrideRejectedError for those that this version does not know.
    """
    problems: list[str] = []
    lines: dict[str, str] = {}
    for connector, values in overrides.config.items():
        for name, value in values.items():
            row = find_key(LineLevel.FLOW, name)
            if row is None or (reason := _why_not(flow, connector, name, row)):
                problems.append(_unknown(flow, connector, name) if row is None else reason)
            else:
                lines[spellings(key_named(row.full_name), flow)[0]] = value
    if problems:
        raise OverrideRejectedError(tuple(problems))
    return lines


def refused(flow: Flow, error: ConfigError) -> OverrideRejectedError:
    """Return the problems of settings with live lines, by the names that operators wrote."""
    return OverrideRejectedError(tuple(dict.fromkeys(_as_requested(flow, problem) for problem in error.problems)))


def _as_requested(flow: Flow, problem: Problem) -> str:
    if problem.where != LIVE:
        return str(problem)
    name = problem.key.removeprefix(f"{flow}.")
    return str(attrs.evolve(problem, where="", key=name))


def _check(flow: Flow, connector: str) -> None:
    if connector not in CONNECTORS:
        raise UnknownConnectorError(str(flow), connector)
