"""When the checkpoint group has its rounds, without clusters."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from mm2py.flow.checkpoint.checkpoints import Round
from mm2py.flow.checkpoint.group import CheckpointGroup
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, flow_context


async def test_rounds_become_rarer_the_longer_translations_are_not_ready() -> None:
    """The usual interval is reached, because a round asks for the offsets of all groups; later ones begin again."""
    clock = LoopClock()
    group = CheckpointGroup(flow_context(clock, EventLog(clock)), forward=cast("Any", None), way_back=cast("Any", None))
    interval_s = SETTINGS.checkpoints.emit_interval_s
    unready, begun = [True] * 9 + [False] + [True] * 2, list[float]()

    async def emit(_: object) -> None:
        group._round = Round({}, {}, is_ready=not unready[len(begun)])
        begun.append(clock.monotonic())

    group._emit = emit  # type: ignore[method-assign]
    with suppress(IndexError):
        await group._emit_forever(cast("Any", None))
    pauses = [later - earlier for earlier, later in pairwise(begun)]

    assert pauses == [1, 2, 4, 8, 16, 32, *[interval_s] * 4, 1]
