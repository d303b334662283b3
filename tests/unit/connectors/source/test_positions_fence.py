"""Which producer positions name before anything is sent, also where two nodes decide at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, cast

import attrs
import pytest

from mm2py.connectors.control_writers import NotOpenError
from mm2py.connectors.offsets.translations import chunk_record
from mm2py.connectors.source import positions as flow_positions
from mm2py.connectors.source.positions import NOTHING_COPIED, OvertakenError, Positions
from mm2py.core.source.progress import PartitionState
from mm2py.errors import ClusterUnreachableError
from mm2py.model.epoch import ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import MIRROR_SOURCE, Position, encode_position
from mm2py.model.run_chunk import KeptChunk
from mm2py.telemetry.journal import EventLog
from mm2py.wire.topic_log import LogRecord
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, changed, source_context


class Log:
    """The positions topic, of one partition. It may refuse."""

    topic = "mm2-offsets.A.internal"

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.is_away = False
        self.topic_id = "first"

    async def ensure(self) -> None:
        return

    async def await_stable(self) -> None:
        return

    async def append(self, records: Sequence[LogRecord]) -> None:
        if self.is_away:
            raise ClusterUnreachableError("B", "b:1", "away")
        self.records += [
            attrs.evolve(record, partition=0, offset=len(self.records) + at) for at, record in enumerate(records)
        ]

    async def append_in_order(self, steps: Sequence[Sequence[LogRecord]]) -> None:
        for records in steps:
            await self.append(records)

    async def look(self) -> bool:
        return True

    async def read_from(self, positions: Mapping[int, int]) -> AsyncGenerator[list[LogRecord], None]:
        yield self.records[positions.get(0, 0) :]


class Target:
    """Stands for the target: the positions topic, and who gives producer ids."""

    alias = "B"

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ids = 0
        self.clock = LoopClock()
        self.log = Log()
        patch.setattr(flow_positions, "init_producer_id", self._give)

    def node(self, *, is_exactly_once: bool = False, **copied: Any) -> Positions:
        """Return the positions of another node; *copied* are of `CopiedHere`."""
        copying = attrs.evolve(SETTINGS.source_connector.copying, is_exactly_once=is_exactly_once)
        context = source_context(self.clock, EventLog(self.clock), changed(SETTINGS, copying=copying))
        positions = Positions(context, cast("Any", None), cast("Any", self), attrs.evolve(NOTHING_COPIED, **copied))
        positions.log = cast("Any", self.log)
        return positions

    def topic_id(self, _topic: str) -> str:
        return self.log.topic_id

    async def _give(self, _cluster: object, **_about: str) -> ProducerMark:
        self.ids += 1
        return ProducerMark(self.ids, 0, 0)


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Target:
    """A target that takes all."""
    return Target(monkeypatch)


def state(number: int, **changes: object) -> PartitionState:
    return attrs.evolve(PartitionState(TopicPartition("t", number), "A.t", 100, 99), **changes)


def forgotten(fenced: Position, **changes: object) -> PartitionState:
    """Return a partition whose producer is of no more use."""
    return state(fenced.source.partition, written=fenced, **changes)


async def test_one_producer_id_serves_all_that_wait(target: Target) -> None:
    """However many partitions wait, one id is requested; the next ones get another, and a transform none."""
    node = target.node()
    fenced = await node.fence([state(0), state(1), state(2, is_transformed=True)])
    more = await node.fence([state(3), state(2, is_transformed=True)])

    assert [it.producer for it in fenced] == [ProducerMark(1, 0, 0), ProducerMark(1, 0, 0), None]
    assert [it.producer for it in more] == [ProducerMark(2, 0, 0), None]
    assert target.ids == 2
    assert await target.node().read() == {it.source: it for it in (*fenced, *more)}


async def test_what_a_node_wrote_itself_is_not_kept_for_others(target: Target) -> None:
    """
    A node is alone for weeks, and topics come and go: each fence reads what this node has written since the last.

    Once there is another node, what that one writes is followed.
    """
    is_alone = True
    node = target.node(is_alone=lambda: is_alone)
    for number in range(5):
        (fenced,) = await node.fence([state(number)])
        await node.write([fenced], [[chunk_record(SETTINGS.flow, KeptChunk(fenced.source, 0), MIRROR_SOURCE)]])
    await node.fence([state(5)])
    left = len(node._stored.chunks), len(node._changed)
    is_alone = False
    await target.log.append([chunk_record(SETTINGS.flow, KeptChunk(TopicPartition("t", 9), 0), MIRROR_SOURCE)])
    await node.fence([state(6)])

    assert left == (0, 1)  # its own claim
    assert [it.source.partition for it in await node.follow()] == [9]


async def test_what_another_node_has_copied_is_taken_over_with_where_it_went(target: Target) -> None:
    """A node that was to begin a partition is stalled; another one begins and copies it, and ends. It is alone then."""
    node, other = target.node(is_alone=lambda: True), target.node()
    await node.read()
    (begun,) = await other.fence([state(0)])
    copied, runs = attrs.evolve(begun, next_upstream=200), KeptChunk(begun.source, 0)
    await other.write([copied], [[chunk_record(SETTINGS.flow, runs, MIRROR_SOURCE)]])
    fenced = await node.fence([state(0)])

    assert (fenced, node.runs_of(begun.source)) == ([copied], [runs])


async def test_what_a_node_wrote_itself_is_in_memory_once(target: Target) -> None:
    """
    It reads its own positions back, of tens of thousands of partitions, and of those that are gone.

    When a record was written counts all the same: brokers forget its producer in time.
    """
    node = target.node()
    first, second = await node.fence([state(0), state(1)])
    theirs = attrs.evolve(second, next_upstream=200)
    await target.log.append([LogRecord(*encode_position("A", it), timestamp_ms=5) for it in (first, theirs)])
    await node.fence([state(2)])
    ours, other = (node._stored.positions[it.source] for it in (first, second))

    assert (ours, ours.written_ms) == (node.known[first.source], 5)
    assert ours.producer is node.known[first.source].producer
    assert (other, other.written_ms) == (theirs, 5)


async def test_in_exactly_once_mode_transactions_write_the_positions_of_transformed_topics(target: Target) -> None:
    """Not even their start is written here: it could come after what another node's transaction committed."""
    node = target.node(is_exactly_once=True)
    fenced = await node.fence([state(0), state(1, is_transformed=True)])

    assert [it.source.partition for it in fenced] == [0, 1]
    assert [it.partition for it in await target.node().read()] == [0]


async def test_a_producer_is_replaced_by_its_next_epoch(target: Target) -> None:
    """A late batch of the former one is then rejected by the broker, which would take it beside another id."""
    node = target.node()
    (first,) = await node.fence([state(0)])
    (second,) = await node.fence([forgotten(first, position=150)])
    (third,) = await node.fence([forgotten(attrs.evolve(second, producer=ProducerMark(1, 2**15 - 2, 7)))])
    assert third == second  # it is not what the log says
    await node.write([attrs.evolve(second, producer=ProducerMark(1, 2**15 - 2, 7))])
    (last,) = await node.fence([forgotten(attrs.evolve(second, producer=ProducerMark(1, 2**15 - 2, 7)))])

    assert (second.next_upstream, second.producer) == (150, ProducerMark(1, 1, 0))
    assert last.producer == ProducerMark(2, 0, 0)


async def test_an_id_that_could_not_be_written_is_used_by_the_next_attempt(target: Target) -> None:
    """A write without an answer may arrive yet, and must not name another producer than the one that counts."""
    node = target.node()
    target.log.is_away = True
    with pytest.raises(ClusterUnreachableError):
        await node.fence([state(0)])
    target.log.is_away = False
    fenced = await node.fence([state(0)])

    assert [it.producer for it in fenced] == [ProducerMark(1, 0, 0)]


async def test_the_first_claim_counts_for_both_nodes(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Two nodes find no position, and each claims a producer, at places that differ.

    The other one's claim is appended right before ours. Both copy from its position, as its producer.
    """
    one, other = target.node(), target.node()
    append = target.log.append
    theirs: list[Position] = []

    async def come_second(records: Sequence[LogRecord]) -> None:
        monkeypatch.setattr(target.log, "append", append)
        theirs.extend(await other.fence([state(0, position=90)]))
        await append(records)

    await one.read()
    await other.read()
    monkeypatch.setattr(target.log, "append", come_second)
    ours = await one.fence([state(0)])

    assert ours == theirs
    assert (ours[0].next_upstream, ours[0].producer) == (90, ProducerMark(2, 0, 0))
    assert await target.node().read() == {ours[0].source: ours[0]}


async def test_a_claim_of_a_node_that_was_killed_is_completed(target: Target) -> None:
    """The node may still copy as what it claimed: so the next one takes just that, and none of the former producer."""
    (first,) = await target.node().fence([state(0)])
    killed = target.node()
    await killed.read()
    await killed.log.append(killed._records([await killed._claim(forgotten(first, position=150))]))
    next_one = target.node()
    found = (await next_one.read())[first.source]
    fenced = await next_one.fence([state(0, written=found, position=150)])

    assert (found.next_upstream, found.producer) == (150, None)
    assert [(it.next_upstream, it.producer) for it in fenced] == [(150, ProducerMark(1, 1, 0))]


async def test_a_producer_that_was_replaced_meanwhile_is_given_up(target: Target) -> None:
    """A node that was frozen claims in place of a producer that has a successor: it takes that."""
    frozen, other = target.node(), target.node()
    (first,) = await frozen.fence([state(0)])
    await other.read()
    (second,) = await other.fence([forgotten(first, position=150)])
    target.log.records += [
        attrs.evolve(target.log.records[-1], value=b'{"offset":174}', offset=len(target.log.records))
    ]

    assert await frozen.fence([forgotten(first)]) == [attrs.evolve(second, next_upstream=175)]


async def test_positions_that_others_write_leave_a_claim_open(target: Target) -> None:
    """Between a claim and its completion another node may write a position with the former producer."""
    one, other = target.node(), target.node()
    (first,) = await one.fence([state(0)])
    await one.read()
    await other.read()
    claim = await one._claim(forgotten(first, position=150))
    await one.log.append(one._records([claim, first, attrs.evolve(claim, claimed=ProducerMark(9, 9, 0))]))

    assert await other.fence([forgotten(first)]) == [attrs.evolve(claim, producer=ProducerMark(1, 1, 0), claimed=None)]


async def test_a_topic_that_was_created_again_is_read_from_its_start(target: Target) -> None:
    """Nothing counts that only the former topic says, and a claim is found although it has a lower offset."""
    node = target.node()
    (first, _) = await node.fence([state(0), state(1)])
    target.log.records.clear()
    target.log.topic_id = "second"
    reset = attrs.evolve(first, next_upstream=0, producer=None)
    await node.write([reset])

    assert await node.fence([state(0, position=0, written=reset)]) == [
        attrs.evolve(reset, producer=ProducerMark(2, 0, 0))
    ]


class Writer:
    """Stands for the writer of this node's tasks, which is in doubt again with each term."""

    term = 0

    def __init__(self) -> None:
        self.is_ready = asyncio.Event()
        self.is_ready.set()

    async def ready(self) -> int:
        await self.is_ready.wait()
        return self.term


async def test_a_write_that_ends_while_the_log_is_compared_is_no_other_node_s(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Two of a node's loops write positions, one of which is in doubt, because a heartbeat was not answered in time.

    The second one reads the log as it was before the write of the first, and has it after that has ended. Whatever
    another node writes is noticed as before.
    """
    other, overtaken = target.node(), list[bool]()
    node = target.node(has=lambda _: True, on_overtaken=lambda: overtaken.append(True))
    writer = node._writer = cast("Any", Writer())
    (first,) = await node.fence([state(0)])
    second = attrs.evolve(first, next_upstream=200)
    read_from = target.log.read_from

    async def read_slowly(positions: Mapping[int, int]) -> AsyncGenerator[list[LogRecord], None]:
        found = [records async for records in read_from(positions)]
        writer.term = 0
        await node.write([second])
        writer.term = 1
        for records in found:
            yield records

    writer.term = 1
    monkeypatch.setattr(target.log, "read_from", read_slowly)
    await asyncio.wait_for(node.ready(), 5)
    monkeypatch.setattr(target.log, "read_from", read_from)
    quiet = list(overtaken)
    await other.write([attrs.evolve(second, next_upstream=300)])
    writer.term = 2
    with pytest.raises(OvertakenError):
        await node.ready()

    assert (quiet, overtaken) == ([], [True])
    assert node.known == {first.source: second}


@pytest.mark.parametrize("is_claim", [False, True])
async def test_what_was_begun_before_another_node_took_over_is_not_written(target: Target, *, is_claim: bool) -> None:
    """
    A node that wakes up writes its positions, learns that it is no member any more, and gets a task of another one.

    Under the id of that task brokers would take the older position of what the other node copies since.
    """
    other, is_deposed = target.node(), False
    node = target.node(has=lambda _: True, is_deposed=lambda: is_deposed)
    writer = node._writer = cast("Any", Writer())
    (first,) = await node.fence([state(0)])
    writer.is_ready.clear()
    late = attrs.evolve(first, next_upstream=200)
    writing = asyncio.create_task(node.fence([forgotten(first)]) if is_claim else node.write([late]))
    await asyncio.sleep(1)
    is_deposed, writer.term = True, 1
    writer.is_ready.set()
    with pytest.raises(NotOpenError):
        await writing
    await other.write([attrs.evolve(first, next_upstream=300)])

    assert [it.next_upstream for it in (await target.node().read()).values()] == [300]
    assert target.ids == 1


async def test_a_position_written_meanwhile_comes_after_what_was_begun_before(target: Target) -> None:
    """
    Positions of thousands of partitions are due, and are encoded while others have their turns.

    Meanwhile the history of one of them is found broken: its new position must not be followed by the former one.
    """
    node = target.node()
    due = [Position(TopicPartition("t", number), 100, 99, None) for number in range(2_000)]
    reset = attrs.evolve(due[-1], next_upstream=0, downstream=150)
    async with asyncio.TaskGroup() as loops:
        loops.create_task(node.write(due))
        await asyncio.sleep(0)
        loops.create_task(node.write([reset]))

    assert node.known[reset.source] == reset
    assert (await target.node().read())[reset.source].next_upstream == 0
