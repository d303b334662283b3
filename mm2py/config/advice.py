"""Notes on common mistakes: lines that nothing reads, lines that another one overrides, settings that clash, files with
secrets that others may read. Java would run each of these files without a message. Invalid lines are handled in
`mm2py.config.lint`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.keys.cluster import LEAST_TRANSACTION_MS
from mm2py.config.keys.row import Key, LineLevel, Place, trimmed
from mm2py.config.keys.security import PROTOCOLS
from mm2py.config.keys.table import key_named
from mm2py.config.layers import Layers, Side, Value
from mm2py.config.lint import Line
from mm2py.config.problem import Problem
from mm2py.config.providers import Machine
from mm2py.config.references import files_provided
from mm2py.config.resolve import FlowReader
from mm2py.config.transforms import listed
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list


#: Settings of the copying clients.
_COPY = {Place.CONSUMER, Place.PRODUCER}
_BOTH = (Side.SOURCE, Side.TARGET)
#: What makes a flow run, one or the other.
_RUN = {"enabled", "emit.heartbeats.enabled"}
_REMOVE: Final = "remove this line"
_WORDS = ("consumer.", "producer.", "admin.")
#: Filters that choose by lists of names and expressions alone.
_OF_LISTS = ("default", "DefaultTopicFilter", "DefaultGroupFilter")
_NAMED_AFTER_ALIAS = ("default", "DefaultReplicationPolicy")
#: What a statement has in quotes, comments that end by themselves, and one that ends with its line.
_SQL: Final = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|/\*.*?\*/|(?P<comment>--.*)""", re.DOTALL)
_SECRET_NAME: Final = re.compile(r"password|secret|token\Z|\.access\.key\Z|ssl\..*\bkey\Z", re.IGNORECASE)
_NO_SECRET_NAME: Final = re.compile(
    r"(?:certificates|certificate\.chain|location|file|path|url|class|provider|type|enabled|algorithm)\Z", re.IGNORECASE
)
_JAAS: Final = "sasl.jaas.config"
_JAAS_SECRET: Final = re.compile(r"(?:password|secret|token)\w*\s*=", re.IGNORECASE)
_KEY_TAB: Final = re.compile(r"""keyTab\s*=\s*["']?([^"';\s]+)""")
_NAMING: Final = ("rest.auth.users.file", "secrets.key.file")
_STORE: Final = "ssl.keystore.location"
_TOKEN: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting


def note_unread(lines: Sequence[Line], flows: Sequence[FlowReader], enabled: Sequence[FlowReader]) -> Iterator[Problem]:
    """
    Name lines of clusters and flows that no flow reads, although this version acts on their keys.

    *flows* are those that some node runs, *enabled* those of them that mirror topics.
    """
    read = _read_lines(lines, flows, enabled)
    ends = {of.alias(side) for of in flows for side in _BOTH}
    for line in lines:
        row, value = line.row, line.value
        if row is None or not row.acts or row.stem is not None or line.level is LineLevel.TOP:
            continue
        if value.counts_as in read:
            continue
        if line.level is LineLevel.FLOW and row.name in _RUN and value.text.strip().lower() == "false":
            continue  # it says itself that the flow does not run
        if line.level is LineLevel.CLUSTER and line.owner not in ends and row.name != "bootstrap.servers":
            continue  # that no flow uses the cluster is said once
        if row.place is Place.CLUSTER and _repeats(line, row, flows):
            continue
        yield _unread(line, row, [str(of.flow) for of in flows])


def note_overruled(lines: Sequence[Line], flows: Sequence[FlowReader]) -> Iterator[Problem]:
    """Name connection settings of flows that those of their clusters overrule with others, in Java too."""
    by_name = {str(of.flow): of for of in flows}
    for line in lines:
        row, value, of = line.row, line.value, by_name.get(line.owner)
        if row is None or of is None or row.place is not Place.CLUSTER or not row.acts or row.stem is not None:
            continue
        ways = [ways for side in _BOTH if value.counts_as in (ways := of.ways(row, side))]
        used = [found for way in ways if (found := of.layers.first(way)) is not None]
        if used and all(it.text.strip() != value.text.strip() for it in used):
            message = f"overruled by {used[0].key} ({used[0].where})"
            yield Problem(value.where, value.key, message, f"write {value.spelt(ways[0][0])}, or remove it")


def _read_lines(lines: Sequence[Line], flows: Sequence[FlowReader], enabled: Sequence[FlowReader]) -> set[str]:
    """Return all spellings of the keys of *lines* that some flow reads, whether there is such a line or not."""
    rows = {(line.row.name, line.row.place): line.row for line in lines if line.row is not None}
    return {
        way
        for row in rows.values()
        for of in (enabled if row.place in _COPY else flows)
        for side in (_BOTH if row.place is Place.CLUSTER else _BOTH[:1])
        for way in (*of.ways(row, side), *_ways_to_a_cluster(row, of))
    }


def _ways_to_a_cluster(row: Key, of: FlowReader) -> tuple[str, ...]:
    # Clusters are also read independently of a flow.
    return tuple(f"{of.alias(side)}.{row.name}" for side in _BOTH) if row.place is Place.CLUSTER else ()


def _repeats(line: Line, row: Key, flows: Sequence[FlowReader]) -> bool:
    """Whether a client's line has what is used anyway: Connect wants a worker's settings again for each client."""
    if line.level is LineLevel.CLUSTER:
        ends = [(of, side) for of in flows for side in _BOTH if line.owner == of.alias(side)]
    else:
        sides = [side for side in _BOTH if line.name.startswith(f"{side.value}.")]
        ends = [(of, side) for of in flows for side in sides or _BOTH if line.owner == str(of.flow)]
    used = [of.layers.first(of.ways(row, side)) for of, side in ends]
    return bool(used) and all(it is not None and it.text.strip() == line.value.text.strip() for it in used)


def _unread(line: Line, row: Key, flows: Sequence[str]) -> Problem:
    value = line.value
    if line.level is LineLevel.FLOW and line.owner not in flows:
        return Problem(value.where, value.key, f"flow {line.owner} does not run")
    if line.level is LineLevel.CLUSTER and row.place in _COPY:
        verb, other = ("reads", "producer") if row.place is Place.CONSUMER else ("writes", "consumer")
        better = line.beside(f"{other}.{row.name}")
        hint = f"write {better}" if _exists(f"{other}.{row.name}") else ""
        return Problem(value.where, value.key, f"no enabled flow {verb} {line.owner}", hint)
    if line.level is LineLevel.CLUSTER and row.place is not Place.CLUSTER:
        return Problem(value.where, value.key, f"no flow ends at {line.owner}")
    if line.level is LineLevel.CLUSTER and line.name == row.name:
        return Problem(value.where, value.key, f"no flow uses cluster {line.owner}")
    better = line.beside(line.name.removeprefix(next((it for it in _WORDS if line.name.startswith(it)), "")))
    message = "has no effect: mm2py uses the same connection settings for everything on a cluster"
    return Problem(value.where, value.key, message, f"write {better}" if line.level is LineLevel.CLUSTER else "")


def _exists(full_name: str) -> bool:
    try:
        return key_named(full_name).acts
    except KeyError:
        return False


def judge_renamed_source(of: FlowReader) -> Iterator[Problem]:
    """Refuse a flow whose remote topics Java would name after another alias than that in ``clusters``."""
    flow, line = of.flow, of.line("source.cluster.alias")
    alias = flow.source if line is None else trimmed(line.text)
    policy = of.text("replication.policy.class").rpartition(".")[2]
    if line is None or alias == flow.source or not of.flag("enabled") or policy not in _NAMED_AFTER_ALIAS:
        return
    separator = of.text("replication.policy.separator")
    message = f"Java would name remote topics {alias}{separator}NAME, and mm2py {flow.source}{separator}NAME"
    keeping = "to keep topics' names, write replication.policy.class = identity instead"
    yield Problem(line.where, line.key, message, f"leave it out, or call the cluster {alias}" if alias else keeping)


def note_settings(of: FlowReader) -> Iterator[Problem]:
    """Return notes on values of a flow, which is enabled, that Java takes, and that hardly mean what they say."""
    yield from _note_servers(of)
    yield from _note_empty(of)
    for job in ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls", "sync.group.offsets"):
        yield from _note_interval(of, job, "is never; Java's connector would fail")
    yield from _note_interval(of, "emit.heartbeats", "counts as 1; Java would write without a pause")


def _note_interval(of: FlowReader, job: str, meaning: str) -> Iterator[Problem]:
    name = f"{job}.interval.seconds"
    line = of.line(name)
    if line is not None and of.flag(f"{job}.enabled") and of.number(name) == 0:
        hint = f"to switch it off, write {line.key.removesuffix(name)}{job}.enabled = false"
        yield Problem(line.where, line.key, f"0 {meaning}", hint)


def _note_empty(of: FlowReader) -> Iterator[Problem]:
    """Note empty values by which a flow mirrors nothing, or under names that tell less than they should."""
    flow = of.flow
    line = of.line("replication.policy.separator")
    policy = of.text("replication.policy.class").rpartition(".")[2]
    if line is not None and not line.text and policy in _NAMED_AFTER_ALIAS:
        message = f"is empty: the remote topic of orders is {flow.source}orders, and no name tells where it came from"
        hint = "leave it out, or to keep topics' names, write replication.policy.class = identity"
        yield Problem(line.where, line.key, message, hint)
    chosen = [("topics", "topic.filter.class", f"{flow} mirrors no topic")]
    if of.flag("emit.checkpoints.enabled"):
        chosen.append(("groups", "group.filter.class", f"{flow} translates no group"))
    for name, filter_key, effect in chosen:
        line = of.line(name)
        is_decisive = of.text(filter_key).rpartition(".")[2] in _OF_LISTS
        if line is not None and is_decisive and not of.texts(name):
            yield Problem(line.where, line.key, f"is empty: {effect}", f"for all {name}, write .*")


def _note_servers(of: FlowReader) -> Iterator[Problem]:
    """Note brokers with a protocol, which is ignored, and those of a client where the cluster's are others."""
    flow = of.flow
    for side in _BOTH:
        line = of.line("bootstrap.servers", side)
        protocol = of.line("security.protocol", side)
        used = "PLAINTEXT" if protocol is None else protocol.text.strip().upper()
        if line is None:
            continue
        for written in dict.fromkeys(re.findall(r"(\w+)://", line.text)):
            message = f"{written}:// is ignored, as in Java: security.protocol is {used}"
            key = f"{line.key.removesuffix('bootstrap.servers')}security.protocol"
            is_other = written.upper() in set(PROTOCOLS) - {used}
            hint = f"write {key} = {written.upper()}" if is_other else "write host:port alone"
            yield Problem(line.where, line.key, line.reason(ValueError(message)), hint)
        whole = of.layers.get(f"{of.alias(side)}.bootstrap.servers")
        if whole is None or whole.counts_as == line.counts_as or _addresses(whole) == _addresses(line):
            continue
        what = "reads from" if side is Side.SOURCE else "writes to"
        message = f"overrules {whole.key} ({whole.where}): {flow} {what} {line.stands_in or line.text.strip()}"
        yield Problem(line.where, line.key, message, f"if that is another cluster, give it an alias; else {_REMOVE}")


def _addresses(line: Value) -> set[str]:
    return {address.rpartition("//")[2].lower() for address in split_list(line.text)}


def note_transforms(of: FlowReader) -> Iterator[Problem]:
    """Return notes on transforms of a flow that do less than they seem to: records may pass that they should change."""
    for name in ("transforms", "predicates"):
        yield from _note_unlisted(of, name)
    for name, line in of.beginning(""):
        if name.startswith("transform.") and name.endswith(".sql"):
            yield from _note_comment(line)
        elif re.fullmatch(r"transforms\..*\.regex|predicates\..*\.pattern", name):
            yield from _note_remote_name(of, name, line)


def _note_unlisted(of: FlowReader, kind: str) -> Iterator[Problem]:
    """Name steps and predicates that are described, but not listed."""
    names, unlisted = listed(of, kind), dict[str, Value]()
    for key, line in of.beginning(f"{kind}."):
        if not key.startswith(tuple(f"{kind}.{name}." for name in names)):
            unlisted.setdefault(key.split(".")[1], line)
    for name, line in unlisted.items():
        where = of.spelt(line, kind)
        hint = f"write {where} = {', '.join((*names, name))}"
        yield Problem(line.where, line.key, f"has no effect: {where} does not name {name}", hint)


def _note_comment(line: Value) -> Iterator[Problem]:
    if "\n" not in line.text and any(found["comment"] for found in _SQL.finditer(line.text)):
        message = "the lines of a statement are joined, so what begins with -- is a comment up to its end"
        yield Problem(line.where, line.key, message, "write comments as /* … */")


def _note_remote_name(of: FlowReader, key: str, line: Value) -> Iterator[Problem]:
    """Note an expression for names of the source's topics: transforms see those that the policy gives."""
    separator, policy = of.text("replication.policy.separator"), of.text("replication.policy.class").rpartition(".")[2]
    begins = f"{of.flow.source}{separator}"
    text = trimmed(line.text)
    found = re.match(r"[\^(]*([\w-]*[\w-](?![*?{]))", text)
    if found is None or "|" in text or not separator or policy not in _NAMED_AFTER_ALIAS:
        return
    expressions = [f"transforms.{name}.regex" for name in listed(of, "transforms")]
    routers = {name for name in expressions if of.own(name) is not None}
    first = found[1]
    # After a router a name may begin with anything.
    if routers <= {key} and not first.startswith(begins) and not begins.startswith(first):
        message = f"it is matched with names of remote topics, which begin with {begins}"
        escaped = f"{of.flow.source}[{separator}]" if len(separator) == 1 else begins
        yield Problem(line.where, line.key, message, f"begin it with {escaped}; Java's transforms see the same names")


@attrs.frozen
class _Semantics:
    """A flow's exactly-once settings."""

    worker: Value | None
    support: Value | None
    isolation: Value | None

    @property
    def wants(self) -> Value | None:
        """The line that requests exactly-once where possible."""
        return self.worker if _says(self.worker, "enabled", "preparing") else None

    @property
    def insists(self) -> Value | None:
        """The line that requires exactly-once."""
        return self.support if _says(self.support, "required") else None

    @property
    def is_enabled(self) -> bool:
        return _says(self.worker, "enabled")

    @property
    def reads_committed(self) -> bool:
        return self.isolation is not None and self.isolation.text.strip() == "read_committed"


def _says(line: Value | None, *words: str) -> bool:
    return line is not None and line.text.strip().lower() in words


def _semantics(of: FlowReader) -> _Semantics:
    names = ("exactly.once.source.support", "exactly.once.support", "consumer.isolation.level")
    return _Semantics(*map(of.line, names))


def _reads_committed(line: Value, flow: Flow) -> str:
    return f"add {line.spelt(f'{flow.source}.consumer.isolation.level')} = read_committed"


def judge_exactly_once(of: FlowReader) -> Iterator[Problem]:
    """Refuse a flow that requires exactly-once, as Java does, but would not achieve it."""
    found, flow = _semantics(of), of.flow
    line = found.insists
    if line is None:
        return
    if not found.reads_committed:
        message = f"{flow} would mirror records of aborted transactions, too"
        yield Problem(line.where, line.key, message, _reads_committed(line, flow))
    elif not found.is_enabled:
        message = f"{flow} writes without transactions"
        yield Problem(
            line.where, line.key, message, f"add {line.spelt(f'{flow.target}.exactly.once.source.support')} = enabled"
        )


def note_exactly_once(flows: Iterable[FlowReader]) -> Iterator[Problem]:
    """Return notes where exactly-once is requested, but not fully achieved."""
    for of in flows:
        found, flow = _semantics(of), of.flow
        if (line := found.wants) is not None and not found.reads_committed:
            message = f"{flow} reads records of aborted transactions, too, so they are mirrored"
            yield Problem(line.where, line.key, message, _reads_committed(line, flow))
        line = of.line("producer.transaction.timeout.ms")
        if found.is_enabled and line is not None and int(line.text.strip()) < LEAST_TRANSACTION_MS:
            message = f"counts as {LEAST_TRANSACTION_MS}: what a transform does between two commits takes seconds"
            yield Problem(line.where, line.key, message)


def note_unsynced(flows: Iterable[FlowReader]) -> Iterator[Problem]:
    """Note lines by which group offsets are to be synchronised, but of flows without checkpoints alone: they come from
    these.
    """
    key = "sync.group.offsets.enabled"
    lines = {of: line for of in flows if (line := of.line(key)) is not None}
    used = {line.counts_as for of, line in lines.items() if of.flag("emit.checkpoints.enabled")}
    for of, line in lines.items():
        if line.counts_as not in used and of.flag(key):
            message = f"has no effect: {of.flow} emits no checkpoints"
            yield Problem(line.where, line.key, message, "set emit.checkpoints.enabled = true")


# Files with secrets that other users of the machine may read: those of the configuration, and those that it names.


def note_readable(
    files: Mapping[str, Path], lines: Sequence[Line], layers: Layers, machine: Machine
) -> Iterator[Problem]:
    """Return a note for each file with secrets that other users may read. *files* has the configuration files by the
    names that lines have for them.
    """
    contained: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    for line in lines:
        value = line.value
        file = files.get(value.where.rpartition(":")[0])
        if file is not None and not value.stands_in and _is_secret(line):
            contained.setdefault(str(file), []).append(value.key)
        for path in _files_named(line, layers):
            named.setdefault(path, []).append(value.key)
    for path in dict.fromkeys((*contained, *named)):
        mode = machine.exposed_mode(path)
        if mode is not None:
            holds = f"contains {', '.join(contained[path])}" if path in contained else ""
            serves = f"is named by {', '.join(named[path])}" if path in named else ""
            message = f"other users may read it (mode {mode:04o}), and it {' and '.join(filter(None, (holds, serves)))}"
            yield Problem(path, "", message, f"chmod 600 {shlex.quote(path)}")


def _is_secret(line: Line) -> bool:
    """Whether the value of a line is a secret. Rows for many keys have some that are not."""
    name, text = line.name, line.value.text.strip()
    if not text or _NO_SECRET_NAME.search(name):
        return False
    if name.endswith(_JAAS):
        return _JAAS_SECRET.search(text) is not None
    if line.row is not None and line.row.stem is None:
        return line.row.is_secret
    return _SECRET_NAME.search(name) is not None


def _files_named(line: Line, layers: Layers) -> Iterator[str]:
    """Return the files with secrets that a line names."""
    value, name = line.value, line.name
    if value.stands_in:
        yield from files_provided(value.stands_in, layers) if _is_secret(line) else ()
        return
    text = value.text.strip()
    if text and (name in _NAMING or name.endswith(_STORE)):
        yield text
    elif name.endswith(_TOKEN) and text.startswith("file:"):
        yield re.sub(r"\A(?://)?", "", text.removeprefix("file:"))
    elif name.endswith(_JAAS):
        yield from _KEY_TAB.findall(text)
