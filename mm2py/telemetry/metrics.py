"""A node's metrics: for Prometheus, and the same numbers as JSON. Everything is taken from a view and from counted
events on request; nothing is measured just for metrics. Results are cached for a second.
"""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Iterable, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder

import mm2py
from mm2py.model.epoch import HISTOGRAM_BOUNDS_MS, Histogram
from mm2py.model.flow import Flow
from mm2py.model.health import all_issues, is_healthy
from mm2py.model.state import MirrorView
from mm2py.telemetry.connect_metrics import fill_worker
from mm2py.telemetry.flow_metrics import fill_events, fill_flow
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.metric_rows import METRICS
from mm2py.telemetry.metric_text import Family, text_of
from mm2py.telemetry.partition_metrics import PartitionMetrics
from mm2py.telemetry.series import ABSENT, Labels, ends_of, labels
from mm2py.telemetry.tally import EventTally


#: How long results are cached.
_FRESH_MS: Final = 1_000
_ENDS: Final = ("source", "target", "source_connector")


class Metrics:
    """The metrics of one daemon; one object for its whole life, because counts and roll-ups continue."""

    def __init__(self, events: EventLog, *, partitions_max: int = 2_000, topics_max: int = 1_000) -> None:
        """Count *events* from now on; the two limits are `metrics.partitions.max` and `metrics.topics.max`."""
        self._tally = EventTally(events)
        self._partitions = PartitionMetrics(partitions_max=partitions_max, topics_max=topics_max)
        self._process = ProcessCollector(registry=CollectorRegistry())
        build = {"version": mm2py.__version__, "python": platform.python_version()}
        self._build = labels(**build, spark=importlib.metadata.version("pyspark"))
        self._made_ms: int | None = None
        self._families: tuple[Family, ...] = ()
        self._texts: dict[bool, bytes] = {}

    def exposition(self, view: MirrorView, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics as text in the format that the header *accept* asks for, and its content type."""
        content_type: str = choose_encoder(accept)[1]
        is_open = content_type.startswith("application/openmetrics-text")
        families = self._fresh(view)
        if is_open not in self._texts:
            self._texts[is_open] = text_of(families, is_open=is_open).encode()
        return self._texts[is_open], content_type

    def snapshot(self, view: MirrorView, flow: Flow | None = None, cluster: str | None = None) -> dict[str, Any]:
        """
        Return the same numbers as plain JSON values; what is NaN there is null here.

        `flows` holds each flow's metrics by name, `node` those of the daemon. With *flow*, or for flows that read or
        write *cluster*, only theirs.
        """
        families = self._fresh(view)
        wanted = {
            tuple(ends_of(it.flow).values()): str(it.flow)
            for it in view.flows
            if flow in (None, it.flow) and cluster in (None, it.flow.source, it.flow.target)
        }
        flows: dict[str, dict[str, Any]] = {name: {} for name in wanted.values()}
        node: dict[str, Any] = {}
        for family in families:
            for it, sample in _plain(family):
                pairs = dict(it.pairs)
                name = wanted.get(tuple(pairs.get(label, ABSENT) for label in _ENDS))
                place = flows[name] if name is not None else node
                if name is None and ("source" in pairs or len(flows) < len(view.flows)):
                    continue
                rest = {label: value for label, value in pairs.items() if label not in (*_ENDS, "destination")}
                entry = place.setdefault(family.metric.name, {"type": family.metric.kind.value, "samples": []})
                entry["samples"].append({"labels": rest, **sample})
        whole = {"wall_ms": view.wall_ms, "flows": flows}
        return whole | {"node": node} if flow is None and cluster is None else whole

    def _fresh(self, view: MirrorView) -> tuple[Family, ...]:
        if self._made_ms is None or not 0 <= view.wall_ms - self._made_ms < _FRESH_MS:
            self._families, self._made_ms = self._make(view), view.wall_ms
            self._texts = {}
        return self._families

    def _make(self, view: MirrorView) -> tuple[Family, ...]:
        book = {name: Family(metric) for name, metric in METRICS.items()}
        book |= self._partitions.families(view.flows)
        book |= self._partitions.group_families(view.flows)
        for flow in view.flows:
            fill_flow(book, flow, self._tally, view.wall_ms)
        fill_events(book, self._tally)
        self._fill_node(book, view)
        return tuple(family for family in book.values() if family.labels or family.histograms)

    def _fill_node(self, book: Mapping[str, Family], view: MirrorView) -> None:
        nothing = labels()
        fill_worker(book, view.flows)
        book["mm2py_build_info"].add(self._build, 1)
        spark = view.spark
        for name, value in (
            ("mm2py_ready", int(view.is_ready)),
            ("mm2py_settings_refused", int(bool(view.refused_settings))),
            ("mm2py_healthy", int(is_healthy(all_issues(view)))),
            ("mm2py_start_time_seconds", None if view.started_ms is None else view.started_ms / 1000),
            ("mm2py_partitions_rolled_up", self._partitions.rolled_up),
            ("mm2py_spark_up", None if spark is None else int(spark.is_up)),
            ("mm2py_spark_slots", None if spark is None else spark.slots),
            ("mm2py_spark_slots_used", None if spark is None else spark.used),
            ("mm2py_spark_slots_free", None if spark is None or spark.slots is None else spark.slots - spark.used),
            ("mm2py_spark_epochs_waiting", None if spark is None else spark.waiting),
        ):
            if value is not None:
                book[name].add(nothing, value)
        for measured in self._process.collect():
            for sample in measured.samples:
                book[sample.name].add(nothing, sample.value)


def _plain(family: Family) -> Iterable[tuple[Labels, dict[str, Any]]]:
    for it, value in zip(family.labels, family.values, strict=True):
        yield it, {"value": value if math.isfinite(value) else None}
    for it, histogram in family.histograms:
        yield it, _plain_histogram(histogram)


def _plain_histogram(histogram: Histogram) -> dict[str, Any]:
    seen, buckets = 0, []
    for bound_ms, count in zip((*HISTOGRAM_BOUNDS_MS, None), histogram.counts, strict=True):
        seen += count
        buckets.append({"le": None if bound_ms is None else bound_ms / 1000, "count": seen})
    return {"count": seen, "sum": histogram.total_ms / 1000, "buckets": buckets}
