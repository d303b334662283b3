"""Events of records with a transform."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class TransactionFenced(Event):
    """Another producer has opened the transactional id of a record task: two daemons run the same flow."""

    level = Level.ERROR

    flow: Flow
    task: int
    transactional_id: str
    error: str
    hint: str
    #: How long this daemon pauses its topics before it takes over again.
    pause_s: float


@attrs.frozen
class RecordLeftOut(Event):
    """A transform could not process a record, which `errors.tolerance` tolerates: it is not mirrored."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    offset: int
    transform: str
    error: str
    #: The dead letter topic, empty if there is none.
    dead_letters: str
