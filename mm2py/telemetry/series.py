"""
Which topic-partitions have series of their own, and which are rolled up.

The first ones keep their series as long as the daemon runs: if a partition were rolled up only at times, the counters
of the roll-up would go back. A rolled-up series contains only partitions without their own.
"""

from __future__ import annotations

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
    """Gives the first *most* keys a series of their own."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._own: set[object] = set()
        self._others: set[object] = set()

    def has_own(self, key: object) -> bool:
        """Whether *key* has a series of its own; the answer never changes."""
        if key in self._own:
            return True
        if key in self._others:
            return False
        is_own = len(self._own) < self._most
        (self._own if is_own else self._others).add(key)
        return is_own
