"""Regular expressions match as in Java: java.util.regex itself judges patterns of public files, and harder ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from mm2py.model.patterns import PatternError, compile_java
from tests.support.java_programs import java_program


#: Of public configuration files of MirrorMaker, Connect and Strimzi: topics, groups, routers and predicates.
PUBLIC: Final = r"""
.*
mm2.*\.internal
.*[\-\.]internal
.*[-.]internal
.*\.replica
__.*
console-consumer-.*
mm2-.*|__.*|_schemas
^(?!recommendations$).*
^(?!__.*).*
^(?!us-west\\.).*
^(?!.*(?:\.replica|-internal)$).*
^(kafka-configs|kafka-offsets|kafka-status|_schemas|__consumer_offsets|__transaction_state|prod)
.*(?<!\.replica|-internal)
.*(?<!-(dlq|retry))$
(?<=^|\.)orders.*
(?i)secret|password|access[.]?key
(?i:orders)\..*
(?:[^.]+)\.(?:[^.]+)\.([^.]+)
db_distibutted[.].*
dbserver1\.*
.apicurio
trading\..*|settlement\..*
orders\.(?:eu|us)-[0-9]{1,2}
((?!replica).)*
[A-Za-z0-9._-]+
\w+(?:[.-]\w+)*
"""
#: What Java's dialect has beyond that of Python's re, or has otherwise.
HARD: Final = r"""
(?<!a{1,3})b
.*(?<!\d{1,3})
.*(?<=v\d?)
.*(?<!-v\d+)
.*(?<!x*)
.*(?<=(a|bc)d)
.*(?<=(?:a|bc)?d)
.*(?<=a(?=b)).*
.*(?<!(?i)INTERNAL|replica)
(?:.*(?<=^|\.))?orders
[a-z&&[^b]]+
[a-z&&[def]]+
[a-z&&[^bc]&&[^de]]+
[a[b]]+
[a-c[x-z]]+
[^a[b]]+
[^a-z&&[^aeiou]]+
[a-z&&b-d]+
[\w&&[^\d]]+
[\w&&[^_]-]+
[a-z&&[aeiou][xyz]]+
[[a-z]&&[aeiou]]+
[[:alpha:]]+
\p{L}+
\p{Lu}+
\PL+
\p{N}+
\p{Sc}
[\p{L}\d]+
[^\p{L}]+
\w\p{L}
\W\p{L}?
[\W]\p{L}?
\p{IsAlphabetic}+
\p{IsLowercase}+
\p{javaLowerCase}+
\p{IsLatin}+
\p{IsGreek}+
\p{InGreek}+
\p{script=Latin}+
\p{general_category=Lu}+
\p{Punct}+
\p{Greek}
(?iu)É
(?u)é
(?i)É
\cA
\R
\X+
\G.*
orders\Z
\borders\b.*
(?<n1>a)\k<n1>
(?<n_1>a)
(?P<n>a)
(a)|\1b
(a)?\1b
a?+a
(?>a|ab)c
(?:a|ab)++c
\Qa
a\Q.\E*
\y
\i
\0101
[\u0061-\u0063]+
[\b]
[a-\d]
[\d-a]+
[a-c-e]+
[--a]+
[^^]+
[]
[^]
[^]a]
(?#c)
a**
a+*
*a
a{b}
a{,3}
]
a}
(?i)orders|PAYMENTS
\H+
"""
#: Java takes these, which are refused here, with the reason.
REFUSED_HERE: Final = r"""
[&&a]+
[a&&]+
(?x)a b # comment
(?U)\w+
\b{g}
\N{LATIN SMALL LETTER A}
"""
NAMES: Final = """
a b c d x e ab abc bcd ad aab abd bd aa aac abac ac orders orders2 my-orders a.orders ORDERS orders.x payments-v2
payments-v a.replica b-internal B-INTERNAL a.internal v12 x-v1 x1 12 1 é É ß ss Ω λόγος жук _schemas __consumer_offsets
mm2-offsets.A.internal kafka-configs prod us-west.a us-west\\xa recommendations recommendations2 a-dlq x.retry
orders.eu-12 orders-12 a] a} - ^ ] & a-b a_b A B z € ٣ 😀 a.b.c db_distibutted.x dbserver1... trading.x x.apicurio ^a $
${x} c-e ǅ Å ª İ aé .é access.key Password
"""


def _lines(text: str) -> list[str]:
    return text.strip("\n").split("\n")


def _ours(pattern: str, names: list[str]) -> str:
    try:
        compiled = compile_java(pattern)
    except PatternError:
        return "refused"
    return "".join("1" if compiled.fullmatch(name) else "0" for name in names)


def _java(tmp_path: Path, patterns: list[str], names: list[str]) -> list[str]:
    files = tmp_path / "patterns", tmp_path / "names"
    for file, lines in zip(files, (patterns, names), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return java_program("Patterns").run(*map(str, files))


@pytest.mark.parametrize("corpus", [PUBLIC, HARD], ids=["public", "hard"])
def test_each_pattern_matches_what_java_s_matches(tmp_path: Path, corpus: str) -> None:
    """The same names match, and what Java refuses is refused."""
    patterns, names = _lines(corpus), ["", "\x01", "a b", *NAMES.split()]

    assert dict(zip(patterns, _java(tmp_path, patterns, names), strict=True)) == {
        pattern: _ours(pattern, names) for pattern in patterns
    }


def test_what_only_java_takes_is_refused(tmp_path: Path) -> None:
    """It is not taken for something else."""
    patterns = _lines(REFUSED_HERE)

    assert "refused" not in _java(tmp_path, patterns, ["a"])
    assert {_ours(pattern, ["a"]) for pattern in patterns} == {"refused"}
