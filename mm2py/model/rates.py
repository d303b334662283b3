"""
Rate limits in plans and outcomes: a copy task's share of each limit in an epoch, and its usage.

A limit is a bucket of tokens. Tokens arrive at `per_s`; usage may leave it below zero, because batches are never split.
"""

from __future__ import annotations

import enum

import attrs


class Unit(enum.Enum):
    """The unit of a limit."""

    BYTES = "bytes"
    RECORDS = "records"


@attrs.frozen
class Metered:
    """The scope of a limit: a topic at the source, or the whole flow, with an empty name."""

    topic: str
    unit: Unit


@attrs.frozen
class RateShare:
    """A copy task's part of a limit in one epoch. `level` is the bucket's initial content; negative means debt."""

    of: Metered
    per_s: float
    level: float = 0.0


@attrs.frozen
class RateUse:
    """An epoch's usage of its share, the bucket's content at its end, and how long it was throttled."""

    of: Metered
    used: float
    level: float
    waited_s: float
