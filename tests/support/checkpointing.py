"""A flow's checkpoint group by itself: what was copied is what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import attrs

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.checkpoint.group import CheckpointGroup
from mm2py.connectors.offsets.offset_sync_store import OfConnector, OffsetSyncStore
from mm2py.connectors.offsets.stored_translations import StoredTranslations
from mm2py.connectors.offsets.translations import CopiedTopics, Translations
from mm2py.core.offsets.translation import Precision, Translated, Translation, Untranslated
from mm2py.model.checkpoint import Checkpoint, MalformedCheckpointError, decode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.state import GroupOffsetsView
from mm2py.telemetry.journal import EventLog
from tests.support.eventually import long_enough
from tests.support.flow_rig import checkpoint_context
from tests.support.reading import read_topic
from tests.support.topics import list_topics


_DRAIN_S = 3.0


@attrs.define
class Shift:
    """Translates by adding what the test says, topic by topic; a topic that is left out is not mirrored."""

    by_topic: Mapping[str, int]
    precision: Precision = Precision.EXACT
    why_not: Untranslated | None = None
    #: What came from a topic of another name than the policy tells.
    came_from: Mapping[TopicPartition, TopicPartition] = attrs.field(factory=dict)
    #: Of which topics that is, topic by topic.
    copied: Mapping[str, CopiedTopics] = attrs.field(factory=dict)

    async def refresh(self) -> None:
        """Know all that there is to know."""

    def source_of(self, place: TopicPartition) -> TopicPartition | None:
        return self.came_from.get(place)

    def downstream(self, place: TopicPartition, offset: int) -> Translation:
        if self.why_not is not None:
            return self.why_not
        if place.topic not in self.by_topic:
            return Untranslated.NOT_MIRRORED
        return Translated(max(0, offset + self.by_topic[place.topic]), self.precision)

    upstream = downstream

    def topics_of(self, place: TopicPartition) -> CopiedTopics:
        return self.copied.get(place.topic, CopiedTopics())


NOTHING = Shift({})


def store_of(live: Callable[[], Translations | None], read: Callable[[], StoredTranslations]) -> OffsetSyncStore:
    """Return what is known of a pair with one source connector."""
    return OffsetSyncStore(lambda: {"the only one": OfConnector(live, read)})


@attrs.define
class RunningCheckpoints:
    """A checkpoint group that runs, and what it said."""

    group: CheckpointGroup
    events: EventLog
    task: asyncio.Task[None]

    async def drain(self) -> None:
        """Drain it and wait for its end."""
        self.group.requests.drain(within_s=long_enough(_DRAIN_S))
        await self.task

    def shown(self, group: str) -> GroupOffsetsView:
        """Return the view of a consumer group, an empty one before the first."""
        views = (view for view in self.group.consumer_groups() if view.group == group)
        return next(views, GroupOffsetsView(group))


@asynccontextmanager
async def running_checkpoints(
    settings: FlowSettings, forward: Shift, backward: Shift = NOTHING
) -> AsyncIterator[RunningCheckpoints]:
    """Run the group until the end of the block, where it is cancelled unless it was drained before."""
    clock = SystemClock()
    events = EventLog(clock)
    context = checkpoint_context(clock, events, settings)
    group = CheckpointGroup(
        context, forward=lambda _of, _source, _target: forward, way_back=lambda _source, _policy: backward
    )
    async with asyncio.TaskGroup() as tasks:
        running = RunningCheckpoints(group, events, tasks.create_task(group.run(), name="checkpoints"))
        yield running
        running.task.cancel()


async def checkpoints_in(bootstrap: str, topic: str, group: str) -> list[Checkpoint]:
    """Return every checkpoint of a group in the order in which they were written; none while there is no topic."""
    if topic not in await list_topics(bootstrap):
        return []
    (records,) = (await read_topic(bootstrap, topic)).values()
    found = []
    for record in records:
        with suppress(MalformedCheckpointError):
            found.append(decode_checkpoint(record.key, record.value))
    return [checkpoint for checkpoint in found if checkpoint.group == group]
