"""Which records are written in transactions, and under which ids."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mm2py.config.connector import MirrorSourceConfig
from mm2py.config.settings import load_settings
from mm2py.connectors.plugins import transforms_of
from mm2py.connectors.source.transactions import end_open_transactions, transactions_of
from mm2py.errors import ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import Transactions
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock


LINES = r"""
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.transform.orders.sql = SELECT * FROM records
A->B.transforms = mark
A->B.transforms.mark.type = org.apache.kafka.connect.transforms.InsertHeader
A->B.transforms.mark.header = a
A->B.transforms.mark.value.literal = b
B.producer.transaction.timeout.ms = 90000
"""


def _config(folder: Path, lines: str = "") -> MirrorSourceConfig:
    path = folder / "mm2.properties"
    path.write_text(LINES + lines)
    return next(flow.source_connector for flow in load_settings(path).flows if str(flow.flow) == "A->B")


def test_ids_follow_from_the_flow_and_the_transforms_name(tmp_path: Path) -> None:
    """So they are the same on every node; what is copied unopened has no transactions."""
    config = _config(tmp_path, "B.exactly.once.source.support = enabled\n")
    found = [transactions_of(config, it) for it in (*transforms_of(config).tasks, None)]

    assert found == [
        Transactions("mm2py-A->B-transform.orders.sql", "mm2-offsets.A.internal", 90_000),
        Transactions("mm2py-A->B-transforms", "mm2-offsets.A.internal", 90_000),
        None,
    ]


def test_without_exactly_once_there_are_none(tmp_path: Path) -> None:
    """Records become visible as they are written."""
    config = _config(tmp_path)

    assert [transactions_of(config, it) for it in transforms_of(config).tasks] == [None, None]


class Away:
    """A cluster that does not answer."""

    endpoint = ClusterEndpoint("B", ("b:9092",))
    clock = LoopClock()
    asked = 0

    async def send_to_any(self, *_: object) -> None:
        self.asked += 1
        raise ClusterUnreachableError("B", "b:9092", "gone")

    async def refresh_metadata(self, _topics: object) -> None:
        raise ClusterUnreachableError("B", "b:9092", "gone")


async def test_a_target_that_is_away_is_one_error(tmp_path: Path) -> None:
    """If transactions have to be ended first, the flow waits for the cluster, as for every other step."""
    config, away = _config(tmp_path, "B.exactly.once.source.support = enabled\n"), Away()
    with pytest.raises(ClusterUnreachableError):
        await end_open_transactions(config, cast("Cluster", away), range(9))

    assert away.asked == 2


async def test_without_transactions_no_broker_is_asked(tmp_path: Path) -> None:
    """A flow that is not in exactly-once mode asks nothing of a coordinator."""
    away = Away()
    await end_open_transactions(_config(tmp_path), cast("Cluster", away), range(9))

    assert away.asked == 0
