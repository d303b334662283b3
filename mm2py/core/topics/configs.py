"""The changes to a remote topic's configs so that they follow its source's. The rule: a key whose value at the remote
topic is what the mirror wrote, or equals the source's, belongs to the mirror. It follows the source, and is removed
when the source no longer sets it. A key with any other value was set by an operator: it stays, and the mirror no longer
manages it. A key that is not set at the remote topic is free: the mirror sets it if the source does. So an operator
takes over a key by setting it at the remote topic, and gives it back by deleting it there.

Only configs on the topic itself count as set, not the target brokers' defaults. Where these are narrower than what the
source topic accepts, they are widened for the remote topic: see `core.topics.limits`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mm2py.core.topics.limits import BROKER_NAMES, Configs, is_wide_enough, limits_beneath, wider_limits
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import ConfigPropertyFilter, is_ruled_out


#: They name replicas of one cluster's brokers, so they are never copied.
NEVER_COPIED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})


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
