"""Transforms that take longer than a transaction may last, on real brokers and real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.telemetry.events import CopyTaskLate, PartitionStopped, TransactionFenced
from tests.support.brokers import MakeCluster
from tests.support.epochs import spark_of
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.topics import await_stable, create_topic


#: Brokers look for transactions that are open for too long every ten seconds; here at once.
_PROMPT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
_COUNT = 4_000
_SLOW = "IF(reflect('java.lang.Thread', 'sleep', 10L) = 'null', '', '')"


@pytest.mark.timeout(600)
@pytest.mark.soak(only="it waits for time limits")
async def test_a_transform_slower_than_its_transaction_gets_ahead_exactly(
    make_cluster: MakeCluster, prefix: str, tmp_path: Path
) -> None:
    """
    All that there is to read takes a minute, and its transaction lasts ten seconds at most, whatever is set.

    The round is given up and reported late, not waited for in vain; smaller ranges are taken until a transaction is
    committed, and what is visible is the source's records, each once.
    """
    clusters = make_cluster("source"), make_cluster("target", properties=_PROMPT)
    source, target = (cluster.bootstrap_servers for cluster in clusters)
    await create_topic(source, prefix, partitions=1)
    await produce_numbers(source, prefix, count=_COUNT, partitions=1)
    keys = {
        "A->B.topics": prefix,
        "A->B.transform.sql": f"SELECT * EXCEPT (value), concat(CAST(value AS STRING), {_SLOW}) AS value FROM records",
        "A.consumer.isolation.level": "read_committed",
        "B.exactly.once.source.support": "enabled",
        "B.producer.transaction.timeout.ms": 500,
    }
    async with spark_of() as spark, running_flow(flow_settings(source, target, **keys), tmp_path, spark=spark) as flow:
        view = flow.runner.view
        await eventually(lambda: view().records > 0, within_s=100, what="a transaction is committed")
        await flow.drain()

    await await_stable(target, f"A.{prefix}")
    arrived = (await read_numbers(target, f"A.{prefix}", reads_committed=True))[0]
    assert arrived == (await read_numbers(source, prefix))[0][: len(arrived)]
    assert arrived
    assert flow.events.of(CopyTaskLate)
    assert not flow.events.of(TransactionFenced)
    assert not flow.events.of(PartitionStopped)
