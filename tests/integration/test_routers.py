"""Remote topics that routers name: where Java MirrorMaker 2 wrote, and where a mirror copied under other names."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mm2py.clock import SystemClock
from mm2py.config.settings import FlowSettings
from mm2py.core.herder.overrides import SOURCE
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions
from mm2py.herder.connector_offsets import ConnectorOffsets
from mm2py.model.connector_offset import ConnectorOffset
from mm2py.model.positions import REMOTE_TOPIC_HEADER, REMOTE_TOPIC_ID_HEADER
from mm2py.telemetry.events import FlowStarted, ResumeUnproven, TopicSkipped
from mm2py.telemetry.journal import EventLog
from tests.support.epochs import spark_of
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.java_mm2 import JavaMirrorMaker2
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce
from tests.support.reading import read_topic
from tests.support.records import NewRecord, assert_same_records, plain_records
from tests.support.topics import create_topic, list_topics


_PACKAGE = "org.apache.kafka.connect.transforms"
_COUNT = 300
_QUIET = {
    "emit.heartbeats.enabled": "false",
    "heartbeats.replication.enabled": "false",
    "emit.checkpoints.enabled": "false",
}


def _router(alias: str, regex: str, replacement: str) -> dict[str, object]:
    prefix = f"{alias}->B.transforms"
    return {
        prefix: "route",
        f"{prefix}.route.type": f"{_PACKAGE}.RegexRouter",
        f"{prefix}.route.regex": regex,
        f"{prefix}.route.replacement": replacement,
    }


def _chain(alias: str, prefix: str) -> dict[str, object]:
    """Two filters by the name that the policy gave a topic, then three routers."""
    flow, rest = f"{alias}->B", rf"[^.]+\\.{prefix}-(plain|kept|swapped|keep|audit).*"
    routers = {
        "strip": (rf"{alias}\\.({prefix}-plain)", "$1"),
        "put": (rf"(.*{prefix}-kept)", "dc2.$1"),
        "swap": (rf"(.*)\\.({prefix}-swapped)", "$1-$2"),
    }
    keys: dict[str, object] = {
        f"{flow}.transforms": ", ".join(("noAudit", "onlyThese", *routers)),
        f"{flow}.transforms.noAudit.type": f"{_PACKAGE}.Filter",
        f"{flow}.transforms.noAudit.predicate": "isAudit",
        f"{flow}.transforms.onlyThese.type": f"{_PACKAGE}.Filter",
        f"{flow}.transforms.onlyThese.predicate": "isWanted",
        f"{flow}.transforms.onlyThese.negate": "true",
        f"{flow}.predicates": "isAudit, isWanted",
        f"{flow}.predicates.isAudit.type": f"{_PACKAGE}.predicates.TopicNameMatches",
        f"{flow}.predicates.isAudit.pattern": rf".*\\.{prefix}-audit.*",
        f"{flow}.predicates.isWanted.type": f"{_PACKAGE}.predicates.TopicNameMatches",
        f"{flow}.predicates.isWanted.pattern": rest,
    }
    for name, (regex, replacement) in routers.items():
        keys[f"{flow}.transforms.{name}.type"] = f"{_PACKAGE}.RegexRouter"
        keys[f"{flow}.transforms.{name}.regex"] = regex
        keys[f"{flow}.transforms.{name}.replacement"] = replacement
    return keys


async def test_mm2py_goes_on_where_java_s_filters_and_routers_sent_records(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Java mirrors six topics behind two filters and three routers and ends; mm2py continues from the same file.

    Every record is once in the topic that Java chose, and mm2py makes none. What Java drops, mm2py drops.
    """
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, f"R{prefix[-6:]}"
    plain, kept, swapped = (f"{prefix}-{name}" for name in ("plain", "kept", "swapped"))
    through, *dropped = (f"{prefix}-{name}" for name in ("keep-all", "audit-log", "others"))
    routed = {plain: plain, kept: f"dc2.{alias}.{kept}", swapped: f"{alias}-{swapped}"}
    remote_of = {**{topic: f"{alias}.{topic}" for topic in (*dropped, through)}, **routed}
    keys = {
        "topics": f"{prefix}-.*",
        **_chain(alias, prefix),
        "B.offset.flush.interval.ms": 500,
        **_QUIET,
    }
    for topic in remote_of:
        await create_topic(source, topic)
        if topic in routed:  # Java creates those of the policy's names alone, the brokers here none
            await create_topic(target, routed[topic])
        await produce(source, topic, [plain_records(_COUNT)])
    file = tmp_path / "java.properties"
    file.write_text(mm2_properties(source, target, aliases=(alias, "B"), **keys))
    java = JavaMirrorMaker2(file, log_file=tmp_path / "java.log", jvm=JvmOptions(heap_mb=256))
    try:
        await asyncio.to_thread(java.start)
        for topic in (through, *routed):
            await await_arrived(target, remote_of[topic], _COUNT, within_s=120)
        await asyncio.to_thread(java.stop)
    finally:
        await asyncio.to_thread(java.kill)
    before = await list_topics(target)
    by_java = {topic: await arrived(target, remote) for topic, remote in remote_of.items()}
    for topic in remote_of:
        await produce(source, topic, [plain_records(_COUNT, start=_COUNT)])
    settings = flow_settings(source, target, alias=alias, **keys)
    async with spark_of() as spark, running_flow(settings, tmp_path, spark=spark) as running:

        def all_is_read() -> bool:
            positions = {it.source.topic: it.position for it in running.runner.view().partitions}
            return positions == dict.fromkeys(remote_of, 2 * _COUNT)

        await eventually(all_is_read, within_s=90, what="all is read")
        for topic in (through, *routed):
            assert_same_records(await read_topic(source, topic), await read_topic(target, remote_of[topic]))
        await running.drain()
    made = await list_topics(target) - before
    in_all = {topic: await arrived(target, remote) for topic, remote in remote_of.items()}

    assert by_java == {topic: 0 if topic in dropped else _COUNT for topic in remote_of}
    assert in_all == {topic: 2 * count for topic, count in by_java.items()}
    assert [topic for topic in made if prefix in topic and not topic.startswith("mm2-")] == []
    assert [await arrived(target, f"{alias}.{topic}") for topic in routed] == [0, 0, 0]
    assert not running.events.of(ResumeUnproven)
    assert {view.source.topic: view.remote_topic for view in running.runner.view().partitions} == remote_of


async def _skipped(settings: FlowSettings, work_dir: Path) -> TopicSkipped:
    """Run a flow until it has started; return what it says of the topic that it does not mirror."""
    async with running_flow(settings, work_dir) as running:
        (skipped,) = await running.told(TopicSkipped)
        await running.told(FlowStarted)
        (missing,) = running.runner.view().missing_topics
        await running.drain()
    assert missing.is_refused
    assert missing.failure is not None
    assert missing.failure.message == skipped.reason
    return skipped


async def _forget_ids(target: str, alias: str, *more: tuple[str, bytes]) -> None:
    """Write the positions again as for brokers that give topics no ids, with *more* headers."""
    topic, forgotten = f"mm2-offsets.{alias}.internal", {REMOTE_TOPIC_ID_HEADER, REMOTE_TOPIC_HEADER}
    stored = await read_topic(target, topic)
    written: list[list[NewRecord]] = [[] for _ in range(max(stored) + 1)]
    for partition, records in stored.items():
        for record in records:
            headers = tuple(header for header in record.headers if header[0] not in forgotten)
            if (record.key or b"").startswith(b'["MirrorSourceConnector"'):
                written[partition].append(NewRecord(record.key, record.value, (*headers, *more), record.timestamp_ms))
    await produce(target, topic, written)


@pytest.mark.parametrize(
    "case",
    [
        ("the name of before", "id"),
        ("all of it again", "id"),
        ("only what comes", "id"),
        ("the name of before", "name"),
        ("only what comes", "nothing"),
    ],
    ids=", by ".join,
)
async def test_a_topic_that_a_router_names_differently_stops(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, case: tuple[str, str]
) -> None:
    """
    A mirror has copied a topic; then a router gives its remote topic another name, as an upgrade did.

    It is told with both names, at each start, and the new remote topic is not even created. Each way out that the hint
    names leads on. So it is where positions have the remote topic's name instead of its id, as with brokers from before
    2.8, or, by an earlier version, neither.
    """
    way, kept = case
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, f"R{prefix[-6:]}"
    old, new = f"{alias}.{prefix}", f"{prefix}-new"
    keys = {"topics": prefix, **_QUIET}
    await create_topic(source, prefix)
    await produce(source, prefix, [plain_records(_COUNT)])
    async with running_flow(flow_settings(source, target, alias=alias, **keys), tmp_path) as running:
        await await_arrived(target, old, _COUNT)
        await running.drain()
    if kept != "id":
        await _forget_ids(target, alias, *([(REMOTE_TOPIC_HEADER, old.encode())] if kept == "name" else []))
    routed = flow_settings(source, target, alias=alias, **keys, **_router(alias, ".*", new))
    skipped = [await _skipped(routed, tmp_path) for _ in range(2)]
    topics = await list_topics(target)
    await produce(source, prefix, [plain_records(_COUNT, start=_COUNT)])
    offsets = ConnectorOffsets(routed, clock=SystemClock(), events=EventLog(SystemClock()))
    partition = {"cluster": alias, "partition": 0, "topic": prefix}
    settings, into, count = routed, new, 2 * _COUNT
    match way:
        case "the name of before":
            settings, into = flow_settings(source, target, alias=alias, **keys, **_router(alias, ".*", old)), old
        case "all of it again":
            await offsets.alter(SOURCE, [ConnectorOffset(partition, None)], by="test")
        case _:
            await offsets.alter(SOURCE, [ConnectorOffset(partition, {"offset": _COUNT - 1})], by="test")
            count = _COUNT
    async with running_flow(settings, tmp_path) as running:
        await await_arrived(target, into, count)
        await eventually(lambda: running.runner.view().missing_topics == (), within_s=20, what="nothing is missing")
        await running.drain()

    told = f"was copied to {old}, and would go to {new} now"
    if kept == "nothing":
        told = "was copied, but its positions do not say where to"
        told += f"; the target has {old}, and not {new}, where it would go now"
    assert {it.reason for it in skipped} == {f"topic {prefix} {told}"}
    assert new not in topics
    assert await arrived(target, into) == count
    assert await arrived(target, old) == (2 * _COUNT if into == old else _COUNT)
