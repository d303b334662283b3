"""
How far every mirrored topic-partition is, and what of that the positions topic holds.

A state changes only through `core.source`; what changed is kept here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping

import attrs

from mm2py.clock import Clock
from mm2py.config.connector import MirrorSourceConfig
from mm2py.connectors.source.holders import Holders
from mm2py.connectors.topics.remote_topics import Mirrored
from mm2py.core.source import due, progress
from mm2py.core.source.due import RemotePartition
from mm2py.core.source.progress import PartitionState
from mm2py.core.source.states import PartitionStates
from mm2py.core.transform.matching import TopicTransforms
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides
from mm2py.model.positions import Position


class Ledger:
    """The states of one flow's partitions. What is no longer mirrored keeps its own until it is written."""

    def __init__(self, config: MirrorSourceConfig, transforms: TopicTransforms, holders: Holders, clock: Clock) -> None:
        self.states = PartitionStates()
        #: Those whose position may differ from what the positions topic holds.
        self._unwritten = self.states.changes()
        #: Where the partitions go that are mirrored now.
        self.places: Mapping[TopicPartition, RemotePartition] = {}
        #: Set when a partition waits for a position of its own to be written: see `unfenced`.
        self.has_unfenced = asyncio.Event()
        #: How many source topics these belong to, and of how many it is not known yet where they begin.
        self.topics = self.unbegun = 0
        #: How many partitions have begun where another life or another node stood.
        self.taken_over = 0
        #: What operators ask for.
        self.overrides: Overrides = NO_OVERRIDES
        #: Those that are to be planned at once when their pause is over.
        self.pausing: set[TopicPartition] = set()
        self._is_exactly_once = config.copying.is_exactly_once
        self._transforms = transforms
        self._holders = holders
        self._clock = clock
        self._in_order: list[TopicPartition] = []
        self._forgotten_records = 0
        self._committed: set[TopicPartition] = set()

    # What is mirrored.

    def unknown(self, mirrored: Mirrored) -> dict[TopicPartition, RemotePartition]:
        """Return those of the mirrored partitions that have no state yet."""
        return {partition: place for partition, place in mirrored.places.items() if partition not in self.states}

    def gained(self, mirrored: Mirrored) -> list[TopicPartition]:
        """Return those of the mirrored partitions that are to be copied here, and were not adopted yet."""
        return [it for it in mirrored.places if it not in self.places and self._holders.is_ours(it)]

    def adopt(
        self, mirrored: Mirrored, positions: Mapping[TopicPartition, Position], unwritten: Collection[TopicPartition]
    ) -> None:
        """Keep the partitions of *mirrored* from now on; new ones begin at *positions*, even *unwritten* ones."""
        if mirrored.places.keys() != self.places.keys():
            self._in_order = sorted(mirrored.places)
            self.topics = len({partition.topic for partition in mirrored.places})
        self.places = mirrored.places
        for partition, place in mirrored.places.items():
            state = self.states.get(partition)
            if state is None and partition in positions:
                is_written = partition not in unwritten
                state = due.begin(positions[partition], place, is_written=is_written)
                self.taken_over += is_written
            if state is not None:
                is_transformed = self._transforms.has_task(partition.topic)
                self.states[partition] = due.put(state, place, is_transformed=is_transformed)
        self.unbegun = len(self.unknown(mirrored))
        self.has_unfenced.set()

    def let_go(self, mirrored: Mirrored) -> list[Position]:
        """
        Drop partitions that neither the last refresh nor this one found, once all is written; return their positions.

        Topics come and go under ever new names. One that is there again begins at its position, as after a restart.
        """
        now = self._clock.monotonic()
        gone = [self.states[it] for it in self.states.keys() - self.places.keys() - mirrored.places.keys()]
        free = [state for state in gone if state.quiet_until <= now and not self._holders.is_held(state.source)]
        written = [
            # Brokers forget its producer, however long it stays away.
            attrs.evolve(state.written, written_ms=state.produced_ms)
            for state in free
            if state.written is not None and state.written == state.standing
        ]
        # What never had a position was never copied.
        self.forget([*(it.source for it in written), *(state.source for state in free if state.written is None)])
        return written

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop what is known of *partitions*, which are gone, or which another node copies from now on."""
        for source in partitions:
            state = self.states.drop(source)
            self._forgotten_records += state.records if state is not None else 0
            self.pausing.discard(source)

    @property
    def records(self) -> int:
        """How many records were copied, of partitions that are gone, too."""
        return self._forgotten_records + sum(state.records for state in self.states.values())

    async def until_quiet(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until no lost epoch can write any of *partitions* any more."""
        quiet = max((self.states[it].quiet_until for it in partitions if it in self.states), default=0.0)
        await self._clock.sleep(max(0.0, quiet - self._clock.monotonic()))

    def mirrored(self) -> list[PartitionState]:
        """Return the partitions that are mirrored now, in order."""
        return [state for state in map(self.states.get, self._in_order) if state is not None]

    def is_wanted(self, source: TopicPartition) -> bool:
        """Whether a partition is mirrored and not paused."""
        return source in self.places and not self.overrides.is_paused(source)

    def notable(self, *, beside: Iterable[TopicPartition] = ()) -> tuple[PartitionState, ...]:
        """Return the wanted partitions that may need more than to be copied, and those *beside*, in order."""
        named = sorted({*self.states.notable, *beside})
        return tuple(self.states[source] for source in named if source in self.states and self.is_wanted(source))

    def of_topic(self, topic: str) -> tuple[PartitionState, ...]:
        """Return the mirrored partitions of a source topic."""
        return tuple(state for state in self.mirrored() if state.source.topic == topic)

    # Positions.

    def unfenced(self) -> tuple[PartitionState, ...]:
        """Return those partitions that may not be planned before their position is written: see `Positions.fence`."""
        found = [state for state in self.states.of_notable() if not (state.is_fenced or state.is_questioned)]
        free = (it for it in found if it.source in self.places and not self._holders.is_held(it.source))
        return tuple(sorted(free, key=lambda state: state.source))

    def renew(self, sources: Iterable[TopicPartition]) -> None:
        """Have producers replaced that brokers may have forgotten."""
        wall_ms = self._clock.wall_ms()
        for source in sources:
            state = self.states[source]
            if state.produced_ms is None and state.producer is not None:
                self.states[source] = attrs.evolve(state, produced_ms=wall_ms)  # its position has just been written
            elif (renewed := progress.renew(state, wall_ms=wall_ms)) is not state:
                self.states[source] = renewed

    def is_new(self, source: TopicPartition) -> bool:
        """Whether a partition is to be copied here and has no position yet: another node may begin it meanwhile."""
        state = self.states.get(source)
        return state is not None and state.written is None

    def take_over(self, asked: Iterable[PartitionState], fenced: Iterable[Position]) -> list[Position]:
        """Take over the positions of other nodes whose claims came before those of this one, for states as *asked*;
        return them.
        """
        taken = []
        before = {state.source: state.standing for state in asked}
        for position in fenced:
            state = self.states.get(position.source)  # another node may have it by now
            if state is None or state.standing != before[state.source]:
                continue
            if attrs.evolve(state.standing, producer=position.producer) != position:
                self.states[state.source] = due.take_over(state, position)
                taken.append(position)
        return taken

    def note_unfenced(self, states: Iterable[PartitionState], failure: PartitionFailure) -> None:
        """Note why the positions of *states* could not be written."""
        for source in (state.source for state in states if state.source in self.states):
            self.states[source] = progress.hold_back(self.states[source], failure, now=self._clock.monotonic())

    def due_positions(self, *, is_interval_over: bool) -> tuple[Position, ...]:
        """Return the positions to be written now."""
        states: Iterable[PartitionState] = self.states.of_notable()
        if is_interval_over:
            states = [self.states[it] for it in self._unwritten if it in self.states]
            states = [state for state in states if state.standing != state.written]
            self._unwritten.clear()
            self._unwritten.update(dict.fromkeys(state.source for state in states))
        return due.due_positions(states, is_interval_over=is_interval_over, is_exactly_once=self._is_exactly_once)

    def note_written(self, positions: Iterable[Position]) -> None:
        """Note that the positions topic holds *positions*."""
        for position in positions:
            if position.source in self.states:  # another node may have it by now
                self.states[position.source] = due.write(self.states[position.source], position)

    def note_committed(self, state: PartitionState) -> None:
        """Note that the position of *state* was committed in a transaction, with the records."""
        self.note_written([state.standing])
        self._committed.add(state.source)

    def take_committed(self) -> set[TopicPartition]:
        """Return those partitions whose position was committed since this was last asked."""
        committed, self._committed = self._committed, set()
        return committed
