"""
Which lanes a stretch of a spread topic may use, out of all that there are.

Those that its records used of late: of a topic with a thousand remote topics a stretch needs one or two, and each that
a transaction might write to gets a marker. Another one that records need ends the stretch; the next one may use it.

Where one remote topic does not take a record, others have taken what lies behind it, and get it again with the next
stretch. So that one has a single record, and those behind it twice as many each, until all is well for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from mm2py.model.epoch import Ended, Lane, PartitionOutcome, PartitionPlan, ProducerMark, read_lane_key
from mm2py.pipeline.records.outcome import StretchOutcome


#: A lane that so many stretches did not use has to be asked for again.
_KEPT_STRETCHES: Final = 16
#: Stretches of so many offsets are no longer short.
_LONG: Final = 100_000


@attrs.define
class LaneUse:
    """What is kept of one spread topic-partition between its stretches."""

    _number: int = 0
    #: The last stretch that used each lane, or asked for it.
    _used: dict[str, int] = attrs.field(factory=dict)
    _marks: dict[str, ProducerMark] = attrs.field(factory=dict)
    #: Those that a stretch was given of which nobody has told yet.
    _lent: dict[str, ProducerMark] = attrs.field(factory=dict)
    #: How many offsets the next stretch may have; None where as many as others.
    _most: int | None = None

    def narrowed(self, one: PartitionPlan) -> PartitionPlan:
        """
        Give *one* with the lanes that its next stretch may use, and who writes there.

        What becomes of that stretch tells who writes next; where nobody tells, that is somebody new.
        """
        self._number += 1
        there, oldest = one.lanes or {}, self._number - _KEPT_STRETCHES
        self._used = {
            key: used for key, used in self._used.items() if used >= oldest and read_lane_key(key)[0] in there
        }
        lanes = {key: lane for key in self._used if (lane := _lane_of(key, there, one)) is not None}
        marks = {key: mark for key, mark in self._marks.items() if read_lane_key(key)[0] in there}
        self._lent = {key: mark for key, mark in marks.items() if key in lanes}
        self._marks = {key: mark for key, mark in marks.items() if key not in lanes}
        until = one.until
        if self._most is not None and until is not None:
            until = min(until, one.position + self._most)
        return attrs.evolve(
            one,
            until=until,
            lanes={key: attrs.evolve(lane, producer=self._lent.get(key)) for key, lane in lanes.items()},
        )

    def learn(self, one: PartitionPlan, stretch: StretchOutcome) -> PartitionOutcome:
        """Take over what became of a stretch of *one*; give its outcome with the lanes that are not there."""
        there = one.lanes or {}
        lacking = tuple(it for it in stretch.wanted if _lane_of(it.key, there, one) is None)
        named = {it.key for it in stretch.wanted if it not in lacking}
        self._used |= dict.fromkeys((*stretch.used, *named), self._number)
        unused = {name: mark for name, mark in self._lent.items() if name not in stretch.used}
        self._marks |= {**unused, **stretch.marks}
        self._lent = {}
        if stretch.partition.is_unsure:
            self._most = 1
        elif self._most is not None and stretch.partition.ended is Ended.OK:
            self._most = self._most * 2 if self._most < _LONG else None
        outcome = attrs.evolve(stretch.partition, wanted=lacking)
        is_first = bool(lacking) and lacking[0] == stretch.wanted[0]
        return attrs.evolve(outcome, ended=Ended.WANTING) if is_first and outcome.ended is Ended.OK else outcome


def _lane_of(key: str, there: Mapping[str, Lane], one: PartitionPlan) -> Lane | None:
    """Give the lane that a stretch of *one* calls *key*, of those that are *there*; None where the target lacks it."""
    name, partition = read_lane_key(key)
    if name not in there:
        return None
    lane = attrs.evolve(there[name], partition=partition)
    return lane if lane.remote(one.source).partition < lane.partitions else None
