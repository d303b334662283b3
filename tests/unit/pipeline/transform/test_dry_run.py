"""A transform tried on some records: which are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from mm2py.errors import BrokerAnsweredError
from mm2py.model.epoch import CopyLimits, Ended, PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform import dry_run
from mm2py.pipeline.transform.columns import ARROW_IN_MILLIS
from mm2py.pipeline.transform.dry_run import SampleUnreadableError, newest
from mm2py.pipeline.transform.failures import UnreadableRange
from mm2py.wire.error_codes import ErrorCode
from tests.support.clocks import LoopClock


SOURCE = TopicPartition("t", 0)
SETTINGS = cast("Any", SimpleNamespace(source=None, limits=CopyLimits()))


class _Source:
    """A cluster with one topic-partition, or none."""

    alias = "A"

    def __init__(self, places: tuple[int, ...] = (), error_code: int = 0) -> None:
        self._places = places
        self.metadata = SimpleNamespace(topics={"t": SimpleNamespace(error_code=error_code)})

    async def ensure_metadata(self, _topics: object) -> None:
        """There is nothing to ask."""

    def partitions_of(self, _topic: str) -> tuple[int, ...]:
        return self._places

    async def list_offsets(self, places: list[TopicPartition], _when: int, **_: bool) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)


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
