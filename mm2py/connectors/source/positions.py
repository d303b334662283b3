"""
Positions, kept on the target cluster in Java MirrorMaker 2's own topic and bytes.

They are read once at start, and all rewritten if their topic is deleted meanwhile. If a topic-partition has none, its
start is written before its first epoch, together with the target's end offset and the producer: only then can a crash
in the first minute be resumed exactly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from operator import attrgetter
from typing import ClassVar, Final

import attrs

from mm2py.connectors.context import SourceContext
from mm2py.connectors.control_writers import NotOpenError
from mm2py.connectors.plugins import transforms_of
from mm2py.connectors.source.left_by_others import taken_from_others
from mm2py.core import internal_topics
from mm2py.core.source.due import RemotePartition
from mm2py.core.source.progress import PartitionState
from mm2py.errors import BrokerAnsweredError, Mm2Error, Verdict
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.foreign import UnreadableRecord
from mm2py.model.group import CommittedOffset
from mm2py.model.positions import Position, encode_position
from mm2py.model.positions_topic import PositionsTopic, decode_stored
from mm2py.model.run_chunk import KeptChunk
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.consumer_groups import Groups
from mm2py.wire.produce import init_producer_id
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topic_log import LogRecord


#: How many positions of a partition are remembered whose writes failed; the log may hold any of them.
_TRIES: Final = 8
_STEP: Final = "begin partitions"
#: How long a leader is awaited of a partition that is to begin: all others that are new would wait as well.
_PATIENCE_S: Final = 3.0
#: After so many records others have a turn of the event loop.
_RECORDS_A_TURN: Final = 500


@attrs.define(eq=False)
class OvertakenError(Mm2Error):
    """Another node wrote the position of a partition that this node copies, and may have copied it."""

    verdict: ClassVar[Verdict] = Verdict.STAND_BY

    cluster: str
    partition: str

    def __str__(self) -> str:
        return f"another node has written the position of {self.partition} at cluster {self.cluster}"


@attrs.frozen
class CopiedHere:
    """What positions have to know of what this node copies."""

    #: Whether this node copies a partition, so that it alone knows where that stands.
    has: Callable[[TopicPartition], bool]
    #: Whether this node writes what the topic lacks of a partition: one that it copies, or that no node does.
    keeps: Callable[[TopicPartition], bool]
    #: Returns what the topic has to hold beside positions, and the positions that others wrote since it was read.
    beside: Callable[[], Sequence[LogRecord]]
    committed: Callable[[], Iterable[Position]]
    #: Whether no other node copies anything.
    is_alone: Callable[[], bool]
    #: Whether another node may have what this one had, and copy it.
    is_deposed: Callable[[], bool]
    #: Called when another node has written a position of what this node copies.
    on_overtaken: Callable[[], None]


#: A node that copies nothing, and writes whatever it is given.
NOTHING_COPIED: Final = CopiedHere(
    has=lambda _: False,
    keeps=lambda _: True,
    beside=tuple,
    committed=tuple,
    is_alone=lambda: False,
    is_deposed=lambda: False,
    on_overtaken=lambda: None,
)


class Positions:
    """
    The positions of one flow. `known` is what the topic holds, as far as this node read or wrote it.

    `runs` is what the topic held beside them when it was read: where records went.
    """

    def __init__(self, context: SourceContext, source: Cluster, target: Cluster, copied: CopiedHere) -> None:
        self._copied = copied
        self._passed_over, self._events, self._reach = context.passed_over, context.events, context.reach
        self._pairs = context.pairs
        self._config = config = context.config
        self._group_id = context.worker.group_id
        self._source = source
        self._target = target
        correct = self._overtaken if config.copying.is_exactly_once else None
        self._writer = context.writers.tasks
        topic = internal_topics.positions(config)
        self.log = CompactedTopic(
            context.flow, target, topic, context.events, self._contents, correct=correct, writer=self._writer
        )
        #: The term of the writer in which the log was read, or compared.
        self._term = 0
        #: What this node tried to write since it last knew that it had: the log may hold it.
        self._tried: dict[TopicPartition, list[Position]] = {}
        self.known: dict[TopicPartition, Position] = {}
        self.runs: tuple[KeptChunk, ...] = ()
        #: What was read of since `follow`.
        self._changed: set[TopicPartition] = set()
        self._removed: set[TopicPartition] = set()
        #: What the log says, as far as it was read, by any node.
        self._stored = PositionsTopic(config.flow.source, config.name)
        self._read_to: dict[int, int] = {}
        self._read_id: str | None = None
        self._reading, self._comparing, self._writing = asyncio.Lock(), asyncio.Lock(), asyncio.Lock()
        #: Where partitions, of topics with these ids, ended that are to begin at their end.
        self._ends: dict[tuple[TopicPartition, str | None], int] = {}
        #: An unused producer id: it is unknown whether the topic has it.
        self._spare: ProducerMark | None = None

    def keeps(self, source: TopicPartition) -> bool:
        """Whether this node writes what the topic lacks of a partition."""
        return self._copied.keeps(source)

    @property
    def of_others(self) -> Mapping[str, Collection[TopicPartition]]:
        """Of which partitions the topic has positions of other connectors, by their names, as far as it was read."""
        return self._stored.of_others

    async def read(self) -> Mapping[TopicPartition, Position]:
        """Read the topic; create it if it is missing."""
        self._term = await self._writer.ready()
        await self.log.ensure()
        self._read_to = {}
        self.known = {}
        self.runs = tuple(await self.follow())
        return self.known

    async def follow(self) -> list[KeptChunk]:
        """
        Read what other nodes wrote since, of partitions that this one does not copy: `known` has the positions.

        Return what is new of where their records went.
        """
        self._passed_over.note(self.log.topic, await self._read_on())
        stored = self._stored
        changed, self._changed = {it for it in self._changed if not self._copied.has(it)}, set()
        # One that a node has claimed a producer for is not copied by the former one: `fence` completes the claim.
        claimed = {it: attrs.evolve(stored.positions[it], producer=None) for it in stored.claims if it in changed}
        unchanged = {it: position for it, position in self.known.items() if it not in changed}
        self.known = {it: position for it, position in stored.positions.items() if it in changed} | claimed | unchanged
        self._removed = stored.removed
        chunks = [chunk for chunk in stored.chunks.values() if not self._copied.has(chunk.source)]
        stored.chunks.clear()
        return chunks

    async def _read_on(self) -> list[tuple[LogRecord, str]]:
        """Read what was written since the last time, by any node; return what cannot be read of it."""
        async with self._reading:
            return await self._read_the_rest()

    async def _read_the_rest(self) -> list[tuple[LogRecord, str]]:
        # After an open transaction of a killed daemon, or of Java's, more may have been written.
        await self.log.await_stable()
        topic_id = self._target.topic_id(self.log.topic)
        if not self._read_to or topic_id != self._read_id:
            self._read_to, self._read_id = {}, topic_id
            self._stored = PositionsTopic(self._config.flow.source, self._config.name)
        strange = []
        async with aclosing(self.log.read_from(self._read_to)) as chunks:
            async for records in chunks:
                for count, record in enumerate(records, 1):
                    if not count % _RECORDS_A_TURN:
                        await self._target.clock.sleep(0)
                    found = self._stored.take(record)
                    if isinstance(found, UnreadableRecord):
                        strange.append((record, found.problem))
                    elif isinstance(found, Position) and found.source in self._stored.positions:
                        self._stored.stamp(found.source, record.timestamp_ms, self.known.get(found.source))
                    self._read_to[record.partition or 0] = (record.offset or 0) + 1
                    match found:
                        case Position(source=source) | KeptChunk(source=source) | (TopicPartition() as source):
                            self._changed.add(source)
        return strange

    async def write(self, positions: Collection[Position], before: Sequence[Sequence[LogRecord]] = ()) -> None:
        """
        Write the records of *before*, step by step, then *positions*, and wait until they are safe.

        Calls take effect in their order: a new position after a broken history is written while tens of thousands of
        others are still being encoded, which may include the former one, and has to come after that in the log.
        """
        async with self._writing:
            records = await self._written_out(positions)
            # Only now, so that another node can hardly have written between that and the append.
            await self.ready()
            self._try(positions)
            await self.log.append_in_order([*before, records])
            self.known |= {position.source: position for position in positions}
            for position in positions:
                self._tried.pop(position.source, None)

    def _try(self, positions: Iterable[Position]) -> None:
        for position in positions:
            self._tried[position.source] = [*self._tried.get(position.source, ())[-_TRIES:], position]

    async def ready(self) -> None:
        """
        Wait until this node may write.

        After a doubt, what the log says is compared first: raise `OvertakenError` if another node wrote meanwhile, and
        `NotOpenError` if one may still: what was begun before, brokers would take under the id of a task given since.
        """
        await self._compare()
        if self._copied.is_deposed():
            raise NotOpenError(self._target.alias, self._group_id)

    async def _compare(self) -> None:
        if await self._writer.ready() == self._term:
            return
        async with self._comparing:
            if (term := await self._writer.ready()) == self._term:
                return
            await self.log.look()  # a topic that was deleted says nothing
            # A write that began before the doubt may end while the log is read: what was read can be from before it.
            before = self._ours()
            await self._read_on()
            after = self._ours()
            for source in self.known:
                ours = [*before.get(source, ()), *after.get(source, ())]
                if self._copied.has(source) and self._stored.positions.get(source) not in ours:
                    self._copied.on_overtaken()
                    raise OvertakenError(self._target.alias, str(source))
            self._term = term

    def _ours(self) -> dict[TopicPartition, list[Position]]:
        """Return what this node may have written last, by partition."""
        committed = {position.source: position for position in self._copied.committed()}
        return {
            source: [known, committed.get(source, known), *self._tried.get(source, ())]
            for source, known in self.known.items()
        }

    async def _contents(self) -> Sequence[LogRecord]:
        standing = {**self.known, **{position.source: position for position in self._copied.committed()}}
        # A position rests on what is known of where records went.
        kept = [position for source, position in standing.items() if self._copied.keeps(source)]
        return [*self._copied.beside(), *self._records(kept)]

    async def _overtaken(self) -> Sequence[LogRecord]:
        """Return the positions of transactions that were followed by an older position."""
        await self.log.await_stable()
        newest: dict[TopicPartition, Position] = {}
        last: dict[TopicPartition, Position] = {}
        for record in await self.log.read_all():
            match decode_stored(record, self._config.name):
                case (self._config.flow.source, Position() as position):
                    source = position.source
                    last[source] = position
                    newest[source] = max(newest.get(source, position), position, key=attrgetter("next_upstream"))
                case _:
                    continue
        return self._records(it for it in newest.values() if last[it.source].next_upstream < it.next_upstream)

    def _records(self, positions: Iterable[Position]) -> list[LogRecord]:
        cluster, name = self._config.flow.source, self._config.name
        return [LogRecord(*encode_position(cluster, position, name)) for position in positions]

    async def _written_out(self, positions: Collection[Position]) -> list[LogRecord]:
        """Return the records of *positions*; others have a turn of the event loop now and then."""
        records, left = list[LogRecord](), list(positions)
        for at in range(0, len(left), _RECORDS_A_TURN):
            records += self._records(left[at : at + _RECORDS_A_TURN])
            await self._target.clock.sleep(0)
        return records

    async def take_over(self, places: Mapping[TopicPartition, RemotePartition]) -> bool:
        """
        Go on with *places* where another connector stood that has copied them since, and leaves them to this one;
        return whether there are such. `follow` has where its records went.

        Its producer is kept: a frozen node that has not learnt of that may still write, and then what both write has
        the same sequences, so that the brokers take it once.
        """
        names = {one.config.name for one in self._pairs.beside(self._config.flow)} - {self._config.name}
        if not places or not (names or self._stored.of_others):
            return False  # no one else writes there
        await self._read_on()
        others = {name for name, its in self._stored.of_others.items() if not its.isdisjoint(places)}
        if not others:
            return False
        records = await self.log.read_all()
        taken = taken_from_others(records, self._config.flow, self._config.name, others, places)
        if taken.positions:
            await self.write(taken.positions, [taken.chunks])
        return bool(taken.positions)

    async def begin(self, places: Mapping[TopicPartition, RemotePartition]) -> dict[TopicPartition, Position]:
        """
        Decide where the topic-partitions that have no position start; `fence` writes that down.

        If an operator removed the position, the partition is copied again, appended to the target. A target
        that holds records although no position was ever written is what a Java MM2 leaves that was killed before its
        first flush: the copier looks for its last records in the source. Those of which an end could not be learnt
        are left out, and asked for again by the next refresh.

        Where they do not start at the source's start (`auto.offset.reset`, `start.timestamp`), that counts only if
        those records are not in the source at all: records after them were never copied. One that has appeared since
        the flow began starts at its own start: all its records have come since.

        Where another mirror kept a consumer group (`copy.start.group`), they start where that group stands. What it
        copied and did not commit yet is found in the target, as above.
        """
        if not places:
            self._report(())
            return {}
        remote_of = {source: TopicPartition(place.remote_topic, source.partition) for source, place in places.items()}
        group = await self._start_group()
        committed = {source: at.offset for source, at in group.items() if source not in self._removed}
        beyond = [source for source in places if source not in committed]
        starts = await self._starts({source: places[source] for source in beyond}) if beyond else {}
        ends = await self._target.list_offsets(list(remote_of.values()), LATEST, patience_s=_PATIENCE_S)
        first = await self._searches(remote_of, ends, committed)
        failed: list[BrokerAnsweredError] = []
        fresh: dict[TopicPartition, Position] = {}
        for source, place in places.items():
            start = committed[source] if source in committed else starts[source]
            end, search = ends[remote_of[source]], first.get(source, start)
            if isinstance(start, int) and isinstance(end, int) and isinstance(search, int):
                downstream = end - 1 if end == 0 or source in self._removed else None
                fresh[source] = Position(
                    source,
                    start,
                    downstream,
                    place.topic_id,
                    remote_topic_id=place.remote_topic_id,
                    search_from=search if search < start else None,
                ).at(place.remote_topic)
            else:
                failed += [next(it for it in (start, end, search) if isinstance(it, BrokerAnsweredError))]
        self._report(failed)
        return fresh

    def _report(self, failed: Sequence[BrokerAnsweredError]) -> None:
        """Report once that partitions cannot begin: nothing else shows them. What is gone, the next refresh tells."""
        failed = [error for error in failed if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        if failed:
            first = min(failed, key=str)
            others = f" and {len(failed) - 1} more" if failed[1:] else ""
            self._reach.failed(_STEP, attrs.evolve(first, detail=first.detail + others))
        else:
            self._reach.answered((), _STEP)

    async def fence(self, states: Collection[PartitionState]) -> list[Position]:
        """
        Write where *states* stand before anything is sent, with a producer that their partitions have not had.

        The log decides which: this node claims one and reads back. Where another node's claim came first, that node's
        position and producer are returned, so that both copy with the same sequences. A partition whose claim cannot be
        read back is left out, and fenced at the next attempt.

        Records of transformed topics are written by others. In exactly-once mode their positions are, too, from the
        first one on: written here, a start that was decided long ago could come after what a transaction committed.
        """
        await self._read_on()
        if self._copied.is_alone():  # `follow` has nothing to tell of what this node wrote itself
            self._changed.clear()
            asked = {state.source for state in states}
            self._stored.chunks = {key: chunk for key, chunk in self._stored.chunks.items() if key[0] in asked}
        copied = [state for state in states if not state.is_transformed]
        claims = [await self._claim(state) for state in copied if self._given(state) is None]
        if claims:
            await self.ready()
            self._try(attrs.evolve(claim, claimed=None) for claim in claims)
            await self.log.append(await self._written_out(claims))
            await self._read_on()
        given = [position for position in map(self._given, copied) if position is not None]
        if len(given) < len(copied):
            self._read_to = {}  # the topic was created again in this moment
        transformed = [state.standing for state in states if state.is_transformed]
        await self.write(given if self._config.copying.is_exactly_once else [*given, *transformed])
        self._spare = None
        return [*given, *transformed]

    def runs_of(self, source: TopicPartition) -> list[KeptChunk]:
        """Return what is new of where the records of a partition went that another node has copied, after a `fence`."""
        return [chunk for chunk in self._stored.chunks.values() if chunk.source == source]

    async def _claim(self, state: PartitionState) -> Position:
        """
        Return the claim of another producer for a partition: the next epoch of the one that it had, or a new id.

        One id is requested for all, whatever their number: sequences count in each partition by themselves.
        """
        before = self._stored.positions.get(state.source)
        producer = before.producer if before is not None else None
        claimed = producer.renewed() if producer is not None else None
        if claimed is None:
            claimed = self._spare = self._spare or await init_producer_id(self._target, for_topic=self.log.topic)
        return attrs.evolve(state.standing, producer=producer, claimed=claimed)

    def _given(self, state: PartitionState) -> Position | None:
        """Return the position with the producer that the log gives a partition; None if that must be claimed yet."""
        claim, stored = self._stored.claims.get(state.source), self._stored.positions.get(state.source)
        if claim is not None:
            return attrs.evolve(claim, producer=claim.claimed, claimed=None)
        known = state.written.producer_identity if state.written is not None else None
        is_new = stored is not None and stored.producer is not None and stored.producer_identity != known
        return stored if is_new else None

    async def _starts(
        self, places: Mapping[TopicPartition, RemotePartition]
    ) -> Mapping[TopicPartition, int | BrokerAnsweredError]:
        """Return where partitions without a position start by the settings."""
        copying = self._config.copying
        if copying.start_timestamp_ms is not None:
            return await self._source.offsets_since(places, copying.start_timestamp_ms, patience_s=_PATIENCE_S)
        is_latest = copying.auto_offset_reset == "latest"
        skipped = [it for it, place in places.items() if is_latest and not place.has_appeared]
        whole = places.keys() - skipped
        starts = await self._source.list_offsets(whole, EARLIEST, patience_s=_PATIENCE_S) if whole else {}
        if skipped:
            committed = self._config.limits.reads_committed
            ends = await self._source.list_offsets(skipped, LATEST, reads_committed=committed, patience_s=_PATIENCE_S)
            starts |= {it: self._first_end(it, places[it], end) for it, end in ends.items()}
        return starts

    def _first_end(
        self, source: TopicPartition, place: RemotePartition, end: int | BrokerAnsweredError
    ) -> int | BrokerAnsweredError:
        """Return where a partition ended when it was first asked: what came since, while it could not begin, is new."""
        if isinstance(end, BrokerAnsweredError):
            return end
        self._ends[source, place.topic_id] = first = min(end, self._ends.get((source, place.topic_id), end))
        return first

    async def _searches(
        self,
        remote_of: Mapping[TopicPartition, TopicPartition],
        ends: Mapping[TopicPartition, int | BrokerAnsweredError],
        committed: Collection[TopicPartition],
    ) -> Mapping[TopicPartition, int | BrokerAnsweredError]:
        """Return where the source begins of those partitions whose last records at the target may come from there."""
        copying = self._config.copying
        if copying.start_timestamp_ms is None and copying.auto_offset_reset != "latest":
            return {}
        transforms = transforms_of(self._config)
        wanted = [
            source
            for source, remote in remote_of.items()
            if ends[remote] != 0
            and source not in self._removed
            and source not in committed
            and transforms.task_of(source.topic) is None  # what a transform made is not in the source
        ]
        return await self._source.list_offsets(wanted, EARLIEST, patience_s=_PATIENCE_S) if wanted else {}

    async def _start_group(self) -> Mapping[TopicPartition, CommittedOffset]:
        """Return what the group has committed that partitions start from. Raise what keeps it from being known."""
        group = self._config.copying.start_group
        if not group:
            return {}
        answer = (await Groups(self._source).committed([group]))[group]
        if isinstance(answer, BrokerAnsweredError):
            raise answer
        return answer
