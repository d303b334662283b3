"""Files of other formats as lines of an ``mm2.properties``: each line knows its file, and its key there. Imported
files go through the same checks, layers and explanations as MirrorMaker 2's own file, except that a problem names the
key that the user wrote, not the one that it became.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.lint import note_document
from mm2py.config.problem import Problem
from mm2py.config.properties import Document, Entry, parse_bytes


#: How mirrors name topics that have no heartbeats, and so no topics with names of their own.
VERBATIM: Final = "mm2py.policy.replication.VerbatimReplicationPolicy"
_ALIASED_SERVERS = re.compile(r"write \S+\.bootstrap\.servers")


@attrs.frozen
class Imported:
    """The lines that files were converted to, with problems and notes about the files themselves."""

    #: The files by the names that lines have for them, in the user's order.
    named: Mapping[str, Path]
    document: Document
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    #: Whether they may make no flow at all.
    may_be_idle: bool = False

    @property
    def path(self) -> Path:
        """The first file."""
        return next(iter(self.named.values()))

    def as_written(self, problem: Problem) -> Problem | None:
        """Return *problem* in terms of the user's file; None if it concerns a line that the user did not write."""
        for entry in self.document.entries:
            if (entry.where, entry.key) == (problem.where, problem.key) and entry.written != entry.key:
                before = entry.key.removesuffix(entry.written) if entry.key.endswith(entry.written) else ""
                hint = problem.hint.replace(before, "") if before else problem.hint
                if entry.written.endswith(".bootstrap.servers"):
                    hint = _ALIASED_SERVERS.sub("write " + entry.written, hint)
                return attrs.evolve(problem, key=entry.written, hint=hint)
        if problem.where == self.document.name:
            return None
        # A key that is missing is named as it would be written beside the line that needs it.
        beside = (entry for entry in self.document.entries if entry.where == problem.where)
        stems = {entry.key.removesuffix(entry.written) for entry in beside if entry.key.endswith(entry.written)}
        for stem in stems - {""}:
            if problem.key.startswith(stem):
                key, hint = problem.key.removeprefix(stem), problem.hint.replace(stem, "")
                return attrs.evolve(problem, key=key, hint=hint)
        return problem


def in_order(problems: Iterable[Problem], named: Iterable[str]) -> tuple[Problem, ...]:
    """Return *problems* file by file, as the user *named* the files."""
    places = {name: number for number, name in enumerate(named)}

    def place(problem: Problem) -> int:
        name = problem.where if problem.where in places else problem.where.rpartition(":")[0]
        return places.get(name, -1)

    return tuple(sorted(problems, key=place))


class Lines:
    """Lines that an importer collects; each key is set once, the first value wins."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._entries: dict[str, Entry] = {}

    def set(self, key: str, value: str, *, written: str = "") -> None:
        """Set a key that no file sets."""
        self._entries.setdefault(key, Entry(key, value, 0, where=self._name, written=written or key))

    def take(self, key: str, entry: Entry, value: str | None = None) -> None:
        """Add *entry* of a file as *key*, with another value if one is given."""
        taken = attrs.evolve(entry, key=key, written=entry.written or entry.key)
        self._entries.setdefault(key, taken if value is None else attrs.evolve(taken, value=value))

    def get(self, key: str) -> Entry | None:
        """Return the line that *key* has so far."""
        return self._entries.get(key)

    def first(self, keys: Iterable[str]) -> Entry | None:
        """Return the line of the first of *keys* that has one."""
        return next((entry for key in keys if (entry := self._entries.get(key)) is not None), None)

    def document(self) -> Document:
        return Document(self._name, tuple(self._entries.values()))


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
    problems = tuple(Problem(f"{name}:{bad.line}", "", bad.message) for bad in document.malformed)
    entries = {key: attrs.evolve(entry, where=document.where(entry)) for key, entry in document.latest().items()}
    return ParsedFile(name, entries, problems, tuple(note_document(document)))


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
