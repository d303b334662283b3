"""Transactions that a producer leaves open, at the source or the target: the flow reports the wait, then goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from mm2py.connectors.source import stall_watch
from mm2py.core.source import stalls
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.state import PartitionStage, PartitionView
from mm2py.telemetry.events import PartitionsGoOn, PartitionsHeldUp
from tests.support.eventually import eventually
from tests.support.flows import RunningFlow, flow_settings, running_flow
from tests.support.producing import produce, produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.records import plain_records
from tests.support.topics import create_topic


async def leave_open(
    bootstrap: str, topic: str, partitions: Iterable[int], *, transactional_id: str, timeout_ms: int = 600_000
) -> None:
    """Write a record to each of *partitions* in a transaction, and vanish without a word."""
    doomed = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )
    await doomed.start()
    await doomed.begin_transaction()
    await asyncio.gather(*[await doomed.send(topic, b"never to be seen", partition=number) for number in partitions])
    # Its own `stop` would abort the transaction.
    doomed._sender._sender_task.cancel()
    await doomed.client.close()
    doomed._closed = True


async def end_open(bootstrap: str, transactional_id: str) -> None:
    """Abort what a producer of that id left open, by taking the id over."""
    heir = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
    await heir.start()
    await heir.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocked partitions reported within seconds."""
    monkeypatch.setattr(stalls, "TRANSACTION_S", 1.0)
    monkeypatch.setattr(stalls, "INTERRUPTED_S", 1.0)
    monkeypatch.setattr(stall_watch, "_LOOK_EVERY_S", 0.2)


async def positions(running: RunningFlow, *wanted: int) -> tuple[PartitionView, ...]:
    """Wait until the partitions are mirrored up to these upstream offsets; return their views."""

    def there() -> tuple[PartitionView, ...]:
        views = running.runner.view().partitions
        assert tuple(it.position for it in views) == wanted, views
        return views

    return await eventually(there, within_s=30, what=f"positions are {wanted}")


async def test_a_transaction_that_stays_open_at_the_source_is_told(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A producer dies inside a transaction; what is written after it waits, over a restart of the mirror.

    The other partition is copied. Lag counts what waits, the view says why at once, an event once, and once that it is
    over. In the end committed records are there, each once.
    """
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    keys = {"HT->B.topics": prefix, "HT.consumer.isolation.level": "read_committed"}
    settings = flow_settings(source, target, alias="HT", **keys)
    await create_topic(source, prefix, partitions=2)
    await produce(source, prefix, [list(plain_records(100))] * 2)
    async with running_flow(settings, tmp_path) as running:
        await positions(running, 100, 100)
        await leave_open(source, prefix, [0], transactional_id=prefix)
        await produce(source, prefix, [list(plain_records(50, start=100))] * 2)
        await positions(running, 100, 150)
        (told,) = await eventually(lambda: running.events.of(PartitionsHeldUp), within_s=20, what="it is told")
        await eventually(lambda: running.runner.view().partitions[0].lag == 51, within_s=20, what="lag counts it")
        waiting, copied = running.runner.view().partitions
        await running.crash()
    async with running_flow(settings, tmp_path) as running:
        await eventually(lambda: running.events.of(PartitionsHeldUp), within_s=20, what="it is told again")
        await end_open(source, prefix)
        await positions(running, 152, 150)
        (over,) = await eventually(lambda: running.events.of(PartitionsGoOn), within_s=20, what="its end is told")
        await running.drain()

    assert (told.partitions, told.count) == ((f"{prefix}-0",), 1)
    assert "still open at the source" in told.message
    assert "offset 100" in told.message
    assert "kafka-transactions.sh" in told.hint
    assert (waiting.stage, waiting.lag, copied.lag) == (PartitionStage.COPYING, 51, 0)
    assert waiting.failure is not None
    assert waiting.failure.message == told.message
    assert copied.failure is None
    assert over.partitions == told.partitions
    assert await read_numbers(target, f"HT.{prefix}") == await read_numbers(source, prefix, reads_committed=True)


async def test_a_resume_waits_for_a_transaction_at_the_target_and_says_so(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Another producer's transaction is open in a remote topic when the mirror is started again.

    The topic's other partition goes on at once; this one is reported as blocked, with a hint, and goes on by itself.
    """
    source, target, remote = primary.bootstrap_servers, backup.bootstrap_servers, f"HR.{prefix}"
    settings = flow_settings(source, target, alias="HR", **{"HR->B.topics": prefix})
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=200, partitions=2)
    async with running_flow(settings, tmp_path) as running:
        await positions(running, 100, 100)
        await running.drain()
    await leave_open(target, remote, [0], transactional_id=prefix)
    await produce_numbers(source, prefix, count=100, partitions=2)
    async with running_flow(settings, tmp_path) as running:
        await positions(running, 100, 150)
        (told,) = await eventually(lambda: running.events.of(PartitionsHeldUp), within_s=20, what="it is told")
        await end_open(target, prefix)
        await positions(running, 150, 150)
        await eventually(lambda: running.events.of(PartitionsGoOn), within_s=20, what="its end is told")
        await running.drain()
    found = await read_topic(target, remote, reads_committed=True)

    assert told.partitions == (f"{prefix}-0",)
    assert f"still open holds {remote}-0" in told.message
    assert "kafka-transactions.sh" in told.hint
    assert {number: len(records) for number, records in found.items()} == {0: 150, 1: 150}
