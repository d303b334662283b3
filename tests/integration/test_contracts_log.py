"""What brokers answer about logs, asked of a real one and of the simulated one: fetched, searched, produced to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka.protocol.admin import DeleteRecordsRequest_v1, DeleteTopicsRequest_v1
from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.produce import ProduceRequest_v7, ProduceRequest_v8

from mm2py.wire.batches.batch import batches
from mm2py.wire.log_end import OffsetForLeaderEpochRequest_v3
from mm2py.wire.requests import EARLIEST, EARLIEST_LOCAL, LATEST, ListOffsetsRequest_v4, ListOffsetsRequest_v8
from mm2py.wire.transactions import InitProducerIdRequest_v3
from tests.support.batches import (
    CONTROL,
    GZIP,
    START_MS,
    TRANSACTIONAL,
    Content,
    build_batch,
    contents,
    flipped,
    resigned,
)
from tests.support.contents import decode
from tests.support.contracts import Side, contract
from tests.support.fetch_v13 import FetchRequest_v13
from tests.support.produce_v13 import ProduceRequest_v13


NEW, NONE = 0, -1
UNKNOWN_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


async def produce(it: Side, *raw: bytes, name: str = "", number: int = 0, acks: int = -1) -> Any:
    """Produce batches to a partition, one in each request."""
    for one in raw:
        await it.ask(ProduceRequest_v8(None, acks, 30_000, [(name or it.prefix, [(number, one)])]))


def batch(count: int, producer: tuple[int, int, int] = (-1, -1, -1), **more: Any) -> bytes:
    return build_batch(contents(count), producer=producer, **more)


def fetch(
    *rows: tuple[str, int, int],
    session: tuple[int, int] = (0, NONE),
    epoch: int = -1,
    most: int = 1_000_000,
    committed: bool = False,
    forgotten: Sequence[tuple[str, list[int]]] = (),
) -> FetchRequest_v11:
    """Return a fetch of topics, partitions and offsets, which waits for nothing."""
    topics: dict[str, list[Any]] = {}
    for topic, number, offset in rows:
        topics.setdefault(topic, []).append((number, epoch, offset, -1, most))
    asked = list(topics.items())
    return FetchRequest_v11(-1, 0, 1, most, int(committed), *session, asked, list(forgotten), "")


def fetch_by_id(*rows: tuple[str, int, int], session: tuple[int, int] = (0, NONE), epoch: int = -1) -> FetchRequest_v13:
    topics = [(topic_id, [(number, epoch, offset, -1, -1, 1_000_000, {})], {}) for topic_id, number, offset in rows]
    return FetchRequest_v13({}, -1, 0, 1, 1_000_000, 0, *session, topics, [], "", {})


#: Made once, as it has the second in which it was made.
COMPRESSED = batch(2, codec=GZIP)


@contract
async def test_records_are_fetched(it: Side) -> None:
    """Whole batches from the one with the offset; nothing at the end; an error before the start and after the end."""
    await it.known(it.prefix, 2)
    await produce(it, batch(3), COMPRESSED, batch(1))
    await produce(it, batch(3), batch(1), number=1)
    for offset in (0, 2, 3, 4, 5, 6, 7, -1):
        await it.ask(fetch((it.prefix, 0, offset)))
    for most in (10, 140, 250, 300):
        await it.ask(fetch((it.prefix, 0, 0), most=most))
        await it.ask(fetch((it.prefix, 1, 0), (it.prefix, 0, 3), most=most))
    await it.ask(fetch((it.prefix, 1, 0), (it.prefix, 0, 0), (f"{it.prefix}-gone", 0, 0), (it.prefix, 7, 0)))
    for epoch in (0, 1, -1):
        await it.ask(fetch((it.prefix, 0, 0), epoch=epoch))


@contract
async def test_records_are_fetched_by_the_topic_s_id(it: Side) -> None:
    """Of an id that is none the rest of the answer is told; the null id is no exception."""
    topic = await it.known(it.prefix)
    await produce(it, batch(3))
    await it.ask(fetch_by_id((topic, 0, 0)))
    await it.ask(fetch_by_id((topic, 0, 9)))
    await it.ask(fetch_by_id((topic, 4, 0)))
    await it.ask(fetch_by_id((topic, 0, 0), epoch=3))
    await it.ask(fetch_by_id((UNKNOWN_ID, 0, 0)))
    await it.ask(fetch_by_id((topic, 0, 0), (UNKNOWN_ID, 0, 0)))


@contract
async def test_a_fetch_session(it: Side) -> None:
    """What was told is not told again; a session has its epoch, and is gone once it is closed."""
    name = it.prefix
    await it.known(name, 3)
    await produce(it, batch(3))
    first = await it.ask(fetch((name, 0, 0), (name, 1, 0), session=(0, NEW)))
    number = first.session_id
    await it.ask(fetch((name, 0, 3), session=(number, 1)))
    await it.ask(fetch(session=(number, 2)))
    await produce(it, batch(2), number=1)
    await it.ask(fetch(session=(number, 3)))
    await it.ask(fetch((name, 1, 2), (name, 2, 0), session=(number, 4)))
    await it.ask(fetch((f"{name}-gone", 0, 0), session=(number, 5)))
    await it.ask(fetch(session=(number, 6)))
    await it.ask(fetch(session=(number, 6)))
    await it.ask(fetch(session=(number, 9)))
    await it.ask(fetch((name, 0, 99), session=(number, 7), forgotten=[(f"{name}-gone", [0]), (name, [1])]))
    await it.ask(fetch(session=(number, 8)))
    await it.ask(fetch((name, 0, 0), session=(number, 9)))
    await it.ask(fetch((name, 0, 0), session=(123, 1)))
    await it.ask(fetch((name, 0, 3), session=(number, NONE)))
    await it.ask(fetch((name, 0, 3), session=(number, 10)))


@contract
async def test_a_session_that_is_opened_again(it: Side) -> None:
    """The former one is gone."""
    await it.known(it.prefix)
    first = await it.ask(fetch((it.prefix, 0, 0), session=(0, NEW)))
    second = await it.ask(fetch((it.prefix, 0, 0), session=(first.session_id, NEW)))
    await it.ask(fetch(session=(first.session_id, 1)))
    await it.ask(fetch(session=(second.session_id, 1)))


@contract
async def test_a_session_by_topics_ids(it: Side) -> None:
    """A topic that is deleted is told of by its id."""
    topic = await it.known(it.prefix)
    first = await it.ask(fetch_by_id((topic, 0, 0), session=(0, NEW)))
    number = first.session_id
    await it.ask(fetch_by_id(session=(number, 1)))
    await it.ask(fetch((it.prefix, 0, 0), session=(number, 2)))
    await it.ask(DeleteTopicsRequest_v1([it.prefix], 30_000))


@contract
async def test_batches_that_are_no_producer_s(it: Side) -> None:
    """Nothing of them is appended, whatever else is wrong."""
    await it.known(it.prefix)
    for raw in (
        flipped(batch(2)), batch(2, base_offset=7), batch(2, last_offset_delta=5), batch(2, attributes=CONTROL),
        batch(2, producer=(5, 0, -1)), batch(2, producer=(5, -1, 0)), batch(2, attributes=TRANSACTIONAL),
        batch(0, last_offset_delta=0), b"", batch(1) + batch(1), batch(2)[:-3], b"\0" * 80,
        resigned(batch(2)[:16] + b"\x07" + batch(2)[17:]),
    ):  # fmt: skip
        await produce(it, raw)
    await produce(it, batch(1), number=4)
    await produce(it, batch(1), name=f"{it.prefix}-gone")
    await produce(it, batch(1), acks=7)
    await produce(it, batch(1), acks=1)
    await it.ask(ProduceRequest_v7(None, -1, 30_000, [(it.prefix, [(0, batch(1))])]))


@contract
async def test_records_are_produced_by_the_topic_s_id(it: Side) -> None:
    """A wrong id is no matter of the other topics."""
    topic = await it.known(it.prefix)

    def by_id(*rows: tuple[str, int, bytes]) -> ProduceRequest_v13:
        topics = [(topic_id, [(number, raw, {})], {}) for topic_id, number, raw in rows]
        return ProduceRequest_v13({}, None, -1, 30_000, topics, {})

    await it.ask(by_id((topic, 0, batch(2)), (UNKNOWN_ID, 0, batch(1))))
    await it.ask(by_id((topic, 3, batch(2))))
    await it.ask(by_id((topic, 0, flipped(batch(2)))))


@contract
async def test_an_idempotent_producer(it: Side) -> None:
    """A repeated batch is where it lies; a gap, an old epoch and a fresh one are told apart."""
    await it.known(it.prefix, 2)
    answer = await it.settled(lambda: InitProducerIdRequest_v3(None, 60_000, -1, -1, {}))
    producer = answer.producer_id
    for epoch, sequence, count in (
        (0, 0, 3), (0, 3, 2), (0, 0, 3), (0, 3, 2), (0, 3, 1), (0, 9, 1), (0, 5, 1), (0, 6, 1), (0, 7, 1), (0, 8, 1),
        (0, 9, 1), (0, 0, 3), (1, 4, 1), (1, 0, 1), (0, 10, 1), (1, 0, 1), (1, 1, 1), (3, 0, 2),
    ):  # fmt: skip
        await produce(it, batch(count, producer=(producer, epoch, sequence)))
    await produce(it, batch(4, producer=(producer, 0, 2**31 - 2)), batch(2, producer=(producer, 0, 2)), number=1)
    await it.ask(InitProducerIdRequest_v3(None, 60_000, producer, 3, {}))


@contract
async def test_offsets_are_searched(it: Side) -> None:
    """By time, the first record that is as late or later; the ends; what there is none of."""
    await it.known(it.prefix)
    asked = (LATEST, EARLIEST, EARLIEST_LOCAL, -3, START_MS, START_MS + 1, START_MS + 2, START_MS + 9, 0)
    for _ in range(2):
        for when in asked:
            for epoch in (-1, 0):
                await it.ask(ListOffsetsRequest_v8(-1, 0, [(it.prefix, [(0, epoch, when, {})], {})], {}))
            await it.ask(ListOffsetsRequest_v4(-1, 1, [(it.prefix, [(0, -1, when)])]))
        late = [Content(0, START_MS + 5), Content(1, START_MS + 1), Content(2, START_MS + 7)]
        await produce(it, batch(3), build_batch(late), batch(1))
    wrong = [(it.prefix, [(3, -1, LATEST), (0, 4, LATEST)]), (f"{it.prefix}-gone", [(0, -1, LATEST)])]
    await it.ask(ListOffsetsRequest_v4(-1, 0, wrong))


@contract
async def test_where_epochs_end(it: Side) -> None:
    """The current one at the end of the log; of one that is not known yet nothing is said."""
    await it.known(it.prefix)
    for _ in range(2):
        for current, epoch in ((-1, 0), (0, 0), (-1, 1), (-1, -1), (1, 0), (0, 5)):
            await it.ask(OffsetForLeaderEpochRequest_v3(-1, [(it.prefix, [(0, current, epoch)])]))
        await produce(it, batch(3))
    await it.ask(OffsetForLeaderEpochRequest_v3(-1, [(it.prefix, [(5, -1, 0)]), (f"{it.prefix}-gone", [(0, -1, 0)])]))


@contract
async def test_records_are_deleted(it: Side) -> None:
    """The log starts where they end, which may be inside a batch, and never after what all replicas have."""
    await it.known(it.prefix)
    await produce(it, batch(3), batch(3))
    await it.known(f"{it.prefix}-compact", cleanup_policy="compact")
    await it.ask(DeleteRecordsRequest_v1([(f"{it.prefix}-compact", [(0, 0)])], 30_000))
    for offset in (2, 1, 3, 7, -2, -1, 6):
        await it.ask(DeleteRecordsRequest_v1([(it.prefix, [(0, offset)])], 30_000))
        await it.ask(fetch((it.prefix, 0, 0), (it.prefix, 0, 2), (it.prefix, 0, 3)))
        for when in (EARLIEST, LATEST, START_MS, EARLIEST_LOCAL):
            await it.ask(ListOffsetsRequest_v8(-1, 0, [(it.prefix, [(0, -1, when, {})], {})], {}))
        await it.ask(OffsetForLeaderEpochRequest_v3(-1, [(it.prefix, [(0, -1, 0)])]))
    await produce(it, batch(2))
    await it.ask(fetch((it.prefix, 0, 6)))
    gone = [(it.prefix, [(4, 0)]), (f"{it.prefix}-gone", [(0, 0)])]
    await it.ask(DeleteRecordsRequest_v1(gone, 30_000))


#: Where the segment begins that is written to, which is not compacted.
_ACTIVE = 14


def _left(answer: Any) -> Any:
    """Return the batches that may be compacted: their offsets, and the keys and offsets of their records."""
    raw = bytes(answer.topics[0][1][0][-1])
    found, at = [], 0
    for view in batches(memoryview(raw)):
        records = decode(raw[at : at + view.size_bytes])
        at += view.size_bytes
        places = [(record.key, record.offset) for record in records]
        found.append((view.base_offset, view.last_offset, view.record_count, view.producer_id >= 0, places))
    return [it for it in found if it[0] < _ACTIVE]  # a broker's answer ends with the segment


@contract
async def test_what_compaction_leaves(it: Side) -> None:
    """The last record of each key; batches keep their offsets, and are gone once nothing of them is left."""
    name = it.prefix
    await it.known(name, cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.0")
    answer = await it.settled(lambda: InitProducerIdRequest_v3(None, 60_000, -1, -1, {}))
    late = [Content(0, START_MS + 3_600_000, b"k8")]
    own = (answer.producer_id, 0, 0)
    await produce(it, batch(5), batch(2), COMPRESSED, batch(3), batch(1, producer=own), batch(1))
    await produce(it, build_batch(late))
    if it.model is not None:
        it.model.topics[name].partitions[0].compact(_ACTIVE)
    await it.read(fetch((name, 0, 0)), notes=_left)
    await it.read(fetch((name, 0, 6)), notes=_left)
    await it.ask(ListOffsetsRequest_v8(-1, 0, [(name, [(0, -1, EARLIEST, {})], {})], {}))
    await it.ask(ListOffsetsRequest_v8(-1, 0, [(name, [(0, -1, START_MS, {})], {})], {}))


@contract
async def test_a_compacted_topic_takes_no_record_without_a_key(it: Side) -> None:
    """Nothing of a batch that has one is appended."""
    await it.known(it.prefix, cleanup_policy="compact")
    await produce(it, build_batch([Content(0), Content(1, START_MS, None), Content(2, START_MS, b"")]))
    await produce(it, build_batch([Content(n, START_MS, None) for n in range(6)]), batch(1))
