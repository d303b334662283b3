"""Metrics of topic-partitions and of consumer groups' partitions, which are many, and so capped and rolled up: beyond
the caps into one series for each topic, and beyond those into one for the flow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from mm2py.model.behind import Behind
from mm2py.model.flow import Flow
from mm2py.model.state import FlowView, GroupOffsetView, PartitionView, TimesView
from mm2py.telemetry.metric_rows import METRICS
from mm2py.telemetry.metric_text import Family
from mm2py.telemetry.series import ABSENT, Cap, Labels, ends_of, labels, outdated


_SOURCE: Final = "kafka_connect_mirror_source_connector_"
_CHECKPOINT: Final = "kafka_connect_mirror_checkpoint_connector_checkpoint_latency_ms"
_ENDINGS: Final = ("", "_min", "_max", "_avg")
_JAVA: Final = (
    *(f"{_SOURCE}{name}" for name in ("record_count", "record_rate", "byte_count", "byte_rate")),
    *(f"{_SOURCE}record_age_ms{ending}" for ending in _ENDINGS),
    *(f"{_SOURCE}replication_latency_ms{ending}" for ending in _ENDINGS),
)
_LAG, _LAG_S, _LOSS_S = (f"mm2py_partition_{name}" for name in ("lag_records", "lag_seconds", "retention_loss_seconds"))
_END, _POSITION, _STAGE = (f"mm2py_partition_{name}" for name in ("end_offset", "position", "stage"))
_OWN: Final = (_LAG, _LAG_S, _LOSS_S, _END, _POSITION, _STAGE)

#: For records that were read and are not at the target yet.
_LEAST_WEIGHT: Final = 1e-9
_NAN: Final = math.nan
_NOTHING: Final = (_NAN, _NAN, _NAN, _NAN)

#: Stands for what of a roll-up is remembered no more: if that is not deleted, and comes back, it is counted again.
_REST: Final = ("", -1)

#: Last, minimum, maximum and mean.
_Times = tuple[float, float, float, float]


@attrs.frozen(eq=False)
class _Pair:
    """The labels of one series, with `destination` as in Java's and without."""

    java: Labels
    own: Labels


@attrs.define(eq=False)
class _Sum:
    """The roll-up of several partitions."""

    views: list[PartitionView] = attrs.field(factory=list)

    def java(self, records: int, size_bytes: int) -> tuple[float, ...]:
        """Return the values of the metrics with Java's names; counters are passed in."""
        rates = (sum(it.record_rate for it in self.views), sum(it.byte_rate for it in self.views))
        ages = _together((it.age, it.record_rate) for it in self.views)
        latencies = _together((it.latency, it.record_rate) for it in self.views)
        return (records, rates[0], size_bytes, rates[1], *ages, *latencies)

    def own(self) -> dict[str, float]:
        """Return the values of our own metrics, as far as they are known."""
        # One partition's longest wait beside another's earliest loss would be a false alarm.
        losses = [
            it.seconds_until_loss
            for it in self.views
            if it.seconds_until_loss is not None and it.lag_s is not None and it.seconds_until_loss < it.lag_s
        ]
        together: tuple[tuple[str, Callable[[list[float]], float], list[float]], ...] = (
            (_LOSS_S, min, losses),
            (_END, sum, [it.end_offset for it in self.views if it.end_offset is not None]),
            (_POSITION, sum, [it.position for it in self.views]),
            (_STAGE, min, [it.stage.value for it in self.views]),
        )
        lag, lag_s = known_lag(Behind.together(map(Behind.of, self.views)))
        return {_LAG: lag, _LAG_S: lag_s, **{name: of(values) for name, of, values in together if values}}


class PartitionMetrics:
    """Caches labels, and which partitions have their own series; one for each daemon."""

    def __init__(self, *, partitions_max: int, topics_max: int) -> None:
        self._partition_cap = Cap(partitions_max)
        self._topic_cap = Cap(topics_max)
        self._offset_cap = Cap(partitions_max)
        self._group_cap = Cap(topics_max)
        self._labels: dict[object, _Pair] = {}
        #: Records and bytes of partitions that are rolled up, by flow, or flow and topic; they count even after the
        #: partitions are gone, or have moved to another node.
        self._counted: dict[object, dict[tuple[str, int], tuple[int, int]]] = {}
        #: Partitions that had series of their own, and what was counted of each, there or in its topic's series.
        self._had_own: dict[object, None] = {}
        self._counted_before: dict[object, tuple[int, int]] = {}
        self.rolled_up = 0

    def families(self, flows: Collection[FlowView]) -> dict[str, Family]:
        """Return the metrics of all partitions, by name."""
        java: list[Labels] = []
        book = {name: Family(METRICS[name], java) for name in _JAVA}
        book |= {name: Family(METRICS[name]) for name in _OWN}
        self.rolled_up = 0
        here = {(flow.flow, view.remote_topic, view.source.partition) for flow in flows for view in flow.partitions}
        self._had_own |= dict.fromkeys(self._keep(self._partition_cap, here))
        rolled = {flow.flow: self._own(flow, book) for flow in flows}
        topics_here = {(flow, topic) for flow, topics in rolled.items() for topic in topics}
        self._keep(self._topic_cap, topics_here)
        kept: tuple[tuple[dict[Any, Any], Collection[object]], ...] = (
            (self._had_own, here),
            (self._counted_before, here),
            (self._counted, topics_here | rolled.keys()),
        )
        for remembered, present in kept:
            for key in outdated(remembered, present):
                del remembered[key]
        for flow, topics in rolled.items():
            self._roll_up(flow, book, topics)
        return book

    def _keep(self, cap: Cap, present: Iterable[object]) -> set[object]:
        """Let go of partitions that other nodes have taken, and of topics that were deleted; return them."""
        gone = cap.keep(present)
        for key in gone:
            self._labels.pop(key, None)
        return gone

    def _own(self, flow: FlowView, book: Mapping[str, Family]) -> dict[str, _Sum]:
        """Add the partitions with their own series; return the others, topic by topic."""
        rolled: dict[str, _Sum] = {}
        java, columns = book[_JAVA[0]].labels, [book[name].values for name in _JAVA]
        add_position, add_stage, add_lag = (book[name].add for name in (_POSITION, _STAGE, _LAG))
        add_lag_s, add_loss_s, add_end = (book[name].add for name in (_LAG_S, _LOSS_S, _END))
        this, has_own = flow.flow, self._partition_cap.has_own
        for view in flow.partitions:
            number = view.source.partition
            key = (this, view.remote_topic, number)
            if not has_own(key):
                if key in self._had_own:
                    self._counted_before.setdefault(key, (view.records, view.bytes))
                rolled.setdefault(view.remote_topic, _Sum()).views.append(view)
                continue
            pair = self._pair(key, this, view.remote_topic, str(number))
            java.append(pair.java)
            times = (*_times(view.age), *_times(view.latency))
            for column, value in zip(
                columns, (view.records, view.record_rate, view.bytes, view.byte_rate, *times), strict=True
            ):
                column.append(value)
            it = pair.own
            add_position(it, view.position)
            add_stage(it, view.stage.value)
            lag, lag_s = known_lag(view)
            add_lag(it, lag)
            add_lag_s(it, lag_s)
            if view.seconds_until_loss is not None:
                add_loss_s(it, view.seconds_until_loss)
            if view.end_offset is not None:
                add_end(it, view.end_offset)
        return rolled

    def _roll_up(self, flow: Flow, book: Mapping[str, Family], rolled: Mapping[str, _Sum]) -> None:
        rest = _Sum()
        for topic, together in rolled.items():
            self.rolled_up += len(together.views)
            if self._topic_cap.has_own(key := (flow, topic)):
                self._put(book, self._pair(key, flow, topic, ABSENT), together, *self._count(flow, key, together))
            else:
                self._let_go(flow, key)
                rest.views.extend(together.views)
        counts = self._count(flow, flow, rest)
        if self._counted[flow]:
            self._put(book, self._pair(flow, flow, ABSENT, ABSENT), rest, *counts)

    def _let_go(self, flow: Flow, key: object) -> None:
        """Note what was counted of a topic in a series of its own, in whose place others have come since."""
        for place, counts in self._counted.pop(key, {}).items():
            before = self._counted_before.get((flow, *place), (0, 0))
            self._counted_before[flow, *place] = before[0] + counts[0], before[1] + counts[1]

    def _count(self, flow: Flow, key: object, together: _Sum) -> tuple[int, int]:
        """Return records and bytes of the roll-up *key*: those that it has *together*, and those that it had before."""
        counted = self._counted.setdefault(key, {})
        for view in together.views:
            place = (view.remote_topic, view.source.partition)
            records, size_bytes = self._counted_before.get((flow, *place), (0, 0))
            had = counted.get(place, (0, 0))
            if view.records - records < had[0]:  # it was deleted, and is counted from 0 again
                records, size_bytes = self._counted_before[flow, *place] = -had[0], -had[1]
            counted[place] = (view.records - records, view.bytes - size_bytes)
        here = {(view.remote_topic, view.source.partition) for view in together.views}
        for gone in outdated(counted, here | {_REST}):
            rest, last = counted.get(_REST, (0, 0)), counted.pop(gone)
            counted[_REST] = (rest[0] + last[0], rest[1] + last[1])
        return sum(records for records, _ in counted.values()), sum(size_bytes for _, size_bytes in counted.values())

    @staticmethod
    def _put(book: Mapping[str, Family], pair: _Pair, together: _Sum, records: int, size_bytes: int) -> None:
        book[_JAVA[0]].labels.append(pair.java)
        for name, value in zip(_JAVA, together.java(records, size_bytes), strict=True):
            book[name].values.append(value)
        for name, value in together.own().items():
            book[name].add(pair.own, value)

    def _pair(self, key: object, flow: Flow, topic: str, partition: str) -> _Pair:
        pair = self._labels.get(key)
        if pair is None:
            ends = ends_of(flow)
            where = {"topic": topic, "partition": partition}
            pair = self._labels[key] = _Pair(labels(**ends, destination=flow.target, **where), labels(**ends, **where))
        return pair

    # Consumer groups.

    def group_families(self, flows: Collection[FlowView]) -> dict[str, Family]:
        """Return the metrics of consumer groups, by name."""
        groups = [(flow.flow, group) for flow in flows for group in flow.consumer_groups]
        self._group_cap.keep((flow, group.group) for flow, group in groups)
        self._offset_cap.keep((flow, group.group, view.remote) for flow, group in groups for view in group.offsets)
        names = (
            *(f"{_CHECKPOINT}{ending}" for ending in _ENDINGS),
            "mm2py_consumer_group_distance_records",
            "mm2py_consumer_group_untranslated_partitions",
        )
        book = {name: Family(METRICS[name]) for name in names}
        for flow in flows:
            self._latencies(flow, book)
            self._distances(flow, book)
        return book

    def _latencies(self, flow: FlowView, book: Mapping[str, Family]) -> None:
        ends = {**ends_of(flow.flow), "destination": flow.flow.target}
        rest: list[TimesView] = []
        for group in flow.consumer_groups:
            for view in group.offsets:
                if view.latency is None:
                    continue
                where = {"group": group.group, "topic": view.remote.topic, "partition": str(view.remote.partition)}
                if self._offset_cap.has_own((flow.flow, group.group, view.remote)):
                    _put_times(book, labels(**ends, **where), _times(view.latency))
                else:
                    rest.append(view.latency)
        if rest:
            _put_times(book, labels(**ends), _together((it, 1.0) for it in rest))

    def _distances(self, flow: FlowView, book: Mapping[str, Family]) -> None:
        ends = ends_of(flow.flow)
        rest: list[GroupOffsetView] = []
        kinds: tuple[tuple[str, Callable[[Iterable[GroupOffsetView]], int]], ...] = (
            ("mm2py_consumer_group_distance_records", lambda them: sum(it.distance or 0 for it in them)),
            ("mm2py_consumer_group_untranslated_partitions", lambda them: sum(it.downstream is None for it in them)),
        )
        for group in flow.consumer_groups:
            if not group.offsets:
                continue
            if not self._group_cap.has_own((flow.flow, group.group)):
                rest.extend(group.offsets)
                continue
            for name, together in kinds:
                book[name].add(labels(**ends, group=group.group), together(group.offsets))
        if rest:
            for name, together in kinds:
                book[name].add(labels(**ends), together(rest))


def known_lag(view: Behind | FlowView | PartitionView) -> tuple[float, float]:
    """Return the lag in records and in seconds, NaN if it is not exactly known.

    No comparison with NaN holds, a sum with it is NaN, and it does not count as 0 where a board ends in `or vector(0)`.
    """
    lag = _NAN if view.lag is None or view.lag_is_least else view.lag
    return lag, _NAN if view.lag_s is None or view.lag_s_is_least else view.lag_s


def _put_times(book: Mapping[str, Family], it: Labels, times: _Times) -> None:
    for ending, value in zip(_ENDINGS, times, strict=True):
        book[f"{_CHECKPOINT}{ending}"].add(it, value)


def _times(view: TimesView | None) -> _Times:
    if view is None:
        return _NOTHING
    if view.min_ms is None or view.max_ms is None or view.avg_ms is None:
        return (view.last_ms, _NAN, _NAN, _NAN)
    return (view.last_ms, view.min_ms, view.max_ms, view.avg_ms)


def _together(weighted: Iterable[tuple[TimesView | None, float]]) -> _Times:
    """Roll up times: the maximum of last values, the extremes, and the weighted mean."""
    seen = [(view, weight) for view, weight in weighted if view is not None]
    fresh = [(_times(view), max(weight, _LEAST_WEIGHT)) for view, weight in seen if view.avg_ms is not None]
    last = max((view.last_ms for view, _ in seen), default=_NAN)
    total = sum(weight for _, weight in fresh)
    if not total:
        return (last, _NAN, _NAN, _NAN)
    mean = sum(times[3] * weight for times, weight in fresh) / total
    return (last, min(times[1] for times, _ in fresh), max(times[2] for times, _ in fresh), mean)
