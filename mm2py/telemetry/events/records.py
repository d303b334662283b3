"""What happens to records with a transform."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class RecordLeftOut(Event):
    """A transform could not take a record, which `errors.tolerance` lets pass: it is not mirrored."""

    level = Level.WARN

    flow: Flow
    source: TopicPartition
    offset: int
    transform: str
    error: str
    #: Where it was written instead, empty where nowhere.
    dead_letters: str
