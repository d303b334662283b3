"""
The verbs by which operators change a flow's overrides.

Every verb is a function from overrides to overrides. It raises an `OverrideRejectedError` for an invalid request, and
an `OverrideConflictError` if it contradicts an override in force. All verbs are idempotent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from mm2py.errors import OverrideConflictError, OverrideRejectedError, UnknownConnectorError
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import Overrides, RateLimit, Wanted
from mm2py.model.topic import is_topic_name


SOURCE: Final = "MirrorSourceConnector"
CHECKPOINT: Final = "MirrorCheckpointConnector"
HEARTBEAT: Final = "MirrorHeartbeatConnector"
CONNECTORS: Final = (SOURCE, CHECKPOINT, HEARTBEAT)

_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kKMG]i?)?\s*(B|bytes?|records?)?\s*(?:/\s*s)?")
_FACTORS: Final = {
    "": 1, "k": 1_000, "K": 1_000, "M": 1_000_000, "G": 1_000_000_000,
    "ki": 1 << 10, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
}  # fmt: skip
#: The external names of a limit's fields, with their units.
_LIMIT_FIELDS: Final = {"bytes_per_s": "B", "records_per_s": "records"}
#: A lower rate would be a pause; it has its own verb.
_LEAST_PER_S: Final = 0.01


# Task groups.


def want_connector(overrides: Overrides, connector: str, wanted: Wanted) -> Overrides:
    """Have a task group run, pause, or stop and release its resources (KIP-875). A deleted one is removed from the
    list, and its live settings are dropped; only `start_connector` has it run again.
    """
    _check_connector(connector)
    if overrides.wanted(connector) is Wanted.DELETED:
        raise UnknownConnectorError("", connector)
    if wanted is Wanted.DELETED:
        config = {name: lines for name, lines in overrides.config.items() if name != connector}
        overrides = attrs.evolve(overrides, config=config)
    return _set_wanted(overrides, connector, wanted)


def start_connector(overrides: Overrides, connector: str, wanted: Wanted = Wanted.RUNNING) -> Overrides:
    """Run a task group again that was deleted, as putting its config does, or have it *wanted* otherwise (KIP-980)."""
    _check_connector(connector)
    return _set_wanted(overrides, connector, wanted)


def pause_flow(overrides: Overrides, connectors: Iterable[str]) -> Overrides:
    """Pause *connectors*, all that a flow has; those that are stopped stay so."""
    return _want_all(overrides, connectors, Wanted.PAUSED, unless=Wanted.STOPPED)


def stop_flow(overrides: Overrides, connectors: Iterable[str]) -> Overrides:
    """Stop *connectors*, all that a flow has."""
    return _want_all(overrides, connectors, Wanted.STOPPED)


def resume_flow(overrides: Overrides) -> Overrides:
    """Resume all task groups; those that were deleted stay so. Paused topics and partitions stay paused."""
    return _want_all(overrides, overrides.groups, Wanted.RUNNING)


def _want_all(
    overrides: Overrides, connectors: Iterable[str], wanted: Wanted, *, unless: Wanted = Wanted.DELETED
) -> Overrides:
    for connector in connectors:
        if overrides.wanted(connector) not in {unless, Wanted.DELETED}:
            overrides = _set_wanted(overrides, connector, wanted)
    return overrides


def _set_wanted(overrides: Overrides, connector: str, wanted: Wanted) -> Overrides:
    groups = {name: other for name, other in overrides.groups.items() if name != connector}
    if wanted is not Wanted.RUNNING:
        groups[connector] = wanted
    return attrs.evolve(overrides, groups=groups)


def _check_connector(connector: str) -> None:
    if connector not in CONNECTORS:
        raise UnknownConnectorError("", connector)


# Topics and partitions.


def pause_topic(overrides: Overrides, topic: str) -> Overrides:
    """Pause a topic, including partitions that it gets later."""
    return pause_topics(overrides, (topic,))


def resume_topic(overrides: Overrides, topic: str) -> Overrides:
    """Resume a topic, including single partitions that were paused."""
    return resume_topics(overrides, (topic,))


def pause_topics(overrides: Overrides, topics: Collection[str]) -> Overrides:
    """Pause several topics."""
    for topic in topics:
        _check_topic(topic)
    return attrs.evolve(overrides, topics=overrides.topics | {*topics})


def resume_topics(overrides: Overrides, topics: Collection[str]) -> Overrides:
    """Resume several topics, including single partitions that were paused."""
    for topic in topics:
        _check_topic(topic)
    resumed = frozenset(topics)
    partitions = frozenset(partition for partition in overrides.partitions if partition.topic not in resumed)
    return attrs.evolve(overrides, topics=overrides.topics - resumed, partitions=partitions)


def pause_partition(overrides: Overrides, partition: TopicPartition) -> Overrides:
    """Pause one partition."""
    _check_partition(partition)
    return attrs.evolve(overrides, partitions=overrides.partitions | {partition})


def resume_partition(overrides: Overrides, partition: TopicPartition) -> Overrides:
    """Resume one partition; refused while its topic is paused as a whole, because it would have no effect."""
    _check_partition(partition)
    if partition.topic in overrides.topics:
        what = f"topic {partition.topic} is paused as a whole"
        raise OverrideConflictError(what, "resume the topic, and pause the partitions that are to stay paused")
    return attrs.evolve(overrides, partitions=overrides.partitions - {partition})


def _check_topic(topic: str) -> None:
    if not is_topic_name(topic):
        raise OverrideRejectedError((f"{topic!r} cannot be the name of a topic",))


def _check_partition(partition: TopicPartition) -> None:
    _check_topic(partition.topic)
    if partition.partition < 0:
        raise OverrideRejectedError((f"a topic has no partition {partition.partition}",))


# Rate limits.


def set_limit(overrides: Overrides, limit: RateLimit) -> Overrides:
    """Limit a flow as a whole; `NO_LIMIT` removes the limit."""
    _check_limit(limit)
    return attrs.evolve(overrides, limit=limit)


def set_topic_limit(overrides: Overrides, topic: str, limit: RateLimit) -> Overrides:
    """Limit one topic, in addition to the flow's limit; `NO_LIMIT` removes the limit."""
    _check_topic(topic)
    _check_limit(limit)
    others = {name: other for name, other in overrides.topic_limits.items() if name != topic}
    return attrs.evolve(overrides, topic_limits=others if limit.is_none else others | {topic: limit})


def _check_limit(limit: RateLimit) -> None:
    problems = [
        problem
        for name in _LIMIT_FIELDS
        if (value := getattr(limit, name)) is not None and (problem := _judge_rate(name, value))
    ]
    if problems:
        raise OverrideRejectedError(tuple(problems))


def _judge_rate(name: str, value: float) -> str:
    if not math.isfinite(value) or value <= 0:
        return f"{name} must be more than 0, not {value}: pause what is not to be copied at all"
    if value < _LEAST_PER_S:
        return f"{name} must be at least {_LEAST_PER_S}, not {value}: pause what is not to be copied at all"
    return ""


def read_limit(asked: Mapping[str, object], before: RateLimit | None = None) -> RateLimit:
    """Parse a limit: numbers, or text with a unit such as ``10 MB/s``, ``512Ki`` or ``50k``. None and the empty text
    mean no limit. Omitted fields stay as in *before*. Raise OverrideRejectedError with all problems.
    """
    problems = [
        f"{name!r} is not known: a limit has {' and '.join(_LIMIT_FIELDS)}"
        for name in asked
        if name not in _LIMIT_FIELDS
    ]
    known = before if before is not None else RateLimit()
    values = {name: getattr(known, name) for name in _LIMIT_FIELDS}
    for name in _LIMIT_FIELDS:
        if name in asked:
            try:
                values[name] = _read_rate(name, asked[name])
            except OverrideRejectedError as error:
                problems += error.problems
    if problems:
        raise OverrideRejectedError(tuple(problems))
    return RateLimit(**values)


def _read_rate(name: str, asked: object) -> float | None:
    if asked is None or asked == "":
        return None
    value = _read_number(name, asked)
    if problem := _judge_rate(name, value):
        raise OverrideRejectedError((problem,))
    return value


def _read_number(name: str, asked: object) -> float:
    """Parse a number, or one with a unit: decimal (k, M, G) or binary (Ki, Mi, Gi)."""
    if isinstance(asked, bool) or not isinstance(asked, int | float | str):
        raise OverrideRejectedError((f"{name}: {asked!r} is neither a number nor a text with a unit",))
    if not isinstance(asked, str):
        try:
            return float(asked)
        except OverflowError as error:
            raise OverrideRejectedError((f"{name} is too large",)) from error
    found = _AMOUNT.fullmatch(asked.strip())
    counted = (found[3] or "")[:1].lower() if found is not None else ""
    if found is None or not _LIMIT_FIELDS[name].lower().startswith(counted):
        example = "10 MB/s" if name == "bytes_per_s" else "50k"
        raise OverrideRejectedError((f"{name}: {asked!r} is not an amount; write a number, or such as {example}",))
    return float(found[1]) * _FACTORS[found[2] or ""]
