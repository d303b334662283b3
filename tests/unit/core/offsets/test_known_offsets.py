"""What is stored of where records went, beside the position that is."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from mm2py.core.offsets.known_offsets import stored_index
from mm2py.core.offsets.translation import Precision, RunIndex, Translated, chunk_count, cut_chunk
from mm2py.model.epoch import Run
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


def test_what_is_to_be_copied_once_more_counts_no_more() -> None:
    """
    An operator has set a position back: the target ended at 100 then.

    What was known is not cut where a position is merely older, nor where only markers were passed since.
    """
    index = RunIndex(0, 0, is_origin=True)
    index.take(0, [Run(0, 0, 100)], 102, 100)
    kept = [KeptChunk(SOURCE, 0, None, cut_chunk(index, 0))]
    back, older, before_markers = (
        stored_index(kept, Position(SOURCE, at, end - 1)) for at, end in ((50, 100), (50, 50), (100, 100))
    )

    assert back is not None
    assert older is not None
    assert before_markers is not None
    assert [back.downstream(it) for it in (49, 50, 60)] == [
        Translated(49),
        Translated(100),
        Translated(100, Precision.END),
    ]
    assert [it.downstream(60) for it in (older, before_markers)] == [Translated(60)] * 2
    assert [it.covered_to for it in (older, before_markers)] == [102] * 2
