"""
A daemon that runs for weeks must not grow: as many epochs as fit are run in an hour or two, and every part is measured.

With epochs of 50 ms a copy task runs in an hour as many of them as it does in four days with the usual ten seconds.
Each is a Spark job here, because a Spark task without a slot to spare does not stay for the next epoch: so all counts
that Spark keeps of a job. With slots to spare (MM2PY_SOAK_MASTER=local[*]), as a daemon has by default, hardly any
job ends, and what is measured is what epochs leave behind in one that stays.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import aiohttp
import attrs
import psutil
import pytest
from rich.console import Console
from rich.table import Table

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from tests.support.daemon import Daemon, daemon, process_tree, spark_workers
from tests.support.groups import commit_as_admin
from tests.support.mm2_file import mm2_properties
from tests.support.producing import producer
from tests.support.slopes import Point, Slope, slope_of
from tests.support.topics import create_topic, end_offsets


_MASTER = os.environ.get("MM2PY_SOAK_MASTER") or "local[1]"
#: It ends once there were as many jobs, or epochs, and it took as long. MM2PY_SOAK_JOBS=2000 tries it out.
_JOBS = int(os.environ.get("MM2PY_SOAK_JOBS") or 100_000)
_HOURS = float(os.environ.get("MM2PY_SOAK_HOURS") or 0)
_EVERY_S = float(os.environ.get("MM2PY_SOAK_SAMPLE_S") or 60)
_FAULT_EVERY_S = float(os.environ.get("MM2PY_SOAK_FAULT_S") or 300)
#: The share of the samples that does not count: caches fill, the JVM compiles. In a shorter run all is like that, and
#: the table is shown without a verdict.
_WARM_UP = 0.25
_JUDGED_FROM_HOURS = 0.5
#: What was started again has as long to get warm.
_SETTLED_AFTER_S = 300.0
#: The first of its tasks run the statement.
_RECORD_TASKS = 1
#: Every so many faults a worker is killed.
_KILL_EACH = 4
_FROZEN_S = 3.0

#: What may be added an hour: MiB to all memory together, and of each other thing.
_MIB_AN_HOUR = 1.0
_FEW_AN_HOUR = 4.0
_OBJECTS_AN_HOUR = 200.0


_PROC = Path("/proc")
_MIB = 1024 * 1024
_JCMD_LIMIT_S = 60.0
_CLEANED_WITHIN_S = 1.0
#: ``   1:        123456       23456789  java.lang.String (java.base@17)``
_CLASS = re.compile(r"^\s*\d+:\s+(?P<count>\d+)\s+(?P<size>\d+)\s+(?P<name>\S+)")
#: The parts of the heap, as `GC.heap_info` shows them: ``[0x00000000e0000000, 0x...)``.
_SPACE = re.compile(r"\[0x([0-9a-f]+),.*0x([0-9a-f]+)\)")
#: The collector fills with it what it leaves empty, up to 5 MiB.
_FILLER = "[I"
_METASPACE = re.compile(r"Metaspace\s+used (\d+)K")
_MAPPING = re.compile(r"^([0-9a-f]+)-[0-9a-f]+ ")

#: What Spark and py4j keep, by the ends of their classes' names.
_STORES = {
    "jobs": r"spark\.status\.(JobDataWrapper|LiveJob)",
    "stages": r"spark\.status\.(StageDataWrapper|LiveStage|RDDOperationGraphWrapper|PoolData)",
    "tasks": r"spark\.status\.(TaskDataWrapper|LiveTask)",
    "executions": r"spark\.sql\.execution\.ui\.(SQLExecutionUIData|LiveExecutionData|SparkPlanGraphWrapper)",
    "scheduler": r"spark\.scheduler\.(ActiveJob|ResultStage|ShuffleMapStage|TaskSetManager|Pool)",
    "rdds": r"spark\.(rdd|api\.python|sql\.execution\.\w+)\.\w*RDD",
    "broadcasts": r"spark\.broadcast\.TorrentBroadcast",
    "blocks": r"spark\.storage\.(BlockInfo|memory\.\w*MemoryEntry)",
    "references to clean": r"spark\.CleanupTaskWeakReference",
    "accumulators": r"spark\.util\.(Long|Double|Collection)Accumulator|spark\.sql\.execution\.metric\.SQLMetric",
    "py4j connections": r"py4j\.(GatewayConnection|ClientServerConnection|CallbackConnection)",
}


@attrs.frozen
class Footprint:
    """One sample. Memory is in MiB; `stores` are numbers of objects, and `classes` all of them, by class."""

    memory: Mapping[str, float]
    counts: Mapping[str, float]
    stores: Mapping[str, float]
    #: Of both kinds of processes: what was started again starts at another level.
    lives: Mapping[str, str]
    classes: Mapping[str, int] = attrs.field(repr=False)
    #: For information: it depends on when the collector was last at work.
    resident: Mapping[str, float]


def footprint(pid: int, scratch: Path) -> Footprint:
    """Look at a daemon and all below it, after a full collection in its JVM; *scratch* is its folder for files."""
    below = [it for it in process_tree(pid)[1:] if it.is_running()]
    (java,) = [it for it in below if _name(it) == "java"]
    pythons = [it for it in below if _name(it).startswith("python")]
    classes, heap_bytes = histogram(java.pid)
    info = _jcmd(java.pid, "GC.heap_info")
    spaces = [tuple(int(end, 16) for end in found) for found in _SPACE.findall(info.split("Metaspace")[0])]
    heap = (min(low for low, _ in spaces), max(high for _, high in spaces))
    (metaspace,) = _METASPACE.findall(info)
    files = list(_files(scratch))
    memory = {
        "daemon": _anonymous(pid),
        "workers": sum(_anonymous(it.pid) for it in pythons),
        "JVM heap": heap_bytes / _MIB,
        "JVM outside its heap": outside(java.pid, *heap),
    }
    counts = {
        "files": len(files),
        "MiB in files": sum(files) / _MIB,
        **{
            f"threads, {name}": float(it.num_threads()) for name, it in (("daemon", psutil.Process(pid)), ("JVM", java))
        },
        "threads, workers": float(sum(it.num_threads() for it in pythons)),
        "descriptors, daemon": _descriptors(pid),
        "descriptors, JVM": _descriptors(java.pid),
        "descriptors, workers": sum(_descriptors(it.pid) for it in pythons),
        "processes": float(len(below)),
    }
    stores = {
        name: float(sum(classes[it] for it in classes if re.search(f"{end}$", it))) for name, end in _STORES.items()
    }
    return Footprint(
        memory,
        counts,
        stores,
        {"workers": " ".join(str(it.pid) for it in pythons), "JVM": str(java.pid)},
        classes,
        {"JVM, resident": java.memory_info().rss / _MIB, "metaspace": int(metaspace) / 1024},
    )


def histogram(java: int) -> tuple[dict[str, int], int]:
    """Collect all garbage of a JVM; return how many objects of each class are left, and the bytes of all."""
    # Spark lets go of more once it has seen what was collected.
    _jcmd(java, "GC.run")
    time.sleep(_CLEANED_WITHIN_S)
    classes: dict[str, int] = {}
    total = 0
    for line in _jcmd(java, "GC.class_histogram").splitlines():
        found = _CLASS.match(line)
        if found is not None:
            # What is made up at run time has a number that changes.
            name = re.sub(r"(\$\$Lambda)?(\$|/0x|\+0x)[0-9a-fx]{3,}.*", "", found["name"])
            classes[name] = classes.get(name, 0) + int(found["count"])
            total += 0 if found["name"] == _FILLER else int(found["size"])
    return classes, total


def outside(java: int, low: int, high: int) -> float:
    """Return the MiB of a JVM's own memory that are not its heap: metaspace, code, stacks, malloc."""
    kib, is_heap = 0, False
    for line in (_PROC / str(java) / "smaps").read_text().splitlines():
        found = _MAPPING.match(line)
        if found is not None:
            is_heap = low <= int(found[1], 16) < high
        elif line.startswith("Anonymous:") and not is_heap:
            kib += int(line.split()[1])
    return kib / 1024


def _anonymous(pid: int) -> float:
    """Return the MiB of a process's own memory, with its share of what forked processes have in common."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _descriptors(pid: int) -> float:
    with suppress(FileNotFoundError):
        return float(len(os.listdir(_PROC / str(pid) / "fd")))  # noqa: PTH208
    return 0.0


def _name(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _files(folder: Path) -> Iterator[int]:
    """Return the sizes of all files in *folder*."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                yield Path(place, name).lstat().st_size


def _jcmd(pid: int, *words: str) -> str:
    done = subprocess.run(["jcmd", str(pid), *words], capture_output=True, text=True, timeout=_JCMD_LIMIT_S, check=True)
    return done.stdout


@attrs.frozen
class _Sample:
    """What the daemon took at one moment."""

    hours: float
    jobs: int
    epochs: int
    footprint: Footprint


@attrs.frozen
class _Row:
    """How one thing grew."""

    kind: str
    name: str
    first: float
    last: float
    slope: Slope
    limit: float | None


@attrs.define
class _Load:
    """A light stream of everything: plain records, transactions, records for a statement, offsets of a group."""

    source: str
    start: str
    sent: int = 0

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(f"{self.start}-{kind}" for kind in ("plain", "transactions", "statement"))

    async def run(self) -> None:
        """Write until cancelled."""
        plain, transactions, statement = self.topics
        async with (
            producer(self.source, idempotent=True) as straight,
            producer(self.source, transactional_id=f"{self.start}-writer") as transactional,
        ):
            for turn in itertools.count():
                for number in range(10):
                    await straight.send_and_wait(plain, b"%d" % turn, partition=number % 2)
                    self.sent += 1
                if turn % 2 == 0:
                    await straight.send_and_wait(statement, b"%d" % turn, partition=turn // 2 % 2)
                if turn % 3 == 0:
                    await transactional.begin_transaction()
                    await transactional.send_and_wait(transactions, b"%d" % turn, partition=0)
                    await (transactional.abort_transaction if turn % 5 == 0 else transactional.commit_transaction)()
                if turn % 15 == 0:
                    read = {TopicPartition(plain, 0): CommittedOffset(turn)}
                    await commit_as_admin(self.source, f"{self.start}-group", read)
                await asyncio.sleep(1)


@pytest.mark.soak(only="100 000 Spark jobs")
@pytest.mark.timeout(0)
async def test_a_daemon_does_not_grow(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    However many epochs, and Spark jobs, a daemon has run, it takes as much as after the first: memory, threads, files.

    Brokers freeze and workers are killed meanwhile, and all that was written is mirrored in the end.
    """
    load = _Load(primary.bootstrap_servers, prefix)
    for topic in load.topics:
        await create_topic(primary.bootstrap_servers, topic, partitions=1 if "transactions" in topic else 2)
    keys = {
        "A->B.topics": f"{prefix}-.*",
        "A->B.groups": f"{prefix}-.*",
        f"A->B.transform.{prefix}-statement.sql": "SELECT * EXCEPT (value), concat(value, 'x') AS value FROM records",
        "A.consumer.isolation.level": "read_committed",
        "B.exactly.once.source.support": "enabled",
        "copy.epoch.ms": 50,
        # An epoch ends when its fetches are answered.
        "A.consumer.fetch.max.wait.ms": 20,
        "tasks.max": 2,
        "spark.master": _MASTER,
        "emit.checkpoints.interval.seconds": 5,
        "refresh.topics.interval.seconds": 10,
        "refresh.groups.interval.seconds": 10,
        "emit.heartbeats.enabled": "true",
    }
    properties = mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, **keys)
    folder = _artifacts(tmp_path)
    # The path of a socket in it must be short.
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        async with daemon(tmp_path, properties, env={"TMPDIR": scratch}) as running, asyncio.TaskGroup() as group:
            writing = group.create_task(load.run(), name="load")
            faults = group.create_task(_damage(running, primary, backup), name="faults")
            samples = await _samples(running, Path(scratch), folder / "soak-samples.jsonl")
            faults.cancel()
            writing.cancel()
            for topic in load.topics:
                ends = await end_offsets(primary.bootstrap_servers, topic)
                await running.wait_for_positions(topic, "A->B", list(ends.values()))
            lost = [event for event in running.events("spark_logged") if "Drop" in event["line"]]

    rows = _rows(samples)
    _show(samples, rows, folder / "soak.txt")
    assert lost == []
    is_judged = samples[-1].hours >= _JUDGED_FROM_HOURS
    assert [f"{row.name}: {row.slope.per_hour:+.2f} an hour" for row in rows if is_judged and _grows(row)] == []


async def _samples(running: Daemon, scratch: Path, kept: Path) -> list[_Sample]:
    """Look at the daemon until it has run for long enough; keep each sample as a line of JSON."""
    ui = (await running.wait_for_event("spark_started", within_s=120))["ui"]
    begun = time.monotonic()
    samples: list[_Sample] = []
    with kept.open("w") as lines:
        while not samples or max(samples[-1].jobs, samples[-1].epochs) < _JOBS or samples[-1].hours < _HOURS:
            await asyncio.sleep(_EVERY_S)
            taken = await asyncio.to_thread(footprint, running.pid, scratch)
            hours, epochs = (time.monotonic() - begun) / 3600, _epochs(running)
            samples.append(_Sample(hours, await _jobs(ui), epochs, taken))
            print(json.dumps(attrs.asdict(samples[-1])), file=lines, flush=True)
    return samples


def _artifacts(otherwise: Path) -> Path:
    folder = Path(os.environ.get("MM2PY_ARTIFACTS") or otherwise)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def _jobs(ui: str) -> int:
    """Return how many jobs Spark has run."""
    async with aiohttp.ClientSession() as http:
        async with http.get(f"{ui}/api/v1/applications") as answer:
            (application,) = await answer.json()
        async with http.get(f"{ui}/api/v1/applications/{application['id']}/jobs") as answer:
            return max(int(job["jobId"]) for job in await answer.json()) + 1


def _epochs(running: Daemon) -> int:
    """Return how many epochs its copy tasks have ended. A record task's, without records, takes no job."""
    tasks = running.flow_view().get("tasks", ())
    return sum(task["epochs_ended"] for task in tasks if task["task"] >= _RECORD_TASKS)


async def _damage(running: Daemon, *clusters: KafkaCluster) -> None:
    """Freeze brokers in turns, and kill workers, until cancelled."""
    for number in itertools.count(1):
        await asyncio.sleep(_FAULT_EVERY_S)
        if number % _KILL_EACH == 0:
            os.kill(spark_workers(running.pid)[0], signal.SIGKILL)
            continue
        cluster = clusters[number % 2]
        cluster.pause(0)
        try:
            await asyncio.sleep(_FROZEN_S)
        finally:
            cluster.resume(0)


def _rows(samples: list[_Sample]) -> list[_Row]:
    counted = samples[int(len(samples) * _WARM_UP) :]

    def rows(kind: str, values: list[Mapping[str, float]], limit: float | None) -> Iterator[_Row]:
        for name in values[0]:
            points = list(_points(counted, name, [it[name] for it in values]))
            yield _Row(kind, name, values[0][name], values[-1][name], slope_of(points), limit)

    memory = list(rows("MiB", [it.footprint.memory for it in counted], None))
    whole = _Row(
        "MiB",
        "all memory",
        sum(row.first for row in memory),
        sum(row.last for row in memory),
        sum((row.slope for row in memory), Slope(0.0, 0.0)),
        _MIB_AN_HOUR,
    )
    return [
        *memory,
        whole,
        *rows("MiB", [it.footprint.resident for it in counted], None),
        *rows("", [it.footprint.counts for it in counted], _FEW_AN_HOUR),
        *rows("objects", [it.footprint.stores for it in counted], _OBJECTS_AN_HOUR),
    ]


def _points(samples: list[_Sample], name: str, values: list[float]) -> Iterator[Point]:
    """Return the values of what has been running for long enough not to be new."""
    life, since = "", 0.0
    for sample, value in zip(samples, values, strict=True):
        of = sample.footprint.lives["workers"] if "workers" in name else ""
        if of != life:
            life, since = of, sample.hours
        if not of or (sample.hours - since) * 3600 >= _SETTLED_AFTER_S:
            yield Point(sample.hours, value, of)


def _grows(row: _Row) -> bool:
    return row.limit is not None and row.slope.is_above(row.limit)


def _show(samples: list[_Sample], rows: list[_Row], kept: Path) -> None:
    """Print a table, and keep it."""
    last = samples[-1]
    counted = f"{last.jobs} Spark jobs, {last.epochs} epochs in {last.hours:.2f} hours"
    table = Table(title=f"{_MASTER}: {counted}, {len(samples)} samples")
    for column in ("", "", "first", "last", "an hour", "give or take", "limit", ""):
        table.add_column(column, justify="right" if column else "left")
    for row in rows:
        verdict = "grows" if _grows(row) else "" if row.limit is None else "level"
        if row.limit is not None and not _grows(row) and not row.slope.is_within(row.limit):
            verdict = "too short to tell"
        table.add_row(
            row.name,
            row.kind,
            f"{row.first:.1f}",
            f"{row.last:.1f}",
            f"{row.slope.per_hour:+.2f}",
            f"{row.slope.give_or_take:.2f}",
            "" if row.limit is None else f"{row.limit:g}",
            verdict,
        )
    console = Console(width=120, record=True)
    console.print(table)
    kept.write_text(console.export_text())
