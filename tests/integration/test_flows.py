"""A flow's control plane on real clusters: topics, positions, unavailable clusters. Epochs run in this process."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.model.health import HealthIssue, IssueCode, Severity, flow_issues
from mm2py.model.herder.restart import Restart
from mm2py.model.positions import Position, decode_position, position_key
from mm2py.model.state import FlowState, PartitionStage
from mm2py.telemetry.events import (
    ClusterRecovered,
    ClusterUnreachable,
    FlowDrained,
    FlowStarted,
    GroupOffsetsSynced,
    NoTopicsMatched,
    PartitionRecovered,
    PartitionsGrown,
    PartitionStopped,
    PositionsRead,
    RecordsSkipped,
    ResumedExactly,
    StepFailed,
    TopicCreated,
    TopicRemoved,
)
from tests.support.brokers import MakeCluster
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.groups import commit_plainly
from tests.support.mm2_file import STRANGE_ALIAS, mm2_properties
from tests.support.nodes import running_node
from tests.support.producing import produce, produce_numbers, producer
from tests.support.reading import read_numbers, read_topic
from tests.support.records import (
    MIDDLE_MS,
    NewRecord,
    assert_numbers,
    assert_same_records,
    assert_written,
    plain_records,
)
from tests.support.topics import (
    alter_topic,
    await_ends,
    create_topic,
    delete_topic,
    end_offsets,
    grow_topic,
    list_topics,
)


async def stored(cluster: KafkaCluster, topic: str) -> dict[TopicPartition, Position]:
    """Read the positions of A from the offsets topic, with their headers."""
    positions = {}
    for records in (await read_topic(cluster.bootstrap_servers, topic)).values():
        for record in records:
            decoded = decode_position(record.key, record.value, record.headers)
            if decoded is not None and isinstance(decoded[1], Position):
                positions[decoded[1].source] = decoded[1]
    return positions


async def test_topics_come_grow_and_go(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    New topics and partitions are copied from their first record within the refresh interval; others continue.

    A deleted topic leaves its remote topic; created again, it is not mixed into that, and stops.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    gone, grown = f"{prefix}-gone", f"{prefix}-grown"
    await create_topic(source, gone, partitions=2)
    await produce_numbers(source, gone, count=100, partitions=2)
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}.*", "tasks.max": 2})
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(100)
        await create_topic(source, grown)
        await produce_numbers(source, grown, count=100, partitions=1)
        await flow.copied(200)
        await grow_topic(source, grown, 3)
        await produce_numbers(source, grown, count=300, partitions=3)
        await flow.copied(500)
        await delete_topic(source, gone)
        await flow.told(TopicRemoved)
        await eventually(
            lambda: {view.source.topic for view in flow.runner.view().partitions} == {grown},
            within_s=10,
            what="what is left is shown",
        )
        was_stopped = flow.events.of(PartitionStopped)
        await create_topic(source, gone)
        await produce_numbers(source, gone, count=400, partitions=1)
        await flow.told(PartitionStopped)
        await produce_numbers(source, grown, count=300, partitions=3)
        await await_ends(target, f"A.{grown}", {0: 300, 1: 200, 2: 200})
        await flow.drain()

    assert {event.remote_topic: event.partitions for event in flow.events.of(TopicCreated)} == {
        f"A.{gone}": 2,
        f"A.{grown}": 1,
    }
    assert [(event.before, event.after) for event in flow.events.of(PartitionsGrown)] == [(1, 3)]
    assert was_stopped == ()
    assert {event.source.topic for event in flow.events.of(PartitionStopped)} == {gone}
    assert await end_offsets(target, f"A.{gone}") == {0: 50, 1: 50}
    assert await read_numbers(target, f"A.{grown}") == await read_numbers(source, grown)


async def test_a_target_s_alias_may_be_almost_anything(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The alias that Kafka's own test gives a target: with offset syncs there, records and groups arrive."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=100, partitions=1)
    await commit_plainly(source, prefix, {TopicPartition(prefix, 0): 60})
    keys = {
        "topics": prefix,
        "groups": prefix,
        "offset-syncs.topic.location": "target",
        "emit.checkpoints.interval.seconds": 1,
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": 1,
    }
    settings = flow_settings(source, target, alias=prefix, to_alias=STRANGE_ALIAS, **keys)
    async with running_flow(settings, tmp_path) as it:
        await await_ends(target, f"{prefix}.{prefix}", {0: 100})
        await it.told(GroupOffsetsSynced)
        await it.drain()
        made = {name for name in await list_topics(target) if prefix in name}
        troubles = [str(event) for event in it.events.of(StepFailed)]

    assert troubles == []
    assert made == {
        f"{prefix}.{prefix}",
        f"{prefix}.checkpoints.internal",
        f"mm2-offset-syncs.{prefix}.internal",
        f"mm2-offsets.{prefix}.internal",
        f"mm2-synced.{prefix}.internal",
    }


async def test_a_record_too_large_stops_its_partition_until_the_limit_is_raised(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The setting to raise is named and the other partition continues; once it is raised, nothing is missing."""
    source, target, remote = primary.bootstrap_servers, backup.bootstrap_servers, f"A.{prefix}"
    await create_topic(target, remote, partitions=2, configs={"max.message.bytes": "100000"})
    await create_topic(source, prefix, partitions=2)
    large = NewRecord(b"large", b"x" * 200_000, (), MIDDLE_MS)
    written = [list(plain_records(100)), [*plain_records(50), large, *plain_records(50, start=50)]]
    await produce(source, prefix, written, batch_bytes=400_000)
    async with running_flow(flow_settings(source, target, **{"A->B.topics": prefix}), tmp_path) as flow:
        await flow.told(PartitionStopped)
        await produce(source, prefix, [plain_records(100, start=100)])
        await await_ends(target, remote, {0: 200, 1: 50})
        views = flow.runner.view().partitions
        await alter_topic(target, remote, {"max.message.bytes": "1000000"})
        await await_ends(target, remote, {0: 200, 1: 101})
        await flow.told(PartitionRecovered)
        await flow.drain()

    stopped = flow.events.of(PartitionStopped)[0]
    assert (stopped.source.partition, stopped.offset) == (1, 50)
    assert [view.stage for view in views] == [PartitionStage.COPYING, PartitionStage.STOPPED]
    assert views[1].failure is not None
    assert "max.message.bytes" in views[1].failure.hint
    assert_same_records(await read_topic(source, prefix), await read_topic(target, remote))


async def test_positions_begin_before_the_first_record(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """The start is written before the first epoch, so that a crash right after it is resumed exactly."""
    source, target, offsets = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-offsets"
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=20_000, partitions=2)
    settings = flow_settings(
        source, target, **{"A->B.topics": prefix, "tasks.max": 1, "B.offset.storage.topic": offsets}
    )
    async with running_flow(settings, tmp_path) as first:
        await first.copied(20_000)
        at_crash = await stored(backup, offsets)
        await first.crash()
    await produce_numbers(source, prefix, count=10, partitions=2)
    async with running_flow(settings, tmp_path) as second:
        await second.copied(10)
        await second.drain()

    at_end = await stored(backup, offsets)
    assert {(it.next_upstream, it.downstream) for it in at_crash.values()} == {(0, -1)}
    assert {(it.next_upstream, it.downstream) for it in at_end.values()} == {(10_005, 10_004)}
    assert all(position.topic_id for position in at_end.values())
    assert [event.records for event in second.events.of(ResumedExactly)] == [10_000, 10_000]
    assert [(event.found, event.fresh) for event in second.events.of(PositionsRead)] == [(2, 0)]
    assert await end_offsets(target, f"A.{prefix}") == {0: 10_005, 1: 10_005}
    assert second.events.of(FlowDrained)[0].positions_written


async def test_partitions_start_where_another_mirror_s_group_stands(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Without a position, a partition starts at the group's offset, or at its beginning if the group has none.

    Later lives go on from positions; where an operator removed one, the partition is copied whole, group or not.
    """
    source, target, offsets = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-offsets"
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=200, partitions=2)
    await commit_plainly(source, f"{prefix}-group", {TopicPartition(prefix, 0): 60})
    settings = flow_settings(
        source,
        target,
        **{"A->B.topics": prefix, "A->B.copy.start.group": f"{prefix}-group", "B.offset.storage.topic": offsets},
    )
    async with running_flow(settings, tmp_path) as first:
        await first.copied(140)
        await first.drain()
    began = await end_offsets(target, f"A.{prefix}")
    async with producer(target) as connected:
        await connected.send_and_wait(offsets, value=None, key=position_key("A", TopicPartition(prefix, 0)))
    async with running_flow(settings, tmp_path) as second:
        await second.copied(100)
        await second.drain()

    assert began == {0: 40, 1: 100}
    assert await end_offsets(target, f"A.{prefix}") == {0: 140, 1: 100}
    assert [(event.found, event.fresh) for event in second.events.of(PositionsRead)] == [(1, 1)]


async def test_latest_leaves_what_was_there(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    With auto.offset.reset=latest only what comes after the start is mirrored, and all of it.

    What a new topic, or a partition by which one has grown, gets before the next refresh notices it is not left out.
    """
    source, target, new = primary.bootstrap_servers, backup.bootstrap_servers, f"{prefix}-new"
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=50, partitions=1)
    keys = {"A.consumer.auto.offset.reset": "latest", "refresh.topics.interval.seconds": 600}
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}.*", **keys})
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(FlowStarted)
        await produce_numbers(source, prefix, count=30, partitions=1)
        await flow.copied(30)
        await create_topic(source, new)
        await produce_numbers(source, new, count=40, partitions=1)
        await grow_topic(source, prefix, 2)
        await produce_numbers(source, prefix, count=40, partitions=2)
        flow.runner.requests.restart_here(Restart("MirrorSourceConnector"))  # which refreshes the topics
        await flow.copied(110)
        await flow.drain()

    assert await end_offsets(target, f"A.{prefix}") == {0: 50, 1: 20}
    assert_numbers(await read_numbers(target, f"A.{new}"), 40)


async def test_a_start_at_a_timestamp(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    Copying begins at the first record of that time: inside a batch, at the start, or at the end if all are older.

    What follows is copied whatever its time; offsets before the start translate to the first record that was copied.
    Once there is a position, neither a restart nor another timestamp moves it.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=4)
    old, new = list(plain_records(100)), list(plain_records(100, start=1_000))
    both = list(plain_records(40, start=970))  # 970 to 1009
    await produce(source, prefix, [old, both, new, []])
    keys = {f"{prefix}->B.topics": prefix, f"{prefix}->B.emit.checkpoints.interval.seconds": "1"}

    def starting(at: int | str) -> FlowSettings:
        keys[f"{prefix}->B.start.timestamp"] = str(at)
        return flow_settings(source, target, alias=prefix, **keys)

    wanted = [[], both[30:], new, []]
    async with running_flow(starting(MIDDLE_MS + 1_000), tmp_path) as first:
        await first.copied(110)
        known = [first.runner._translations.downstream(TopicPartition(prefix, 1), at) for at in (10, 30, 35)]
        late = list(plain_records(10, start=500))
        await produce(source, prefix, [late] * 4)
        await first.copied(150)
        await first.drain()
    await produce(source, prefix, [late] * 4)
    async with running_flow(starting("2024-06-01T00:00:00Z"), tmp_path) as second:
        await second.copied(40)
        await second.drain()

    assert_written([[*records, *late, *late] for records in wanted], await read_topic(target, f"{prefix}.{prefix}"))
    assert [getattr(answer, "offset", answer) for answer in known] == [0, 0, 5]
    assert [(it.found, it.fresh) for it in (*first.events.of(PositionsRead), *second.events.of(PositionsRead))] == [
        (0, 4),
        (4, 0),
    ]
    assert not first.events.of(ResumedExactly)
    assert not first.events.of(RecordsSkipped)


async def test_a_cluster_that_comes_late(primary: KafkaCluster, make_cluster: MakeCluster, tmp_path: Path) -> None:
    """A flow whose target is unavailable reports it once, keeps trying, reports once that it is back, and then runs."""
    late = make_cluster("late", is_killed=True)
    late.kill(0)
    settings = flow_settings(primary.bootstrap_servers, late.bootstrap_servers, **{"A->B.topics": "none-such"})
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(ClusterUnreachable)
        await asyncio.sleep(3)
        before = flow.runner.view()
        await asyncio.to_thread(late.start, 0)
        await flow.told(FlowStarted)
        await flow.drain()

    assert before.state is FlowState.STARTING
    assert [(cluster.alias, cluster.is_reachable) for cluster in before.clusters] == [("A", True), ("B", False)]
    assert [event.cluster for event in flow.events.of(ClusterUnreachable)] == ["B"]
    assert [event.cluster for event in flow.events.of(ClusterRecovered)] == ["B"]
    assert flow.runner.view().state is FlowState.DRAINED


async def test_too_many_replicas_are_told(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Remote topics that the target cannot create are reported once, and the flow goes on."""
    await create_topic(primary.bootstrap_servers, prefix)
    settings = flow_settings(
        primary.bootstrap_servers, backup.bootstrap_servers, **{"A->B.topics": prefix, "replication.factor": 3}
    )
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(FlowStarted)
        await flow.told(StepFailed)
        await asyncio.sleep(2.5)
        view = flow.runner.view()
        await flow.drain()

    (refusal,) = flow.events.of(StepFailed)
    (issue,) = (one for one in flow_issues(view) if one.code is IssueCode.TOPICS_REFUSED)
    assert (issue.severity, issue.message) == (Severity.ERROR, f"topic {prefix} is missing at the target")
    assert [(one.topic, one.partitions) for one in view.missing_topics] == [(prefix, 1)]
    assert refusal.step == "create remote topics"
    assert refusal.error.startswith(f"cannot create topic A.{prefix}: replication.factor 3 > 1 broker of cluster B")
    assert refusal.hint == "lower the setting, or add brokers"


async def test_internal_topics_that_cannot_be_created_are_issues(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Offset syncs that cannot be written leave no trace but in Java's translation: the flow says so for as long."""
    await create_topic(primary.bootstrap_servers, prefix)
    settings = flow_settings(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        to_alias=prefix,  # the name of the topic has it
        **{
            f"A->{prefix}.topics": prefix,
            f"A->{prefix}.emit.offset-syncs.enabled": "true",
            "offset-syncs.topic.replication.factor": 3,
            "offset-syncs.topic.location": "source",
        },
    )
    async with running_flow(settings, tmp_path) as flow:
        await flow.told(FlowStarted)

        def failing() -> list[HealthIssue]:
            return [it for it in flow_issues(flow.runner.view()) if it.code is IssueCode.STEP_FAILED]

        issues = await eventually(failing, within_s=30, what="an issue about the step")
        await flow.drain()

    (issue,) = issues
    assert (issue.code, issue.about) == (IssueCode.STEP_FAILED, "write offset syncs")
    assert "offset-syncs.topic.replication.factor 3 > 1 broker of cluster A" in issue.sentence


async def test_a_flow_that_matches_nothing_says_so_once(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A misspelt name is reported with the likely one; once there is a topic of the name, so is that."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, f"{prefix}-orders")
    settings = flow_settings(source, target, **{"A->B.topics": f"{prefix}-order"})
    async with running_flow(settings, tmp_path) as flow:

        def unmatched() -> list[HealthIssue]:
            return [it for it in flow_issues(flow.runner.view()) if it.code is IssueCode.TOPICS_UNMATCHED]

        await flow.told(NoTopicsMatched)
        (issue,) = await eventually(unmatched, within_s=20, what="an issue")
        await create_topic(source, f"{prefix}-order")
        await flow.told(TopicCreated)
        await eventually(lambda: not unmatched(), within_s=20, what="no issue any more")
        await flow.drain()

    (told,) = flow.events.of(NoTopicsMatched)
    assert f"{prefix}-orders" in told.hint
    assert issue.hint == told.hint


async def test_a_name_that_hangs_keeps_no_other_cluster_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no server answers for the target of twelve flows, each look-up keeps a thread. Another flow's target is
    asked nevertheless.
    """
    released, look_up = threading.Event(), socket.getaddrinfo

    def look_up_slowly(host: str, *others: Any, **named: Any) -> Any:
        if host == "silent":
            released.wait()
        return look_up("127.0.0.1", *others, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_slowly)
    targets = {f"A{number}": "B" for number in range(12)} | {"A12": "C"}
    keys = {f"{source}.bootstrap.servers": "localhost:1" for source in targets}
    keys |= {f"{source}->{target}.enabled": "true" for source, target in targets.items()}
    keys |= {"clusters": ", ".join([*targets, "B", "C"]), "C.bootstrap.servers": "localhost:1"}
    file = mm2_properties("localhost:1", "silent:1", aliases=("A0", "B"), **keys)
    async with running_node(file, tmp_path) as running:
        try:
            told = await eventually(lambda: running.events.of(ClusterUnreachable), within_s=8, what="C is asked")
        finally:
            released.set()

    assert "connection refused" in told[0].error


async def test_a_topic_is_mirrored_beside_itself(primary: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    Both ends are one cluster, as in Mirus's quick start: a suffix distinguishes a copy from its topic.

    The copy, which the flow's expression selects too, is not mirrored again, in whatever round of topics.
    """
    cluster, mirror = primary.bootstrap_servers, f"{prefix}.mirror"
    await create_topic(cluster, prefix, partitions=2)
    await produce_numbers(cluster, prefix, count=500, partitions=2)
    names = {"topics": f"{prefix}.*", "replication.policy.class": "identity", "remote.topic.suffix": ".mirror"}
    settings = flow_settings(cluster, cluster, alias=prefix, **names)
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(500)
        late = f"{prefix}-late"
        await create_topic(cluster, late)
        await produce_numbers(cluster, late, count=10, partitions=1)
        await flow.copied(510)
        await flow.drain()

    assert_numbers(await read_numbers(cluster, mirror), 500)
    assert {name for name in await list_topics(cluster) if name.startswith(prefix)} == {
        prefix,
        mirror,
        late,
        f"{late}.mirror",
        f"{prefix}.checkpoints.internal",
    }
