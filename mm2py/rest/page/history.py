"""Figures of the last 15 minutes, so that a page has plots as soon as it is opened. A few numbers per flow every few
seconds, in memory; for longer histories there is Prometheus.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from mm2py.model.flow import Flow
from mm2py.model.state import FlowView, MirrorView


#: How often a sample is taken.
SAMPLE_EVERY_S = 3.0
#: Number of samples kept: 15 minutes.
KEPT_SAMPLES = 300

#: The columns of a sample. Rates are per second.
COLUMNS = ("wall_ms", "records", "bytes", "lag", "latency_p50_ms", "latency_p99_ms", "age_p50_ms")

Sample = tuple[float | None, ...]


class History:
    """A ring of samples for each flow, oldest first. Removed flows are dropped."""

    def __init__(self, *, keep: int = KEPT_SAMPLES) -> None:
        self._keep = keep
        self._samples: dict[Flow, deque[Sample]] = {}

    def note(self, view: MirrorView) -> None:
        """Take a sample of each flow of *view*."""
        before = self._samples
        self._samples = {flow.flow: before.get(flow.flow) or deque(maxlen=self._keep) for flow in view.flows}
        for flow in view.flows:
            self._samples[flow.flow].append(sample(flow, view.wall_ms))

    def of(self, flow: Flow) -> Mapping[str, list[float | None]]:
        """Return a flow's samples column by column, as the plots need them."""
        samples = self._samples.get(flow, ())
        columns: list[tuple[float | None, ...]] = list(zip(*samples, strict=True)) or [()] * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    def rates(self, flow: Flow, last: int) -> list[float | None]:
        """Return the *last* samples of records per second."""
        return [one[1] for one in list(self._samples.get(flow, ()))[-last:]]


def sample(flow: FlowView, wall_ms: int) -> Sample:
    """Return a flow's figures of one moment, rounded to the precision of a plot."""
    measured = (
        flow.records_per_s,
        flow.bytes_per_s,
        flow.lag,
        flow.latency_p50_ms,
        flow.latency_p99_ms,
        flow.age_p50_ms,
    )
    return (wall_ms, *(rounded(number) for number in measured))


def rounded(number: float | None) -> float | None:
    """Return a number with three decimals, large ones without; None for values that JSON cannot represent."""
    if number is None or not math.isfinite(number):
        return None
    return round(number) if abs(number) >= 1000 else round(number, 3)  # noqa: PLR2004  # a chart does not show fractions there
