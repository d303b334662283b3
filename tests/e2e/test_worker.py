"""A Connect worker whose connectors are created over REST: Mirus's quick start and KIP-382's walkthrough."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Final

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.connector_configs import config_record, state_record
from mm2py.model.herder.overrides import Wanted
from tests.support.checkpointing import checkpoints_in
from tests.support.connect_workers import from_java, java_worker, mm2_connector, worker_file
from tests.support.daemon import Daemon, command
from tests.support.eventually import eventually
from tests.support.flow_rest import WorkerRest, worker_rest
from tests.support.groups import commit_plainly
from tests.support.mirrored import arrived, assert_mirrored, await_arrived
from tests.support.producing import produce_numbers, producer
from tests.support.reading import read_numbers
from tests.support.rest_fuzz import fuzz
from tests.support.soaking import rounds
from tests.support.topics import create_topic, list_topics, topic_configs


_COUNT: Final = 500
_BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_DESERIALIZER: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def _mirus(name: str, source: str, **others: str) -> dict[str, str]:
    return {
        "name": name,
        "connector.class": "com.salesforce.mirus.MirusSourceConnector",
        "tasks.max": "5",
        "consumer.bootstrap.servers": source,
        "consumer.client.id": name,
        "consumer.key.deserializer": _DESERIALIZER,
        "consumer.value.deserializer": _DESERIALIZER,
        "monitor.poll.wait.ms": "1000",
        "replication.factor": "1",
        **others,
    }


async def _write(bootstrap: str, topic: str, *records: tuple[bytes, bytes | None]) -> None:
    """Write records as another worker does."""
    async with producer(bootstrap) as plain:
        for key, value in records:
            await plain.send_and_wait(topic, value, key)


async def _is_ready_without_a_flow(rest: WorkerRest, running: Daemon) -> None:
    root = await rest.ask("GET", "/", wanted=200)
    assert set(root) == {"version", "commit", "kafka_cluster_id"}
    assert root["kafka_cluster_id"]
    assert await rest.ask("GET", "/connectors", wanted=200) == []
    await eventually(lambda: rest.ask("GET", "/health/ready"), within_s=30, what="the worker is ready")
    assert not list(running.events("spark_started"))


async def _add_a_source(rest: WorkerRest, name: str, between: tuple[str, str], one: str, more: str) -> None:
    """Create a connector of a source cluster that copies topic *one*, then add *more* to its list."""
    source, target = between
    for topic in (one, more):
        await create_topic(source, topic, partitions=1)
        await produce_numbers(source, topic, count=_COUNT, partitions=1)
    config = _mirus(name, source, **{"topics.whitelist": one})
    await rest.ask("POST", "/connectors", {"name": name, "config": config}, wanted=201)
    refused = await rest.ask("POST", "/connectors", {"name": name, "config": config}, wanted=409)
    assert refused == {"error_code": 409, "message": f"Connector {name} already exists"}
    await assert_mirrored(source, one, target, one, _COUNT)
    assert more not in await list_topics(target)
    config["topics.whitelist"] = f"{one},{more}"
    await rest.ask("PUT", f"/connectors/{name}/config", config, wanted=200)
    await assert_mirrored(source, more, target, more, _COUNT)


@pytest.mark.soak
async def test_mirus_s_quick_start(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    A worker starts without a flow. A connector that copies within the cluster is created before its topics. A second
    source cluster is added while the first runs, its list of topics changes, and what another worker writes to the
    config topic takes effect, and whatever is sent to REST is answered as documented; none of that disturbs the first
    connector.
    """
    target, other = backup.bootstrap_servers, primary.bootstrap_servers
    topic, first, second = f"{prefix}-test", f"{prefix}-quickstart", f"{prefix}-second"
    arguments = (worker_file(tmp_path, target, prefix), "--override", "rest.port=0")
    async with command(tmp_path, "mm2py.cli.distributed", *arguments) as running:
        rest = await worker_rest(running)
        await _is_ready_without_a_flow(rest, running)

        servers = {"destination.topic.name.suffix": ".mirror", "destination.consumer.bootstrap.servers": target}
        config = _mirus(first, target, **servers, **{"topics.whitelist": topic})
        created = await rest.ask("PUT", f"/connectors/{first}/config", config, wanted=201)
        assert created == {"name": first, "config": config, "tasks": [], "type": "source"}
        assert await rest.ask("GET", "/connectors", wanted=200) == [first]
        await rest.until(first, "RUNNING", tasks=0)
        await create_topic(target, topic, partitions=1)
        await create_topic(target, f"{topic}.mirror", partitions=1)
        await rest.until(first, "RUNNING", tasks=1)
        await produce_numbers(target, topic, count=_COUNT, partitions=1)
        await assert_mirrored(target, topic, target, f"{topic}.mirror", _COUNT)

        await _add_a_source(rest, second, (other, target), f"{prefix}-one", f"{prefix}-more")

        # Another worker's change.
        await _write(target, f"{prefix}-configs", state_record(second, Wanted.PAUSED))
        await rest.until(second, "PAUSED", tasks=2)

        # Requests of all kinds, to its addresses and to others, which end with its removal.
        names = {"connector": second, "plugin": "MirusSourceConnector", "task": "0"}
        under = ("/connectors", "/connector-plugins")
        _, wrong = await asyncio.to_thread(fuzz, rest.url, names, under=under, examples=rounds(1, soak=40))
        assert wrong == []
        assert await rest.ask("GET", "/connectors", wanted=200) == [first]
        assert not list(running.events("rest_failed"))
        await rest.until(first, "RUNNING", tasks=1)
        changed = [event for event in running.events("settings_reloaded") if f"{first}->target" in event["changed"]]
        assert not changed
        assert await running.sigterm() == 0

    assert {f"{prefix}-configs", f"{prefix}-offsets"} <= await list_topics(target)
    assert (await topic_configs(target, f"{prefix}-configs"))["cleanup.policy"] == "compact"


async def _produce(bootstrap: str, *topics: str) -> None:
    for topic in topics:
        await produce_numbers(bootstrap, topic, count=_COUNT, partitions=2)


async def _create_at_java(java: WorkerRest, target: str, configs: Mapping[str, Mapping[str, str]]) -> None:
    """Have Kafka Connect run connectors, each of the topic with its name, until they have copied."""

    async def create() -> None:
        for name, config in configs.items():
            await java.ask("PUT", f"/connectors/{name}/config", config)

    await from_java(java, "Kafka Connect runs the connectors", create)
    for name, config in configs.items():
        await await_arrived(target, f"{config['source.cluster.alias']}.{name}", _COUNT)


async def _java_has_paused(java: WorkerRest, name: str) -> None:
    """Wait until Kafka Connect has read what was changed here: one connector is left, and is paused."""

    async def ask() -> None:
        assert await java.ask("GET", "/connectors") == [name]

    await from_java(java, "Kafka Connect has read what was changed here", ask)
    await java.until(name, "PAUSED", tasks=2)


async def _stands_by(rest: WorkerRest, name: str, said: str) -> None:
    """Wait until a connector shows who runs it instead."""

    async def is_so() -> bool:
        shown = await rest.ask("GET", f"/connectors/{name}/status")
        assert said in shown["connector"].get("trace", ""), shown
        assert (shown["connector"]["state"], shown["tasks"]) == ("UNASSIGNED", [])
        return True

    await eventually(is_so, within_s=30, what="it says who runs the connector")


_OF_A_JAVA_WORKER: Final = {
    "replication.factor": 1,
    "emit.offset-syncs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "heartbeats.replication.enabled": "false",  # other tests may have left some
    "refresh.topics.interval.seconds": 1,
}


@pytest.mark.soak(only="flows are taken over from Java elsewhere")
async def test_connectors_of_a_java_worker_continue(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Kafka Connect runs two connectors of a pair, of which one is paused. With its file and its topics a node waits for
    its end, and they start here: each record is at the target once, in order, and the paused one waits. Meanwhile Kafka
    Connect cannot start; later it reads back what was changed here.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    runs, waits = f"{prefix}-runs", f"{prefix}-waits"
    for topic in (runs, waits):
        await create_topic(source, topic, partitions=2)
    await _produce(source, runs, waits)
    file = worker_file(tmp_path, target, prefix)
    own = {"target.cluster.bootstrap.servers": target, **_OF_A_JAVA_WORKER}
    configs = {
        name: {**mm2_connector("MirrorSourceConnector", prefix, source, topics=name, **own), "tasks.max": "2"}
        for name in (runs, waits)
    }
    async with AsyncExitStack() as stack:
        java_runs = stack.enter_context(ExitStack())
        url, _ = java_runs.enter_context(java_worker(tmp_path, file))
        java = WorkerRest(url)
        await _create_at_java(java, target, configs)
        await java.ask("PUT", f"/connectors/{waits}/pause", {}, wanted=202)
        await java.until(waits, "PAUSED", tasks=2)
        arguments = (file, "--override", "rest.port=0")
        running = await stack.enter_async_context(command(tmp_path, "mm2py.cli.distributed", *arguments))
        await running.wait_for_event("worker_runs_elsewhere")
        rest = await worker_rest(running)
        assert sorted(await rest.ask("GET", "/connectors")) == [runs, waits]
        await _stands_by(rest, runs, f" runs {prefix}->us-east, as a worker of group {prefix}-connect")
        java_runs.close()
        await running.wait_for_event("worker_taken_over")
        await _produce(source, runs, waits)
        await await_arrived(target, f"{prefix}.{runs}", 2 * _COUNT)
        await rest.until(waits, "PAUSED", tasks=0)
        assert await arrived(target, f"{prefix}.{waits}") == _COUNT
        with java_worker(tmp_path, file) as (_, refused):
            assert await asyncio.to_thread(refused.wait, 90) != 0
            assert "InconsistentGroupProtocolException" in refused.log_text()
        await rest.ask("PUT", f"/connectors/{waits}/resume", wanted=202)
        await await_arrived(target, f"{prefix}.{waits}", 2 * _COUNT)
        await rest.ask("PUT", f"/connectors/{runs}/pause", wanted=202)
        await rest.ask("DELETE", f"/connectors/{waits}", wanted=204)
        assert not list(running.events("resume_unproven"))
        assert await running.sigterm() == 0

    for topic in (runs, waits):
        assert await read_numbers(target, f"{prefix}.{topic}") == await read_numbers(source, topic)
    with java_worker(tmp_path, file) as (url, _):
        await _java_has_paused(WorkerRest(url), runs)


_FOREIGN: Final = {"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "file": "x"}


@attrs.frozen
class _Walk:
    """KIP-382's flow: a topic, a group, and the three connectors, by what they do."""

    source: str
    target: str
    topic: str
    group: str
    alias: str

    @property
    def names(self) -> dict[str, str]:
        return {kind: f"us-west-{kind}" for kind in ("source", "checkpoint", "heartbeat")}

    @property
    def configs(self) -> dict[str, dict[str, str]]:
        return {
            "source": mm2_connector(
                "MirrorSourceConnector", self.alias, self.source,
                **{"topics": self.topic, "replication.factor": 1, "offset-syncs.topic.replication.factor": 1},
                **{"heartbeats.replication.enabled": "false"},  # other tests may have left some
                **{"source.cluster.sasl.jaas.config": "password=hidden"},
            ),
            "checkpoint": mm2_connector(
                "MirrorCheckpointConnector", self.alias, self.source,
                **{"groups": self.group, "checkpoints.topic.replication.factor": 1},
                **{"emit.checkpoints.interval.seconds": 1},
            ),
            "heartbeat": mm2_connector(
                "MirrorHeartbeatConnector", self.alias, self.source, **{"heartbeats.topic.replication.factor": 1}
            ),
        }  # fmt: skip

    async def prepare(self, config_topic: str) -> None:
        """Write the topic, commit the group, and leave what Java's worker would: other classes, records of its own."""
        await create_topic(self.source, self.topic, partitions=2)
        await produce_numbers(self.source, self.topic, count=_COUNT, partitions=2)
        await commit_plainly(self.source, self.group, {TopicPartition(self.topic, 0): 100})
        await create_topic(self.target, config_topic, partitions=1)
        await _write(
            self.target,
            config_topic,
            (b"session-key", b'{"key":"AA==","algorithm":"HmacSHA256","creation-timestamp":1}'),
            config_record("a-file", _FOREIGN),
            (b"task-a-file-0", b'{"properties":{"task.class":"x"}}'),
            (b"commit-a-file", b'{"tasks":1}'),
        )

    async def put(self, rest: WorkerRest) -> None:
        """Put the connectors, in any order, and wait until they do what they are for."""
        for kind in ("checkpoint", "source", "heartbeat"):
            await rest.ask("PUT", f"/connectors/{self.names[kind]}/config", self.configs[kind], wanted=201)
        await assert_mirrored(self.source, self.topic, self.target, f"{self.alias}.{self.topic}", _COUNT)
        for name in self.names.values():
            await rest.until(name, "RUNNING", tasks=1)

        async def all_there() -> bool:
            assert "heartbeats" in await list_topics(self.target)
            found = await checkpoints_in(self.target, f"{self.alias}.checkpoints.internal", self.group)
            return bool(found) and found[-1].downstream == 100

        await eventually(all_there, within_s=60, what="a checkpoint at 100, and heartbeats")

    async def shown(self, rest: WorkerRest) -> dict[str, str]:
        """Look at all connectors; return the config of the source connector."""
        shown = await rest.ask("GET", "/connectors?expand=status&expand=info", wanted=200)
        assert set(shown) == {*self.names.values(), "a-file"}
        assert shown["a-file"]["status"]["connector"]["state"] == "UNASSIGNED"
        assert "FileStreamSourceConnector" in shown["a-file"]["status"]["connector"]["trace"]
        flow = await rest.ask("GET", f"/from:{self.alias}/to:us-east/status", wanted=200)
        assert {group["name"] for group in flow["groups"]} == set(self.names.values())
        assert (await rest.ask("GET", "/health", wanted=200))["status"] == "healthy"
        config: dict[str, str] = shown[self.names["source"]]["info"]["config"]
        assert config["source.cluster.sasl.jaas.config"] == "***"
        return config

    async def refuse(self, rest: WorkerRest) -> None:
        """Ask for what does not fit: nothing is stored, and nothing stops."""
        name, config = self.names["source"], self.configs["source"]
        bad = {**config, "tasks.max": "many", "sync.topic.acls.enabled": "maybe", "topic.filter.class": "no.Filter"}
        refused = await rest.ask("PUT", f"/connectors/{name}/config", bad, wanted=400)
        assert all(key in refused["message"] for key in ("tasks.max", "sync.topic.acls.enabled", "no.Filter"))
        beats = self.configs["heartbeat"]
        again = await rest.ask("POST", "/connectors", {"name": "twice", "config": beats}, wanted=400)
        assert f"{self.alias}->us-east has a MirrorHeartbeatConnector already" in again["message"]
        await rest.ask("POST", "/connectors", {"name": "file", "config": _FOREIGN}, wanted=400)
        plugin = f"/connector-plugins/{bad['connector.class']}/config/validate"
        judged = await rest.ask("PUT", plugin, {**bad, "name": name}, wanted=200)
        assert judged["error_count"] == 3

    async def remove(self, rest: WorkerRest, running: Daemon) -> None:
        """Delete the connectors, and wait until their flow is gone."""
        for name in self.names.values():
            await rest.ask("DELETE", f"/connectors/{name}", wanted=204)
        gone = await rest.ask("GET", f"/connectors/{self.names['source']}", wanted=404)
        assert gone["error_code"] == 404
        assert await rest.ask("GET", "/connectors", wanted=200) == ["a-file"]
        await running.wait_for_event("settings_reloaded", removed=[f"{self.alias}->us-east"])


async def test_kip_382_s_walkthrough(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    The three connectors of a flow are put one after the other, and are one flow. What does not fit is refused, and
    stops nothing. After a restart of the worker they are there again, in the states that they had; deleted ones
    are gone, and their offsets stay.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    walk = _Walk(source, target, f"{prefix}-topic", f"{prefix}-group", f"{prefix}-west")
    first, heartbeat = walk.names["source"], walk.names["heartbeat"]
    await walk.prepare(f"{prefix}-configs")
    arguments = (worker_file(tmp_path, target, prefix), "--override", "rest.port=0")
    async with command(tmp_path, "mm2py.cli.distributed", *arguments) as running:
        rest = await worker_rest(running)
        await running.wait_for_event("connector_not_run", connector="a-file")
        await walk.put(rest)
        config = await walk.shown(rest)
        await walk.refuse(rest)
        assert await rest.ask("GET", f"/connectors/{first}/config", wanted=200) == config

        # What is shown can be put back; the secret is kept.
        await rest.ask("PUT", f"/connectors/{first}/config", config, wanted=200)
        await rest.ask("PUT", f"/connectors/{heartbeat}/stop", wanted=204)
        await rest.until(heartbeat, "STOPPED", tasks=0)
        assert await running.sigterm() == 0

    await produce_numbers(source, walk.topic, count=_COUNT, partitions=2)
    async with command(tmp_path, "mm2py.cli.distributed", *arguments) as running:
        rest = await worker_rest(running)
        await rest.until(first, "RUNNING", tasks=1)
        await await_arrived(target, f"{walk.alias}.{walk.topic}", 2 * _COUNT)
        assert await arrived(target, f"{walk.alias}.{walk.topic}") == 2 * _COUNT
        await rest.until(heartbeat, "STOPPED", tasks=0)
        await rest.ask("PUT", f"/connectors/{first}/stop", wanted=204)
        await rest.ask("PUT", f"/connectors/{heartbeat}/resume", wanted=202)
        await rest.until(first, "STOPPED", tasks=0)
        offsets = await rest.ask("GET", f"/connectors/{first}/offsets", wanted=200)
        assert [one["offset"]["offset"] for one in offsets["offsets"]] == [_COUNT - 1] * 2
        await rest.until(heartbeat, "RUNNING", tasks=1)
        await walk.remove(rest, running)
        assert running.is_running
        assert await running.sigterm() == 0
