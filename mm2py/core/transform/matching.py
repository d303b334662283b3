"""Which topics of a flow have a transform, their remote topics' names, and which task runs it. As in Java, the
replication policy names a topic first, and Connect's transforms see that name. A step that depends only on the topic's
name, a router, is done once the topic is named: if no other step is left, batches stay unopened. All records of a topic
have the same remote topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from mm2py.model.patterns import NamePatterns, compile_java, expand
from mm2py.model.transform import FlowTransforms, Predicate, Step, Transform


ROUTER = "RegexRouter"
TOPIC_NAME_MATCHES = "TopicNameMatches"


def routed(topic: str, steps: tuple[Step, ...]) -> str:
    """Return the name of *topic*, which the replication policy gave it, after *steps*."""
    for name, step in _on_its_way(topic, steps):
        topic = _renamed(name, step)
    return topic


def _on_its_way(topic: str, steps: tuple[Step, ...]) -> Iterator[tuple[str, Step]]:
    """Return the steps that may apply to *topic* by name, each with the name at that point."""
    for step in steps:
        if holds_for(topic, step):
            yield topic, step
            topic = _renamed(topic, step)


def _renamed(topic: str, step: Step) -> str:
    return reroute(topic, step) if step.kind == ROUTER else topic


def holds_for(topic: str, step: Step) -> bool:
    """Whether *step* may apply to records of *topic*, by name."""
    if step.predicate is None:
        return True
    if step.predicate.kind != TOPIC_NAME_MATCHES:
        return True
    return matches_name(topic, step.predicate) is not step.is_negated


def matches_name(topic: str, predicate: Predicate) -> bool:
    """Whether the whole name matches the predicate's pattern."""
    return compile_java(predicate.settings["pattern"]).fullmatch(topic) is not None


def reroute(topic: str, step: Step) -> str:
    """Return the name that a RegexRouter produces; one that does not match stays."""
    regex = compile_java(step.settings["regex"])
    # As Java's: the whole name must match, and of it the first part that does is replaced.
    found = regex.search(topic) if regex.fullmatch(topic) else None
    if found is None:
        return topic
    return topic[: found.start()] + expand(step.settings["replacement"], found) + topic[found.end() :]


def looks_at_names_alone(step: Step) -> bool:
    """Whether the effect of *step* depends only on the topic's name."""
    return step.kind == ROUTER and (step.predicate is None or step.predicate.kind == TOPIC_NAME_MATCHES)


@attrs.frozen
class _Rule:
    matches: Callable[[str], bool]
    transform: Transform


class TopicTransforms:
    """A flow's transforms, topic by topic."""

    def __init__(
        self,
        settings: FlowTransforms,
        name_remote: Callable[[str], str] = lambda topic: topic,
        is_exempt: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Evaluate *settings* for topics that the policy names by *name_remote*; those for which *is_exempt* is true,
        the heartbeats, are mirrored unchanged.
        """
        self._settings = settings
        self._is_exempt = is_exempt
        #: The name that the policy gives a topic, which Connect's transforms see.
        self.name_by_policy = name_remote
        self._rules = tuple(
            _Rule(
                NamePatterns.compile((rule.topics,)).matches if rule.name is None else rule.name.__eq__,
                attrs.evolve(rule.transform, steps=settings.steps, errors=settings.errors),
            )
            for rule in settings.rules
        )
        self._may_need_records = any(not looks_at_names_alone(step) for step in settings.steps)
        rest = (
            (Transform("transforms", steps=settings.steps, errors=settings.errors),) if self._may_need_records else ()
        )
        #: The work of each record task.
        self.tasks: tuple[Transform, ...] = (*(rule.transform for rule in self._rules), *rest)

    def task_of(self, topic: str) -> int | None:
        """Return which record task transforms the records of *topic*; None if its batches stay unopened."""
        if not self.tasks or self._is_exempt(topic):
            return None
        for number, rule in enumerate(self._rules):
            if rule.matches(topic):
                return number
        return len(self._rules) if self._needs_records(topic) else None

    def _needs_records(self, topic: str) -> bool:
        named = self.name_by_policy(topic)
        return any(not looks_at_names_alone(step) for _, step in _on_its_way(named, self._settings.steps))

    def has_task(self, topic: str) -> bool:
        """Whether the records of *topic* are transformed."""
        return self.task_of(topic) is not None

    @property
    def has_routers(self) -> bool:
        """Whether remote topics may have another name than the replication policy gives them."""
        return any(step.kind == ROUTER for step in self._settings.steps)

    def name_remote(self, topic: str) -> str:
        """Return the name of the remote topic of *topic*."""
        named = self.name_by_policy(topic)
        return self.routed(named) if named else named

    def name_before(self, topic: str) -> str:
        """Return the name that earlier versions gave the remote topic: routers saw the source's name."""
        return self.name_by_policy(self.routed(topic))

    def routed(self, named: str) -> str:
        """Return what the routers make of a name that the policy gave; copies of heartbeats keep theirs."""
        if not self.has_routers or self._is_exempt(named):
            return named
        return routed(named, self._settings.steps)


#: Offset ranges of this many topic-partitions are transformed in parallel by each record task.
_SLOTS_OF_A_TASK = 2


def record_slots(settings: FlowTransforms) -> int:
    """Return how many Spark slots a flow's record tasks need, besides those of its copy tasks."""
    return _SLOTS_OF_A_TASK * len(TopicTransforms(settings).tasks)
