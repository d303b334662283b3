"""Connect workers: their file, Kafka Connect itself with it, and connectors of MirrorMaker's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from mm2py.devkit.java import JvmOptions
from mm2py.devkit.ports import free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from tests.support.eventually import eventually, scaled
from tests.support.flow_rest import WorkerRest


_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


def worker_file(folder: Path, target: str, prefix: str, **more: object) -> str:
    """Write a worker's file as Mirus's quick start and Kafka's own have it, with a free port; return its path."""
    lines = {
        "bootstrap.servers": target,
        "group.id": f"{prefix}-connect",
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "header.converter": _BYTES,
        "internal.key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "config.storage.topic": f"{prefix}-configs",
        "offset.storage.topic": f"{prefix}-offsets",
        "status.storage.topic": f"{prefix}-status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset.flush.interval.ms": 1_000,
        **more,
    }
    file = folder / "worker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(file)


def mm2_connector(kind: str, alias: str, source: str, **others: Any) -> dict[str, str]:
    """Return the config of a connector from a cluster *alias* to us-east."""
    settings = {
        "connector.class": f"org.apache.kafka.connect.mirror.{kind}",
        "source.cluster.alias": alias,
        "target.cluster.alias": "us-east",
        "source.cluster.bootstrap.servers": source,
        **others,
    }
    return {key: str(value) for key, value in settings.items()}


@contextmanager
def java_worker(folder: Path, file: str) -> Iterator[tuple[str, LoggedProcess]]:
    """Run Kafka Connect itself with a worker's file; return its address, and its process."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    java_file = folder / "java.properties"
    java_file.write_text(Path(file).read_text() + f"listeners={url}\n")
    line = JvmOptions(heap_mb=256).command(
        "org.apache.kafka.connect.cli.ConnectDistributed", str(java_file), scratch=folder
    )
    process = start_process("Kafka Connect", line, log_file=folder / "connect.log")
    try:
        yield url, process
        process.terminate(scaled(60))
    finally:
        process.kill()


async def from_java(java: WorkerRest, what: str, ask: Callable[[], Awaitable[None]]) -> None:
    """Ask Kafka Connect until it is up and answers as *ask* wants it."""

    async def answered() -> bool:
        try:
            await ask()
        except aiohttp.ClientError as error:
            raise AssertionError(f"{java.url}: {error}") from error
        return True

    await eventually(answered, within_s=90, what=what, every_s=1)
