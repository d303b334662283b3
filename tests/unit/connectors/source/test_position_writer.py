"""In which order positions are written."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import cast

import attrs
import pytest

from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.source.position_writer import PositionWriter
from mm2py.connectors.source.positions import Positions
from mm2py.core.source.progress import PartitionState
from mm2py.model.positions import Position
from tests.support.flow_rig import source_context
from tests.support.source_tasks import running


_ANOTHER = "another-topic-of-names"


class SlowLog:
    """The positions topic, where each write takes two seconds."""

    def __init__(self) -> None:
        self.written: list[Position] = []

    async def ready(self) -> None: ...

    async def write(self, positions: Collection[Position], _before: object = ()) -> None:
        await asyncio.sleep(2)
        self.written += positions

    async def fence(self, states: Collection[PartitionState]) -> tuple[Position, ...]:
        await asyncio.sleep(2)
        await self.write([state.standing for state in states])
        return ()


@pytest.mark.parametrize("is_fence", [True, False], ids=["it begins", "it is due"])
async def test_what_was_decided_stands_over_what_is_being_written(
    monkeypatch: pytest.MonkeyPatch, *, is_fence: bool
) -> None:
    """
    The position of a topic's former self is being written, or falls due, as a topic that was created again begins.

    Written last it would be read after a crash, and with `copy.on.source.recreated = latest` what came since skipped.
    """
    log = SlowLog()
    async with running(partitions=1, tasks_max=1) as group:
        tasks, translations = group.tasks, Translations(flow_runs=10, partition_runs=10)
        context = source_context(tasks._clock, group.events)
        writer = PositionWriter(context, tasks, cast("Positions", log), translations, logs=())
        await asyncio.sleep(10)
        (state,) = tasks.ledger.states.values()
        monkeypatch.setattr(tasks.ledger, "unfenced", lambda: (state,))
        monkeypatch.setattr(tasks.ledger, "due_positions", lambda **_: (tasks.ledger.states[state.source].standing,))
        position = Position(state.source, 0, 41, _ANOTHER)

        async def decide() -> None:
            await writer.start_over([position], [state.source])
            tasks.ledger.states[state.source] = attrs.evolve(state, position=0, downstream=41, topic_id=_ANOTHER)

        steps = [writer.fence(), decide()] if is_fence else [decide(), writer.write(is_interval_over=True)]
        async with asyncio.TaskGroup() as writing:
            for step in steps:
                writing.create_task(step)
                await asyncio.sleep(1)

    assert [it.topic_id for it in log.written] == (["id-1", _ANOTHER] if is_fence else [_ANOTHER, _ANOTHER])
