"""The changes to a remote topic's configs so that they follow its source's. The rule: a key whose value at the remote
topic is what the mirror wrote, or equals the source's, belongs to the mirror. It follows the source, and is removed
when the source no longer sets it. A key with any other value was set by an operator: it stays, and the mirror no longer
manages it. A key that is not set at the remote topic is free: the mirror sets it if the source does. So an operator
takes over a key by setting it at the remote topic, and gives it back by deleting it there.

Only configs on the topic itself count as set, not the target brokers' defaults. Where these are narrower than what the
source topic accepts, they are widened for the remote topic: see `wider_limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import ConfigPropertyFilter, is_ruled_out


#: They name replicas of one cluster's brokers, so they are never copied.
NEVER_COPIED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
AHEAD: Final = "message.timestamp.after.max.ms"
AGE: Final = "message.timestamp.before.max.ms"
SIZE: Final = "max.message.bytes"
#: The single config for both timestamp limits: in brokers before Kafka 4, the only one before 3.6.
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_UNLIMITED: Final = 2**63 - 1

#: Each limit, and the brokers' name of its default.
BROKER_NAMES: Final[Mapping[str, str]] = {
    AHEAD: "log.message.timestamp.after.max.ms",
    AGE: "log.message.timestamp.before.max.ms",
    SIZE: "message.max.bytes",
}

Configs = Mapping[str, ConfigEntry]


@attrs.frozen
class ConfigPlan:
    """The changes due for one remote topic."""

    #: The changes to send: a value to set, None to delete.
    changes: Mapping[str, str | None] = attrs.field(factory=dict)
    #: To record before they are sent: per key the mirror's values.
    remember: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    #: Keys that are no longer the mirror's.
    forget: frozenset[str] = frozenset()
    #: Keys that an operator set by hand, where the source differs.
    kept: Mapping[str, str] = attrs.field(factory=dict)
    #: Changes that widen limits to the source's, see `core.topics.limits`.
    limits: Mapping[str, str] = attrs.field(factory=dict)


def copied_configs(source: Configs, chosen: ConfigPropertyFilter) -> dict[str, str]:
    """Return the desired configs of a remote topic, selected as in MirrorMaker 2 (MirrorSourceConnector.targetConfig).
    Dynamic broker configs of the source become the remote topic's own; those in brokers' files do not, nor do Kafka's
    defaults unless the filter includes them.
    """
    return {
        key: entry.value
        for key, entry in sorted(source.items())
        if entry.value is not None
        and entry.source is not ConfigSource.STATIC_BROKER
        and _may_be_copied(key, entry, chosen)
        and (not entry.is_default or chosen.takes_source_default(key))
    }


def plan_configs(
    source: Configs,
    target: Configs,
    synced: Mapping[str, tuple[str, ...]],
    chosen: ConfigPropertyFilter,
    *,
    overwrites: bool = False,
) -> ConfigPlan:
    """Compare both topics; *synced* is the record of what the mirror set. *overwrites* replaces what was set by hand,
    as MirrorMaker 2 does.
    """
    copied = copied_configs(source, chosen)
    own = {
        key: entry.value
        for key, entry in target.items()
        if entry.source is ConfigSource.TOPIC and entry.value is not None
    }
    limits = {
        key: value
        for key, value in wider_limits(source, limits_beneath(target), chosen).items()
        if key not in copied
        and (overwrites or own.get(key, "") in synced.get(key, ()) or not is_wide_enough(own.get(key, ""), value))
    }
    wanted = copied | limits
    widened = {key for key in BROKER_NAMES if key in limits or (key in synced and not is_ruled_out(chosen, key))}
    found = {key: value for key, value in own.items() if key in widened or _may_be_copied(key, target[key], chosen)}
    changes: dict[str, str | None] = {}
    remember: dict[str, tuple[str, ...]] = {}
    kept: dict[str, str] = {}
    for key in sorted({*wanted, *found}):
        want, has = wanted.get(key), found.get(key)
        if want == has and has is not None:
            remember[key] = (has,)
        elif has is None or has in synced.get(key, ()) or (overwrites and _says_something_of(key, source)):
            changes[key] = want
            # After a crash before the change, or on a broker with stale metadata, the old value is still visible.
            remember[key] = tuple(dict.fromkeys(value for value in (has, want) if value is not None))
        else:
            kept[key] = has
    forget = frozenset(key for key in synced if key not in remember)
    news = {key: values for key, values in remember.items() if synced.get(key) != values}
    return ConfigPlan(changes, news, forget, kept, {key: limits[key] for key in limits if key in changes})


def _may_be_copied(key: str, entry: ConfigEntry, chosen: ConfigPropertyFilter) -> bool:
    return not (entry.is_read_only or entry.is_sensitive or key in NEVER_COPIED) and chosen.takes_config(key)


def _says_something_of(key: str, source: Configs) -> bool:
    """Whether MirrorMaker 2 would change *key*: it uses the source's configs, except those from brokers' files."""
    entry = source.get(key)
    return entry is not None and entry.source is not ConfigSource.STATIC_BROKER


# Limits that must not be narrower on a remote topic than on its source: otherwise records that the source accepted stop
# the copy. A record that is large, or ahead of the clock, was accepted because the source topic allows it. So the
# remote topic allows as much, even if the limit comes from the source's brokers, or from different defaults: Kafka 4
# rejects records more than an hour ahead, older versions accepted any. No limit is narrowed. For age there is none at
# all, regardless of the source: mirrored records are older than when they were first written.


def limits_of_brokers(configs: Configs) -> dict[str, int]:
    """Return the limits of a topic to be created, from a description of its brokers."""
    found = {key: _number(configs.get(name)) for key, name in BROKER_NAMES.items()}
    return {key: limit for key, limit in found.items() if limit is not None}


def limits_beneath(configs: Configs) -> dict[str, int]:
    """Return the limits that would hold if the topic set none itself, from a description of it."""
    found = {key: _number(configs.get(key), is_beneath=True) for key in BROKER_NAMES}
    return {key: limit for key, limit in found.items() if limit is not None}


def wider_limits(source: Configs, beneath: Mapping[str, int], chosen: ConfigPropertyFilter) -> dict[str, str]:
    """Return the configs for a remote topic to accept what *source* accepts, where the limits *beneath* are narrower.
    A limit that an operator excluded by its topic-level name is left alone, and so is one that a side does not know.
    """
    needed = _needed(source)
    return {
        key: str(needed[key])
        for key, limit in beneath.items()
        if needed.get(key, limit) > limit and not is_ruled_out(chosen, key)
    }


def is_wide_enough(has: str, wanted: str) -> bool:
    """Whether the limit *has* allows everything that *wanted* does."""
    return has.isdigit() and int(has) >= int(wanted)


def _needed(source: Configs) -> dict[str, int]:
    needed = {AGE: _UNLIMITED}
    ahead = _number(source.get(AHEAD))
    if ahead is None or ahead == _UNLIMITED:  # then the older limit holds, where brokers still have it
        ahead = _number(source.get(_DIFFERENCE)) or ahead
    if ahead is not None:
        needed[AHEAD] = ahead
    if (size := _number(source.get(SIZE))) is not None:
        needed[SIZE] = size
    return needed


def _number(entry: ConfigEntry | None, *, is_beneath: bool = False) -> int | None:
    if entry is None:
        return None
    value = entry.beneath if is_beneath and entry.source is ConfigSource.TOPIC else entry.value
    return int(value) if value is not None and value.isdigit() else None
