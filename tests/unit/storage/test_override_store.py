"""The overrides of a flow, stored at brokers that are made up."""

from __future__ import annotations

from functools import partial

import attrs
import pytest

from mm2py.config.worker import StorageSettings
from mm2py.core.herder import overrides as verbs
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import NO_OVERRIDES
from mm2py.model.herder.stored_overrides import NOTHING_STORED
from mm2py.storage import override_store
from mm2py.storage.override_store import NOT_SEEN, OverrideStore
from mm2py.telemetry.events import InternalTopicRecreated
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, empty, topics_with
from tests.support.flow_rig import SETTINGS, changed


@pytest.mark.parametrize("start", [0, 1], ids=["a disk was lost", "an operator deleted them"])
async def test_overrides_whose_topic_lost_all_records_are_kept_again(
    monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """
    The only broker that holds the topic lost its disk, and makes it again, empty and under its id.

    What is paused is still paused for the next daemon. Records that were deleted leave the log's end where it was.
    """
    brokers = FakeBrokers()
    store = OverrideStore(changed(SETTINGS, target=brokers.endpoint), LoopClock())
    brokers.topics = topics_with(store.topic, [0])
    monkeypatch.setattr(override_store, "Cluster", partial(Cluster, opener=brokers.open))
    kept = await store.write(verbs.pause_topic(NO_OVERRIDES, "orders"), before=NOTHING_STORED, by="ann")
    events = EventLog(LoopClock())
    seen = await store.refill(kept, NOT_SEEN, events)
    empty(brokers.topics[store.topic].partitions[0], start)
    await store.refill(kept, seen, events)
    count = len(events.of(InternalTopicRecreated))

    assert (await store.read(), count) == ((kept, 1) if start == 0 else (NOTHING_STORED, 0))


async def test_overrides_of_each_flow_are_kept_again_in_a_topic_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic has those of several flows, and a worker's connectors: what is kept again first is not all of it."""
    brokers = FakeBrokers()
    brokers.topics = topics_with("configs", [0])
    settings = changed(SETTINGS, target=brokers.endpoint, config_storage=StorageSettings("configs"))
    stores = [OverrideStore(attrs.evolve(settings, flow=Flow(it, "B")), LoopClock()) for it in ("A", "C")]
    monkeypatch.setattr(override_store, "Cluster", partial(Cluster, opener=brokers.open))
    pause = verbs.pause_topic(NO_OVERRIDES, "orders")
    kept = [await store.write(pause, before=NOTHING_STORED, by="ann") for store in stores]
    events = EventLog(LoopClock())
    seen = [await store.refill(one, NOT_SEEN, events) for store, one in zip(stores, kept, strict=True)]
    empty(brokers.topics["configs"].partitions[0])
    for _ in range(2):  # the second time all are there
        seen = [await store.refill(*it, events) for store, *it in zip(stores, kept, seen, strict=True)]

    assert [await store.read() for store in stores] == kept
    assert len(events.of(InternalTopicRecreated)) == 2
