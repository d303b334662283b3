"""Limits that must not be narrower on a remote topic than on its source: otherwise records that the source accepted
stop the copy. A record that is large, or ahead of the clock, was accepted because the source topic allows it. So the
remote topic allows as much, even if the limit comes from the source's brokers, or from different defaults: Kafka 4
rejects records more than an hour ahead, older versions accepted any. No limit is narrowed. For age there is none at
all, regardless of the source: mirrored records are older than when they were first written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import ConfigPropertyFilter, is_ruled_out


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
