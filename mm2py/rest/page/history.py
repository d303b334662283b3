"""
Figures of the last 15 minutes, 3 hours and day, so that a page has plots as soon as it is opened.

Each flow has three rings of as many points, packed: about 100 kB, however many topics it has. For longer histories
there is Prometheus.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from mm2py.model.behind import Behind
from mm2py.model.flow import Flow
from mm2py.model.state import FlowView, MirrorView


#: How often a sample is taken.
SAMPLE_EVERY_S = 3.0
#: Number of points kept of each range: 15 minutes of samples.
KEPT_POINTS = 300
#: How many samples become one point, by the range that the points cover.
RANGES: Final[Mapping[str, int]] = {"15m": 1, "3h": 12, "1d": 96}
SHORTEST: Final = "15m"

#: The columns of a sample. Rates are per second.
COLUMNS = ("wall_ms", "records", "bytes", "lag", "lag_s", "latency_p50_ms", "latency_p99_ms", "age_p50_ms")
#: A point has their mean; of all others it has the maximum, so that a peak is seen in the plot of a day.
_MEANS: Final = frozenset({"records", "bytes"})
_PACKED: Final = struct.Struct(f"{len(COLUMNS)}d")

Sample = tuple[float | None, ...]


class _Ring:
    """The last points of one range."""

    def __init__(self, samples_each: int, keep: int) -> None:
        self._samples_each = samples_each
        self._pending: deque[Sample] = deque(maxlen=samples_each)
        self._points: deque[bytes] = deque(maxlen=keep)

    def add(self, one: Sample) -> None:
        self._pending.append(one)
        if len(self._pending) == self._samples_each:
            self._points.append(_packed(_merged(self._pending)))
            self._pending.clear()

    def last(self, count: int) -> list[Sample]:
        """Return the last *count* points, oldest first."""
        return [tuple(map(_number, _PACKED.unpack(point))) for point in list(self._points)[-count:]]


class History:
    """The rings of each flow, oldest points first. Removed flows are dropped."""

    def __init__(self, *, keep: int = KEPT_POINTS) -> None:
        self._keep = keep
        self._rings: dict[Flow, dict[str, _Ring]] = {}

    def note(self, view: MirrorView) -> None:
        """Take a sample of each flow of *view*."""
        before = self._rings
        self._rings = {flow.flow: before.get(flow.flow) or self._made() for flow in view.flows}
        for flow in view.flows:
            for ring in self._rings[flow.flow].values():
                ring.add(sample(flow, view.wall_ms))

    def _made(self) -> dict[str, _Ring]:
        return {name: _Ring(samples_each, self._keep) for name, samples_each in RANGES.items()}

    def of(self, flow: Flow, covered: str = SHORTEST) -> Mapping[str, list[float | None]]:
        """Return a flow's points of the range *covered*, one of `RANGES`, column by column, as the plots need them."""
        points = self._last(flow, covered, self._keep)
        columns: list[tuple[float | None, ...]] = list(zip(*points, strict=True)) or [()] * len(COLUMNS)
        return {name: list(column) for name, column in zip(COLUMNS, columns, strict=True)}

    def rates(self, flow: Flow, last: int) -> list[float | None]:
        """Return the *last* samples of records per second."""
        return [one[1] for one in self._last(flow, SHORTEST, last)]

    def _last(self, flow: Flow, covered: str, count: int) -> list[Sample]:
        rings = self._rings.get(flow)
        return rings[covered].last(count) if rings is not None else []


def sample(flow: FlowView, wall_ms: int) -> Sample:
    """Return a flow's figures of one moment, rounded to the precision of a plot."""
    behind = Behind.of(flow)
    measured = (
        flow.records_per_s,
        flow.bytes_per_s,
        flow.lag if behind.is_known else None,
        flow.lag_s if behind.is_wait_known else None,
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


def _merged(samples: Sequence[Sample]) -> Sample:
    """Return the point of *samples*, at the time of the last one."""
    merged: list[float | None] = [samples[-1][0]]
    for name, column in zip(COLUMNS[1:], list(zip(*samples, strict=True))[1:], strict=True):
        known = [number for number in column if number is not None]
        if not known:
            merged.append(None)
        else:
            merged.append(rounded(sum(known) / len(known)) if name in _MEANS else max(known))
    return tuple(merged)


def _packed(point: Sample) -> bytes:
    return _PACKED.pack(*(math.nan if number is None else number for number in point))


def _number(packed: float) -> float | None:
    if math.isnan(packed):
        return None
    return int(packed) if packed.is_integer() else packed
