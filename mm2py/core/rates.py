"""How a limit is shared among the copy tasks of a flow, and how much one may use after an epoch. A throttled task
demands as much as it can get; others a little more than they used. A limit is distributed evenly, up to each demand,
and the remainder equally to all, which leaves room for bursts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from mm2py.model.herder.overrides import RateLimit
from mm2py.model.rates import Metered, RateUse, Unit


#: Most seconds of its rate in a bucket: the burst that a limit allows after an idle time.
BURST_S: Final = 1.0
#: The part of an even share that a copy task keeps when others demand everything: new records must not starve.
_LEAST_SHARE: Final = 0.05
#: A copy task throttled for more than this part of an epoch demands more.
_HELD_UP: Final = 0.1
_ROOM_TO_GROW: Final = 1.25


def metered(limit: RateLimit, topic: str = "") -> dict[Metered, float]:
    """Return the units of a limit, with their rates per second."""
    found = {Unit.BYTES: limit.bytes_per_s, Unit.RECORDS: limit.records_per_s}
    return {Metered(topic, unit): per_s for unit, per_s in found.items() if per_s is not None}


def wanted(use: RateUse, elapsed_s: float) -> float:
    """Return a copy task's next demand per second, from an epoch of *elapsed_s*; infinite if unknown."""
    if elapsed_s <= 0 or use.waited_s > elapsed_s * _HELD_UP:
        return math.inf
    return use.used / elapsed_s * _ROOM_TO_GROW


def shares(per_s: float, wants: Mapping[int, float]) -> dict[int, float]:
    """Share *per_s* among copy tasks with these demands; all of it is distributed."""
    if not wants:
        return {}
    least = per_s * _LEAST_SHARE / len(wants)
    left, given = per_s, dict[int, float]()
    for served, (task, want) in enumerate(sorted(wants.items(), key=lambda item: item[1])):
        given[task] = min(max(want, least), left / (len(wants) - served))
        left -= given[task]
    return {task: share + left / len(given) for task, share in given.items()}


def share_now(per_s: float, wants: Mapping[int, float], task: int, others: Mapping[int, float]) -> float:
    """Return the rate of *task* in its next epoch. *others* are the rates of other copy tasks in their current epochs:
    the sum must not exceed the limit, so a share grows only as fast as others shrink.
    """
    fair = shares(per_s, wants)[task]
    return max(min(fair, per_s - sum(others.values())), per_s * _LEAST_SHARE / len(wants))


def refilled(level: float, per_s: float, seconds: float) -> float:
    """Return the content of a bucket after *seconds* without use."""
    return min(level + per_s * seconds, per_s * BURST_S)
