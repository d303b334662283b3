"""A flow's transforms, from their lines. `read_transforms` reads valid lines; `judge_transforms` reports all others,
and nothing runs while there is a problem. SQL statements are checked by Spark: see `mm2py.pipeline.transform`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from mm2py.config.keys.row import Kind, trimmed
from mm2py.config.keys.table import key_named
from mm2py.config.layers import Layers, Value, spellings
from mm2py.config.problem import Problem
from mm2py.config.step_kinds import INSERTED, PREDICATES, STEPS, StepKind, routes_by_record, short_name
from mm2py.model.flow import Flow
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


def read_transforms(layers: Layers, flow: Flow, errors: Errors) -> FlowTransforms:
    """Read the transforms of *flow*, as far as they are valid; *errors* applies to all of them."""
    steps = tuple(
        step for name in listed(layers, flow, "transforms") if (step := _step(layers, flow, name)) is not None
    )
    return FlowTransforms(tuple(sorted(_rules(layers, flow), key=_rank)), steps, errors)


def judge_transforms(layers: Layers, flow: Flow) -> Iterator[Problem]:
    """Return the problems with the transforms of *flow*."""
    yield from _judge_rules(layers, flow)
    if hidden := tuple(_judge_names(layers, flow)):
        yield from hidden
        return
    for name in listed(layers, flow, "transforms"):
        yield from _judge_step(layers, flow, name)


def _judge_names(layers: Layers, flow: Flow) -> Iterator[Problem]:
    """Refuse names from a value provider: they would show in keys."""
    for name in ("transforms", "predicates"):
        line = _first(layers, flow, name)
        if line is not None and line.stands_in:
            yield Problem(line.where, line.key, "names cannot come from a value provider", "write them here")


# Rules: SQL and functions.


def _rule_lines(layers: Layers, flow: Flow) -> Iterator[tuple[str, str, Value]]:
    """Return the topics, the form and the line of each rule, in the order of the file."""
    prefix = f"{flow}.transform."
    for line in layers.lines():
        if line.counts_as.startswith(prefix):
            topics, _, form = line.counts_as.removeprefix(prefix).rpartition(".")
            yield topics or _WHOLE_FLOW, form, line


def _rules(layers: Layers, flow: Flow) -> Iterator[TopicRule]:
    for topics, form, line in _rule_lines(layers, flow):
        if form in _FORMS:
            name = line.counts_as.removeprefix(f"{flow}.")
            text = line.text.strip()
            transform = Transform(name, sql=text) if form == "sql" else Transform(name, function=text)
            yield TopicRule(topics, transform)


def _rank(rule: TopicRule) -> int:
    """A topic's own name comes first, then expressions, then the whole flow."""
    if rule.topics == _WHOLE_FLOW:
        return 2
    return 1 if rule.name is None else 0


def _judge_rules(layers: Layers, flow: Flow) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for topics, form, line in _rule_lines(layers, flow):
        if form == _ROUTES:
            message = f"a statement or function cannot choose where records go: {_ONE_PLACE}"
            yield Problem(line.where, line.key, message, f"remove the line; {_INSTEAD}")
            continue
        if form not in _FORMS:
            hint = f"write {line.spelt(f'{flow}.transform.')}<topic or expression>.sql, or .function"
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


def _step(layers: Layers, flow: Flow, name: str) -> Step | None:
    kind = _text(layers, f"{flow}.transforms.{name}.type")
    kind = short_name(kind or "")
    if kind not in STEPS:
        return None
    predicate_name = _text(layers, f"{flow}.transforms.{name}.predicate")
    predicate = _predicate(layers, flow, predicate_name) if predicate_name else None
    negate = (_text(layers, f"{flow}.transforms.{name}.negate") or "").lower() == "true"
    return Step(name, kind, _settings(layers, f"{flow}.transforms.{name}.", STEPS[kind]), predicate, negate)


def _predicate(layers: Layers, flow: Flow, name: str) -> Predicate | None:
    kind = short_name(_text(layers, f"{flow}.predicates.{name.strip()}.type") or "")
    if kind not in PREDICATES:
        return None
    return Predicate(kind, _settings(layers, f"{flow}.predicates.{name.strip()}.", PREDICATES[kind]))


def _settings(layers: Layers, prefix: str, kind: StepKind) -> Mapping[str, str]:
    given = {key: text for key in (*kind.required, *kind.defaults) if (text := _text(layers, prefix + key)) is not None}
    return {**kind.defaults, **given}


def _judge_step(layers: Layers, flow: Flow, name: str) -> Iterator[Problem]:
    prefix = f"{flow}.transforms.{name}."
    listed = _first(layers, flow, "transforms") or Value("")
    line = layers.get(f"{prefix}type")
    if line is None:
        key = listed.spelt(f"{prefix}type")
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
    yield from _judge_settings(layers, prefix, kind, line, _OWN)
    if short_name(line.text) == _ROUTER:
        yield from _judge_replacement(layers, prefix)
    if short_name(line.text).startswith(_INSERTER):
        yield from _judge_insertion(layers, prefix, line)
    named = layers.get(f"{prefix}predicate")
    predicate: Predicate | None = None
    if named is not None:
        yield from _judge_predicate(layers, flow, named)
        predicate = _predicate(layers, flow, named.text)
    yield from _judge_negate(
        layers.get(f"{prefix}negate"), line.spelt(f"{prefix}predicate"), has_predicate=named is not None
    )
    yield from _judge_together(short_name(line.text), line, predicate, has_predicate=named is not None)


def _judge_replacement(layers: Layers, prefix: str) -> Iterator[Problem]:
    line, pattern = layers.get(f"{prefix}replacement"), _text(layers, f"{prefix}regex")
    with suppress(PatternError):  # reported before
        if line is not None and pattern is not None:
            reason = judge_replacement(trimmed(line.text), compile_java(pattern))
            if reason is not None:
                yield Problem(line.where, line.key, line.reason(ValueError(reason)))


def _judge_insertion(layers: Layers, prefix: str, owner: Value) -> Iterator[Problem]:
    """Refuse what Java refuses: to insert nothing, or a field without its value."""
    given = {key: line for key in (*INSERTED, "static.value") if (line := layers.get(prefix + key)) is not None}
    if given.keys().isdisjoint(INSERTED):
        hint = f"add {owner.spelt(f'{prefix}topic.field')} or another of its fields"
        yield Problem(owner.where, owner.key, "it inserts nothing", hint)
    elif "static.field" in given and "static.value" not in given:
        line = given["static.field"]
        yield Problem(line.where, line.key, "the field has no value", f"add {line.spelt(f'{prefix}static.value')}")


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


def _judge_predicate(layers: Layers, flow: Flow, named: Value) -> Iterator[Problem]:
    name = named.text.strip()
    if name not in listed(layers, flow, "predicates"):
        error = ValueError(f"predicates does not name {name}")
        yield Problem(named.where, named.key, named.reason(error), f"name it in {named.spelt(f'{flow}.predicates')}")
        return
    prefix = f"{flow}.predicates.{name}."
    line = layers.get(f"{prefix}type")
    if line is None:
        key = named.spelt(f"{prefix}type")
        yield Problem(named.where, key, "missing: the predicate's class", f"add {key} = …")
        return
    kind = PREDICATES.get(short_name(line.text))
    if kind is None:
        known = ", ".join(PREDICATES)
        error = ValueError(f"{line.text.strip()} is not supported")
        yield Problem(line.where, line.key, line.reason(error), f"supported are {known}")
        return
    yield from _judge_settings(layers, prefix, kind, line, _OF_ANY)


def _judge_settings(
    layers: Layers, prefix: str, kind: StepKind, owner: Value, own: tuple[str, ...]
) -> Iterator[Problem]:
    checks = {**kind.checks, **kind.required}
    for key in kind.required:
        if layers.get(prefix + key) is None:
            missing = owner.spelt(prefix + key)
            yield Problem(owner.where, missing, f"missing: {short_name(owner.text)} needs it", f"add {missing}")
    for line in layers.lines():
        if not line.counts_as.startswith(prefix):
            continue
        key = line.counts_as.removeprefix(prefix)
        if key not in {*kind.required, *kind.defaults, *own}:
            known = ", ".join((*kind.required, *kind.defaults)) or "none"
            yield Problem(line.where, line.key, f"{short_name(owner.text)} has no such setting", f"it has {known}")
        elif (check := checks.get(key)) is not None and (reason := check(trimmed(line.text))) is not None:
            yield Problem(line.where, line.key, line.reason(ValueError(reason)))


# Lines of transforms.


def listed(layers: Layers, flow: Flow, name: str) -> tuple[str, ...]:
    """Return the members of the list ``transforms`` or ``predicates``."""
    line = _first(layers, flow, name)
    return tuple(dict.fromkeys(member for member in split_list(line.text) if member)) if line is not None else ()


def _first(layers: Layers, flow: Flow, name: str) -> Value | None:
    return layers.first(spellings(key_named(name), flow))


def _text(layers: Layers, written: str) -> str | None:
    line = layers.get(written)
    return None if line is None else trimmed(line.text)
