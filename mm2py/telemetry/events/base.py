"""
One frozen class for each occurrence, named NounVerbed.

An event's log line is its class name in snake case with its fields as keys. Emitting one (see `journal.EventLog`) is
the only way to write a log line, so log, counters and tests cannot disagree.

The docstring of an event is what operators read: on the status page its first paragraph, which names no field; in
docs/events.md all of it, where the last paragraph may begin with "What to do: ".
"""

from __future__ import annotations

import enum
import inspect
import re
from typing import ClassVar, Final

import attrs

from mm2py.errors import shortened
from mm2py.model.flow import Flow, TopicPartition


#: The longest text in a log line, in characters: of a stack the beginning and the end.
_LONGEST_TEXT: Final = 16_000


class Level(enum.Enum):
    """Severity of an event; the numbers are those of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARN = 30
    ERROR = 40


@attrs.frozen
class Event:
    """Shared by all events: a name for the log and a severity."""

    level: ClassVar[Level] = Level.INFO

    @property
    def name(self) -> str:
        return self.log_name()

    @classmethod
    def log_name(cls) -> str:
        """Return the name that events of this class have in the log: its own in snake case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    @property
    def severity(self) -> Level:
        """Its level; a lower one of an event that only repeats what another one says."""
        return self.level

    def fields(self) -> dict[str, object]:
        """Return the fields for a log line: plain values, without empty ones."""
        facts: dict[str, object] = {}
        for field in attrs.fields(type(self)):
            value = getattr(self, field.name)
            if isinstance(value, TopicPartition):
                facts |= {"topic": value.topic, "partition": value.partition}
            elif isinstance(value, float):
                facts[field.name] = round(value, 3)
            elif isinstance(value, Flow):
                facts[field.name] = str(value)
            elif isinstance(value, str) and value:
                facts[field.name] = shortened(value, _LONGEST_TEXT)
            elif isinstance(value, tuple):
                facts[field.name] = tuple(shortened(it, _LONGEST_TEXT) if isinstance(it, str) else it for it in value)
            elif value is not None and value != "":
                facts[field.name] = value
        return facts


def paragraphs(documented: object) -> tuple[str, ...]:
    """Return the paragraphs of the docstring of a class or a module, each of them in one line."""
    return tuple(" ".join(text.split()) for text in (inspect.getdoc(documented) or "").split("\n\n"))
