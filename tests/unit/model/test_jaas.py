"""The grammar of sasl.jaas.config."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.jaas import JaasError, JaasLine, parse_jaas


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="mm2" password="s3;cr=t";', {"username": "mm2", "password": "s3;cr=t"}),
        (r'M required password="a\"b\\c" username=bare;', {"password": r'a"b\c', "username": "bare"}),
        ("M REQUIRED username='it''s' ;", None),
        ("M requisite p='single \"quotes\"';", {"p": 'single "quotes"'}),
        ('M required\n  username = "u"\n  password = ""\n;', {"username": "u", "password": ""}),
        (r'M sufficient p="\101\t\x";', {"p": "A\tx"}),
        (r'M optional p="\4011";', {"p": " 11"}),
        ("M required a=b-c.d_e$f9;", {"a": "b-c.d_e$f9"}),
        ("M required /* why */ a=b; // done", {"a": "b"}),
        ("M required // to the end of the line\n a=b;", {"a": "b"}),
        ("M required;", {}),
        ("M required a=b a=c;", {"a": "c"}),
        ("M required ssl.truststore.location='/x/y.jks';", {"ssl.truststore.location": "/x/y.jks"}),
    ],
)
def test_lines(text: str, options: dict[str, str] | None) -> None:
    """Options may be bare or quoted either way, with escapes and comments, spread over lines; the last one counts."""
    if options is None:
        with pytest.raises(JaasError):
            parse_jaas(text)
        return
    read = parse_jaas(text)

    assert dict(read.options) == options


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is empty; expected is MODULE required"),
        ('username="u" password="p";', "the word 'required' must follow"),
        (f'{PLAIN} username="u";', "the word 'required' must follow"),
        (f'{PLAIN} required username="u"', "a semicolon is missing"),
        (f'{PLAIN} required username="u" password=s3cret!x;', "name=value is expected after option 2"),
        (f"{PLAIN} required password=7up;", "a value is missing after the word 'required'; put numbers"),
        (f"{PLAIN} required password=;", "a value is missing"),
        (f'{PLAIN} required password="s3" cret";', "name=value is expected after option 1"),
        (f'{PLAIN} required a=b; {PLAIN} required a="s3cret";', "something follows the first semicolon"),
    ],
)
def test_what_is_wrong_is_said_without_secrets(text: str, problem: str) -> None:
    """A line that Java would refuse is refused, with what is expected and nothing of what it holds."""
    with pytest.raises(JaasError) as caught:
        parse_jaas(text)

    assert problem in str(caught.value)
    assert "cret" not in str(caught.value)


@given(st.dictionaries(st.from_regex(r"[a-z][a-zA-Z.]{0,8}", fullmatch=True), st.text(max_size=12), max_size=4))
def test_any_value_survives_quotes(options: dict[str, str]) -> None:
    """Whatever a value is, escaped and in double quotes it is read back."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    quoted = {name: "".join(escapes.get(char, char) for char in value) for name, value in options.items()}
    line = f"{PLAIN} required " + " ".join(f'{name}="{value}"' for name, value in quoted.items()) + ";"

    assert parse_jaas(line) == JaasLine(PLAIN, "required", options)


@given(st.text(alphabet="ab \"'=;\\/*\n\r09.-$é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text makes the parser fail otherwise, and what is printed of a line shows no option."""
    try:
        printed = repr(parse_jaas(f"M required secret={text};"))
    except JaasError:
        return

    assert "secret" not in printed
