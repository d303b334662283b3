"""Problems and notes about the lines of a file. A problem keeps the mirror from starting. A note does not: MirrorMaker
users have lines that never had an effect, and their files must work unchanged; but each such line is named, with what
to write instead.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from mm2py.config.keys.ignored import FOREIGN_KEYS
from mm2py.config.keys.row import FORMS, Key, Kind, LineLevel, Place
from mm2py.config.keys.security import KAFKAS_OWN, SECURITY
from mm2py.config.keys.table import find_key, known_names, levels_of, misspelt_name, nearest_name
from mm2py.config.layers import Layers, Value, level_of
from mm2py.config.problem import Problem
from mm2py.config.properties import Document
from mm2py.config.resolve import NAMED_AGAIN
from mm2py.model.patterns import split_patterns


_FREE_TEXT = {Kind.STRING, Kind.PASSWORD}
_NUMBERS_AND_FLAGS = {Kind.BOOLEAN, Kind.SHORT, Kind.INT, Kind.LONG}
_ROLES = ("consumer", "producer")
_UNKNOWN: Final = "unknown key, ignored"
_WITHOUT_EFFECT: Final = "accepted, without effect in this version"
_IDLE: Final = (_UNKNOWN, _WITHOUT_EFFECT)
_LOOKS_LIKE_ANOTHER: Final = "unknown key, refused because it resembles a known one, and Java would ignore it"
#: What the names of classes begin with whose settings are known: policies that keep names have none.
_WELL_KNOWN: Final = (
    "org.apache.kafka.",
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
    "io.strimzi.kafka.connect.mirror.",
    "ch.mawileo.kafka.mm2.",
    "mm2py.",
)
#: Classes of Java's clients, in a list.
_PLUGINS: Final = ("interceptor.classes", "metric.reporters")
#: Of lines that merely do nothing, so many with a hint have a note each.
_FEW: Final = 3
#: They are in no topic's name, nor in a group's.
_NOT_IN_NAMES = "\"';"
#: A class of characters, which may be about them: ``[^']*``.
_CLASS = re.compile(r"\[[^\]]+\]")
_FLOW_KEY = re.compile(r"(.+?)->(.+?)\.(.+)")
#: What is written for the arrow of a flow and is none.
_ARROW: Final = r"\s*(?:[-=~\u2013\u2014\s]*(?:>|&gt;)+|[\u2192\u21d2\u21e8\u2794\u279c\u27a1\u27f6\u27f9])\s*"
_FLOW_KEY_AMISS = re.compile(rf"(?P<source>.+?)(?P<arrow>{_ARROW})(?P<target>[^>\s].*?)\.(?P<name>[a-z].*)")
#: The rest of one, where the key ended at a blank, or at the first sign of ``=>``.
_REST_OF_KEY = re.compile(rf"(?P<arrow>{_ARROW})(?P<rest>\S.*)")
#: The star of a shell's pattern, which as an expression repeats the letter before it: ``orders-*``.
_GLOB = re.compile(r"(?<=[A-Za-z0-9_-])\*")
_LIKE_A_GLOB = re.compile(r"[A-Za-z0-9._*-]+")


@attrs.frozen
class LintFindings:
    """All problems and all notes, in the order of the file."""

    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]


@attrs.frozen
class Line:
    """An effective line, split up, with its row of the key table if it has one."""

    value: Value
    level: LineLevel
    owner: str
    name: str
    row: Key | None

    def beside(self, name: str) -> str:
        """Return how a key of the same cluster or flow is written in the line's file, by its *name*."""
        return self.value.spelt(_written(self.owner, name))


def classify(value: Value, aliases: Sequence[str]) -> Line:
    """Split a line's key and find its row."""
    level, owner, name = level_of(value.counts_as, aliases)
    row = find_key(level, name)
    if row is None and level is LineLevel.CLUSTER and (at_top := find_key(LineLevel.TOP, value.counts_as)) is not None:
        # An alias may look like the first word of a setting.
        return Line(value, LineLevel.TOP, "", value.counts_as, at_top)
    return Line(value, level, owner, name, row)


def classify_all(layers: Layers, aliases: Sequence[str]) -> tuple[Line, ...]:
    """Split every effective line, but for those that say only how connectors name their clusters."""
    lines = (classify(value, aliases) for value in layers.lines())
    return tuple(line for line in lines if not line.name.startswith(f"{NAMED_AGAIN}."))


#: Keys that protect something, of clients or listeners.
_SECURITY: Final = re.compile(
    r"(?:(?:consumer|producer|admin|listeners\.https)\.)?(?:ssl|sasl|security|rest\.auth|listeners)\b"
)
#: Such keys at any level, with any of Connect's prefixes: where they have no effect, a note tells where they belong.
_RIGHTLY_SPELT: Final = re.compile(
    rf"(?:(?:source|target|cluster|consumer|producer|admin|client|override)\.)*"
    rf"(?:{'|'.join(re.escape(key.name) for key in SECURITY.keys)})"
)


def lint(layers: Layers, lines: Sequence[Line], aliases: Sequence[str]) -> LintFindings:
    """Check effective *lines*, including overrides."""
    problems: list[Problem] = []
    notes: list[Problem] = []
    idle: dict[tuple[str, str], list[tuple[Value, Problem]]] = {}
    is_open = _names_plugin(lines)
    for line in lines:
        problems.extend(_swallowed(line, aliases))
        problem = _no_arrow(line, aliases) or _judge_value(line) or _misspelt(line, aliases, is_open=is_open)
        if problem is not None:
            problems.append(problem)
            continue
        for note in _note_line(line, aliases):
            if note.message in _IDLE:
                file = line.value.where.rpartition(":")[0] or next((it for _, it in idle), "")
                idle.setdefault((note.message, file), []).append((line.value, note))
            else:
                notes.append(note)
    notes.extend(note for found in idle.values() for note in _joined(found))
    notes.extend(_note_shadowed(layers, lines))
    return LintFindings(tuple(problems), tuple(notes))


def judge_document(document: Document) -> Iterator[Problem]:
    """Return the lines of a file for which Java would refuse it."""
    for bad in document.malformed:
        yield Problem(f"{document.name}:{bad.line}", "", bad.message)


def note_document(document: Document) -> Iterator[Problem]:
    """Return notes about a file as a whole: repeated lines, and characters that Java would read differently."""
    for entry, winner in document.overruled():
        where = f"{document.name}:{entry.line}"
        yield Problem(where, entry.key, f"overruled by line {winner.line}: the last of several lines counts")
    if document.is_utf8:
        yield Problem(document.name, "", "read as UTF-8; Java would read ISO-8859-1", "write \\uXXXX to please both")


def _no_arrow(line: Line, aliases: Sequence[str]) -> Problem | None:
    """Find ``A --> B.topics``, ``A=>B.topics`` and their like, in which Java sees keys and values without a meaning."""
    value = line.value
    if line.level is not LineLevel.TOP or line.row is not None:
        return None
    if (amiss := _FLOW_KEY_AMISS.fullmatch(value.key)) is not None and amiss["arrow"] != "->":
        meant = f"{amiss['source'].strip()}->{amiss['target']}.{amiss['name']}"
        return Problem(value.where, value.key, f"{amiss['arrow'].strip()} is no arrow of a flow", f"write {meant}")
    if value.key not in aliases or (rest := _REST_OF_KEY.match(value.text)) is None:
        return None
    arrow, meant = rest["arrow"].strip(), f"{value.key}->{rest['rest']}"
    message = "a key ends at the first space" if arrow == "->" else "a key ends at the first space, = or :"
    return Problem(value.where, value.key, message, f"write {meant}")


def _swallowed(line: Line, aliases: Sequence[str]) -> Iterator[Problem]:
    """Find lines that set a key, but are part of the value before, which ends in a backslash."""
    (file, _, _), entry = line.value.where.rpartition(":"), line.value.entry
    for number, key in entry.swallowed if entry is not None else ():
        _, _, name = level_of(key, aliases)
        # A statement or a login may have `enabled = true` in a line of its own.
        is_known = any(row.acts for row in levels_of(name).values()) and (name != key or "." in key)
        if is_known or (line.row is not None and line.row.kind not in _FREE_TEXT and levels_of(name)):
            message = f"has no effect: it is part of {line.value.key}, whose line goes on here"
            yield Problem(f"{file}:{number}", key, message, f"remove the \\ at the end of line {number - 1}")


def _names_plugin(lines: Sequence[Line]) -> bool:
    """Whether the file names a class that is not Kafka's. In Java it gets all settings, and may read those that neither
    Java nor mm2py know.
    """
    return any(
        line.row is not None
        and (line.row.kind is Kind.CLASS or line.row.name in _PLUGINS)
        and not line.row.name.endswith((".converter", "connector.class"))
        and not _is_built_in(line.value.text.strip())
        for line in lines
    )


def _is_built_in(class_name: str) -> bool:
    return not class_name or class_name in {"default", "identity"} or class_name.startswith(_WELL_KNOWN)


def _misspelt(line: Line, aliases: Sequence[str], *, is_open: bool) -> Problem | None:
    """
    Refuse a key that is another one but for a slip: it would be ignored, and the other one not be set.

    What is meant to protect something is refused by a wider measure: the daemon must not start open, or trust any peer.
    """
    if line.row is not None and (line.row.stem is None or line.row.acts):
        return None
    value, near = line.value, _meant(line)
    if near and _SECURITY.match(near) and not _RIGHTLY_SPELT.fullmatch(line.name):
        message = "unknown key, refused because it resembles a security setting"
        return Problem(value.where, value.key, message, f"did you mean {line.beside(near)}?")
    if is_open or near is None or _RIGHTLY_SPELT.fullmatch(line.name) or line.name in FOREIGN_KEYS:
        return None
    if line.level is LineLevel.TOP and _unnamed_clusters(value.counts_as, aliases):
        return None
    if (meant := misspelt_name(line.level, line.name)) is None:
        return None
    return Problem(value.where, value.key, _LOOKS_LIKE_ANOTHER, f"did you mean {line.beside(meant)}?")


def _meant(line: Line) -> str | None:
    """Return the key that a line's name resembles, unless Kafka itself knows that name."""
    if line.name.endswith(KAFKAS_OWN):
        return None
    near = nearest_name(line.level, line.name)
    return None if near == line.name else near


def _judge_value(line: Line) -> Problem | None:
    row, value, entry = line.row, line.value, line.value.entry
    if row is None:
        return None
    if entry is not None and entry.trailing_comment and _cannot_hold_comment(row):
        return Problem(
            value.where,
            value.key,
            f"{entry.trailing_comment!r} after the value is part of it",
            "put the comment on a line of its own",
        )
    try:
        row.parse(value.text)
    except ValueError as error:
        return Problem(value.where, value.key, value.reason(error))
    return None


def _cannot_hold_comment(row: Key) -> bool:
    if row.acts:
        return row.kind not in _FREE_TEXT or (row.stem is None and row.kind is not Kind.PASSWORD)
    return row.kind in _NUMBERS_AND_FLAGS


def _note_line(line: Line, aliases: Sequence[str]) -> Iterator[Problem]:
    row, value, entry = line.row, line.value, line.value.entry
    if row is None:
        yield _unknown(line, aliases)
        return
    if line.name not in {form + row.name for form in FORMS[row.place][line.level]} and row.stem is None:
        yield Problem(value.where, value.key, f"another name of {row.name}", f"write {row.name}")
    if _is_without_effect(line):
        yield Problem(value.where, value.key, row.remark or _WITHOUT_EFFECT, _typo(line))
    yield from _note_nearest(row, value)
    yield from _note_repeated(row, value)
    plain = _CLASS.sub("", value.text)
    if row.kind is Kind.PATTERNS and (strange := next((char for char in _NOT_IN_NAMES if char in plain), "")):
        hint = "write names and expressions without quotes, separated by commas"
        yield Problem(value.where, value.key, f"{strange} is part of the name or expression, as in Java", hint)
    yield from _note_patterns(row, value) if row.kind is Kind.PATTERNS and not value.stands_in else ()
    if entry is None:
        return
    if entry.drops_backslash and row.kind is Kind.PATTERNS:
        yield Problem(value.where, value.key, "a single backslash is dropped in a properties file", r"write \\ for \ ")
    if entry.trailing_comment and not _cannot_hold_comment(row):
        shown = "what looks like a comment" if row.is_secret else repr(entry.trailing_comment)
        yield Problem(value.where, value.key, f"{shown} after the value is part of it", "comments need their own line")


def _note_patterns(row: Key, value: Value) -> Iterator[Problem]:
    """Note members of a list that match something, but hardly what is meant."""
    for member in split_patterns(value.text):
        if _LIKE_A_GLOB.fullmatch(member) and (star := _GLOB.search(member)) is not None:
            before = member[star.start() - 1]
            message = f"{member} is an expression, in which * repeats the {before} before it, as in Java"
            yield Problem(value.where, value.key, message, f"for any text write .*: {_GLOB.sub('.*', member)}")
        if row.name in {"groups", "groups.exclude"} and re.search(r"\S\s+\S", _CLASS.sub("", member)):
            message = f"{member!r} is one group, whose name has a blank"
            yield Problem(value.where, value.key, message, "groups are separated by commas")


def _note_nearest(row: Key, value: Value) -> Iterator[Problem]:
    """Note a number that counts as another one."""
    if row.least is None and row.most is None:
        return
    with contextlib.suppress(ValueError):
        nearest = row.parse(value.text)
        if nearest != row.kind.parse(value.text):
            bound = "least" if nearest == row.least else "most"
            yield Problem(value.where, value.key, f"counts as {nearest}, the {bound} that mm2py can work with")


def _note_repeated(row: Key, value: Value) -> Iterator[Problem]:
    """Note members that a list has more than once; Java warns of them since 4.2, too. Provided ones are not shown."""
    is_shown = row.kind in {Kind.LIST, Kind.PATTERNS} and not value.stands_in
    members = split_patterns(value.text) if is_shown else ()
    if repeated := [member for member, count in Counter(members).items() if count > 1]:
        yield Problem(value.where, value.key, f"the list names {', '.join(repeated)} more than once")


def _is_without_effect(line: Line) -> bool:
    return line.row is not None and not line.row.acts and line.value.text.strip() not in line.row.fits


def _joined(found: Sequence[tuple[Value, Problem]]) -> Iterator[Problem]:
    """Return the notes on lines of a file that do nothing, all for one reason, in one note; few hints stay apart."""
    hinted = [note for _, note in found if note.hint]
    apart = hinted if len(hinted) <= _FEW else []
    yield from apart
    rest = [pair for pair in found if pair[1] not in apart]
    if len(rest) <= 1:
        yield from (note for _, note in rest)
        return
    file, _, _ = rest[0][0].where.rpartition(":")
    named = ", ".join(_named(value, note.hint, file) for value, note in rest)
    yield Problem(file, "", f"{rest[0][1].message}: {named}")


def _named(value: Value, hint: str, file: str) -> str:
    """Return a key with its line and what may be meant."""
    return f"{value.key} ({value.where.removeprefix(f'{file}:')}{f'; {hint}' if hint else ''})"


def _typo(line: Line) -> str:
    """Guess the intended key of a line whose row is a wildcard."""
    if line.row is None or line.row.stem is None:
        return ""
    near = _meant(line)
    return f"did you mean {line.beside(near)}?" if near else ""


def _unknown(line: Line, aliases: Sequence[str]) -> Problem:
    value = line.value
    elsewhere = levels_of(line.name)
    # A cluster's plain client settings are Connect's own; written for a flow, they are meant for the copying clients.
    has_client = not {f"{role}.{line.name}" for role in _ROLES}.isdisjoint(known_names(line.level))
    row = next(iter(elsewhere.values()), None)
    if row is not None and line.level not in elsewhere and (row.acts or not has_client):
        ways = " or ".join(_example(row, line, aliases))
        return Problem(value.where, value.key, f"has no effect {line.level.value}", f"write {ways}")
    if (instead := FOREIGN_KEYS.get(line.name)) is not None:
        return Problem(value.where, value.key, "a key of another mirror, ignored", instead)
    if line.level is LineLevel.TOP and (strangers := _unnamed_clusters(value.counts_as, aliases)):
        message = f"clusters does not name {' and '.join(strangers)}"
        return Problem(value.where, value.key, message, f"known are {', '.join(aliases) or 'none'}")
    return Problem(value.where, value.key, _UNKNOWN, _hint_at_name(line))


def _hint_at_name(line: Line) -> str:
    known = set(known_names(line.level))
    # KIP-382 and MirrorMaker's own README omit .enabled; others omit the client.
    whole = [name for name in (f"{line.name}.enabled", *(f"{role}.{line.name}" for role in _ROLES)) if name in known]
    near = nearest_name(line.level, line.name)
    names = whole or ([near] if near else [])
    return f"did you mean {' or '.join(map(line.beside, names))}?" if names else ""


def _unnamed_clusters(written: str, aliases: Sequence[str]) -> list[str]:
    """Return the clusters in a key that ``clusters`` does not name."""
    if (parts := _FLOW_KEY.fullmatch(written)) is not None:
        return [alias for alias in parts.groups()[:2] if alias not in aliases]
    known = set(known_names(LineLevel.CLUSTER))
    dots = [at for at, char in enumerate(written) if char == "."]
    return [written[:at] for at in dots if written[at + 1 :] in known][:1]


def _written(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def _example(row: Key, line: Line, aliases: Sequence[str]) -> Iterator[str]:
    """Return the effective spelling of *row*, with the line's own aliases if they fit."""
    first, second = (*aliases, "A", "B")[:2]
    flow = line.owner if line.level is LineLevel.FLOW else f"{first}->{second}"
    source, target = flow.split("->", 1)
    reads = row.place is Place.CONSUMER or line.name.startswith("consumer.")
    cluster = line.owner if line.level is LineLevel.CLUSTER else source if reads else target
    if row.place is Place.CLUSTER and line.name.startswith(tuple(f"{role}." for role in _ROLES)):
        yield line.value.spelt(_written(cluster, row.name))
        return
    for level, owner in ((LineLevel.FLOW, flow), (LineLevel.CLUSTER, cluster), (LineLevel.TOP, "")):
        if forms := FORMS[row.place].get(level):
            yield line.value.spelt(_written(owner, forms[0] + row.name))


def _note_shadowed(layers: Layers, lines: Sequence[Line]) -> Iterator[Problem]:
    """Note flow lines that a cluster's line overrides, and producer lines that Java would ignore."""
    for line in lines:
        if line.level is not LineLevel.FLOW or line.row is None or not line.row.acts:
            continue
        source, target = line.owner.split("->", 1)
        name, value = line.row.name, line.value
        if line.row.place is Place.CONSUMER and line.name == f"consumer.{name}":
            if (winner := layers.get(f"{source}.consumer.{name}")) is not None:
                yield _shadowed(value, winner, line.beside(f"source.consumer.{name}"))
        elif line.row.place is Place.PRODUCER and not line.name.startswith("producer.override."):
            better = line.beside(override := f"producer.override.{name}")
            if (
                winner := layers.get(f"{line.owner}.{override}") or layers.get(f"{target}.producer.{name}")
            ) is not None:
                yield _shadowed(value, winner, better)
            else:
                yield Problem(
                    value.where, value.key, "used for copying; Java MirrorMaker would ignore it", f"write {better}"
                )


def _shadowed(value: Value, winner: Value, better: str) -> Problem:
    return Problem(value.where, value.key, f"overruled by {winner.key} ({winner.where}), as in Java", f"write {better}")
