"""
Transforms of records, as defined in the settings.

A transform is a statement of Spark SQL or a Python function over whole record batches, or a chain of Kafka Connect's
single message transforms (*steps*), or both; the steps come last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import attrs


_NAME = re.compile(r"[A-Za-z0-9_-]+(\\?\.[A-Za-z0-9_-]+)*")


@attrs.frozen
class Predicate:
    """A condition on a record (KIP-585): a predicate's class name without its package, and its settings."""

    kind: str
    settings: Mapping[str, str] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class Step:
    """
    One of Connect's single message transforms.

    `kind` is its class name without the package, ``MaskField$Value``. With a `predicate` it applies only to matching
    records, or if it `is_negated`, to all others.
    """

    name: str
    kind: str
    settings: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    predicate: Predicate | None = None
    is_negated: bool = False


@attrs.frozen
class Errors:
    """What to do with a record that a transform cannot process. With `are_tolerated` it is skipped, and written to the
    topic `dead_letters` at the target if that is named, with Connect's headers if `with_context`; otherwise its topic
    stops.
    """

    are_tolerated: bool = False
    dead_letters: str = ""
    dead_letters_factor: int = 3
    with_context: bool = False


@attrs.frozen
class Transform:
    """One transform; `name` is its name in the settings."""

    name: str
    sql: str = ""
    function: str = ""
    steps: tuple[Step, ...] = ()
    errors: Errors = Errors()

    @property
    def uses_spark(self) -> bool:
        """Whether Spark SQL processes the records; steps alone run where records are read."""
        return bool(self.sql or self.function)


@attrs.frozen
class TopicRule:
    """The topics of a transform: a name, or an expression in Java's dialect that matches the whole name."""

    topics: str
    transform: Transform

    @property
    def name(self) -> str | None:
        """The topic whose own name it has, in which a dot is a dot; None if it has an expression."""
        return self.topics.replace("\\.", ".") if _NAME.fullmatch(self.topics) else None


@attrs.frozen
class FlowTransforms:
    """
    All transforms of a flow.

    Of `rules`, the first that matches a topic applies. `steps` are those of Connect's ``transforms`` list; they come
    after the matching rule, for every topic.
    """

    rules: tuple[TopicRule, ...] = ()
    steps: tuple[Step, ...] = ()
    errors: Errors = Errors()

    @property
    def use_spark(self) -> bool:
        """Whether there is a statement or function."""
        return any(rule.transform.uses_spark for rule in self.rules)
