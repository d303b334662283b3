"""
Which topic-partitions have series of their own, and which are rolled up.

The first ones keep their series as long as they are there. What was rolled up stays so: if a partition were rolled up
only at times, the counters of the roll-up would go back. A rolled-up series contains only partitions without their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs


#: Prometheus treats an empty label as missing.
ABSENT: Final = ""


@attrs.frozen(eq=False)
class Labels:
    """The labels of a series: formatted, and as values."""

    text: str
    pairs: tuple[tuple[str, str], ...]


_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def labels(**values: str) -> Labels:
    """Return labels in the order given, without empty ones."""
    pairs = tuple((name, value) for name, value in values.items() if value != ABSENT)
    text = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
    return Labels(f"{{{text}}}" if pairs else "", pairs)


class Cap:
    """Gives the first *most* keys a series of their own; what is gone makes room for others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: set[object] = set()
        self._others: set[object] = set()

    def keep(self, present: Iterable[object]) -> set[object]:
        """Make room for what is *present*; return what has no series of its own any more."""
        gone = self._own.difference(present)
        self._own -= gone
        return gone

    def has_own(self, key: object) -> bool:
        """Whether *key* has a series of its own; the answer does not change while it is there."""
        if key in self._own:
            return True
        if key in self._others:
            return False
        is_own = len(self._own) < self._most
        (self._own if is_own else self._others).add(key)
        return is_own
