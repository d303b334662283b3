"""
How a limit is shared among the copy tasks of a flow, and what one may take after an epoch.

Whoever was held up wants as much as it can get; whoever was not wants a little more than it took. A limit is poured out
to all of them evenly, up to what each wants, and what is left over then is given to all alike: so a burst finds room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from mm2py.model.overrides import RateLimit
from mm2py.model.rates import Metered, RateUse, Unit


#: A bucket holds so many seconds of its rate at most: the burst that a limit lets through after a lull.
BURST_S: Final = 1.0
#: What a copy task keeps, of an even share, when others want all: what comes in meanwhile must not wait for ever.
_LEAST_SHARE: Final = 0.05
#: Held up for more than this part of an epoch, a copy task is taken to want more.
_HELD_UP: Final = 0.1
_ROOM_TO_GROW: Final = 1.25


def metered(limit: RateLimit, topic: str = "") -> dict[Metered, float]:
    """Return what a limit counts, and how much of it a second."""
    found = {Unit.BYTES: limit.bytes_per_s, Unit.RECORDS: limit.records_per_s}
    return {Metered(topic, unit): per_s for unit, per_s in found.items() if per_s is not None}


def wanted(use: RateUse, elapsed_s: float) -> float:
    """
    Return how much a second a copy task may want next, from an epoch of *elapsed_s*; infinite where nobody can tell.
    """
    if elapsed_s <= 0 or use.waited_s > elapsed_s * _HELD_UP:
        return math.inf
    return use.used / elapsed_s * _ROOM_TO_GROW


def shares(per_s: float, wants: Mapping[int, float]) -> dict[int, float]:
    """Share *per_s* among copy tasks that want so much; all of it is given out."""
    if not wants:
        return {}
    least = per_s * _LEAST_SHARE / len(wants)
    left, given = per_s, dict[int, float]()
    for served, (task, want) in enumerate(sorted(wants.items(), key=lambda item: item[1])):
        given[task] = min(max(want, least), left / (len(wants) - served))
        left -= given[task]
    return {task: share + left / len(given) for task, share in given.items()}


def share_now(per_s: float, wants: Mapping[int, float], task: int, others: Mapping[int, float]) -> float:
    """
    Return how much a second *task* may take in its next epoch.

    *others* is what other copy tasks were given for the epochs that they are in: together it must not be more than the
    limit, so a share grows only as fast as those of others shrink.
    """
    fair = shares(per_s, wants)[task]
    return max(min(fair, per_s - sum(others.values())), per_s * _LEAST_SHARE / len(wants))


def refilled(level: float, per_s: float, seconds: float) -> float:
    """Return what a bucket holds after *seconds* in which nothing was taken."""
    return min(level + per_s * seconds, per_s * BURST_S)
