"""A kind of fault: what it breaks, and that it is mended, by a timer of its own or at the end."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from tests.simulated.world import World


#: Breaks something and returns what, in words; nothing if there was nothing to break.
Fault = Callable[["World", random.Random], str]


def duration(draw: random.Random) -> float:
    """Draw how long something lasts: mostly seconds, sometimes minutes."""
    return draw.choice((0.05, 0.3, 1.0, 3.0, 8.0, 15.0, 40.0, 120.0)) * (0.5 + draw.random())
