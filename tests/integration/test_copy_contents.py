"""What the copier copies between real brokers arrives equal, in every codec and shape that a source may hold."""

from __future__ import annotations

import functools

import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.copying import assert_exactly_once, copy_topics
from tests.support.producing import CODECS, produce
from tests.support.reading import read_topic
from tests.support.records import NewRecord, assert_same_records, assert_written, spread, strange_records
from tests.support.topics import create_topic


PARTITIONS = 8


@functools.cache
def strange_written() -> list[list[NewRecord]]:
    """Make 100 000 records of every kind, dealt out to the partitions."""
    return spread(strange_records(100_000), PARTITIONS)


@pytest.mark.parametrize("codec", CODECS, ids=str)
async def test_strange_records_arrive_equal(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, codec: str | None
) -> None:
    """100 000 records of every kind on 8 partitions arrive with key, value, headers and timestamps, in order."""
    written = strange_written()
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    await produce(primary.bootstrap_servers, prefix, written, codec=codec, idempotent=True)
    copied = await copy_topics(primary, backup, {prefix: f"A.{prefix}"})
    source = await read_topic(primary.bootstrap_servers, prefix)
    remote = await read_topic(backup.bootstrap_servers, f"A.{prefix}")

    assert_same_records(source, remote)
    assert_written(written, remote)
    assert_exactly_once(copied)
    assert copied.total("batches_unopened") > copied.total("batches_rebuilt")
