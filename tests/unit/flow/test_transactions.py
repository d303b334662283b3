"""Which records are written in transactions, and under which ids."""

from __future__ import annotations

from pathlib import Path

from mm2py.config.settings import FlowSettings, load_settings
from mm2py.flow.plugins import transforms_of
from mm2py.flow.transactions import transactions_of
from mm2py.model.epoch import Transactions


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


def _settings(folder: Path, lines: str = "") -> FlowSettings:
    path = folder / "mm2.properties"
    path.write_text(LINES + lines)
    return next(flow for flow in load_settings(path).flows if str(flow.flow) == "A->B")


def test_ids_follow_from_the_flow_and_the_transforms_name(tmp_path: Path) -> None:
    """So they are the same on every node; what is copied unopened has no transactions."""
    settings = _settings(tmp_path, "B.exactly.once.source.support = enabled\n")
    found = [transactions_of(settings, it) for it in (*transforms_of(settings).tasks, None)]

    assert found == [
        Transactions("mm2py-A->B-transform.orders.sql", "mm2-offsets.A.internal", 90_000),
        Transactions("mm2py-A->B-transforms", "mm2-offsets.A.internal", 90_000),
        None,
    ]


def test_without_exactly_once_there_are_none(tmp_path: Path) -> None:
    """Records become visible as they are written."""
    settings = _settings(tmp_path)

    assert [transactions_of(settings, it) for it in transforms_of(settings).tasks] == [None, None]
