"""
Latency at a fixed rate: from the moment a record is due to be sent to the moment a consumer of the target has it.

A producer and a consumer, each a process of its own so that neither waits for the other, are started as ``python -m
bench.latency``. The value of each batch's first record carries a number and when it was due, so that a producer that
had to wait hides nothing; both processes read the same clock.
The consumer lets the mirror warm up, then takes every record that arrives for the asked time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import gc
import itertools
import json
import struct
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

import attrs
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords

from bench import content
from bench.batches import ProducerId, Template, walk
from bench.broker import Broker, connected
from bench.candidates import Candidate, FlowSettings
from bench.mirror import Mirror, MirrorFailedError, running
from bench.shapes import Codec
from bench.tree import Strangers
from mm2py.devkit.process import LoggedProcess, start_process


PARTITIONS = 8
VALUE_BYTES = 200
START_LIMIT_S = 90.0
ANSWER_LIMIT_S = 30.0
FETCH_WAIT_MS = 500
STARTS = "measuring"
FOUND = "measured"

MARK = struct.Struct(">qq")  # the record's number, and when it was due in nanoseconds
#: Where a mark is among the bytes of many records.
MARKED = bytes.fromhex("6d6d3270792d6c6174656e6379a7f31c")


@attrs.frozen
class Load:
    """What the producer sends: so many records a second, in batches of `batch_records`."""

    records_per_s: int = 500
    batch_records: int = 1

    @property
    def batches_per_s(self) -> float:
        return self.records_per_s / self.batch_records

    def __str__(self) -> str:
        batches = f" in batches of {self.batch_records}" if self.batch_records > 1 else ""
        return f"{self.records_per_s:,} records/s{batches}"


@attrs.frozen
class Span:
    """How long the consumer takes records in without counting them, and how long it measures after that."""

    warm_up_s: float
    seconds: float

    @property
    def total_s(self) -> float:
        return self.warm_up_s + self.seconds


@attrs.frozen
class Latencies:
    """What the consumer saw: milliseconds from sending to receipt, and whether the numbers were complete; `records` are
    those with numbers, one in each batch.
    """

    records: int
    missing: int
    repeated: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


@attrs.frozen
class LatencyRun:
    """What one candidate did at the fixed rate."""

    candidate: Candidate
    seconds: float
    latencies: Latencies
    cpu_cores: float
    strangers_cores: float


async def measure(
    candidate: Candidate, flow: FlowSettings, source: Broker, directory: Path, *, sent: Load, span: Span
) -> LatencyRun:
    """Run *candidate* on a topic of its own, into which records go from the start."""
    await source.create_topic(flow.topic, PARTITIONS)
    async with running(candidate, flow, directory) as mirror:
        ends = (flow.source, flow.topic), (flow.target, flow.remote_topic)
        async with _probing(directory, *ends, sent, span) as consumer:
            await _said(mirror, consumer, STARTS, START_LIMIT_S + span.warm_up_s)
            before = mirror.tree.cpu()
            strangers = Strangers()
            found = await _said(mirror, consumer, FOUND, span.seconds + ANSWER_LIMIT_S)
            used = mirror.tree.cpu().since(before)
            latencies = Latencies(**json.loads(found))
            return LatencyRun(candidate, span.seconds, latencies, used.tree_s / span.seconds, strangers.cores())


async def measure_alone(
    bootstrap: str, topic: str, source: Broker, directory: Path, *, sent: Load, span: Span
) -> Latencies:
    """Return what the brokers and both probes take by themselves: the consumer reads the topic at the source."""
    await source.create_topic(topic, PARTITIONS)
    await asyncio.to_thread(directory.mkdir, parents=True)
    async with _probing(directory, (bootstrap, topic), (bootstrap, topic), sent, span) as consumer:
        return Latencies(**json.loads(await _said(None, consumer, FOUND, span.total_s + ANSWER_LIMIT_S)))


@contextlib.asynccontextmanager
async def _probing(
    directory: Path, source: tuple[str, str], target: tuple[str, str], sent: Load, span: Span
) -> AsyncIterator[LoggedProcess]:
    """Produce to *source*, a broker and a topic, and yield what consumes *target*."""
    producer = _probe(directory, "produce", *source, str(sent.records_per_s), str(sent.batch_records))
    consumer = _probe(directory, "consume", *target, str(span.warm_up_s), str(span.seconds))
    try:
        yield consumer
    finally:
        for probe in (producer, consumer):
            await asyncio.to_thread(probe.kill)


def _probe(directory: Path, role: str, *arguments: str) -> LoggedProcess:
    command = [sys.executable, "-m", "bench.latency", role, *arguments]
    checkout = Path(__file__).parent.parent
    return start_process(role, command, log_file=directory / f"{role}.log", cwd=checkout)


async def _said(mirror: Mirror | None, probe: LoggedProcess, word: str, within_s: float) -> str:
    """What the probe printed after *word*."""
    failed = functools.partial(MirrorFailedError, "no mirror") if mirror is None else mirror.failed
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        ended = not probe.is_running
        for line in probe.log_text().splitlines():
            said, _, rest = line.partition(" ")
            if said == word:
                return rest
        if ended:
            raise failed(f"the {probe.name} probe ended: {probe.log_tail()}")
        if mirror is not None:
            mirror.check()
        await asyncio.sleep(0.1)
    raise failed(f"no {word!r} from the {probe.name} probe within {within_s:g} s")


async def produce(bootstrap: str, topic: str, load: Load) -> None:
    """Send batch after batch, each when it is due, never waiting for the one before."""
    batches = template(load.batch_records)
    async with connected(bootstrap) as broker, asyncio.TaskGroup() as answers:
        producer = await broker.init_producer_id()
        started, started_ns = time.monotonic(), time.time_ns()
        number = 0
        while True:
            due_s = number / load.batches_per_s
            await asyncio.sleep(max(0.0, started + due_s - time.monotonic()))
            batch = marked(batches, producer, number, started_ns + int(due_s * 1e9))
            answers.create_task(_answered(broker.produce(topic, [(number % PARTITIONS, batch)])))
            number += 1


async def _answered(sent: Coroutine[Any, Any, None]) -> None:
    await sent


def template(records: int) -> Template:
    """Build the batch that is sent again and again; its first record has room for a mark."""
    values = content.records(value_bytes=VALUE_BYTES - MARK.size - len(MARKED), seed=1)
    builder = DefaultRecordBatchBuilder(2, Codec.NONE.value, 0, 0, 0, 0, 1 << 30)
    for index, (key, value) in enumerate(itertools.islice(values, records)):
        head = bytes(len(MARKED)) if index else MARKED
        builder.append(index, 0, key, head + bytes(MARK.size) + value, [])
    return Template(bytes(builder.build()), records, 0)


def marked(batches: Template, producer: ProducerId, number: int, due_ns: int) -> bytes:
    """Return the batch with that number, in turn of one partition after the other."""
    data = bytearray(batches.data)
    MARK.pack_into(data, data.index(MARKED) + len(MARKED), number, due_ns)
    sequence = number // PARTITIONS * batches.records % (1 << 31)
    return attrs.evolve(batches, data=bytes(data)).stamped(producer, sequence, due_ns // 1_000_000)


async def consume(bootstrap: str, topic: str, span: Span) -> None:
    """Receive the remote topic from its first record; say when the measurement starts, and what it found."""
    async with connected(bootstrap) as broker:
        await broker.await_topic(topic, PARTITIONS)
        positions = [0] * PARTITIONS
        await receive(broker, topic, positions, until_s=span.warm_up_s)
        print(STARTS, flush=True)
        received = await receive(broker, topic, positions, until_s=span.seconds)
        print(FOUND, json.dumps(attrs.asdict(summed_up(received))), flush=True)


async def receive(broker: Broker, topic: str, positions: list[int], *, until_s: float) -> list[tuple[int, float]]:
    """Number and latency of every record that arrives until *until_s* after the first; positions move on."""
    received: list[tuple[int, float]] = []
    deadline = 0.0
    while not received or time.monotonic() < deadline:
        record_sets = await broker.fetch(topic, positions, FETCH_WAIT_MS)
        now_ns = time.time_ns()
        for partition, record_set in record_sets:
            at = 0
            for after, _, size in walk(record_set):
                if after > positions[partition]:
                    positions[partition] = after
                    batch = record_set[at : at + size]
                    received += [(number, (now_ns - due_ns) / 1e6) for number, due_ns in numbered(batch)]
                at += size
        if received and not deadline:
            deadline = time.monotonic() + until_s
    return received


def numbered(batch: bytes) -> Iterator[tuple[int, int]]:
    """Yield number and due time of each record that has them; a mirror may have put several batches into one."""
    at = batch.find(MARKED)
    while at >= 0:
        yield MARK.unpack_from(batch, at + len(MARKED))
        at = batch.find(MARKED, at + len(MARKED) + MARK.size)


def marks(record_set: bytes) -> list[tuple[int, int, int]]:
    """Number, due time and offset of each record."""
    found = []
    batches = MemoryRecords(record_set)
    while batches.has_next():
        for record in batches.next_batch():
            number, due_ns = MARK.unpack_from(record.value)
            found.append((number, due_ns, record.offset))
    return found


def summed_up(received: list[tuple[int, float]]) -> Latencies:
    """The figures of what arrived. The first and last numbers of each partition bound what should have."""
    latencies = sorted(latency for _, latency in received)
    numbers = [number for number, _ in received]
    expected = 0
    for partition in range(PARTITIONS):
        own = [number for number in numbers if number % PARTITIONS == partition]
        if own:
            expected += (max(own) - min(own)) // PARTITIONS + 1
    distinct = len(set(numbers))
    return Latencies(
        records=len(received),
        missing=expected - distinct,
        repeated=len(received) - distinct,
        p50_ms=quantile(latencies, 0.50),
        p99_ms=quantile(latencies, 0.99),
        p999_ms=quantile(latencies, 0.999),
        max_ms=latencies[-1],
    )


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that at least *share* of them do not exceed."""
    rank = -(-int(share * 1000) * len(ordered) // 1000)
    return ordered[max(rank, 1) - 1]


def main() -> None:
    """Be the producer or the consumer."""
    parser = argparse.ArgumentParser(prog="bench.latency")
    parser.add_argument("role", choices=("produce", "consume"))
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("figures", type=float, nargs="+", help="records a second and in a batch, or a span's seconds")
    given = parser.parse_args()
    gc.disable()  # what has arrived is kept, and a full collection of that takes 20 ms, which would count
    if given.role == "produce":
        asyncio.run(produce(given.bootstrap, given.topic, Load(*map(int, given.figures))))
    else:
        asyncio.run(consume(given.bootstrap, given.topic, Span(*given.figures)))


if __name__ == "__main__":
    main()
