"""A transform that is tried on some records and hangs: the caller gets an error in bounded time."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pyarrow as pa
import pytest

from mm2py.clock import SystemClock
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark import session as session_module
from mm2py.pipeline.spark.session import SparkHost, SparkHungError
from mm2py.pipeline.transform import dry_run
from mm2py.pipeline.transform.columns import to_arrow
from mm2py.pipeline.transform.dry_run import TriedTooLongError, try_out
from mm2py.telemetry.journal import EventLog
from mm2py.wire.batches.record_columns import RecordColumns
from tests.support.eventually import long_enough, scaled


pytestmark = pytest.mark.timeout(240)

_HANGING = Transform("hanging", function="tests.support.transforms:hanging")
_RECORD = RecordColumns([0], [0], [0], [b"key"], [b"value"], [()])
_RECORDS = pa.Table.from_batches([to_arrow(TopicPartition("t", 0), _RECORD, is_for_spark=False)])


@pytest.fixture
async def host() -> AsyncIterator[SparkHost]:
    """Spark as ``mm2py transform`` has it."""
    clock = SystemClock()
    host = SparkHost({}, copy_tasks=1, clock=clock, events=EventLog(clock))
    yield host
    async with asyncio.timeout(scaled(30)):
        await host.stop(within_s=5)


async def test_a_function_that_hangs_is_told(host: SparkHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the function and the time it had; Spark is ended with it."""
    monkeypatch.setattr(dry_run, "TRIED_WITHIN_S", 10.0)
    session = await host.session()
    with pytest.raises(TriedTooLongError) as raised:
        await try_out(host, _HANGING, _RECORDS)

    assert str(raised.value) == "transform hanging on 1 records was not done within 10 s, and was ended"
    assert "--sample 1" in raised.value.hint
    assert not session.is_alive


async def test_a_jvm_that_hangs_is_told(host: SparkHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped JVM is not taken for a slow transform, and is reported long before the transform's limit."""
    monkeypatch.setattr(session_module, "SILENT_FOR_S", long_enough(3.0))
    session = await host.session()
    session.process.send_signal(signal.SIGSTOP)
    with pytest.raises(SparkHungError):
        await try_out(host, _HANGING, _RECORDS)

    assert not session.is_alive
