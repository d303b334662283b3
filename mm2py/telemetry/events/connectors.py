"""Connectors of a distributed worker."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class ConnectorsRead(Event):
    """
    The worker's config topic was read for the first time.

    `connectors` are those that it holds.
    """

    topic: str
    cluster: str
    connectors: tuple[str, ...]


@attrs.frozen
class ConnectorsNotFollowed(Event):
    """
    The worker's config topic cannot be read. What runs continues, but connectors cannot be changed.

    Logged once for each kind of `error`, and tried again.

    What to do: see `hint`.
    """

    level = Level.WARN

    topic: str
    cluster: str
    error: str
    hint: str


@attrs.frozen
class ConnectorsFollowed(Event):
    """The worker's config topic can be read again."""

    topic: str
    cluster: str
    away_s: float


@attrs.frozen
class ConnectorStored(Event):
    """
    A client of this node's REST interface created, changed or deleted a connector, or set its target state.

    `change` says which. It is in the config topic.
    """

    connector: str
    change: str
    by: str


@attrs.frozen
class ConnectorNotRun(Event):
    """
    A connector in the config topic is not run: mm2py does not have its class, or its config is invalid. The connector
    stays in the topic, and the others run.

    What to do: see `problems`. Correct its config over REST, or delete the connector.
    """

    level = Level.WARN

    connector: str
    problems: tuple[str, ...]


@attrs.frozen
class ConnectorRecordUnreadable(Event):
    """
    A record of the config topic is invalid and is ignored, as in Connect: an earlier record of the same connector
    counts.

    What to do: put the connector's config again.
    """

    level = Level.WARN

    topic: str
    offset: int
    problem: str


@attrs.frozen
class ConnectorsRefilled(Event):
    """
    The config topic was deleted, or an unclean leader election or a lost disk removed records from it. The topic was
    created again if necessary, and holds all known connectors again. A change or a deletion that was lost with those
    records is undone.

    What to do: check `GET /connectors`, repeat lost changes, and find out what happened to the topic.
    """

    level = Level.WARN

    topic: str
    cluster: str
    connectors: int


@attrs.frozen
class ConnectorWritesUnguarded(Event):
    """
    The target does not let the worker write connectors in transactions. If two nodes are asked to create one connector
    at the same moment, both may answer 201, and the later config counts.

    What to do: see `hint`: usually grant WRITE and DESCRIBE on `transactional_id`.
    """

    level = Level.WARN

    topic: str
    transactional_id: str
    error: str
    hint: str


@attrs.frozen
class ConnectorPositionsTakenOver(Event):
    """
    A connector starts here for the first time, and continues at positions that another connector left.

    They are those of so many `partitions`, in `topic`. The other connector is Mirus's of the same name, one with the
    same `source.cluster.alias` that the worker no longer has, or Java's if the connector has a target of its own.
    """

    flow: Flow
    connector: str
    topic: str
    partitions: int


@attrs.frozen
class WorkerRunsElsewhere(Event):
    """
    Java's workers are in the group of this worker, so they run its connectors. This node stands by; if it ran the
    connectors until now, and was frozen or cut off, it steps back first.

    `node` names them. Logged once, with `then`, what this node does.

    What to do: stop one of the two; the other continues by itself. See [several nodes](nodes.md#java-mirrormaker).
    """

    level = Level.WARN

    group: str
    node: str
    then: str
    hint: str


@attrs.frozen
class WorkerTakenOver(Event):
    """Java's workers have left the group of this worker. This node runs the connectors from now on."""

    group: str
    node: str
    waited_s: float


@attrs.frozen
class WorkerUnguarded(Event):
    """
    The worker's group cannot be described or joined, so Java's workers in it would not be noticed.

    `then` says whether the worker's flows run, or wait because this node has just started. Logged once for each reason,
    and tried again with each heartbeat.

    What to do: see `hint`: usually grant READ on the group.
    """

    level = Level.WARN

    group: str
    error: str
    then: str
    hint: str
