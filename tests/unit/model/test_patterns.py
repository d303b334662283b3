"""Java's regular expressions. Expected values were made with java.util.regex of JDK 17."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model import patterns
from mm2py.model.patterns import NamePatterns, PatternError, compile_java, split_list, split_patterns


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", "Orders"]),
        (r"mm2.*\.internal", ["mm2-offsets.A.internal"], ["mm2-offsets-internal"]),
        ("(?i)orders", ["ORDERS", "orders"], ["order"]),
        ("a|(?i)b|c", ["a", "b", "B", "C"], ["A"]),
        ("a(b|(?i)c|d)e", ["abe", "aCe", "aDe"], ["aBe", "acE"]),
        ("a(?i)b(?-i)c", ["abc", "aBc"], ["aBC", "Abc"]),
        ("(?i:a)b", ["Ab"], ["AB"]),
        (r"\Qa.b|c\E.*", ["a.b|cd"], ["axb|c"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"[\Q]-\E]+", ["]-"], ["a"]),
        (r"\p{Alpha}+", ["abC"], ["a1", "é"]),
        (r"[\p{Upper}_]+", ["A_B"], ["a"]),
        (r"\P{Digit}+", ["ab-"], ["a1"]),
        (r"[\P{Alpha}]+", ["1.-"], ["a"]),
        (r"\p{IsAlpha}\p{Alnum}{2}", ["ab1"], ["1ab"]),
        (r"\w+", ["a_1"], ["é"]),
        (r"[^a]", ["b"], ["a"]),
        (r"[]a]+", ["]a"], ["b"]),
        (r"[-a]+", ["-a"], ["b"]),
        (r"[\w-.]+", ["a-b.c"], ["a/b"]),
        (r"[\d-z]+", ["1-z"], ["1b"]),
        (r"[\s-_]+", ["-_"], ["a"]),
        (r"[.\d-z]", ["-", "z"], ["y"]),
        (r"[^\w-.]", ["/"], ["-", "a"]),
        (r"[\w-\d]+", ["a-1"], ["a."]),
        (r"[\h-a]+", ["-a"], ["B"]),
        (r"[\p{Alpha}-_]+", ["a-_"], ["1"]),
        (r"[\P{Alpha}-a]+", ["1-a"], ["b"]),
        (r"[\w-]", ["-", "a"], ["."]),
        (r"[\w--/]+", ["a./"], ["a+"]),
        (r"[--/]+", ["-./"], ["+"]),
        (r"[+--]+", ["+,-"], ["."]),
        (r"[a-z-9]+", ["b-9"], ["8"]),
        (r"[a-]+", ["a-"], ["b"]),
        (r"[]-a]+", ["]^a"], ["b"]),
        (r"[\.-9]+", ["./5"], ["a"]),
        (r"[\v-a]+", ["A"], ["b"]),
        (r"[a|b]", ["a", "|"], ["ab"]),
        (r"[a&]", ["&"], ["b"]),
        (r"\x41\u0042\x{43}\0104", ["ABCD"], ["abcd"]),
        (r"(?<name>a)\k<name>", ["aa"], ["a"]),
        (r"(a)\1", ["aa"], ["a"]),
        (r"a*+b", ["aab"], ["aa"]),
        (r"(?>a+)b", ["aab"], ["a"]),
        (r"(?!x).*(?<!y)", ["ab"], ["xb", "ay"]),
        (r"a{2}b{1,}c{0,1}", ["aabb", "aabc"], ["ab"]),
        (r"\h\v\z", ["\t\n"], ["ab"]),
        (r".*(?<!\.replica|-internal)", ["a", "replica"], ["a.replica", "b-internal"]),
        (r".*(?<=v\d{1,2})", ["v1", "x-v12"], ["v", "v123"]),
        (r"(?i).*(?<=a|bc)", ["xA", "Bc"], ["c"]),
        (r"[a-z&&[^b]]+", ["ac"], ["ab", "A"]),
        (r"[^a[b]]", ["c"], ["a", "b"]),
        (r"[[:a]]+", [":a"], ["b"]),
        (r"\w\p{L}", ["aé", "_b"], ["éa", "a1"]),
        (r"(?iu)É", ["é", "É"], ["e"]),
        (r"\cA\R\G", [], ["\x01\n."]),
        (r"\X", ["e\u0301"], ["ab"]),
    ],
)
def test_a_pattern_matches_as_in_java(pattern: str, matching: list[str], other: list[str]) -> None:
    """A pattern matches the names that Java's matches(), and no other."""
    compiled = NamePatterns.compile([pattern])

    assert matching == [name for name in matching + other if compiled.matches(name)]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(b", "not closed"),
        ("a)b", "without an opening"),
        ("[ab", "not closed"),
        ("*.log", "nothing to repeat"),
        ("a{b}", "repetition"),
        ("a{b", "repetition"),
        ("[&&a]", "comes after no class"),
        ("[a&&]", "followed by no class"),
        ("[a[b]", "not closed"),
        (r"\p{Greek}", "not supported"),
        (r"\y", "not supported"),
        (r"[\X]", "not supported"),
        (r"\p{javaMirrored}", "not supported"),
        (r"\p{IsNothing}", "unknown property"),
        (r"(?<=a|bc", "not closed"),
        ("(?x)a b", "inline flag 'x'"),
        ("(?P<a>b)", "Java knows no group"),
        ("(?#a)", "Java knows no group"),
        ("a\\", "lone"),
        (r"\x{110000}", "not a character"),
        ("[b-a]", "bad character range"),
        ("[a--]", "bad character range"),
        (r"[a-\d]", "bad character range"),
        (r"[\t-\h]", "bad character range"),
    ],
)
def test_what_cannot_be_said_in_python_is_refused_in_words(pattern: str, reason: str) -> None:
    """A broken pattern, or one that Python cannot express, names itself and the reason."""
    with pytest.raises(PatternError, match=reason) as caught:
        compile_java(pattern)

    assert repr(pattern) in str(caught.value)


def test_flags_hold_for_the_members_after_them() -> None:
    """Members are joined before they are compiled, so (?i) in one reaches the next, as in Java."""
    compiled = NamePatterns.compile(["a", "(?i)b", "c"])

    assert [name for name in ("a", "A", "B", "C") if compiled.matches(name)] == ["a", "B", "C"]


def test_an_empty_list_matches_nothing() -> None:
    """No members, no match, not even of an empty name."""
    assert not NamePatterns.compile([]).matches("")


def test_a_member_that_is_broken_alone_is_named() -> None:
    """Of a list, the error shows the member to blame."""
    with pytest.raises(PatternError) as caught:
        NamePatterns.compile(["good", "*bad", "fine"])

    assert caught.value.pattern == "*bad"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("  ", ()),
        (" a , b,c ", ("a", "b", "c")),
        ("a,,b", ("a", "", "b")),
        ("a,", ("a", "")),
    ],
)
def test_lists_are_parted_at_commas(text: str, expected: tuple[str, ...]) -> None:
    """Blanks around members are dropped and empty members kept, as Kafka does."""
    assert expected == split_list(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"log\.\d{1,3}, b", (r"log\.\d{1,3}", "b")),
        ("a{1,},b", ("a{1,}", "b")),
        ("a{2},b{3}", ("a{2}", "b{3}")),
        ("(a,b)", ("(a", "b)")),
    ],
)
def test_a_comma_in_a_quantifier_parts_no_members(text: str, expected: tuple[str, ...]) -> None:
    """Java breaks such patterns; here they are kept whole, and other commas part as ever."""
    assert expected == split_patterns(text)


def test_a_group_parted_by_a_comma_becomes_alternatives() -> None:
    """In Java (a,b) turns into (a|b) because members are joined by |; so it does here."""
    compiled = NamePatterns.compile(split_patterns("x(a,b)"))

    assert [name for name in ("xa", "xb", "x(a", "b)") if compiled.matches(name)] == ["xa", "xb"]


@given(st.text(alphabet="ab.|()[]{}?*+\\^$-,:i<>=!Qp1", max_size=12))
def test_every_text_is_compiled_or_refused(text: str) -> None:
    """No text makes the translation fail in any other way, or warn."""
    with contextlib.suppress(PatternError):
        compile_java(text)


@given(st.text(max_size=20))
def test_quoted_text_matches_itself(text: str) -> None:
    r"""Between \Q and \E everything stands for itself."""
    quoted = text.replace("\\E", "")

    assert compile_java(f"\\Q{quoted}\\E").fullmatch(quoted)


def test_an_expression_is_translated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routers and predicates ask for each topic, of which there may be ten thousand."""
    translated: list[str] = []

    class Counted(patterns._Translation):
        def result(self) -> str:
            translated.append(self._pattern)
            return super().result()

    monkeypatch.setattr(patterns, "_Translation", Counted)
    for _ in range(3):
        compile_java("an-expression-of-this-test-.*")

    assert translated == ["an-expression-of-this-test-.*"]
