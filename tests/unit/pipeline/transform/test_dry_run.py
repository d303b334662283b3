"""A transform tried on some records: which are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from mm2py.errors import BrokerAnsweredError
from mm2py.model.epoch import CopyLimits, Ended, PartitionFailure, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform import dry_run
from mm2py.pipeline.transform.columns import ARROW_IN_MILLIS
from mm2py.pipeline.transform.dry_run import SampleUnreadableError, newest
from mm2py.pipeline.transform.failures import UnreadableRange
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import LATEST
from tests.support.clocks import LoopClock


SOURCE = TopicPartition("t", 0)
SETTINGS = cast("Any", SimpleNamespace(source=None, limits=CopyLimits()))


class _Source:
    """A cluster with one topic-partition, or none."""

    alias = "A"

    def __init__(self, places: tuple[int, ...] = (), error_code: int = 0, end: int = 0) -> None:
        self._places = places
        self._end = end
        self.metadata = SimpleNamespace(topics={"t": SimpleNamespace(error_code=error_code)})

    async def ensure_metadata(self, _topics: object) -> None:
        """There is nothing to ask."""

    def partitions_of(self, _topic: str) -> tuple[int, ...]:
        return self._places

    async def list_offsets(self, places: list[TopicPartition], when: int, **_: bool) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self._end if when == LATEST else 0)


def _use(monkeypatch: pytest.MonkeyPatch, source: _Source) -> None:
    @asynccontextmanager
    async def cluster(*_: object) -> AsyncIterator[_Source]:
        yield source

    monkeypatch.setattr(dry_run, "Cluster", cluster)


@pytest.mark.parametrize("code", [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
async def test_a_topic_that_is_not_there_is_not_an_empty_one(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A misspelt name is an error, and so is one that may not be seen."""
    _use(monkeypatch, _Source(error_code=code))
    with pytest.raises(BrokerAnsweredError, match=r"cluster A .*\bt\b") as raised:
        await newest(SETTINGS, "t", 10, LoopClock())

    assert raised.value.code == (code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_an_empty_topic_has_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are a table all the same."""
    _use(monkeypatch, _Source((0,)))

    assert await newest(SETTINGS, "t", 10, LoopClock()) == ARROW_IN_MILLIS.empty_table()


@pytest.mark.parametrize(
    ("count", "newest_ones"), [(1, [96]), (3, [92, 94, 96]), (5, [1, 90, 92, 94, 96]), (9, [1, 90, 92, 94, 96])]
)
async def test_offsets_without_a_record_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, count: int, newest_ones: list[int]
) -> None:
    """A transaction's marker has the last offset, and so may a batch that was aborted; compaction leaves holes."""
    held = [1, 90, 92, 94, 96]

    class Reader:
        def __init__(self, *_: object, within_s: float) -> None: ...

        async def read_arrow(self, plan: PartitionPlan, **_: bool) -> AsyncIterator[pa.RecordBatch]:
            found = [offset for offset in held if plan.position <= offset < (plan.until or 0)]
            nothing = dict.fromkeys(ARROW_IN_MILLIS.names, [None] * len(found))
            yield pa.RecordBatch.from_pydict({**nothing, "offset": found}, schema=ARROW_IN_MILLIS)

    _use(monkeypatch, _Source((0,), end=98))
    monkeypatch.setattr(dry_run, "RangeReader", Reader)

    table = await newest(SETTINGS, "t", count, LoopClock())

    assert table.column("offset").to_pylist() == newest_ones


async def test_what_the_source_refuses_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks and JSON are for Spark's messages alone."""
    failure = PartitionFailure("the batch at offset 7 is corrupt", "look at the broker's disk")

    class Reader:
        def __init__(self, *_: object, within_s: float) -> None: ...

        async def read_arrow(self, *_: object, **__: bool) -> AsyncIterator[pa.RecordBatch]:
            raise UnreadableRange(SOURCE, Ended.FAILED, failure).error()
            yield

    _use(monkeypatch, _Source((0,)))
    monkeypatch.setattr(dry_run, "RangeReader", Reader)
    with pytest.raises(SampleUnreadableError) as raised:
        await newest(SETTINGS, "t", 10, LoopClock())

    assert str(raised.value) == "the batch at offset 7 is corrupt; look at the broker's disk"
