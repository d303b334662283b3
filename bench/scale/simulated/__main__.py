"""
Two simulated clusters as a process of its own: ``python -m bench.scale.simulated FILE``.

*FILE* holds the partitions of each source topic, which of them are to be busy, and how many records a second. Each
source partition begins with one record. What happens is printed, a JSON object a line, with the clock that all
processes of a machine share. At SIGUSR1 records begin to flow, at the next one they end.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import attrs

from bench.batches import ProducerId
from bench.latency import VALUE_BYTES, marks
from bench.scale import arrivals
from bench.scale.arrivals import Arrival
from bench.scale.probes import Due, batch_of, seed
from bench.scale.simulated.broker import SimulatedBroker
from bench.scale.simulated.logs import Log, SimulatedCluster


#: How long records may take that were sent last.
LATE_S = 30.0
PRODUCER = ProducerId(1, 0)


def say(what: str, **facts: Any) -> None:
    """Print what happened now."""
    print(json.dumps({"what": what, "at": time.monotonic(), **facts}), flush=True)


@attrs.define(eq=False)
class Watch:
    """Reports when the copies of the first, and of all, partitions have arrived; keeps what arrived of the load."""

    partitions: int
    _seen: int = 0
    is_loaded: bool = False
    arrivals: list[Arrival] = attrs.field(factory=list)

    def appended(self, log: Log, base: int) -> None:
        """Take note of a batch that was written to the target."""
        if log.topic.name.startswith("A.idle-") or log.topic.name.startswith("A.busy-"):
            if base == 0:
                self._seen += 1
                if self._seen == 1:
                    say("first record")
                if self._seen == self.partitions:
                    say("all partitions")
            if self.is_loaded:
                now_ns = time.time_ns()
                _, batch = log.batches[-1]
                self.arrivals += [Arrival(number, due_ns, now_ns) for number, due_ns, _ in marks(batch) if number >= 0]


async def load(busy: list[Log], rate: int, watch: Watch, stop: asyncio.Event) -> None:
    """Write *rate* records a second to the *busy* partitions in turn, until *stop*, and report how they arrived."""
    watch.is_loaded = True
    watch.arrivals.clear()
    started, started_ns, number = time.monotonic(), time.time_ns(), 0
    value = b"." * (VALUE_BYTES - 16)
    while not stop.is_set():
        due_s = number / rate
        await asyncio.sleep(max(0.0, started + due_s - time.monotonic()))
        due = Due(number, started_ns + int(due_s * 1e9), b"key", value)
        busy[number % len(busy)].append(batch_of(PRODUCER, number // len(busy), [due]))
        number += 1
    deadline = time.monotonic() + LATE_S
    while len({it.number for it in watch.arrivals}) < number and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    watch.is_loaded = False
    found = arrivals.Arrivals(number, len(busy), tuple(watch.arrivals))
    first, last = found.first_due_ns, found.last_due_ns
    warm = found.window((first + last) // 2, last + 1)
    say("load", sent=number, missing=found.missing, repeated=found.repeated, warm=attrs.asdict(warm))


async def run(order: dict[str, Any]) -> None:
    """Serve until SIGTERM."""
    topics: dict[str, int] = order["topics"]
    source, target = SimulatedCluster("source"), SimulatedCluster("target")
    watch = Watch(sum(topics.values()))
    target.on_append = watch.appended
    batch, busy = seed(), []
    for name, partitions in topics.items():
        for log in source.create(name, partitions).logs:
            log.append(batch)
            if name in order["busy"]:
                busy.append(log)
    loop, toggled, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, toggled.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    brokers = [SimulatedBroker(source), SimulatedBroker(target)]
    for broker in brokers:
        await broker.start()
    say("ready", ports=[broker.port for broker in brokers])

    async def loads() -> None:
        while True:
            await toggled.wait()
            toggled.clear()
            await load(busy, order["rate"], watch, toggled)
            toggled.clear()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(loads(), name="loads")
        await ended.wait()
        running.cancel()
    sys.stdout.flush()


def main() -> None:
    """Read the order and serve."""
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text())))


if __name__ == "__main__":
    main()
