"""MirrorMaker's rule on offset syncs: the values that Java's OffsetSyncStoreTest asserts, and its invariants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mm2py.core.offsets.sync_store import SLOTS, SyncSlots
from mm2py.core.offsets.translation import Precision, Translated, Untranslated
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync


def sync(upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(TopicPartition("t", 0), upstream, downstream)


def fed(upstreams: Iterable[int], slots: SyncSlots | None = None) -> SyncSlots:
    for upstream in upstreams:
        one = sync(upstream, upstream)
        if slots is None:
            slots = SyncSlots(one)
        else:
            slots.add(one)
    assert slots is not None
    return slots


def points(slots: SyncSlots) -> list[int]:
    return [one.upstream for one in dict.fromkeys(reversed(slots._slots))]


def by_syncs(offset: int) -> Translated:
    return Translated(offset, Precision.OFFSET_SYNCS)


def test_offset_translation() -> None:
    """Past a sync only one more is known; before all of them nothing (testOffsetTranslation)."""
    slots = SyncSlots(sync(100, 200))

    assert slots.downstream(150) == by_syncs(201)
    slots.add(sync(150, 251))
    assert [slots.downstream(at) for at in (150, 5)] == [by_syncs(251), Untranslated.TOO_OLD]
    slots.add(sync(200, 10))
    assert slots.downstream(200) == by_syncs(10)
    slots.add(sync(20, 20))
    assert slots.downstream(20) == by_syncs(20)


def test_a_sync_of_a_remote_topic_that_is_gone_leads_nowhere() -> None:
    """
    The remote topic is created again while the source goes on.

    A group at 20 would be sent to 553 of the topic that is gone, and skip what is between 20 and the new one's end.
    """
    slots = SyncSlots(sync(5, 552))
    slots.add(sync(27, 27))

    assert [slots.downstream(at) for at in (20, 30)] == [Untranslated.TOO_OLD, by_syncs(28)]
    assert slots.upstream(600) == by_syncs(28)


def test_past_offset_translation() -> None:
    """After a single sync, older ones are kept further apart; a rewind forgets all (testPastOffsetTranslation)."""
    slots = fed([1000])
    fed(range(1010, 10_001, 10), slots)

    assert points(slots) == [1000, 4840, 6760, 8680, 9160, 9640, 9880, 9940, 9970, 9990, 10_000]
    slots.add(sync(1500, 11_000))
    assert points(slots) == [1500]


def test_past_offset_translation_without_initialization_read_to_end() -> None:
    """What was there at the start is kept as what comes (testPastOffsetTranslationWithoutInitializationReadToEnd)."""
    slots = fed(range(0, 1001, 10))
    assert points(slots) == [0, 480, 720, 840, 900, 960, 990, 1000]
    fed(range(1010, 10_001, 10), slots)

    assert points(slots) == [0, 3840, 7680, 8640, 9120, 9600, 9840, 9900, 9960, 9990, 10_000]


def test_a_group_far_behind_goes_back_far() -> None:
    """This is why runs are kept: a group in the middle of a million is sent back by two hundred thousand."""
    slots = fed(range(0, 1_000_001, 100))

    assert len(points(slots)) == 15
    assert slots.downstream(614_399) == by_syncs(409_601)


def assert_invariants(slots: SyncSlots) -> None:
    upstreams = [one.upstream for one in slots._slots]
    for i in range(SLOTS):
        for j in range(i + 1, SLOTS):
            if slots._slots[i] is slots._slots[j]:
                continue
            assert upstreams[i] <= upstreams[j] + 2**j - 2**i
            assert upstreams[i] >= upstreams[j] + 2 ** max(i - 2, 0)


@pytest.mark.parametrize("spacing", [1, 2, 7, 64, 1000])
def test_consistently_spaced_syncs(spacing: int) -> None:
    """The invariants hold however far apart syncs are (testConsistentlySpacedSyncs)."""
    slots = fed([0])
    for upstream in range(spacing, spacing * 400, spacing):
        slots.add(sync(upstream, upstream))
        if upstream % (spacing * 13) == 0:
            assert_invariants(slots)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80))
def test_randomly_spaced_syncs(spacings: Sequence[int]) -> None:
    """The invariants hold for any spacing, and no answer is ahead (testRandomlySpacedSyncs)."""
    slots, upstream = fed([0]), 0
    for spacing in spacings:
        upstream += spacing
        slots.add(sync(upstream, upstream))
    assert_invariants(slots)

    for at in range(0, upstream + 3, max(1, upstream // 50)):
        for answer in (slots.downstream(at), slots.upstream(at)):
            assert isinstance(answer, Translated)
            assert answer.offset <= at
