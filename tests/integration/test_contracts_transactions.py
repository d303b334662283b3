"""What brokers answer about transactions, asked of a real one and of the simulated one."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.protocol.fetch import FetchRequest_v11
from aiokafka.protocol.produce import ProduceRequest_v8
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest_v0, EndTxnRequest_v0, InitProducerIdRequest_v0

from mm2py.wire.batches.batch import CONTROL, batches
from mm2py.wire.groups.requests import FindCoordinatorRequest_v4
from mm2py.wire.requests import LATEST, ListOffsetsRequest_v4
from mm2py.wire.transactions import InitProducerIdRequest_v3
from tests.support.batches import TRANSACTIONAL, build_batch
from tests.support.contracts import Side, contract


Producer = tuple[int, int]
NOBODY: Producer = (-1, -1)
#: The model is asked once, and writes the markers that end a transaction a moment after the answer.
_MARKERS_S = 0.05


async def opened(it: Side, name: str, producer: Producer = NOBODY, timeout_ms: int = 60_000) -> Producer:
    answer = await it.settled(lambda: InitProducerIdRequest_v3(name, timeout_ms, *producer, {}))
    return answer.producer_id, answer.producer_epoch


async def add(it: Side, name: str, producer: Producer, *numbers: int, topic: str = "") -> None:
    await it.settled(lambda: AddPartitionsToTxnRequest_v0(name, *producer, [(topic or it.prefix, list(numbers))]))


async def write(it: Side, name: str | None, producer: Producer, sequence: int, attributes: int = TRANSACTIONAL) -> None:
    """Produce two records to partition 0."""
    raw = build_batch(2, producer=(*producer, sequence), attributes=attributes)
    await it.ask(ProduceRequest_v8(name, -1, 30_000, [(it.prefix, [(0, raw)])]))


async def end(it: Side, name: str, producer: Producer, *, commits: bool) -> None:
    await it.settled(lambda: EndTxnRequest_v0(name, *producer, commits))


def _shape(answer: Any) -> Any:
    """Return what a fetch brings of a partition, but for the producers' ids."""
    ((_, (row,)),) = answer.topics
    number, code, *offsets, aborted, _, raw = row
    aborted = None if aborted is None else [first for _, first in aborted]
    found = [
        (it.base_offset, it.last_offset, it.producer_epoch, bool(it.attributes & CONTROL), it.attributes)
        for it in batches(memoryview(bytes(raw)))
    ]
    return number, code, offsets, aborted, found


async def look(it: Side) -> None:
    """Note what readers of both kinds see, and what lies at the end."""
    await asyncio.sleep(_MARKERS_S)
    for isolation in (0, 1):
        rows = [(it.prefix, [(0, -1, 0, -1, 1_000_000)])]
        await it.read(FetchRequest_v11(-1, 0, 1, 1_000_000, isolation, 0, -1, rows, [], ""), notes=_shape)
        await it.read(ListOffsetsRequest_v4(-1, isolation, [(it.prefix, [(0, -1, LATEST)])]))


@contract
async def test_ids_are_opened(it: Side) -> None:
    """Each time with a higher epoch; a producer that names itself goes on only if no other has opened it."""
    name = it.prefix
    await it.settled(lambda: FindCoordinatorRequest_v4(1, [name], {}))
    first = await opened(it, name)
    second = await opened(it, name)
    third = await opened(it, name, second)
    await opened(it, name, first)
    await opened(it, name, second)
    await opened(it, name, (first[0] + 77, 0))
    await opened(it, name, (third[0], 30))
    await it.settled(lambda: InitProducerIdRequest_v0(name, 60_000))
    await opened(it, f"{name}-timeout", timeout_ms=0)
    await opened(it, f"{name}-timeout", timeout_ms=10_000_000)
    await opened(it, "")
    await opened(it, f"{name}-unknown", (5, 0))


@contract
async def test_a_transaction_is_committed(it: Side) -> None:
    """Its records are stable once its marker is there; nothing is open before and afterwards."""
    name = it.prefix
    await it.known(name, 2)
    producer = await opened(it, name)
    await end(it, name, producer, commits=True)
    await write(it, name, producer, 0)
    await add(it, name, producer, 0, 1)
    await look(it)
    await write(it, name, producer, 0)
    await write(it, name, producer, 2)
    await write(it, name, producer, 2)
    await write(it, name, producer, 4, attributes=0)
    await look(it)
    await end(it, name, producer, commits=True)
    await look(it)
    await end(it, name, producer, commits=True)
    await end(it, name, producer, commits=False)
    await write(it, name, producer, 4)
    await add(it, name, producer, 0)
    await write(it, name, producer, 4)
    await end(it, name, producer, commits=True)
    await look(it)


@contract
async def test_a_transaction_is_aborted(it: Side) -> None:
    """Readers of what is committed are told where it began."""
    name = it.prefix
    await it.known(name)
    producer = await opened(it, name)
    for sequence, commits in ((0, False), (2, True), (4, False)):
        await add(it, name, producer, 0)
        await write(it, name, producer, sequence)
        await end(it, name, producer, commits=commits)
        await look(it)
    await end(it, name, producer, commits=False)
    await end(it, name, producer, commits=True)


@contract
async def test_partitions_that_cannot_be_added(it: Side) -> None:
    """One that is none keeps the others out."""
    name = it.prefix
    await it.known(name, 2)
    producer = await opened(it, name)
    await add(it, name, producer, 0, 7)
    await add(it, name, producer, 0, topic=f"{name}-gone")
    await add(it, name, (producer[0], 9), 0)
    await add(it, name, (producer[0], -1), 0)
    await add(it, name, (producer[0] + 77, 0), 0)
    await add(it, f"{name}-unknown", producer, 0)
    await end(it, name, (producer[0], 9), commits=True)
    await end(it, name, (producer[0] + 77, 0), commits=True)
    await end(it, f"{name}-unknown", producer, commits=False)
    await end(it, name, producer, commits=False)


@contract
async def test_a_producer_is_fenced(it: Side) -> None:
    """What another one has begun is aborted when an id is opened again, and the former producer can do nothing."""
    name = it.prefix
    await it.known(name)
    former = await opened(it, name)
    await add(it, name, former, 0)
    await write(it, name, former, 0)
    await opened(it, name, (former[0], former[1] + 5))
    await look(it)
    await end(it, name, former, commits=True)
    latter = await opened(it, name)
    await look(it)
    await write(it, name, former, 2)
    await add(it, name, former, 0)
    await end(it, name, former, commits=True)
    await opened(it, name, former)
    await add(it, name, latter, 0)
    await write(it, name, latter, 3)
    await write(it, name, latter, 0)
    await write(it, name, former, 2)
    await end(it, name, latter, commits=True)
    await look(it)


@contract
async def test_a_transaction_that_lasts_too_long(it: Side) -> None:
    """It is aborted, and its producer has an epoch that is over."""
    name = it.prefix
    await it.known(name)
    producer = await opened(it, name, timeout_ms=1_000)
    await add(it, name, producer, 0)
    await write(it, name, producer, 0)
    async with asyncio.timeout(60):
        while True:
            asked = await it.ask(ListOffsetsRequest_v4(-1, 1, [(it.prefix, [(0, -1, LATEST)])]), notes=False)
            if asked.topics[0][1][0][3]:
                break
            await asyncio.sleep(0.1)
    await look(it)
    await end(it, name, producer, commits=True)
    await write(it, name, producer, 2)
    await add(it, name, producer, 0)
    await opened(it, name, producer)


@contract
async def test_a_transaction_that_is_renewed(it: Side) -> None:
    """A producer that names itself aborts its own transaction, and goes on with a higher epoch."""
    name = it.prefix
    await it.known(name)
    producer = await opened(it, name)
    await add(it, name, producer, 0)
    await write(it, name, producer, 0)
    renewed = await opened(it, name, producer)
    await look(it)
    await add(it, name, renewed, 0)
    await write(it, name, renewed, 0)
    await end(it, name, renewed, commits=True)
    await look(it)
    await it.ask(FindCoordinatorRequest_v4(1, [name], {}))
