"""
From which level on events are logged, by logger, as Kafka Connect's `/admin/loggers` shows and changes it.

A logger is a subject of events: `mm2py.topics` has those of `telemetry/events/topics.py`. One without a level of its
own has that of the nearest name above it, `root` at last. Other names may be given a level, as tools do with Java's
classes; nothing is logged under them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from typing import Final

import attrs

from mm2py.telemetry import events
from mm2py.telemetry.events.base import Event, Level


ROOT: Final = "root"
_OWN: Final = "mm2py"
#: Log4j's levels, and the least severity that each lets through.
_LEAST: Final = {
    "OFF": Level.ERROR.value + 1,
    "FATAL": Level.ERROR.value + 1,
    "ERROR": Level.ERROR.value,
    "WARN": Level.WARN.value,
    "INFO": Level.INFO.value,
    "DEBUG": Level.DEBUG.value,
    "TRACE": Level.DEBUG.value,
    "ALL": Level.DEBUG.value,
}
_WORDS: Final = {"WARNING": "WARN"}


@attrs.frozen
class LoggerLevel:
    """A logger's level, and when it was set while the node runs; None if it was not."""

    level: str
    modified_ms: int | None = None


def parse_level(text: str) -> str | None:
    """Return a level as Log4j writes it, None if there is none of that name."""
    word = text.strip().upper()
    word = _WORDS.get(word, word)
    return word if word in _LEAST else None


class LogLevels:
    """The levels of one node, kept until it ends."""

    def __init__(self, level: str = "INFO") -> None:
        """Create them with *level* for all."""
        self._set = {ROOT: LoggerLevel(parse_level(level) or "INFO")}
        self._existing = {ROOT, *(f"{_OWN}.{one.name}" for one in pkgutil.iter_modules(events.__path__))}
        self._existing -= {f"{_OWN}.{Event.__module__.rpartition('.')[2]}"}

    def all(self) -> Mapping[str, LoggerLevel]:
        """Return the level of each logger that there is, or that was given one."""
        return {name: self._of(name) for name in sorted(self._existing | self._set.keys())}

    def find(self, name: str) -> LoggerLevel | None:
        """Return the level of a logger, None if there is none of that name."""
        return self._of(name) if name in self._existing or name in self._set else None

    def set(self, name: str, level: str, *, at_ms: int) -> tuple[str, ...]:
        """Give a logger, and all below it, a *level* of `parse_level`; return their names."""
        below = f"{name}."
        known = self._existing | self._set.keys()
        changed = sorted(known if name == ROOT else {name, *(it for it in known if it.startswith(below))})
        self._set |= dict.fromkeys(changed, LoggerLevel(level, at_ms))
        return tuple(changed)

    def logs(self, event: Event) -> bool:
        """Whether *event* is logged."""
        name = f"{_OWN}.{type(event).__module__.rpartition('.')[2]}"
        return event.severity.value >= _LEAST[self._of(name).level]

    def _of(self, name: str) -> LoggerLevel:
        above = name
        while above not in self._set and "." in above:
            above = above.rpartition(".")[0]
        return self._set.get(above, self._set[ROOT])
