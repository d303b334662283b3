"""
The main job between brokers of other releases of Kafka and the newest one, on either side.

What came out is the table of docs/broker-versions.md: if that differs, this test fails with the one that it should be.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.jars import KAFKA_VERSION, Artifact, KafkaJars, jars_of, java_command
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import start_process
from mm2py.model.flow import TopicPartition
from tests.support.commands import run_mm2py
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly, committed
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce, produce_numbers, produce_transactions
from tests.support.reading import read_numbers, read_topic
from tests.support.records import assert_same_records, plain_records, spread, strange_records
from tests.support.topics import alter_topic, create_topic, end_offsets, grow_topic, looking_at, topic_configs


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


pytestmark = pytest.mark.soak(only="brokers of six releases")

_PAGE = Path(__file__).parents[2] / "docs/broker-versions.md"
_NEWEST = "4.3"
_PAIRS = [
    *((name, _NEWEST) for name in RELEASES),
    *((_NEWEST, name) for name in RELEASES if name != _NEWEST),
    ("2.1", "2.1"),
]
_FEW = 400
#: Of `strange_records`, which add one.
_RECORDS = _FEW + 1
_GROUP = "readers"
#: Records of all ages are not to be deleted.
_KEPT = {"retention.ms": "-1"}
_ALTERED = {"delete.retention.ms": "12345678"}


@attrs.define
class Mirror:
    """A source and a target, and the daemon that runs now."""

    source: str
    target: str
    directory: Path
    running: Daemon

    @property
    def file(self) -> Path:
        return self.directory / "mm2.properties"

    async def has_arrived(self, topic: str) -> None:
        """Wait until a remote topic has the records of its source, in their order."""

        async def is_equal() -> bool:
            theirs = await read_topic(self.source, topic, reads_committed=True)
            ours = await read_topic(self.target, f"A.{topic}")
            assert_same_records(theirs, ours)
            return True

        await await_arrived(self.target, f"A.{topic}", 1)
        await eventually(is_equal, within_s=60, what=f"all of {topic} is mirrored", every_s=0.5)


async def _unopened(mirror: Mirror) -> None:
    await mirror.has_arrived("plain")


async def _committed_only(mirror: Mirror) -> None:
    await mirror.has_arrived("paid")


async def _transformed(mirror: Mirror) -> None:
    await await_arrived(mirror.target, "A.sifted", _FEW // 10, within_s=120)

    async def is_equal() -> bool:
        numbers = await read_numbers(mirror.source, "sifted")
        found = await read_numbers(mirror.target, "A.sifted", reads_committed=True)
        assert found == {partition: some[::10] for partition, some in numbers.items()}
        return True

    await eventually(is_equal, within_s=60, what="every tenth record is there", every_s=0.5)
    assert not list(mirror.running.events("resume_unproven"))


async def _grown_and_altered(mirror: Mirror) -> None:
    await alter_topic(mirror.source, "plain", _KEPT | _ALTERED)
    await grow_topic(mirror.source, "plain", 3)

    async def follows() -> bool:
        assert len(await end_offsets(mirror.target, "A.plain")) == 3
        assert (await topic_configs(mirror.target, "A.plain")).items() >= _ALTERED.items()
        return True

    await eventually(follows, within_s=60, what="the remote topic follows", every_s=0.5)


async def _group_follows(mirror: Mirror) -> None:
    ends = await end_offsets(mirror.target, "A.plain")
    wanted = {TopicPartition("A.plain", number): ends[number] for number in (0, 1)}

    async def is_there() -> bool:
        assert await committed(mirror.target, _GROUP) == wanted
        return True

    await eventually(is_there, within_s=60, what="the group stands at the end of the remote topic")


async def _heartbeats(mirror: Mirror) -> None:
    await await_arrived(mirror.target, "heartbeats", 2)


async def _verified(mirror: Mirror) -> None:
    done = await run_mm2py("verify", mirror.file, "A->B", "--topics", "plain", "--json")
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}{done.stdout}"
    assert json.loads(done.stdout)["counts"]["equal"] == _RECORDS, done.stdout


async def _guarded(mirror: Mirror) -> None:
    assert not list(mirror.running.events("control_writes_unguarded"))
    assert not list(mirror.running.events("flow_unguarded"))


async def _shared(mirror: Mirror) -> None:
    async with daemon(mirror.directory, mirror.file.read_text(), name="second") as second:
        await second.wait_for_event("flow_shared", nodes=2)
        await mirror.running.wait_for_event("flow_shared", nodes=2)
        assert await second.sigterm() == 0


async def _continues(mirror: Mirror) -> None:
    killed = mirror.running
    await killed.kill()
    await eventually(lambda: not killed.orphans(), within_s=60, what="what it had started has ended")
    await produce_numbers(mirror.source, "counted", count=_FEW, partitions=1)
    named = f"{mirror.file.read_text()}B.group.instance.id = one\n"
    async with daemon(mirror.directory, named) as mirror.running:
        await mirror.has_arrived("counted")
        assert not list(mirror.running.events("resume_unproven"))


async def _keeps_name(mirror: Mirror) -> None:
    """The run before has had a name."""
    assert not list(mirror.running.events("flow_unguarded"))


#: What the page calls it, and what is checked, in order.
_CHECKS: dict[str, Callable[[Mirror], Awaitable[None]]] = {
    "records of every kind, compressed, copied unopened": _unopened,
    "transactions: what was committed, in order": _committed_only,
    "a statement of Spark SQL, exactly once": _transformed,
    "configs and new partitions of topics": _grown_and_altered,
    "checkpoints, offsets of groups": _group_follows,
    "heartbeats": _heartbeats,
    "`mm2py verify`": _verified,
    "several nodes share a flow": _shared,
    "a former owner's writes are refused": _guarded,
    "the next start continues exactly after a SIGKILL": _continues,
    "`group.instance.id`": _keeps_name,
}


async def _found(source: Release, target: Release, directory: Path) -> dict[str, bool]:
    """Return what works between two releases."""
    found: dict[str, bool] = {}
    async with AsyncExitStack() as running:
        servers = [
            await asyncio.to_thread(running.enter_context, released_broker(it, directory / side))
            for it, side in ((source, "source"), (target, "target"))
        ]
        for server in servers:
            await await_broker(server)
        await _fill(servers[0])
        keys = {
            "A->B.topics": "plain, paid, sifted, counted",
            "A->B.groups": _GROUP,
            "A.consumer.isolation.level": "read_committed",
            "A->B.transform.sifted.sql": "SELECT * FROM records WHERE offset % 10 = 0",
            "B.exactly.once.source.support": "enabled",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": 1,
            "emit.checkpoints.interval.seconds": 1,
            "sync.topic.configs.interval.seconds": 1,
            "emit.heartbeats.enabled": "true",
            "copy.epoch.ms": 1000,
            "tasks.max": 2,
        }
        async with daemon(directory, mm2_properties(*servers, **keys)) as first:
            mirror = Mirror(*servers, directory, first)
            for name, look in _CHECKS.items():
                found[name] = True
                try:
                    await look(mirror)
                except (AssertionError, RuntimeError):
                    found[name] = False
                    logging.getLogger(__name__).exception("%s to %s: %s", source.name, target.name, name)
    return found


async def _fill(source: str) -> None:
    for topic, partitions in (("plain", 2), ("paid", 1), ("sifted", 2), ("counted", 1)):
        await create_topic(source, topic, partitions=partitions, configs=_KEPT)
    written = spread(strange_records(_FEW), 2)
    await produce(source, "plain", [some[:100] for some in written], codec="zstd")
    await produce(source, "plain", [some[100:] for some in written], codec="lz4", batch_records=7)
    rounds = [(n % 3 != 1, [plain_records(20, start=n * 20)]) for n in range(6)]
    await produce_transactions(source, "paid", rounds, transactional_id="paid")
    await produce_numbers(source, "sifted", count=_FEW, partitions=2)
    await produce_numbers(source, "counted", count=_FEW, partitions=1)
    ends = await end_offsets(source, "plain")
    await commit_plainly(source, _GROUP, {TopicPartition("plain", number): end for number, end in ends.items()})


def _table(found: dict[tuple[str, str], dict[str, bool]]) -> str:
    """Return the page's table: a column for each release, and where something does not work, on which side."""
    lines = [f"| | {' | '.join(RELEASES)} |", f"|---{'|---' * len(RELEASES)}|"]
    for check in _CHECKS:
        cells = []
        for name in RELEASES:
            sides = {
                "source": found.get((name, _NEWEST), {}).get(check, True),
                "target": found.get((_NEWEST, name), {}).get(check, True),
            }
            failing = [side for side, works in sides.items() if not works]
            cells.append("yes" if not failing else "no" if len(failing) == 2 else f"not as {failing[0]}")
        lines.append(f"| {check} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def test_the_page_says_what_works_between_releases(tmp_path: Path) -> None:
    """Each release is the source and the target of the newest one, and the oldest is both."""
    found = {}
    for source, target in _PAIRS:
        directory = tmp_path / f"{source}-{target}"
        directory.mkdir()
        found[source, target] = await _found(RELEASES[source], RELEASES[target], directory)
    page = re.search(r"<!-- table: begin -->\n(.*)\n<!-- table: end -->", _PAGE.read_text(), re.DOTALL)

    assert page is not None
    assert page[1] == _table(found), f"the table should be\n{_table(found)}"
    oldest = found["2.1", "2.1"]
    assert oldest == {check: found["2.1", _NEWEST][check] and found[_NEWEST, "2.1"][check] for check in _CHECKS}
