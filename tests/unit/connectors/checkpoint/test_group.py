"""When the checkpoint group has its rounds, without clusters."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import attrs
import pytest

from mm2py.connectors.checkpoint.checkpoints import Round
from mm2py.connectors.checkpoint.group import CheckpointGroup
from mm2py.model.group import GroupListing, GroupType
from mm2py.telemetry.events import StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.groups.consumer_groups import ListedGroups
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, changed, checkpoint_context


async def test_rounds_become_rarer_the_longer_translations_are_not_ready() -> None:
    """The usual interval is reached, because a round asks for the offsets of all groups; later ones begin again."""
    clock = LoopClock()
    group = CheckpointGroup(
        checkpoint_context(clock, EventLog(clock)), forward=cast("Any", None), way_back=cast("Any", None)
    )
    interval_s = SETTINGS.checkpoint_connector.emit_interval_s
    unready, begun = [True] * 9 + [False] + [True] * 2, list[float]()

    async def emit(_: object) -> None:
        group._round = Round({}, {}, is_ready=not unready[len(begun)])
        begun.append(clock.monotonic())

    group._emit = emit  # type: ignore[method-assign]
    with suppress(IndexError):
        await group._emit_forever(cast("Any", None))
    pauses = [later - earlier for earlier, later in pairwise(begun)]

    assert pauses == [1, 2, 4, 8, 16, 32, *[interval_s] * 4, 1]


class ChoosyFilter:
    """A filter of one's own that does not expect every name."""

    def takes_group(self, group: str) -> bool:
        return int(group.partition("-")[2]) > 0


@attrs.define
class _Listed:
    """Consumer groups of a cluster."""

    names: tuple[str, ...]

    async def list_groups(self) -> ListedGroups:
        return ListedGroups({name: GroupListing(name, GroupType.CLASSIC, "consumer") for name in self.names})


async def test_a_custom_filter_that_fails_stops_no_group(events: EventLog) -> None:
    """A group that it does not expect is reported, once; those that are followed already stay so."""
    chosen = attrs.evolve(SETTINGS.checkpoint_connector, group_filter_class=f"{__name__}.ChoosyFilter")
    context = checkpoint_context(LoopClock(), events, changed(SETTINGS, checkpoint_connector=chosen))
    group = CheckpointGroup(context, forward=cast("Any", None), way_back=cast("Any", None))
    listed = _Listed(("g-1", "g-0"))
    await group._refresh(cast("Any", listed))
    listed.names = ("g-1", "g-0", "g")
    refreshing = asyncio.create_task(group._refresh_forever(cast("Any", listed)))
    await asyncio.sleep(3 * chosen.refresh_interval_s)

    assert (refreshing.done(), group._followed) == (False, ("g-1",))
    assert ["ChoosyFilter" in event.error for event in events.of(StepFailed)] == [True]
    refreshing.cancel()


@pytest.mark.parametrize(("refresh_enabled", "expected"), [(True, ["g-1", "g-2"]), (False, ["g-1"])])
async def test_groups_are_listed_every_half_minute_or_when_an_operator_asks(
    events: EventLog, *, refresh_enabled: bool, expected: list[str]
) -> None:
    """A file that switches it off is followed; an operator's request is carried out all the same."""
    chosen = attrs.evolve(SETTINGS.checkpoint_connector, refresh_enabled=refresh_enabled)
    context = checkpoint_context(LoopClock(), events, changed(SETTINGS, checkpoint_connector=chosen))
    group = CheckpointGroup(context, forward=cast("Any", None), way_back=cast("Any", None))
    listed = _Listed(("g-1",))
    await group._refresh(cast("Any", listed))
    refreshing = asyncio.create_task(group._refresh_forever(cast("Any", listed)))
    listed.names = ("g-1", "g-2")
    await asyncio.sleep(31)
    found = [*group._followed]
    listed.names = ("g-1", "g-2", "g-3")
    group.refresh()
    await asyncio.sleep(1)
    refreshing.cancel()

    assert found == expected
    assert group._followed == ("g-1", "g-2", "g-3")
