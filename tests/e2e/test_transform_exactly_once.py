"""Topics with a transform in exactly-once mode: whatever is killed, a consumer of committed records sees each once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.checkpoint import Checkpoint
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import LATEST
from tests.support.checkpointing import checkpoints_in
from tests.support.daemon import Daemon, daemon, spark_workers
from tests.support.eventually import eventually
from tests.support.flow_rest import SOURCE, flow_rest, offset_body
from tests.support.groups import commit_plainly
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce
from tests.support.reading import read_numbers, read_topic
from tests.support.records import MIDDLE_MS, NewRecord, Record
from tests.support.soaking import rounds
from tests.support.topics import await_stable, create_topic


_CONNECT = "org.apache.kafka.connect.transforms"
_COUNT = 4_000
_FEW = 2_000
_BAD = 1_000
#: Spark and its workers come up first, each time.
_LONG_S = 200.0
#: A transaction is open for longer.
_LOOK_EVERY_S = 0.005


def _exactly_once(source: KafkaCluster, target: KafkaCluster, alias: str, **keys: object) -> str:
    return mm2_properties(
        source.bootstrap_servers,
        target.bootstrap_servers,
        aliases=(alias, "B"),
        **{
            "B.exactly.once.source.support": "enabled",
            f"{alias}->B.exactly.once.support": "required",
            f"{alias}.consumer.isolation.level": "read_committed",
            "copy.epoch.ms": 1000,
            "emit.checkpoints.interval.seconds": 1,
            **keys,
        },
    )


def _inserting(alias: str) -> dict[str, object]:
    """Return a chain of Connect's that changes every record."""
    return {
        f"{alias}->B.transforms": "mark",
        f"{alias}->B.transforms.mark.type": f"{_CONNECT}.InsertHeader",
        f"{alias}->B.transforms.mark.header": "seen",
        f"{alias}->B.transforms.mark.value.literal": "yes",
    }


async def _open_records(target: Cluster, remote: str) -> int:
    """Return how many offsets of a remote topic belong to a transaction that is open."""
    places = [TopicPartition(remote, number) for number in (0, 1)]
    ends = await target.list_offsets(places, LATEST)
    stable = await target.list_offsets(places, LATEST, reads_committed=True)  # asked last: it would have passed them
    return sum(max(0, int(str(ends[it])) - int(str(stable[it]))) for it in places)


async def _kill_inside_a_transaction(running: Daemon, target: Cluster, remote: str) -> bool:
    """Kill the daemon while records are written and not committed; return whether they have stayed so."""

    async def is_open() -> bool:
        return await _open_records(target, remote) > 0

    await eventually(is_open, within_s=_LONG_S, what="a transaction is open", every_s=_LOOK_EVERY_S)
    await running.kill()
    await eventually(lambda: not running.orphans(), within_s=60, what="all that it had started has ended")
    return await is_open()


def _by_sql_and_steps(primary: KafkaCluster, backup: KafkaCluster, by_sql: str, by_steps: str) -> str:
    """Return a file with a flow whose topic a statement transforms, and one with a chain of Connect's."""
    # Partition 1 takes longer than partition 0, whose records wait in an open transaction meanwhile.
    slow = "IF(partition = 1 AND offset % 10 = 0, IF(reflect('java.lang.Thread', 'sleep', 25L) = 'null', '', 'x'), '')"
    value = f"concat(substring(CAST(value AS STRING), 1, 12), {slow}) AS value"
    return _exactly_once(
        primary,
        backup,
        "TX",
        **{
            "clusters": "TX, TY, B",
            "TY.bootstrap.servers": primary.bootstrap_servers,
            "TY.consumer.isolation.level": "read_committed",
            "TX->B.topics": by_sql,
            "TX->B.transform.sql": f"SELECT * EXCEPT (value), {value} FROM records WHERE offset % 10 != 3",
            "TY->B.enabled": "true",
            "TY->B.topics": by_steps,
            **_inserting("TY"),
        },
    )


@pytest.mark.soak
async def test_kills_neither_lose_nor_repeat_a_record(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    The daemon is killed in the middle of a stream, once or more inside an open transaction, its workers once.

    A statement works on one topic, a chain of Connect's on another. Each record is there once, in order; groups are
    never translated to what they have not read.
    """
    by_sql, by_steps = f"{prefix}-sql", f"{prefix}-steps"
    properties = _by_sql_and_steps(primary, backup, by_sql, by_steps)
    kinds = {f"TX.{by_sql}": by_sql, f"TY.{by_steps}": by_steps}
    for topic in kinds.values():
        await create_topic(primary.bootstrap_servers, topic, partitions=2)
    reported: list[object] = []
    were_open: list[bool] = []
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    async with (
        Cluster(ClusterEndpoint("B", (target,)), SystemClock()) as looking,
        numbered_stream(source, by_sql, count=_COUNT, partitions=2, rate=200, open_ended=True) as one,
        numbered_stream(source, by_steps, count=_COUNT, partitions=2, rate=200, open_ended=True) as other,
    ):
        async with daemon(tmp_path, properties) as running:
            for remote in kinds:
                await await_arrived(target, remote, one.sent * 8 // 10, within_s=_LONG_S)
            for worker in spark_workers(running.pid):
                with suppress(ProcessLookupError):  # Spark ends some once one is gone
                    os.kill(worker, signal.SIGKILL)
            await await_arrived(target, f"TX.{by_sql}", one.sent, within_s=_LONG_S)
            await commit_plainly(source, f"{prefix}-early", {TopicPartition(by_sql, 0): one.sent // 4 + 3})
            await _checkpointed(backup, f"{prefix}-early")
            were_open.append(await _kill_inside_a_transaction(running, looking, f"TX.{by_sql}"))
            reported += running.events("resume_unproven")
        while len(were_open) < rounds(1, soak=3) or not any(were_open):
            async with daemon(tmp_path, properties) as running:
                # Spark takes long to come up: the next kill comes in the midst of that.
                await await_arrived(target, f"TY.{by_steps}", other.sent, within_s=_LONG_S)
                were_open.append(await _kill_inside_a_transaction(running, looking, f"TY.{by_steps}"))
                reported += running.events("resume_unproven")
        async with daemon(tmp_path, properties) as running:
            counts = {by_sql: await one.done(), by_steps: await other.done()}
            await commit_plainly(source, f"{prefix}-late", {TopicPartition(by_sql, 0): counts[by_sql] // 2 - 100})
            for topic, count in counts.items():
                flow = "TX->B" if topic == by_sql else "TY->B"
                await running.wait_for_positions(topic, flow, [(count + 1) // 2, count // 2], within_s=_LONG_S)
            for group in ("early", "late"):
                await _assert_never_ahead(primary, backup, f"{prefix}-{group}", by_sql, f"TX.{by_sql}")
            assert await running.sigterm() == 0
            reported += running.events("resume_unproven")

    assert reported == []
    sent = await read_numbers(source, by_sql)
    kept = {partition: [n for at, n in enumerate(numbers) if at % 10 != 3] for partition, numbers in sent.items()}
    for remote in (f"TX.{by_sql}", f"TY.{by_steps}"):
        await await_stable(target, remote)
    assert await read_numbers(target, f"TX.{by_sql}", reads_committed=True) == kept
    assert await read_numbers(target, f"TY.{by_steps}", reads_committed=True) == await read_numbers(source, by_steps)


async def _checkpointed(backup: KafkaCluster, group: str) -> list[Checkpoint]:
    """Wait until a group has a checkpoint behind the beginning; return all of them."""
    found: list[Checkpoint] = []

    async def is_there() -> bool:
        found[:] = await checkpoints_in(backup.bootstrap_servers, "TX.checkpoints.internal", group)
        return any(it.downstream for it in found)

    await eventually(is_there, within_s=_LONG_S, what=f"checkpoints of {group}")
    return found


async def _assert_never_ahead(primary: KafkaCluster, backup: KafkaCluster, group: str, topic: str, remote: str) -> None:
    """Compare what lies before each of the group's checkpoints of partition 0 at both sides."""
    checkpoints = await _checkpointed(backup, group)
    numbers = (await read_numbers(primary.bootstrap_servers, topic))[0]
    records = (await read_topic(backup.bootstrap_servers, remote, reads_committed=True))[0]
    for checkpoint in checkpoints:
        passed = [int((it.value or b"")[:12]) for it in records if it.offset < checkpoint.downstream]
        # One that was written before the first micro-batch was accounted for stands at the beginning.
        assert not passed or passed[-1] < numbers[checkpoint.upstream]
    assert passed


async def test_a_record_that_fails_is_told_once_and_repeats_nothing(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    One flow leaves it out, and has it in its dead letters once; another stops before it.

    There an operator skips it by altering the offset: what follows is there once, too.
    """
    dead = f"{prefix}-dead"
    await create_topic(primary.bootstrap_servers, prefix, partitions=1)
    records = [
        NewRecord(None, b"no json" if at == _BAD else json.dumps({"n": at}).encode(), (), MIDDLE_MS + at)
        for at in range(_FEW)
    ]
    await produce(primary.bootstrap_servers, prefix, [records])
    fails = f"IF(offset = {_BAD}, CAST(raise_error('no good') AS BINARY), value) AS value"
    properties = _exactly_once(
        primary,
        backup,
        "TN",
        **{
            "clusters": "TN, TA, B",
            "TA.bootstrap.servers": primary.bootstrap_servers,
            "TA.consumer.isolation.level": "read_committed",
            "TN->B.topics": prefix,
            "TN->B.transforms": "mask",
            "TN->B.transforms.mask.type": f"{_CONNECT}.MaskField$Value",
            "TN->B.transforms.mask.fields": "x",
            "TA->B.enabled": "true",
            "TA->B.topics": prefix,
            "TA->B.transform.sql": f"SELECT * EXCEPT (value), {fails} FROM records",
            "TA->B.errors.tolerance": "all",
            "TA->B.errors.deadletterqueue.topic.name": dead,
            "TA->B.errors.deadletterqueue.topic.replication.factor": "1",
        },
    )
    async with daemon(tmp_path, properties) as running:
        stopped = await running.wait_for_event("partition_stopped", within_s=_LONG_S, flow="TN->B", topic=prefix)
        await running.wait_for_event("record_left_out", within_s=_LONG_S, flow="TA->B", offset=_BAD)
        await running.wait_for_positions(prefix, "TA->B", [_FEW], within_s=_LONG_S)
        await running.wait_for_positions(prefix, "TN->B", [_BAD], within_s=_LONG_S)
        before = await _committed(backup, f"TN.{prefix}")
        await _step_over(running, "TN", prefix, _BAD)
        await running.wait_for_positions(prefix, "TN->B", [_FEW], within_s=_LONG_S)
        assert await running.sigterm() == 0
        left_out = [event["offset"] for event in running.events("record_left_out")]

    stops = await _committed(backup, f"TN.{prefix}")
    passes = await _committed(backup, f"TA.{prefix}")
    letters = await _committed(backup, dead)
    assert stopped["offset"] == _BAD
    assert left_out == [_BAD]
    others = [at for at in range(_FEW) if at != _BAD]
    assert [json.loads(it.value or b"")["n"] for it in before] == others[:_BAD]
    assert [json.loads(it.value or b"")["n"] for it in stops] == others
    assert [json.loads(it.value or b"")["n"] for it in passes] == others
    assert [it.value for it in letters] == [b"no json"]


async def _committed(backup: KafkaCluster, topic: str) -> Sequence[Record]:
    """Return what lies in partition 0, once the last transaction's markers are written."""
    await await_stable(backup.bootstrap_servers, topic)
    return (await read_topic(backup.bootstrap_servers, topic, reads_committed=True))[0]


async def _step_over(running: Daemon, alias: str, topic: str, offset: int) -> None:
    """Have a flow go on after a record: stop it, alter its offset, and resume it."""
    rest = await flow_rest(running, f"{alias}->B")
    await rest.ask("PUT", f"{SOURCE}/stop")
    await rest.state("STOPPED")
    await rest.ask("PATCH", f"{SOURCE}/offsets", offset_body(alias, topic, offset))
    await rest.ask("PUT", f"{SOURCE}/resume")
