"""
Who is measured: mm2py, Java MirrorMaker 2 as it comes, and Java MirrorMaker 2 tuned as well as we know how.

All three get the same flow from the same keys. What not all of them do is switched off for all of them, so that
no candidate is slowed down by work that another leaves undone. The others run only when they are asked for: a bare
mirror in Go does less than MirrorMaker 2, and the rest are other states of mm2py.
"""

from __future__ import annotations

import enum
import os
import sys
from pathlib import Path

import attrs

import mm2py
from bench import go
from bench.shapes import Codec
from mm2py.devkit.java import SERVER_FLAGS, JvmOptions


#: Our command.
MODULE = "mm2py.cli.mirror_maker"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
#: The environment variable with the other checkout's path.
BEFORE_AT = "MM2PY_BENCH_BEFORE"
_TEXT_HEADERS = "org.apache.kafka.connect.storage.StringConverter"

#: What Kafka's connect-mirror-maker.sh sets when the environment does not.
JAVA_DEFAULT = JvmOptions(2048, ("-Xms256m", *SERVER_FLAGS))
#: The same heap, taken at once and most of it for young objects, with the collector that is after throughput: this
#: alone took four to five tenths off the CPU time of a record.
JAVA_TUNED = JvmOptions(2048, ("-server", "-XX:+UseParallelGC", "-Xms2048m", "-Xmn1400m"))


class Goal(enum.Enum):
    """What a run is after; it decides how the tuned candidate is tuned."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"


@attrs.frozen
class FlowSettings:
    """One flow to mirror: fresh aliases for each run, so that no run finds what an earlier one left."""

    source_alias: str
    target_alias: str
    source: str
    target: str
    topic: str
    codec: Codec
    tasks_max: int
    goal: Goal
    #: Keys of the flow beside those that all have.
    transforms: tuple[tuple[str, str], ...] = ()
    #: Keys that only mm2py has.
    ours: tuple[tuple[str, str], ...] = ()

    @property
    def remote_topic(self) -> str:
        return f"{self.source_alias}.{self.topic}"


class Candidate(enum.Enum):
    """One of those compared, by the name that ``--only`` takes."""

    MM2PY = "mm2py"
    #: mm2py of another checkout, whose path is in `BEFORE_AT`.
    BEFORE = "before"
    #: mm2py without its compiled code.
    PURE = "mm2py-pure"
    JAVA = "java"
    JAVA_TUNED = "java-tuned"
    #: A bare mirror with franz-go, record by record, without positions, configs, ACLs and groups.
    GO = "go"

    @property
    def is_ours(self) -> bool:
        return self in {Candidate.MM2PY, Candidate.BEFORE, Candidate.PURE}

    @property
    def is_usual(self) -> bool:
        """Whether it runs without being asked for."""
        return self in {Candidate.MM2PY, Candidate.JAVA, Candidate.JAVA_TUNED}

    @property
    def has_transforms(self) -> bool:
        return self is not Candidate.GO

    def properties(self, flow: FlowSettings) -> dict[str, str]:
        """The keys of this candidate's configuration file."""
        settings = _common(flow)
        if self.is_ours:
            settings |= dict(flow.ours)
        if self is Candidate.JAVA_TUNED:
            settings |= _tuned(flow)
        if self is Candidate.GO:
            settings |= _tuned_go(flow)
        if not self.is_ours and flow.transforms:
            # Connect's own for MirrorMaker takes bytes alone, and a header that is inserted is text.
            settings[f"{flow.source_alias}->{flow.target_alias}.header.converter"] = _TEXT_HEADERS
        return settings

    def command(self, file: Path, profile: Path | None = None, module: str = MODULE) -> list[str]:
        """The command line that mirrors what *file* says; if it is ours, with a *profile* by Python's profiler."""
        if self.is_ours:
            profiler = ["-m", "cProfile", "-o", str(profile)] if profile else []
            return [sys.executable, *profiler, "-m", module, str(file)]
        if self is Candidate.GO:
            return [str(go.binary()), str(file)]
        jvm = JAVA_TUNED if self is Candidate.JAVA_TUNED else JAVA_DEFAULT
        return jvm.command(MIRROR_MAKER, str(file), scratch=file.parent)

    def environment(self) -> dict[str, str]:
        """What the process needs beside our own environment."""
        checkout = os.environ[BEFORE_AT] if self is Candidate.BEFORE else str(Path(mm2py.__file__).parent.parent)
        inherited = os.environ.get("PYTHONPATH")
        added = {"PYTHONPATH": f"{checkout}{os.pathsep}{inherited}" if inherited else checkout}
        return added | {"MM2PY_NATIVE": "0"} if self is Candidate.PURE else added


def as_properties(settings: dict[str, str]) -> str:
    """The text of a ``.properties`` file."""
    return "".join(f"{key} = {value}\n" for key, value in settings.items())


def _common(flow: FlowSettings) -> dict[str, str]:
    pair = f"{flow.source_alias}->{flow.target_alias}"
    return {
        "clusters": f"{flow.source_alias}, {flow.target_alias}",
        f"{flow.source_alias}.bootstrap.servers": flow.source,
        f"{flow.target_alias}.bootstrap.servers": flow.target,
        f"{pair}.enabled": "true",
        f"{pair}.topics": flow.topic,
        "tasks.max": str(flow.tasks_max),
        "replication.factor": "1",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        # Else Java runs a second worker, for the direction that is not enabled.
        "emit.heartbeats.enabled": "false",
        **{f"{pair}.{key}": text for key, text in flow.transforms},
    }


def _tuned(flow: FlowSettings) -> dict[str, str]:
    """
    Large fetches, large batches, several requests in flight.

    Compared with each other were 1, 2 and 4 tasks, the collectors, batches of 64 KiB to 1 MiB, 2 000 to 20 000 records
    a poll, and the codec written for zstd sources: lz4 was as fast as none there, zstd took about a quarter more CPU.
    The other values are what is commonly advised, not each measured alone.

    `B.producer.*` is the producer that writes the records: Connect's own, whose defaults are one request in flight
    and no idempotence.
    """
    consumer = {
        "fetch.max.wait.ms": "100",
        "fetch.max.bytes": "67108864",
        "max.partition.fetch.bytes": "8388608",
        "max.poll.records": "20000",
        "receive.buffer.bytes": "4194304",
        "check.crcs": "false",
    }
    producer = {
        "batch.size": "1048576",
        "linger.ms": "0" if flow.goal is Goal.LATENCY else "5",
        "compression.type": _fastest(flow.codec).setting,
        "max.request.size": "33554432",
        "buffer.memory": "268435456",
        "max.in.flight.requests.per.connection": "5",
        "enable.idempotence": "true",
        "send.buffer.bytes": "4194304",
    }
    return _of_clients(flow, consumer, producer)


def _tuned_go(flow: FlowSettings) -> dict[str, str]:
    """Return the same for franz-go, which is idempotent and has five requests in flight anyway."""
    consumer = {
        "fetch.max.wait.ms": "100",
        "fetch.max.bytes": "67108864",
        "max.partition.fetch.bytes": "8388608",
    }
    producer = {
        "batch.size": "1048576",
        "linger.ms": "0" if flow.goal is Goal.LATENCY else "5",
        "compression.type": _fastest(flow.codec).setting,
        "buffer.memory": "268435456",
    }
    return _of_clients(flow, consumer, producer)


def _fastest(source: Codec) -> Codec:
    """Return what is written for a source of that codec: compressed if it is."""
    return Codec.NONE if source is Codec.NONE else Codec.LZ4


def _of_clients(flow: FlowSettings, consumer: dict[str, str], producer: dict[str, str]) -> dict[str, str]:
    settings = {f"{flow.source_alias}.consumer.{key}": value for key, value in consumer.items()}
    return settings | {f"{flow.target_alias}.producer.{key}": value for key, value in producer.items()}
