"""What is stored of where records went, beside the position that is."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mm2py.core.offsets.known_offsets import stored_index
from mm2py.core.offsets.stored_runs import chunk_count, cut_chunk
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk
from tests.support.run_indexes import EPOCHS, Epoch, copied, everywhere


SOURCE = TopicPartition("orders", 3)


@given(EPOCHS, st.integers(0, 8), st.sampled_from([None, 4]))
def test_an_older_position_makes_nothing_void(epochs: list[Epoch], at: int, bound: int | None) -> None:
    """Where records went is stored first: a crash leaves it beside an older position, and all of it counts."""
    index, truth = copied(epochs, bound=bound)
    _, before = copied(epochs[:at])
    kept = [KeptChunk(SOURCE, number, None, cut_chunk(index, number)) for number in range(chunk_count(index))]
    found = stored_index(kept, Position(SOURCE, before.position, before.end - 1))
    index.take(before.position, (), before.position, before.end)

    assert found is not None
    assert [found.downstream(at) for at in everywhere(truth)] == [index.downstream(at) for at in everywhere(truth)]
