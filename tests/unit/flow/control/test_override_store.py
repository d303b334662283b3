"""The overrides of a flow, stored at brokers that are made up."""

from __future__ import annotations

from functools import partial

import attrs
import pytest

from mm2py.core.control import overrides as verbs
from mm2py.flow.control import override_store
from mm2py.flow.control.override_store import OverrideStore
from mm2py.model.overrides import NO_OVERRIDES
from mm2py.model.stored_overrides import NOTHING_STORED
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FakeBrokers, topics_with
from tests.support.flow_rig import SETTINGS


@pytest.mark.parametrize("start", [0, 1], ids=["a disk was lost", "an operator deleted them"])
async def test_overrides_whose_topic_lost_all_records_are_kept_again(
    monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """
    The only broker that holds the topic lost its disk, and makes it again, empty and under its id.

    What is paused is still paused for the next daemon. Records that were deleted leave the log's end where it was.
    """
    brokers = FakeBrokers()
    store = OverrideStore(attrs.evolve(SETTINGS, target=brokers.endpoint), LoopClock())
    brokers.topics = topics_with(store.topic, [0])
    monkeypatch.setattr(override_store, "Cluster", partial(Cluster, opener=brokers.open))
    kept = await store.write(verbs.pause_topic(NO_OVERRIDES, "orders"), before=NOTHING_STORED, by="ann")
    topic_id, _ = await store.refill(kept, None)
    partition = brokers.topics[store.topic].partitions[0]
    partition.batches[:], partition.start, partition.end = [], start, start
    _, refilled = await store.refill(kept, topic_id)

    assert (await store.read(), refilled is not None) == ((kept, True) if start == 0 else (NOTHING_STORED, False))
