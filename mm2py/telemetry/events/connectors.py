"""Events of a worker whose connectors come from its config topic."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class ConnectorsRead(Event):
    """The config topic was read for the first time."""

    topic: str
    cluster: str
    connectors: tuple[str, ...]


@attrs.frozen
class ConnectorsNotFollowed(Event):
    """The config topic cannot be read; reported once for each kind of error, and tried again. What runs continues."""

    level = Level.WARN

    topic: str
    cluster: str
    error: str
    hint: str


@attrs.frozen
class ConnectorsFollowed(Event):
    """The config topic can be read again, after `away_s`."""

    topic: str
    cluster: str
    away_s: float


@attrs.frozen
class ConnectorStored(Event):
    """A client of this node's REST interface created, changed or deleted a connector, or changed its target state."""

    connector: str
    change: str
    by: str


@attrs.frozen
class ConnectorNotRun(Event):
    """A connector in the config topic is not run, and stays there: it is of another class, or its config is invalid."""

    level = Level.WARN

    connector: str
    problems: tuple[str, ...]


@attrs.frozen
class ConnectorRecordUnreadable(Event):
    """A record in the config topic is invalid, and is ignored: an earlier one of its key counts."""

    level = Level.WARN

    topic: str
    offset: int
    problem: str


@attrs.frozen
class ConnectorsRefilled(Event):
    """The config topic was deleted, or had lost its end: all connectors are in it again."""

    level = Level.WARN

    topic: str
    cluster: str
    connectors: int


@attrs.frozen
class ConnectorWritesUnguarded(Event):
    """The target does not let the worker write connectors in transactions: of two nodes that are asked to create one
    connector at the same moment, both might agree, and the later one count.
    """

    level = Level.WARN

    topic: str
    transactional_id: str
    error: str
    hint: str


@attrs.frozen
class ConnectorPositionsTakenOver(Event):
    """A connector starts here for the first time, and goes on at positions that another one left."""

    flow: Flow
    connector: str
    topic: str
    partitions: int


@attrs.frozen
class WorkerRunsElsewhere(Event):
    """Java's workers are in the group of this one, at its target; reported once, with `then`, what this node does."""

    level = Level.WARN

    group: str
    node: str
    then: str
    hint: str


@attrs.frozen
class WorkerTakenOver(Event):
    """Java's workers have left the group, after `waited_s`; this node runs its connectors from now on."""

    group: str
    node: str
    waited_s: float


@attrs.frozen
class WorkerUnguarded(Event):
    """The worker's group cannot be asked or joined, so Java's workers in it would go unnoticed; reported once for each
    reason, with `then`, what the node does.
    """

    level = Level.WARN

    group: str
    error: str
    then: str
    hint: str
