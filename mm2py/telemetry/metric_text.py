"""
Metrics as text, Prometheus's own and OpenMetrics.

prometheus-client's encoder creates objects and a sorted dictionary for each of the 36 000 series of 2 000 partitions.
So the lines are written here, from labels that are formatted once; content negotiation is prometheus-client's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

import attrs
from prometheus_client.utils import floatToGoString

from mm2py.model.epoch import HISTOGRAM_BOUNDS_MS, Histogram
from mm2py.telemetry.metric_rows import Metric, MetricType
from mm2py.telemetry.series import Labels


@attrs.frozen(eq=False)
class Family:
    """All series of one metric: labels and values in parallel lists. Pairs would be many thousand small objects per
    scrape, and work for the garbage collector. Metrics of the same objects may share their list of labels.
    """

    metric: Metric
    labels: list[Labels] = attrs.field(factory=list)
    values: list[float] = attrs.field(factory=list)
    histograms: list[tuple[Labels, Histogram]] = attrs.field(factory=list)

    def add(self, it: Labels, value: float) -> None:
        """Add a series to a metric that does not share its labels."""
        self.labels.append(it)
        self.values.append(value)


_BOUNDS: Final = tuple(floatToGoString(bound / 1000) for bound in HISTOGRAM_BOUNDS_MS)  # type: ignore[no-untyped-call]


def text_of(families: Iterable[Family], *, is_open: bool) -> str:
    """Format *families*, as OpenMetrics if *is_open*."""
    pieces: list[str] = []
    for family in families:
        pieces += _head(family.metric, is_open=is_open)
        name = family.metric.name
        texts = map(number, family.values)
        pieces += [f"{name}{it.text} {text}\n" for it, text in zip(family.labels, texts, strict=True)]
        for it, histogram in family.histograms:
            pieces += _histogram(name, it, histogram)
    if is_open:
        pieces.append("# EOF\n")
    return "".join(pieces)


def _head(metric: Metric, *, is_open: bool) -> tuple[str, str]:
    is_counter = metric.kind is MetricType.COUNTER
    name = metric.name.removesuffix("_total") if is_open and is_counter else metric.name
    doc = metric.doc.replace("\\", "\\\\").replace("\n", "\\n")
    doc = doc.replace('"', '\\"') if is_open else doc
    return f"# HELP {name} {doc}\n", f"# TYPE {name} {metric.kind.value}\n"


def _histogram(name: str, it: Labels, histogram: Histogram) -> Iterator[str]:
    seen, of = 0, it.text.removesuffix("}")
    for bound, count in zip((*_BOUNDS, "+Inf"), histogram.counts, strict=True):
        seen += count
        yield f'{name}_bucket{of},le="{bound}"}} {seen}\n'
    yield f"{name}_count{it.text} {seen}\n"
    yield f"{name}_sum{it.text} {number(histogram.total_ms / 1000)}\n"


def number(value: float) -> str:
    """Format a number for Prometheus."""
    if isinstance(value, int):
        return str(value)
    if value != value:  # noqa: PLR0124 - the quickest way to find NaN
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
