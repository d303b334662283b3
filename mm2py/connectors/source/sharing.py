"""What of a flow the source group copies on this node, where the flow's nodes share its tasks.

A share changes while everything else is copied. What this node loses is returned by its tasks between two epochs, and
its positions are written, before it is released. What it gains begins at the positions that the other node wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container

import attrs

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.offsets.translations import Translations, chunk_record
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.connectors.source.position_writer import PositionWriter
from mm2py.connectors.source.positions import CopiedHere, Positions
from mm2py.connectors.source.transactions import end_open_transactions
from mm2py.connectors.task_group import GroupRequests
from mm2py.connectors.topics.remote_topics import Mirrored, Topics
from mm2py.core.source.progress import PartitionState
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import Share
from mm2py.model.run_chunk import KeptChunk
from mm2py.telemetry.events import PositionsRead
from mm2py.wire.cluster import Cluster


#: How often the owner reads what other nodes wrote.
_FOLLOW_EVERY_S = 5.0
#: Pause between attempts to write the positions of what is to be released.
_RETRY_S = 0.5


class ShareKeeper(BackgroundLoop):
    """Has one life of the source group copy our share of what is mirrored, also when it changes."""

    #: Its name as a loop beside the copying, which follows what other nodes copy.
    name = "other-nodes"
    is_for_owner = True

    def __init__(
        self,
        context: SourceContext,
        target: Cluster,
        *,
        topics: Topics,
        positions: Positions,
        tasks: SourceTasks,
        writer: PositionWriter,
        translations: Translations,
        measures: FlowMeasures,
        is_over: Callable[[], bool],
    ) -> None:
        """Create one; *is_over* says whether the life ends, and writing is no use any more."""
        self._context = context
        self._clock = context.clock
        self._target = target
        self._topics = topics
        self._positions = positions
        self._tasks = tasks
        self._writer = writer
        self._translations = translations
        self._measures = measures
        self._is_over = is_over

    async def adopt(self, mirrored: Mirrored) -> Mirrored:
        """Hand our share of the mirrored partitions to the source tasks; say whether a start is known for each."""
        tasks, positions, everything = self._tasks, self._positions, mirrored.places
        ours = {it: place for it, place in everything.items() if tasks.holders.is_ours(it)}
        mirrored = attrs.evolve(mirrored, places=ours)
        # Tens of thousands of partitions take their time: others have a turn of the event loop between two steps.
        await self._clock.sleep(0)
        tasks.limits.take_part(ours, everything)
        self._measures.missing_topics, self._measures.unmatched = mirrored.missing, mirrored.unmatched
        self._measures.heartbeats = mirrored.heartbeats
        positions.known |= {position.source: position for position in tasks.ledger.let_go(mirrored)}
        self._measures.keep(everything.keys() | tasks.ledger.states.keys())
        unknown = tasks.ledger.unknown(mirrored)
        if await positions.take_over(unknown):
            await self.follow()
        fresh = await positions.begin(
            {partition: place for partition, place in unknown.items() if partition not in positions.known}
        )
        for partition in fresh:
            self._translations.forget(partition)  # an operator removed its position: it may be another topic's
        await self._clock.sleep(0)
        # What is known is taken in the turn in which it is used: a history may be found broken in the one before.
        remote_of = {it: place.remote_topic for it, place in everything.items()}
        # What is copied here is ahead of its stored position, which may even be of a former topic of the name.
        stored = {
            it: at
            for it, at in {**positions.known, **fresh}.items()
            if (state := tasks.ledger.states.get(it)) is None
            or not at.is_of_others(state.topic_id, state.remote_topic_id)
        }
        self._translations.adopt(stored, remote_of)
        await self._clock.sleep(0)
        tasks.adopt(mirrored, {**positions.known, **fresh}, unwritten=fresh)
        left = tasks.ledger.unknown(mirrored)
        found = len(unknown) - len(fresh) - len(left)
        if found or fresh:
            self._context.events.emit(PositionsRead(self._context.flow, found, len(fresh)))
        return attrs.evolve(mirrored, is_settled=mirrored.is_settled and not left)

    def begin_again(self, state: PartitionState) -> None:
        """Translate nothing by what was known of a partition whose history broke."""
        self._translations.forget(state.source)
        self._translations.adopt({state.source: state.standing}, {state.source: state.remote_topic})

    def go_on(self) -> None:
        """Copy what is copied already and is in our share, to where the topics' latest look says."""
        tasks, latest = self._tasks, self._topics.latest
        ours = {it for it in tasks.ledger.states if tasks.holders.is_ours(it)}
        tasks.adopt(attrs.evolve(latest, places={it: at for it, at in latest.places.items() if it in ours}), {})

    async def apply(self, share: Share) -> None:
        """Release what is not in *share*, and copy what is new in it."""
        before = self._tasks.holders.share
        self._tasks.holders.share = share
        self._topics.may_act = share.is_owner
        if share.is_owner != before.is_owner:
            self._topics.memory.forget()
        await self._release()
        if not (share - before).is_empty or share.slots - before.slots:
            await self._gain(share.tasks - before.tasks)

    async def _release(self) -> None:
        tasks = self._tasks
        self.go_on()
        lost = [source for source in tasks.ledger.states if not tasks.holders.is_ours(source)]
        if not lost:
            return
        await tasks.holders.until_returned(lost)
        await tasks.ledger.until_quiet(lost)
        while not await self._writer.write(is_interval_over=True) and not self._is_over():
            await self._clock.sleep(_RETRY_S)
        tasks.ledger.forget(lost)

    async def _gain(self, tasks: Collection[int]) -> None:
        # The source is asked only about partitions that have no position yet.
        reach, asked = self._context.reach, [self._context.flow.target]

        async def gain() -> None:
            # A node that vanished may have left a transaction open, or may be about to write.
            await end_open_transactions(self._context.config, self._target, tasks)
            await self.follow()
            await self.adopt(self._topics.latest)

        while not self._is_over() and not await reach.done("take over partitions", asked, gain):
            await self._clock.sleep(_RETRY_S)

    async def follow(self) -> None:
        """Read what other nodes wrote: positions, and where records went, so that their offsets are translated."""
        places = self._topics.latest.places
        chunks: dict[TopicPartition, list[KeptChunk]] = {}
        for chunk in await self._positions.follow():
            chunks.setdefault(chunk.source, []).append(chunk)
        for source, some in chunks.items():
            if source in places and (position := self._positions.known.get(source)) is not None:
                self._translations.renew(source, some, position, places[source].remote_topic)

    async def run(self) -> None:
        """Follow the other nodes, where there are any."""
        while True:
            await self._clock.sleep(_FOLLOW_EVERY_S)
            if not self._tasks.holders.is_alone:
                await self._context.reach.done("follow other nodes", [self._context.flow.target], self.follow)


def copied_here(
    context: SourceContext,
    tasks: SourceTasks,
    translations: Translations,
    *,
    mirrored: Callable[[], Container[TopicPartition]],
    has_applied: Callable[[], bool],
    requests: GroupRequests,
) -> CopiedHere:
    """Return what positions have to know of a life: *mirrored* returns what the flow mirrors, and *has_applied* whether
    nothing beyond this node's share is held.
    """
    flow, name, ledger, holders = context.flow, context.config.name, tasks.ledger, tasks.holders

    def keeps(it: TopicPartition) -> bool:
        is_known = it in ledger.states
        return not ledger.is_new(it) if is_known else holders.share.is_owner and it not in mirrored()

    return CopiedHere(
        has=lambda it: it in ledger.states and not ledger.is_new(it),
        keeps=keeps,
        beside=lambda: [chunk_record(flow, it, name) for it in translations.everything() if keeps(it.source)],
        committed=lambda: [it.written for it in ledger.states.values() if it.written is not None],
        is_alone=lambda: holders.is_alone and has_applied(),
        is_deposed=lambda: requests.is_deposed,
        on_overtaken=requests.depose,
    )
