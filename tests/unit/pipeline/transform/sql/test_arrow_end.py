"""An input that ends early looks like a short one to Spark's Python, and must not to us."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from mm2py.pipeline.transform.sql.arrow_end import InputCutOffError, WholeInputs


_END_BYTES = 8


@pytest.fixture
def inputs(monkeypatch: pytest.MonkeyPatch) -> WholeInputs:
    monkeypatch.setattr(ArrowStreamSerializer, "load_stream", ArrowStreamSerializer.load_stream)
    watched = WholeInputs()
    watched.watch()
    return watched


def _stream(batches: int) -> bytes:
    """Make what Spark's JVM sends: a schema, batches, and the end."""
    batch = pa.record_batch({"value": pa.array([b"one", b"two"])})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue()


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_whole_input_is_given_and_counted(inputs: WholeInputs, batches: int) -> None:
    """Whatever comes behind it in the same stream."""
    stream = io.BytesIO(_stream(batches) + b"Spark's own words")

    given = list(ArrowStreamSerializer().load_stream(stream))

    assert sum(batch.num_rows for batch in given) == 2 * batches
    assert inputs.count == 1


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_an_input_that_is_cut_off_is_no_whole_one(inputs: WholeInputs, batches: int) -> None:
    """It ends between two batches, as it does when the JVM gives up; what came is given before that is told."""
    given = []

    with pytest.raises(InputCutOffError):
        given.extend(ArrowStreamSerializer().load_stream(io.BytesIO(_stream(batches)[:-_END_BYTES])))

    assert len(given) in (0, batches)
    assert inputs.count == 0


def test_watching_twice_is_watching_once(inputs: WholeInputs) -> None:
    """A worker is reused, and told to watch by each task."""
    inputs.watch()

    list(ArrowStreamSerializer().load_stream(io.BytesIO(_stream(1))))

    assert inputs.count == 1
