"""What a flow does again and again, such as a write of its positions: how long that takes, and how often it fails."""

from __future__ import annotations

import attrs


@attrs.frozen
class RoundsView:
    """
    Rounds since the daemon started; `count` are those that succeeded, `ended_ms` is the wall time of the last one.

    Times are those of the rounds of about the last minute, or of the last one if none ended since; None before the
    first. `failed` is which part of the rounds of the last minute failed, or 0 or 1 by the last one; None before the
    first.
    """

    count: int = 0
    is_under_way: bool = False
    ended_ms: int | None = None
    avg_ms: float | None = None
    max_ms: float | None = None
    failed: float | None = None


NO_ROUNDS = RoundsView()
