"""
What all stores in a topic of the mirror's own promise when that topic is damaged, or another node writes there.

What counts is what a node reads that starts after.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from mm2py.connectors.control_writers import NotOpenError
from mm2py.errors import Mm2Error, OverrideConflictError
from mm2py.telemetry.events import InternalTopicExpires
from mm2py.wire.fenced_writer import TakenOverError
from tests.support.fake_brokers import CREATE_TOPICS, empty, says
from tests.support.stores import (
    FENCED,
    KINDS,
    NOTICES,
    ConnectorsStore,
    OverridesStore,
    StatusesStore,
    Store,
    replace,
    stores,
)


_REFUSED: Final = 29


async def holding(store: Store) -> None:
    """Have a store hold two things."""
    await store.begin()
    await store.put("a")
    await store.put("b")


def expected_refills(kind: type[Store]) -> list[int]:
    """Return what is reported of a topic of two things that vanished once; statuses come again every few seconds."""
    return {StatusesStore: [], OverridesStore: [1]}.get(kind, [2])


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "created again"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_vanished_topic_held_is_written_again(
    monkeypatch: pytest.MonkeyPatch, kind: type[Store], *, is_replaced: bool
) -> None:
    """It is reported once, though nothing else is to be written."""
    async with stores(kind, monkeypatch) as (store,):
        await holding(store)
        await store.look()
        del store.brokers.topics[store.topic]
        if is_replaced:
            replace(store)
        for _ in range(2):
            await store.look()

        assert await store.held() == {"a", "b"}
        assert store.refills == expected_refills(kind)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_written_to_a_vanished_topic_is_not_alone(
    monkeypatch: pytest.MonkeyPatch, kind: type[Store]
) -> None:
    """The next change comes before a look does: what was there is written with it, and nothing older comes after."""
    async with stores(kind, monkeypatch) as (store,):
        await holding(store)
        del store.brokers.topics[store.topic]
        await store.put("c")

        assert await store.held() == {"a", "b", "c"}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_that_lost_all_its_records(monkeypatch: pytest.MonkeyPatch, kind: type[Store]) -> None:
    """
    Its only broker lost its disk: the topic is empty, and has its id still.

    What operators want is written again at once, statuses are anyway. The others notice nothing, and write what
    changes.
    """
    async with stores(kind, monkeypatch) as (store,):
        await holding(store)
        await store.look()
        for partition in store.brokers.topics[store.topic].partitions:
            empty(partition)
        await store.look()
        is_there = kind in {*NOTICES, StatusesStore}

        assert await store.held() == ({"a", "b"} if is_there else set())
        assert store.refills == (expected_refills(kind) if kind in NOTICES else [])

        await store.put("c")

        assert await store.held() == ({"a", "b", "c"} if is_there else {"c"})


@pytest.mark.parametrize("kind", KINDS)
async def test_a_vanished_topic_that_may_not_be_created(monkeypatch: pytest.MonkeyPatch, kind: type[Store]) -> None:
    """The error names it. Once an operator has created the topic, it holds all again."""
    async with stores(kind, monkeypatch) as (store,):
        await holding(store)
        await store.look()
        del store.brokers.topics[store.topic]
        store.brokers.script(CREATE_TOPICS, *[says(0, [(store.topic, _REFUSED, None)])] * 1_000)
        with pytest.raises(Mm2Error) as refused:
            await store.put("c")
        replace(store)
        await store.look()

        assert store.topic in f"{refused.value} {refused.value.hint}"
        assert await store.held() >= {"a", "b"}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_topic_whose_records_would_expire(monkeypatch: pytest.MonkeyPatch, kind: type[Store]) -> None:
    """It is reported once at each start; as long as it holds no overrides, none of them expires."""
    async with stores(kind, monkeypatch) as (store,):
        replace(store)
        store.brokers.topics[store.topic].configs["cleanup.policy"] = "delete"
        for name in "ab":
            await store.begin()
            await store.put(name)
            await store.look()
        found = [(it.topic, it.policy) for it in store.events.of(InternalTopicExpires)]

        assert found == [(store.topic, "delete")] * (1 if kind is OverridesStore else 2)


@pytest.mark.parametrize("is_gone", [False, True], ids=["a change", "a refill"])
@pytest.mark.parametrize("kind", FENCED)
async def test_a_writer_that_was_replaced_writes_nothing_more(
    monkeypatch: pytest.MonkeyPatch, kind: type[Store], *, is_gone: bool
) -> None:
    """Another node has opened its transactional id: brokers refuse what it changes, and to fill a vanished topic."""
    async with stores(kind, monkeypatch, 2) as (one, other):
        await holding(one)
        await other.begin()
        await other.put("c")
        if is_gone:
            del one.brokers.topics[one.topic]
        with pytest.raises((TakenOverError, NotOpenError)):
            await (one.look() if is_gone else one.put("d"))

        assert await other.held() == (set() if is_gone else {"a", "b", "c"})


async def test_of_two_changes_of_the_same_overrides_the_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both began with the same revision; the other one is told."""
    async with stores(OverridesStore, monkeypatch, 2) as (one, other):
        await holding(one)
        await other.begin()
        await other.put("c")
        with pytest.raises(OverrideConflictError):
            await one.put("d")

        assert await other.held() == {"a", "b", "c"}


@pytest.mark.parametrize("kind", [ConnectorsStore, StatusesStore])
async def test_what_two_nodes_write_at_once_is_all_there(monkeypatch: pytest.MonkeyPatch, kind: type[Store]) -> None:
    """A worker decides again if another one was faster; a node reports of itself alone."""
    async with stores(kind, monkeypatch, 2) as (one, other):
        await one.begin()
        await other.begin()
        async with asyncio.TaskGroup() as both:
            both.create_task(one.put("a"))
            both.create_task(other.put("b"))

        assert await one.held() == {"a", "b"}
