"""A worker's connectors in a real topic: followed, written, kept, and run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from mm2py.clock import SystemClock
from mm2py.config.worker import StorageSettings
from mm2py.core.offsets.translation import Untranslated
from mm2py.devkit.broker import HOST, KafkaCluster
from mm2py.errors import BrokerAnsweredError, ConnectorsNotStoredError, OverrideConflictError
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.health import flow_issues
from mm2py.model.herder.connector_configs import KeyValue, LoggerRequest, config_record, logger_record, state_record
from mm2py.model.herder.overrides import Wanted
from mm2py.model.state import FlowState
from mm2py.storage.connector_store import ConnectorStore, Decide
from mm2py.telemetry.events import ClustersAreOne, FlowFailed, WorkerRunsElsewhere, WorkerTakenOver
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.membership import Membership
from tests.support.eventually import eventually
from tests.support.flows import flow_settings
from tests.support.groups import commit_plainly, committed
from tests.support.java_mirror import JavaMirror
from tests.support.mirrored import await_arrived
from tests.support.nodes import running_node, running_worker
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic, delete_topic, end_offsets, list_topics, topic_configs


_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_CONFIG = {"connector.class": "MirrorSourceConnector", "topics": "orders"}


@attrs.define
class _Following:
    """A store that follows its topic, and what it reported."""

    store: ConnectorStore
    changes: list[frozenset[str]] = attrs.field(factory=list)
    requests: list[LoggerRequest] = attrs.field(factory=list)
    events: list[str] = attrs.field(factory=list)


def _as_said(*records: KeyValue) -> Decide:
    """Decide on *records*, whatever the connectors are."""

    async def decide() -> Sequence[KeyValue]:
        return records

    return decide


@asynccontextmanager
async def _following(cluster: KafkaCluster, topic: str) -> AsyncIterator[_Following]:
    """Follow the topic, whose name serves as the worker's group too."""
    clock = SystemClock()
    changes: list[frozenset[str]] = []
    requests: list[LoggerRequest] = []
    events: list[str] = []
    store = ConnectorStore(
        flow_settings(cluster.bootstrap_servers, cluster.bootstrap_servers).target,
        StorageSettings(topic, 1),
        f"connect-cluster-{topic}",
        clock=clock,
        events=EventLog(clock, lambda event: events.append(event.name)),
        jitter=random.random,
        on_change=changes.append,
        on_request=requests.append,
    )
    async with asyncio.TaskGroup() as tasks:
        follow = tasks.create_task(store.follow(), name="follow")
        await eventually(lambda: store.is_read, within_s=30, what="the topic was read")
        yield _Following(store, changes, requests, events)
        follow.cancel()


async def test_every_worker_sees_what_one_wrote(backup: KafkaCluster, prefix: str) -> None:
    """The topic is created compacted; a write has been read back when it returns, and others read it soon after."""
    async with _following(backup, prefix) as one, _following(backup, prefix) as other:
        await one.store.change(_as_said(state_record("m", Wanted.PAUSED), config_record("m", _CONFIG)))
        written = dict(one.store.connectors)
        await eventually(lambda: other.store.connectors == written, within_s=30, what="the other worker has it")
        await other.store.change(_as_said(logger_record(LoggerRequest("mm2py", "DEBUG"))))
        await eventually(lambda: one.requests, within_s=30, what="the request arrives")
        await other.store.change(_as_said(config_record("m", None), state_record("m", None)))
        await eventually(lambda: not one.store.connectors, within_s=30, what="the connector is gone")

    assert (written["m"].config, written["m"].wanted) == (_CONFIG, Wanted.PAUSED)
    assert one.changes == [frozenset(), {"m"}, {"m"}]
    assert (await topic_configs(backup.bootstrap_servers, prefix))["cleanup.policy"] == "compact"


async def test_workers_change_connectors_one_after_the_other(backup: KafkaCluster, prefix: str) -> None:
    """
    Three workers that have read the same create a connector of one name at the same moment, again and again: one does,
    the others learn that it exists, and what stands is its config.
    """

    async def create(one: _Following, name: str, by: str) -> str | None:
        async def decide() -> Sequence[KeyValue]:
            if name in one.store.connectors:
                raise OverrideConflictError(name)
            return [config_record(name, {**_CONFIG, "by": by})]

        try:
            await one.store.change(decide)
        except OverrideConflictError:
            return None
        return by

    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(_following(backup, prefix)) for _ in range(3)]
        names = [f"m{number}" for number in range(5)]
        created = {
            name: await asyncio.gather(*(create(one, name, str(index)) for index, one in enumerate(workers)))
            for name in names
        }
        for one in workers:
            await eventually(lambda it=one: len(it.store.connectors) == len(names), within_s=30, what="all are read")
        seen = [{name: stored.config["by"] for name, stored in one.store.connectors.items()} for one in workers]

    assert [sum(by is not None for by in results) for results in created.values()] == [1] * len(names)
    assert seen == [{name: next(by for by in results if by) for name, results in created.items()}] * len(workers)
    assert all("connector_writes_unguarded" not in one.events for one in workers)


async def test_a_deleted_topic_is_filled_again(backup: KafkaCluster, prefix: str) -> None:
    """By what the worker knew; its connectors never stop for that."""
    async with _following(backup, prefix) as one:
        await one.store.change(_as_said(state_record("m", Wanted.STOPPED), config_record("m", _CONFIG)))
        await delete_topic(backup.bootstrap_servers, prefix)
        await eventually(lambda: "connectors_refilled" in one.events, within_s=60, what="the topic is filled again")
        kept = dict(one.store.connectors)
    async with _following(backup, prefix) as later:
        found = dict(later.store.connectors)

    assert found == kept
    assert (found["m"].config, found["m"].wanted) == (_CONFIG, Wanted.STOPPED)


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "compact"])
async def test_a_topic_whose_connectors_would_expire_is_reported(
    backup: KafkaCluster, prefix: str, policy: str
) -> None:
    """Someone else created it; Connect would refuse to start."""
    await create_topic(backup.bootstrap_servers, prefix, partitions=1, configs={"cleanup.policy": policy})
    async with _following(backup, prefix) as one:
        pass

    assert ("internal_topic_expires" in one.events) is (policy != "compact")


async def test_a_worker_that_cannot_write_says_so(backup: KafkaCluster, prefix: str) -> None:
    """Nothing is acknowledged that may not be in the topic."""
    async with _following(backup, prefix) as one:
        store = one.store
    with pytest.raises(ConnectorsNotStoredError):
        await store.change(_as_said(config_record("m", _CONFIG)))

    assert not store.connectors


def _worker(target: str, prefix: str) -> str:
    """Return the file of a worker whose group and topics are the test's own."""
    lines = {
        "bootstrap.servers": target,
        "group.id": f"{prefix}-connect",
        "heartbeat.interval.ms": 500,
        "offset.flush.interval.ms": 500,
        **{f"{kind}.converter": _BYTES for kind in ("key", "value", "header")},
        **{f"{kind}.storage.topic": f"{prefix}-{kind}" for kind in ("config", "offset", "status")},
        **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
    }
    return "".join(f"{key} = {value}\n" for key, value in lines.items())


async def _joins(member: Membership) -> bool:
    """Join a group as a worker of Java's does; False if Kafka refuses that."""

    async def assign(_generation: int, joined: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(joined, b"nothing")

    try:
        return await member.join(b"not ours", assign) is not None
    except BrokerAnsweredError as error:
        if error.code != ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise
        return False


def _source_connector(flow: Flow, source: str, topics: str) -> dict[str, str]:
    return {
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": flow.source,
        "target.cluster.alias": flow.target,
        "source.cluster.bootstrap.servers": source,
        "topics": topics,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
    }


async def _takes_over(java: Membership) -> bool:
    """Throw all members out of the group, and join it."""
    for member in (await java.look()).members:
        await java.remove(member.member_id)
    return await _joins(java)


async def test_java_s_workers_are_waited_for_and_kept_out_by_kafka_itself(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    While Java's workers are in the worker's group its connectors stand by, and say for whom. While nodes of mm2py are,
    one or two, Java's cannot join. A node that was thrown out and finds Java's there drains, and waits for them again.
    """
    source, target, flow = primary.bootstrap_servers, backup.bootstrap_servers, Flow(prefix[-6:], "us-east")
    file, remote = _worker(target, prefix), f"{flow.source}.{prefix}"
    await create_topic(source, prefix, partitions=1)
    await produce_numbers(source, prefix, count=500, partitions=1)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(flow_settings(target, target).target, SystemClock()))
        java = Membership(cluster, f"{prefix}-connect", ("connect", "sessioned"), 60_000)
        assert await _joins(java)
        one = await stack.enter_async_context(running_worker(file, tmp_path, "one"))
        worker = one.node.worker
        assert worker is not None
        await eventually(lambda: worker.store.is_read, within_s=30, what="the config topic is read")
        await worker.put("us-west", _source_connector(flow, source, prefix), by="the test")
        await eventually(lambda: one.node.view().flows, within_s=30, what="there is a flow")
        await one.until(flow, "MirrorSourceConnector", FlowState.STANDBY)
        why, topics = one.view(flow).last_error, await list_topics(target)
        await java.leave()
        await await_arrived(target, remote, 500)
        assert not await _joins(java)

        # Another node comes and goes, and one is thrown out by Java's workers.
        two = await stack.enter_async_context(running_worker(file, tmp_path, "two"))

        async def are_two() -> bool:
            return len((await java.look()).members) == len(one.view(flow).nodes) == 2

        await eventually(are_two, within_s=30, what="both nodes are in the worker's group, and in the flow's")
        assert not await _joins(java)
        await two.stop()

        await eventually(lambda: _takes_over(java), within_s=30, what="Java's workers have the group")
        await one.until(flow, "MirrorSourceConnector", FlowState.STANDBY)
        await produce_numbers(source, prefix, count=500, partitions=1)
        await java.leave()
        await await_arrived(target, remote, 1_000)
        said = [event.then for event in one.events.of(WorkerRunsElsewhere)]
        await one.stop()
        left = await java.look()

    assert why.startswith("Java MirrorMaker, at ")
    assert why.endswith(f" runs {flow}, as a worker of group {prefix}-connect")
    assert remote not in topics
    assert said == ["stands by and runs no connector", "steps back and stands by"]
    assert len(one.events.of(WorkerTakenOver)) == 2
    assert not two.events.of(WorkerRunsElsewhere)
    assert not left.members
    assert await end_offsets(target, remote) == {0: 1_000}


async def test_which_cluster_is_meant_is_decided_by_its_id(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A connector names its target by another host than the worker's file does: it is one cluster, and runs. Another one
    names the same host with the port of the source: it is told once that this is another cluster, and not a record is
    copied. A third one's target does not answer: it is taken, and waits.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    flows = {name: Flow(f"{name}{prefix[-6:]}", "us-east") for name in ("same", "other", "away")}
    named = {"same": target.replace(HOST, "localhost"), "other": source, "away": f"{HOST}:1"}
    await create_topic(source, prefix, partitions=1)
    await produce_numbers(source, prefix, count=500, partitions=1)
    async with running_worker(_worker(target, prefix), tmp_path) as one:
        worker = one.node.worker
        assert worker is not None
        await eventually(lambda: worker.store.is_read, within_s=30, what="the config topic is read")
        for name, flow in flows.items():
            config = {**_source_connector(flow, source, prefix), "target.cluster.bootstrap.servers": named[name]}
            assert await worker.put(name, config, by="the test")
        await await_arrived(target, f"{flows['same'].source}.{prefix}", 500)
        await one.until(flows["other"], "MirrorSourceConnector", FlowState.FAILED)
        await one.until(flows["away"], "MirrorSourceConnector", FlowState.STARTING)
        failed = one.view(flows["other"])
        ids = {event.flow: event.error for event in one.events.of(FlowFailed)}
        waits = await eventually(lambda: one.view(flows["away"]).last_error, within_s=30, what="it says why it waits")
        await one.stop()

    assert failed.last_error.startswith(f"other: target.cluster.bootstrap.servers = {source} is cluster ")
    assert f"another one than that at {target}" in failed.last_error
    assert ids == {flows["other"]: failed.last_error}
    assert f"does not answer at {HOST}:1" in waits
    assert await list_topics(target) & {f"{flow.source}.{prefix}" for flow in flows.values()} == {
        f"{flows['same'].source}.{prefix}"
    }


async def test_checkpoints_rest_on_the_offset_syncs_of_java(
    mirror_by_java: JavaMirror, prefix: str, tmp_path: Path
) -> None:
    """
    Java's source connector has written them at the target, and the worker has nothing but a checkpoint connector.

    What it writes for a group is never ahead of it; of a topic that Java did not mirror it says why there is nothing.
    """
    mirror, flow = mirror_by_java, Flow(mirror_by_java.source_alias, mirror_by_java.target_alias)
    await create_topic(mirror.source, prefix, partitions=1)
    read = {TopicPartition(mirror.topic, 0): 150, TopicPartition(mirror.topic, 1): 300}
    await commit_plainly(mirror.source, prefix, {**read, TopicPartition(prefix, 0): 0})
    config = {
        **_source_connector(flow, mirror.source, f"{mirror.topic},{prefix}"),
        "connector.class": "MirrorCheckpointConnector",
        "offset-syncs.topic.location": "target",
        "checkpoints.topic.replication.factor": "1",
        "groups": prefix,
        "sync.group.offsets.enabled": "true",
        **{f"{what}.interval.seconds": "1" for what in ("emit.checkpoints", "sync.group.offsets", "refresh.groups")},
    }
    async with running_worker(_worker(mirror.target, prefix), tmp_path) as one:
        worker = one.node.worker
        assert worker is not None
        await eventually(lambda: worker.store.is_read, within_s=30, what="the config topic is read")
        await worker.put("checks", config, by="the test")

        async def carried() -> dict[TopicPartition, int]:
            found = await committed(mirror.target, prefix)
            assert len(found) == len(read), found
            return found

        found = await eventually(carried, within_s=60, what="the group's offsets are at the target")
        await one.until(flow, "MirrorCheckpointConnector", FlowState.RUNNING)
        view = one.view(flow)
        healthy = flow_issues(view)
        await one.stop()

    (group,) = view.consumer_groups
    why = {it.source.topic: it.why for it in group.offsets}
    assert all(0 < found[TopicPartition(mirror.remote_topic, it.partition)] <= at for it, at in read.items())
    assert why == {mirror.topic: "", prefix: Untranslated.NO_SYNC.value}
    assert not healthy


async def test_aliases_of_one_cluster_are_told_by_its_id(backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    Two aliases have addresses of their own, and their brokers say that they are one cluster: that is reported, not
    before. As names are kept, the flow would feed itself, and is refused before a record is copied.
    """
    servers, flow = backup.bootstrap_servers, Flow("here", f"there{prefix[-6:]}")
    other = servers.replace(HOST, "localhost")
    lines = {
        "clusters": f"{flow.source}, {flow.target}",
        f"{flow.source}.bootstrap.servers": servers,
        f"{flow.target}.bootstrap.servers": other,
        f"{flow}.enabled": "true",
        "topics": prefix,
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "emit.heartbeats.enabled": "false",
        **{f"{kind}.replication.factor": 1 for kind in ("offset.storage", "offset-syncs.topic", "checkpoints.topic")},
    }
    await create_topic(servers, prefix, partitions=1)
    await produce_numbers(servers, prefix, count=5, partitions=1)
    async with running_node("".join(f"{key} = {value}\n" for key, value in lines.items()), tmp_path) as one:
        before = one.node.settings.notes
        await one.until(flow, "MirrorSourceConnector", FlowState.FAILED)
        error = one.view(flow).last_error

    (found,) = one.events.of(ClustersAreOne)
    assert not any("one cluster" in note.message for note in before)
    assert found.aliases == (flow.source, flow.target)
    assert f"{flow} would feed itself without end" in error
    assert await end_offsets(servers, prefix) == {0: 5}
