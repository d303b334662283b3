"""Invalid records in internal topics: any client that may write there can leave one. They are ignored, and each is
reported once, however often the topic is read. Of many at once a few are named and the others counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from mm2py.errors import shortened
from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events import RecordPassedOver
from mm2py.telemetry.journal import EventLog
from mm2py.wire.topic_log import LogRecord


#: Number of records named per read of a topic.
_NAMED = 3
_LONGEST_PROBLEM = 200
#: Bound on memory for a topic that is full of them.
_REMEMBERED = 100_000


class PassedOver:
    """The invalid records that one flow has reported."""

    def __init__(self, flow: Flow, events: EventLog) -> None:
        self._flow = flow
        self._events = events
        self._told: set[tuple[str, int, int]] = set()

    def note(self, topic: str, found: Sequence[tuple[LogRecord, str]]) -> None:
        """Report the invalid records *found* in *topic*, each with its problem, unless already reported."""
        news = {(topic, record.partition or 0, record.offset or 0): problem for record, problem in found}
        fresh = [(at, problem) for at, problem in news.items() if at not in self._told]
        if len(self._told) + len(fresh) <= _REMEMBERED:
            self._told.update(at for at, _ in fresh)
        for number, ((_, partition, offset), problem) in enumerate(fresh[:_NAMED], 1):
            others = len(fresh) - number if number == _NAMED else 0
            place = TopicPartition(topic, partition)
            self._events.emit(RecordPassedOver(self._flow, place, offset, shortened(problem, _LONGEST_PROBLEM), others))
