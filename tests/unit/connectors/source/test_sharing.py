"""What the source group copies of what is mirrored, without clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import attrs

from mm2py.config.settings import FlowSettings
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.connectors.source.sharing import ShareKeeper
from mm2py.connectors.topics.remote_topics import Mirrored
from mm2py.core.offsets.translation import Precision, Translated
from mm2py.core.source import due
from mm2py.core.source.due import RemotePartition
from mm2py.core.source.progress import PartitionState
from mm2py.errors import ClusterUnreachableError
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.share import ALL_SLOTS, Share, slot_of
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk
from mm2py.model.transform import FlowTransforms, TopicRule, Transform
from mm2py.telemetry.events import ClusterRecovered, PositionsRead
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, changed, source_context
from tests.support.source_tasks import PretendedEpochs, mirrored, positions


class Stored:
    """The positions topic; what is new begins at 0."""

    def __init__(self, known: Mapping[TopicPartition, Position]) -> None:
        self.known = dict(known)
        self.reads = 0

    async def take_over(self, places: Mapping[TopicPartition, RemotePartition]) -> bool:  # noqa: ARG002
        return False  # no other connector has copied any

    async def begin(self, places: Mapping[TopicPartition, RemotePartition]) -> dict[TopicPartition, Position]:
        return {it: Position(it, 0, -1, place.topic_id) for it, place in places.items()}

    async def follow(self) -> tuple[KeptChunk, ...]:
        self.reads += 1
        return ()


class NothingBegins(Stored):
    """No partition has a leader that could be asked where it starts."""

    async def begin(self, places: Mapping[TopicPartition, RemotePartition]) -> dict[TopicPartition, Position]:  # noqa: ARG002
        return {}


class Rig:
    """A `ShareKeeper` of this node's share of what *look* has."""

    def __init__(self, look: Mirrored, next_upstream: int, settings: FlowSettings = SETTINGS) -> None:
        clock = LoopClock()
        self.events = EventLog(clock)
        self.context = context = source_context(clock, self.events, settings)
        self.stored = Stored(positions(look, next_upstream))
        self.tasks = SourceTasks(context, PretendedEpochs())
        self.translations = Translations(flow_runs=100, partition_runs=100)
        self.topics = SimpleNamespace(latest=look)
        self.measures = FlowMeasures(clock)
        self.keeper = ShareKeeper(
            context,
            cast("Any", None),
            topics=cast("Any", self.topics),
            positions=cast("Any", self.stored),
            tasks=self.tasks,
            writer=cast("Any", None),
            translations=self.translations,
            measures=self.measures,
            is_over=lambda: False,
        )

    def begin_again(self, source: TopicPartition, position: Position) -> None:
        """Have the history of a partition found broken, and its new position stored."""
        self.stored.known[source] = position
        state: PartitionState = due.begin(position, RemotePartition("A.t", None, 1_048_588))
        self.tasks.ledger.states[source] = state
        self.keeper.begin_again(state)


async def test_a_history_that_breaks_while_topics_are_adopted_keeps_its_new_translations() -> None:
    """
    Adopting tens of thousands of partitions leaves others their turn between its steps.

    In any of them a topic is found to be another one: what was known of the former one must not come back.
    """
    look = mirrored(0, topic_id="id-1")
    [source] = look.places
    for turns in range(6):
        rig = Rig(look, next_upstream=100)
        await rig.keeper.adopt(look)
        again = attrs.evolve(rig.stored.known[source], next_upstream=0, downstream=149, topic_id="id-2")
        adopting = asyncio.ensure_future(rig.keeper.adopt(look))
        for _ in range(turns):
            await asyncio.sleep(0)
        rig.begin_again(source, again)
        await adopting

        assert rig.translations.downstream(source, 0) == Translated(150, Precision.EXACT)
        assert rig.tasks.ledger.states[source].position == 0


async def test_what_was_learnt_of_a_new_topic_stays_while_its_former_position_is_stored() -> None:
    """Where a source topic that was created again was compared with its copy, its position is stored only later."""
    look = mirrored(0, topic_id="id-1")
    [source] = look.places
    rig = Rig(look, next_upstream=100)
    await rig.keeper.adopt(look)
    former = rig.stored.known[source]
    rig.begin_again(source, attrs.evolve(former, next_upstream=50, downstream=149, topic_id="id-2"))
    rig.stored.known[source] = former
    await rig.keeper.adopt(look)

    assert rig.translations.downstream(source, 50) == Translated(150, Precision.EXACT)


async def test_only_what_this_node_copies_goes_on() -> None:
    """
    The limit of a remote topic has changed, and partitions go on with it.

    Where other nodes of the flow copy partitions of the topic, their positions are known here, too: a partition that
    begins at one of those is copied by two nodes.
    """
    look = mirrored(*range(8))
    rig = Rig(look, next_upstream=100)
    rig.tasks.holders.share = attrs.evolve(rig.tasks.holders.share, slots=frozenset({slot_of(TopicPartition("t", 3))}))
    await rig.keeper.adopt(look)
    wider = {it: attrs.evolve(place, max_message_bytes=9) for it, place in look.places.items()}
    rig.topics.latest = attrs.evolve(look, places=wider)
    rig.keeper.go_on()

    copied = [state.source.partition for state in rig.tasks.ledger.mirrored() if state.max_message_bytes == 9]
    assert copied == sorted(state.source.partition for state in rig.tasks.ledger.states.values())
    assert 3 in copied
    assert len(copied) < len(look.places)


async def test_slots_that_come_before_a_copy_task_wait_for_it() -> None:
    """
    Another node has released its slots and a record task, and not yet its copy task.

    Nothing of the slots' partitions is claimed or written here meanwhile; once the copy task comes, they go on.
    """
    records = TopicRule("u", Transform("transform.u.sql", sql="SELECT * FROM records"))
    plain, transformed = mirrored(0, 1), mirrored(0, topic="u")
    look = attrs.evolve(plain, places={**plain.places, **transformed.places})
    rig = Rig(look, 100, changed(SETTINGS, transforms=FlowTransforms((records,))))
    rig.tasks.holders.share = Share(is_owner=False, tasks=frozenset({0}))
    found = []
    for tasks in ({0}, {0, 2}):
        await rig.keeper.apply(Share(is_owner=False, tasks=frozenset(tasks), slots=ALL_SLOTS))
        found.append((set(rig.tasks.ledger.states), dict(rig.tasks.holders.owners)))

    of_records = dict.fromkeys(transformed.places, 0)
    assert found[0] == (set(of_records), of_records)
    assert found[1] == (set(look.places), {**of_records, **dict.fromkeys(plain.places, 2)})
    assert {state.position for state in rig.tasks.ledger.states.values()} == {100}


async def test_a_share_that_is_taken_makes_no_recovery_of_the_source() -> None:
    """Another node has left while the source is away. Where its partitions go on is known from the target alone."""
    rig = Rig(mirrored(0), 100)
    rig.context.reach.failed("refresh topics", ClusterUnreachableError("A", "a:9092", "connection refused"))
    await asyncio.sleep(60)
    rig.tasks.holders.share = attrs.evolve(everything := rig.tasks.holders.share, tasks=frozenset())
    await rig.keeper.apply(everything)

    assert set(rig.tasks.ledger.states) == {TopicPartition("t", 0)}
    assert rig.events.of(ClusterRecovered) == ()


async def test_a_node_with_all_slots_follows_one_that_has_a_record_task() -> None:
    """Two nodes share a flow of a transform and one copy task, which has all slots: each of them has one task."""
    records = TopicRule("u", Transform("transform.u.sql", sql="SELECT * FROM records"))
    rig = Rig(mirrored(0), 100, changed(SETTINGS, transforms=FlowTransforms((records,))))
    following = asyncio.ensure_future(rig.keeper.run())
    holders, reads = rig.tasks.holders, list[int]()
    everything = holders.share
    for share in (everything, attrs.evolve(everything, tasks=everything.tasks - {0})):
        holders.share = share
        await asyncio.sleep(6)
        reads.append(rig.stored.reads)
    following.cancel()

    assert reads == [0, 1]


async def test_what_is_gone_is_let_go_once_it_is_written() -> None:
    """
    Topics come and go for weeks, under ever new names.

    What is known of one is kept while something of it is not written, and until a second refresh does not find it. It
    begins at its position if it is there again, which a transaction may have written.
    """
    both, left = mirrored(0, 1), mirrored(0)
    [_, gone] = both.places
    rig = Rig(both, next_upstream=100)
    found, measured = [], []
    rig.measures.look(due.begin(rig.stored.known[gone], both.places[gone]))
    for look in (both, left, left, left):
        await rig.keeper.adopt(look)
        found.append(gone in rig.tasks.ledger.states)
        measured.append(gone in rig.measures._partitions)
        if len(found) == 2:
            rig.tasks.ledger.states[gone] = attrs.evolve(
                rig.tasks.ledger.states[gone], position=150, downstream=149, produced_ms=1_000
            )
        if len(found) == 3:
            rig.tasks.ledger.note_committed(rig.tasks.ledger.states[gone])
    rig.tasks.ledger.pausing.add(gone)
    records = rig.tasks.ledger.records
    await rig.keeper.adopt(both)

    assert found == measured == [True, True, True, False]
    assert rig.tasks.ledger.states[gone].position == 150
    assert rig.tasks.ledger.states[gone].produced_ms == 1_000  # what brokers may have forgotten by now is renewed
    assert records == 0


async def test_what_goes_before_its_first_position_is_let_go() -> None:
    """A topic is deleted in the seconds before the mirror has written where it begins: nothing will ever be written."""
    rig = Rig(mirrored(0, topic="short-lived"), next_upstream=0)
    rig.stored.known.clear()
    found = []
    for look in (mirrored(0, topic="short-lived"), mirrored(), mirrored()):
        await rig.keeper.adopt(look)
        found.append(len(rig.tasks.ledger.states))

    assert found == [1, 1, 0]
    assert not rig.stored.known


async def test_what_cannot_begin_is_no_news_in_each_refresh() -> None:
    """A partition of the source has no leader for hours: topics are refreshed every few seconds meanwhile. How much is
    left of it to copy is unknown until it begins.
    """
    look = mirrored(0)
    rig = Rig(look, next_upstream=0)
    stored, rig.keeper._positions = rig.keeper._positions, cast("Any", NothingBegins({}))
    for _ in range(3):
        assert not (await rig.keeper.adopt(look)).is_settled
    read, unbegun = rig.keeper._context.events.of(PositionsRead), rig.tasks.ledger.unbegun
    rig.keeper._positions = stored
    await rig.keeper.adopt(look)

    assert not read
    assert (unbegun, rig.tasks.ledger.unbegun) == (1, 0)
