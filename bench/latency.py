"""
Latency at a fixed rate: from the moment a record is due to be sent to the moment a consumer of the target has it.

A producer and a consumer, each a process of its own so that neither waits for the other, are started as ``python -m
bench.latency``. The value of each record carries its number and when it was due, so that a producer that had to wait
hides nothing; both processes read the same clock.
The consumer lets the mirror warm up, then takes every record that arrives for the asked time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import struct
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import attrs
from aiokafka.record._crecords import DefaultRecordBatchBuilder, MemoryRecords

from bench import content
from bench.batches import ProducerId
from bench.broker import Broker, connected
from bench.candidates import Candidate, FlowSettings
from bench.mirror import Mirror, MirrorFailedError, running
from bench.shapes import Codec
from bench.tree import Strangers
from mm2py.devkit.process import LoggedProcess, start_process


PARTITIONS = 8
RECORDS_PER_S = 500
VALUE_BYTES = 200
WARM_UP_S = 10.0
START_LIMIT_S = 90.0
ANSWER_LIMIT_S = 30.0
FETCH_WAIT_MS = 500
STARTS = "measuring"
FOUND = "measured"

MARK = struct.Struct(">qq")  # the record's number, and when it was due in nanoseconds


@attrs.frozen
class Latencies:
    """What the consumer saw: milliseconds from sending to receipt, and whether the numbers were complete."""

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
    candidate: Candidate, flow: FlowSettings, source: Broker, directory: Path, *, seconds: float
) -> LatencyRun:
    """Run *candidate* on a topic of its own, into which records trickle from the start."""
    await source.create_topic(flow.topic, PARTITIONS)
    async with running(candidate, flow, directory) as mirror:
        ends = (flow.source, flow.topic), (flow.target, flow.remote_topic)
        async with _probing(directory, *ends, seconds) as consumer:
            await _said(mirror, consumer, STARTS, START_LIMIT_S + WARM_UP_S)
            before = mirror.tree.cpu()
            strangers = Strangers()
            found = await _said(mirror, consumer, FOUND, seconds + ANSWER_LIMIT_S)
            used = mirror.tree.cpu().since(before)
            latencies = Latencies(**json.loads(found))
            return LatencyRun(candidate, seconds, latencies, used.tree_s / seconds, strangers.cores())


async def measure_alone(bootstrap: str, topic: str, source: Broker, directory: Path, *, seconds: float) -> Latencies:
    """Return what the brokers and both probes take by themselves: the consumer reads the topic at the source."""
    await source.create_topic(topic, PARTITIONS)
    await asyncio.to_thread(directory.mkdir, parents=True)
    async with _probing(directory, (bootstrap, topic), (bootstrap, topic), seconds) as consumer:
        return Latencies(**json.loads(await _said(None, consumer, FOUND, WARM_UP_S + seconds + ANSWER_LIMIT_S)))


@contextlib.asynccontextmanager
async def _probing(
    directory: Path, source: tuple[str, str], target: tuple[str, str], seconds: float
) -> AsyncIterator[LoggedProcess]:
    """Produce to *source*, a broker and a topic, and yield what consumes *target*."""
    producer, consumer = _probe(directory, "produce", *source), _probe(directory, "consume", *target, str(seconds))
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


async def produce(bootstrap: str, topic: str) -> None:
    """Send one record every 1/500 s, each in a batch of its own, never waiting for the one before."""
    values = content.records(value_bytes=VALUE_BYTES - MARK.size, seed=1)
    async with connected(bootstrap) as broker, asyncio.TaskGroup() as answers:
        producer = await broker.init_producer_id()
        started, started_ns = time.monotonic(), time.time_ns()
        number = 0
        while True:
            due_s = number / RECORDS_PER_S
            await asyncio.sleep(max(0.0, started + due_s - time.monotonic()))
            key, value = next(values)
            batch = _one_record(producer, number, started_ns + int(due_s * 1e9), key, value)
            answers.create_task(_answered(broker.produce(topic, [(number % PARTITIONS, batch)])))
            number += 1


async def _answered(sent: Coroutine[Any, Any, None]) -> None:
    await sent


def _one_record(producer: ProducerId, number: int, due_ns: int, key: bytes, value: bytes) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, Codec.NONE.value, 0, producer.id, producer.epoch, number // PARTITIONS, 1 << 20
    )
    builder.append(0, due_ns // 1_000_000, key, MARK.pack(number, due_ns) + value, [])
    return bytes(builder.build())


async def consume(bootstrap: str, topic: str, seconds: float) -> None:
    """Receive the remote topic from its first record; say when the measurement starts, and what it found."""
    async with connected(bootstrap) as broker:
        await broker.await_topic(topic, PARTITIONS)
        positions = [0] * PARTITIONS
        await receive(broker, topic, positions, until_s=WARM_UP_S)
        print(STARTS, flush=True)
        received = await receive(broker, topic, positions, until_s=seconds)
        print(FOUND, json.dumps(attrs.asdict(summed_up(received))), flush=True)


async def receive(broker: Broker, topic: str, positions: list[int], *, until_s: float) -> list[tuple[int, float]]:
    """Number and latency of every record that arrives until *until_s* after the first; positions move on."""
    received: list[tuple[int, float]] = []
    deadline = 0.0
    while not received or time.monotonic() < deadline:
        record_sets = await broker.fetch(topic, positions, FETCH_WAIT_MS)
        now_ns = time.time_ns()
        for partition, record_set in record_sets:
            for number, due_ns, offset in marks(record_set):
                if offset >= positions[partition]:
                    positions[partition] = offset + 1
                    received.append((number, (now_ns - due_ns) / 1e6))
        if received and not deadline:
            deadline = time.monotonic() + until_s
    return received


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
    parser.add_argument("seconds", type=float, nargs="?", default=0.0)
    given = parser.parse_args()
    if given.role == "produce":
        asyncio.run(produce(given.bootstrap, given.topic))
    else:
        asyncio.run(consume(given.bootstrap, given.topic, given.seconds))


if __name__ == "__main__":
    main()
