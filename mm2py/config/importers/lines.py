"""Lines that settings are read from, also of files of other formats: such a line counts as one of an
``mm2.properties``, and keeps its place and its key. So all files go through the same checks, layers and explanations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.layers import OVERRIDE, Layers, Value
from mm2py.config.lint import judge_document, note_document
from mm2py.config.problem import Problem
from mm2py.config.properties import Entry, parse_bytes
from mm2py.config.providers import Machine
from mm2py.config.references import PROVIDERS, resolve_references
from mm2py.config.worker import StorageSettings


#: How mirrors name topics that have no heartbeats, and so no topics with names of their own.
VERBATIM: Final = "mm2py.policy.replication.VerbatimReplicationPolicy"
#: What is used of the file before it becomes settings.
_USED_AT_ONCE: Final = ("bootstrap.servers", "group.id", "config.storage.topic", "config.storage.replication.factor")


class Lines:
    """Lines that an importer collects; each key is set once, the first value wins."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: dict[str, Value] = {}

    def set(self, key: str, value: str, *, written: str = "") -> None:
        """Set a key that no file sets."""
        self._lines.setdefault(key, Value(value, self.name, written or key, counts_as=key))

    def take(self, key: str, entry: Entry, value: str | None = None) -> None:
        """Add *entry* of a file as *key*, with another value if one is given."""
        text = entry.value if value is None else value
        self._lines.setdefault(key, Value(text, entry.where, entry.key, counts_as=key, entry=entry))

    def first(self, keys: Iterable[str]) -> Value | None:
        """Return the line of the first of *keys* that has one."""
        return next((line for key in keys if (line := self._lines.get(key)) is not None), None)

    def all(self) -> tuple[Value, ...]:
        return tuple(self._lines.values())


@attrs.frozen
class ParsedFile:
    """A parsed file: its effective entries by key, and problems and notes about the file as such."""

    name: str
    entries: dict[str, Entry]
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()

    def text(self, key: str) -> str:
        """Return the value of *key* without blanks around it, empty if there is none."""
        entry = self.entries.get(key)
        return entry.value.strip() if entry is not None else ""


def read_files(*paths: Path) -> tuple[ParsedFile, ...]:
    """Read properties files, or connectors' JSON as posted to Kafka Connect; each gets a distinct name."""
    return tuple(_read(path, name) for path, name in zip(paths, _names(paths), strict=True))


def named_files(*paths: Path) -> dict[str, Path]:
    """Return files by the names that lines have for them."""
    return dict(zip(_names(paths), paths, strict=True))


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the last part of each path, the whole path if several have the same."""
    last = [path.name for path in paths]
    return [str(path) if last.count(path.name) > 1 else path.name for path in paths]


def _read(path: Path, name: str) -> ParsedFile:
    try:
        data = path.read_bytes()
    except OSError as error:
        return ParsedFile(name, {}, (Problem(str(path), "", f"cannot be read: {error.strerror or error}"),))
    if path.suffix == ".json":
        return _read_json(name, data.decode("utf-8", "replace"))
    document = parse_bytes(data, name=name)
    entries = {key: attrs.evolve(entry, where=document.where(entry)) for key, entry in document.latest().items()}
    return ParsedFile(name, entries, tuple(judge_document(document)), tuple(note_document(document)))


def _read_json(name: str, text: str) -> ParsedFile:
    try:
        found = json.loads(text)
    except ValueError as error:
        return ParsedFile(name, {}, (Problem(name, "", f"is not valid JSON: {error}"),))
    if not isinstance(found, dict) or not isinstance(found.get("config", {}), dict):
        return ParsedFile(
            name, {}, (Problem(name, "", "is not a connector: an object of keys and values is expected"),)
        )
    # The body of POST /connectors has name and config; that of PUT …/config only the config.
    pairs = {**{key: value for key, value in found.items() if key != "config"}, **found.get("config", {})}
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    for key, value in pairs.items():
        line = 1 + text.count("\n", 0, max(0, text.find(json.dumps(key, ensure_ascii=False))))
        where = f"{name}:{line}"
        if isinstance(value, dict | list) or value is None:
            problems.append(Problem(where, key, "a connector's settings are strings", f'write "{key}": "…"'))
        else:
            text_of = value if isinstance(value, str) else json.dumps(value)
            entries[key] = Entry(key, text_of, line, where=where)
    return ParsedFile(name, entries, tuple(problems))


def seconds_of(milliseconds: str) -> str:
    """Return milliseconds as seconds, at least one; empty for an invalid number, which the checks report."""
    text = milliseconds.strip()
    return str(max(1, int(text) // 1000)) if text.isascii() and text.isdigit() else ""


# The file of a distributed worker of Kafka Connect, and the connectors in its config topic.


def read_worker(path: Path, overrides: Mapping[str, str] | None = None) -> ParsedFile:
    """Read a worker's file, with *overrides* over its lines."""
    [worker] = read_files(path)
    ours = {key: Entry(key, value, 0, where=OVERRIDE) for key, value in (overrides or {}).items()}
    entries = {**worker.entries, **ours}
    port, host = (entries.get(key) for key in ("rest.port", "rest.host.name"))
    if "listeners" not in entries and (line := port or host) is not None:
        # Former keys of Connect; Mirus's start script sets a port.
        address = f"http://{host.value.strip() if host else '127.0.0.1'}:{port.value.strip() if port else '8083'}"
        entries["listeners"] = attrs.evolve(line, value=address)
    entries = {key: entry for key, entry in entries.items() if key not in {"rest.port", "rest.host.name"}}
    return attrs.evolve(worker, entries=entries | _resolved(entries))


def _resolved(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return those lines that are used at once with what their references stand for, as Connect has them. What cannot
    be resolved stays as it is, and is reported when the file becomes settings.
    """
    some = (it for key, it in entries.items() if key in _USED_AT_ONCE or key.startswith(PROVIDERS))
    layers = resolve_references(Layers((Value(it.value, it.where, it.key) for it in some), {}), Machine()).layers
    lines = {key: line for key in _USED_AT_ONCE if (line := layers.get(key)) is not None}
    return {key: attrs.evolve(entries[key], value=line.text) for key, line in lines.items()}


def config_storage(worker: ParsedFile) -> StorageSettings:
    """Return the topic with the connectors' configs, of a *worker* without problems."""
    factor = worker.entries.get("config.storage.replication.factor")
    topic = worker.entries["config.storage.topic"].value.strip()
    return StorageSettings(topic, int(factor.value) if factor is not None else StorageSettings().replication_factor)


def leader_id(worker: ParsedFile) -> str:
    """Return the transactional id under which the worker's nodes write connectors; Java's leader uses it."""
    return f"connect-cluster-{worker.entries['group.id'].value.strip()}"


def parsed(name: str, config: Mapping[str, str]) -> ParsedFile:
    """Return a stored connector like a parsed file."""
    entries = {key: Entry(key, value, 0, where=name) for key, value in {**config, "name": name}.items()}
    return ParsedFile(name, entries)
