"""Overrides on real clusters: stored before they are applied, read before a flow starts, never overwritten unseen."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mm2py.clock import SystemClock
from mm2py.config.settings import load_settings
from mm2py.core.herder import overrides as verbs
from mm2py.core.herder.overrides import SOURCE
from mm2py.devkit.broker import KafkaCluster
from mm2py.errors import OverrideConflictError, OverridesNotStoredError
from mm2py.herder.desired_connectors import DesiredConnectors
from mm2py.herder.overrides import OverrideControl
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, RateLimit, Wanted
from mm2py.model.herder.stored_overrides import NOTHING_STORED, overrides_key
from mm2py.model.state import FlowState
from mm2py.storage.override_store import OverrideStore
from mm2py.telemetry.events import (
    FlowDrained,
    InternalTopicExpires,
    InternalTopicRecreated,
    LiveSettingsRejected,
    SettingsReloaded,
    StepFailed,
)
from mm2py.telemetry.journal import EventLog
from tests.support.brokers import MakeCluster
from tests.support.damage import vanish
from tests.support.eventually import eventually, scaled
from tests.support.flows import flow_settings
from tests.support.mirrored import assert_mirrored
from tests.support.mm2_file import mm2_properties
from tests.support.nodes import running_node
from tests.support.producing import produce, produce_numbers
from tests.support.reading import read_topic
from tests.support.records import MIDDLE_MS, NewRecord
from tests.support.topics import create_topic, list_topics, topic_configs


_COUNT = 400


def _file(primary: KafkaCluster, backup: KafkaCluster, alias: str, **keys: Any) -> str:
    settings = {
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",
        "listeners": "",
        "copy.epoch.ms": 1000,
        "copy.drain.ms": 2000,
        **keys,
    }
    return mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=(alias, "B"), **settings)


async def _topic(primary: KafkaCluster, topic: str, *, count: int = _COUNT, partitions: int = 1) -> None:
    await create_topic(primary.bootstrap_servers, topic, partitions=partitions)
    await produce_numbers(primary.bootstrap_servers, topic, count=count, partitions=partitions)


async def _write(cluster: KafkaCluster, topic: str, key: bytes, value: bytes | None) -> None:
    await produce(cluster.bootstrap_servers, topic, [[NewRecord(key, value, (), MIDDLE_MS)]])


async def test_a_flow_without_overrides_creates_no_topic(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """
    Reading creates nothing; the first override creates a compacted topic of one partition, and is read again.

    The topic is read each half minute, and overrides may change each minute: brokers compact only full segments.
    """
    settings = flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, alias=prefix, topics=prefix)
    store = OverrideStore(settings, SystemClock())
    nothing = await store.read()
    is_there_before = store.topic in await list_topics(backup.bootstrap_servers)
    overrides = verbs.set_limit(verbs.pause_topic(NO_OVERRIDES, "orders"), RateLimit(bytes_per_s=1e6))

    kept = await store.write(overrides, before=nothing, by="alice")

    assert (nothing, is_there_before) == (NOTHING_STORED, False)
    assert await store.read() == kept
    assert (kept.overrides, kept.revision, kept.by) == (overrides, 1, "alice")
    assert set((await read_topic(backup.bootstrap_servers, store.topic)).keys()) == {0}
    configs = await topic_configs(backup.bootstrap_servers, store.topic)
    assert (configs["cleanup.policy"], configs["segment.bytes"]) == ("compact", "1048576")


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
async def test_overrides_whose_topic_vanished_are_kept_again(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, *, is_replaced: bool
) -> None:
    """What is paused is still paused for the next daemon; a further override is added to it, without a conflict."""
    flow, clock = Flow(prefix, "B"), SystemClock()
    path = tmp_path / "mm2.properties"
    path.write_text(_file(primary, backup, prefix))
    events = EventLog(clock)
    desired = DesiredConnectors(load_settings(path), events=events)
    desired.learn(flow, NOTHING_STORED)
    control = OverrideControl(desired, lambda _: None, clock=clock, events=events)
    store = OverrideStore(desired.settings_of(flow), clock)
    await control.change(flow, lambda overrides: verbs.pause_topic(overrides, "one"))
    await control.refill(flow)
    await vanish(backup.bootstrap_servers, store.topic, is_replaced=is_replaced)
    await control.refill(flow)
    assert (await store.read()).overrides.topics == {"one"}
    await vanish(backup.bootstrap_servers, store.topic, is_replaced=is_replaced)
    await control.change(flow, lambda overrides: verbs.pause_topic(overrides, "two"))

    assert (await store.read()).overrides.topics == {"one", "two"}
    told = [(event.topic, event.records, bool(event.hint)) for event in events.of(InternalTopicRecreated)]
    assert told == [(store.topic, 1, is_replaced)] * 2


async def test_overrides_that_would_expire_are_reported(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Someone else created their topic, with Kafka's default policy: what is paused would run again some day."""
    clock = SystemClock()
    events = EventLog(clock)
    settings = flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, alias=prefix)
    store = OverrideStore(settings, clock)
    await create_topic(backup.bootstrap_servers, store.topic, configs={"cleanup.policy": "delete"})
    await store.read(events=events)
    told_of_none = events.of(InternalTopicExpires)
    await store.write(verbs.pause_topic(NO_OVERRIDES, "orders"), before=NOTHING_STORED, by="alice")
    await store.read(events=events)

    assert not told_of_none
    assert [(it.topic, it.policy) for it in events.of(InternalTopicExpires)] == [(store.topic, "delete")]


async def test_overrides_that_an_operator_removed_stay_removed(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A tombstone removes a flow's overrides; the check that refills a deleted topic does not bring them back."""
    flow, clock = Flow(prefix, "B"), SystemClock()
    path = tmp_path / "mm2.properties"
    path.write_text(_file(primary, backup, prefix))
    events = EventLog(clock)
    desired = DesiredConnectors(load_settings(path), events=events)
    desired.learn(flow, NOTHING_STORED)
    control = OverrideControl(desired, lambda _: None, clock=clock, events=events)
    store = OverrideStore(desired.settings_of(flow), clock)
    await control.change(flow, lambda overrides: verbs.pause_topic(overrides, "one"))
    await _write(backup, store.topic, overrides_key(flow), None)
    await control.refill(flow)

    assert await store.read() == NOTHING_STORED


async def test_too_many_replicas_are_told_with_their_setting(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """An override that cannot be stored is not applied, and the error names the setting to lower."""
    await _topic(primary, prefix)
    flow = Flow(prefix, "B")
    keys = {"topics": prefix, "config.storage.replication.factor": 3}
    async with running_node(_file(primary, backup, prefix, **keys), tmp_path) as running:
        await running.running(flow)
        with pytest.raises(OverridesNotStoredError, match=r"config\.storage\.replication\.factor 3 > 1"):
            await running.node.control.change_overrides(flow, lambda overrides: verbs.pause_topic(overrides, prefix))

        assert running.node.control.overrides(flow) == NO_OVERRIDES
        await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, f"{prefix}.{prefix}", _COUNT)


async def test_a_daemon_that_was_overtaken_is_told_so(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Of two daemons, the second to change overrides gets a conflict, takes over the stored ones, and may retry."""
    flow = Flow(prefix, "B")
    text = _file(primary, backup, prefix, topics=f"{prefix}-nothing")
    async with running_node(text, tmp_path, "one") as one:
        await one.running(flow)
        async with running_node(text, tmp_path, "two") as two:
            await two.until(flow, SOURCE, FlowState.STANDBY)
            left, right = (partial(verbs.pause_topic, topic=topic) for topic in ("left", "right"))
            await one.node.control.change_overrides(flow, left, by="alice")

            with pytest.raises(OverrideConflictError, match="by alice"):
                await two.node.control.change_overrides(flow, right)
            taken_over = two.node.control.overrides(flow)
            both = await two.node.control.change_overrides(flow, right)

    assert taken_over.topics == {"left"}
    assert both.topics == {"left", "right"}


async def test_of_two_writers_at_once_one_wins(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """Two stores write the same next revision: one wins and stays the newest of its key, the other gets a conflict."""
    settings = flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, alias=prefix, topics=prefix)
    stores = [OverrideStore(settings, SystemClock()) for _ in range(2)]
    before = await stores[0].write(NO_OVERRIDES, before=NOTHING_STORED, by="")
    names = ("left", "right")

    async def write(store: OverrideStore, topic: str) -> Overrides | OverrideConflictError:
        try:
            return (await store.write(Overrides(topics=frozenset({topic})), before=before, by=topic)).overrides
        except OverrideConflictError as error:
            return error

    outcomes = await asyncio.gather(*map(write, stores, names))

    (winner,) = [outcome for outcome in outcomes if isinstance(outcome, Overrides)]
    assert len([outcome for outcome in outcomes if isinstance(outcome, OverrideConflictError)]) == 1
    assert [(await store.read()).overrides for store in stores] == [winner, winner]
    last = (await read_topic(backup.bootstrap_servers, stores[0].topic))[0][-1]
    assert json.loads(last.value or b"")["by"] in winner.topics


@pytest.mark.parametrize(
    ("record", "cause"),
    [(b'{"version": 2}', "its version is 2"), (b"[" * 100_000, "it is nested too deep")],
    ids=["newer", "garbage"],
)
async def test_overrides_that_cannot_be_read_keep_the_flow_from_starting(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, *, record: bytes, cause: str
) -> None:
    """A flow whose overrides are unreadable waits, reports why, and starts once the record is gone."""
    flow = Flow(prefix, "B")
    await _topic(primary, prefix)
    topic = f"mm2-configs.{prefix}.internal"
    await create_topic(backup.bootstrap_servers, topic, configs={"cleanup.policy": "compact"})
    await _write(backup, topic, overrides_key(flow), record)
    async with running_node(_file(primary, backup, prefix, topics=prefix), tmp_path) as running:
        await running.until(flow, SOURCE, FlowState.FAILED)
        view = running.view(flow)
        with pytest.raises(OverridesNotStoredError, match="has not been read"):
            await running.node.control.change_overrides(flow, lambda overrides: verbs.pause_topic(overrides, "x"))
        is_copied = f"{prefix}.{prefix}" in await list_topics(backup.bootstrap_servers)

        await _write(backup, topic, overrides_key(flow), None)
        await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, f"{prefix}.{prefix}", _COUNT)

    assert not is_copied
    assert cause in view.last_error
    assert str(flow) in view.last_error
    (failed,) = running.events.of(StepFailed)
    assert failed.step == "read overrides"
    assert f"at offset 0 of {topic}" in failed.error
    assert "a record with this key and a null value" in failed.hint


async def test_settings_change_while_a_flow_runs(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    A put changes topics and the number of copy tasks within seconds, survives a crash, is listed and taken back.

    No record is lost or repeated on the way.
    """
    first, second = f"{prefix}-1", f"{prefix}-2"
    flow = Flow(prefix, "B")
    for topic in (first, second):
        await _topic(primary, topic, partitions=2)
    text = _file(primary, backup, prefix, topics=first)
    mirrored = partial(assert_mirrored, target=backup.bootstrap_servers, count=_COUNT)
    async with running_node(text, tmp_path) as running:
        await mirrored(primary.bootstrap_servers, first, remote_topic=f"{prefix}.{first}")
        put = {**running.node.control.connector_config(flow, SOURCE), "topics": f"{prefix}-.*", "tasks.max": "2"}
        await running.node.control.put_config(flow, SOURCE, put, by="alice")
        await mirrored(primary.bootstrap_servers, second, remote_topic=f"{prefix}.{second}")
        await running.crash()

    async with running_node(text, tmp_path) as running:
        await running.running(flow)
        await eventually(lambda: len(running.view(flow).tasks) == 2, within_s=20, what="two copy tasks")
        listed = {one.key: (one.value, one.in_file) for one in running.node.control.live_settings(flow, SOURCE)}
        shown = running.node.control.connector_config(flow, SOURCE)
        await running.node.control.revert_config(flow, SOURCE)
        await eventually(lambda: len(running.events.of(FlowDrained)) == 1, within_s=30, what="the flow restarts")
        await running.running(flow)
        await eventually(lambda: running.view(flow).topics == 1, within_s=20, what="one topic is left")
        await running.stop()

    assert listed == {"topics": (f"{prefix}-.*", first), "tasks.max": ("2", "1")}
    assert (shown["topics"], shown["tasks.max"]) == (f"{prefix}-.*", "2")
    assert running.node.control.connector_config(flow, SOURCE)["topics"] == first
    for topic in (first, second):
        await mirrored(primary.bootstrap_servers, topic, remote_topic=f"{prefix}.{topic}")


async def test_settings_stay_on_top_of_a_changed_file(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """A reload keeps what was put; if it no longer fits the file, that is reported and the flow goes on."""
    flow = Flow(prefix, "B")
    keys: dict[str, Any] = {"topics": prefix, "A.bootstrap.servers": primary.bootstrap_servers}
    text = _file(primary, backup, prefix, **keys)
    async with running_node(text, tmp_path) as running:
        await running.running(flow)
        await running.node.control.put_config(flow, SOURCE, {"topics": f"{prefix}-live"})
        await eventually(lambda: len(running.events.of(FlowDrained)) == 1, within_s=30, what="the flow restarts")
        await running.running(flow)

        running.file.write_text(text.replace("copy.epoch.ms = 1000", "copy.epoch.ms = 1100"))
        running.node.request_reload()
        await eventually(lambda: len(running.events.of(SettingsReloaded)) == 1, within_s=30, what="it is reloaded")
        await running.running(flow)
        after_one = {one.key: one.value for one in running.node.control.flow_settings(flow)}

        # Identical names in both directions: with the topics that were put they would feed each other.
        both_ways = {
            "replication.policy.class": "identity",
            f"B->{prefix}.enabled": "true",
            f"B->{prefix}.topics": f"{prefix}-live",
        }
        running.file.write_text(_file(primary, backup, prefix, **keys, **both_ways))
        running.node.request_reload()
        await eventually(lambda: len(running.events.of(SettingsReloaded)) == 2, within_s=30, what="it is reloaded")
        (refused,) = running.events.of(LiveSettingsRejected)
        state = running.view(flow).state

    assert (after_one["topics"], after_one["copy.epoch.ms"]) == (f"{prefix}-live", "1100")
    assert refused.is_running
    assert state is FlowState.RUNNING
    assert len(running.events.of(FlowDrained)) == 2


async def test_an_override_that_cannot_be_stored_is_not_applied(
    primary: KafkaCluster, make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """While the target is unavailable changes are refused within a minute; the flow goes on as it was."""
    target = make_cluster("target")
    flow = Flow(prefix, "B")
    async with running_node(_file(primary, target, prefix, topics=prefix), tmp_path) as running:
        await running.running(flow)
        await asyncio.to_thread(target.kill, 0)
        async with asyncio.timeout(scaled(60)):
            with pytest.raises(OverridesNotStoredError, match="cluster B"):
                await running.node.control.change_overrides(
                    flow, lambda overrides: verbs.want_connector(overrides, SOURCE, Wanted.PAUSED)
                )

        assert running.node.control.overrides(flow) == NO_OVERRIDES
        await running.crash()
