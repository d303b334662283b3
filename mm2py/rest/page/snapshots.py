"""Views of a node: all requests within a second share one, from pages, Prometheus and operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.model.herder.all_nodes import of_all_nodes
from mm2py.model.state import MirrorView


#: With thousands of partitions a view costs as much as all other work for viewers.
_FRESH_S: Final = 1.0
#: So taking views takes this part of the time at most, and that part of those that are not for viewers; but none is
#: older than the most.
_WATCHED_PART: Final = 1 / 20
UNWATCHED_PART: Final = 1 / 200
_MOST_FRESH_S: Final = 10.0
#: After so long without a view, longer than Prometheus pauses, much of the next one may have to be made again.
_COLD_S: Final = 90.0


@attrs.define(eq=False)
class Snapshots:
    """Takes views by *take*, as rarely as possible: that takes *part* of the time at most."""

    _take: Callable[[], MirrorView]
    _clock: Clock
    _part: float = _WATCHED_PART
    _last: MirrorView | None = attrs.field(default=None, init=False)
    _whole: MirrorView | None = attrs.field(default=None, init=False)
    _taken_s: float = attrs.field(default=-math.inf, init=False)
    _took_s: float = attrs.field(default=0.0, init=False)

    def view(self) -> MirrorView:
        """
        Return a view of all flows, each as all of its nodes run it.

        It is less than a second old, or, with tens of thousands of partitions, some seconds.
        """
        own = self.own()
        if self._whole is None:
            self._whole = of_all_nodes(own)
        return self._whole

    def own(self) -> MirrorView:
        """Return the same with the figures of this node alone."""
        now = self._clock.monotonic()
        holds_s = min(_MOST_FRESH_S, max(_FRESH_S, self._took_s / self._part))
        if self._last is None or now - self._taken_s >= holds_s:
            self._last, self._whole, self._taken_s = self._take(), None, now
            self._took_s = self._clock.monotonic() - now
        return self._last

    @property
    def is_cold(self) -> bool:
        """Whether there was no view for so long that the next one may take long."""
        return self._clock.monotonic() - self._taken_s >= _COLD_S

    def forget(self) -> None:
        """Take a new view for the next request, because something changed."""
        self._last = None
