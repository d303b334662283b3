r"""
Lists of names and regular expressions as Kafka users write them, which is in Java's dialect.

A list matches a name when one of its members matches the whole of it; an empty list matches nothing. MirrorMaker joins
the members with ``|`` before it compiles them, so an inline flag such as ``(?i)`` applies to the members after it too;
that is kept. Syntax that differs in Python's ``re`` is translated. What it cannot express, such as a look-behind of
unequal widths, is matched by the module ``regex``. That takes two to three times as long, and five to compile, so it is
loaded for nothing else. What that cannot express either is refused with a message.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, cast

import attrs

from mm2py.errors import Mm2Error, Verdict


#: Java's ASCII classes, as the inside of a Python character class.
_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_HORIZONTAL = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL = r"\n\x0b\f\r\x85\u2028\u2029"
_EVERYWHERE = {char: "\\" + char for char in "dDwWsStnrf"} | {"a": r"\x07", "e": r"\x1b"}
#: The meaning of a letter or digit after a backslash inside a character class, and outside of one.
_IN_CLASS = _EVERYWHERE | {"h": _HORIZONTAL, "v": _VERTICAL}
_OUTSIDE = (
    _EVERYWHERE
    | {char: "\\" + char for char in "bBA123456789"}
    | {"h": f"[{_HORIZONTAL}]", "H": f"[^{_HORIZONTAL}]", "v": f"[{_VERTICAL}]", "V": f"[^{_VERTICAL}]"}
    | {"z": r"\Z", "Z": r"(?=\n?\Z)", "G": r"\A", "R": rf"(?>\r\n|[{_VERTICAL}])"}
)
#: ASCII classes by their letters, for expressions in which they are not ASCII by themselves.
_ASCII: Final[Mapping[str, str]] = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r" \t\n\x0b\f\r"}
#: The letter after a backslash of a class of characters.
_CLASS_ESCAPES = frozenset("dDwWsShHvVpP")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\w+(?:=\w+)?)\}|(\w))")
#: Those of Unicode: general categories, and scripts, blocks and binary properties.
_UNICODE_PROPERTY = re.compile(
    r"(?:L[CDMltmou]?|M[ncem]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?)"
    r"|I[sn]\w+|(?:script|sc|block|blk|general_category|gc)=\w+"
)
_OF_JAVA = {
    "LowerCase": "Lowercase",
    "UpperCase": "Uppercase",
    "Alphabetic": "Alphabetic",
    "Letter": "L",
    "Digit": "Nd",
}
_CODE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2})|c([@-_a-z]))")
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]+))?([:)])")
_NAMED_GROUP = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_NAMED_REFERENCE = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
_QUANTIFIER = re.compile(r"\{\d+(?:,\d*)?\}")
_BROKEN_QUANTIFIER = re.compile(r"(\{\d+)\s*,\s*(?=\d*\})")
_PLAIN_GROUPS = ("(?=", "(?!", "(?<=", "(?<!", "(?>")
_LAST_CODE_POINT = 0x10FFFF
#: What ``re`` says of a look-behind that the module ``regex`` takes.
_UNEQUAL: Final = "look-behind requires fixed-width pattern"
_REFERENCE = re.compile(r"\\(?P<sign>.)|\$\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}|\$(?P<digits>[0-9]+)", re.DOTALL)


@attrs.define(eq=False)
class PatternError(Mm2Error):
    """A regular expression is invalid, or has no equivalent in Python."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW

    pattern: str
    reason: str

    def __str__(self) -> str:
        hint = "; for any text write .*" if self.pattern.startswith("*") else ""
        return f"bad regular expression {self.pattern!r}: {self.reason}{hint}"


def split_list(text: str) -> tuple[str, ...]:
    """Split a LIST value as Kafka does: at commas, without surrounding spaces; empty text has no members."""
    text = text.strip()
    return tuple(re.split(r"\s*,\s*", text)) if text else ()


def split_patterns(text: str) -> tuple[str, ...]:
    """Split a list of regular expressions. A comma inside a quantifier such as ``{1,3}`` does not separate members.
    Java splits there, and then refuses both halves, so all lists that work in Java have the same meaning here.
    """
    kept = _BROKEN_QUANTIFIER.sub("\\1\0", text)
    return tuple(member.replace("\0", ",") for member in split_list(kept))


@attrs.frozen
class NamePatterns:
    """A compiled list of names and regular expressions."""

    members: tuple[str, ...]
    #: All members as one Python expression, None if there are none.
    regex: re.Pattern[str] | None = attrs.field(repr=False, eq=False)

    @classmethod
    def compile(cls, members: Sequence[str]) -> NamePatterns:
        """Compile *members*. Raise PatternError, naming the invalid member if there is just one."""
        if not members:
            return cls((), None)
        for member in members:
            # A list split inside a class or group is invalid in pieces but valid as a whole, as in Java.
            if _is_closed(member):
                compile_java(member)
        return cls(tuple(members), compile_java("|".join(members)))

    def matches(self, name: str) -> bool:
        """Whether one member matches the whole of *name*."""
        return self.regex is not None and self.regex.fullmatch(name) is not None


@functools.lru_cache(maxsize=256)  # routers and predicates ask for each topic
def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile one regular expression written for ``java.util.regex``. One of the module ``regex`` is no `re.Pattern`,
    but has the same methods.
    """
    translation = _Translation(pattern)
    text = translation.result()
    if translation.is_unicode:
        text = _Translation(pattern, is_unicode=True).result()
    try:
        if not translation.is_beyond_re:
            return re.compile(text, 0 if translation.is_unicode else re.ASCII)
    except (re.error, OverflowError) as error:
        if _UNEQUAL not in str(error):
            raise PatternError(pattern, str(error)) from error
    return _compile_beyond_re(pattern, text, is_unicode=translation.is_unicode)


def _compile_beyond_re(pattern: str, text: str, *, is_unicode: bool) -> re.Pattern[str]:
    """Compile a translated *pattern* that only the module ``regex`` can express."""
    regex: Any = importlib.import_module("regex")
    try:
        # Version 1 has classes inside classes; in Java one character never equals two, as in full case folding.
        found = regex.compile(f"(?-f){text}" if is_unicode else text, regex.V1 | (0 if is_unicode else regex.ASCII))
    except (regex.error, OverflowError) as error:
        raise PatternError(pattern, str(error)) from error
    return cast("re.Pattern[str]", found)


def _is_closed(member: str) -> bool:
    """Whether brackets in *member* are paired, so that it can be checked alone."""
    bare = re.sub(r"\\Q.*?(?:\\E|\Z)|\\.", "", member)
    return all(bare.count(a) == bare.count(b) for a, b in ("()", "[]"))


class _Translation:
    """
    One pass over a Java pattern.

    Java allows ``(?i)`` anywhere: it applies to the end of the enclosing group, including later alternatives. Python
    requires ``(?i:…)``. So each inline flag opens such a group, which is closed and opened again at every ``|``.
    """

    def __init__(self, pattern: str, *, is_unicode: bool = False) -> None:
        """Translate *pattern*; if it *is_unicode*, classes such as ``\\w`` have to be made ASCII."""
        self._pattern = pattern
        self._text = _unquote(pattern)
        #: Whether it has more than ASCII: it is to be translated as that, which may be found late.
        self.is_unicode = self._is_explicit = is_unicode
        #: Whether Python's ``re`` certainly has no such thing.
        self.is_beyond_re = False
        self._at = 0
        self._out: list[str] = []
        #: Of each open group, the openings of its inline flags.
        self._groups: list[list[str]] = [[]]

    def result(self) -> str:
        while self._at < len(self._text):
            self._step(self._text[self._at])
        if len(self._groups) > 1:
            raise self._refuse("a group is not closed")
        return "".join(self._out) + self._closing()

    def _step(self, char: str) -> None:
        if char == "\\":
            self._escape()
        elif char == "[":
            self._character_class()
        elif char == "(":
            self._open_group()
        elif char == ")":
            if len(self._groups) == 1:
                raise self._refuse("a closing ) without an opening one")
            closing = self._closing()
            self._groups.pop()
            self._emit(closing + ")", 1)
        elif char == "|":
            self._emit(self._closing() + "|" + self._opening(), 1)
        elif char == "{":
            quantifier = _QUANTIFIER.match(self._text, self._at)
            if quantifier is None:
                raise self._refuse("a { that does not begin a repetition such as {2,4}; write \\{ for the sign itself")
            self._emit(quantifier.group(), len(quantifier.group()))
        else:
            self._emit(char, 1)

    def _emit(self, python: str, consumed: int) -> None:
        self._out.append(python)
        self._at += consumed

    def _closing(self) -> str:
        return ")" * len(self._groups[-1])

    def _opening(self) -> str:
        return "".join(self._groups[-1])

    def _refuse(self, reason: str) -> PatternError:
        return PatternError(self._pattern, reason)

    def _open_group(self) -> None:
        text, at = self._text, self._at
        if flags := _FLAGS.match(text, at):
            opening = self._flag_group(flags.group(1), flags.group(2) or "")
            if flags.group(3) == ":":
                self._groups.append([])
            else:
                self._groups[-1].append(opening)
            self._emit(opening, len(flags.group()))
        elif named := _NAMED_GROUP.match(text, at):
            self._groups.append([])
            self._emit(f"(?P<{named.group(1)}>", len(named.group()))
        elif not text.startswith("(?", at):
            self._groups.append([])
            self._emit("(", 1)
        else:
            opening = next((known for known in _PLAIN_GROUPS if text.startswith(known, at)), "")
            if not opening:
                raise self._refuse(f"Java knows no group {text[at : at + 3]!r}")
            self._groups.append([])
            self._emit(opening, len(opening))

    def _flag_group(self, on: str, off: str) -> str:
        for flag in on + off:
            if flag not in "imsud":
                raise self._refuse(f"the inline flag {flag!r} is not supported; i, m, s and u are")
        # Unicode case matters with i alone; d (Unix lines) changes nothing in names.
        self.is_unicode |= "u" in on
        on, off = ("".join(flag for flag in flags if flag in "ims") for flags in (on, off))
        return f"(?{on}-{off}:" if off else f"(?{on}:"

    def _escape(self) -> None:
        if reference := _NAMED_REFERENCE.match(self._text, self._at):
            self._emit(f"(?P={reference.group(1)})", len(reference.group()))
        else:
            self._emit(*self._escaped(self._at, in_class=False))

    def _escaped(self, at: int, *, in_class: bool) -> tuple[str, int]:
        """Translate the escape at *at*: its Python text and its length in Java."""
        text = self._text
        if code := _CODE.match(text, at):
            return self._code_point(code), len(code.group())
        if prop := _PROPERTY.match(text, at):
            inside = self._property(prop)
            return inside if in_class else f"[{inside}]", len(prop.group())
        char = text[at + 1 : at + 2]
        if not char:
            raise self._refuse("a lone \\ at the end")
        if not char.isascii() or not char.isalnum():
            return re.escape(char), 2
        known = _IN_CLASS if in_class else _OUTSIDE
        if self._is_explicit and char.lower() in _ASCII:
            inside = _ASCII[char.lower()] if char.islower() else _all_but(_ASCII[char.lower()])
            return inside if in_class else f"[{inside}]", 2
        if char == "X" and not in_class:
            self.is_beyond_re = self.is_unicode = True
            return "\\X", 2
        if char not in known:
            raise self._refuse(f"the escape \\{char} is not supported")
        return known[char], 2

    def _code_point(self, code: re.Match[str]) -> str:
        if code.group(5):
            return f"\\x{ord(code.group(5)) ^ 64:02x}"
        digits = code.group(1) or code.group(2) or code.group(3)
        number = int(digits, 16) if digits else int(code.group(4), 8)
        if number > _LAST_CODE_POINT:
            raise self._refuse(f"{code.group()} is not a character")
        return f"\\U{number:08x}"

    def _property(self, prop: re.Match[str]) -> str:
        name = (prop.group(2) or prop.group(3)).removeprefix("Is")
        if name not in _POSIX:
            if beyond := _unicode_property(prop.group(2) or prop.group(3)):
                self.is_beyond_re = self.is_unicode = True
                return f"\\{prop.group(1)}{{{beyond}}}"
            known = ", ".join(f"\\p{{{known}}}" for known in ("Alpha", "Digit", "Alnum", "Lower", "Upper", "Punct"))
            raise self._refuse(f"{prop.group()} is not supported; supported are {known} and the like")
        return _POSIX[name] if prop.group(1) == "p" else _all_but(_POSIX[name])

    def _character_class(self) -> None:
        text, end = self._class_at(self._at)
        self._emit(text, end - self._at)

    def _class_at(self, at: int) -> tuple[str, int]:
        """Translate the character class at *at*, with those inside of it: its Python text, and where it ends."""
        text, at = self._text, at + 1
        out = ["["]
        if text.startswith("^", at):
            out.append("^")
            at += 1
        first = at
        while at < len(text):
            if text[at] == "]" and at > first:
                if out[-1] == "&&":
                    raise self._refuse("&& is followed by no class")
                return "".join(out) + "]", at + 1
            member, at = self._class_part(at)
            if member == "&&" and (out[-1] in {"[", "^", "&&"} or text.startswith("&", at)):
                raise self._refuse("&& comes after no class")
            out.append(member)
        raise self._refuse("a class [ is not closed")

    def _class_part(self, at: int) -> tuple[str, int]:
        """Translate a class, an intersection, a range or a character in a class: its Python text, and where it ends."""
        text = self._text
        if text[at] == "[":
            self.is_beyond_re = True
            return self._class_at(at)
        if text.startswith("&&", at):
            self.is_beyond_re = True
            return "&&", at + 2
        member, at, is_one_character = self._class_member(at)
        # Java takes a dash for itself after a class such as \w, after a range, and at either end.
        if not is_one_character or not text.startswith("-", at) or text[at + 1 : at + 2] in {"", "[", "]"}:
            return member, at
        end, at, is_one_character = self._class_member(at + 1, ends_range=True)
        if not is_one_character:
            raise self._refuse("bad character range: a class such as \\w cannot end it")
        return f"{member}-{end}", at

    def _class_member(self, at: int, *, ends_range: bool = False) -> tuple[str, int, bool]:
        """Translate the part of a character class at *at*: its Python text, the start of the next one, and whether it
        is one character, which may begin or end a range.
        """
        text = self._text
        char = text[at]
        if char != "\\":
            # Characters that set operations and classes begin with are escaped.
            return "\\" + char if char in "[]&~|-:" else char, at + 1, True
        if text.startswith("\\v", at) and (ends_range or text.startswith("-", at + 2)):
            return r"\x0b", at + 2, True  # in a range Java takes it for the one character that it was before Java 8
        python, consumed = self._escaped(at, in_class=True)
        return python, at + consumed, text[at + 1 : at + 2] not in _CLASS_ESCAPES


def _unicode_property(name: str) -> str:
    """Return the name that the module ``regex`` has for one of Java's properties of Unicode; empty if it has none."""
    if name.startswith("java"):
        return _OF_JAVA.get(name.removeprefix("java"), "")
    return name if _UNICODE_PROPERTY.fullmatch(name) else ""


def _all_but(inside: str) -> str:
    """Return what a class of ASCII characters does not have, as the inside of a Python character class."""
    absent = (code for code in range(128) if re.match(f"[{inside}]", chr(code)) is None)
    return "".join(f"\\x{code:02x}" for code in absent) + r"\x80-\U0010ffff"


def _unquote(pattern: str) -> str:
    r"""Resolve ``\Q…\E``: what is between them stands for itself."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at)
            quoted = pattern[at + 2 :] if end < 0 else pattern[at + 2 : end]
            out.extend(char if char.isalnum() or not char.isascii() else "\\" + char for char in quoted)
            at = len(pattern) if end < 0 else end + 2
        elif pattern[at] == "\\":
            out.append(pattern[at : at + 2])
            at += 2
        else:
            out.append(pattern[at])
            at += 1
    return "".join(out)


def expand(replacement: str, match: re.Match[str]) -> str:
    """Return a Java *replacement* with the groups of *match*. Raise ValueError where `judge_replacement` refuses it."""
    parts = _replacement_parts(replacement, match.re)
    return "".join(part if isinstance(part, str) else match[part.group] or "" for part in parts)


def judge_replacement(replacement: str, regex: re.Pattern[str]) -> str | None:
    """Return what is wrong with a Java *replacement*, such as ``$1`` or ``${name}``, of what *regex* matches."""
    try:
        _replacement_parts(replacement, regex)
    except ValueError as error:
        return str(error)
    return None


@attrs.frozen
class _Reference:
    """A group of a match, by its number or name."""

    group: int | str


def _replacement_parts(replacement: str, regex: re.Pattern[str]) -> list[str | _Reference]:
    parts: list[str | _Reference] = []
    at = 0
    while at < len(replacement):
        if replacement[at] not in "\\$":
            parts.append(replacement[at])
            at += 1
            continue
        found = _REFERENCE.match(replacement, at)
        if found is None:
            raise ValueError(f"{replacement[at:]!r} begins with no reference such as $1 or ${{name}}; \\$ is the sign")
        at = found.end()
        if found["sign"] is not None:
            parts.append(found["sign"])
        elif found["name"] is not None:
            if found["name"] not in regex.groupindex:
                raise ValueError(f"the expression has no group named {found['name']}")
            parts.append(_Reference(found["name"]))
        else:
            digits = found["digits"]
            # As many digits as form the number of an existing group.
            count = max((n for n in range(2, len(digits) + 1) if int(digits[:n]) <= regex.groups), default=1)
            if int(digits[:count]) > regex.groups:
                raise ValueError(f"the expression has no group {digits[:count]}")
            parts += [_Reference(int(digits[:count])), *digits[count:]]
    return parts
