"""Single brokers of other releases of Kafka, with a ZooKeeper where the release needs one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from mm2py.devkit.jars import KAFKA_VERSION, Artifact, KafkaJars, jars_of, java_command
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import start_process
from tests.support.eventually import eventually
from tests.support.topics import looking_at


_QUICK = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.jmx.log4j.disable=true")
#: The one of Kafka 2.1 cannot resolve an address with Java 14 and newer (ZOOKEEPER-3779).
_ZOOKEEPER: Artifact = ("org.apache.zookeeper", "zookeeper", "3.5.9")
_CLUSTER_ID = "mm2py-released-brokerA"
_START_LIMIT_S = 90.0


@attrs.frozen
class Release:
    """A release by its first two numbers, and the version of it whose jars are taken."""

    name: str
    version: str
    scala: str = "2.13"
    has_zookeeper: bool = False

    def jars(self) -> KafkaJars:
        broker = ("org.apache.kafka", f"kafka_{self.scala}", self.version)
        return jars_of(self.version, [broker, _ZOOKEEPER] if self.name == "2.1" else [broker])


#: From the oldest that Kafka's own clients of today talk to (KIP-896) to the newest.
RELEASES = {
    it.name: it
    for it in (
        Release("2.1", "2.1.1", scala="2.12", has_zookeeper=True),
        Release("2.8", "2.8.2", has_zookeeper=True),
        Release("3.3", "3.3.2"),
        Release("3.9", "3.9.1"),
        Release("4.0", "4.0.0"),
        Release("4.3", KAFKA_VERSION),
    )
}


@contextmanager
def released_broker(release: Release, directory: Path) -> Iterator[str]:
    """Run a broker of *release* in a new *directory*, and return its ``bootstrap.servers``; see `await_broker`."""
    directory.mkdir()
    port, other_port = free_ports(2)
    settings = {
        "log.dirs": str(directory / "data"),
        "num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    }
    with ExitStack() as running:
        if release.has_zookeeper:
            settings |= {
                "broker.id": "0",
                "listeners": f"PLAINTEXT://{HOST}:{port}",
                "zookeeper.connect": f"{HOST}:{other_port}",
            }
            running.enter_context(_zookeeper(release, directory, other_port))
        else:
            settings |= {
                "process.roles": "broker,controller",
                "node.id": "0",
                "controller.quorum.voters": f"0@{HOST}:{other_port}",
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{other_port}",
            }
        file = _written(directory / "server.properties", settings)
        if not release.has_zookeeper:
            format_data = _command(release, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file))
            subprocess.run(format_data, check=True, capture_output=True)
        broker = start_process(
            f"broker of Kafka {release.name}",
            _command(release, "kafka.Kafka", str(file)),
            log_file=directory / "broker.log",
            cwd=directory,
        )
        running.callback(broker.kill)
        yield f"{HOST}:{port}"


@contextmanager
def _zookeeper(release: Release, directory: Path, port: int) -> Iterator[None]:
    settings = {"dataDir": str(directory / "zookeeper"), "clientPort": str(port), "admin.enableServer": "false"}
    file = _written(directory / "zookeeper.properties", settings)
    process = start_process(
        "ZooKeeper",
        _command(release, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file)),
        log_file=directory / "zookeeper.log",
        cwd=directory,
    )
    try:
        yield
    finally:
        process.kill()


def _written(file: Path, settings: dict[str, str]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def _command(release: Release, main_class: str, *arguments: str) -> list[str]:
    return [java_command(), *_QUICK, "-cp", release.jars().classpath, main_class, *arguments]


async def await_broker(bootstrap: str) -> None:
    """Wait until a broker answers, and lists itself."""

    async def is_there() -> bool:
        async with looking_at(bootstrap) as cluster:
            await cluster.refresh_metadata(())
            return bool(cluster.brokers)

    await eventually(is_there, within_s=_START_LIMIT_S, what=f"the broker at {bootstrap} is up")
