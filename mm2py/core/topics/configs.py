"""
What has to change in a remote topic's configs so that they follow its source's.

The rule: a key that is set at the remote topic to what the mirror put there, or to what the source says, is the
mirror's. It follows the source, and goes when the source no longer sets it. A key that is set to anything else was set
by an operator: it stays, and the mirror forgets that it ever had it. A key that is not set at the remote topic is free:
the mirror sets it where the source does. So an operator takes a key by setting it at the remote topic, and gives it
back by deleting it there.

Only what is set on the topic itself counts as set; brokers' defaults of the target are nobody's hand. Where they are
narrower than what the source topic takes, they are widened for the remote topic: see `core.topics.limits`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mm2py.core.topics.limits import BROKER_NAMES, is_wide_enough, limits_beneath, wider_limits
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import ConfigPropertyFilter, is_ruled_out


#: They name replicas of one cluster's own brokers, so they are copied under no setting.
NEVER_COPIED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})

Configs = Mapping[str, ConfigEntry]


@attrs.frozen
class ConfigPlan:
    """What is due for one remote topic."""

    #: What to send: a value to set, None to delete.
    changes: Mapping[str, str | None] = attrs.field(factory=dict)
    #: What to remember before that is sent: per key the values that are the mirror's.
    remember: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    #: What is no longer the mirror's.
    forget: frozenset[str] = frozenset()
    #: What an operator set by hand and the source would have otherwise.
    kept: Mapping[str, str] = attrs.field(factory=dict)
    #: Those of the changes that let records through which the source took, see `core.topics.limits`.
    limits: Mapping[str, str] = attrs.field(factory=dict)


def copied_configs(source: Configs, chosen: ConfigPropertyFilter) -> dict[str, str]:
    """
    Return the configs that a remote topic shall have, as MirrorMaker 2 chooses them
    (MirrorSourceConnector.targetConfig).

    What the source topic has from a dynamic setting of its brokers becomes the remote topic's own; what stands in the
    brokers' files does not, nor do Kafka's defaults unless the filter wants them.
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
    """
    Compare both topics; *synced* is what is remembered of what the mirror set.

    *overwrites* does away with what was set by hand, as MirrorMaker 2 does.
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
        and (own.get(key, "") in synced.get(key, ()) or not is_wide_enough(own.get(key, ""), value))
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
            # A crash before the change, or a broker that answers from yesterday, still shows the value before.
            remember[key] = tuple(dict.fromkeys(value for value in (has, want) if value is not None))
        else:
            kept[key] = has
    forget = frozenset(key for key in synced if key not in remember)
    news = {key: values for key, values in remember.items() if synced.get(key) != values}
    return ConfigPlan(changes, news, forget, kept, {key: limits[key] for key in limits if key in changes})


def _may_be_copied(key: str, entry: ConfigEntry, chosen: ConfigPropertyFilter) -> bool:
    return not (entry.is_read_only or entry.is_sensitive or key in NEVER_COPIED) and chosen.takes_config(key)


def _says_something_of(key: str, source: Configs) -> bool:
    """Whether MirrorMaker 2 would act on *key*: it goes by what the source tells, brokers' files left out."""
    entry = source.get(key)
    return entry is not None and entry.source is not ConfigSource.STATIC_BROKER
