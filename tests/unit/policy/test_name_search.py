"""Names that several lists of regular expressions take together."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.patterns import compile_java
from mm2py.policy.name_search import ALPHABET, Automaton, NotWalkableError, walk_together


#: One of each kind of sign, so that short names meet short expressions.
_NAMES = st.text(alphabet="aAb0_.-", max_size=6)
_ATOMS = st.sampled_from([
    "a", "b", "A", "0", "_", "-", r"\.", ".", r"\d", r"\w", r"\W", r"\D", r"\s", "[ab]", "[^a]", "[a-c0-9]", r"[^\d_]",
    "^", "$",
])  # fmt: skip
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda part: f"(?:{part[0]}){part[1]}"
        ),
        inner.map(lambda part: f"(?i:{part})"),
    ),
    max_leaves=6,
)


def takes(pattern: str, name: str) -> bool:
    """Whether the automaton of *pattern* takes *name*."""
    automaton = Automaton(re.compile(pattern, re.ASCII))
    return automaton.accepts(automaton.walk(name))


def together(*patterns: str, behind: str = "") -> str | None:
    """Return the shortest name that all *patterns* take, where each of them sees *behind* before it."""
    starts = {number: (Automaton(compile_java(pattern)), behind) for number, pattern in enumerate(patterns)}
    for word, reached in walk_together(starts):
        if all(starts[key][0].accepts(states) for key, states in reached.items()):
            return word
    return None


@settings(deadline=None)
@given(pattern=_PATTERNS, name=_NAMES.filter(bool))
def test_an_automaton_takes_what_its_expression_matches(pattern: str, name: str) -> None:
    """Whatever the expression, whatever the name."""
    assert takes(pattern, name) is (re.compile(pattern, re.ASCII).fullmatch(name) is not None)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["orders.*", ".*-eu"], "orders-eu"),
        ([r"emea\..*", r"apac\..*"], None),
        (["a{3}", "a{2,}"], "aaa"),
        (["orders", "(?i)ORDERS"], "orders"),
        (["ORDERS", "orders"], None),
        (["^x$", "x|y"], "x"),
        ([r".*[^a-z0-9_.\-].*"], "A"),
        ([r"\s+"], None),
    ],
)
def test_the_shortest_name_in_common(patterns: list[str], expected: str | None) -> None:
    """It is found where there is one, and its absence is certain."""
    assert together(*patterns) == expected


def test_a_text_may_stand_before_the_name() -> None:
    """A filter sees a remote topic's name with its prefix."""
    assert together(r"A\.or.*", r".*rs", behind="A.") == "ors"


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?!x).*", "(?<=a)b", "(?<!a|bc)d", "[a[b]]", "a{3000}"])
def test_what_cannot_be_walked_is_said(pattern: str) -> None:
    """Look-arounds, references and huge repetitions are not guessed at."""
    with pytest.raises(NotWalkableError):
        Automaton(compile_java(pattern))


def test_too_many_combinations_are_given_up() -> None:
    """An expression whose walk would take for ever ends in an error, not in a wrong answer."""
    with pytest.raises(NotWalkableError, match="too many"):
        together("(?:a|b)*a(?:a|b){14}", "(?:b|a)*b(?:a|b){13}c")


def test_the_alphabet_is_kafka_s() -> None:
    """Topics' names hold letters, digits, dots, dashes and underscores."""
    assert sorted(ALPHABET) == sorted(char for char in map(chr, range(128)) if re.fullmatch(r"[a-zA-Z0-9._\-]", char))
