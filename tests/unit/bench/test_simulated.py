"""The simulated brokers: what they answer is what mm2py's own client reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from bench.scale.probes import seed
from bench.scale.simulated.broker import STRUCTS, SimulatedBroker, spoken
from bench.scale.simulated.fetches import VERSION, Fetches
from bench.scale.simulated.logs import SimulatedCluster
from mm2py.wire.answers import read_response
from mm2py.wire.connection import BrokerConnection, Buffer
from mm2py.wire.fetch import FetchAnswer, FetchSession
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes
from mm2py.wire.metadata import ClusterMetadata, view_of
from mm2py.wire.requests import LATEST, ListOffsetsRequest, MetadataRequest


SIZES = FetchSizes(min_bytes=1, max_bytes=8_000_000, partition_max_bytes=1_000_000, reads_committed=False)


class Wire:
    """A connection without a socket, to a broker with topic t of three partitions."""

    def __init__(self) -> None:
        self.versions = spoken()
        self.cluster = SimulatedCluster("source")
        self.topic = self.cluster.create("t", 3)
        self.fetches = Fetches(self.cluster)
        self.broker = SimulatedBroker(self.cluster, port=9092)
        self.session = FetchSession(cast("BrokerConnection", self), has_ids=True)

    async def request_raw(
        self,
        _key: int,
        version: int,
        pieces: Sequence[Buffer],
        *,
        extra_wait_s: float = 0.0,  # noqa: ARG002
    ) -> memoryview:
        assert version == VERSION
        # The first byte ends the header of the request, another one that of the answer.
        answer = await self.fetches.answer(memoryview(b"".join(pieces))[1:])
        return memoryview(b"\x00\x00\x00\x01\x00" + answer)

    def position(self, number: int, offset: int = 0) -> FetchPosition:
        return FetchPosition(b"t", number, offset, 0, None, topic_id=self.topic.raw_id)

    async def fetch(self, max_wait_ms: int = 0) -> FetchAnswer:
        return await self.session.fetch(SIZES, max_wait_ms)

    async def ask(self, request: Any) -> Any:
        prepared = request.prepare(self.versions)
        body = await self.broker._answer_of(prepared.API_KEY, type(prepared).decode(prepared.encode()))
        return read_response(prepared, memoryview(b"\x00\x00\x00\x01\x00" + body))


async def test_a_session_is_told_what_is_new() -> None:
    """The first answer names every partition, the next ones those with records, until they are read."""
    wire = Wire()
    wire.topic.logs[1].append(seed())
    positions = [wire.position(number) for number in range(3)]
    for position in positions:
        wire.session.want(position)
    first = await wire.fetch()
    again = await wire.fetch()
    positions[1].offset = 1
    wire.session.want(positions[1])
    nothing = await wire.fetch()

    assert [(it.position.partition, it.high_watermark, bool(it.record_set)) for it in first.partitions] == [
        (0, 0, False), (1, 1, True), (2, 0, False),
    ]  # fmt: skip
    assert [it.position.partition for it in again.partitions] == [1]
    assert nothing.partitions == []


async def test_a_long_poll_ends_with_the_first_record() -> None:
    """A fetch that finds nothing waits, and is answered when one of its partitions grows."""
    wire = Wire()
    for number in range(3):
        wire.session.want(wire.position(number))
    await wire.fetch()
    waiting = asyncio.ensure_future(wire.fetch(60_000))
    await asyncio.sleep(0.01)
    was_done = waiting.done()
    wire.topic.logs[2].append(seed())
    (found,) = (await waiting).partitions

    assert not was_done
    assert (found.position.partition, found.high_watermark, len(found.record_set)) == (2, 1, len(seed()))


async def test_metadata_and_offsets_are_what_the_logs_say() -> None:
    """Answers that are written by hand are read by the schemas, unknown topics too."""
    wire = Wire()
    wire.topic.logs[2].append(seed())
    view: ClusterMetadata = view_of(await wire.ask(MetadataRequest(["t", "other"])))
    offsets = await wire.ask(ListOffsetsRequest({"t": [(0, -1), (2, -1), (3, -1)]}, LATEST))

    assert (view.topics["t"].topic_id, sorted(view.topics["t"].partitions)) == (wire.topic.topic_id, [0, 1, 2])
    assert (view.topics["other"].error_code, view.topics["other"].partitions) == (3, {})
    assert [row[:4] for _, rows, *_ in offsets.topics for row in rows] == [
        (0, 0, -1, 0), (2, 0, -1, 1), (3, 3, -1, -1),
    ]  # fmt: skip


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_every_request_that_is_spoken_has_an_answer(kind: Any) -> None:
    """No request is advertised that the broker cannot answer."""
    by_hand = {1, 2, 3}

    assert kind.API_KEY in by_hand | SimulatedBroker(SimulatedCluster("source"))._answers.keys()
