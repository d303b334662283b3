"""
Limits of a topic that its remote topic must not have narrower: else records that the source took stop the copy.

A record that is large, or ahead of the clock, was taken because the source topic allows it. So the remote topic allows
as much, even where that comes from the source's brokers, or from defaults that differ: Kafka 4 refuses what is more
than an hour ahead, older versions took anything. No limit is narrowed. For age there is none at all, whatever the
source has: what is mirrored is older than when it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import ConfigPropertyFilter, is_ruled_out


AHEAD: Final = "message.timestamp.after.max.ms"
AGE: Final = "message.timestamp.before.max.ms"
SIZE: Final = "max.message.bytes"
#: What brokers before Kafka 4 have for both limits on timestamps, and those before 3.6 alone.
_DIFFERENCE: Final = "message.timestamp.difference.max.ms"
_UNLIMITED: Final = 2**63 - 1

#: Each limit, and what brokers call theirs for topics that set none.
BROKER_NAMES: Final[Mapping[str, str]] = {
    AHEAD: "log.message.timestamp.after.max.ms",
    AGE: "log.message.timestamp.before.max.ms",
    SIZE: "message.max.bytes",
}

Configs = Mapping[str, ConfigEntry]


def limits_of_brokers(configs: Configs) -> dict[str, int]:
    """Return the limits of a topic that is yet to be created, from a description of its brokers."""
    found = {key: _number(configs.get(name)) for key, name in BROKER_NAMES.items()}
    return {key: limit for key, limit in found.items() if limit is not None}


def limits_beneath(configs: Configs) -> dict[str, int]:
    """Return the limits that would hold if the topic set none itself, from a description of it."""
    found = {key: _number(configs.get(key), is_beneath=True) for key in BROKER_NAMES}
    return {key: limit for key, limit in found.items() if limit is not None}


def wider_limits(source: Configs, beneath: Mapping[str, int], chosen: ConfigPropertyFilter) -> dict[str, str]:
    """
    Return what to set on a remote topic so that it takes what *source* takes, where the limits *beneath* are narrower.

    What an operator ruled out under the topic's name is left alone, and so is a limit that one side does not know.
    """
    needed = _needed(source)
    return {
        key: str(needed[key])
        for key, limit in beneath.items()
        if needed.get(key, limit) > limit and not is_ruled_out(chosen, key)
    }


def is_wide_enough(has: str, wanted: str) -> bool:
    """Whether the limit *has* lets through whatever *wanted* does."""
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
