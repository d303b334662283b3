"""
What happens to the records of some topics on their way: a transform, as settings tell it.

A transform is a statement of Spark SQL or a Python function over whole record batches, or a chain of Kafka Connect's
single message transforms (*steps*), or both; the steps come last.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs


@attrs.frozen
class Predicate:
    """A condition on a record (KIP-585): a predicate's class name without its package, and its settings."""

    kind: str
    settings: Mapping[str, str] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class Step:
    """
    One of Connect's single message transforms.

    `kind` is its class name without the package, ``MaskField$Value``. With a `predicate` it is for those records alone
    that it holds for, or where it `is_negated`, for all others.
    """

    name: str
    kind: str
    settings: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    predicate: Predicate | None = None
    is_negated: bool = False


@attrs.frozen
class Errors:
    """
    What becomes of a record that a transform cannot take.

    With `are_tolerated` it is left out, and written to the topic `dead_letters` at the target where that is named, with
    Connect's headers where `with_context`; else its topic stops.
    """

    are_tolerated: bool = False
    dead_letters: str = ""
    dead_letters_factor: int = 3
    with_context: bool = False


@attrs.frozen
class Transform:
    """One transform; `name` is how the settings call it."""

    name: str
    sql: str = ""
    function: str = ""
    steps: tuple[Step, ...] = ()
    errors: Errors = Errors()

    @property
    def uses_spark(self) -> bool:
        """Whether Spark SQL sees the records; steps alone run where records are read."""
        return bool(self.sql or self.function)


@attrs.frozen
class TopicRule:
    """Which topics a transform is for: a name, or an expression in Java's dialect that matches the whole name."""

    topics: str
    transform: Transform


@attrs.frozen
class FlowTransforms:
    """
    All transforms of a flow.

    Of `rules`, the first that fits a topic counts. `steps` are those of Connect's ``transforms`` list; they come behind
    whatever rule counts, for every topic.
    """

    rules: tuple[TopicRule, ...] = ()
    steps: tuple[Step, ...] = ()
    errors: Errors = Errors()
