"""
``python -m bench.verifying``: how fast ``mm2py verify`` compares both sides, beside a plain read of both.

A topic is loaded, mirrored by mm2py, and compared with 1, 2 and 4 slots. Next to each comparison as many bare readers
as there are slots read both topics and look at nothing. What Spark takes to start is not in either figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
from rich import box
from rich.console import Console
from rich.table import Table

from bench.__main__ import BROKER_JVM, BROKER_PROPERTIES, PLAIN_COLUMNS
from bench.broker import Broker, connected
from bench.candidates import Candidate, FlowSettings, Goal
from bench.load import LoadedTopic, load
from bench.mirror import running
from bench.report import Machine
from bench.shapes import SHAPES_BY_NAME
from bench.tree import Strangers
from mm2py.devkit.broker import KafkaCluster, start_clusters


SLOTS = (1, 2, 4)
COPY_LIMIT_S = 600.0
POLL_S = 0.5
MAX_WAIT_MS = 500
_PREFIX_BYTES = 12


@attrs.frozen
class VerifyRun:
    """One comparison and the plain read next to it; sizes are of both sides together."""

    shape: str
    slots: int
    mb: float
    verify_mb_per_s: float
    read_mb_per_s: float
    unopened: float
    strangers_cores: float


async def _mirror(loaded: LoadedTopic, flow: FlowSettings, target: Broker, directory: Path) -> Path:
    """Have mm2py copy a topic; give the properties file."""
    shape = loaded.shape
    async with running(Candidate.MM2PY, flow, directory) as mirror, asyncio.timeout(COPY_LIMIT_S):
        while True:
            mirror.check()
            ends = await target.end_offsets(flow.remote_topic, shape.partitions)
            if ends is not None and sum(ends) >= loaded.records:
                break
            await asyncio.sleep(POLL_S)
    return directory / "mm2.properties"


async def read_share(bootstrap: str, topic: str, partitions: Sequence[int], ends: Sequence[int]) -> int:
    """Read some partitions of a topic to their ends, keep nothing, and give the number of bytes."""
    total = 0
    async with connected(bootstrap) as broker:
        # A partition that is not wanted is asked for at its end.
        positions = [0 if number in partitions else end for number, end in enumerate(ends)]
        while any(position < end for position, end in zip(positions, ends, strict=True)):
            for number, record_set in await broker.fetch(topic, positions, MAX_WAIT_MS):
                total += len(record_set)
                positions[number] = max(positions[number], _offset_behind(record_set))
    return total


def _offset_behind(record_set: bytes) -> int:
    """Walk the headers of a record set's whole batches."""
    at = behind = 0
    while at + 61 <= len(record_set):
        after = at + _PREFIX_BYTES + int.from_bytes(record_set[at + 8 : at + 12], "big")
        if after > len(record_set):
            break
        base = int.from_bytes(record_set[at : at + 8], "big")
        behind = base + int.from_bytes(record_set[at + 23 : at + 27], "big") + 1
        at = after
    return behind


async def _read_both(source: str, target: str, topics: tuple[str, str], share: tuple[Sequence[int], int]) -> int:
    partitions, of = share
    async with connected(source) as ours, connected(target) as theirs:
        ends = await ours.end_offsets(topics[0], of) or []
        others = await theirs.end_offsets(topics[1], of) or []
    async with asyncio.TaskGroup() as tasks:
        reads = [
            tasks.create_task(read_share(source, topics[0], partitions, ends)),
            tasks.create_task(read_share(target, topics[1], partitions, others)),
        ]
    return sum(read.result() for read in reads)


def _plain_read(source: str, target: str, flow: FlowSettings, partitions: int, slots: int) -> float:
    """Read both topics with as many processes as *slots*, each some partitions; give the seconds of the longest."""
    processes = []
    for slot in range(slots):
        share = ",".join(str(number) for number in range(slot, partitions, slots))
        command = [
            sys.executable,
            "-m",
            "bench.verifying",
            "--read-share",
            share,
            str(partitions),
            source,
            target,
            flow.topic,
            flow.remote_topic,
        ]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    started = time.monotonic()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    seconds = time.monotonic() - started
    for process in processes:
        process.wait()
    return seconds


def _reader(arguments: Sequence[str]) -> int:
    """Be one of the plain readers: say that it is ready, wait for the word, read."""
    share, of, source, target, topic, remote_topic = arguments
    print("ready", flush=True)
    sys.stdin.readline()
    partitions = [int(number) for number in share.split(",") if number]
    print(asyncio.run(_read_both(source, target, (topic, remote_topic), (partitions, int(of)))), flush=True)
    return 0


def _verify(file: Path, flow: FlowSettings, slots: int) -> dict[str, float]:
    command = [sys.executable, "-m", "mm2py", "verify", str(file), f"{flow.source_alias}->{flow.target_alias}"]
    ended = subprocess.run(
        [*command, "--topics", flow.topic, "--slots", str(slots), "--json"], capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"verify ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    found: dict[str, float] = json.loads(ended.stdout)
    return found


async def _measure(
    source: str, target: str, shapes: Sequence[str], work: Path, *, records: int, runs: int
) -> list[VerifyRun]:
    measured = []
    async with connected(source) as ours, connected(target) as theirs:
        for number, name in enumerate(shapes):
            shape = SHAPES_BY_NAME[name]
            loaded = await load(ours, shape, shape.records(records))
            flow = FlowSettings(
                f"v{number}", f"w{number}", source, target, loaded.topic, shape.codec, tasks_max=1, goal=Goal.THROUGHPUT
            )
            file = await _mirror(loaded, flow, theirs, work / name)
            # The first reader would otherwise warm the brokers up for the other.
            await asyncio.to_thread(_plain_read, source, target, flow, shape.partitions, 1)
            for slots in SLOTS * runs:
                strangers = Strangers()
                found = await asyncio.to_thread(_verify, file, flow, slots)
                read_s = await asyncio.to_thread(_plain_read, source, target, flow, shape.partitions, slots)
                mb = (found["source_bytes"] + found["target_bytes"]) / 1e6
                batches = found["batches_unopened"] + found["batches_opened"]
                run = VerifyRun(
                    shape=name,
                    slots=slots,
                    mb=mb,
                    verify_mb_per_s=mb / found["comparing_s"],
                    read_mb_per_s=mb / read_s,
                    unopened=found["batches_unopened"] / batches,
                    strangers_cores=strangers.cores(),
                )
                measured.append(run)
                print(f"{time.strftime('%H:%M:%S')} {run}", file=sys.stderr, flush=True)
            await ours.delete_topics([loaded.topic])
            await theirs.delete_topics([flow.remote_topic])
    return measured


def _table(runs: Sequence[VerifyRun]) -> Table:
    table = Table(
        title="Comparing (medians; MB of both sides)", box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False
    )
    for column in (
        "shape",
        "slots",
        "MB",
        "verify MB/s",
        "plain read MB/s",
        "of plain read",
        "unopened",
        "strangers' cores",
    ):
        table.add_column(column, justify="left" if column == "shape" else "right")
    for shape, slots in dict.fromkeys((run.shape, run.slots) for run in runs):
        some = [run for run in runs if (run.shape, run.slots) == (shape, slots)]
        verify, read = (
            statistics.median(rates)
            for rates in ([run.verify_mb_per_s for run in some], [run.read_mb_per_s for run in some])
        )
        strangers = statistics.median(run.strangers_cores for run in some)
        table.add_row(
            shape, str(slots), f"{some[0].mb:,.0f}", f"{verify:,.0f}", f"{read:,.0f}", f"{verify / read:.2f}",
            f"{some[0].unopened:.0%}", f"{strangers:.2f}",
        )  # fmt: skip
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it."""
    given_arguments = list(sys.argv[1:] if arguments is None else arguments)
    if given_arguments[:1] == ["--read-share"]:
        return _reader(given_arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m bench.verifying", description=__doc__.splitlines()[1])
    parser.add_argument("--shapes", default="json,json-lz4,single", help=f"some of {', '.join(SHAPES_BY_NAME)}")
    parser.add_argument("--records", type=int, default=4_000_000, help="of the first shape; others in proportion")
    parser.add_argument("--runs", type=int, default=1, help="how often each is repeated; the table shows medians")
    given = parser.parse_args(given_arguments)
    with tempfile.TemporaryDirectory(prefix="mm2py-bench-") as scratch:
        source, target = (
            KafkaCluster(name, properties=BROKER_PROPERTIES, jvm=BROKER_JVM, work_dir=Path(scratch) / name)
            for name in ("source", "target")
        )
        machine = Machine.look()
        start_clusters([source, target])
        try:
            runs = asyncio.run(
                _measure(
                    source.bootstrap_servers,
                    target.bootstrap_servers,
                    given.shapes.split(","),
                    Path(scratch) / "runs",
                    records=given.records,
                    runs=given.runs,
                )
            )
        finally:
            source.stop()
            target.stop()
    console = Console()
    console = console if console.is_terminal else Console(width=PLAIN_COLUMNS)
    console.print(f"{machine.cpus} CPUs ({machine.cpu_model}), {machine.python}, load before {machine.load_before:.1f}")
    console.print(_table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
