"""Columns that do not cross to the JVM meet the rows that come back from it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkFiles

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.columns import NAMES, to_arrow
from mm2py.pipeline.transform.sql.carried_columns import CarriedColumns, CarriedColumnsLostError, kept_for_writer
from mm2py.wire.batches.record_columns import RecordColumns


_CARRIED = ("value", "headers")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    return tmp_path


def _batch(start: int, count: int) -> pa.RecordBatch:
    columns = RecordColumns()
    for offset in range(start, start + count):
        columns.offsets.append(offset)
        columns.timestamps.append(1_000)
        columns.timestamp_types.append(0)
        columns.keys.append(None)
        columns.values.append(b"%d" % offset)
        columns.headers.append((("n", b"%d" % offset),) if offset % 2 else ())
    return to_arrow(TopicPartition("orders", 0), columns)


def _given_back(*offsets: int) -> list[pa.RecordBatch]:
    """Return rows of a transform, in two batches."""
    rows = pa.RecordBatch.from_pydict({"offset": pa.array(offsets, pa.int64()), "key": [b"k"] * len(offsets)})
    return [rows.slice(0, 1), rows.slice(1)]


def _keep(number: int, *batches: pa.RecordBatch) -> None:
    with kept_for_writer(number, _CARRIED) as keep:
        for batch in batches:
            keep(batch)


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param((10, 11, 12, 13, 14), id="all"),
        pytest.param((11, 14), id="some"),
        pytest.param((13,), id="one"),
    ],
)
def test_rows_get_their_own_columns_back(offsets: tuple[int, ...]) -> None:
    """Whatever a filter has dropped, and however they are cut into batches."""
    _keep(0, _batch(10, 2), _batch(12, 3))
    with CarriedColumns(_CARRIED, 1) as columns:
        assert columns.size_bytes() > 0
        rows = [row for batch in columns.joined(0, _given_back(*offsets)) for row in batch.to_pylist()]

    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(it, b"k", b"%d" % it) for it in offsets]
    assert [len(row["headers"]) for row in rows] == [it % 2 for it in offsets]


def test_each_range_has_a_file_of_its_own_and_none_is_left(folder: Path) -> None:
    """Not even if the transform fails, or has dropped all records; nobody else may read them meanwhile."""
    _keep(0, _batch(0, 1))
    _keep(1, _batch(7, 1))
    _keep(2)
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    with CarriedColumns(_CARRIED, 3) as columns:
        values = [columns.joined(number, _given_back(at))[0]["value"].to_pylist() for number, at in ((0, 0), (1, 7))]
        assert columns.joined(2, []) == []
    _keep(0, _batch(0, 1))
    with pytest.raises(ValueError, match="failed"), CarriedColumns(_CARRIED, 1):
        raise ValueError("failed")

    assert (values, modes, list(folder.iterdir())) == ([[b"0"], [b"7"]], {0o600}, [])


def test_rows_that_nobody_has_read_are_refused() -> None:
    _keep(0, _batch(10, 2))
    with CarriedColumns(_CARRIED, 1) as columns, pytest.raises(CarriedColumnsLostError):
        columns.joined(0, _given_back(11, 12))


def test_nothing_is_written_where_nothing_is_carried(folder: Path) -> None:
    with kept_for_writer(0, ()) as keep:
        keep(_batch(0, 1))
    rows = [_batch(0, 1).select(list(NAMES))]
    with CarriedColumns((), 1) as columns:
        assert columns.joined(0, rows) == rows

    assert not list(folder.iterdir())
