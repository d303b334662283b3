"""
A stretch of a spread topic: its records go to several remote topics, as routers name them.

A record whose remote topic is not there ends the stretch before it; what it and those behind it need is told. The
position moves over what is acknowledged without a gap: what a remote topic took behind the first record that another
one did not take is written again, unless a transaction undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from mm2py.model.epoch import (
    Ended,
    EpochPlan,
    Lane,
    Measured,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
    ProducerMark,
    WantedLane,
    lane_key,
)
from mm2py.pipeline.partition import Parcel, PartitionCopy
from mm2py.pipeline.records.delivery import batches_of, put_all
from mm2py.pipeline.records.outcome import StretchOutcome
from mm2py.pipeline.records.row import Chunk
from mm2py.pipeline.records.rows import Rows
from mm2py.wire.record_columns import NewRecord


#: So many of the remote topics that the next records need are told, and made, at once.
_MOST_WANTED: Final = 50


@attrs.define(eq=False)
class _Outlet:
    """What goes to one lane: its copy, and all that was queued there, in order."""

    copy: PartitionCopy
    parcels: list[Parcel]

    def is_done(self, parcel: Parcel) -> bool:
        """Say whether *parcel* is acknowledged."""
        return self.copy.position >= parcel.next_upstream

    @property
    def first_left(self) -> int | None:
        """The upstream offset of the first record that is not acknowledged; None where all are."""
        return next((parcel.first_upstream for parcel in self.parcels if not self.is_done(parcel)), None)

    def has_done_beyond(self, position: int) -> bool:
        """Say whether a record from *position* on is acknowledged."""
        return any(self.is_done(parcel) and parcel.next_upstream > position for parcel in self.parcels)

    @property
    def mark(self) -> ProducerMark | None:
        """Who writes next, and with which sequence; None where that must be somebody new."""
        copy = self.copy
        is_doubtful = copy.is_unsure or copy.may_have_arrived or copy.is_contested
        return None if is_doubtful else copy.producer


class SpreadStretch:
    """One stretch, from its rows to what became of them."""

    def __init__(self, plan: EpochPlan, partition: PartitionPlan, lanes: Mapping[str, Lane], rows: Rows) -> None:
        self._plan = plan
        self._partition = partition
        here = partition.source
        self._lanes = {key: lane for key, lane in lanes.items() if lane.remote(here).partition < lane.partitions}
        self._rows = rows
        self._outlets: dict[str, _Outlet] = {}
        self._wanted: dict[str, WantedLane] = {}
        self._failure: PartitionFailure | None = None
        self._done_until = partition.position

    def queued(self, chunks: Iterable[Chunk]) -> list[PartitionCopy]:
        """Give a copy for each remote partition that records of *chunks* go to, with all of them queued."""
        by_name = self._sorted_out(chunks)
        self._done_until, self._failure = self._rows.done_until, self._rows.failure
        if first := next(iter(self._wanted.values()), None):
            self._done_until, self._failure = first.offset, None
        plans = {name: self._plan_of(self._lanes[name]) for name in by_name}
        built = {name: batches_of(self._plan, plans[name], records) for name, records in by_name.items()}
        too_large = [one.failure for one in built.values() if one.failure is not None]
        if too_large:
            self._failure = min(too_large, key=_offset_of)
            self._done_until = _offset_of(self._failure)
            self._wanted.clear()
            # What lies behind it would be written twice.
            before = {
                name: [record for record in records if record[0] < self._done_until]
                for name, records in by_name.items()
            }
            built = {name: batches_of(self._plan, plans[name], records) for name, records in before.items()}
        for name, batches in built.items():
            if batches.fitting:
                copy = PartitionCopy.of(plans[name])
                self._outlets[name] = _Outlet(copy, put_all(copy, batches.fitting))
        return [outlet.copy for outlet in self._outlets.values()]

    def _sorted_out(self, chunks: Iterable[Chunk]) -> dict[str, list[NewRecord]]:
        """Give the records up to the first whose lane is not there, by name; note all lanes that are not."""
        by_name: dict[str, list[NewRecord]] = {}
        for (name, partition), record in self._rows.routed(chunks):
            key = lane_key(name, partition)
            if key not in self._lanes:
                if key not in self._wanted and len(self._wanted) < _MOST_WANTED:
                    self._wanted[key] = WantedLane(name, record[0], record[1], partition)
            elif not self._wanted:
                by_name.setdefault(key, []).append(record)
        return by_name

    def _plan_of(self, lane: Lane) -> PartitionPlan:
        return attrs.evolve(
            self._partition,
            remote_topic=lane.remote_topic,
            remote_partition=lane.partition,
            downstream=None,
            is_unsure=False,
            max_message_bytes=lane.max_message_bytes,
            producer=lane.producer,
            remote_topic_id=None,
            leader=None,
            lanes=None,
        )

    def outcome(self) -> StretchOutcome:
        """Say what became of it, once all is sent or given up."""
        outlets = self._outlets.values()
        copies = [outlet.copy for outlet in outlets]
        left = [outlet for outlet in outlets if outlet.first_left is not None]
        position = min((it for outlet in left if (it := outlet.first_left) is not None), default=self._done_until)
        is_unsure = any(
            outlet.copy.is_unsure or outlet.copy.may_have_arrived or outlet.has_done_beyond(position)
            for outlet in outlets
        )
        ended, failure = self._end(left)
        outcome = PartitionOutcome(
            source=self._partition.source,
            position=position,
            downstream=None,
            is_unsure=is_unsure,
            ended=ended,
            failure=failure,
            records=sum(copy.records for copy in copies),
            bytes=sum(copy.bytes for copy in copies),
            batches_rebuilt=sum(copy.batches_rebuilt for copy in copies),
            last_timestamp_ms=max((copy.last_timestamp_ms for copy in copies), default=-1),
            latency=_together([found for copy in copies if (found := copy.latency.measured()) is not None]),
        )
        marks = {name: mark for name, outlet in self._outlets.items() if (mark := outlet.mark) is not None}
        wanted = () if left else tuple(self._wanted.values())
        return StretchOutcome(outcome, wanted=wanted, used=tuple(self._outlets), marks=marks)

    def _end(self, left: list[_Outlet]) -> tuple[Ended, PartitionFailure | None]:
        """Say how it ended: by what keeps the first record back that is not acknowledged."""
        if not left:
            return (Ended.OK, None) if self._failure is None else (Ended.FAILED, self._failure)
        first = min(left, key=lambda outlet: outlet.first_left or 0).copy
        failure = first.failure or first.trouble
        if failure is None:
            failure = PartitionFailure(f"the target did not take records of {self._partition.source} in time")
        return (Ended.FAILED if first.ended is Ended.FAILED else Ended.INTERRUPTED), failure


def _offset_of(failure: PartitionFailure) -> int:
    assert failure.offset is not None  # noqa: S101 - batches_of says at which record
    return failure.offset


def _together(measured: list[Measured]) -> Measured | None:
    if not measured:
        return None
    return Measured(
        sum(one.count for one in measured),
        sum(one.total_ms for one in measured),
        min(one.min_ms for one in measured),
        max(one.max_ms for one in measured),
        measured[-1].last_ms,
    )
