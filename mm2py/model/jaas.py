"""
The grammar of ``sasl.jaas.config``: ``some.LoginModule required user="mm2" password="…";``.

Parsed like Kafka's `JaasConfig`, which uses Java's `StreamTokenizer`: quotes of both kinds with escapes, bare words of
letters, digits and ``$ - _ .``, comments, a semicolon at the end. Errors do not show any of the text, because a stray
quote turns part of the password into a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs


_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_LAST_ASCII = "\x7f"
_LAST_BLANK = " "
_LONGEST_OCTAL = 3
_FORM = 'MODULE required username="…" password="…";'


class JaasError(ValueError):
    """A line is invalid. The message says what is expected, without any of the line's values."""


@attrs.frozen
class JaasLine:
    """One login module and its options."""

    module: str
    flag: str
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def short_module(self) -> str:
        """The module's class name without its package."""
        return self.module.rpartition(".")[2]


@attrs.frozen
class _Token:
    """A word (bare or quoted), or a single character that is not part of one."""

    text: str = attrs.field(repr=False)
    is_word: bool


def parse_jaas(text: str) -> JaasLine:
    """Parse a line with one login module. Raise `JaasError` with what is expected."""
    tokens = iter(list(_tokens(text)))
    module = next(tokens, None)
    if module is None:
        raise JaasError(f"it is empty; expected is {_FORM}")
    if not module.is_word:
        raise JaasError(f"it must begin with the login module's class; expected is {_FORM}")
    flag = next(tokens, None)
    if flag is None or not flag.is_word or flag.text.upper() not in _FLAGS:
        raise JaasError(f"the word 'required' must follow the login module; expected is {_FORM}")
    options: dict[str, str] = {}
    last = "the word 'required'"
    for token in tokens:
        if not token.is_word and token.text == ";":
            if next(tokens, None) is not None:
                raise JaasError("something follows the first semicolon; write one login module, and nothing after it")
            return JaasLine(module.text, flag.text.lower(), options)
        equals, value = next(tokens, None), next(tokens, None)
        if not token.is_word or equals is None or equals.is_word or equals.text != "=":
            raise JaasError(f"name=value is expected after {last}; put values with odd characters in double quotes")
        if value is None or not value.is_word:
            raise JaasError(f"a value is missing after {last}; put numbers and special characters in double quotes")
        options[token.text] = value.text
        last = f"option {len(options)}"
    raise JaasError(f"a semicolon is missing at the end; expected is {_FORM}")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        char = text[at]
        if char <= _LAST_BLANK:
            at += 1
        elif char == "/":
            at = _behind_comment(text, at)
        elif char in "\"'":
            word, at = _quoted(text, at)
            yield _Token(word, is_word=True)
        elif _begins_word(char):
            end = at + 1
            while end < len(text) and _continues_word(text[end]):
                end += 1
            yield _Token(text[at:end], is_word=True)
            at = end
        else:
            # Digits too: Java's tokenizer parses them as a number, which is not a word.
            end = at + 1
            while char.isdigit() and end < len(text) and (text[end].isdigit() or text[end] == "."):
                end += 1
            yield _Token(text[at:end], is_word=False)
            at = end


def _begins_word(char: str) -> bool:
    return (char.isalpha() and char.isascii()) or char in "_$" or char > _LAST_ASCII


def _continues_word(char: str) -> bool:
    return _begins_word(char) or char in "0123456789.-"


def _behind_comment(text: str, at: int) -> int:
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return len(text) if end < 0 else end + 2
    # A single slash begins a comment as well.
    while at < len(text) and text[at] not in "\r\n":
        at += 1
    return at


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Parse a quoted word; as in Java it also ends at the end of the line."""
    quote, out = text[at], []
    at += 1
    while at < len(text) and text[at] not in (quote, "\n", "\r"):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char in "01234567":
            end, longest = at, _LONGEST_OCTAL if char <= "3" else _LONGEST_OCTAL - 1
            while end < len(text) and end - at + 1 < longest and text[end] in "01234567":
                end += 1
            out.append(chr(int(char + text[at:end], 8)))
            at = end
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out), at + (at < len(text) and text[at] == quote)
