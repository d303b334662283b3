"""
A real Prometheus scrapes a running daemon with the shipped rules: each alert fires when its cause is there, and clears.

All of it is one sequence, run once for all tests: the clusters, the daemon and Prometheus take longer to start than any
alert to fire. Only durations and a few limits of the rules are shortened; each change must find what it changes.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
import yaml

from mm2py.cli import main as command
from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster, start_clusters
from mm2py.devkit.jars import java_command
from mm2py.devkit.ports import HOST, free_ports
from mm2py.model.acl import Operation, Permission
from mm2py.model.flow import TopicPartition
from tests.support.brokers import GUARDED, NEVER_KILLED
from tests.support.daemon import Daemon, daemon
from tests.support.damage import recreate_topic
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce, produce_numbers
from tests.support.prometheus import Prometheus, complaints, prometheus
from tests.support.records import NewRecord
from tests.support.slow_link import slow_link
from tests.support.syncs import allow, grant, revoke
from tests.support.topics import alter_topic, create_topic, throttle_producers


#: Two minutes are usual for the sequence, which the first test waits for.
pytestmark = [
    pytest.mark.timeout(1_200),
    pytest.mark.soak(only="promtool judges each rule, and other tests what is exported"),
]

RULES = Path(__file__).parents[2] / "ops/prometheus"
_WINDOWS = {"[5m]": "[15s]", "[10m]": "[15s]", "[15m]": "[60s]", "[1h]": "[15s]"}
#: Limits that would take minutes to reach, and what they are here.
_LIMITS = {
    "Mm2pyPositionsNotWritten": {"< 300": "< 5"},
    "Mm2pyHeartbeatOld": {"> 60": "> 5"},
    "Mm2pyCheckpointsStale": {"> 180": "> 8"},
    "Mm2pyLagGrowing": {"<= 60": "<= 2"},
    "Mm2pyRetentionLossAhead": {">= 3600": ">= 10", "< 21600": "< 30"},
    "Mm2pyRetentionLossNear": {"< 3600": "< 10"},
    "Mm2pyRestarting": {"> 3": "> 1"},
    "Mm2pyHistoryBroken": {"< 3600": "< 15"},
    "Mm2pyConfigDrift": {"< 3600": "< 15"},
}
#: What the source keeps of the topic that is to lose records; half of it must pass before the alert fires.
_KEPT_S = 40
_FIRES_WITHIN_S = 150.0
_CLEARS_WITHIN_S = 120.0
_QUOTA_BYTES_PER_S = 100_000
_TRICKLE_PER_S = 0.1
_BULK_RECORDS = 20_000
_MOST_KILLS = 12
_OLD_S = 3 * 3600
_GROUP = "readers"

FLOW = {"source": "M", "target": "W"}
#: The labels that each alert must name its cause by.
EXPECTED: Mapping[str, Mapping[str, str]] = {
    "Mm2pyDown": {"job": "mm2py"},
    "Mm2pyNotReady": {"job": "mm2py"},
    "Mm2pyUnhealthy": {"job": "mm2py"},
    "Mm2pySettingsRefused": {"job": "mm2py"},
    "Mm2pyFlowFailed": {"source": "X", "target": "W"},
    "Mm2pyClusterUnreachable": {"source": "U", "target": "W", "cluster": "U"},
    "Mm2pyAuthErrors": {"source": "L", "target": "W", "cluster": "L"},
    "Mm2pyPositionsNotWritten": FLOW,
    "Mm2pyHeartbeatOld": FLOW,
    "Mm2pyThrottled": FLOW,
    "Mm2pyRecordsOld": FLOW,
    "Mm2pyPartitionsStopped": {**FLOW, "stage": "stopped"},
    "Mm2pyLagGrowing": {**FLOW, "topic": "M.grows"},
    "Mm2pyRetentionLossNear": {**FLOW, "topic": "M.near"},
    "Mm2pyRetentionLossAhead": {**FLOW, "topic": "M.near"},
    "Mm2pyHistoryBroken": FLOW,
    "Mm2pyTargetPartitionsMissing": {"source": "R", "target": "W"},
    "Mm2pyGroupSyncFailing": FLOW,
    "Mm2pyCheckpointsStale": FLOW,
    "Mm2pyConfigDrift": FLOW,
    "Mm2pyRestarting": {**FLOW, "connector": "MirrorSourceConnector"},
}
#: They need a second node; `tests/integration/test_alert_rules.py` has their series.
OF_SEVERAL_NODES = {"Mm2pyNodeGone", "Mm2pyFlowOwnerless", "Mm2pyFilesDiffer", "Mm2pyLoadUneven"}
#: Too small for a position (about 160 bytes) or a checkpoint (111), large enough for a transaction marker (78), which
#: leaves its transaction open for good where it does not fit.
_TOO_SMALL_BYTES = 100
_GO = "go"
#: What the source denies of one topic: its configs cannot be read, so they cannot be synchronised.
_DENIED = [
    allow("old", "ANONYMOUS", Operation.ALL),
    allow("old", "ANONYMOUS", Operation.DESCRIBE_CONFIGS, permission=Permission.DENY),
]


def held_java(directory: Path) -> Path:
    """Return a JAVA_HOME whose Java starts once there is a file: else Spark may be up before anyone saw it down."""
    program = directory / "java/bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nwhile [ ! -e {directory / _GO} ]; do sleep 0.1; done\nexec {java_command()} "$@"\n')
    program.chmod(0o755)
    return program.parents[1]


def shortened(file: Path, directory: Path) -> tuple[Path, set[str]]:
    """Write the rules of *file* with short durations; return where, and the names of its alerts."""
    document = yaml.safe_load(file.read_text())
    alerts = set()
    for group in document["groups"]:
        for rule in group["rules"]:
            for long, short in _WINDOWS.items():
                rule["expr"] = rule["expr"].replace(long, short)
            if (name := rule.get("alert")) is None:
                continue
            alerts.add(name)
            if "for" in rule:
                rule["for"] = "1s"
            for long, short in _LIMITS.get(name, {}).items():
                assert long in rule["expr"], name
                rule["expr"] = rule["expr"].replace(long, short)
    made = directory / file.name
    made.write_text(yaml.safe_dump(document))
    return made, alerts


@attrs.define
class Told:
    """What Prometheus reported: the labels and summaries of each alert that fired, and what still fired at the end."""

    fired: dict[str, list[tuple[Mapping[str, str], str]]] = attrs.field(factory=dict)
    left: set[str] = attrs.field(factory=set)
    #: What promtool says of a scrape in the midst of it, and how Prometheus's own scrapes went.
    complaints: list[str] = attrs.field(factory=list)
    scrape_errors: set[str] = attrs.field(factory=set)

    def take(self, alerts: list[dict[str, Any]]) -> None:
        """Take over what fires now."""
        self.left = set()
        for alert in alerts:
            labels: Mapping[str, str] = alert["labels"]
            if alert["state"] != "firing":
                continue
            name = labels["alertname"]
            self.left.add(name)
            known = self.fired.setdefault(name, [])
            if all(labels != one for one, _ in known):
                known.append((labels, alert["annotations"]["summary"]))

    def has(self, name: str) -> bool:
        """Whether an alert fired with the expected labels."""
        return bool(self.summaries(name))

    def summaries(self, name: str) -> list[str]:
        """Return the summaries of an alert that fired with the expected labels."""
        expected = EXPECTED[name].items()
        return [summary for labels, summary in self.fired.get(name, ()) if expected <= labels.items()]


@attrs.frozen
class Stage:
    """The clusters, the daemon and Prometheus that all tests share."""

    directory: Path
    source: str
    target: str
    url: str
    away_port: int
    told: Told
    prometheus: Prometheus

    def properties(self, *, is_mended: bool = False, is_broken: bool = False) -> str:
        """
        Write the daemon's file: M->W does its work, U is away, L speaks no TLS, R->W asks for more brokers than there
        are, X->W for a class that does not exist.

        Mended, all do their work. Broken, the file is not valid.
        """
        keys: dict[str, object] = {
            "clusters": "M, W, U, L, R, X",
            "U.bootstrap.servers": f"{HOST}:{self.away_port}",
            "L.bootstrap.servers": self.source,
            "R.bootstrap.servers": self.source,
            "X.bootstrap.servers": self.source,
            "M->W.topics": "grows, near, old, again, bulk",
            "M->W.emit.heartbeats.enabled": "true",
            "M->W.tasks.max": "broken" if is_broken else "1",
            "R->W.topics": "refused",
            **{f"{alias}->W.enabled": "true" for alias in "ULRX"},
            **{f"{alias}->W.topics": "nothing" for alias in "ULX"},
            "L.security.protocol": "PLAINTEXT" if is_mended else "SSL",
            "R->W.replication.factor": 1 if is_mended else 5,
            "X->W.replication.policy.class": "default" if is_mended else "nowhere.LostPolicy",
            "W.offset.flush.interval.ms": 1000,
            "sync.topic.configs.interval.seconds": 1,
            "copy.epoch.ms": 1000,
            "copy.drain.ms": 2000,
            "emit.checkpoints.interval.seconds": 1,
            "listeners": self.url,
        }
        return mm2_properties(self.source, self.target, aliases=("M", "W"), **keys)

    async def steer(self, *words: str) -> None:
        """Run ``mm2py flow 'M->W' …`` as an operator does."""
        code = await asyncio.to_thread(command.main, ["flow", "M->W", *words, "--url", self.url])
        assert code == 0, words

    async def until_fired(self, *names: str) -> None:
        """Wait until each of these has fired for what caused it."""

        def all_fired() -> bool:
            missing = [name for name in names if not self.told.has(name)]
            assert not missing, f"{missing} have not fired; {self.told.fired}"
            return True

        await eventually(all_fired, within_s=_FIRES_WITHIN_S, what=f"{', '.join(names)} fire")

    async def reload(self, mirror: Daemon, file: str) -> None:
        """Save the file, and have the daemon read it again."""
        (self.directory / "mm2.properties").write_text(file)
        os.kill(mirror.pid, signal.SIGHUP)


async def one(stage: Stage, topic: str, *, age_s: int = 0) -> None:
    """Write one record that is that old."""
    now_ms = SystemClock().wall_ms()
    await produce(stage.source, topic, [[NewRecord(None, b"value", (), now_ms - age_s * 1000)]])


async def until_paused(mirror: Daemon, topic: str) -> None:
    """Wait until nothing of a topic is copied any more: it was paused, which acts between two epochs."""

    def is_paused() -> bool:
        return {view["stage"] for view in mirror.partition_views(topic, "M->W").values()} == {"paused"}

    await eventually(is_paused, within_s=30, what=f"{topic} is paused")


async def cause(stage: Stage, mirror: Daemon) -> None:
    """Bring about everything that alerts are about, beside what is wrong from the start."""
    # The lag of what operators paused raises no alert; records that the source may delete do.
    await stage.steer("limit", "--topic", "grows", "--records-per-s", str(_TRICKLE_PER_S))
    await stage.steer("pause", "--topic", "near")
    await until_paused(mirror, "near")
    await one(stage, "near")
    await stage.steer("pause", "--connector", "heartbeat")
    await recreate_topic(stage.source, "again")
    await grant(stage.source, _DENIED)
    for topic in ("mm2-offsets.M.internal", "M.checkpoints.internal"):
        configs = {"cleanup.policy": "compact", "max.message.bytes": str(_TOO_SMALL_BYTES)}
        await alter_topic(stage.target, topic, configs)
    await stage.reload(mirror, stage.properties(is_broken=True))
    await asyncio.to_thread(throttle_producers, stage.target, _QUOTA_BYTES_PER_S)
    await produce_numbers(stage.source, "bulk", count=_BULK_RECORDS, partitions=1, size=1000)


async def kill_workers(stage: Stage, mirror: Daemon) -> None:
    """Kill Spark's workers until the alert for too many restarts fires."""
    for _ in range(_MOST_KILLS):
        lost = len(list(mirror.events("copy_task_lost")))
        for pid in mirror.spark_workers():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        def noticed(before: int = lost) -> bool:
            return len(list(mirror.events("copy_task_lost"))) > before or stage.told.has("Mm2pyRestarting")

        with suppress(AssertionError):  # a worker between two epochs had none to lose
            await eventually(noticed, within_s=5, what="the lost epoch is noticed")
        if stage.told.has("Mm2pyRestarting"):
            return


async def mend(stage: Stage, mirror: Daemon) -> None:
    """Put right what `cause` did, and the file."""
    await asyncio.to_thread(throttle_producers, stage.target, None)
    await revoke(stage.source, _DENIED)
    for topic in ("mm2-offsets.M.internal", "M.checkpoints.internal"):
        await alter_topic(stage.target, topic, {"cleanup.policy": "compact"})
    await stage.steer("limit", "--topic", "grows", "--none")
    await stage.steer("resume", "--topic", "near")
    await stage.steer("resume", "--connector", "heartbeat")
    await stage.reload(mirror, stage.properties(is_mended=True).replace("near, old, again", "near, old"))


async def move_on(stage: Stage, over: asyncio.Event) -> None:
    """Write old records, and records of a topic whose rate is limited to less; have a group read on."""
    turn = 0
    while not over.is_set():
        turn += 1
        await one(stage, "old", age_s=_OLD_S)
        await one(stage, "grows")
        await commit_plainly(stage.source, _GROUP, {TopicPartition("old", 0): turn})
        await asyncio.sleep(0.5)


async def watch_forever(stage: Stage) -> None:
    while True:
        stage.told.take(await stage.prometheus.alerts())
        await asyncio.sleep(0.5)


async def tell(stage: Stage) -> None:
    """Run the sequence."""
    await stage.prometheus.wait_until_ready()
    async with asyncio.TaskGroup() as tasks, AsyncExitStack() as later:
        watch = tasks.create_task(watch_forever(stage), name="watch")
        await stage.until_fired("Mm2pyDown")
        env = {"JAVA_HOME": str(held_java(stage.directory))}
        mirror = await later.enter_async_context(daemon(stage.directory, stage.properties(), env=env))
        await stage.until_fired("Mm2pyNotReady")
        (stage.directory / _GO).touch()
        await begin(stage)
        over = asyncio.Event()
        going_on = tasks.create_task(move_on(stage, over), name="move on")
        await stage.until_fired("Mm2pyClusterUnreachable", "Mm2pyAuthErrors")
        await cause(stage, mirror)
        await stage.until_fired(*sorted(EXPECTED.keys() - {"Mm2pyRestarting"}))
        await judge_scrapes(stage)
        await kill_workers(stage, mirror)
        await stage.until_fired("Mm2pyRestarting")
        over.set()  # a cancelled producer might stay open
        await going_on
        await later.enter_async_context(slow_link(stage.away_port, int(stage.source.rpartition(":")[2])))
        await mend(stage, mirror)
        await all_clear(stage)
        watch.cancel()


async def judge_scrapes(stage: Stage) -> None:
    """Have promtool read what Prometheus reads, and ask Prometheus whether it can."""
    async with aiohttp.ClientSession() as http, http.get(f"{stage.url}/metrics") as response:
        text = await response.text()
    stage.told.complaints = await asyncio.to_thread(complaints, text)

    async def are_read() -> bool:
        stage.told.scrape_errors = {target["lastError"] for target in await stage.prometheus.targets()}
        return stage.told.scrape_errors == {""}

    with suppress(AssertionError):  # a busy daemon may miss the second that one has; a test says what stayed wrong
        await eventually(are_read, within_s=30, what="Prometheus reads a scrape", every_s=0.5)


async def begin(stage: Stage) -> None:
    """Create the topics, with a record in each that is copied before anything goes wrong."""
    topics = ("grows", "near", "old", "again", "bulk")
    for topic in topics:
        configs = {"retention.ms": str(_KEPT_S * 1000)} if topic == "near" else {}
        await create_topic(stage.source, topic, configs=configs)
        await one(stage, topic)
    await create_topic(stage.source, "refused")
    for topic in topics:
        await await_arrived(stage.target, f"M.{topic}", 1, within_s=_FIRES_WITHIN_S)


async def all_clear(stage: Stage) -> None:
    def quiet() -> bool:
        assert not stage.told.left, f"{sorted(stage.told.left)} still fire"
        return True

    try:
        await eventually(quiet, within_s=_CLEARS_WITHIN_S, what="all alerts clear")
    except AssertionError:
        return  # each test says of its own alert whether it cleared


@contextmanager
def watched_clusters() -> Iterator[tuple[KafkaCluster, KafkaCluster]]:
    """Run a source and a target; the latter forgets within seconds what a quota has seen."""
    source = KafkaCluster("watched-source", properties={**NEVER_KILLED, **GUARDED})
    target = KafkaCluster("watched-target", properties={**NEVER_KILLED, "quota.window.num": "3"})
    start_clusters([source, target])
    try:
        yield source, target
    finally:
        source.stop()
        target.stop()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Run the sequence once; return what Prometheus reported."""
    directory = tmp_path_factory.mktemp("alerts")
    port, away_port = free_ports(2)
    names = [shortened(RULES / f"{kind}.rules.yml", directory) for kind in ("recording", "alerts")]
    assert names[1][1] == EXPECTED.keys() | OF_SEVERAL_NODES
    config = yaml.safe_load((RULES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"{HOST}:{port}"]}]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    with watched_clusters() as (source, target), prometheus(directory, file) as server:
        stage = Stage(
            directory=directory,
            source=source.bootstrap_servers,
            target=target.bootstrap_servers,
            url=f"http://{HOST}:{port}",
            away_port=away_port,
            told=Told(),
            prometheus=server,
        )
        asyncio.run(tell(stage))
        yield stage.told


@pytest.mark.parametrize("name", EXPECTED)
def test_alert_fires_and_clears(told: Told, name: str) -> None:
    """The alert fires for its cause, names it in its summary, and is over once the cause is gone."""
    labels = EXPECTED[name]
    wanted = [labels[part] for part in ("topic", "cluster", "source") if part in labels][:1]

    assert told.has(name), told.fired
    assert all(word in told.summaries(name)[0] for word in wanted)
    assert name not in told.left


def test_scrapes_are_as_prometheus_wants_them(told: Told) -> None:
    """Prometheus reads every scrape; promtool finds nothing wrong but the names that are Java's."""
    ours = [line for line in told.complaints if not line.startswith("kafka_connect_")]

    assert told.scrape_errors == {""}
    assert ours == []
