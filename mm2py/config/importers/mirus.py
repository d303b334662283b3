"""
A connector of Mirus, Salesforce's mirror on Kafka Connect, as lines of an ``mm2.properties``.

Mirus selects topics by names and expressions, and synchronises nothing else; so its flow has no checkpoints, no
heartbeats and no offset syncs, and leaves configs and ACLs alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from mm2py.config.importers.lines import VERBATIM, Lines, ParsedFile, seconds_of
from mm2py.config.problem import Problem
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list


SOURCE_CLASS = "com.salesforce.mirus.MirusSourceConnector"
_TOPICS = ("topics.whitelist", "topics.regex", "topics.regex.list")
_AFFIXES = {
    "destination.topic.name.prefix": "remote.topic.prefix",
    "destination.topic.name.suffix": "remote.topic.suffix",
}
_POLICY = "replication.policy.class"
_CONSUMED = frozenset({"name", "connector.class", "target.cluster.alias", *_TOPICS})
_OFF = (
    "emit.offset-syncs.enabled",
    "heartbeats.replication.enabled",
    "sync.topic.configs.enabled",
    "sync.topic.acls.enabled",
)
_DEFAULT_LOOK_S = 60


def take_mirus(lines: Lines, file: ParsedFile, flow: Flow) -> Iterator[Problem]:
    """Convert a connector's file; return notes about it."""
    entries = file.entries
    yield from _take_topics(lines, file, flow)
    if _POLICY not in entries:
        lines.set(f"{flow}.{_POLICY}", VERBATIM)
    for key, entry in entries.items():
        if key == "monitor.poll.wait.ms":
            lines.take(f"{flow}.refresh.topics.interval.seconds", entry, seconds_of(entry.value) or entry.value)
        elif key.startswith("destination.consumer.") or key == "destination.bootstrap.servers":
            yield Problem(entry.where, key, "without effect: the worker's file configures the connection to the target")
        elif key not in _CONSUMED and "converter" not in key:
            lines.take(f"{flow}.{_AFFIXES.get(key, key)}", entry)
    lines.set(f"{flow}.refresh.topics.interval.seconds", str(_DEFAULT_LOOK_S))
    # It excluded nothing, and left the creation of topics to the target.
    lines.set(f"{flow}.topics.exclude", "")
    lines.set(f"{flow}.replication.factor", "-1")
    for key in _OFF:
        lines.set(f"{flow}.{key}", "false")


def _take_topics(lines: Lines, file: ParsedFile, flow: Flow) -> Iterator[Problem]:
    """Return one list of names and expressions, with the dots in names escaped."""
    found = [entry for key in _TOPICS if (entry := file.entries.get(key)) is not None and entry.value.strip()]
    if not found:
        lines.set(f"{flow}.topics", "")
        yield Problem(file.name, _TOPICS[0], "no topic is named, so nothing is mirrored", f"add {_TOPICS[0]} = NAME")
        return
    members: list[str] = []
    for entry in found:
        if entry.key == "topics.whitelist":
            members.extend(name.replace(".", r"\.") for name in split_list(entry.value) if name)
        elif entry.key == "topics.regex":
            members.append(entry.value.strip())
        else:
            members.extend(member for member in split_list(entry.value) if member)
    first = attrs.evolve(found[0], drops_backslash=False)
    lines.take(f"{flow}.topics", first, ", ".join(dict.fromkeys(members)))
