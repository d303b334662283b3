"""
Who sends and who receives, each a process of its own: ``python -m bench.scale.probes``.

The producer sends record after record at a fixed rate, one partition after the other, and never waits for one before
it sends the next; a partition without a leader has its records wait, and their latency counts from when they were due.
It ends at SIGTERM, once everything is acknowledged. The receiver ends when it has as many records as were sent.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from aiokafka.record._crecords import DefaultRecordBatchBuilder

from bench import content
from bench.batches import ProducerId
from bench.cluster import PASSING, RETRY_S, UNREACHABLE, Cluster, Place, connected_to
from bench.fetching import FetchSession
from bench.latency import FETCH_WAIT_MS, MARK, VALUE_BYTES, marks
from bench.scale import arrivals
from bench.scale.arrivals import Arrival


READY = "ready"
SENT = "sent"
ACKNOWLEDGED = "acknowledged"
#: How long the receiver waits for what is missing, and for what may be repeated.
LATE_S = 30.0
LINGER_S = 1.0
MOST_BATCH_BYTES, MOST_RECORDS = 1 << 20, 1_000


@attrs.frozen
class Due:
    """A record and when it was due to be sent."""

    number: int
    due_ns: int
    key: bytes
    value: bytes


def batch_of(producer: ProducerId, sequence: int, records: Sequence[Due]) -> bytes:
    """Return one batch of *records*."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, producer.id, producer.epoch, sequence, MOST_BATCH_BYTES)
    for index, record in enumerate(records):
        value = MARK.pack(record.number, record.due_ns) + record.value
        builder.append(index, record.due_ns // 1_000_000, record.key, value, [])
    return bytes(builder.build())


def seed() -> bytes:
    """Return a batch of one record that no receiver counts."""
    return batch_of(ProducerId(-1, -1), -1, [Due(-1, time.time_ns(), b"seed", b"." * VALUE_BYTES)])


class Outbox:
    """
    Records that wait for their leaders' acknowledgement.

    One request at a time is under way to each broker, with all that waits for it, because a broker handles those of a
    connection one after the other. A batch that was not acknowledged is sent again as it was, and never to two brokers
    at once.
    """

    def __init__(self, cluster: Cluster, producer: ProducerId, tasks: asyncio.TaskGroup) -> None:
        self._cluster = cluster
        self._producer = producer
        self._tasks = tasks
        self._waiting: defaultdict[Place, list[Due]] = defaultdict(list)
        self._batches: dict[Place, tuple[bytes, list[Due]]] = {}
        self._sequences: defaultdict[Place, int] = defaultdict(int)
        self._busy: set[int] = set()
        self._under_way: set[Place] = set()
        self._wake = asyncio.Event()
        self._is_closed = False
        #: When each record was due, and when it was acknowledged.
        self.acknowledged: list[Arrival] = []

    def put(self, place: Place, record: Due) -> None:
        """Send *record* as soon as its partition's leader takes it."""
        self._waiting[place].append(record)
        self._wake.set()

    def close(self) -> None:
        """Let `run` end once all is acknowledged."""
        self._is_closed = True
        self._wake.set()

    async def run(self) -> None:
        """Send what waits."""
        while not (self._is_closed and not self._waiting and not self._batches):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S):
                    await self._wake.wait()
            self._wake.clear()
            by_leader: defaultdict[int, list[Place]] = defaultdict(list)
            for place in (self._waiting.keys() | self._batches.keys()) - self._under_way:
                by_leader[self._cluster.leader(place)].append(place)
            for leader, places in by_leader.items():
                if leader not in self._busy:
                    self._busy.add(leader)
                    send = self._find(places) if leader < 0 else self._send(leader, places)
                    self._tasks.create_task(send, name=f"send-{leader}")

    async def _find(self, places: list[Place]) -> None:
        await self._cluster.refresh({topic for topic, _ in places})
        await asyncio.sleep(RETRY_S)
        self._busy.discard(-1)
        self._wake.set()

    async def _send(self, leader: int, places: list[Place]) -> None:
        for place in places:
            if place not in self._batches:
                records, later = self._waiting[place][:MOST_RECORDS], self._waiting.pop(place)[MOST_RECORDS:]
                if later:
                    self._waiting[place] = later
                self._batches[place] = batch_of(self._producer, self._sequences[place], records), records
        self._under_way |= set(places)
        for place in await self._cluster.write(leader, {place: self._batches[place][0] for place in places}):
            _, records = self._batches.pop(place)
            self._sequences[place] += len(records)
            now_ns = time.time_ns()
            self.acknowledged += [Arrival(record.number, record.due_ns, now_ns) for record in records]
        self._under_way -= set(places)
        self._busy.discard(leader)
        self._wake.set()


async def produce(bootstrap: str, places: Sequence[Place], rate: int, acknowledged: Path | None = None) -> int:
    """Send *rate* records a second until SIGTERM; return how many it were. Write when each was *acknowledged* there."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    values = content.records(value_bytes=VALUE_BYTES - MARK.size, seed=1)
    async with connected_to(bootstrap) as cluster, asyncio.TaskGroup() as tasks:
        await cluster.refresh({topic for topic, _ in places})
        outbox = Outbox(cluster, await cluster.init_producer_id(), tasks)
        running = tasks.create_task(outbox.run(), name="outbox")
        started, started_ns, number = time.monotonic(), time.time_ns(), 0
        while not stop.is_set():
            due_s = number / rate
            await asyncio.sleep(max(0.0, started + due_s - time.monotonic()))
            key, value = next(values)
            outbox.put(places[number % len(places)], Due(number, started_ns + int(due_s * 1e9), key, value))
            number += 1
        outbox.close()
        await running
    waits_ms = (arrival.latency_ms for arrival in outbox.acknowledged)
    print(ACKNOWLEDGED, json.dumps(attrs.asdict(arrivals.window(waits_ms))), flush=True)
    if acknowledged is not None:
        arrivals.write(acknowledged, outbox.acknowledged)
    return number


class Receiver:
    """
    Fetches the remote partitions and keeps what arrives.

    Each topic has a connection to each broker: with all partitions on one, a broker would read through all of them
    for each record that arrives.
    """

    def __init__(self, cluster: Cluster, places: Sequence[Place]) -> None:
        self._cluster = cluster
        self._places = places
        self._positions: dict[Place, int] = {}
        self.arrivals: list[Arrival] = []
        self.numbers: set[int] = set()

    async def begin(self) -> None:
        """Take the ends of all partitions for positions."""
        topics = {topic for topic, _ in self._places}
        while len(self._positions) < len(self._places):
            self._positions = await self._cluster.ends(self._places)
            await asyncio.sleep(0 if len(self._positions) == len(self._places) else RETRY_S)
        await self._cluster.refresh(topics)

    async def run(self) -> None:
        """Receive until cancelled."""
        topics = sorted({topic for topic, _ in self._places})
        async with asyncio.TaskGroup() as tasks:
            for topic in topics:
                of_topic = [place for place in self._places if place[0] == topic]
                for node in self._cluster.nodes():
                    tasks.create_task(self._from(node, of_topic), name=f"receive-{topic}-{node}")
            while True:
                await asyncio.sleep(RETRY_S)
                lost = {topic for topic, number in self._places if self._cluster.leader((topic, number)) < 0}
                if lost:
                    await self._cluster.refresh(lost)

    async def _from(self, node: int, places: Sequence[Place]) -> None:
        session, broker = FetchSession(), None
        try:
            while True:
                led = {place: self._positions[place] for place in places if self._cluster.leader(place) == node}
                if not led:
                    await asyncio.sleep(RETRY_S / 2)
                    continue
                try:
                    broker = broker or await self._cluster.connect_to(node)
                    answer = await broker.send(session.request(led, FETCH_WAIT_MS))
                except UNREACHABLE:
                    session.restart()
                    self._lose(led)
                    if broker:
                        broker.close()
                    broker = None
                    continue
                if session.took(answer):
                    self._take_all(answer)
        finally:
            if broker:
                broker.close()

    def _take_all(self, answer: Any) -> None:
        now_ns = time.time_ns()
        for topic, partitions in answer.topics:
            for number, code, *_, record_set in partitions:
                self._take((topic, number), code, record_set, now_ns)

    def _take(self, place: Place, code: int, record_set: bytes | None, now_ns: int) -> None:
        if code in PASSING:
            self._lose([place])
        elif code:
            message = f"fetching {place[0]}-{place[1]} got error {code}"
            raise RuntimeError(message)
        for number, due_ns, offset in marks(record_set) if record_set else ():
            if offset >= self._positions[place]:
                self._positions[place] = offset + 1
                if number >= 0:
                    self.arrivals.append(Arrival(number, due_ns, now_ns))
                    self.numbers.add(number)

    def _lose(self, places: Sequence[Place] | dict[Place, int]) -> None:
        for place in places:
            self._cluster.forget_leader(place)


async def consume(bootstrap: str, places: Sequence[Place], found: Path, sent: Path) -> None:
    """Receive until everything is here that the file *sent* names, once it is there; write what came to *found*."""
    async with connected_to(bootstrap) as cluster, asyncio.TaskGroup() as tasks:
        receiver = Receiver(cluster, places)
        await receiver.begin()
        running = tasks.create_task(receiver.run(), name="receiver")
        print(READY, flush=True)
        while not sent.exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
            await asyncio.sleep(RETRY_S)
        count, deadline = int(sent.read_text()), time.monotonic() + LATE_S  # noqa: ASYNC240
        while len(receiver.numbers) < count and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(RETRY_S)
        await asyncio.sleep(LINGER_S)
        running.cancel()
    arrivals.write(found, receiver.arrivals)


def main() -> None:
    """Be the producer or the receiver."""
    parser = argparse.ArgumentParser(prog="bench.scale.probes")
    parser.add_argument("role", choices=("produce", "consume"))
    parser.add_argument("bootstrap")
    parser.add_argument("places", type=Path, help="a file of topics and numbers")
    parser.add_argument("rest", nargs="+")
    given = parser.parse_args()
    gc.disable()  # what was sent or has arrived is kept, and a full collection of that would count as latency
    places = [(topic, number) for topic, number in json.loads(given.places.read_text())]
    if given.role == "produce":
        rate, *files = given.rest
        print(SENT, asyncio.run(produce(given.bootstrap, places, int(rate), *map(Path, files))), flush=True)
    else:
        asyncio.run(consume(given.bootstrap, places, *(Path(path) for path in given.rest)))


if __name__ == "__main__":
    main()
