"""
The byte form of a flow's overrides in ``mm2-configs.<source>.internal``, one record for each flow.

The topic is Kafka Connect's, which Java MirrorMaker 2 writes too. Our keys have none of its prefixes
(KafkaConfigBackingStore), so that Java logs the record once and ignores it; the value is JSON, which it expects of
every record there. A record that is not fully valid is refused: partial overrides would be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.foreign import (
    INT32_MOST,
    INT64_MOST,
    elements,
    mapping,
    number,
    read_versioned,
    refusing,
    whole,
    words,
    write_json,
)
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, Pause, RateLimit, Wanted


T = TypeVar("T")

VERSION = 1
_KEY = "mm2py-orders-"
_MEMBERS = ("groups", "topics", "partitions", "limit", "topicLimits", "config")


@attrs.frozen
class StoredOverrides:
    """Overrides as stored. `revision` counts the changes, 0 for none. `mark` distinguishes two writers of one
    revision. `by` is the operator, `at_ms` the wall time.
    """

    overrides: Overrides = NO_OVERRIDES
    revision: int = 0
    mark: str = ""
    by: str = ""
    at_ms: int = 0

    def is_same_as(self, other: StoredOverrides) -> bool:
        """Whether both are the same revision."""
        return (self.revision, self.mark) == (other.revision, other.mark)


NOTHING_STORED = StoredOverrides()


def overrides_topic(source_alias: str) -> str:
    """Name the topic on the target cluster; as MM2's other internal topics it is never mirrored."""
    return f"mm2-configs.{source_alias}.internal"


def overrides_key(flow: Flow) -> bytes:
    """Return the record key of a flow's overrides."""
    return f"{_KEY}{flow}".encode()


def encode_overrides(flow: Flow, kept: StoredOverrides) -> bytes:
    """Return the record value with the overrides of *flow*."""
    overrides = kept.overrides
    value = {
        "version": VERSION,
        "flow": str(flow),
        "revision": kept.revision,
        "mark": kept.mark,
        "by": kept.by,
        "atMs": kept.at_ms,
        "overrides": {
            "groups": {connector: wanted.value for connector, wanted in sorted(overrides.groups.items())},
            "topics": sorted(overrides.topics),
            "partitions": [{"topic": it.topic, "partition": it.partition} for it in sorted(overrides.partitions)],
            "limit": _limit_members(overrides.limit),
            "topicLimits": {topic: _limit_members(limit) for topic, limit in sorted(overrides.topic_limits.items())},
            "config": {connector: dict(sorted(lines.items())) for connector, lines in sorted(overrides.config.items())},
        },
        # Earlier versions read no further: they refuse overrides that they do not know.
        **(
            {"put": {it: dict(sorted(sent.items())) for it, sent in sorted(overrides.put.items())}}
            if overrides.put
            else {}
        ),
        "pauses": {what: {"by": it.by, "atMs": it.at_ms} for what, it in sorted(overrides.pauses.items())},
    }
    return write_json(value)


def decode_overrides(flow: Flow, value: bytes) -> StoredOverrides:
    """Parse the overrides of *flow*. Raise ValueError with the problem."""
    with refusing():
        content = read_versioned(value, VERSION)
        if content["flow"] != str(flow):
            raise ValueError(f"it is about flow {content['flow']!r}")
        put = _each(content.get("put", {}), "put", _texts)
        overrides = attrs.evolve(_overrides(mapping(content["overrides"], "overrides")), put=put)
        last = _pause(content, "overrides")
        # What an earlier version wrote was paused by then.
        known = attrs.evolve(overrides, pauses=_each(content.get("pauses", {}), "pauses", _pause))
        return StoredOverrides(
            overrides.dated(known, last),
            whole(content["revision"], "revision", most=INT64_MOST),
            words(content["mark"], "mark"),
            last.by,
            last.at_ms,
        )


def _overrides(found: Mapping[str, Any]) -> Overrides:
    if unknown := sorted(found.keys() - set(_MEMBERS)):
        raise ValueError(f"it overrides {', '.join(map(repr, unknown))}, which this version does not know")
    config = _each(found["config"], "config", _texts)
    return Overrides(
        groups=_each(found["groups"], "groups", _wanted),
        topics=frozenset(words(topic, "topics") for topic in elements(found["topics"], "topics")),
        partitions=frozenset(_partition(it) for it in elements(found["partitions"], "partitions")),
        limit=_limit(found["limit"], "limit"),
        topic_limits=_each(found["topicLimits"], "topicLimits", _limit),
        config=config,
    )


def _texts(lines: object, what: str) -> dict[str, str]:
    return _each(lines, what, words)


def _pause(value: object, what: str) -> Pause:
    found = mapping(value, what)
    return Pause(words(found["by"], "by"), whole(found["atMs"], "atMs", most=INT64_MOST))


def _limit_members(limit: RateLimit) -> dict[str, float]:
    members = {"bytesPerS": limit.bytes_per_s, "recordsPerS": limit.records_per_s}
    return {name: value for name, value in members.items() if value is not None}


def _limit(value: object, what: str) -> RateLimit:
    found = mapping(value, what)
    if unknown := sorted(found.keys() - {"bytesPerS", "recordsPerS"}):
        raise ValueError(f"{what} has {', '.join(map(repr, unknown))}, which this version does not know")
    bytes_per_s, records_per_s = (found.get(name) for name in ("bytesPerS", "recordsPerS"))
    return RateLimit(_rate(bytes_per_s, what), _rate(records_per_s, what))


def _rate(value: object, what: str) -> float | None:
    return None if value is None else number(value, what)


def _wanted(value: object, what: str) -> Wanted:
    try:
        return Wanted(value)
    except ValueError:
        raise ValueError(f"{what} is wanted {value!r}, which this version does not know") from None


def _partition(value: object) -> TopicPartition:
    found = mapping(value, "partitions")
    return TopicPartition(words(found["topic"], "partitions"), whole(found["partition"], "partitions", most=INT32_MOST))


def _each(value: object, what: str, read: Callable[[object, str], T]) -> dict[str, T]:
    return {name: read(member, f"{what} of {name}") for name, member in mapping(value, what).items()}
