"""A worker's connectors in a real topic: followed, written, kept; and the positions that they bring with them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import pytest

from mm2py.clock import SystemClock
from mm2py.config.flow_settings import StorageSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.errors import ConnectorsNotStoredError, OverrideConflictError
from mm2py.flow.control.connector_store import ConnectorStore, Decide
from mm2py.flow.control.takeover import take_over_positions
from mm2py.model.connector_configs import KeyValue, RestartRequest, config_record, restart_record, state_record
from mm2py.model.flow import TopicPartition
from mm2py.model.overrides import Wanted
from mm2py.model.positions_topic import PositionsTopic
from mm2py.telemetry.events import Event
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.eventually import eventually
from tests.support.flows import flow_settings
from tests.support.topics import create_topic, delete_topic, topic_configs


_CONFIG = {"connector.class": "MirrorSourceConnector", "topics": "orders"}


@attrs.define
class _Following:
    """A store that follows its topic, and what it reported."""

    store: ConnectorStore
    changes: list[frozenset[str]] = attrs.field(factory=list)
    restarts: list[RestartRequest] = attrs.field(factory=list)
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
    restarts: list[RestartRequest] = []
    events: list[str] = []
    store = ConnectorStore(
        flow_settings(cluster.bootstrap_servers, cluster.bootstrap_servers).target,
        StorageSettings(topic, 1),
        f"connect-cluster-{topic}",
        clock=clock,
        events=EventLog(clock, lambda event: events.append(event.name)),
        jitter=random.random,
        on_change=changes.append,
        on_restart=restarts.append,
    )
    async with asyncio.TaskGroup() as tasks:
        follow = tasks.create_task(store.follow(), name="follow")
        await eventually(lambda: store.is_read, within_s=30, what="the topic was read")
        yield _Following(store, changes, restarts, events)
        follow.cancel()


async def test_every_worker_sees_what_one_wrote(backup: KafkaCluster, prefix: str) -> None:
    """The topic is created compacted; a write has been read back when it returns, and others read it soon after."""
    async with _following(backup, prefix) as one, _following(backup, prefix) as other:
        await one.store.change(_as_said(state_record("m", Wanted.PAUSED), config_record("m", _CONFIG)))
        written = dict(one.store.connectors)
        await eventually(lambda: other.store.connectors == written, within_s=30, what="the other worker has it")
        await other.store.change(_as_said(restart_record(RestartRequest("m", include_tasks=True, only_failed=False))))
        await eventually(lambda: one.restarts, within_s=30, what="the request arrives")
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


async def test_a_worker_that_cannot_write_says_so(backup: KafkaCluster, prefix: str) -> None:
    """Nothing is acknowledged that may not be in the topic."""
    async with _following(backup, prefix) as one:
        store = one.store
    with pytest.raises(ConnectorsNotStoredError):
        await store.change(_as_said(config_record("m", _CONFIG)))

    assert not store.connectors


_JAVA = (
    (b'["us-west",{"cluster":"A","partition":0,"topic":"orders"}]', b'{"offset":41}'),
    (b'["us-west",{"cluster":"A","partition":1,"topic":"orders"}]', b'{"offset":7}'),
    (b'["us-west",{"cluster":"A","partition":1,"topic":"orders"}]', None),
    (b'["other",{"cluster":"A","partition":2,"topic":"orders"}]', b'{"offset":1}'),
)
_MIRUS = (
    (b'["us-west",{"topic":"orders","partition":0}]', b'{"offset":42}'),
    (b'["us-west",{"topic":"orders","partition":1}]', b'{"offset":null}'),
    (b'["other",{"topic":"orders","partition":2}]', b'{"offset":1}'),
)


@pytest.mark.parametrize("is_mirus", [False, True], ids=["java", "mirus"])
async def test_positions_of_another_worker_are_taken_over_once(
    backup: KafkaCluster, prefix: str, *, is_mirus: bool
) -> None:
    """Those of this connector, at its first start; from then on the flow's own count."""
    target, clock = backup.bootstrap_servers, SystemClock()
    await create_topic(target, prefix, partitions=2)
    settings = flow_settings(target, target, **{"offset.storage.topic": prefix})
    reported: list[Event] = []

    async def taken_over() -> PositionsTopic:
        await take_over_positions(settings, "us-west", is_mirus=is_mirus, clock=clock, report=reported.append)
        found = PositionsTopic("A")
        async with Cluster(settings.target, clock) as cluster:
            for record in await TopicLog(cluster, prefix).read_all():
                found.take(record)
        return found

    async def write(*records: tuple[bytes, bytes | None]) -> None:
        async with Cluster(settings.target, clock) as cluster:
            await TopicLog(cluster, prefix).append([LogRecord(key, value) for key, value in records])

    await write(*(_MIRUS if is_mirus else _JAVA))
    first = await taken_over()
    await write(*((key, b'{"offset":99}') for key, _ in (_MIRUS if is_mirus else _JAVA)))
    second = await taken_over()

    assert {source: one.next_upstream for source, one in first.positions.items()} == {TopicPartition("orders", 0): 42}
    assert second.positions == first.positions
    assert [event.name for event in reported] == ["connector_positions_taken_over"]
