"""
Which topics of a flow have a transform, what their remote topics are called, and which task runs it.

A step that only looks at the topic's name, a router, has done its work once the topic is named: where no other step is
left, records travel unopened. All records of a topic have the same remote topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import attrs

from mm2py.model.patterns import NamePatterns, compile_java
from mm2py.model.transform import FlowTransforms, Predicate, Step, Transform


ROUTER = "RegexRouter"
TOPIC_NAME_MATCHES = "TopicNameMatches"


def routed(topic: str, steps: tuple[Step, ...]) -> str:
    """Return the name that *topic* has behind *steps*, before the replication policy names its remote topic."""
    for name, step in _on_its_way(topic, steps):
        topic = _renamed(name, step)
    return topic


def _on_its_way(topic: str, steps: tuple[Step, ...]) -> Iterator[tuple[str, Step]]:
    """Return the steps that are for *topic*, as far as names tell, each with the name at that point."""
    for step in steps:
        if holds_for(topic, step):
            yield topic, step
            topic = _renamed(topic, step)


def _renamed(topic: str, step: Step) -> str:
    return reroute(topic, step) if step.kind == ROUTER else topic


def holds_for(topic: str, step: Step) -> bool:
    """Whether *step* is for records of *topic*, as far as the name tells."""
    if step.predicate is None:
        return True
    if step.predicate.kind != TOPIC_NAME_MATCHES:
        return True
    return matches_name(topic, step.predicate) is not step.is_negated


def matches_name(topic: str, predicate: Predicate) -> bool:
    """Whether the whole name matches the predicate's pattern."""
    return compile_java(predicate.settings["pattern"]).fullmatch(topic) is not None


def reroute(topic: str, step: Step) -> str:
    """Return the name that a RegexRouter gives; one that does not match stays."""
    found = compile_java(step.settings["regex"]).fullmatch(topic)
    return topic if found is None else expand(step.settings["replacement"], found)


def expand(replacement: str, match: re.Match[str]) -> str:
    """Fill a replacement of Java's in: ``$1``, ``${name}``, and a backslash before what is meant as it stands."""
    out: list[str] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        if char == "\\" and at + 1 < len(replacement):
            out.append(replacement[at + 1])
            at += 2
        elif char == "$" and replacement[at + 1 : at + 2] == "{":
            end = replacement.index("}", at)
            out.append(match[replacement[at + 2 : end]] or "")
            at = end + 1
        elif char == "$" and replacement[at + 1 : at + 2].isdigit():
            # As many digits as make the number of a group that there is.
            end = at + 2
            while replacement[end : end + 1].isdigit() and int(replacement[at + 1 : end + 1]) <= match.re.groups:
                end += 1
            out.append(match[int(replacement[at + 1 : end])] or "")
            at = end
        else:
            out.append(char)
            at += 1
    return "".join(out)


def looks_at_names_alone(step: Step) -> bool:
    """Whether all that *step* does follows from the topic's name."""
    return step.kind == ROUTER and (step.predicate is None or step.predicate.kind == TOPIC_NAME_MATCHES)


@attrs.frozen
class _Rule:
    matches: Callable[[str], bool]
    transform: Transform


class TopicTransforms:
    """What a flow's settings say of transforms, topic by topic."""

    def __init__(self, settings: FlowTransforms, is_exempt: Callable[[str], bool] = lambda _: False) -> None:
        """Read *settings*; topics for which *is_exempt* holds, the heartbeats, are mirrored as they are."""
        self._settings = settings
        self._is_exempt = is_exempt
        self._rules = tuple(
            _Rule(
                NamePatterns.compile((rule.topics,)).matches,
                attrs.evolve(rule.transform, steps=settings.steps, errors=settings.errors),
            )
            for rule in settings.rules
        )
        self._may_need_records = any(not looks_at_names_alone(step) for step in settings.steps)
        rest = (
            (Transform("transforms", steps=settings.steps, errors=settings.errors),) if self._may_need_records else ()
        )
        #: What each record task does.
        self.tasks: tuple[Transform, ...] = (*(rule.transform for rule in self._rules), *rest)

    def task_of(self, topic: str) -> int | None:
        """Return which record task transforms the records of *topic*; None where they travel unopened."""
        if self._is_exempt(topic):
            return None
        for number, rule in enumerate(self._rules):
            if rule.matches(topic):
                return number
        return len(self._rules) if self._needs_records(topic) else None

    def _needs_records(self, topic: str) -> bool:
        return any(not looks_at_names_alone(step) for _, step in _on_its_way(topic, self._settings.steps))

    def has_task(self, topic: str) -> bool:
        """Whether the records of *topic* are transformed."""
        return self.task_of(topic) is not None

    @property
    def has_routers(self) -> bool:
        """Whether topics may get another name before the replication policy names them."""
        return any(step.kind == ROUTER for step in self._settings.steps)

    def routed(self, topic: str) -> str:
        """Return the name by which the replication policy knows *topic*."""
        return topic if self._is_exempt(topic) else routed(topic, self._settings.steps)


#: Stretches of so many topic-partitions are transformed side by side for each record task.
_SLOTS_OF_A_TASK = 2


def record_slots(settings: FlowTransforms) -> int:
    """Return how many of Spark's slots a flow's record tasks want, beside those of its copy tasks."""
    return _SLOTS_OF_A_TASK * len(TopicTransforms(settings).tasks)


#: A flow without transforms.
NO_TRANSFORMS = TopicTransforms(FlowTransforms())
