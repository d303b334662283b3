"""
Connectors as Kafka Connect keeps them in its config topic (KafkaConfigBackingStore): keys are text, values JSON.

A connector is the record ``connector-NAME``, its target state ``target-state-NAME``; a null value removes either. What
else Connect keeps there concerns its own workers, and is passed over: configs of tasks, session keys, restarts. So are
overrides of flows by operators, which may share the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from mm2py.model.foreign import INT64_MOST, UnreadableRecord, mapping, read_json, whole, write_json
from mm2py.model.herder.overrides import Wanted


_CONFIG: Final = "connector-"
_STATE: Final = "target-state-"
_LOGGER: Final = "logger-cluster-"
#: The member of a connector's record that is ours.
_CREATED: Final = "mm2pyCreatedMs"
_STATES: Final = {"STARTED": Wanted.RUNNING, "PAUSED": Wanted.PAUSED, "STOPPED": Wanted.STOPPED}
_NAMES: Final = {wanted: name for name, wanted in _STATES.items()}

KeyValue = tuple[bytes, bytes | None]


@attrs.frozen
class StoredConnector:
    """A connector's config, without resolved references, and its target state."""

    config: Mapping[str, str] = attrs.field(repr=False)
    wanted: Wanted = Wanted.RUNNING
    #: When it was created, 0 for one beside which its pair had no other source connector then.
    created_ms: int = 0


@attrs.frozen
class LoggerRequest:
    """A request to all workers to log from a level on (KIP-976)."""

    name: str
    level: str


def logger_record(request: LoggerRequest) -> KeyValue:
    """Return key and value of a request to set a logger's level."""
    return f"{_LOGGER}{request.name}".encode(), write_json({"level": request.level})


def config_record(name: str, config: Mapping[str, str] | None, created_ms: int = 0) -> KeyValue:
    """Return key and value of a connector's config; None removes the connector. Connect reads its properties alone."""
    ours = {_CREATED: created_ms} if created_ms else {}
    value = None if config is None else write_json({"properties": dict(config), **ours})
    return f"{_CONFIG}{name}".encode(), value


def state_record(name: str, wanted: Wanted | None) -> KeyValue:
    """Return key and value of a connector's target state. Workers before Kafka 3.5 know no STOPPED: they read PAUSED
    from the first member, others the second one.
    """
    if wanted is None:
        return f"{_STATE}{name}".encode(), None
    old = Wanted.PAUSED if wanted is Wanted.STOPPED else wanted
    return f"{_STATE}{name}".encode(), write_json({"state": _NAMES[old], "state.v2": _NAMES[wanted]})


class ConnectorsTopic:
    """What the topic holds, fed record by record in the order of the log."""

    def __init__(self) -> None:
        self._configs: dict[str, Mapping[str, str]] = {}
        self._created: dict[str, int] = {}
        self._states: dict[str, Wanted] = {}

    @property
    def connectors(self) -> dict[str, StoredConnector]:
        """Return the connectors by name, the one that was created first in front."""
        states = self._states
        return {
            name: StoredConnector(config, states.get(name, Wanted.RUNNING), self._created.get(name, 0))
            for name, config in self._configs.items()
        }

    def take(self, key: bytes | None, value: bytes | None) -> str | LoggerRequest | UnreadableRecord | None:
        """Take a record. Return the name of the connector that it changes, a request to all workers, or why it cannot
        be read, and is ignored as in Java; None if it is about something else.
        """
        text = (key or b"").decode(errors="replace")
        try:
            if text.startswith(_CONFIG):
                return self._take_config(text.removeprefix(_CONFIG), value)
            if text.startswith(_STATE):
                return self._take_state(text.removeprefix(_STATE), value)
            if text.startswith(_LOGGER) and value is not None:
                return LoggerRequest(text.removeprefix(_LOGGER), str(mapping(read_json(value)).get("level")))
        except ValueError as error:
            return UnreadableRecord(f"{text}: {error}")
        return None

    def _take_config(self, name: str, value: bytes | None) -> str:
        if value is None:
            self._configs.pop(name, None)
            self._created.pop(name, None)
            return name
        found = mapping(read_json(value))
        properties = mapping(found.get("properties"), "properties")
        if strange := [key for key, text in properties.items() if text is not None and not isinstance(text, str)]:
            raise ValueError(f"the value of {strange[0]} is not a string")
        created_ms = whole(found.get(_CREATED, 0), most=INT64_MOST)
        self._configs[name] = {key: text for key, text in properties.items() if text is not None}
        self._created[name] = created_ms
        return name

    def _take_state(self, name: str, value: bytes | None) -> str:
        if value is None:
            self._states.pop(name, None)
            return name
        found = mapping(read_json(value))
        state = found.get("state.v2") or found.get("state")
        if not isinstance(state, str) or state not in _STATES:
            raise ValueError(f"{state!r} is not one of {', '.join(_STATES)}")
        self._states[name] = _STATES[state]
        return name
