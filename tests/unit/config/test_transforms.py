"""Transforms in a properties file: what they amount to, and what is wrong with them."""

from __future__ import annotations

import pytest

from tests.support.config_files import ConfigFile


_KIND = "org.apache.kafka.connect.transforms"


def test_a_name_beats_expressions_and_those_the_whole_flow(config: ConfigFile) -> None:
    """Rules stand in the order in which they count, whatever the order of the file."""
    flow = config.flow(
        "A->B.transform.sql = SELECT 1\n"
        "A->B.transform.shop-.*.function = a.b:c\n"
        "A->B.transform.orders.sql = SELECT 2\n"
        "A->B.transform.s.*.sql = SELECT 3\n",
    )

    rules = [
        (rule.topics, rule.transform.sql or rule.transform.function) for rule in flow.source_connector.transforms.rules
    ]
    assert rules == [("orders", "SELECT 2"), ("shop-.*", "a.b:c"), ("s.*", "SELECT 3"), (".*", "SELECT 1")]
    assert [rule.transform.name for rule in flow.source_connector.transforms.rules][-1] == "transform.sql"


def test_steps_have_their_settings_predicates_and_defaults(config: ConfigFile) -> None:
    """Steps stand in the order of the list, by Java's names with or without the package, and of any version."""
    flow = config.flow(
        "A->B.transforms = one, two\n"
        f"A->B.transforms.two.type = {_KIND}.MaskField$Value\n"
        "A->B.transforms.two.fields = iban\n"
        "A->B.transforms.two.predicate = debug\n"
        "A->B.transforms.two.negate = true\n"
        "A->B.transforms.two.plugin.version = [4.1,)\n"
        "A->B.transforms.one.type = RegexRouter\n"
        "A->B.transforms.one.regex = a\n"
        "A->B.transforms.one.replacement =\n"
        "A->B.predicates = debug\n"
        f"A->B.predicates.debug.type = {_KIND}.predicates.HasHeaderKey\n"
        "A->B.predicates.debug.name = d\n"
        "A->B.predicates.debug.plugin.version = 4.3.1\n"
        "errors.tolerance = all\n"
        "A->B.errors.deadletterqueue.topic.name = dead\n",
    )

    one, two = flow.source_connector.transforms.steps
    assert (one.kind, one.settings, one.predicate) == ("RegexRouter", {"regex": "a", "replacement": ""}, None)
    assert (two.kind, two.settings["fields"], two.settings["replacement"]) == ("MaskField$Value", "iban", "")
    assert two.predicate is not None
    assert (two.predicate.kind, two.predicate.settings, two.is_negated) == ("HasHeaderKey", {"name": "d"}, True)
    errors = flow.source_connector.transforms.errors
    assert (errors.are_tolerated, errors.dead_letters, errors.dead_letters_factor) == (True, "dead", 3)


def test_a_blank_after_a_setting_is_no_part_of_it(config: ConfigFile) -> None:
    """Java's transforms and predicates trim their texts: with the blank, the filter would drop what it should keep."""
    flow = config.flow(
        "A->B.transforms = route, mask, filter\n"
        "A->B.transforms.route.type = RegexRouter\n"
        "A->B.transforms.route.regex = (.*)s \n"
        "A->B.transforms.route.replacement = x-$1 \n"
        "A->B.transforms.mask.type = MaskField$Value\n"
        "A->B.transforms.mask.fields = sum\n"
        "A->B.transforms.mask.replacement = 0 \n"
        "A->B.transforms.filter.type = Filter\n"
        "A->B.transforms.filter.predicate = p\n"
        "A->B.transforms.filter.negate = true \n"
        "A->B.predicates = p\n"
        "A->B.predicates.p.type = TopicNameMatches\n"
        "A->B.predicates.p.pattern = ord.* \n"
    )

    route, mask, drop = flow.source_connector.transforms.steps
    assert route.settings == {"regex": "(.*)s", "replacement": "x-$1"}
    assert mask.settings["replacement"] == "0"
    assert drop.predicate is not None
    assert (drop.predicate.settings, drop.is_negated) == ({"pattern": "ord.*"}, True)


_X = "A->B.transforms.x."
_ONE = "A->B.transforms = x\nA->B.transforms.x."
_NEGATED = (
    f"{_ONE}predicate = p\nA->B.predicates = p\nA->B.predicates.p.type = RecordIsTombstone\n"
    "A->B.transforms.x.type = Filter\nA->B.transforms.x.negate = "
)
_ROUTED = (
    f"{_ONE}type = RegexRouter\nA->B.transforms.x.regex = a\nA->B.transforms.x.replacement = b\n"
    "A->B.transforms.x.predicate = p\nA->B.predicates = p\nA->B.predicates.p.type = RecordIsTombstone"
)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("A->B.transform.orders = SELECT 1", "5: A->B.transform.orders: it must end in .sql or .function"),
        ("A->B.transform.orders.sql =", "5: A->B.transform.orders.sql: it is empty"),
        ("A->B.transform.o.function = a.b.c", "5: A->B.transform.o.function: 'a.b.c' is not of the form module:func"),
        ("A->B.transform.o.sql = S\nA->B.transform.o.function = a:b", "6: A->B.transform.o.function: the same topics"),
        ("A->B.transform.o(.sql = S", "5: A->B.transform.o(.sql: "),
        ("A->B.transforms = x", "5: A->B.transforms.x.type: missing: the transform's class"),
        (f"{_ONE}type = {_KIND}.Cast$Value", f"6: A->B.transforms.x.type: {_KIND}.Cast$Value is not supported"),
        (f"{_ONE}type = DropHeaders", "6: A->B.transforms.x.headers: missing: DropHeaders needs it"),
        (f"{_ONE}type = Filter", "6: A->B.transforms.x.type: without a predicate it drops every record"),
        (f"{_ONE}type = DropHeaders\nA->B.transforms.x.headers = a\nA->B.transforms.x.haeders = b",
         "8: A->B.transforms.x.haeders: DropHeaders has no such setting"),
        (f"{_ONE}type = RegexRouter\nA->B.transforms.x.regex = (\nA->B.transforms.x.replacement = b",
         "7: A->B.transforms.x.regex: "),
        *((f"{_ONE}type = RegexRouter\n{_X}regex = (?<n>.*)\n{_X}replacement = {replacement}",
           f"8: A->B.transforms.x.replacement: {reason}") for replacement, reason in (
            ("x$2", "the expression has no group 2"),
            ("${other}", "the expression has no group named other"),
            ("x${n", "'${n' begins with no reference"),
            ("$x", "'$x' begins with no reference"),
            ("$", "'$' begins with no reference"))),
        (f"{_ONE}type = Filter\nA->B.transforms.x.predicate = p", "7: A->B.transforms.x.predicate: predicates does"),
        (f"{_ONE}type = DropHeaders\nA->B.transforms.x.headers = a\nA->B.transforms.x.negate = false",
         "8: A->B.transforms.x.negate: there is no predicate to negate (add A->B.transforms.x.predicate"),
        (f"{_NEGATED}ture", "10: A->B.transforms.x.negate: expected true or false, found 'ture'"),
        (f"{_NEGATED}true   # the others", "10: A->B.transforms.x.negate: expected true or false, found 'true   # the"),
        (f"{_NEGATED}", "10: A->B.transforms.x.negate: expected true or false, found ''"),
        (_ROUTED, "6: A->B.transforms.x.type: the remote topic must depend on the source topic's name only"),
        (f"{_ONE}type = InsertField$Key\n{_X}static.value = a", "6: A->B.transforms.x.type: it inserts nothing (add A"),
        (f"{_ONE}type = InsertField$Value\n{_X}topic.field = t\n{_X}static.field = f",
         "8: A->B.transforms.x.static.field: the field has no value (add A->B.transforms.x.static.value)"),
        ("errors.tolerance = some", "5: errors.tolerance: must be one of none, all"),
        ("errors.deadletterqueue.topic.name = a b", "5: errors.deadletterqueue.topic.name: 'a b' cannot be part"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_at_its_line(config: ConfigFile, lines: str, problem: str) -> None:
    """Nothing is run while a transform cannot be read as it was meant."""
    assert config.refusals(lines)[0].startswith(f"mm2.properties:{problem}")


_MASK = "type = MaskField$Value\nA->B.transforms.{0}.fields = iban\n"
_PATTERN = "A->B.predicates = p\nA->B.predicates.p.type = TopicNameMatches\nA->B.predicates.p.pattern = "
_ROUTE = "A->B.transforms = x\nA->B.transforms.x.type = RegexRouter\nA->B.transforms.x.replacement = b\n"


@pytest.mark.parametrize(
    ("lines", "note"),
    [
        (f"A->B.transforms.mask.{_MASK.format('mask')}",
         "5: A->B.transforms.mask.type: has no effect: A->B.transforms does not name mask (write A->B.transforms = m"),
        (f"{_ONE}{_MASK.format('x')}A->B.transforms.y.{_MASK.format('y')}",
         "8: A->B.transforms.y.type: has no effect: A->B.transforms does not name y (write A->B.transforms = x, y)"),
        ("A->B.predicates.p.type = RecordIsTombstone",
         "5: A->B.predicates.p.type: has no effect: A->B.predicates does not name p (write A->B.predicates = p)"),
        ("A->B.transform.orders.sql = SELECT * FROM records \\\n  -- Germans \\\n  WHERE key = 'DE'",
         "5: A->B.transform.orders.sql: the lines of a statement are joined, so what begins with -- is a comment"),
        ("A->B.transform.orders.sql = SELECT * FROM records -- Germans \\n\\\n  WHERE key = 'DE'", ""),
        ("A->B.transform.orders.sql = SELECT * FROM records WHERE key = '--' /* -- */", ""),
        (f"{_ROUTE}A->B.transforms.x.regex = orders-(.*)",
         "8: A->B.transforms.x.regex: it is matched with names of remote topics, which begin with A. (begin it with A"),
        (f"{_ROUTE}A->B.transforms.x.regex = A\\\\.orders", ""),
        (f"{_ROUTE}A->B.transforms.x.regex = A.*", ""),
        (f"{_ROUTE}A->B.transforms.x.regex = (.*)-orders", ""),
        (f"{_ROUTE}A->B.transforms.x.regex = orders|A.*", ""),
        (f"{_ROUTE}A->B.transforms.x.regex = o?A.*", ""),
        (f"{_ROUTE}A->B.transforms.x.regex = orders-(.*)\nreplication.policy.class = identity", ""),
        (f"{_PATTERN}^(orders.*)",
         "7: A->B.predicates.p.pattern: it is matched with names of remote topics, which begin with A. (begin it with"),
        (f"{_ROUTE}A->B.transforms.x.regex = (.*)\n{_PATTERN}b", ""),
    ],
)  # fmt: skip
def test_what_does_less_than_it_seems_to_is_noted(config: ConfigFile, lines: str, note: str) -> None:
    """Java runs all of these without a word; records may pass that were to be masked or left out."""
    notes = [str(found) for found in config.load(lines).notes]

    assert len(notes) == bool(note)
    assert all(found.startswith(f"mm2.properties:{note}") for found in notes)


_INSTEAD = (
    "rename whole topics with a RegexRouter, or mirror to one remote topic and split it at the target, in a stream "
    "processor or in the sink that reads it; mm2py docs transforms#one-topic-one-remote-topic"
)


@pytest.mark.parametrize(
    "kind",
    [
        "TimestampRouter",
        f"{_KIND}.TimestampRouter",
        "io.confluent.connect.transforms.MessageTimestampRouter",
        "io.confluent.connect.transforms.ExtractTopic$Value",
    ],
)
def test_what_routes_record_by_record_is_refused(config: ConfigFile, kind: str) -> None:
    """At its line and key, once, whatever its settings are; with what to use instead."""
    (problem,) = config.problems(
        f"{_ONE}type = {kind}\nA->B.transforms.x.timestamp.format = yyyy/MM\nA->B.topics = orders"
    )

    assert (problem.where, problem.key) == ("mm2.properties:6", "A->B.transforms.x.type")
    assert problem.message == (
        f"{kind} is not supported: all records of a source partition go to one remote partition, and it sends each "
        "where its data says"
    )
    assert problem.hint == _INSTEAD


@pytest.mark.parametrize("text", ["true", "false", ""])
def test_a_statement_cannot_route(config: ConfigFile, text: str) -> None:
    """Nor a function: the line that a preview took for that is refused with what to use instead."""
    (problem,) = config.problems(f"A->B.transform.orders.sql = SELECT 2\nA->B.transform.orders.routes = {text}\n")

    assert (problem.where, problem.key) == ("mm2.properties:6", "A->B.transform.orders.routes")
    assert problem.message == (
        "a statement or function cannot choose where records go: all records of a source partition go to one remote "
        "partition"
    )
    assert problem.hint == f"remove the line; {_INSTEAD}"


@pytest.mark.parametrize("predicate", ["", "A->B.transforms.x.predicate = p\n"])
def test_what_routes_by_the_topic_s_name_is_taken(config: ConfigFile, predicate: str) -> None:
    """A RegexRouter renames whole topics, all of them or those of a name."""
    flow = config.flow(
        f"{_ONE}type = {_KIND}.RegexRouter\nA->B.transforms.x.regex = a\nA->B.transforms.x.replacement = b\n"
        f"A->B.predicates = p\nA->B.predicates.p.type = TopicNameMatches\nA->B.predicates.p.pattern = a.*\n{predicate}",
    )

    assert [step.kind for step in flow.source_connector.transforms.steps] == ["RegexRouter"]


def test_a_changed_transform_is_a_changed_flow(config: ConfigFile) -> None:
    """A reload that changes a statement, a step's setting or a predicate's touches the flow."""
    step = "A->B.transforms = x\nA->B.transforms.x.type = DropHeaders\nA->B.transforms.x.headers = {}\n"

    assert config.flow("A->B.transform.sql = S") != config.flow("A->B.transform.sql = T")
    assert config.flow(step.format("a")) != config.flow(step.format("b"))
    assert config.flow(step.format("a")) == config.flow(step.format("a"))
