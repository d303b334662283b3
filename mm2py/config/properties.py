r"""
The grammar of ``java.util.Properties``, parsed so that every entry keeps its line.

A file is read exactly as Java reads it: ``=``, ``:`` or white space after the key, ``#`` and ``!`` comments only at the
start of a line, ``\`` continues a line, ``\uXXXX`` and single-letter escapes, other backslashes dropped, the last of
several entries of one key wins. Likely mistakes are recorded with the entry (a comment after a value, a backslash that
Java drops); whether they matter is decided where the key is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import attrs


_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
#: Characters that are escaped on purpose; a backslash before anything else was probably meant to stay.
_MEANT_ESCAPES = frozenset("tnrfu\\=:#! \t\"'")
_TRAILING_COMMENT = re.compile(r"[ \t](?:#|//).*\Z", re.DOTALL)
_UNICODE_DIGITS = re.compile(r"[0-9a-fA-F]{4}")
#: A line that sets a key, also where it continues another one; those that are separated by a blank are too like prose.
_SETS_A_KEY = re.compile(r"([^\s=:\\]+)[ \t\f]*[=:]")


@attrs.frozen
class Entry:
    """One key and its value, with the line (counted from 1) its logical line starts on."""

    key: str
    value: str = attrs.field(repr=False)
    line: int
    #: Whether a backslash in the value was dropped, probably by mistake.
    drops_backslash: bool = False
    #: A trailing ``# …`` or ``// …``, which is part of the value, as in Java.
    trailing_comment: str = attrs.field(default="", repr=False)
    #: Further lines of the value that look like entries of their own: their numbers and keys.
    swallowed: tuple[tuple[int, str], ...] = ()
    #: For a line imported from another file: its place there.
    where: str = ""


@attrs.frozen
class MalformedLine:
    """A line for which Java would refuse the whole file."""

    line: int
    message: str


@attrs.frozen
class Document:
    """A properties file: all entries in their order, and the lines that could not be read."""

    name: str
    entries: tuple[Entry, ...]
    malformed: tuple[MalformedLine, ...] = ()
    is_utf8: bool = False

    def where(self, entry: Entry) -> str:
        """Return where *entry* is written, ``mm2.properties:12``."""
        return entry.where or f"{self.name}:{entry.line}"

    def latest(self) -> dict[str, Entry]:
        """Return the effective entry of each key: the last one."""
        return {entry.key: entry for entry in self.entries}

    def overruled(self) -> Iterator[tuple[Entry, Entry]]:
        """Return each entry that a later one of the same key replaces, with its replacement."""
        latest = self.latest()
        for entry in self.entries:
            if latest[entry.key] is not entry:
                yield entry, latest[entry.key]


def parse_bytes(data: bytes, *, name: str) -> Document:
    """Parse a file's bytes: as UTF-8 if valid, else as ISO-8859-1. Java reads ISO-8859-1 only. ``is_utf8`` tells
    whether the two differ for this file.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return parse_text(data.decode("iso-8859-1"), name=name)
    document = parse_text(text, name=name)
    return attrs.evolve(document, is_utf8=document != parse_text(data.decode("iso-8859-1"), name=name))


def parse_text(text: str, *, name: str) -> Document:
    """Parse a file's text."""
    entries: list[Entry] = []
    malformed: list[MalformedLine] = []
    for number, line, further in _logical_lines(text):
        key, value = _split(line)
        swallowed = tuple((at, found.group(1)) for at, one in further if (found := _SETS_A_KEY.match(one)) is not None)
        try:
            entry = Entry(_unescape(key), _unescape(value), number, _drops_backslash(value), swallowed=swallowed)
        except ValueError as error:
            malformed.append(MalformedLine(number, str(error)))
            continue
        comment = _TRAILING_COMMENT.search(entry.value)
        entries.append(attrs.evolve(entry, trailing_comment=comment.group().strip() if comment else ""))
    return Document(name, tuple(entries), tuple(malformed))


def _logical_lines(text: str) -> Iterator[tuple[int, str, list[tuple[int, str]]]]:
    """Return the number of the line that each logical line starts on, its text without continuation marks, and the
    further lines that it consists of, with their numbers.
    """
    natural = [line.lstrip(_BLANKS) for line in re.split(r"\r\n|\r|\n", text)]
    number = 0
    while number < len(natural):
        line, started, further = natural[number], number + 1, list[tuple[int, str]]()
        number += 1
        if not line or line[0] in "#!":
            continue
        # Only a backslash so far: the next line is a new one, which may be a comment.
        while _is_continued(line) and line != "\\" and number < len(natural):
            line = line[:-1] + natural[number]
            number += 1
            further.append((number, natural[number - 1]))
        line = line[:-1] if _is_continued(line) else line
        if line or _is_cut_off(text, len(natural) - number):
            yield started, line, further


def _is_cut_off(text: str, lines_left: int) -> bool:
    """Whether the file ends in a lone backslash. Java treats it as an entry without key and value."""
    return text.endswith({0: ("\\",), 1: ("\\\n", "\\\r")}.get(lines_left, ()))


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    """Split a logical line into key and value, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    key, rest = line[:end], line[end:].lstrip(_BLANKS)
    if rest and rest[0] in "=:":
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def escaped(key: str) -> str:
    """Write a key as a line has it."""
    return re.sub(r"([\\\s:=]|\A[#!])", r"\\\1", key)


def _unescape(text: str) -> str:
    """Resolve escapes. Raise ValueError for a broken ``\\uXXXX``, as Java does."""
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        escaped = text[at]
        at += 1
        if escaped == "u":
            if _UNICODE_DIGITS.match(text, at) is None:
                raise ValueError(f"malformed \\uXXXX escape: \\u{text[at : at + 4]}")
            out.append(chr(int(text[at : at + 4], 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(escaped, escaped))
    # Java strings are UTF-16: two escapes may make one character.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _drops_backslash(value: str) -> bool:
    return any(match.group(1) not in _MEANT_ESCAPES for match in re.finditer(r"\\(.)", value, re.DOTALL))
