"""
Rate limits as they travel: what a copy task may take of each limit in an epoch, and what it took.

A limit is a bucket of tokens. They come at `per_s`; what is taken may leave it below zero, because no batch is cut.
"""

from __future__ import annotations

import enum

import attrs


class Unit(enum.Enum):
    """What a limit counts."""

    BYTES = "bytes"
    RECORDS = "records"


@attrs.frozen
class Metered:
    """What a limit is about: a topic at the source, or all of a flow, whose name is empty."""

    topic: str
    unit: Unit


@attrs.frozen
class RateShare:
    """A copy task's part of a limit in one epoch. `level` is what its bucket holds at first; below zero is a debt."""

    of: Metered
    per_s: float
    level: float = 0.0


@attrs.frozen
class RateUse:
    """What an epoch took of its part, what is in the bucket at its end, and how long it was held up for that."""

    of: Metered
    used: float
    level: float
    waited_s: float
