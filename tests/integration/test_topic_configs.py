"""Configs of remote topics on real clusters: at creation, when the source's change, when an operator changes them."""

from __future__ import annotations

import time
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.acl import Operation, Permission
from mm2py.telemetry.events import (
    FlowStarted,
    PartitionStopped,
    TopicConfigsChanged,
    TopicConfigsKept,
    TopicLimitsRaised,
    TopicSyncFailed,
    TopicSyncRecovered,
)
from tests.support.brokers import GUARDED, MakeCluster
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.mirrored import await_arrived
from tests.support.producing import produce
from tests.support.records import plain_records, spread
from tests.support.syncs import allow, grant, own_configs, revoke, set_configs
from tests.support.topics import create_topic, list_topics


async def configured(cluster: KafkaCluster, topic: str, expected: dict[str, str]) -> None:
    """Wait until exactly these configs are set on a topic."""

    async def is_configured() -> bool:
        assert await own_configs(cluster.bootstrap_servers, topic) == expected
        return True

    await eventually(is_configured, within_s=30, what=f"{topic} has {expected}", every_s=0.2)


def every_second(prefix: str, **keys: object) -> dict[str, object]:
    return {"A->B.topics": f"{prefix}.*", "sync.topic.configs.interval.seconds": 1, **keys}


async def test_new_topics_have_their_source_s_configs(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A remote topic is created with what is set on its source, but for what is never copied, and with its factor."""
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
        "min.insync.replicas": "1",
        "message.timestamp.after.max.ms": "3600000",
        "leader.replication.throttled.replicas": "*",
    }
    await create_topic(primary.bootstrap_servers, prefix, configs=configs)
    settings = flow_settings(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **every_second(prefix, **{"sync.topic.configs.enabled": "false", "replication.factor": "source"}),
    )
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(FlowStarted)

    assert await own_configs(backup.bootstrap_servers, f"A.{prefix}") == {
        "cleanup.policy": "compact",
        "max.message.bytes": "2000000",
    }


async def test_configs_follow_across_a_restart(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """What changes at the source arrives, what goes there goes, what was set by hand stays, across a crash too."""
    source, target, remote = primary.bootstrap_servers, backup.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, configs={"retention.ms": "1000000", "segment.ms": "700000"})
    settings = flow_settings(source, target, **every_second(prefix))
    async with running_flow(settings, tmp_path) as first:
        await set_configs(source, prefix, retention_ms="2000000", cleanup_policy="compact")
        await configured(
            backup, remote, {"retention.ms": "2000000", "segment.ms": "700000", "cleanup.policy": "compact"}
        )
        await set_configs(target, remote, segment_ms="800000", flush_ms="5000")
        await first.told(TopicConfigsKept)
        await first.crash()
    await set_configs(source, prefix, retention_ms=None, segment_ms="900000", cleanup_policy="delete")
    async with running_flow(settings, tmp_path) as second:
        await configured(backup, remote, {"segment.ms": "800000", "flush.ms": "5000", "cleanup.policy": "delete"})
        await set_configs(target, remote, segment_ms=None)
        await configured(backup, remote, {"segment.ms": "900000", "flush.ms": "5000", "cleanup.policy": "delete"})
        await second.drain()

    assert first.events.of(TopicConfigsKept)[-1].kept == ("flush.ms=5000", "segment.ms=800000")
    changed = second.events.of(TopicConfigsChanged)
    assert [(event.set, event.deleted) for event in changed] == [
        (("cleanup.policy=delete",), ("retention.ms",)),
        (("segment.ms=900000",), ()),
    ]


AHEAD, DAY_MS = "message.timestamp.after.max.ms", 86_400_000


async def test_records_ahead_of_the_clock_are_copied(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Records a day ahead, which the source allows and the target's brokers do not, arrive, with one event."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, configs={AHEAD: str(2 * DAY_MS)})
    ahead_ms = int(time.time() * 1000) + DAY_MS
    records = [record._replace(timestamp_ms=ahead_ms) for record in plain_records(500)]
    await produce(source, prefix, [records])
    async with running_flow(flow_settings(source, target, **every_second(prefix)), tmp_path) as flow:
        await await_arrived(target, f"A.{prefix}", 500)
        await flow.drain()

    assert flow.events.of(PartitionStopped) == ()
    assert [event.limits for event in flow.events.of(TopicLimitsRaised)] == [(f"{AHEAD}={2 * DAY_MS}",)]


async def test_raised_limits_follow_the_source(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A limit that is raised at the source is raised at the target, and goes when the source no longer has it."""
    source, remote = primary.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix)
    async with running_flow(flow_settings(source, backup.bootstrap_servers, **every_second(prefix)), tmp_path) as flow:
        await flow.told(FlowStarted)
        await configured(backup, remote, {})
        await set_configs(source, prefix, message_timestamp_after_max_ms=str(DAY_MS))
        await configured(backup, remote, {AHEAD: str(DAY_MS)})
        await set_configs(source, prefix, message_timestamp_after_max_ms=None)
        await configured(backup, remote, {})

    assert len(flow.events.of(TopicLimitsRaised)) == 1


async def test_overwriting_what_was_set_by_hand(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """With overwriting on, remote topics get their sources' configs, as with MirrorMaker 2."""
    await create_topic(primary.bootstrap_servers, prefix, configs={"retention.ms": "1000000"})
    await create_topic(backup.bootstrap_servers, f"A.{prefix}", configs={"retention.ms": "5", "flush.ms": "5000"})
    settings = flow_settings(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **every_second(prefix, **{"sync.topic.configs.by.hand": "overwrite"}),
    )
    async with running_flow(settings, tmp_path):
        await configured(backup, f"A.{prefix}", {"retention.ms": "1000000"})


async def test_replicate_source_default(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """With use.defaults.from=source the source's defaults are set on the remote topic."""
    await create_topic(primary.bootstrap_servers, prefix)
    settings = flow_settings(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **every_second(prefix, **{"A->B.use.defaults.from": "source"}),
    )
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(FlowStarted)
    configs = await own_configs(backup.bootstrap_servers, f"A.{prefix}")

    assert (configs["delete.retention.ms"], configs["cleanup.policy"]) == ("86400000", "delete")
    assert "min.insync.replicas" not in configs


async def test_larger_batches_travel_once_the_limit_was_raised(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A limit raised at the source is raised at the target, and the copier heeds it without a look at the topics."""
    source, target, remote = primary.bootstrap_servers, backup.bootstrap_servers, f"A.{prefix}"
    await create_topic(source, prefix, configs={"max.message.bytes": "100000"})
    settings = flow_settings(source, target, **every_second(prefix, **{"refresh.topics.interval.seconds": 600}))
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(FlowStarted)
        await set_configs(source, prefix, max_message_bytes="3000000")
        await flow.told(TopicConfigsChanged)
        await produce(source, prefix, spread(plain_records(1, size=2_000_000), 1))
        await await_arrived(target, remote, 1)

    assert await own_configs(target, remote) == {"max.message.bytes": "3000000"}


async def test_missing_describe_configs_acl(
    backup: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """If configs may not be read, topics are copied without them; the missing right and its grant are reported."""
    guarded = make_cluster("guarded", properties=GUARDED)
    source = guarded.bootstrap_servers
    await create_topic(source, prefix, configs={"segment.ms": "700000"})
    denied = allow(prefix, "ANONYMOUS", Operation.DESCRIBE_CONFIGS, permission=Permission.DENY)
    await grant(source, [allow(prefix, "ANONYMOUS", Operation.ALL), denied])
    settings = flow_settings(source, backup.bootstrap_servers, **every_second(prefix))
    async with running_flow(settings, tmp_path) as flow:
        await produce(source, prefix, spread(plain_records(10), 1))
        await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 10)
        await flow.told(TopicSyncFailed, 2)
        await revoke(source, [denied])
        await configured(backup, f"A.{prefix}", {"segment.ms": "700000"})
        await flow.told(TopicSyncRecovered)

    creation, sync = flow.events.of(TopicSyncFailed)
    assert creation.hint == sync.hint
    assert "TOPIC_AUTHORIZATION_FAILED" in sync.error
    assert f"A.{prefix}" in await list_topics(backup.bootstrap_servers)
