"""
Which topic-partitions have series of their own, and which are rolled up.

Who came first keeps what it has for as long as the daemon runs: were a partition now rolled up and now not, the counts
of the roll-up would go back. A rolled-up series carries only what has no series of its own.
"""

from __future__ import annotations

from typing import Final

import attrs


#: Prometheus takes a label without text for one that is not there.
ABSENT: Final = ""


@attrs.frozen(eq=False)
class Labels:
    """The labels of a series: as they stand in the text, and as they are."""

    text: str
    pairs: tuple[tuple[str, str], ...]


_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def labels(**values: str) -> Labels:
    """Make labels in the order given; those without text are left out."""
    pairs = tuple((name, value) for name, value in values.items() if value != ABSENT)
    text = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
    return Labels(f"{{{text}}}" if pairs else "", pairs)


class Cap:
    """Gives the first *most* that ask a series of their own."""

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
