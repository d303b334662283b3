"""Rows of the key table: types, bounds, and that the table is sound."""

from __future__ import annotations

from collections import Counter

import pytest

from mm2py.config.keys.row import FORMS, Key, Kind, LineLevel
from mm2py.config.keys.table import KEYS, find_key, key_named


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Kind.BOOLEAN, " True ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.SHORT, "32767", 32_767),
        (Kind.INT, " -2147483648 ", -2_147_483_648),
        (Kind.LONG, "+9223372036854775807", 9_223_372_036_854_775_807),
        (Kind.STRING, "\x00 a b\t", "a b"),
        (Kind.STRING, "a\xa0", "a\xa0"),
        (Kind.PASSWORD, " hush\n", "hush"),
        (Kind.CLASS, " a.B ", "a.B"),
        (Kind.LIST, " a , b ", ("a", "b")),
        (Kind.LIST, " ", ()),
        (Kind.PATTERNS, "a{1,2}, b", ("a{1,2}", "b")),
    ],
)
def test_a_value_is_read_by_its_type(kind: Kind, text: str, expected: object) -> None:
    """What Java's trim takes off is dropped around a value of any type, and nothing else."""
    assert expected == kind.parse(text)


def test_blanks_around_a_separator_are_part_of_it() -> None:
    """Java's policies read the line itself, and make names of it that no topic can have."""
    with pytest.raises(ValueError, match="'_ ' cannot be part of a topic's name"):
        key_named("replication.policy.separator").parse("_ ")


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (Kind.BOOLEAN, "yes", "expected true or false, found 'yes'"),
        (Kind.BOOLEAN, "", "expected true or false"),
        (Kind.SHORT, "32768", "outside of -32768 to 32767"),
        (Kind.INT, "2147483648", "outside of"),
        (Kind.LONG, "9223372036854775808", "outside of"),
        (Kind.INT, "1.5", "expected a whole number, found '1.5'"),
        (Kind.INT, "1_000", "expected a whole number"),
        (Kind.INT, "1k", "expected a whole number"),
        (Kind.INT, "", "expected a whole number"),
        (Kind.INT, "\u0663", "expected a whole number"),
        (Kind.LIST, "a,,b", "empty member"),
        (Kind.PATTERNS, "a, *b", r"bad regular expression '\*b': nothing to repeat"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(kind: Kind, text: str, reason: str) -> None:
    """The reason says what is expected and what was found."""
    with pytest.raises(ValueError, match=reason):
        kind.parse(text)


@pytest.mark.parametrize("text", ["-2", "65536"])
def test_a_port_that_no_machine_has_is_refused(text: str) -> None:
    """With its bounds, and before anything tries to listen there."""
    with pytest.raises(ValueError, match="must be -1 to 65535"):
        key_named("copy.plans.port").parse(text)


@pytest.mark.parametrize("text", ["0", "-2"])
def test_a_backlog_that_may_delay_no_answer_at_all_is_refused(text: str) -> None:
    """Nothing could be sent then. The message says what stands for no bound."""
    with pytest.raises(ValueError, match="must be 1 or more, or -1 for no bound"):
        key_named("catch.up.latency.ms").parse(text)


@pytest.mark.parametrize("key", [key for key in KEYS if key.default is not None], ids=lambda key: key.full_name)
def test_defaults_pass_their_own_checks(key: Key) -> None:
    """Every default is a value that the row itself accepts."""
    key.parse(key.default or "")


def test_no_two_rows_claim_one_line() -> None:
    """At each level, every spelling belongs to one row."""
    spelled = Counter(
        (level, form + name)
        for key in KEYS
        for level, forms in FORMS[key.place].items()
        for form in forms
        for name in (key.name, *key.aliases)
    )

    assert [spelling for spelling, count in spelled.items() if count > 1] == []


@pytest.mark.parametrize(
    ("level", "name", "expected"),
    [
        (LineLevel.TOP, "tasks.max", "tasks.max"),
        (LineLevel.TOP, "spark.master", "spark.master"),
        (LineLevel.TOP, "spark.executor.cores", "spark.*"),
        (LineLevel.FLOW, "source.consumer.fetch.min.bytes", "consumer.fetch.min.bytes"),
        (LineLevel.FLOW, "consumer.max.poll.record", "consumer.*"),
        (LineLevel.FLOW, "producer.override.max.request.size", "producer.max.request.size"),
        (LineLevel.FLOW, "producer.override.ssl.key.password", "ssl.key.password"),
        (LineLevel.FLOW, "producer.override.ssl.provider", "ssl.*"),
        (LineLevel.CLUSTER, "consumer.sasl.mechanism", "sasl.mechanism"),
        (LineLevel.CLUSTER, "consumer.sasl.kerberos.kinit.cmd", "sasl.*"),
        (LineLevel.CLUSTER, "offset.storage.cleanup.policy", "offset.storage.*"),
        (LineLevel.TOP, "topics.blacklist", "topics.exclude"),
    ],
)
def test_a_line_finds_the_row_that_speaks_of_it_most_closely(level: LineLevel, name: str, expected: str) -> None:
    """A row for the very name comes first, then the longest stem."""
    row = find_key(level, name)

    assert row is not None
    assert expected == row.full_name


def test_unknown_names_have_no_row() -> None:
    """What no row speaks of is not found, and neither is a bare stem."""
    assert find_key(LineLevel.TOP, "nonsense") is None
    assert find_key(LineLevel.TOP, "spark.") is None


def test_client_rows_differ_by_client() -> None:
    """The consumer's, the producer's and Connect's time-outs are three rows."""
    names = ("consumer.request.timeout.ms", "producer.request.timeout.ms", "request.timeout.ms")

    assert [key_named(name).default for name in names] == ["30000", "30000", "40000"]
