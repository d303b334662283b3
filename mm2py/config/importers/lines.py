"""Lines that settings are read from, also of files of other formats: such a line counts as one of an
``mm2.properties``, and keeps its place and its key. So all files go through the same checks, layers and explanations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.layers import Value
from mm2py.config.lint import judge_document, note_document
from mm2py.config.problem import Problem
from mm2py.config.properties import Entry, parse_bytes


#: How mirrors name topics that have no heartbeats, and so no topics with names of their own.
VERBATIM: Final = "mm2py.policy.replication.VerbatimReplicationPolicy"


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
