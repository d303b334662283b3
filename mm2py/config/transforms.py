"""A flow's transforms, from their lines. `read_transforms` reads valid lines; `judge_transforms` reports all others,
and nothing runs while there is a problem. SQL statements are checked by Spark: see `mm2py.pipeline.transform`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from mm2py.config.keys.row import Kind, trimmed
from mm2py.config.layers import Value
from mm2py.config.problem import Problem
from mm2py.config.resolve import FlowReader
from mm2py.config.step_kinds import INSERTED, PREDICATES, STEPS, StepKind, routes_by_record, short_name
from mm2py.model.patterns import NamePatterns, PatternError, compile_java, judge_replacement, split_list
from mm2py.model.transform import Errors, FlowTransforms, Predicate, Step, TopicRule, Transform


_WHOLE_FLOW = ".*"
_FORMS = ("sql", "function")
_ROUTES = "routes"
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_NEEDS_NAME_ALONE = "TopicNameMatches"
_ROUTER = "RegexRouter"
_INSERTER = "InsertField$"
#: Settings of any class. The version of a Java class (KIP-891) has no effect.
_OF_ANY = ("type", "plugin.version")
_OWN = (*_OF_ANY, "predicate", "negate")
_ONE_PLACE = "all records of a source partition go to one remote partition"
_INSTEAD = (
    "rename whole topics with a RegexRouter, or mirror to one remote topic and split it at the target, in a stream "
    "processor or in the sink that reads it; mm2py docs transforms#one-topic-one-remote-topic"
)


def read_transforms(of: FlowReader, errors: Errors) -> FlowTransforms:
    """Read the transforms of a flow, as far as they are valid; *errors* applies to all of them."""
    steps = tuple(step for name in listed(of, "transforms") if (step := _step(of, name)) is not None)
    return FlowTransforms(tuple(sorted(_rules(of), key=_rank)), steps, errors)


def judge_transforms(of: FlowReader) -> Iterator[Problem]:
    """Return the problems with the transforms of a flow."""
    yield from _judge_rules(of)
    if hidden := tuple(_judge_names(of)):
        yield from hidden
        return
    for name in listed(of, "transforms"):
        yield from _judge_step(of, name)


def _judge_names(of: FlowReader) -> Iterator[Problem]:
    """Refuse names from a value provider: they would show in keys."""
    for name in ("transforms", "predicates"):
        line = of.line(name)
        if line is not None and line.stands_in:
            yield Problem(line.where, line.key, "names cannot come from a value provider", "write them here")


# Rules: SQL and functions.


def _rule_lines(of: FlowReader) -> Iterator[tuple[str, str, str, Value]]:
    """Return the name, the topics, the form and the line of each rule, in the order of the file."""
    for name, line in of.beginning("transform."):
        topics, _, form = name.removeprefix("transform.").rpartition(".")
        yield name, topics or _WHOLE_FLOW, form, line


def _rules(of: FlowReader) -> Iterator[TopicRule]:
    for name, topics, form, line in _rule_lines(of):
        if form in _FORMS:
            text = line.text.strip()
            transform = Transform(name, sql=text) if form == "sql" else Transform(name, function=text)
            yield TopicRule(topics, transform)


def _rank(rule: TopicRule) -> int:
    """A topic's own name comes first, then expressions, then the whole flow."""
    if rule.topics == _WHOLE_FLOW:
        return 2
    return 1 if rule.name is None else 0


def _judge_rules(of: FlowReader) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for _, topics, form, line in _rule_lines(of):
        if form == _ROUTES:
            message = f"a statement or function cannot choose where records go: {_ONE_PLACE}"
            yield Problem(line.where, line.key, message, f"remove the line; {_INSTEAD}")
            continue
        if form not in _FORMS:
            hint = f"write {of.spelt(line, 'transform.')}<topic or expression>.sql, or .function"
            yield Problem(line.where, line.key, "it must end in .sql or .function", hint)
            continue
        try:
            NamePatterns.compile((topics,))
        except PatternError as error:
            yield Problem(line.where, line.key, str(error))
        if not line.text.strip():
            yield Problem(line.where, line.key, "it is empty", "leave the line away where records stay as they are")
        elif form == "function" and _FUNCTION.fullmatch(line.text.strip()) is None:
            wrong = ValueError(f"{line.text!r} is not of the form module:function")
            yield Problem(line.where, line.key, line.reason(wrong))
        if (other := seen.setdefault(topics, form)) != form:
            yield Problem(line.where, line.key, f"the same topics have .{other} too", "keep one of them")


# Connect's single message transforms.


def _step(of: FlowReader, name: str) -> Step | None:
    kind = _text(of, f"transforms.{name}.type")
    kind = short_name(kind or "")
    if kind not in STEPS:
        return None
    predicate_name = _text(of, f"transforms.{name}.predicate")
    predicate = _predicate(of, predicate_name) if predicate_name else None
    negate = (_text(of, f"transforms.{name}.negate") or "").lower() == "true"
    return Step(name, kind, _settings(of, f"transforms.{name}.", STEPS[kind]), predicate, negate)


def _predicate(of: FlowReader, name: str) -> Predicate | None:
    kind = short_name(_text(of, f"predicates.{name.strip()}.type") or "")
    if kind not in PREDICATES:
        return None
    return Predicate(kind, _settings(of, f"predicates.{name.strip()}.", PREDICATES[kind]))


def _settings(of: FlowReader, prefix: str, kind: StepKind) -> Mapping[str, str]:
    given = {key: text for key in (*kind.required, *kind.defaults) if (text := _text(of, prefix + key)) is not None}
    return {**kind.defaults, **given}


def _judge_step(of: FlowReader, name: str) -> Iterator[Problem]:
    prefix = f"transforms.{name}."
    listed = of.line("transforms") or Value("")
    line = of.own(f"{prefix}type")
    if line is None:
        key = of.spelt(listed, f"{prefix}type")
        yield Problem(listed.where, key, "missing: the transform's class", f"add {key} = …")
        return
    if routes_by_record(line.text):
        error = ValueError(f"{line.text.strip()} is not supported: {_ONE_PLACE}, and it sends each where its data says")
        yield Problem(line.where, line.key, line.reason(error), _INSTEAD)
        return
    kind = STEPS.get(short_name(line.text))
    if kind is None:
        error = ValueError(f"{line.text.strip()} is not supported")
        yield Problem(line.where, line.key, line.reason(error), f"supported are {', '.join(STEPS)}")
        return
    yield from _judge_settings(of, prefix, kind, line, _OWN)
    if short_name(line.text) == _ROUTER:
        yield from _judge_replacement(of, prefix)
    if short_name(line.text).startswith(_INSERTER):
        yield from _judge_insertion(of, prefix, line)
    named = of.own(f"{prefix}predicate")
    predicate: Predicate | None = None
    if named is not None:
        yield from _judge_predicate(of, named)
        predicate = _predicate(of, named.text)
    yield from _judge_negate(
        of.own(f"{prefix}negate"), of.spelt(line, f"{prefix}predicate"), has_predicate=named is not None
    )
    yield from _judge_together(short_name(line.text), line, predicate, has_predicate=named is not None)


def _judge_replacement(of: FlowReader, prefix: str) -> Iterator[Problem]:
    line, pattern = of.own(f"{prefix}replacement"), _text(of, f"{prefix}regex")
    with suppress(PatternError):  # reported before
        if line is not None and pattern is not None:
            reason = judge_replacement(trimmed(line.text), compile_java(pattern))
            if reason is not None:
                yield Problem(line.where, line.key, line.reason(ValueError(reason)))


def _judge_insertion(of: FlowReader, prefix: str, owner: Value) -> Iterator[Problem]:
    """Refuse what Java refuses: to insert nothing, or a field without its value."""
    given = {key: line for key in (*INSERTED, "static.value") if (line := of.own(prefix + key)) is not None}
    if given.keys().isdisjoint(INSERTED):
        hint = f"add {of.spelt(owner, f'{prefix}topic.field')} or another of its fields"
        yield Problem(owner.where, owner.key, "it inserts nothing", hint)
    elif "static.field" in given and "static.value" not in given:
        line = given["static.field"]
        yield Problem(line.where, line.key, "the field has no value", f"add {of.spelt(line, f'{prefix}static.value')}")


def _judge_negate(negate: Value | None, predicate_key: str, *, has_predicate: bool) -> Iterator[Problem]:
    """Refuse what is neither true nor false: a filter would drop what it should keep."""
    if negate is None:
        return
    try:
        Kind.BOOLEAN.parse(negate.text)
    except ValueError as error:
        yield Problem(negate.where, negate.key, negate.reason(error))
        return
    if not has_predicate:
        yield Problem(
            negate.where, negate.key, "there is no predicate to negate", f"add {predicate_key}, or remove this"
        )


def _judge_together(kind: str, line: Value, predicate: Predicate | None, *, has_predicate: bool) -> Iterator[Problem]:
    if kind == _ROUTER and predicate is not None and predicate.kind != _NEEDS_NAME_ALONE:
        message = "the remote topic must depend on the source topic's name only"
        yield Problem(line.where, line.key, message, f"use the predicate {_NEEDS_NAME_ALONE}, or none")
    if kind == "Filter" and not has_predicate:
        yield Problem(line.where, line.key, "without a predicate it drops every record", "add a predicate")


def _judge_predicate(of: FlowReader, named: Value) -> Iterator[Problem]:
    name = named.text.strip()
    if name not in listed(of, "predicates"):
        error = ValueError(f"predicates does not name {name}")
        yield Problem(named.where, named.key, named.reason(error), f"name it in {of.spelt(named, 'predicates')}")
        return
    prefix = f"predicates.{name}."
    line = of.own(f"{prefix}type")
    if line is None:
        key = of.spelt(named, f"{prefix}type")
        yield Problem(named.where, key, "missing: the predicate's class", f"add {key} = …")
        return
    kind = PREDICATES.get(short_name(line.text))
    if kind is None:
        known = ", ".join(PREDICATES)
        error = ValueError(f"{line.text.strip()} is not supported")
        yield Problem(line.where, line.key, line.reason(error), f"supported are {known}")
        return
    yield from _judge_settings(of, prefix, kind, line, _OF_ANY)


def _judge_settings(
    of: FlowReader, prefix: str, kind: StepKind, owner: Value, own: tuple[str, ...]
) -> Iterator[Problem]:
    checks = {**kind.checks, **kind.required}
    for key in kind.required:
        if of.own(prefix + key) is None:
            missing = of.spelt(owner, prefix + key)
            yield Problem(owner.where, missing, f"missing: {short_name(owner.text)} needs it", f"add {missing}")
    for name, line in of.beginning(prefix):
        key = name.removeprefix(prefix)
        if key not in {*kind.required, *kind.defaults, *own}:
            known = ", ".join((*kind.required, *kind.defaults)) or "none"
            yield Problem(line.where, line.key, f"{short_name(owner.text)} has no such setting", f"it has {known}")
        elif (check := checks.get(key)) is not None and (reason := check(trimmed(line.text))) is not None:
            yield Problem(line.where, line.key, line.reason(ValueError(reason)))


# Lines of transforms.


def listed(of: FlowReader, name: str) -> tuple[str, ...]:
    """Return the members of the list ``transforms`` or ``predicates``."""
    line = of.line(name)
    return tuple(dict.fromkeys(member for member in split_list(line.text) if member)) if line is not None else ()


def _text(of: FlowReader, name: str) -> str | None:
    line = of.own(name)
    return None if line is None else trimmed(line.text)
