"""The grammar of .properties files. Expected values were made with java.util.Properties of JDK 17."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.config.properties import Document, parse_bytes, parse_text


JAVA_VECTORS = {
    "equals": ("a=b", {"a": "b"}),
    "colon": ("a:b", {"a": "b"}),
    "blank": ("a b", {"a": "b"}),
    "tab and form feed": ("a\t\fb", {"a": "b"}),
    "blanks around": ("  a  =  b", {"a": "b"}),
    "one separator only": ("a==b", {"a": "=b"}),
    "colon after equals": ("a =: b", {"a": ": b"}),
    "trailing blanks stay": ("a = b \t", {"a": "b \t"}),
    "no value": ("a", {"a": ""}),
    "no key": ("= b", {"": "b"}),
    "empty": ("", {}),
    "comments": ("# x\n! y\n  # z\na=b", {"a": "b"}),
    "no comment behind a value": ("a = b # c", {"a": "b # c"}),
    "no comment in a key": ("a#b=c", {"a#b": "c"}),
    "arrow": ("A->B.topics = .*", {"A->B.topics": ".*"}),
    "escaped separators": ("a\\=b\\:c\\ d = e", {"a=b:c d": "e"}),
    "escapes": ("a = \\t\\n\\r\\f|", {"a": "\t\n\r\f|"}),
    "other backslashes vanish": ("a = mm2.*\\.internal", {"a": "mm2.*.internal"}),
    "doubled backslash": ("a = mm2.*\\\\.internal", {"a": "mm2.*\\.internal"}),
    "unicode": ("\\u0061 = \\u00e9\\uD83D\\uDE00", {"a": "é😀"}),
    "continuation": ("a = b, \\\n    c", {"a": "b, c"}),
    "continuation in the key": ("a\\\n  b = c", {"ab": "c"}),
    "continuation over a comment sign": ("a = b\\\n#c", {"a": "b#c"}),
    "continuation with carriage return": ("a = b\\\r\n  c\rd = e", {"a": "bc", "d": "e"}),
    "an escaped backslash does not continue": ("a = b\\\\\nc = d", {"a": "b\\", "c": "d"}),
    "three backslashes continue": ("a = b\\\\\\\nc = d", {"a": "b\\c = d"}),
    "a comment is not continued": ("# x\\\na=b", {"a": "b"}),
    "continuation onto a blank line": ("a = b\\\n\nc = d", {"a": "b", "c": "d"}),
    "a lone backslash starts afresh": ("\\\n# x\na=b", {"a": "b"}),
    "a lone backslash at the end": ("a=b\n\\", {"a": "b", "": ""}),
    "cut off in a continuation": ("a = b\\", {"a": "b"}),
    "last one wins": ("a=1\nb=2\na=3", {"a": "3", "b": "2"}),
}


def _values(document: Document) -> dict[str, str]:
    return {key: entry.value for key, entry in document.latest().items()}


@pytest.mark.parametrize(("text", "expected"), JAVA_VECTORS.values(), ids=JAVA_VECTORS.keys())
def test_a_file_reads_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    """Each construct of the grammar gives what java.util.Properties gives."""
    document = parse_text(text, name="x.properties")

    assert expected == _values(document)
    assert document.malformed == ()


def test_entries_remember_the_line_they_start_on() -> None:
    """Comments, blank lines and continuations are counted, and an entry keeps its first line."""
    document = parse_text("# one\n\na = 1\nb = 2, \\\n    3\r\nc = 4", name="x")

    assert [(entry.key, entry.line) for entry in document.entries] == [("a", 3), ("b", 4), ("c", 6)]


def test_a_repeated_key_is_known_with_the_line_that_counts() -> None:
    """All lines of a repeated key but the last are given, beside the last."""
    document = parse_text("a=1\nb=2\na=3\na=4", name="x")

    assert [(lost.line, winner.line) for lost, winner in document.overruled()] == [(1, 4), (3, 4)]


def test_a_broken_unicode_escape_spoils_its_line_only() -> None:
    """Java refuses the whole file; here the line is reported and the rest is read."""
    document = parse_text("a=1\nb=\\u12x4\nc=3", name="x")

    assert _values(document) == {"a": "1", "c": "3"}
    assert [bad.line for bad in document.malformed] == [2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("true # on", "# on"),
        ("true\t// on", "// on"),
        ("b //c", "//c"),
        ("http://host/path#part", ""),
        ("a#b", ""),
        ("a / b", ""),
    ],
)
def test_what_looks_like_a_trailing_comment_is_remembered(value: str, expected: str) -> None:
    """A comment sign after a blank is remembered beside the value, which keeps it."""
    (entry,) = parse_text(f"a = {value}", name="x").entries

    assert expected == entry.trailing_comment
    assert value == entry.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [(r"mm2.*\.internal", True), (r"a\\.b", False), (r"a\:b\=c\ d\te", False), (r"\-x", True)],
)
def test_a_backslash_that_vanishes_is_remembered(value: str, expected: bool) -> None:
    """A backslash before a sign that needs none was probably meant for a regular expression."""
    (entry,) = parse_text(f"a = {value}", name="x").entries

    assert expected is entry.drops_backslash


@pytest.mark.parametrize(
    ("data", "is_utf8"),
    [
        ("a = é".encode(), True),
        ("a = é".encode("iso-8859-1"), False),
        (b"\xef\xbb\xbfa = \\u00e9", True),
        (b"a = \\u00e9", False),
        ("# é\na = \\u00e9".encode(), False),
    ],
    ids=["utf-8", "iso-8859-1", "byte order mark", "ascii", "only in a comment"],
)
def test_both_encodings_are_read(data: bytes, is_utf8: bool) -> None:
    """UTF-8 is told from ISO-8859-1 by the bytes themselves."""
    document = parse_bytes(data, name="x")

    assert _values(document) == {"a": "é"}
    assert is_utf8 is document.is_utf8


@given(st.text(alphabet="ab=: \t#!\\\n\ru0041/"))
def test_no_text_is_beyond_the_grammar(text: str) -> None:
    """Whatever the text, it is read; lines are counted within it and rise."""
    document = parse_text(text, name="x")

    lines = [entry.line for entry in document.entries]
    assert lines == sorted(lines)
    assert all(1 <= line <= len(text.splitlines()) + 1 for line in lines)


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=5))
def test_what_is_escaped_comes_back(entries: dict[str, str]) -> None:
    """Keys and values written with every character as an escape are read back as they were."""
    text = "\n".join(f"{_escape(key)}={_escape(value)}" for key, value in entries.items())

    assert entries == _values(parse_text(text, name="x"))


def _escape(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02X}" for at in range(0, len(units), 2))
