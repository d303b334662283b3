"""Transforms in a properties file: what they amount to, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.resolve import FlowSettings
from mm2py.config.settings import ConfigError, MirrorSettings, load_settings


_BASE = """\
clusters = A, B
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
A->B.enabled = true
"""
_KIND = "org.apache.kafka.connect.transforms"


def _loaded(folder: Path, lines: str) -> MirrorSettings:
    path = folder / "mm2.properties"
    path.write_text(_BASE + lines)
    return load_settings(path)


def _load(folder: Path, lines: str) -> FlowSettings:
    return _loaded(folder, lines).flows[0]


def test_a_name_beats_expressions_and_those_the_whole_flow(tmp_path: Path) -> None:
    """Rules stand in the order in which they count, whatever the order of the file."""
    flow = _load(
        tmp_path,
        "A->B.transform.sql = SELECT 1\n"
        "A->B.transform.shop-.*.function = a.b:c\n"
        "A->B.transform.orders.sql = SELECT 2\n"
        "A->B.transform.s.*.sql = SELECT 3\n",
    )

    rules = [(rule.topics, rule.transform.sql or rule.transform.function) for rule in flow.transforms.rules]
    assert rules == [("orders", "SELECT 2"), ("shop-.*", "a.b:c"), ("s.*", "SELECT 3"), (".*", "SELECT 1")]
    assert [rule.transform.name for rule in flow.transforms.rules][-1] == "transform.sql"


def test_a_transform_routes_where_that_is_said(tmp_path: Path) -> None:
    """Of the topics that the line names, and of no others."""
    flow = _load(
        tmp_path,
        "A->B.transform.orders.sql = SELECT 2\nA->B.transform.orders.routes = true\n"
        "A->B.transform.s.*.sql = SELECT 3\nA->B.transform.s.*.routes = False\nA->B.transform.sql = SELECT 1\n",
    )

    assert [(rule.topics, rule.transform.routes) for rule in flow.transforms.rules] == [
        ("orders", True),
        ("s.*", False),
        (".*", False),
    ]


def test_what_a_routing_transform_costs_is_a_note(tmp_path: Path) -> None:
    """At its line."""
    lines = "A->B.transform.orders.sql = SELECT 2\nA->B.transform.orders.routes = true\nA->B.transform.sql = SELECT 1\n"
    (note,) = [note for note in _loaded(tmp_path, lines).notes if "sends records of one topic" in note.message]

    assert (note.key, note.where) == ("A->B.transform.orders.routes", "mm2.properties:6")


def test_steps_have_their_settings_predicates_and_defaults(tmp_path: Path) -> None:
    """Steps stand in the order of the list, by Java's names with or without the package."""
    flow = _load(
        tmp_path,
        "A->B.transforms = one, two\n"
        f"A->B.transforms.two.type = {_KIND}.MaskField$Value\n"
        "A->B.transforms.two.fields = iban\n"
        "A->B.transforms.two.predicate = debug\n"
        "A->B.transforms.two.negate = true\n"
        "A->B.transforms.one.type = RegexRouter\n"
        "A->B.transforms.one.regex = a\n"
        "A->B.transforms.one.replacement =\n"
        "A->B.predicates = debug\n"
        f"A->B.predicates.debug.type = {_KIND}.predicates.HasHeaderKey\n"
        "A->B.predicates.debug.name = d\n"
        "errors.tolerance = all\n"
        "A->B.errors.deadletterqueue.topic.name = dead\n",
    )

    one, two = flow.transforms.steps
    assert (one.kind, one.settings, one.predicate) == ("RegexRouter", {"regex": "a", "replacement": ""}, None)
    assert (two.kind, two.settings["fields"], two.settings["replacement"]) == ("MaskField$Value", "iban", "")
    assert two.predicate is not None
    assert (two.predicate.kind, two.predicate.settings, two.is_negated) == ("HasHeaderKey", {"name": "d"}, True)
    errors = flow.transforms.errors
    assert (errors.are_tolerated, errors.dead_letters, errors.dead_letters_factor) == (True, "dead", 3)


_ONE = "A->B.transforms = x\nA->B.transforms.x."
_ROUTED = (
    f"{_ONE}type = RegexRouter\nA->B.transforms.x.regex = a\nA->B.transforms.x.replacement = b\n"
    "A->B.transforms.x.predicate = p\nA->B.predicates = p\nA->B.predicates.p.type = RecordIsTombstone"
)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("A->B.transform.orders = SELECT 1", "5: A->B.transform.orders: it must end in .sql or .function"),
        ("A->B.transform.orders.sql =", "5: A->B.transform.orders.sql: it says nothing"),
        ("A->B.transform.o.function = a.b.c", "5: A->B.transform.o.function: 'a.b.c' is not of the form module:func"),
        ("A->B.transform.o.sql = S\nA->B.transform.o.function = a:b", "6: A->B.transform.o.function: the same topics"),
        ("A->B.transform.o(.sql = S", "5: A->B.transform.o(.sql: "),
        ("A->B.transform.o.sql = S\nA->B.transform.o.routes = yes", "6: A->B.transform.o.routes: expected true or"),
        ("A->B.transform.o.sql = S\nA->B.transform.p.routes = true", "6: A->B.transform.p.routes: there is no statem"),
        ("A->B.transforms = x", "5: A->B.transforms.x.type: missing: the transform's class"),
        (f"{_ONE}type = {_KIND}.Cast$Value", f"6: A->B.transforms.x.type: {_KIND}.Cast$Value is not supported"),
        (f"{_ONE}type = DropHeaders", "6: A->B.transforms.x.headers: missing: DropHeaders needs it"),
        (f"{_ONE}type = Filter", "6: A->B.transforms.x.type: without a predicate it drops every record"),
        (f"{_ONE}type = DropHeaders\nA->B.transforms.x.headers = a\nA->B.transforms.x.haeders = b",
         "8: A->B.transforms.x.haeders: DropHeaders has no such setting"),
        (f"{_ONE}type = RegexRouter\nA->B.transforms.x.regex = (\nA->B.transforms.x.replacement = b",
         "7: A->B.transforms.x.regex: "),
        (f"{_ONE}type = Filter\nA->B.transforms.x.predicate = p", "7: A->B.transforms.x.predicate: predicates does"),
        (_ROUTED, "6: A->B.transforms.x.type: where records go must follow from their topic's name alone"),
        ("errors.tolerance = some", "5: errors.tolerance: must be one of none, all"),
        ("errors.deadletterqueue.topic.name = a b", "5: errors.deadletterqueue.topic.name: 'a b' cannot be part"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_at_its_line(tmp_path: Path, lines: str, problem: str) -> None:
    """Nothing is run while a transform cannot be read as it was meant."""
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, lines)

    assert str(caught.value.problems[0]).startswith(f"mm2.properties:{problem}")


_DATED = f"{_ONE}type = {_KIND}.TimestampRouter\n"


def test_a_timestamp_router_has_java_s_defaults(tmp_path: Path) -> None:
    """Without settings it is by the day; there is a note on what such topics do not have."""
    settings = _loaded(tmp_path, _DATED)

    (step,) = settings.flows[0].transforms.steps
    assert step.settings == {"topic.format": "${topic}-${timestamp}", "timestamp.format": "yyyyMMdd"}
    (note,) = [note for note in settings.notes if "transforms.x" in note.key]
    assert str(note).startswith("mm2.properties:6: A->B.transforms.x.type: A->B sends records of one topic to several")
    assert settings.flows[0].timestamp_topics_max == 1_000


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("A->B.transforms.x.timestamp.format = yyyy-b", "7: A->B.transforms.x.timestamp.format: 'b' is no letter of"),
        ("A->B.transforms.x.timestamp.format = yyyy'T", "7: A->B.transforms.x.timestamp.format: unterminated quote"),
        ("A->B.transforms.x.timestamp.format = yyyy/MM", "7: A->B.transforms.x.timestamp.format: it makes names"),
        ("A->B.transforms.x.topic.format = ${topic} ${timestamp}", "7: A->B.transforms.x.topic.format: it makes names"),
        ("A->B.transforms.x.topic.format =", "7: A->B.transforms.x.topic.format: must not be empty"),
        ("A->B.transforms.x.regex = a", "7: A->B.transforms.x.regex: TimestampRouter has no such setting"),
        ("timestamp.router.topics.max = 0", "7: timestamp.router.topics.max: must be at least 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_timestamp_router(tmp_path: Path, lines: str, problem: str) -> None:
    """A pattern that Java would not take, and one whose names no topic can have, such as orders-2026/11."""
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, _DATED + lines)

    assert str(caught.value.problems[0]).startswith(f"mm2.properties:{problem}")


def test_another_router_may_mend_the_names(tmp_path: Path) -> None:
    """What a TimestampRouter makes is no topic's name yet where a RegexRouter comes behind it."""
    lines = _DATED.replace("= x", "= x, y") + (
        "A->B.transforms.x.timestamp.format = yyyy/MM\nA->B.transforms.y.type = RegexRouter\n"
        "A->B.transforms.y.regex = (.*)/(.*)\nA->B.transforms.y.replacement = $1-$2"
    )

    assert [step.kind for step in _load(tmp_path, lines).transforms.steps] == ["TimestampRouter", "RegexRouter"]


def test_a_changed_transform_is_a_changed_flow(tmp_path: Path) -> None:
    """A reload that changes a statement, a step's setting or a predicate's touches the flow."""
    step = "A->B.transforms = x\nA->B.transforms.x.type = DropHeaders\nA->B.transforms.x.headers = {}\n"

    assert _load(tmp_path, "A->B.transform.sql = S") != _load(tmp_path, "A->B.transform.sql = T")
    assert _load(tmp_path, step.format("a")) != _load(tmp_path, step.format("b"))
    assert _load(tmp_path, step.format("a")) == _load(tmp_path, step.format("a"))
