"""
Which topic-partitions have series of their own, and which are rolled up.

The first ones keep their series as long as they are there. What was rolled up stays so: if a partition were rolled up
only at times, the counters of the roll-up would go back. A rolled-up series contains only partitions without their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

import attrs

from mm2py.model.flow import Flow


#: At least so much that is gone is remembered, and four times as much as is there: a node of several that share a flow
#: may have had all of its partitions, and get them back.
_REMEMBERED: Final = 10_000
_REMEMBERED_OF_EACH: Final = 4

K = TypeVar("K")

#: Prometheus treats an empty label as missing.
ABSENT: Final = ""


@attrs.frozen(eq=False)
class Labels:
    """The labels of a series: formatted, and as values."""

    text: str
    pairs: tuple[tuple[str, str], ...]


_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def ends_of(flow: Flow) -> dict[str, str]:
    """Return the labels that say which flow something is of, by name."""
    return {"source": flow.source, "target": flow.target, "source_connector": flow.connector}


def labels(**values: str) -> Labels:
    """Return labels in the order given, without empty ones."""
    pairs = tuple((name, value) for name, value in values.items() if value != ABSENT)
    text = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
    return Labels(f"{{{text}}}" if pairs else "", pairs)


def outdated(remembered: Collection[K], present: Collection[object]) -> list[K]:
    """Return what of all *remembered* is to be forgotten, the oldest first: topics and groups come and go for weeks."""
    excess = len(remembered) - len(present) - max(_REMEMBERED, _REMEMBERED_OF_EACH * len(present))
    if excess <= 0:
        return []
    return list(itertools.islice((key for key in remembered if key not in present), excess))


class Cap:
    """Gives the first *most* keys a series of their own; what is gone makes room for others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: set[object] = set()
        self._others: dict[object, None] = {}

    def keep(self, present: Iterable[object]) -> set[object]:
        """Make room for what is *present*; return what has no series of its own any more."""
        here = frozenset(present)
        gone = self._own - here
        self._own -= gone
        for key in outdated(self._others, here):
            del self._others[key]
        return gone

    def has_own(self, key: object) -> bool:
        """Whether *key* has a series of its own; the answer does not change while it is there."""
        if key in self._own:
            return True
        if key in self._others:
            return False
        if len(self._own) < self._most:
            self._own.add(key)
            return True
        self._others[key] = None
        return False
